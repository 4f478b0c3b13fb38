//! The effects of the perils on a world, and the facts about them that the judge needs.

use super::Perils;
use crate::random::Random;
use crate::sim::attempt::{Refused, Request};
use crate::sim::kinds::{KINDS, MIRRORED, NAMESPACES, by_resource, stored};
use crate::sim::options::Options;
use crate::sim::truth::{Actor, Life};
use crate::sim::users;
use crate::sim::world::{Happening, MS, S, World};
use engine::object::{OwnerReference, Uid};
use sandbox::model::{Model, Policy, Snapshot};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// The name of an owner about which every question fails. Its uid sorts before all others.
pub(in crate::sim) const UNREADABLE: &str = "unreadable";
const UNREADABLE_UID: &str = "00000000-0000-0000-0000-000000000000";
/// The maximum number of references of one object that the collector reads.
const REFERENCES_MAX: usize = 5_000;
const WEBHOOK: &str = "policy.example.com";

/// The state that the perils keep of a world.
#[derive(Debug)]
pub(in crate::sim) struct Perilous {
    random: Random,
    /// Older states of the store from which a member may answer, each with its time.
    copies: Vec<(Snapshot, u64)>,
    /// The last time at which a member answers.
    pub(in crate::sim) member_until: u64,
    /// The webhook denies every deletion before this time.
    webhook_until: u64,
    readds_left: u64,
}

impl Perilous {
    pub(in crate::sim) fn new(seed: u64, options: &Options) -> Perilous {
        Perilous {
            random: Random::new(seed, 10),
            copies: Vec::new(),
            member_until: 0,
            webhook_until: 0,
            readds_left: options.perils.readds,
        }
    }
}

/// A member of the API server with an older copy of the store.
#[derive(Debug)]
pub(in crate::sim) struct Member {
    pub(in crate::sim) model: Model,
    /// The time of the copy.
    pub(in crate::sim) of: u64,
    pub(in crate::sim) share: u64,
    pub(in crate::sim) until: u64,
    /// The member also answers lists and watches, because its copy belongs to the present history of the store.
    pub(in crate::sim) lists: bool,
}

impl Member {
    /// Returns whether the copy is older than the position that a client knows. A process that has just started knows
    /// nothing newer, so it never gets answers of a member.
    pub(in crate::sim) fn is_behind(&self, known: u64) -> bool {
        self.model.revision() < known
    }
}

impl World {
    /// Creates the objects of the perils.
    pub(in crate::sim) fn set_perils_up(&mut self) {
        let perils = self.options.perils.clone();
        self.server.truth.perils = perils.clone();
        self.server.foreign = perils.foreign;
        self.server.apart = (0..KINDS.len()).map(|kind| self.options.is_aggregated(kind)).collect();
        self.server.truth.mirror_served = perils.mirror;
        self.server.truth.find_unserved(&self.server.model, 0);
        if perils.many_references > 0 {
            self.many_references(perils.many_references);
        }
        if perils.many_owners > 0 {
            let at = self.perilous.random.between(0, self.options.span_s * S);
            self.after(at, Happening::Crowd { step: 0 });
        }
        if perils.poison {
            for _ in 0..self.perilous.random.between(1, 4) {
                self.unreadable_owner();
            }
        }
        self.server.commit(0, Actor::User);
    }

    /// May start a member, while there are faults.
    pub(in crate::sim) fn make_perils(&mut self) {
        let perils = self.options.perils.clone();
        if perils.mirror && self.perilous.random.once_in(60) {
            let served = !self.server.truth.mirror_served;
            self.note(|| format!("the mirror is {}", if served { "served again" } else { "hidden" }));
            self.tally.fault("mirror hidden");
            self.server.truth.mirror_served = served;
            self.server.truth.find_unserved(&self.server.model, self.now);
            self.spread();
        }
        if perils.poison && self.now > self.perilous.webhook_until && self.perilous.random.once_in(20) {
            self.tally.fault("webhook denies all");
            self.perilous.webhook_until = self.now + self.perilous.random.between(S, 40 * S);
        }
        if perils.member > 0 {
            self.perhaps_member(&perils);
        }
    }

