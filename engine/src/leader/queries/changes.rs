//! Queries for readers that follow objects: changes, and one object with its links.

use super::Queries;
use crate::object::Uid;
use crate::view::{EdgeView, NodeView};
use alloc::vec::Vec;

/// An observed object with its references.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Linked {
    pub node: NodeView,
    /// The references in order.
    pub edges: Vec<EdgeView>,
}

impl Queries<'_> {
    /// Returns the number of the next change. A reader stays current if it reads an object now, and reads it again
    /// whenever the object is among the changes from this number on.
    pub fn next_change(&self) -> u64 {
        self.world().changes().next()
    }

    /// Returns at most `max` objects that may have changed, from this change number on, in order. An object can occur
    /// several times. Returns `None` if the changes are not kept completely.
    pub fn changed(&self, from: u64, max: usize) -> Option<Vec<Uid>> {
        self.world().changes().from(from, max)
    }

    /// Returns an object if it is observed.
    pub fn linked(&self, uid: &Uid) -> Option<Linked> {
        let id = self.graph().primary(uid)?;
        Some(Linked { node: self.view(id), edges: self.world().edges(id) })
    }

    /// Returns the owners that an observed object references, or `None` if the object is not observed.
    pub fn owners_of(&self, uid: &Uid) -> Option<Vec<Uid>> {
        let node = self.graph().node(self.graph().primary(uid)?);
        Some(node.owners().map(|owner| self.graph().node(owner).uid()).collect())
    }

    /// Returns at most `max` dependents of this uid in the slots below `before`, the last first, and the slot at which
    /// to continue. Repeated calls find every object that is a dependent throughout.
    pub fn dependents_of(&self, uid: &Uid, before: Option<usize>, max: usize) -> (Vec<Uid>, Option<usize>) {
        let name = |id| self.graph().node(id).uid();
        let mut nodes = self.graph().by_uid(uid).map(|id| self.graph().node(id));
        let Some(node) = nodes.next() else { return (Vec::new(), None) };
        if nodes.next().is_none() {
            let end = before.unwrap_or(usize::MAX).min(node.dependent_count());
            let start = end.saturating_sub(max);
            return (node.dependents_at(start..end).map(name).collect(), (start > 0).then_some(start));
        }
        // A uid with contradicting references has few dependents.
        let all = self.graph().by_uid(uid).flat_map(|id| self.graph().node(id).dependents());
        (all.map(name).collect(), None)
    }

    /// Returns the uids in up to `max` slots of the graph, and the slot at which to continue. Repeated calls find every
    /// object that is present throughout.
    pub fn uids_from(&self, place: usize, max: usize) -> (Vec<Uid>, Option<usize>) {
        let end = self.graph().places().min(place.saturating_add(max));
        let found = (place..end).filter_map(|place| self.graph().at_place(place));
        let uids = found.map(|id| self.graph().node(id).uid()).collect();
        (uids, (end < self.graph().places()).then_some(end))
    }
}
