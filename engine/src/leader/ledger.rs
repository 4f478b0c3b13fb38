//! Decisions whose end is not in the log yet: those that were carried out, and those that earlier leaders left open.

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
    /// Deletes that were accepted and whose DELETED has not come.
    removals: BTreeMap<Uid, AwaitedRemoval>,
    /// What the graph holds and a DELETE of ours was accepted for, however long its finalizers keep it: it will have gone by us.
    accepted: BTreeMap<Uid, AcceptedDelete>,
    /// Decisions of earlier leaders, by target.
    inherited: BTreeMap<Uid, Inherited>,
    /// How far the present round of closing inherited decisions has come.
    closed_up_to: Option<Uid>,
}

/// A write whose object has to go, or to show that it stays.
#[derive(Debug)]
struct AwaitedRemoval {
    since: Time,
    /// The executor that reported it.
    by: Option<Process>,
}

/// A deletion that was carried out on an object that the graph still holds.
#[derive(Clone, Copy, Debug)]
pub(super) struct AcceptedDelete {
    pub(super) decision: u64,
    /// A DELETE of ours was accepted; otherwise the object was found to be in deletion.
    pub(super) ours: bool,
    /// An event has named the finalizers that hold it.
    reported: bool,
}

#[derive(Debug)]
pub(super) struct Inherited {
    pub(super) logged: Logged,
    /// As in [`crate::lease::Lease::gone`].
    pub(super) gone: Option<Option<ResourceVersion>>,
}

impl Inherited {
    /// Whether an executor had the deletion of it.
    pub(super) fn is_by_executor(&self) -> bool {
        self.logged.action == ActionKind::Delete && self.logged.step != LoggedStep::Waiting
    }
}

impl Ledger {
    /// Nothing that this leader carried out is awaited any more.
    pub(super) fn forget_ours(&mut self) {
        self.removals.clear();
        self.accepted.clear();
    }

    /// Whether a DELETE of this object was accepted, and its collection has not shown yet what came of it.
    pub(super) fn awaits_removal(&self, uid: &Uid) -> bool {
        self.removals.contains_key(uid)
    }

    pub(super) fn await_removal(&mut self, now: Time, uid: Uid, by: Option<Process>) {
        self.removals.insert(uid, AwaitedRemoval { since: now, by });
    }

    /// The object has gone, or shows that it stays.
    pub(super) fn end_removal(&mut self, uid: &Uid) {
        self.removals.remove(uid);
    }

    /// Whether a removal has been awaited for so long, and the executor that reported it, which is given once.
    pub(super) fn overdue(&mut self, now: Time, uid: &Uid, after: Duration) -> Option<Option<Process>> {
        let removal = self.removals.get_mut(uid).filter(|removal| now.since(removal.since) >= after)?;
        Some(removal.by.take())
    }

    /// A deletion was carried out on an object that the graph holds.
    pub(super) fn accept(&mut self, uid: &Uid, decision: u64, ours: bool) {
        // An earlier DELETE of ours is what holds it in deletion.
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

    /// The decision of a DELETE of ours of whose finalizers no event tells yet.
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

    /// Takes over a decision that an earlier leader left open. Gives the one that it replaces.
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

    /// The object of an inherited deletion that an executor had has gone: the executor may still report. Gives the decision.
    pub(super) fn inherited_has_gone(&mut self, uid: &Uid, deleted: Option<ResourceVersion>) -> Option<u64> {
        let inherited = self.inherited.get_mut(uid).filter(|inherited| inherited.is_by_executor())?;
        inherited.gone = Some(deleted);
        Some(inherited.logged.decision)
    }

    pub(super) fn end_inherited(&mut self, uid: &Uid) -> Option<Inherited> {
        self.inherited.remove(uid)
    }

    /// A decision that an earlier leader may have left open has an end.
    pub(super) fn ends_inherited(&mut self, uid: &Uid, decision: u64) {
        if self.inherited.get(uid).is_some_and(|inherited| inherited.logged.decision == decision) {
            self.inherited.remove(uid);
        }
    }

    pub(super) fn forget_inherited(&mut self) {
        self.inherited.clear();
        self.closed_up_to = None;
    }

    /// Forgets what earlier leaders left open. Gives it.
    pub(super) fn take_inherited(&mut self) -> impl Iterator<Item = Logged> + use<> {
        self.closed_up_to = None;
        core::mem::take(&mut self.inherited).into_values().map(|inherited| inherited.logged)
    }

    /// The next `max` targets of inherited decisions, from where the round has come to. The round begins anew after fewer.
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
