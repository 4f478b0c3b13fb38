//! The knowledge about a node. Common data is in the cell of the node, rare data in maps.

use super::cell::{Cell, Checked, Flags, UNKNOWN_MARKS};
use super::{Graph, NodeId};
use crate::evidence::Proof;
use crate::marks::Marks;
use crate::object::{Excess, FOREGROUND_FINALIZER, Facts, Name, ORPHAN_FINALIZER, ResourceVersion, Uid};
use alloc::sync::Arc;
use core::num::NonZeroU32;

impl Graph {
    /// Stores the state of an object, without its references.
    pub(super) fn observe(&mut self, id: NodeId, resource_version: ResourceVersion, list: u32, facts: &Facts) {
        if !self.node(id).is_observed() {
            self.observed += 1;
            self.forget_checked(id);
        }
        self.set_finalizers(id, &facts.finalizers);
        self.set_version(id, Some(resource_version));
        let (foreground, orphan) = (facts.has_finalizer(FOREGROUND_FINALIZER), facts.has_finalizer(ORPHAN_FINALIZER));
        self.set_deletion_time(id, facts.deletion_time);
        self.set_excess(id, facts.excess);
        let cell = self.cell_mut(id);
        cell.list = list;
        for (flag, is) in [
            (Flags::OBSERVED, true),
            (Flags::TERMINATING, facts.terminating),
            (Flags::HOLD, facts.hold),
            (Flags::FOREGROUND, foreground),
            (Flags::ORPHAN, orphan),
        ] {
            cell.flags.set(flag, is);
        }
    }

    /// Forgets the state of a node whose references were removed. If it stays, the caller lists it as unobserved.
    pub(super) fn unobserve(&mut self, id: NodeId) {
        debug_assert!(self.node(id).owners().len() == 0);
        if !self.node(id).is_observed() {
            return;
        }
        self.observed -= 1;
        self.set_finalizers(id, &[]);
        self.set_version(id, None);
        self.set_deletion_time(id, None);
        self.set_excess(id, None);
        self.set_marks(id, Marks::default());
        let cell = self.cell_mut(id);
        for flag in [Flags::OBSERVED, Flags::TERMINATING, Flags::HOLD, Flags::FOREGROUND, Flags::ORPHAN] {
            cell.flags.set(flag, false);
        }
    }

    /// Replaces the knowledge about an unobserved node: only references name it.
    pub(crate) fn set_virtual(&mut self, id: NodeId, unreadable: bool) {
        debug_assert!(!self.node(id).is_observed());
        self.forget_checked(id);
        self.cell_mut(id).flags.set(Flags::UNREADABLE, unreadable);
    }

    /// Replaces the knowledge about an unobserved node: a read found it.
    pub(crate) fn set_read(&mut self, id: NodeId, facts: Facts, position: ResourceVersion) {
        self.set_checked(id, Checked::Read { facts, position });
    }

    /// Replaces the knowledge about an unobserved node: it is proven absent.
    pub(crate) fn set_absent(&mut self, id: NodeId, proof: Proof) {
        self.set_checked(id, Checked::Absent(proof));
    }

    fn set_checked(&mut self, id: NodeId, checked: Checked) {
        debug_assert!(!self.node(id).is_observed());
        self.forget_checked(id);
        self.tell(id, checked);
    }

    pub(super) fn tell(&mut self, id: NodeId, checked: Checked) {
        self.checked.insert(id, checked);
        self.cell_mut(id).flags.set(Flags::CHECKED, true);
    }

    pub(super) fn forget_checked(&mut self, id: NodeId) {
        if self.cell(id).flags.has(Flags::CHECKED) {
            self.checked.remove(&id);
        }
        let flags = &mut self.cell_mut(id).flags;
        flags.set(Flags::CHECKED, false);
        flags.set(Flags::UNREADABLE, false);
    }

    fn set_finalizers(&mut self, id: NodeId, finalizers: &[Name]) {
        if *self.node(id).own_finalizers() == *finalizers {
            return;
        }
        if let Some(list) = self.cell(id).finalizers.checked_sub(1) {
            self.finalizers.give_back(list);
        }
        self.cell_mut(id).finalizers =
            if finalizers.is_empty() { 0 } else { self.finalizers.put(Arc::from(finalizers)) + 1 };
    }

    /// Sets the marks of an observed object. True if they change. A set without a number of 16 bits counts as unknown.
    pub(crate) fn set_marks(&mut self, id: NodeId, marks: Marks) -> bool {
        if self.node(id).has_marks(&marks) {
            return false;
        }
        if let Some(set) = self.node(id).set_of_marks() {
            self.marks.give_back(set);
        }
        let number = if marks == Marks::default() {
            0
        } else if marks.are_unknown() {
            UNKNOWN_MARKS
        } else {
            let set = self.marks.put(marks);
            u16::try_from(set + 1).ok().filter(|&number| number < UNKNOWN_MARKS).unwrap_or_else(|| {
                self.marks.give_back(set);
                UNKNOWN_MARKS
            })
        };
        core::mem::replace(&mut self.cell_mut(id).marks, number) != number
    }

    fn set_deletion_time(&mut self, id: NodeId, time: Option<NonZeroU32>) {
        match time {
            Some(time) => {
                self.deletion_times.insert(id, time);
            }
            None if self.cell(id).flags.has(Flags::DELETION_TIME) => {
                self.deletion_times.remove(&id);
            }
            None => {}
        }
        self.cell_mut(id).flags.set(Flags::DELETION_TIME, time.is_some());
    }

    /// Observed objects with more references than the collector reads.
    pub(crate) fn excessive(&self) -> impl Iterator<Item = NodeId> {
        self.excesses.keys().copied()
    }

    fn set_excess(&mut self, id: NodeId, excess: Option<Excess>) {
        match excess {
            Some(excess) => {
                self.excesses.insert(id, excess);
            }
            None if self.cell(id).flags.has(Flags::EXCESS) => {
                self.excesses.remove(&id);
            }
            None => {}
        }
        self.cell_mut(id).flags.set(Flags::EXCESS, excess.is_some());
    }

    /// Records a new version of an observed object with unchanged facts.
    pub(crate) fn move_to(&mut self, id: NodeId, version: ResourceVersion) {
        debug_assert!(self.node(id).is_observed());
        self.set_version(id, Some(version));
    }

    fn set_version(&mut self, id: NodeId, version: Option<ResourceVersion>) {
        if self.cell(id).flags.has(Flags::ODD_VERSION) {
            self.versions.remove(&id);
        }
        let number = version.as_ref().map_or(Some(0), ResourceVersion::number);
        let cell = self.cell_mut(id);
        cell.version = number.unwrap_or_default();
        cell.flags.set(Flags::ODD_VERSION, number.is_none());
        if let (None, Some(version)) = (number, version) {
            self.versions.insert(id, version);
        }
    }

    pub(super) fn version_of(&self, id: NodeId) -> ResourceVersion {
        match self.versions.get(&id).filter(|_| self.cell(id).flags.has(Flags::ODD_VERSION)) {
            Some(version) => version.clone(),
            None => ResourceVersion::of_number(self.cell(id).version),
        }
    }

    pub(super) fn uid_of(&self, cell: &Cell) -> Uid {
        match cell.odd_uid() {
            Some(number) => self.uids.get(number).clone(),
            None => Uid::of_canonical(cell.uid),
        }
    }

    pub(super) fn has_uid(&self, cell: &Cell, uid: &Uid) -> bool {
        match cell.odd_uid() {
            Some(number) => self.uids.get(number) == uid,
            None => uid.canonical() == Some(&cell.uid),
        }
    }
}
