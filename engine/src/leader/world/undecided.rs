//! Dependents without a verdict. There may be millions while a collection is listed, so each insertion and removal
//! updates the counts.

use crate::graph::NodeId;
use crate::paged_vec::PagedVec;
use crate::view::Undecided;
use alloc::vec::Vec;

#[derive(Debug, Default)]
pub(in crate::leader) struct Nodes {
    /// For each slot of the graph, the number of the cause plus one, or 0 for no cause.
    by_place: PagedVec<u8>,
    counts: [usize; Undecided::ALL.len()],
}

impl Nodes {
    pub(in crate::leader) fn insert(&mut self, id: NodeId, why: Undecided) {
        while self.by_place.len() <= id.place() {
            self.by_place.push(0);
        }
        self.set(id, why as u8 + 1);
        self.counts[why as usize] += 1;
    }

    pub(in crate::leader) fn remove(&mut self, id: NodeId) {
        self.set(id, 0);
    }

    pub(in crate::leader) fn get(&self, id: NodeId) -> Option<Undecided> {
        let number = self.by_place.get(id.place())?.checked_sub(1)?;
        Some(Undecided::ALL[usize::from(number)])
    }

    pub(in crate::leader) fn set(&mut self, id: NodeId, to: u8) {
        if let Some(before) = self.get(id) {
            self.counts[before as usize] -= 1;
        }
        if let Some(note) = self.by_place.get_mut(id.place()) {
            *note = to;
        }
    }

    /// Returns the slots of the undecided nodes.
    pub(in crate::leader) fn places(&self) -> impl Iterator<Item = usize> {
        self.by_place.iter().enumerate().filter(|(_, note)| **note > 0).map(|(place, _)| place)
    }

    pub(in crate::leader) fn count(&self, why: Undecided) -> usize {
        self.counts[why as usize]
    }

    /// Returns the number of nodes for each cause that occurs.
    pub(in crate::leader) fn counts(&self) -> Vec<(Undecided, usize)> {
        Undecided::ALL.into_iter().zip(self.counts).filter(|(_, count)| *count > 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::NodeId;

    #[test]
    pub(in crate::leader) fn counts_follow_what_comes_changes_and_goes() {
        let (a, b) = (NodeId::of_number(1), NodeId::of_number(2));
        let mut nodes = Nodes::default();
        nodes.insert(a, Undecided::OwnerUnverified);
        nodes.insert(b, Undecided::OwnerUnverified);
        nodes.insert(b, Undecided::OwnerUnreadable);
        nodes.insert(b, Undecided::OwnerUnreadable);
        assert_eq!(nodes.counts(), [(Undecided::OwnerUnverified, 1), (Undecided::OwnerUnreadable, 1)]);
        nodes.remove(a);
        nodes.remove(a);
        assert_eq!(nodes.counts(), [(Undecided::OwnerUnreadable, 1)]);
        assert_eq!((nodes.get(a), nodes.get(b)), (None, Some(Undecided::OwnerUnreadable)));
        assert_eq!((nodes.get(NodeId::of_number(7)), nodes.places().collect::<Vec<_>>()), (None, alloc::vec![2]));
        for why in Undecided::ALL {
            nodes.insert(b, why);
            assert_eq!((nodes.get(b), nodes.counts()), (Some(why), alloc::vec![(why, 1)]));
        }
    }
}