    fn perhaps_member(&mut self, perils: &Perils) {
        if self.server.member.as_ref().is_some_and(|member| member.until <= self.now) {
            self.server.member = None;
            self.break_members_watches();
        }
        if self.perilous.copies.len() < 20 {
            self.perilous.copies.push((self.server.model.snapshot(), self.now));
        }
        if self.server.member.is_some() || self.perilous.random.below(1000) >= perils.member {
            return;
        }
        let Some((copy, of)) = self.perilous.random.pick(&self.perilous.copies).cloned() else { return };
        self.tally.fault("member");
        self.note(|| format!("a member answers with what was so at {}s", of / S));
        let mut model = Model::new(0, crate::sim::server::at(0));
        model.restore(copy);
        let until = self.now + self.perilous.random.between(S, 40 * S);
        let revision = model.revision();
        let lists = self.formers.iter().all(|former| of >= former.ended || revision <= former.shared_through);
        self.server.member = Some(Member { model, of, share: perils.member_share, until, lists });
        self.perilous.member_until = until;
    }

    /// Ends the faults. The webhook still denies the deletions that it denies for ever.
    pub(in crate::sim) fn calm_perils(&mut self) {
        self.server.member = None;
        self.break_members_watches();
        self.server.foreign = 0;
        self.perilous.webhook_until = 0;
        self.perilous.readds_left = 0;
        self.server.truth.mirror_served = self.options.perils.mirror;
        self.server.truth.find_unserved(&self.server.model, self.now);
    }

    /// Draws the group that discovery hides from a replica that starts, and the end of that time.
    pub(in crate::sim) fn undiscovered(&mut self) -> Option<(&'static str, u64)> {
        let chance = self.options.perils.undiscovered;
        if chance == 0 || self.calm || !self.perilous.random.percent(chance) {
            return None;
        }
        self.tally.fault("undiscovered");
        let group = ["example.com", "batch", "networking.k8s.io"][self.perilous.random.index(3)];
        let until = self.now + self.perilous.random.between(S, 100 * S);
        self.note(|| format!("{group} is not discovered until {}s", until / S));
        Some((group, until))
    }

    /// The additional time of each request.
    pub(in crate::sim) fn slowness(&mut self) -> u64 {
        let floor = self.options.perils.slow_ms * MS;
        if floor == 0 { 0 } else { self.perilous.random.between(floor * 9 / 10, floor) }
    }

    /// Returns whether the server answers questions about this object with an error.
    pub(in crate::sim) fn is_unreadable(&mut self, name: &str) -> bool {
        let unreadable = self.options.perils.poison && name == UNREADABLE;
        if unreadable {
            self.tally.fault("unreadable owner");
        }
        unreadable
    }

    /// Draws an error that answers a request in place of the server.
    pub(in crate::sim) fn peril_refuses(&mut self, request: &Request) -> Option<Refused> {
        if !self.options.perils.poison {
            return None;
        }
        if matches!(request, Request::Get(_)) && self.is_unreadable(&request.object().name) {
            return Some(Refused { code: 500, ..Refused::default() });
        }
        let Request::Delete { target, .. } = request else { return None };
        let kind = by_resource(&target.group, &target.resource).map(stored);
        let denied = kind == Some(MIRRORED) && is_poisoned_name(&target.name);
        if !denied && self.now >= self.perilous.webhook_until {
            return None;
        }
        self.tally.fault(if denied { "poisoned" } else { "denied for a while" });
        Some(Refused { code: 403, webhook: Some(String::from(WEBHOOK)), ..Refused::default() })
    }

    /// Runs the perils after each step.
    pub(in crate::sim) fn follow_perils(&mut self) {
        for (uid, removed) in std::mem::take(&mut self.server.stripped) {
            if self.perilous.readds_left > 0 && self.perilous.random.percent(40) {
                self.perilous.readds_left -= 1;
                let long = self.perilous.random.once_in(4);
                let after =
                    if long { self.perilous.random.between(S, 60 * S) } else { self.perilous.random.delay(500) };
                self.after(after, Happening::ReAdd { uid, references: removed });
            }
        }
        let restarts = self.options.perils.restarts;
        if restarts > 0 && !self.calm && self.perilous.random.below(100_000) < restarts {
            self.tally.fault("restart between two steps");
            let all = self.replicas.len() + self.executors.len();
            let which = self.perilous.random.index(all);
            match which.checked_sub(self.replicas.len()) {
                None => self.replica_crash(which),
                Some(executor) => self.executor_crash(executor),
            }
        }
    }

    /// Gives removed references back to the object, as a controller does that does not know of the removal.
    pub(in crate::sim) fn readd(&mut self, uid: &Uid, references: &[OwnerReference]) {
        let Some(life) = self.server.truth.lives.get(uid).filter(|life| life.exists()).cloned() else { return };
        self.tally.fault("reference put back");
        let mut owners: Vec<Value> = users::references_of(&life);
        owners.extend(references.iter().map(users::written));
        let done = self.server.merge(self.now, &life, json!({ "metadata": { "ownerReferences": owners } }));
        self.note(|| format!("a controller puts references back on {}: {done:?}", life.named()));
        self.server.commit(self.now, Actor::User);
        self.spread();
    }

