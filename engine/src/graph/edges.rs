//! References, stored at both ends.

use super::cell::{DependentEdge, Dependents, How, OwnerEdge, Owners};
use super::{Coordinates, Graph, NodeId, Reference};
use crate::coverage::Coverage;
use crate::object::{Name, OwnerReference};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

impl Graph {
    /// The target of a reference. The scope is that of the owner's kind. While the scope is unknown, the dependent's
    /// namespace is assumed.
    pub(crate) fn target(coverage: &mut Coverage, namespace: &Name, reference: &OwnerReference) -> Coordinates {
        let kind = coverage.kind_id(reference.group(), &reference.kind);
        let namespace =
            if coverage.kind(kind).namespaced() == Some(false) { Name::from("") } else { namespace.clone() };
        Coordinates { kind, namespace, name: reference.name.clone() }
    }

    /// Moves the references of all dependents of `id` to their targets, now that the scope of its kind is known.
    pub(crate) fn relink_dependents(&mut self, coverage: &mut Coverage, id: NodeId) -> Vec<NodeId> {
        let dependents: BTreeSet<NodeId> = self.node(id).dependents().collect();
        for &dependent in &dependents {
            let node = self.node(dependent);
            let references: Vec<OwnerReference> = node.references().map(Reference::to_owned).collect();
            let namespace = node.namespace().clone();
            let before = self.detach(dependent);
            for reference in &references {
                let at = Self::target(coverage, &namespace, reference);
                self.link(dependent, reference, &at);
            }
            // This comes last, so that the other owners keep all knowledge.
            self.drop_unused_owners(dependent, before.as_slice());
            self.give_back(before);
            self.note_waiting(dependent, true);
        }
        dependents.into_iter().collect()
    }

    pub(super) fn link(&mut self, dependent: NodeId, reference: &OwnerReference, at: &Coordinates) -> NodeId {
        let owner = match self.find(&reference.uid, at) {
            Some(owner) => owner,
            None => self.insert_unobserved(&reference.uid, at),
        };
        let kind = self.kinds.put((reference.api_version.clone(), reference.kind.clone()));
        let how = How::new(kind, reference.controller, reference.block_owner_deletion);
        let edge = DependentEdge::new(dependent, self.node(dependent).owners().len(), reference.blocks());
        let list = self.dependents_mut(owner);
        let back = u32::try_from(list.as_slice().len()).expect("fewer than 2^32 dependents");
        list.push(edge);
        self.cell_mut(dependent).owners.push(OwnerEdge { owner, back, how });
        self.edges += 1;
        owner
    }

    /// The list of dependents of a node, created if missing.
    fn dependents_mut(&mut self, id: NodeId) -> &mut Dependents {
        let list = match self.cell(id).dependents.checked_sub(1) {
            Some(list) => list,
            None => {
                let list = self.free_dependents.pop().unwrap_or_else(|| {
                    self.dependents.push(Dependents::default());
                    u32::try_from(self.dependents.len() - 1).expect("no more lists than nodes")
                });
                self.cell_mut(id).dependents = list + 1;
                list
            }
        };
        &mut self.dependents[list as usize]
    }

    pub(super) fn drop_unused_owners(&mut self, id: NodeId, edges: &[OwnerEdge]) {
        for edge in edges {
            if edge.owner != id && self.get(edge.owner).is_some() {
                self.drop_if_unused(edge.owner);
            }
        }
    }

    /// Releases the kinds of removed edges.
    pub(super) fn give_back(&mut self, edges: Owners) {
        for edge in edges.as_slice() {
            self.kinds.give_back(edge.how.kind());
        }
    }

    /// Removes the references of a node from its owners.
    pub(super) fn detach(&mut self, id: NodeId) -> Owners {
        let edges = core::mem::take(&mut self.cell_mut(id).owners);
        // From the back, so that the edges of one owner leave its list in the order in which moves fill earlier slots.
        for (slot, edge) in edges.as_slice().iter().enumerate().rev() {
            let list = self.dependents_mut(edge.owner);
            // An earlier removal of this loop may have moved this edge. The reverse edge then has its current place.
            let is_it = |back: &DependentEdge| back.dependent == id && back.slot() == slot;
            let mut at = edge.back as usize;
            if !list.as_slice().get(at).is_some_and(is_it) {
                at = list.as_slice().iter().position(is_it).expect("every reference has its edge at the owner");
            }
            list.swap_remove(at);
            let (moved, is_empty) = (list.as_slice().get(at).copied(), list.as_slice().is_empty());
            self.edges -= 1;
            if let Some(moved) = moved.filter(|moved| moved.dependent != id) {
                let back = u32::try_from(at).expect("fewer than 2^32 dependents");
                self.cell_mut(moved.dependent).owners.as_mut_slice()[moved.slot()].back = back;
            }
            if is_empty {
                self.free_dependents_of(edge.owner);
            }
        }
        edges
    }

    fn free_dependents_of(&mut self, id: NodeId) {
        if let Some(list) = core::mem::take(&mut self.cell_mut(id).dependents).checked_sub(1) {
            self.dependents[list as usize] = Dependents::default();
            self.free_dependents.push(list);
        }
    }
}
