//! Blockers: conditions that delay many items at once.

use super::super::Timer;
use super::super::context::Context;
use super::Dispatcher;
use crate::object::{Name, Uid};
use crate::queue::{Blocker, Delay, PROBE_EVERY, Row};
use crate::work::{Outcome, WorkReport};
use core::time::Duration;

/// Time before the first retry of an item that is refused while others pass. The wait doubles with each further
/// refusal.
const ALONE_MIN: Duration = PROBE_EVERY;

/// Maximum time before the retry of an item that is refused while others pass.
const ALONE_MAX: Duration = Duration::from_secs(300);

impl Dispatcher {
    /// Releases items after a change of an RBAC object, which may add a missing rule. `namespace` is empty for a
    /// cluster-wide rule.
    pub(in crate::leader) fn rules_changed(&mut self, cx: &mut Context, namespace: &Name) {
        if !self.queue.is_anything_forbidden() {
            return;
        }
        for (row, due) in self.queue.rules_changed(cx.now, Some(namespace).filter(|name| !name.is_empty())) {
            cx.timers.set(due, Timer::Row(row));
        }
    }

    /// Puts an item behind the blocker that its attempt met. `looks` is true if the refusal depends on the object.
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

    /// Handles the result of an attempt for the blocker that the attempt probed. `met` is the blocker that the attempt
    /// met, if any.
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

/// Returns whether an attempt ended too early to show anything about its blocker: the request was not sent, was not
/// answered, or was rejected before admission.
fn says_nothing(report: &WorkReport) -> bool {
    match report.outcome {
        Outcome::Abandoned | Outcome::Unauthenticated | Outcome::Throttled | Outcome::Ambiguous => true,
        // A 401 comes from the server behind an APIService, or is about an owner.
        Outcome::Transient => matches!(report.http_status, 0 | 401),
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
