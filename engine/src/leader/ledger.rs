//! Decisions without an end in the log: carried out decisions, and open decisions of earlier leaders.

use super::{Logged, LoggedStep};
use crate::lies::Process;
use crate::object::{ResourceVersion, Uid};
use crate::time::Time;
use crate::work::ActionKind;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Bound;
use core::time::Duration;

#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// Accepted deletes whose DELETED event is outstanding.
    removals: BTreeMap<Uid, AwaitedRemoval>,
    /// Objects of the graph with an accepted DELETE. An entry remains as long as finalizers keep the object, and
    /// attributes the later removal to the DELETE.
    accepted: BTreeMap<Uid, AcceptedDelete>,
    /// Decisions of earlier leaders, by target.
    inherited: BTreeMap<Uid, Inherited>,
    /// The last target that the current round of closing inherited decisions has reached.
    closed_up_to: Option<Uid>,
}

/// A write whose object must disappear, or be shown as remaining.
#[derive(Debug)]
struct AwaitedRemoval {
    since: Time,
    /// The executor that reported the write.
    by: Option<Process>,
}

/// A deletion that was carried out on an object that the graph still holds.
#[derive(Clone, Copy, Debug)]
pub(super) struct AcceptedDelete {
    pub(super) decision: u64,
    /// True if a DELETE of an executor was accepted. False if the object was found to be in deletion already.
    pub(super) ours: bool,
    /// True if an event has named the finalizers that hold the object.
    reported: bool,
}

#[derive(Debug)]
pub(super) struct Inherited {
    pub(super) logged: Logged,
    /// The same as [`crate::lease::Lease::gone`].
    pub(super) gone: Option<Option<ResourceVersion>>,
}

impl Inherited {
    /// Returns whether an executor carried out the deletion.
    pub(super) fn is_by_executor(&self) -> bool {
        self.logged.action == ActionKind::Delete && self.logged.step != LoggedStep::Waiting
    }
}

impl Ledger {
    /// Discards the outstanding writes of this leader.
    pub(super) fn forget_ours(&mut self) {
        self.removals.clear();
        self.accepted.clear();
    }

    /// Returns whether a DELETE of this object was accepted and its collection has not shown the result yet.
    pub(super) fn awaits_removal(&self, uid: &Uid) -> bool {
        self.removals.contains_key(uid)
    }

    pub(super) fn await_removal(&mut self, now: Time, uid: Uid, by: Option<Process>) {
        self.removals.insert(uid, AwaitedRemoval { since: now, by });
    }

    /// Ends the wait for the removal of an object, because the object is gone or is shown as remaining.
    pub(super) fn end_removal(&mut self, uid: &Uid) {
        self.removals.remove(uid);
    }

    /// Returns `Some` if a removal is overdue. The inner value is the executor that reported the removal; it is
    /// returned only once.
    pub(super) fn overdue(&mut self, now: Time, uid: &Uid, after: Duration) -> Option<Option<Process>> {
        let removal = self.removals.get_mut(uid).filter(|removal| now.since(removal.since) >= after)?;
        Some(removal.by.take())
    }

    /// Records a deletion that was carried out on an object in the graph.
    pub(super) fn accept(&mut self, uid: &Uid, decision: u64, ours: bool) {
        // An earlier DELETE of an executor put the object in deletion.
        let before = self.accepted.get(uid).copied();
        let ours = ours || before.is_some_and(|before| before.ours);
        let reported = before.is_some_and(|before| before.reported && before.decision == decision);
        self.accepted.insert(uid.clone(), AcceptedDelete { decision, ours, reported });
    }

    pub(super) fn has_accepted_any(&self) -> bool {
        !self.accepted.is_empty()
    }

    pub(super) fn accepted(&self, uid: &Uid) -> Option<&AcceptedDelete> {
        self.accepted.get(uid)
    }

    /// Returns the decision of an accepted DELETE whose finalizers no event has reported yet.
    pub(super) fn unreported(&self, uid: &Uid) -> Option<u64> {
        self.accepted.get(uid).filter(|accepted| accepted.ours && !accepted.reported).map(|accepted| accepted.decision)
    }

    pub(super) fn set_reported(&mut self, uid: &Uid) {
        if let Some(accepted) = self.accepted.get_mut(uid) {
            accepted.reported = true;
        }
    }

    pub(super) fn end_accepted(&mut self, uid: &Uid) -> Option<AcceptedDelete> {
        self.accepted.remove(uid)
    }

    /// Takes over an open decision of an earlier leader. Returns the decision that it replaces.
    pub(super) fn inherit(&mut self, logged: Logged) -> Option<Logged> {
        let inherited = Inherited { logged, gone: None };
        self.inherited.insert(inherited.logged.target.uid.clone(), inherited).map(|before| before.logged)
    }

    pub(super) fn inherited(&self, uid: &Uid) -> Option<&Inherited> {
        self.inherited.get(uid)
    }

    pub(super) fn has_inherited_any(&self) -> bool {
        !self.inherited.is_empty()
    }

    /// Records that the object of an inherited, started deletion is gone. The executor may still report. Returns the
    /// decision.
    pub(super) fn inherited_has_gone(&mut self, uid: &Uid, deleted: Option<ResourceVersion>) -> Option<u64> {
        let inherited = self.inherited.get_mut(uid).filter(|inherited| inherited.is_by_executor())?;
        inherited.gone = Some(deleted);
        Some(inherited.logged.decision)
    }

    pub(super) fn end_inherited(&mut self, uid: &Uid) -> Option<Inherited> {
        self.inherited.remove(uid)
    }

    /// Ends a decision that an earlier leader may have left open.
    pub(super) fn ends_inherited(&mut self, uid: &Uid, decision: u64) {
        if self.inherited.get(uid).is_some_and(|inherited| inherited.logged.decision == decision) {
            self.inherited.remove(uid);
        }
    }

    pub(super) fn forget_inherited(&mut self) {
        self.inherited.clear();
        self.closed_up_to = None;
    }

    /// Removes and returns the open decisions of earlier leaders.
    pub(super) fn take_inherited(&mut self) -> impl Iterator<Item = Logged> + use<> {
        self.closed_up_to = None;
        core::mem::take(&mut self.inherited).into_values().map(|inherited| inherited.logged)
    }

    /// Returns up to `max` targets of inherited decisions that follow the last target of the round. The next round
    /// begins when fewer than `max` remain.
    pub(super) fn next_inherited(&mut self, max: usize) -> Vec<Uid> {
        let from = self.closed_up_to.take().map_or(Bound::Unbounded, Bound::Excluded);
        let uids: Vec<Uid> =
            self.inherited.range((from, Bound::Unbounded)).map(|(uid, _)| uid.clone()).take(max).collect();
        if uids.len() == max {
            self.closed_up_to = uids.last().cloned();
        }
        uids
    }
}
