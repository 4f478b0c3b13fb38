//! What stands in the way of many items at once.

use super::super::Timer;
use super::super::context::Context;
use super::Dispatcher;
use crate::object::{Name, Uid};
use crate::queue::{Blocker, Delay, PROBE_EVERY, Row};
use crate::work::{Outcome, WorkReport};
use core::time::Duration;

/// What is refused to one item alone is tried again after this, and twice as long each time,
const ALONE_MIN: Duration = PROBE_EVERY;

/// up to this.
const ALONE_MAX: Duration = Duration::from_secs(300);

impl Dispatcher {
    /// An object of RBAC has changed: it may be a rule that was missing. `namespace` is empty for one that counts everywhere.
    pub(in crate::leader) fn rules_changed(&mut self, cx: &mut Context, namespace: &Name) {
        if !self.queue.is_anything_forbidden() {
            return;
        }
        for (row, due) in self.queue.rules_changed(cx.now, Some(namespace).filter(|name| !name.is_empty())) {
            cx.timers.set(due, Timer::Row(row));
        }
    }

    /// An attempt met this blocker. `looks`: what refused it has looked at the object.
    pub(in crate::leader) fn block(
        &mut self,
        cx: &mut Context,
        uid: &Uid,
        blocker: Blocker,
        wait: Duration,
        looks: bool,
    ) {
        if self.queue.is_refused_alone(uid, &blocker, looks) {
            let wait = self.longer(cx, uid, ALONE_MIN, ALONE_MAX);
            return self.backoff(cx, uid, wait, Delay::Refused(blocker));
        }
        if let Some(row) = self.queue.block(cx.now, uid, blocker, wait) {
            cx.timers.set(cx.now + wait, Timer::Row(row));
        }
    }

    pub(in crate::leader) fn row_due(&mut self, cx: &mut Context, row: Row) {
        if !self.queue.is_due(&row, cx.now) {
            return;
        }
        if let Some(next) = self.queue.probe(&row, cx.now) {
            cx.timers.set(next, Timer::Row(row));
        }
    }

    /// What an attempt shows about whatever it was the probe of, if it met `met`.
    pub(in crate::leader) fn passed(
        &mut self,
        cx: &mut Context,
        uid: &Uid,
        report: &WorkReport,
        met: Option<&Blocker>,
    ) {
        if says_nothing(report) {
            return;
        }
        let carried_out = matches!(report.outcome, Outcome::Done | Outcome::Unchanged);
        if let Some(row) = self.queue.passed(cx.now, uid, met, carried_out) {
            self.row_due(cx, row);
        }
    }
}

/// Whether an attempt ended before anything that stands in the way could have shown: it was not sent, not answered, or turned away at
/// the door.
fn says_nothing(report: &WorkReport) -> bool {
    match report.outcome {
        Outcome::Abandoned | Outcome::Unauthenticated | Outcome::Throttled | Outcome::Ambiguous => true,
        Outcome::Transient => report.http_status == 0,
        Outcome::Done
        | Outcome::Unchanged
        | Outcome::Gone
        | Outcome::Replaced
        | Outcome::Conflict
        | Outcome::OwnerExists
        | Outcome::Forbidden
        | Outcome::AdmissionDenied
        | Outcome::AdmissionFailed
        | Outcome::Unsupported
        | Outcome::Invalid => false,
    }
}
