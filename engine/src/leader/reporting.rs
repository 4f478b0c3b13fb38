//! Results of attempts, and the consequences of each outcome for the item, its target and its owners.
//!
//! The answer to a write closes only the *item*. An object leaves the graph only by DELETED or by a relist of its own
//! collection. A report about an object is a claim (see `claims`). The object enters the graph when the API server has
//! shown it to the graph service.

use super::claims::Says;
use super::closing::Left;
use super::dispatcher::repeating::essence;
use super::intake::Source;
use super::{AttemptEnd, Event, Leader, StreamId, Timer};
use crate::graph::NodeId;
use crate::late_writes::Ended;
use crate::lease::{Lease, SessionId};
use crate::marks::Marks;
use crate::object::{Object, ObjectRef, ResourceVersion, Uid};
use crate::queue::{Blocker, Delay, PROBE_EVERY};
use crate::work::{
    Action, ActionKind, Finding, FindingResult, Outcome, PropagationPolicy, ReportResult, Sighting, ToExecutor,
    WorkReport,
};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

/// Time within which the watch normally shows DELETED after an accepted delete. After this time the leader asks the API
/// server.
const WRITE_SHOWS_WITHIN: Duration = Duration::from_secs(30);
/// Time before the retry of an item that was refused as invalid twice or is not supported. A change of its facts ends
/// the wait.
const PARKED: Duration = Duration::from_secs(600);
const CONFLICT_MIN: Duration = Duration::from_millis(50);
/// Maximum wait after a conflict. The bound prevents a busy writer of the target from starving its deletion.
const CONFLICT_MAX: Duration = Duration::from_millis(250);
const TRANSIENT_MIN: Duration = Duration::from_millis(100);
/// Maximum wait after a transient failure. The bound lets all work finish within ten seconds of the recovery of a
/// server.
const TRANSIENT_MAX: Duration = Duration::from_secs(5);
/// Wait of an item after an unauthenticated attempt, if no other executor has room.
const UNAUTHENTICATED: Duration = Duration::from_secs(1);
/// Time for which the API server receives no requests if its 429 answer names no time.
const THROTTLED: Duration = Duration::from_secs(1);
/// Maximum time for which a 429 answer of the API server counts.
const THROTTLED_MAX: Duration = Duration::from_secs(30);

/// Maximum plausible number of API calls of one attempt.
const API_CALLS_MAX: u32 = 100_000;
/// Maximum plausible duration of one attempt, 24 hours.
const EXECUTION_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// The consequence of an outcome for its item.
enum Next {
    /// Closes the item. The target is judged from the state that its collection shows.
    Close,
    /// Closes the item of a target that is about to be deleted. The leader decides nothing about the target until the
    /// target is deleted, or until the deletion is overdue.
    AwaitRemoval,
    Backoff(Duration),
    Behind(Blocker, Duration),
    /// Makes the item ready for another executor at once.
    GiveBack,
}

impl Leader {
    pub(super) fn reports(&mut self, stream: StreamId, session: Option<SessionId>, reports: Vec<WorkReport>) {
        let results = reports.into_iter().map(|report| (report.lease, self.report(session, report))).collect();
        self.cx.send(stream, ToExecutor::ReportAck { results });
    }

