//! Knots: cycles of foreground deletions, in which each object waits for the next one.
//!
//! Knots are the strongly connected components among observed objects in foreground deletion, along blocking
//! references. A change that may have created or removed a knot marks them as stale, and the next query computes all of
//! them once for all changes. A search after each change of a long chain would cost the square of its length.

use super::cell::Flags;
use super::{Graph, NodeId};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

#[derive(Debug, Default)]
pub(super) struct Knots {
    /// Observed nodes in foreground deletion.
    waiting: BTreeSet<NodeId>,
    /// The number of the knot of each node that is in a knot.
    tied: BTreeMap<NodeId, usize>,
    /// A change may have created or removed a knot.
    stale: bool,
}

impl Graph {
    /// The acting node of a reference's target.
    fn acting(&self, owner: NodeId) -> NodeId {
        self.primary(&self.node(owner).uid()).unwrap_or(owner)
    }

    /// Whether both objects are in one knot, as of the last [`Graph::find_knots`].
    pub(crate) fn are_knotted(&self, id: NodeId, owner: NodeId) -> bool {
        let Some(knot) = self.knots.tied.get(&id) else { return false };
        self.knots.tied.get(&self.acting(owner)) == Some(knot)
    }

    /// Records that an observed node has changed, or is no longer observed. `moved` means that its references may have
    /// changed.
    pub(super) fn note_waiting(&mut self, id: NodeId, moved: bool) {
        let flags = self.cell(id).flags;
        let is = [Flags::OBSERVED, Flags::TERMINATING, Flags::FOREGROUND].iter().all(|&flag| flags.has(flag));
        if !is && self.knots.waiting.is_empty() {
            return;
        }
        let was = if is { !self.knots.waiting.insert(id) } else { self.knots.waiting.remove(&id) };
        let was_tied = self.knots.tied.contains_key(&id);
        let may_tie = is && (!was || moved) && self.is_between(id);
        let may_cut = was_tied && (!is || moved);
        if !is {
            self.knots.tied.remove(&id);
        }
        self.knots.stale |= may_tie || may_cut;
    }

    /// Whether the node blocks a waiting object and a waiting object blocks the node. The last change that creates a
    /// knot concerns such a node. A chain that is deleted from its root has no such node, so no step of the deletion
    /// searches the whole chain.
    fn is_between(&self, id: NodeId) -> bool {
        let node = self.node(id);
        let waits = |id: NodeId| self.knots.waiting.contains(&id);
        let blocks = node.references().any(|reference| reference.blocks() && waits(self.acting(reference.owner())));
        let mut blockers = self.by_uid(&node.uid()).flat_map(|other| self.node(other).edges_of_dependents());
        blocks && blockers.any(|edge| edge.blocks() && waits(edge.dependent))
    }

    /// Computes the knots again if they may have changed. Returns the nodes that were in a knot before or are in one
    /// now.
    pub(crate) fn find_knots(&mut self) -> Vec<NodeId> {
        if !core::mem::take(&mut self.knots.stale) {
            return Vec::new();
        }
        let members: Vec<NodeId> = self.knots.waiting.iter().copied().filter(|&id| self.acting(id) == id).collect();
        let place = |id: NodeId| members.binary_search(&id).ok();
        let above: Vec<Vec<usize>> = members
            .iter()
            .map(|&id| {
                let blocks = self.node(id).references().filter(|reference| reference.blocks());
                blocks.filter_map(|reference| place(self.acting(reference.owner()))).collect()
            })
            .collect();
        let before = core::mem::take(&mut self.knots.tied);
        for (number, knot) in cycles(&above).into_iter().enumerate() {
            self.knots.tied.extend(knot.into_iter().map(|at| (members[at], number)));
        }
        let touched: BTreeSet<NodeId> = before.keys().chain(self.knots.tied.keys()).copied().collect();
        touched.into_iter().filter(|&id| self.get(id).is_some()).collect()
    }
}

/// The strongly connected components of a graph of numbered nodes that have a cycle.
pub(crate) fn cycles(next: &[Vec<usize>]) -> Vec<Vec<usize>> {
    let mut found = components(next);
    found.retain(|component| component.len() > 1 || component.iter().any(|&at| next[at].contains(&at)));
    found
}

/// The strongly connected components of a graph of numbered nodes (Tarjan), without recursion.
fn components(next: &[Vec<usize>]) -> Vec<Vec<usize>> {
    const NEW: usize = usize::MAX;
    let (mut order, mut low) = (alloc::vec![NEW; next.len()], alloc::vec![0; next.len()]);
    let (mut open, mut is_open) = (Vec::new(), alloc::vec![false; next.len()]);
    let (mut found, mut counter) = (Vec::new(), 0);
    for start in 0..next.len() {
        let mut path: Vec<(usize, usize)> = if order[start] == NEW { alloc::vec![(start, 0)] } else { Vec::new() };
        while let Some((node, edge)) = path.pop() {
            if edge == 0 {
                (order[node], low[node]) = (counter, counter);
                counter += 1;
                open.push(node);
                is_open[node] = true;
            }
            match next[node].get(edge) {
                Some(&other) => {
                    path.push((node, edge + 1));
                    if order[other] == NEW {
                        path.push((other, 0));
                    } else if is_open[other] {
                        low[node] = low[node].min(order[other]);
                    }
                }
                None => {
                    if low[node] == order[node] {
                        let from = open.iter().rposition(|&other| other == node).unwrap_or(0);
                        let component = open.split_off(from);
                        component.iter().for_each(|&member| is_open[member] = false);
                        found.push(component);
                    }
                    if let Some(&(parent, _)) = path.last() {
                        low[parent] = low[parent].min(low[node]);
                    }
                }
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jitter::Rng;

    #[test]
    fn components_are_those_in_which_each_reaches_each() {
        for seed in 0..300 {
            let mut random = Rng::new(seed);
            let nodes = 1 + (random.next() % 9) as usize;
            let edges = random.next() % 14;
            let mut next = alloc::vec![Vec::new(); nodes];
            let mut reaches = alloc::vec![alloc::vec![false; nodes]; nodes];
            for _ in 0..edges {
                let (from, to) = (random.next() as usize % nodes, random.next() as usize % nodes);
                next[from].push(to);
                reaches[from][to] = true;
            }
            (0..nodes).for_each(|at| reaches[at][at] = true);
            for via in 0..nodes {
                for from in 0..nodes {
                    for to in 0..nodes {
                        reaches[from][to] |= reaches[from][via] && reaches[via][to];
                    }
                }
            }
            let found = components(&next);
            assert_eq!(found.iter().map(Vec::len).sum::<usize>(), nodes, "seed {seed}: each once");
            let pairs = (0..nodes).flat_map(|one| (0..nodes).map(move |other| (one, other)));
            for (one, other) in pairs {
                let together = found.iter().any(|all| all.contains(&one) && all.contains(&other));
                assert_eq!(together, reaches[one][other] && reaches[other][one], "seed {seed}: {next:?}");
            }
        }
    }
}
