//! Dependents without a verdict. There may be millions while a collection is listed, so they are counted as they come and go.

use crate::graph::NodeId;
use crate::view::Undecided;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

#[derive(Debug, Default)]
pub(super) struct Nodes {
    by_node: BTreeMap<NodeId, Undecided>,
    counts: [usize; Undecided::ALL.len()],
}

impl Nodes {
    pub(super) fn insert(&mut self, id: NodeId, why: Undecided) {
        self.counts[why as usize] += 1;
        if let Some(before) = self.by_node.insert(id, why) {
            self.counts[before as usize] -= 1;
        }
    }

    pub(super) fn remove(&mut self, id: &NodeId) {
        if let Some(before) = self.by_node.remove(id) {
            self.counts[before as usize] -= 1;
        }
    }

    pub(super) fn get(&self, id: &NodeId) -> Option<&Undecided> {
        self.by_node.get(id)
    }

    pub(super) fn contains_key(&self, id: &NodeId) -> bool {
        self.by_node.contains_key(id)
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &NodeId> {
        self.by_node.keys()
    }

    /// How many there are of each cause that there is.
    pub(super) fn counts(&self) -> Vec<(Undecided, usize)> {
        Undecided::ALL.into_iter().zip(self.counts).filter(|(_, count)| *count > 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::NodeId;

    #[test]
    fn counts_follow_what_comes_changes_and_goes() {
        let (a, b) = (NodeId::of_number(1), NodeId::of_number(2));
        let mut nodes = Nodes::default();
        nodes.insert(a, Undecided::OwnerUnverified);
        nodes.insert(b, Undecided::OwnerUnverified);
        nodes.insert(b, Undecided::OwnerUnreadable);
        nodes.insert(b, Undecided::OwnerUnreadable);
        assert_eq!(nodes.counts(), [(Undecided::OwnerUnverified, 1), (Undecided::OwnerUnreadable, 1)]);
        nodes.remove(&a);
        nodes.remove(&a);
        assert_eq!(nodes.counts(), [(Undecided::OwnerUnreadable, 1)]);
    }
}