    fn report(&mut self, session: Option<SessionId>, report: WorkReport) -> ReportResult {
        let ended = session.map_or(Ended::Other, |session| self.dispatcher.end_late_write(session, report.lease));
        if report.outcome == Outcome::Ambiguous {
            match ended {
                Ended::GivenUp(place) => self.dispatcher.unanswered(&mut self.cx, Some(place)),
                Ended::Foreign => match &report.about {
                    Some(about) => {
                        if let Some(place) = self.world.place(&about.target) {
                            self.dispatcher.unanswered(&mut self.cx, Some(place));
                        }
                    }
                    None => self.dispatcher.unanswered(&mut self.cx, None),
                },
                Ended::Other => {}
            }
        }
        // Lease ids and item numbers are unique only within the term that assigned them.
        let known = self.cx.term.as_ref() == Some(&report.term);
        if let Some(session) = session.filter(|_| known) {
            self.dispatcher.settle(session, report.lease);
        }
        let holds =
            known && self.dispatcher.leases().get(report.lease).is_some_and(|lease| Some(lease.session) == session);
        if !holds {
            // The lease is of another term, or was given up. The watches show its effects, and the target is judged
            // again.
            if known && self.dispatcher.leases().is_foreign(session, report.lease) {
                self.untrue(session, "lease_id", format!("lease {} was not granted to this executor", report.lease));
            }
            let Some(uid) = self.dispatcher.queue().uid_of(report.item).filter(|_| known).cloned() else {
                return if known { ReportResult::Unknown } else { self.report_late(session, &report) };
            };
            self.world.mark_uid(&uid);
            return ReportResult::AcceptedLate;
        }
        let Some(lease) = self.dispatcher.end_lease(report.lease) else { return ReportResult::Unknown };
        if let Some(place) = lease.destroys.clone().filter(|_| report.outcome == Outcome::Ambiguous) {
            self.dispatcher.unanswered(&mut self.cx, Some(place));
        }
        let executor = self
            .dispatcher
            .leases()
            .session(lease.session)
            .map_or_else(|| "".into(), |session| session.executor.clone());
        self.doubt_report(session, &lease, &report);
        let Some(item) = self.dispatcher.queue().get(&lease.target).filter(|item| item.id == lease.item) else {
            self.world.mark_uid(&lease.target);
            return ReportResult::Unknown;
        };
        let target = item.draft.target.clone();
        let decided_at = item.draft.preconditions.resource_version.clone();
        let (action, age) = (item.draft.action.kind(), self.cx.now.since(item.decided));
        let end = AttemptEnd::of(&report, target.clone(), action, executor, lease.grounds.clone());
        self.cx.event(Event::Attempted { item: lease.item, age, end });
        self.dispatcher.note_credentials(lease.session, report.outcome);
        if report.http_status != 0 && report.outcome != Outcome::Throttled {
            self.dispatcher.meter(&self.cx, &target.group_resource());
        }
        self.conclude(session, &target, action, &decided_at, &report, &lease);
        ReportResult::Accepted
    }

    /// Counts statements of a report that cannot be true, regardless of the API server.
    fn doubt_report(&mut self, session: Option<SessionId>, lease: &Lease, report: &WorkReport) {
        let mut untrue = |field, is_untrue: bool, why: String| {
            if is_untrue {
                self.untrue(session, field, why);
            }
        };
        let WorkReport { item, attempt, outcome, http_status, api_calls, execution_time, .. } = report;
        untrue("item_id", *item != lease.item, format!("the lease is for item {}, not {item}", lease.item));
        untrue(
            "attempt",
            *attempt != lease.attempt,
            format!("the lease is for attempt {}, not {attempt}", lease.attempt),
        );
        let is_status = matches!(http_status, 0 | 100..=599);
        untrue("http_status", !is_status, format!("{http_status} is not an HTTP status"));
        untrue("api_calls", *api_calls > API_CALLS_MAX, format!("{api_calls} API calls in one attempt"));
        let is_unasked = outcome.is_success() && *api_calls == 0;
        untrue("outcome", is_unasked, format!("{} without a request", outcome.as_str()));
        let lasts_too_long = *execution_time > EXECUTION_MAX;
        untrue(
            "execution_time",
            lasts_too_long,
            String::from("the duration of the attempt is longer than a day, or invalid"),
        );
    }

    fn conclude(
        &mut self,
        session: Option<SessionId>,
        target: &ObjectRef,
        action: ActionKind,
        decided_at: &ResourceVersion,
        report: &WorkReport,
        lease: &Lease,
    ) {
        let uid = &target.uid;
        if report.outcome.is_success() {
            self.ledger.ends_inherited(uid, lease.grounds.decision);
            if action == ActionKind::Delete {
                self.deletion_done(target, report.outcome, lease);
            }
        }
        if let Some(sighting) = &report.observed {
            self.claim_target(session, target, decided_at, sighting, report.outcome);
        }
        if !report.outcome.is_success() {
            if report.outcome != Outcome::Ambiguous {
                self.refund(uid);
            }
            self.dispatcher.note_trouble(uid, report);
        }
        let done = matches!(report.outcome, Outcome::Done | Outcome::Unchanged);
        let goes = report.observed.as_ref().is_none_or(|seen| seen.facts.terminating) && action == ActionKind::Delete;
        let what = self.dispatcher.queue().get(uid).map(|item| essence(&item.draft.action)).filter(|_| done && !goes);
        if let Some(what) = what {
            self.dispatcher.note_carried_out(&self.cx, uid, what);
        }
        let next = self.next(session, target, action, report);
        let met = match &next {
            Next::Behind(blocker, _) => Some(blocker.clone()),
            Next::Close | Next::AwaitRemoval | Next::Backoff(_) | Next::GiveBack => None,
        };
        self.dispatcher.passed(&mut self.cx, uid, report, met.as_ref());
        match next {
            Next::Close => {
                self.dispatcher.drop_item(uid);
                self.end_consent(uid);
            }
            Next::AwaitRemoval => {
                self.dispatcher.drop_item(uid);
                self.end_consent(uid);
                if self.world.graph().primary(uid).is_some() {
                    let by = self.dispatcher.process_of(session);
                    self.ledger.await_removal(self.cx.now, uid.clone(), by);
                    self.cx.timers.set_after(self.cx.now, WRITE_SHOWS_WITHIN, Timer::Write(uid.clone()));
                }
            }
            Next::Backoff(wait) => self.dispatcher.backoff(&mut self.cx, uid, wait, Delay::Failed),
            Next::GiveBack => self.dispatcher.give_back(uid),
            Next::Behind(blocker, wait) => {
                self.dispatcher.block(&mut self.cx, uid, blocker, wait, report.outcome == Outcome::AdmissionDenied);
            }
        }
        if self.world.graph().by_uid(uid).next().is_none() {
            // The target left the graph during the attempt, so no verdict withdraws the decision.
            self.drop_overtaken(lease);
        }
        // A newer decision and the other nodes of this uid are judged now. An owner in foreground deletion stops
        // waiting for the finished attempt.
        self.world.mark_uid(uid);
        self.world.mark_deleting_owners(uid);
    }

