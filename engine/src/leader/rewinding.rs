//! Recovery after a store rewind: decisions from the lost history become void, and all collections are listed again
//! before grants resume.

use super::closing::Left;
use super::history::{AGREE_AFTER, Read, Settled};
use super::{Event, KnownVersions, Leader, OnStoreRewind, ProbeAnswer, Purpose, Timer};
use crate::coverage::KindId;
use crate::object::{ResourceVersion, Uid};
use crate::work::RevokeMode;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

/// Time between two reads while the history settles.
const SETTLE_EVERY: Duration = Duration::from_secs(5);

impl Leader {
    /// Starts a new history after a store rewind. All conclusions from the lost history become void.
    pub(super) fn rewind(&mut self, kind: KindId, why: String) {
        let Some(lost) = self.world.lose_history(&mut self.cx, kind, why) else { return };
        self.history.rewind(lost.everything.then_some(&lost.kinds));
        self.prober.void(&lost.kinds);
        if lost.everything {
            self.forget_guard_versions();
            self.cx.event(Event::GrantsStopped { why: String::from("the store was rewound") });
        }
        self.restart_barrier();
        self.ledger.forget_ours();
        self.claims.forget();
        self.parity.forget_waiting();
        self.void_inherited();
        self.world.void_history(&mut self.cx, &lost);
        self.void_items();
    }

    /// Voids all current decisions.
    fn void_items(&mut self) {
        let leases: Vec<_> =
            self.dispatcher.queue().uids().filter_map(|uid| self.dispatcher.queue().get(uid)?.lease()).collect();
        self.dispatcher.revoke(&mut self.cx, &leases, RevokeMode::Stop, "the store was rewound");
        for id in leases {
            if let Some(lease) = self.dispatcher.give_up(id) {
                self.drop_item(&lease.target, lease.grounds);
            }
        }
        for uid in self.dispatcher.queue().uids().cloned().collect::<Vec<Uid>>() {
            let Some(item) = self.dispatcher.queue().get(&uid) else { continue };
            let grounds = self.world.grounds_now(&self.cx, &item.draft);
            self.drop_item(&uid, grounds);
        }
        self.end_all_questions();
    }

    /// Records that a collection of the new history is listed or cannot be listed.
    pub(super) fn relisted(&mut self, kind: KindId) {
        if self.history.relisted(kind) && self.cx.config.policy.on_store_rewind == OnStoreRewind::Continue {
            self.settle_later();
        }
    }

    fn settle_later(&mut self) {
        let at = self.cx.now + SETTLE_EVERY;
        self.history.settle_at(at);
        self.cx.timers.set(at, Timer::Settle);
    }

    /// Reads one collection after another until enough consecutive answers are consistent.
    pub(super) fn ask_settle(&mut self) {
        let Some(fitted) = self.history.take_due(self.cx.now) else { return };
        let candidates = self.world.witnesses();
        let at = usize::try_from(fitted).unwrap_or(0).checked_rem(candidates.len());
        match at.map(|at| candidates[at].0) {
            Some(kind) => self.probe(kind, None, Some(1), Purpose::Settle),
            None => self.settle_later(),
        }
    }

    pub(super) fn settle_answered(&mut self, kind: KindId, known: &KnownVersions, answer: Result<ProbeAnswer, String>) {
        let Some(position) = known.own.as_ref().filter(|_| self.history.is_settling()) else { return };
        let is_behind = |version: &ResourceVersion| known.store.as_ref().is_some_and(|seen| version.is_before(seen));
        let read = match answer {
            Ok(answer) if self.world.contradicts(&self.cx, kind, position, &answer.resource_version) => {
                self.rewind(kind, format!("the store is at version {} again", answer.resource_version));
                Read::Contradicts
            }
            Ok(answer) if is_behind(&answer.resource_version) => Read::Behind,
            Ok(_) => Read::Fits,
            Err(_) => Read::Failed,
        };
        match self.history.settle(read) {
            None => {}
            Some(Settled::More) => self.settle_later(),
            Some(Settled::WentBack) => {
                self.rewind(kind, format!("{AGREE_AFTER} consecutive lists are before the known position"));
                // The kind is no longer served, so this read cannot be judged. The reads of other collections decide.
                if self.history.is_settling() {
                    self.settle_later();
                }
            }
            Some(Settled::Trusted) => {
                self.forget_unserved();
                self.doubt_ended();
            }
        }
    }

    /// Removes the objects of kinds that the new history does not serve. Only the lost history shows these objects, and
    /// they would block the deletion of their owners forever. After this call the leader knows as little about them as
    /// after a restart of the process.
    fn forget_unserved(&mut self) {
        for id in self.world.of_lost_kinds() {
            // The removal of another node may have removed this node.
            if self.world.graph().get(id).is_some_and(|node| node.is_observed()) {
                self.take_out(id, None, Left::Sight);
            }
        }
    }
}
