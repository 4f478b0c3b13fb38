//! The end of decisions in the log: deletions whose objects are gone, and open decisions of earlier leaders.
//!
//! A report of an earlier term proves nothing about the cluster. It ends its decision in the log, and its target is
//! judged again.

use super::ledger::{AcceptedDelete, Inherited};
use super::{AttemptEnd, Event, FINALIZERS_TOLD_MAX, LOGGED_MAX, Leader, Logged, LoggedStep, Timer};
use crate::graph::NodeId;
use crate::lease::{Lease, SessionId};
use crate::object::{Name, ObjectRef, ResourceVersion, Uid};
use crate::queue::Item;
use crate::work::{About, ActionKind, Outcome, ReportResult, WorkReport};
use alloc::vec::Vec;
use core::time::Duration;

/// Time in which executors may report leases of earlier terms. Open decisions without a report are closed after this
/// time, which is longer than an attempt and its report take.
const REPORTED_WITHIN: Duration = Duration::from_secs(60);
/// Maximum number of decisions that are closed at once.
const CLOSED_AT_ONCE: usize = 1000;
/// Time between two batches of closed decisions.
const CLOSED_EVERY: Duration = Duration::from_millis(10);

/// How an object leaves the set of observed objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Left {
    /// The collection shows the deletion of the object, by a DELETED event at this version or by a list without the
    /// object.
    Collection { deleted: Option<ResourceVersion> },
    /// No collection shows the object any more. The object may still exist.
    Sight,
}

impl Left {
    /// Returns the version of the DELETED event, if there was one.
    pub(super) fn version(&self) -> Option<ResourceVersion> {
        match self {
            Left::Collection { deleted } => deleted.clone(),
            Left::Sight => None,
        }
    }
}

impl Leader {
    /// Records that a deletion was carried out.
    pub(super) fn deletion_done(&mut self, target: &ObjectRef, outcome: Outcome, lease: &Lease) {
        if let Some(version) = &lease.gone {
            self.refund(&target.uid);
            return self.cx.confirm(target.clone(), version.clone(), lease.grounds.clone());
        }
        self.spend(target);
        self.delete_accepted(&target.uid, lease.grounds.decision, outcome == Outcome::Done);
    }

    fn delete_accepted(&mut self, uid: &Uid, decision: u64, ours: bool) {
        let Some(id) = self.world.graph().primary(uid) else { return };
        self.ledger.accept(uid, decision, ours);
        self.tell_finalizers(id);
    }

    /// Reports once which finalizers keep an object in deletion after a DELETE of an executor.
    pub(super) fn tell_finalizers(&mut self, id: NodeId) {
        let is_terminating = |id| self.world.graph().get(id).is_some_and(|node| node.is_terminating());
        if !self.ledger.has_accepted_any() || !is_terminating(id) {
            return;
        }
        let node = self.world.graph().node(id);
        let uid = node.uid();
        let Some(decision) = self.ledger.unreported(&uid) else { return };
        let Some(resource_version) = node.resource_version() else { return };
        let finalizers: Vec<Name> = node.foreign_finalizers().take(FINALIZERS_TOLD_MAX).cloned().collect();
        if finalizers.is_empty() {
            return;
        }
        self.ledger.set_reported(&uid);
        let (target, grounds) = (self.world.object_ref(id), self.world.grounds_of(&self.cx, &uid, decision));
        if self.cx.term.is_some() {
            self.cx.event(Event::AwaitingFinalizers { target, resource_version, finalizers, grounds });
        }
    }

