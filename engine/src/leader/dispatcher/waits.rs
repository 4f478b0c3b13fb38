//! Retries of items: backoff, holds and blockers.

use super::super::consent;
use super::super::context::Context;
use super::super::{Logged, Timer};
use super::Dispatcher;
use crate::hold::Hold;
use crate::lease::SessionId;
use crate::object::Uid;
use crate::queue::{Blocker, Draft, Item, Put};
use crate::queue::{Delay, ItemState};
use crate::work::Outcome;
use crate::work::{LeaseId, WorkReport};
use alloc::vec::Vec;
use core::time::Duration;

impl Dispatcher {
    pub(in crate::leader) fn note_credentials(&mut self, session: SessionId, outcome: Outcome) {
        if let Some(session) = self.leases.session_mut(session) {
            session.unauthenticated = outcome == Outcome::Unauthenticated;
        }
    }

    /// Returns the wait after one more consecutive failure. The wait doubles, is jittered, and is bounded.
    pub(in crate::leader) fn longer(
        &mut self,
        cx: &mut Context,
        uid: &Uid,
        first: Duration,
        max: Duration,
    ) -> Duration {
        let Some(item) = self.queue.get_mut(uid) else { return first };
        let full = first.saturating_mul(1 << item.failures.min(16)).min(max);
        item.failures = item.failures.saturating_add(1);
        cx.jitter.between(full / 2, full)
    }

    pub(in crate::leader) fn backoff(&mut self, cx: &mut Context, uid: &Uid, wait: Duration, why: Delay) {
        let until = cx.now + wait;
        self.queue.place(uid, ItemState::Backoff { until, why });
        cx.timers.set(until, Timer::Item(uid.clone()));
    }

    pub(in crate::leader) fn item_due(&mut self, cx: &Context, uid: &Uid) {
        let due = |place: &ItemState| matches!(place, ItemState::Backoff { until, .. } if *until <= cx.now);
        if self.queue.get(uid).is_some_and(|item| due(&item.state)) {
            self.queue.make_ready(uid);
        }
    }

    pub(in crate::leader) fn is_decided(&self, logged: &Logged) -> bool {
        let item = self.queue.get(&logged.target.uid);
        item.is_some_and(|item| super::super::world::reasons::decision(&item.draft) == logged.decision)
    }

    /// Adds a decision with the hold of guards in force and the root of its cascade. `observe` prevents all grants of
    /// the decision.
    pub(in crate::leader) fn put(
        &mut self,
        cx: &Context,
        draft: Draft,
        hold: Option<Hold>,
        root: Option<Uid>,
        observe: bool,
    ) -> Put {
        self.queue.put(cx.now, draft, hold, root, observe)
    }

    /// Withdraws a decision. A leased item stays until its lease ends; the error is its lease. `Ok` contains the
    /// dropped item.
    pub(in crate::leader) fn withdraw(&mut self, uid: &Uid) -> Result<Option<Item>, LeaseId> {
        self.queue.withdraw(uid)
    }

    /// Drops an item in any state.
    pub(in crate::leader) fn drop_item(&mut self, uid: &Uid) -> Option<Item> {
        self.queue.remove(uid)
    }

    pub(in crate::leader) fn next_ready(&mut self) -> Option<Uid> {
        self.queue.pop()
    }

    /// Takes the items that have joined a refusal without an attempt.
    pub(in crate::leader) fn take_refused(&mut self) -> Vec<Uid> {
        self.queue.take_refused()
    }

    /// Applies the present hold of guards in force to an item.
    pub(in crate::leader) fn set_hold(&mut self, uid: &Uid, hold: Option<Hold>) {
        self.queue.set_hold(uid, hold);
    }

    /// Holds a ready item that lacks a consent.
    pub(in crate::leader) fn hold(&mut self, uid: &Uid, hold: Hold) {
        self.queue.place(uid, ItemState::Held(hold));
    }

    /// Makes at most `max` items ready that this hold holds, in the order of their uids. Returns their number.
    pub(in crate::leader) fn release(&mut self, hold: &Hold, max: usize) -> usize {
        self.queue.release_held(hold, max)
    }

    /// Makes an item ready that lacked a consent.
    pub(in crate::leader) fn release_item(&mut self, uid: &Uid) -> bool {
        let waits = self.queue.get(uid).is_some_and(|item| consent::waits(&item.state));
        if waits {
            self.queue.make_ready(uid);
        }
        waits
    }

    /// Puts an item behind a blocker.
    pub(in crate::leader) fn put_behind(&mut self, cx: &Context, uid: &Uid, blocker: Blocker) {
        self.queue.raise(cx.now, blocker.clone());
        self.queue.place(uid, ItemState::Behind(blocker));
    }

    /// Releases the items behind a blocker.
    pub(in crate::leader) fn lift(&mut self, blocker: &Blocker) {
        self.queue.lift(blocker);
    }

    /// Sets whether an event of this term has reported a decision.
    pub(in crate::leader) fn set_reported(&mut self, uid: &Uid, reported: bool) {
        if let Some(item) = self.queue.get_mut(uid) {
            item.reported = reported;
        }
    }

    pub(in crate::leader) fn note_trouble(&mut self, uid: &Uid, report: &WorkReport) {
        if let Some(item) = self.queue.get_mut(uid) {
            item.note_trouble(report.outcome, &report.message);
        }
    }

    /// Counts an attempt that was refused as invalid. Returns the number of consecutive refusals.
    pub(in crate::leader) fn count_invalid(&mut self, uid: &Uid) -> u32 {
        self.queue.get_mut(uid).map_or(1, |item| {
            item.invalid += 1;
            item.invalid
        })
    }

    /// Records that an attempt without an answer may have taken effect.
    pub(in crate::leader) fn may_have_landed(&mut self, uid: &Uid) {
        if let Some(item) = self.queue.get_mut(uid) {
            item.ambiguous = true;
        }
    }

    /// Does not count an attempt that says nothing about its item.
    pub(in crate::leader) fn uncount_attempt(&mut self, uid: &Uid) {
        if let Some(item) = self.queue.get_mut(uid) {
            item.attempts = item.attempts.saturating_sub(1);
        }
    }

    /// Makes an item that was not carried out ready for another executor.
    pub(in crate::leader) fn give_back(&mut self, uid: &Uid) {
        self.queue.give_back(uid);
    }
}
