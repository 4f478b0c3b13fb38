//! For readers that follow objects: what may have changed, and one object with its links.

use super::Queries;
use crate::object::Uid;
use crate::view::{EdgeView, NodeView};
use alloc::vec::Vec;

/// An observed object with its references.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Linked {
    pub node: NodeView,
    /// In order.
    pub edges: Vec<EdgeView>,
}

impl Queries<'_> {
    /// The number of the next change: whoever looks at an object now, and at it again whenever it is among the changes from this number on,
    /// knows it as it is.
    pub fn next_change(&self) -> u64 {
        self.world.changes().next()
    }

    /// At most `max` objects that may look different, from this number on, in order and as often as they may. `None` where not all of them
    /// are kept.
    pub fn changed(&self, from: u64, max: usize) -> Option<Vec<Uid>> {
        self.world.changes().from(from, max)
    }

    /// An object, if it is observed.
    pub fn linked(&self, uid: &Uid) -> Option<Linked> {
        let id = self.world.graph().primary(uid)?;
        Some(Linked { node: self.view(id), edges: self.world.edges(id) })
    }

    /// Where the references of an observed object lead; `None` where it is not observed.
    pub fn owners_of(&self, uid: &Uid) -> Option<Vec<Uid>> {
        let node = self.world.graph().node(self.world.graph().primary(uid)?);
        Some(node.owners().map(|owner| self.world.graph().node(owner).uid()).collect())
    }

    /// Some of what refers to this uid, and where to go on: at most `max`, below the place `before`, the last first. What refers to it
    /// throughout is found by going on until there is nothing more.
    pub fn dependents_of(&self, uid: &Uid, before: Option<usize>, max: usize) -> (Vec<Uid>, Option<usize>) {
        let name = |id| self.world.graph().node(id).uid();
        let mut nodes = self.world.graph().by_uid(uid).map(|id| self.world.graph().node(id));
        let Some(node) = nodes.next() else { return (Vec::new(), None) };
        if nodes.next().is_none() {
            let end = before.unwrap_or(usize::MAX).min(node.dependent_count());
            let start = end.saturating_sub(max);
            return (node.dependents_at(start..end).map(name).collect(), (start > 0).then_some(start));
        }
        // Where references contradict each other about a uid, they are few.
        let all = self.world.graph().by_uid(uid).flat_map(|id| self.world.graph().node(id).dependents());
        (all.map(name).collect(), None)
    }

    /// The uids at so many places of the graph, and where to go on, if anything is left. What is there throughout is found.
    pub fn uids_from(&self, place: usize, max: usize) -> (Vec<Uid>, Option<usize>) {
        let end = self.world.graph().places().min(place.saturating_add(max));
        let found = (place..end).filter_map(|place| self.world.graph().at_place(place));
        let uids = found.map(|id| self.world.graph().node(id).uid()).collect();
        (uids, (end < self.world.graph().places()).then_some(end))
    }
}
