//! How items wait for another try.

use super::super::context::Context;
use super::super::{Logged, Timer};
use super::Dispatcher;
use crate::lease::SessionId;
use crate::object::Uid;
use crate::queue::{Delay, Place};
use crate::work::Outcome;
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
}