    /// Records that an observed object is about to leave the graph. Returns whether an executor deleted the object.
    pub(super) fn leaves(&mut self, id: NodeId, left: Left) -> bool {
        let uid = self.world.graph().node(id).uid();
        let accepted = self.ledger.end_accepted(&uid);
        let deletion = self.dispatcher.queue().get(&uid).filter(|item| item.draft.action.kind() == ActionKind::Delete);
        let lease = deletion.and_then(Item::lease);
        let by_us = lease.is_some() || accepted.is_some_and(|accepted| accepted.ours);
        let was_decided = deletion.is_some();
        let Left::Collection { deleted } = left else { return by_us };
        if was_decided {
            let target = self.world.object_ref(id);
            self.spend(&target);
        }
        let deletion = self.dispatcher.queue().get(&uid).filter(|item| item.draft.action.kind() == ActionKind::Delete);
        if let Some(AcceptedDelete { decision, .. }) = accepted {
            self.ledger.ends_inherited(&uid, decision);
            let (target, grounds) = (self.world.object_ref(id), self.world.grounds_of(&self.cx, &uid, decision));
            self.cx.confirm(target, deleted, grounds);
            return by_us;
        }
        if let Some(lease) = lease {
            self.dispatcher.target_gone(lease, deleted);
            return by_us;
        }
        let decided = deletion.map(|item| (super::world::reasons::decision(&item.draft), item.ambiguous));
        if let Some((decision, true)) = decided {
            // An attempt without an answer has taken effect.
            self.dispatcher.drop_item(&uid);
            self.ledger.ends_inherited(&uid, decision);
            let (target, grounds) = (self.world.object_ref(id), self.world.grounds_of(&self.cx, &uid, decision));
            self.cx.confirm(target, deleted, grounds);
            return true;
        }
        let Some(inherited) = self.ledger.inherited_has_gone(&uid, deleted) else { return by_us };
        if decided.is_some_and(|(decision, _)| decision == inherited) {
            self.dispatcher.drop_item(&uid);
        }
        true
    }

    /// Drops a decision that was replaced, or whose target left the graph, during its lease.
    pub(super) fn drop_overtaken(&mut self, lease: &Lease) {
        let landed = self
            .dispatcher
            .queue()
            .get(&lease.target)
            .filter(|item| item.ambiguous)
            .map(|item| item.draft.target.clone());
        match (landed, &lease.gone) {
            (Some(target), Some(version)) => {
                self.dispatcher.drop_item(&lease.target);
                self.ledger.ends_inherited(&lease.target, lease.grounds.decision);
                self.cx.confirm(target, version.clone(), lease.grounds.clone());
            }
            (Some(_), None) | (None, _) => self.drop_item(&lease.target, lease.grounds.clone()),
        }
    }

    /// Takes over the open decisions of earlier leaders.
    pub(super) fn inherit(&mut self, logged: Vec<Logged>) {
        if self.cx.term.is_none() {
            return;
        }
        for logged in logged.into_iter().take(LOGGED_MAX) {
            let uid = logged.target.uid.clone();
            let is_accepted = self.ledger.accepted(&uid).is_some_and(|known| known.decision == logged.decision);
            // A decision that this leader has also made ends with this leader's item.
            if is_accepted || (logged.step == LoggedStep::Waiting && self.dispatcher.is_decided(&logged)) {
                continue;
            }
            let (decision, step) = (logged.decision, logged.step);
            let before = self.ledger.inherit(logged);
            if self.ledger.inherited(&uid).is_some_and(Inherited::is_by_executor) {
                self.world.credit(&uid);
            }
            if let Some(before) = before.filter(|before| before.decision != decision) {
                self.world.supersede_logged(&mut self.cx, before);
            }
            if step == LoggedStep::Accepted && self.world.graph().primary(&uid).is_some() {
                self.ledger.end_inherited(&uid);
                self.delete_accepted(&uid, decision, true);
            }
        }
        if self.ledger.has_inherited_any() {
            self.cx.timers.set_after(self.cx.now, REPORTED_WITHIN, Timer::Inherited);
        }
    }

    /// Closes all inherited decisions after a store rewind.
    pub(super) fn void_inherited(&mut self) {
        for logged in self.ledger.take_inherited() {
            self.world.supersede_logged(&mut self.cx, logged);
        }
    }

