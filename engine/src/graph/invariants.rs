//! What must hold between any two calls.

use super::{Graph, Node, NodeId};
use crate::coverage::KindId;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;

impl Graph {
    /// What does not fit together here. Looks at everything.
    pub(crate) fn inconsistency(&self) -> Option<String> {
        let (mut edges, mut observed) = (0, 0);
        for (id, node) in self.iter() {
            edges += node.owners.len();
            observed += usize::from(node.observed().is_some());
            if let Some(why) = self.inconsistent(id, node) {
                return Some(format!("node {} {} {}: {why}", node.uid, node.at.namespace, node.at.name));
            }
        }
        if (edges, observed) != (self.edges, self.observed) {
            return Some(format!("{edges} edges and {observed} objects, counted {} and {}", self.edges, self.observed));
        }
        let nodes: usize = self.by_uid.values().map(|slot| slot.as_slice().len()).sum();
        if nodes != self.iter().count() {
            return Some(format!("{nodes} nodes by uid, of {}", self.iter().count()));
        }
        None
    }

    fn inconsistent(&self, id: NodeId, node: &Node) -> Option<String> {
        let references = node.observed().map_or(0, |observed| observed.facts.owners.len());
        if node.owners.len() != references {
            return Some(format!("{} edges for {references} references", node.owners.len()));
        }
        for (slot, edge) in node.owners.iter().enumerate() {
            let back = self.get(edge.owner).and_then(|owner| owner.dependents.get(edge.back as usize));
            if back.is_none_or(|back| back.dependent != id || back.slot as usize != slot) {
                return Some(format!("reference {slot} is not among its owner's dependents"));
            }
        }
        let mut blocking = 0;
        for (at, edge) in node.dependents.iter().enumerate() {
            let Some(dependent) = self.get(edge.dependent) else { return Some(format!("dependent {at} is gone")) };
            let slot = edge.slot as usize;
            if dependent.owners.get(slot).is_none_or(|owner| owner.owner != id || owner.back as usize != at) {
                return Some(format!("dependent {at} does not refer to it"));
            }
            let reference = dependent.facts().and_then(|facts| facts.owners.get(slot));
            if reference.is_none_or(|reference| reference.uid != node.uid) {
                return Some(format!("dependent {at} refers to another uid"));
            }
            blocking += usize::from(reference.is_some_and(crate::object::OwnerReference::blocks));
        }
        if blocking != node.blocking_count() {
            return Some(format!("{blocking} dependents block it, counted {}", node.blocking_count()));
        }
        if !self.by_uid(&node.uid).contains(&id) {
            return Some(String::from("not found by its uid"));
        }
        let listed = self.unobserved.get(&node.at.kind).is_some_and(|ids| ids.contains(&id));
        if listed == node.observed().is_some() {
            return Some(String::from("wrongly among the unobserved"));
        }
        (node.observed().is_none() && node.dependents.is_empty()).then(|| String::from("nothing refers to it"))
    }

    /// Observed nodes of each kind, and those of them that carry this number of a list.
    pub(crate) fn observed_by_kind(&self, list: impl Fn(KindId) -> u32) -> BTreeMap<KindId, (usize, usize)> {
        let mut counts: BTreeMap<KindId, (usize, usize)> = BTreeMap::new();
        for (_, node) in self.iter() {
            if let Some(observed) = node.observed() {
                let (all, fresh) = counts.entry(node.at.kind).or_default();
                *all += 1;
                *fresh += usize::from(observed.list == list(node.at.kind));
            }
        }
        counts
    }
}
