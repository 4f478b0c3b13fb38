//! The contents of namespaces and definitions in a plan.
//!
//! The namespace controller deletes all objects in a marked namespace in background. The API server deletes the
//! instances of a definition as their own finalizers require. Objects with finalizers stay, and block their container.
//! These deletions are not the collector's, so no pause holds them.

use super::{Act, unseen};
use crate::containers::Container;
use crate::coverage::{Coverage, KindId};
use crate::graph::{Graph, Node, NodeId};
use crate::view::{RELATED_MAX, Reason, ReasonCode, plain};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::vec::Vec;

/// One namespace or definition.
#[derive(Debug)]
struct Filled {
    place: Container,
    inside: Vec<NodeId>,
    /// The number of remaining contents.
    left: usize,
    /// Every object in the container has been sent a DELETE.
    emptied: bool,
}

/// All containers.
#[derive(Debug, Default)]
pub(super) struct Contents {
    places: BTreeMap<NodeId, Filled>,
    /// The containers of each object.
    around: BTreeMap<NodeId, Vec<NodeId>>,
}

impl Contents {
    pub(super) fn add(&mut self, id: NodeId, place: Container) {
        self.places.insert(id, Filled { place, inside: Vec::new(), left: 0, emptied: false });
    }

    /// Finds the contents of each container.
    pub(super) fn fill(&mut self, graph: &Graph, coverage: &Coverage) {
        if self.places.is_empty() {
            return;
        }
        let by_place: BTreeMap<Container, NodeId> =
            self.places.iter().map(|(&id, filled)| (filled.place.clone(), id)).collect();
        for (id, node) in graph.iter().filter(|(_, node)| node.is_observed()) {
            let served = coverage.kind(node.kind()).served();
            let instances = served.map(|served| Container::Instances(served.group_resource.clone()));
            let namespace = Some(node.at().namespace).filter(|name| !name.is_empty()).map(Container::Namespace);
            for place in instances.into_iter().chain(namespace) {
                let Some(&around) = by_place.get(&place) else { continue };
                self.around.entry(id).or_default().push(around);
                if let Some(filled) = self.places.get_mut(&around) {
                    filled.inside.push(id);
                    filled.left += 1;
                }
            }
        }
    }

    pub(super) fn place(&self, id: NodeId) -> Option<&Container> {
        self.places.get(&id).map(|filled| &filled.place)
    }

    /// The next act on a container that is marked for deletion and waits for its contents.
    pub(super) fn act(&self, id: NodeId, node: Node<'_>, coverage: &Coverage) -> Option<Act> {
        let filled = self.places.get(&id)?;
        let finalizer = filled.place.finalizer();
        if !node.is_terminating() || !node.has_finalizer(finalizer) {
            return None;
        }
        match filled.emptied {
            false => Some(Act::Empty),
            true => (filled.left == 0 && !self.is_hidden(id, coverage)).then_some(Act::Finish(finalizer)),
        }
    }

    /// The contents to send a DELETE to. The call returns them once.
    pub(super) fn empty(&mut self, id: NodeId) -> Vec<NodeId> {
        let Some(filled) = self.places.get_mut(&id) else { return Vec::new() };
        filled.emptied = true;
        let gone = |inside: &NodeId| self.around.contains_key(inside);
        filled.inside.iter().copied().filter(gone).collect()
    }

    /// Removes an object that is gone from its containers, and returns them.
    pub(super) fn leave(&mut self, id: NodeId) -> Vec<NodeId> {
        let around = self.around.remove(&id).unwrap_or_default();
        for place in &around {
            if let Some(filled) = self.places.get_mut(place) {
                filled.left -= 1;
            }
        }
        around
    }

    /// Collections with possible contents that the graph does not show.
    pub(super) fn unseen(&self, id: NodeId, coverage: &Coverage) -> Vec<KindId> {
        self.place(id).map(|place| place.unseen(coverage).collect()).unwrap_or_default()
    }

    /// Whether the contents of the container are unknown.
    pub(super) fn is_hidden(&self, id: NodeId, coverage: &Coverage) -> bool {
        let Some(place) = self.place(id) else { return false };
        let unserved = matches!(place, Container::Instances(of) if coverage.find(of).is_none());
        unserved || place.unseen(coverage).next().is_some()
    }

    /// The reasons why the container still exists.
    pub(super) fn reasons(&self, id: NodeId, graph: &Graph, coverage: &Coverage) -> Vec<Reason> {
        let Some(filled) = self.places.get(&id) else { return Vec::new() };
        let mut reasons = Vec::new();
        if filled.left > 0 {
            let left = filled.inside.iter().filter(|inside| self.around.contains_key(inside));
            let related = left.take(RELATED_MAX).map(|&inside| graph.object_ref(coverage, inside)).collect();
            reasons.push(Reason { related, count: filled.left, ..plain(ReasonCode::ContentsRemain) });
        }
        if let Container::Instances(of) = &filled.place
            && coverage.find(of).is_none()
        {
            reasons.push(Reason { detail: format!("{of} is not served"), ..plain(ReasonCode::CollectionUnsynced) });
        }
        reasons.extend(self.unseen(id, coverage).into_iter().take(RELATED_MAX).map(|kind| unseen(coverage, kind)));
        reasons
    }
}