    /// Closes inherited decisions that no executor has reported.
    pub(super) fn inherited_due(&mut self) {
        let uids = self.ledger.next_inherited(CLOSED_AT_ONCE);
        for uid in &uids {
            self.close_inherited(uid);
        }
        if uids.len() == CLOSED_AT_ONCE {
            self.cx.timers.set_after(self.cx.now, CLOSED_EVERY, Timer::Inherited);
        } else if self.ledger.has_inherited_any() {
            self.cx.timers.set_after(self.cx.now, REPORTED_WITHIN, Timer::Inherited);
        }
    }

    fn close_inherited(&mut self, uid: &Uid) {
        let Some(inherited) = self.ledger.inherited(uid) else { return };
        let target = inherited.logged.target.clone();
        let kind = self.world.kind_of(&target);
        let entry = self.world.coverage().kind(kind);
        // An unseen object of a served kind may exist. An object of an unserved kind will not be seen again.
        let unseen = self.world.graph().primary(uid).is_none() && inherited.gone.is_none();
        if unseen && entry.is_unseen() {
            return;
        }
        let is_lost = unseen && !entry.is_synced();
        let Some(Inherited { logged, gone }) = self.ledger.end_inherited(uid) else { return };
        if self.dispatcher.is_decided(&logged) {
            return;
        }
        if self.world.graph().primary(uid).is_some() || is_lost || logged.action != ActionKind::Delete {
            return self.world.supersede_logged(&mut self.cx, logged);
        }
        match logged.step {
            LoggedStep::Waiting => self.world.supersede_logged(&mut self.cx, logged),
            LoggedStep::Leased | LoggedStep::Accepted => {
                let grounds = self.world.grounds_of(&self.cx, uid, logged.decision);
                self.cx.confirm(target, gone.flatten(), grounds);
            }
        }
    }

    /// Handles a report about a lease of an earlier leader.
    pub(super) fn report_late(&mut self, session: Option<SessionId>, report: &WorkReport) -> ReportResult {
        let is_earlier = self.cx.term.as_ref().is_some_and(|term| {
            term.election == report.term.election
                && report.term.number < term.number
                && report.lease.term == report.term.number
        });
        let about = report.about.as_deref().filter(|_| is_earlier);
        let (Some(about), Some(session)) = (about, session) else { return ReportResult::Unknown };
        let executor = match self.dispatcher.report_late(session, report.lease) {
            Ok(executor) => executor,
            Err(result) => return result,
        };
        let About { target, action, decision } = about.clone();
        let uid = target.uid.clone();
        let mut grounds = self.world.grounds_of(&self.cx, &uid, decision);
        if let Some(id) = self.world.graph().primary(&uid) {
            grounds.owners = self.world.edges(id);
            grounds.owner_count = grounds.owners.len();
        }
        let end = AttemptEnd::of(report, target.clone(), action, executor, grounds);
        self.cx.event(Event::ReportedLate { lease_term: report.term.clone(), end });
        if report.outcome.is_success() {
            self.settled_late(&target, action, decision, report.outcome == Outcome::Done);
        }
        self.world.mark_uid(&uid);
        ReportResult::AcceptedLate
    }

    fn settled_late(&mut self, target: &ObjectRef, action: ActionKind, decision: u64, ours: bool) {
        let uid = &target.uid;
        let open = self.ledger.inherited(uid).filter(|inherited| inherited.logged.decision == decision);
        let shown = open.and_then(|inherited| inherited.gone.clone());
        self.ledger.ends_inherited(uid, decision);
        if action != ActionKind::Delete {
            return;
        }
        if self.world.graph().primary(uid).is_some() {
            return self.delete_accepted(uid, decision, ours);
        }
        if ours {
            self.world.credit(uid);
        }
        let kind = self.world.kind_of(target);
        if shown.is_some() || self.world.coverage().kind(kind).is_synced() {
            let grounds = self.world.grounds_of(&self.cx, uid, decision);
            self.cx.confirm(target.clone(), shown.flatten(), grounds);
        }
    }
}
