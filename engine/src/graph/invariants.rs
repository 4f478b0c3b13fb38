//! Invariants of the graph, which hold between any two calls.

use super::cell::Flags;
use super::{Graph, Node, NodeId};
use crate::coverage::KindId;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;

impl Graph {
    /// The first violated invariant. Checks everything.
    pub(crate) fn inconsistency(&self) -> Option<String> {
        let (mut edges, mut observed, mut lists) = (0, 0, 0);
        for (id, node) in self.iter() {
            edges += node.owners().len();
            observed += usize::from(node.is_observed());
            lists += usize::from(node.list_of_dependents().is_some());
            if let Some(why) = self.inconsistent(id, node) {
                return Some(format!("node {node:?}: {why}"));
            }
        }
        let nodes = self.iter().count();
        for (what, counted, there) in [
            ("edges", self.edges, edges),
            ("objects", self.observed, observed),
            ("nodes", self.len(), nodes),
            ("nodes by uid", self.by_uid.len(), nodes),
            ("nodes by address", self.by_address.len(), nodes),
            ("lists of dependents", self.dependents.len() - self.free_dependents.len(), lists),
        ] {
            if counted != there {
                return Some(format!("{there} {what}, counted {counted}"));
            }
        }
        None
    }

    fn inconsistent(&self, id: NodeId, node: Node<'_>) -> Option<String> {
        for (slot, edge) in node.cell.owners.as_slice().iter().enumerate() {
            let back = self.get(edge.owner).and_then(|owner| owner.edges_of_dependents().get(edge.back as usize));
            if back.is_none_or(|back| back.dependent != id || back.slot() != slot) {
                return Some(format!("reference {slot} is not among its owner's dependents"));
            }
        }
        if node.owners().len() > 0 && !node.is_observed() {
            return Some(String::from("has references, but is not observed"));
        }
        let mut blocking = 0;
        for (at, edge) in node.edges_of_dependents().iter().enumerate() {
            let Some(dependent) = self.get(edge.dependent) else { return Some(format!("dependent {at} is gone")) };
            let owner = dependent.cell.owners.as_slice().get(edge.slot());
            if owner.is_none_or(|owner| owner.owner != id || owner.back as usize != at) {
                return Some(format!("dependent {at} does not refer to it"));
            }
            if owner.is_none_or(|owner| (owner.how.blocks() == Some(true)) != edge.blocks()) {
                return Some(format!("dependent {at} differs in blockOwnerDeletion"));
            }
            blocking += usize::from(edge.blocks());
        }
        if blocking != node.blocking_count() {
            return Some(format!(
                "{blocking} dependents block its deletion, but the counter is {}",
                node.blocking_count()
            ));
        }
        if !self.by_uid(&node.uid()).any(|other| other == id) {
            return Some(String::from("not found by its uid"));
        }
        if !self.by_address(node.kind(), node.namespace(), node.name()).any(|other| other == id) {
            return Some(String::from("not found by its address"));
        }
        if node.cell.flags.has(Flags::CHECKED) != self.checked.contains_key(&id)
            || node.is_observed() && node.is_absent()
        {
            return Some(String::from("its flag and the map of unobserved knowledge differ"));
        }
        if node.cell.flags.has(Flags::ODD_VERSION) != self.versions.contains_key(&id) {
            return Some(String::from("its flag and the map of versions differ"));
        }
        if node.cell.flags.has(Flags::DELETION_TIME) != self.deletion_times.contains_key(&id) {
            return Some(String::from("its flag and the map of deletion times differ"));
        }
        if node.cell.flags.has(Flags::EXCESS) != self.excesses.contains_key(&id) {
            return Some(String::from("its flag and the map of placeholders differ"));
        }
        let listed = self.unobserved.get(&node.kind()).is_some_and(|ids| ids.contains(&id));
        if listed == node.is_observed() {
            return Some(String::from("is in the list of unobserved nodes, or missing there"));
        }
        (!node.is_observed() && node.dependent_count() == 0).then(|| String::from("is neither observed nor referenced"))
    }

    /// Observed nodes of each kind, and how many of them have this list number.
    pub(crate) fn observed_by_kind(&self, list: impl Fn(KindId) -> u32) -> BTreeMap<KindId, (usize, usize)> {
        let mut counts: BTreeMap<KindId, (usize, usize)> = BTreeMap::new();
        for (_, node) in self.iter() {
            if let Some(seen) = node.list() {
                let (all, fresh) = counts.entry(node.kind()).or_default();
                *all += 1;
                *fresh += usize::from(seen == list(node.kind()));
            }
        }
        counts
    }
}
