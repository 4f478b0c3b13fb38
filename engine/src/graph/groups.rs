//! One object that several groups serve with one uid is one owner. Its dependents count regardless of the group in
//! their reference.

use super::{Coordinates, Graph, Node, NodeId};
use crate::coverage::Coverage;
use alloc::vec::Vec;

impl Graph {
    /// The nodes of the object at this node: observed and read nodes, nodes remembered as orphaning, and nodes of a
    /// served kind with the same namespace and name that may turn out to be the object.
    pub(crate) fn same_object(&self, coverage: &Coverage, id: NodeId) -> impl Iterator<Item = Node<'_>> + Clone {
        let this = self.node(id);
        let namesake = move |node: &Node<'_>| {
            node.namespace() == this.namespace() && node.name() == this.name() && !node.is_absent()
        };
        // A reference by an unserved kind keeps an owner only while the reference can be removed: during orphaning
        // deletion.
        let served = move |node: &Node<'_>| coverage.kind(node.kind()).served().is_some();
        let is = move |node: &Node<'_>| node.has_facts() || self.is_orphaned(*node) || (served(node) && namesake(node));
        let uid = this.uid();
        let few = self.few_by_uid(&uid);
        // If very many nodes claim the uid, only those with this name count. There is at most one of them for each
        // kind.
        let mut crowd: Vec<NodeId> = Vec::new();
        if self.is_crowded(&uid) {
            let named = |(kind, _)| Coordinates { kind, ..this.at() };
            let claims = coverage.served().filter_map(|kind| self.find(&uid, &named(kind)));
            crowd.extend(claims.filter(|claim| !few.clone().any(|known| known == *claim)));
        }
        few.chain(crowd).map(|id| self.node(id)).filter(is)
    }

    /// The number of references to the object at this node.
    pub(crate) fn dependent_count(&self, coverage: &Coverage, id: NodeId) -> usize {
        self.same_object(coverage, id).map(Node::dependent_count).sum()
    }

    /// The number of references that block its foreground deletion.
    pub(crate) fn blocking_count(&self, coverage: &Coverage, id: NodeId) -> usize {
        self.same_object(coverage, id).map(Node::blocking_count).sum()
    }

    /// The nodes that refer to the object at this node. A node with two references appears twice.
    pub(crate) fn dependents(&self, coverage: &Coverage, id: NodeId) -> impl Iterator<Item = NodeId> {
        self.same_object(coverage, id).flat_map(Node::dependents)
    }

    /// The nodes with a reference that blocks the foreground deletion of the object at this node.
    pub(crate) fn blocking_dependents(&self, coverage: &Coverage, id: NodeId) -> impl Iterator<Item = NodeId> {
        let edges = self.same_object(coverage, id).flat_map(Node::edges_of_dependents);
        edges.filter(|edge| edge.blocks()).map(|edge| edge.dependent)
    }
}
