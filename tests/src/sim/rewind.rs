//! Restores of the store from a backup. A restore undoes all writes since the backup. Every watch then ends,
//! cleanly or by a broken connection.

use super::election::Lease;
use super::kinds::KINDS;
use super::truth::{Actor, Truth};
use super::users;
use super::world::{Happening, MS, S, World};
use engine::object::Uid;
use sandbox::model::{Policy, Snapshot};

/// The numbers of foreign writes after the first and after the second backup. In a live cluster, a restored store does
/// not pass its former version before a client has read it.
const WRITTEN_SINCE: [u64; RESTORES_MAX] = [1_000_000, 1_000];
/// The number for `etcdutl --bump-revision`.
const BUMP: u64 = 1_000_000_000;
const RESTORES_MAX: usize = 2;
/// The time during which the restored Lease may name a former holder, or none.
const LEASE_SETTLES: u64 = 60 * S;

#[derive(Debug)]
pub(super) struct Backup {
    model: Snapshot,
    truth: Truth,
    lease: Lease,
}

/// The state at the end of a history.
#[derive(Debug)]
pub(super) struct Former {
    pub(super) truth: Truth,
    pub(super) ended: u64,
    /// The last revision that the former history and the next one share.
    pub(super) shared_through: u64,
}

impl World {
    /// Takes a backup, or restores the existing one.
    pub(super) fn back_up_or_restore(&mut self) {
        let Some(backup) = self.backup.take() else {
            if let Some(&written) = WRITTEN_SINCE.get(self.formers.len()) {
                self.note(|| String::from("a backup is taken"));
                self.owners_to_lose();
                let (model, truth) = (self.server.model.snapshot(), self.server.truth.clone());
                self.backup = Some(Backup { model, truth, lease: self.lease.clone() });
                self.server.model.advance_revision(written);
                self.server.truth.skip_to(self.server.model.revision());
            }
            return;
        };
        self.tally.fault(if self.options.bumped { "restore, bumped" } else { "restore" });
        self.server.model.restore(backup.model);
        let shared_through = self.server.model.revision();
        if let Some(member) = &mut self.server.member {
            member.lists &= member.model.revision() <= shared_through;
        }
        let truth = std::mem::replace(&mut self.server.truth, backup.truth);
        self.server.truth.inherit(&truth);
        self.formers.push(Former { truth, ended: self.now, shared_through });
        self.lease = backup.lease;
        self.lease_forged_until = self.now + LEASE_SETTLES;
        if self.options.bumped {
            self.server.model.advance_revision(BUMP);
            let revision = self.server.model.revision();
            self.server.model.compact(revision);
            self.server.truth.skip_to(revision);
        }
        self.note(|| format!("the store is restored to revision {shared_through}"));
        self.server.truth.find_unserved(&self.server.model, self.now);
        let clean = self.chaos.once_in(2);
        if clean {
            self.tally.fault("restore behind clean ends");
        }
        for at in 0..self.replicas.len() {
            if self.replicas[at].leader.is_some() {
                self.break_connections(at, clean);
            }
        }
        self.spread();
    }

    /// Creates owners that a user deletes after the backup, with dependents that outlast them. A restore brings these
    /// owners back.
    fn owners_to_lose(&mut self) {
        for number in 0..self.user.between(1, 3) {
            let name = format!("lost-{}-{number}", self.formers.len());
            let Some(owner) = users::owner_to_lose(&mut self.server, self.now, &mut self.user, &name) else { continue };
            let at = self.user.between(0, 30 * S);
            self.after(at, Happening::UserLoses { owner });
        }
        self.server.commit(self.now, Actor::User);
        self.spread();
    }

    pub(super) fn user_loses(&mut self, owner: &Uid) {
        let Some(life) = self.server.truth.lives.get(owner).filter(|life| life.exists()).cloned() else { return };
        let done = self.server.delete(self.now, &life, Some(Policy::Background));
        self.note(|| format!("user loses {}: {done:?}", life.named()));
        self.server.commit(self.now, Actor::User);
        self.spread();
    }

    /// The number of the present history of the store.
    pub(super) fn history(&self) -> usize {
        self.formers.len()
    }

    /// Ends each watch in flight, cleanly or by a broken connection. Each client notices in its own time, and most
    /// notice at once. A broken connection also ends requests.
    fn break_connections(&mut self, at: usize, clean: bool) {
        let epoch = self.replicas[at].epoch;
        for kind in 0..KINDS.len() {
            let Some(generation) = self.replicas[at].collections[kind].cut(clean) else { continue };
            let delay = if self.chaos.once_in(8) { self.chaos.between(S, 30 * S) } else { self.chaos.between(MS, S) };
            self.after(delay, Happening::Broken { replica: at, epoch, kind, generation });
        }
    }
}