    fn next(
        &mut self,
        session: Option<SessionId>,
        target: &ObjectRef,
        action: ActionKind,
        report: &WorkReport,
    ) -> Next {
        let collection = target.group_resource();
        let again = |wait: Duration| report.retry_after.unwrap_or(wait).min(THROTTLED_MAX);
        match report.outcome {
            Outcome::Done | Outcome::Unchanged if report.observed.is_some() => Next::Close,
            Outcome::Done | Outcome::Unchanged | Outcome::Gone | Outcome::Replaced => Next::AwaitRemoval,
            Outcome::Conflict => {
                self.owner_missed(session, target, &report.findings);
                Next::Backoff(self.dispatcher.longer(&mut self.cx, &target.uid, CONFLICT_MIN, CONFLICT_MAX))
            }
            Outcome::OwnerExists => {
                self.owner_found(session, target, &report.findings);
                Next::Close
            }
            Outcome::Forbidden => {
                let namespace = target.namespace.clone();
                Next::Behind(Blocker::Forbidden { collection, namespace, action }, PROBE_EVERY)
            }
            Outcome::AdmissionDenied | Outcome::AdmissionFailed => {
                let name = report.webhook.clone().unwrap_or_else(|| String::from("admission"));
                Next::Behind(Blocker::Webhook { name }, PROBE_EVERY)
            }
            Outcome::Throttled => {
                self.dispatcher.pushed_back(&mut self.cx, &collection, again(THROTTLED));
                Next::Behind(Blocker::Throttled { collection }, Duration::ZERO)
            }
            Outcome::Unsupported => Next::Backoff(PARKED),
            Outcome::Invalid => {
                let times = self.dispatcher.count_invalid(&target.uid);
                Next::Backoff(if times > 1 { PARKED } else { TRANSIENT_MIN })
            }
            Outcome::Transient => {
                Next::Backoff(again(self.dispatcher.longer(&mut self.cx, &target.uid, TRANSIENT_MIN, TRANSIENT_MAX)))
            }
            Outcome::Ambiguous => {
                self.dispatcher.may_have_landed(&target.uid);
                Next::Backoff(TRANSIENT_MIN)
            }
            Outcome::Abandoned => Next::Backoff(Duration::ZERO),
            Outcome::Unauthenticated => {
                self.dispatcher.uncount_attempt(&target.uid);
                // A correct executor closes its window after this report. The wait protects against executors that do
                // not.
                let taker =
                    self.dispatcher.leases().sessions().any(|(id, other)| Some(id) != session && other.room() > 0);
                if taker { Next::GiveBack } else { Next::Backoff(UNAUTHENTICATED) }
            }
        }
    }

    /// Investigates an accepted delete whose object is neither gone nor changed.
    pub(super) fn write_due(&mut self, uid: &Uid) {
        let Some(by) = self.ledger.overdue(self.cx.now, uid, WRITE_SHOWS_WITHIN) else { return };
        match self.world.graph().primary(uid) {
            Some(id) => {
                self.dispatcher.note_carried_out(
                    &self.cx,
                    uid,
                    essence(&Action::Delete {
                        propagation_policy: PropagationPolicy::Background,
                        owner_checks: Vec::new(),
                    }),
                );
                if self.world.coverage().kind(self.world.graph().node(id).kind()).served().is_some() {
                    self.ask_about(id);
                }
                if let Some(by) = by {
                    let target = self.world.object_ref(id);
                    self.claim_gone(by, &target);
                }
                // The kind may be unserved, or the question may fail.
                self.cx.timers.set_after(self.cx.now, WRITE_SHOWS_WITHIN, Timer::Write(uid.clone()));
            }
            None => {
                self.ledger.end_removal(uid);
            }
        }
    }