    fn many_references(&mut self, count: u64) {
        let owner = users::owner_reference(&self.server, &mut self.perilous.random, |life| life.kind == MIRRORED);
        let gone = |number: u64| {
            json!({
                "apiVersion": "v1", "kind": "ConfigMap", "name": "gone",
                "uid": format!("{number:08x}-0000-4000-9000-000000000000"),
            })
        };
        let owners: Vec<Value> = owner.into_iter().chain((0..count).map(gone)).collect();
        let metadata = json!({ "name": "many-references", "ownerReferences": owners });
        let done = self.server.create(0, 1, NAMESPACES[0], metadata);
        self.note(|| format!("user creates an object with {count} references: {done:?}"));
    }

    fn unreadable_owner(&mut self) {
        let random = &mut self.perilous.random;
        let kind = [MIRRORED, 1, 3][random.index(3)];
        let of = KINDS[kind];
        let mut owners = vec![json!({
            "apiVersion": of.api_version(), "kind": of.kind, "name": UNREADABLE, "uid": UNREADABLE_UID,
        })];
        owners.extend(users::owner_reference(&self.server, random, |life| life.kind < 3));
        let name = format!("beside-unreadable-{}", random.below(4));
        let metadata = json!({ "name": name, "ownerReferences": owners });
        let done = self.server.create(0, random.index(3), NAMESPACES[0], metadata);
        self.note(|| format!("user creates {name}, which has an unreadable owner: {done:?}"));
    }

    /// Deletes many owners of one object in foreground, and then in another way.
    pub(in crate::sim) fn crowd(&mut self, step: u8) {
        let count = self.options.perils.many_owners;
        let named =
            |life: &&Life, prefix: &str| life.exists() && life.kind == 1 && life.object.name.starts_with(prefix);
        match step {
            0 => {
                for number in 0..count {
                    let _exists =
                        self.server.create(self.now, 1, NAMESPACES[0], json!({ "name": format!("crowd-{number}") }));
                }
                self.server.commit(self.now, Actor::User);
                let crowd = self.server.truth.lives.values().filter(|life| named(life, "crowd-"));
                let owners: Vec<Value> = crowd.map(|life| users::reference_to(life, true)).collect();
                let metadata = json!({ "name": "crowded", "ownerReferences": owners });
                let done = self.server.create(self.now, 1, NAMESPACES[0], metadata);
                self.note(|| format!("user creates an object with {count} owners: {done:?}"));
                self.server.commit(self.now, Actor::User);
                let crowded = self.server.truth.lives.values().find(|life| named(life, "crowded"));
                if let Some(owner) = crowded.map(|life| users::reference_to(life, true)) {
                    let metadata = json!({ "name": "below-the-crowd", "ownerReferences": [owner] });
                    let _exists = self.server.create(self.now, 1, NAMESPACES[0], metadata);
                }
            }
            _ => {
                let policy = if step == 1 { Policy::Foreground } else { Policy::Orphan };
                let crowd: Vec<Life> =
                    self.server.truth.lives.values().filter(|life| named(life, "crowd-")).cloned().collect();
                for life in &crowd {
                    let _gone = self.server.delete(self.now, life, Some(policy));
                }
                self.note(|| format!("user deletes {} owners with {policy:?}", crowd.len()));
                self.tally.fault("many owners");
            }
        }
        self.server.commit(self.now, Actor::User);
        self.spread();
        if step < 2 {
            let after = self.perilous.random.delay(4_000);
            self.after(after, Happening::Crowd { step: step + 1 });
        }
    }
}

/// Returns whether the webhook denies the deletion of the object with this name for ever.
fn is_poisoned_name(name: &str) -> bool {
    name == "configmaps-0"
}

/// Returns whether no write of the collector can delete the object.
pub(in crate::sim) fn is_poisoned(options: &Perils, life: &Life) -> bool {
    options.poison && life.kind == MIRRORED && is_poisoned_name(&life.object.name)
}

/// Returns whether an object has more references than the collector reads.
pub(in crate::sim) fn has_too_many(life: &Life) -> bool {
    let owners = &life.facts().owners;
    owners.len() > REFERENCES_MAX
        && owners
            .iter()
            .map(|owner| (&owner.api_version, &owner.kind, &owner.name, &owner.uid))
            .collect::<BTreeSet<_>>()
            .len()
            > REFERENCES_MAX
}
