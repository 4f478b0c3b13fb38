//! How items wait for another try.

use super::super::context::Context;
use super::super::{Logged, Timer};
use super::Dispatcher;
use crate::lease::SessionId;
use crate::object::Uid;
use crate::queue::{Blocker, Draft, Item, Put};
use crate::queue::{Delay, Place};
use crate::work::Outcome;
use crate::work::{LeaseId, WorkReport};
use core::time::Duration;

impl Dispatcher {
    pub(in crate::leader) fn note_credentials(&mut self, session: SessionId, outcome: Outcome) {
        if let Some(session) = self.leases.session_mut(session) {
            session.unauthenticated = outcome == Outcome::Unauthenticated;
        }
    }

    /// The wait after one more failure in a row: doubling, jittered, bounded.
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
        self.queue.place(uid, Place::Backoff { until, why });
        cx.timers.set(until, Timer::Item(uid.clone()));
    }

    pub(in crate::leader) fn item_due(&mut self, cx: &Context, uid: &Uid) {
        let due = |place: &Place| matches!(place, Place::Backoff { until, .. } if *until <= cx.now);
        if self.queue.get(uid).is_some_and(|item| due(&item.place)) {
            self.queue.make_ready(uid);
        }
    }

    pub(in crate::leader) fn is_decided(&self, logged: &Logged) -> bool {
        let item = self.queue.get(&logged.target.uid);
        item.is_some_and(|item| super::super::world::reasons::decision(&item.draft) == logged.decision)
    }

    /// Takes a decision, with where its cascade began. `observe` keeps it from ever being granted.
    pub(in crate::leader) fn put(&mut self, cx: &Context, draft: Draft, root: Option<Uid>, observe: bool) -> Put {
        self.queue.put(cx.now, draft, root, observe)
    }

    /// Takes a decision back. A leased item stays until its lease ends; its lease is given. `Ok` gives the item that was dropped.
    pub(in crate::leader) fn withdraw(&mut self, uid: &Uid) -> Result<Option<Item>, LeaseId> {
        self.queue.withdraw(uid)
    }

    /// Drops an item wherever it is.
    pub(in crate::leader) fn drop_item(&mut self, uid: &Uid) -> Option<Item> {
        self.queue.remove(uid)
    }

    pub(in crate::leader) fn next_ready(&mut self) -> Option<Uid> {
        self.queue.pop()
    }

    /// Puts a ready item that something holds by now to where it waits.
    pub(in crate::leader) fn hold(&mut self, uid: &Uid) {
        self.queue.make_ready(uid);
    }

    /// Puts an item behind what stands in its way.
    pub(in crate::leader) fn put_behind(&mut self, cx: &Context, uid: &Uid, blocker: Blocker) {
        self.queue.raise(cx.now, blocker.clone());
        self.queue.place(uid, Place::Behind(blocker));
    }

    /// Lets go what stood behind this.
    pub(in crate::leader) fn lift(&mut self, blocker: &Blocker) {
        self.queue.lift(blocker);
    }

    /// An event of this term tells of a decision, or none does.
    pub(in crate::leader) fn set_told(&mut self, uid: &Uid, told: bool) {
        if let Some(item) = self.queue.get_mut(uid) {
            item.told = told;
        }
    }

    pub(in crate::leader) fn note_trouble(&mut self, uid: &Uid, report: &WorkReport) {
        if let Some(item) = self.queue.get_mut(uid) {
            item.note_trouble(report.outcome, &report.message);
        }
    }

    /// An attempt was refused as invalid. Gives how often in a row.
    pub(in crate::leader) fn count_invalid(&mut self, uid: &Uid) -> u32 {
        self.queue.get_mut(uid).map_or(1, |item| {
            item.invalid += 1;
            item.invalid
        })
    }

    /// An attempt may have landed without an answer.
    pub(in crate::leader) fn may_have_landed(&mut self, uid: &Uid) {
        if let Some(item) = self.queue.get_mut(uid) {
            item.ambiguous = true;
        }
    }

    /// An attempt says nothing about its item.
    pub(in crate::leader) fn uncount_attempt(&mut self, uid: &Uid) {
        if let Some(item) = self.queue.get_mut(uid) {
            item.attempts = item.attempts.saturating_sub(1);
        }
    }

    /// An item was not carried out, and is for another executor at once.
    pub(in crate::leader) fn give_back(&mut self, uid: &Uid) {
        self.queue.give_back(uid);
    }
}
