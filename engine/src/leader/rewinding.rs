//! The store went back: what was decided by the lost history is void, and everything is listed again before anything is granted.

use super::closing::Left;
use super::history::{AGREE_AFTER, Read, Settled};
use super::{Event, KnownVersions, Leader, OnStoreRewind, ProbeAnswer, Purpose, Timer};
use crate::coverage::KindId;
use crate::object::{ResourceVersion, Uid};
use crate::queue::Place;
use crate::work::RevokeMode;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

/// After a store went back: between two reads.
const SETTLE_EVERY: Duration = Duration::from_secs(5);

impl Leader {
    /// The store's history is another one than the graph was built from: everything that rests on the old one is void.
    pub(super) fn rewind(&mut self, kind: KindId, why: String) {
        let Some(lost) = self.world.lose_history(&mut self.cx, kind, why) else { return };
        self.history.rewind(lost.everything.then_some(&lost.kinds));
        self.prober.void(&lost.kinds);
        if lost.everything {
            self.forget_pause_versions();
            self.cx.event(Event::GrantsStopped { why: String::from("the store's history changed") });
        }
        self.restart_barrier();
        self.ledger.forget_ours();
        self.claims.forget();
        self.void_inherited();
        self.world.void_history(&mut self.cx, &lost);
        self.void_items();
    }

    /// Nothing decided so far is carried out.
    fn void_items(&mut self) {
        let leases: Vec<_> = self
            .dispatcher
            .queue()
            .uids()
            .filter_map(|uid| match self.dispatcher.queue().get(uid)?.place {
                Place::Leased(lease) => Some(lease),
                Place::Ready | Place::Observed | Place::Held(_) | Place::Backoff { .. } | Place::Behind(_) => None,
            })
            .collect();
        self.dispatcher.revoke(&mut self.cx, &leases, RevokeMode::Stop, "the store's history changed");
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
    }

    /// A collection of the new history is known, or cannot be.
    pub(super) fn relisted(&mut self, kind: KindId) {
        if self.history.relisted(kind) && self.cx.config.policy.on_store_rewind == OnStoreRewind::Continue {
            self.settle_later();
        }
    }

    fn settle_later(&mut self) {
        self.cx.timers.set(self.cx.now + SETTLE_EVERY, Timer::Settle);
    }

    /// Reads one collection after the other, until enough answers in a row have fitted.
    pub(super) fn ask_settle(&mut self) {
        let Some(fitted) = self.history.fitted() else { return };
        let candidates = self.world.witnesses();
        let at = usize::try_from(fitted).unwrap_or(0).checked_rem(candidates.len());
        match at.map(|at| candidates[at].clone()) {
            Some((kind, high)) => self.probe(kind, None, Some(1), Purpose::Settle(kind, high)),
            None => self.settle_later(),
        }
    }

    pub(super) fn settle_answered(
        &mut self,
        kind: KindId,
        position: &ResourceVersion,
        known: &KnownVersions,
        answer: Result<ProbeAnswer, String>,
    ) {
        if !self.history.is_settling() {
            return;
        }
        let is_behind = |version: &ResourceVersion| known.store.as_ref().is_some_and(|seen| version.is_before(seen));
        let read = match answer {
            Ok(answer) if self.world.contradicts(&self.cx, kind, position, &answer.resource_version) => {
                self.rewind(kind, format!("the store stands at {} again", answer.resource_version));
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
                self.rewind(kind, format!("{AGREE_AFTER} lists in a row stand before what was seen since"));
                // A kind that is not served any more cannot be rewound: the others tell.
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

    /// Objects of a kind that the new history does not serve are known from the old one alone: without this they would hold their owners'
    /// deletion for ever. From here on they count as little as they do after a restart.
    fn forget_unserved(&mut self) {
        for id in self.world.of_lost_kinds() {
            // One that only another of this kind referred to goes with that one.
            if self.world.graph().get(id).is_some_and(|node| node.is_observed()) {
                self.take_out(id, None, Left::Sight);
            }
        }
    }
}