    /// Handles an answer of the API server to the leader about an object in the graph, if the answer is newer.
    pub(super) fn sighted(&mut self, target: &ObjectRef, sighting: &Sighting) {
        let Some(id) = self.world.node_of(target).filter(|_| sighting.uid == target.uid) else { return };
        let known = self.world.graph().node(id).resource_version();
        if !known.is_some_and(|known| known.is_before(&sighting.resource_version)) {
            return;
        }
        let object = Object {
            marks: Marks::default(),
            uid: sighting.uid.clone(),
            namespace: target.namespace.clone(),
            name: target.name.clone(),
            resource_version: sighting.resource_version.clone(),
            facts: sighting.facts.clone(),
        };
        self.take_in(self.world.graph().node(id).kind(), object, Source::Ahead);
    }

    /// Handles an owner check that found an owner that is alive and not waiting.
    fn owner_found(&mut self, session: Option<SessionId>, target: &ObjectRef, findings: &[Finding]) {
        for finding in self.of_checks(session, target, findings) {
            let FindingResult::Exists(sighting) = &finding.result else { continue };
            if sighting.uid == finding.owner.uid {
                self.claim_owner(session, &finding.owner, Says::Shown(sighting.clone()), Some(target));
            } else {
                let why = format!("the report shows {} with uid {}", finding.owner, sighting.uid);
                self.untrue(session, "findings", why);
            }
        }
    }

    /// Returns the findings about the owners that the attempt had to check.
    fn of_checks<'a>(
        &mut self,
        session: Option<SessionId>,
        target: &ObjectRef,
        findings: &'a [Finding],
    ) -> Vec<&'a Finding> {
        let checks = self.dispatcher.queue().get(&target.uid).map_or(&[][..], |item| item.draft.action.owner_checks());
        let (ours, others): (Vec<_>, Vec<_>) = findings.iter().partition(|finding| checks.contains(&finding.owner));
        if let Some(other) = others.first() {
            self.untrue(session, "findings", format!("the lease did not ask for a check of {}", other.owner));
        }
        ours
    }

    /// Handles an owner check that did not find an owner. The finding proves nothing. The leader waits for the owner's
    /// collection, or asks for an owner that no collection shows.
    fn owner_missed(&mut self, session: Option<SessionId>, target: &ObjectRef, findings: &[Finding]) {
        for finding in self.of_checks(session, target, findings) {
            let Some(id) = self.world.node_of(&finding.owner) else { continue };
            if self.world.graph().node(id).is_observed() && !matches!(finding.result, FindingResult::Exists(_)) {
                self.claim_owner(session, &finding.owner, Says::Gone, None);
            }
            if !self.world.graph().node(id).is_observed() && !self.world.graph().node(id).is_absent() {
                self.world.hurry(&self.cx, id);
            }
        }
    }

    /// Handles an object of the graph that a consistent list does not show.
    pub(super) fn disagreement(&mut self, id: NodeId, version: Option<&ResourceVersion>) {
        let node = self.world.graph().node(id);
        let (kind, uid, name) = (node.kind(), node.uid(), String::from(node.name()));
        let position = self.world.coverage().kind(kind).position().cloned();
        // An object that changed after the list may have been created after the list.
        let was_there =
            |version: &ResourceVersion| node.resource_version().is_some_and(|known| !version.is_before(&known));
        let owed = |&(version, ref at): &(&ResourceVersion, ResourceVersion)| at.reached(version) && was_there(version);
        if let Some((version, position)) = version.zip(position).filter(owed) {
            let why =
                format!("a list at version {version} does not show {name}, but the watch, at version {position}, does");
            self.contradicted(kind, why);
        }
        if self.world.coverage().kind(kind).is_synced() {
            // The watch has lost the DELETED event, or has yet to show it.
            self.world.relist(
                &mut self.cx,
                kind,
                "a consistent list lacks an object that the watch has not shown as deleted",
            );
            self.ledger.await_removal(self.cx.now, uid.clone(), None);
            self.cx.timers.set_after(self.cx.now, WRITE_SHOWS_WITHIN, Timer::Write(uid));
        } else {
            self.take_out(id, None, Left::Collection { deleted: None });
        }
    }
}
