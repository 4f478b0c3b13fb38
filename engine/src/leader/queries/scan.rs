//! Passes over all nodes in steps, for rare queries without an index.

use super::Queries;
use crate::graph::{NodeId, Reference, cycles};
use crate::object::{ObjectRef, Uid};
use crate::verdict::own_hold;
use crate::view::{CycleView, EdgeView, Explanation, ItemView, NodeView, PlaceView, VerdictView};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

/// Maximum number of objects in a chain of blockers.
const CHAIN_MAX: usize = 1000;

/// Number of references that cost as much as one slot.
const REFERENCES_PER_PLACE: usize = 10;

/// A pass over all nodes that continues from one step to the next. The pass may miss nodes that come or go meanwhile.
#[derive(Debug, Default)]
pub struct Scan {
    next: usize,
}

impl Scan {
    /// Visits up to `budget` slots, and returns the results of `look` for their nodes. Returns `None` after the last
    /// slot.
    fn step<T>(
        &mut self,
        queries: &Queries<'_>,
        budget: usize,
        mut look: impl FnMut(&Queries<'_>, NodeId) -> Option<T>,
    ) -> Option<Vec<T>> {
        let places = queries.graph().places();
        if self.next >= places {
            return None;
        }
        let (mut found, mut left) = (Vec::new(), budget);
        while self.next < places && left > 0 {
            let id = queries.graph().at_place(self.next);
            self.next += 1;
            // A few objects with very many references take as much work as many other objects.
            let references = id.map_or(0, |id| queries.graph().node(id).owners().len());
            left = left.saturating_sub(1 + references / REFERENCES_PER_PLACE);
            found.extend(id.and_then(|id| look(queries, id)));
        }
        Some(found)
    }

    /// Returns objects that are in deletion or decided and are not gone, and objects whose decision something other
    /// than a pause prevents. Returns `None` after the last slot.
    pub fn stuck(&mut self, queries: &Queries<'_>, budget: usize) -> Option<Vec<Explanation>> {
        self.step(queries, budget, |queries, id| {
            let node = queries.graph().node(id);
            if !node.is_observed() {
                return None;
            }
            let held = own_hold(queries.graph(), node).is_some();
            let moves = held
                || node.is_terminating()
                || queries.world().undecided().get(id).is_some()
                || queries.queue().get(&node.uid()).is_some();
            let explanation = moves.then(|| queries.explain(&node.uid())).flatten()?;
            match explanation.verdict {
                VerdictView::Blocked | VerdictView::Parked | VerdictView::Undecided | VerdictView::Held => {
                    Some(explanation)
                }
                VerdictView::InProgress | VerdictView::Collectable if !explanation.reasons.is_empty() => {
                    Some(explanation)
                }
                // The object stays, but must lose a reference.
                VerdictView::Kept if explanation.item.as_ref().is_some_and(is_refused) => Some(explanation),
                VerdictView::InProgress
                | VerdictView::Collectable
                | VerdictView::Kept
                | VerdictView::Unowned
                | VerdictView::Gone => None,
            }
        })
    }

    /// Returns all nodes with their references. Returns `None` after the last slot.
    pub fn export(&mut self, queries: &Queries<'_>, budget: usize) -> Option<Vec<(NodeView, Vec<EdgeView>)>> {
        self.step(queries, budget, |queries, id| Some((queries.view(id), queries.world().edges(id))))
    }
}

/// Returns whether an attempt failed, or would meet a blocker of other items.
fn is_refused(item: &ItemView) -> bool {
    match item.place {
        PlaceView::Backoff { .. } | PlaceView::Behind { .. } => true,
        PlaceView::Ready | PlaceView::Observed | PlaceView::Held { .. } | PlaceView::Leased { .. } => false,
    }
}

/// The search for cycles: a scan, the components of its result, and a final check of each component.
#[derive(Debug)]
pub struct CycleSearch {
    scan: Scan,
    blocking_only: bool,
    /// Nodes with owners and dependents, with their owners. No other node can be in a cycle.
    linked: BTreeMap<NodeId, (Uid, Vec<NodeId>)>,
}

impl CycleSearch {
    /// Creates a search. With `blocking_only`, the search finds cycles of blocking references, which can stop
    /// foreground deletions.
    pub fn new(blocking_only: bool) -> CycleSearch {
        CycleSearch { scan: Scan::default(), blocking_only, linked: BTreeMap::new() }
    }

    /// Visits up to `budget` slots. Returns true after the last slot.
    pub fn step(&mut self, queries: &Queries<'_>, budget: usize) -> bool {
        let blocking_only = self.blocking_only;
        let found = self.scan.step(queries, budget, |queries, id| {
            let node = queries.graph().node(id);
            let counts = |reference: &Reference<'_>| !blocking_only || reference.blocks();
            let owners: Vec<NodeId> = node.references().filter(counts).map(Reference::owner).collect();
            (!owners.is_empty() && node.dependent_count() > 0).then(|| (id, (node.uid(), owners)))
        });
        match found {
            Some(found) => {
                self.linked.extend(found);
                false
            }
            None => true,
        }
    }

    /// Returns the groups of objects in cycles, as sorted uids. The call does not read the leader.
    pub fn components(self) -> Vec<Vec<Uid>> {
        let ids: Vec<NodeId> = self.linked.keys().copied().collect();
        let place: BTreeMap<NodeId, usize> = ids.iter().enumerate().map(|(at, &id)| (id, at)).collect();
        let owners = |at: usize| self.linked[&ids[at]].1.iter().filter_map(|owner| place.get(owner).copied());
        let next: Vec<Vec<usize>> = (0..ids.len()).map(|at| owners(at).collect()).collect();
        let uid = |at: usize| self.linked[&ids[at]].0.clone();
        let mut groups: Vec<Vec<Uid>> =
            cycles(&next).into_iter().map(|group| group.into_iter().map(uid).collect()).collect();
        for group in &mut groups {
            group.sort();
        }
        groups.sort();
        groups
    }
}

impl Queries<'_> {
    /// Returns the current state of a cycle, if these objects still form one.
    pub fn cycle(&self, members: &[Uid]) -> Option<CycleView> {
        let within: BTreeSet<&Uid> = members.iter().collect();
        let ids: Vec<NodeId> = members.iter().map(|uid| self.graph().primary(uid)).collect::<Option<_>>()?;
        let inside = |edge: &EdgeView| within.contains(&edge.owner.uid);
        let edges: Vec<Vec<EdgeView>> =
            ids.iter().map(|&id| self.world().edges(id).into_iter().filter(inside).collect()).collect();
        if edges.iter().any(Vec::is_empty) {
            return None;
        }
        let waits = |&id: &NodeId| self.graph().node(id).deletes_dependents();
        let deadlocked = ids.iter().all(waits);
        // If the members wait for each other, the verdict unblocks the reference of this member first. Otherwise the
        // first member stands for the cycle.
        let relaxed = |&&id: &&NodeId| {
            let verdict = crate::verdict::verdict(self.graph(), self.coverage(), id);
            matches!(verdict, crate::verdict::Verdict::Foreground { unblock, .. } if !unblock.is_empty())
        };
        let unblock = ids.iter().find(relaxed).or(ids.first()).map(|&id| self.graph().node(id).uid())?;
        Some(CycleView {
            members: ids.iter().map(|&id| self.view(id)).collect(),
            edges: edges.concat(),
            deadlocked,
            unblock,
        })
    }

    /// Returns the ends of the chain of blocking dependents below an object. These objects must go first.
    pub fn root_blockers(&self, uid: &Uid) -> Vec<ObjectRef> {
        let Some(start) = self.graph().primary(uid) else { return Vec::new() };
        let mut seen = BTreeSet::from([start]);
        let mut open = alloc::vec![start];
        let mut ends = Vec::new();
        while let Some(id) = open.pop() {
            let node = self.graph().node(id);
            let blocks = |&dependent: &NodeId| self.graph().node(dependent).blocks(id);
            let waits = node.deletes_dependents();
            let mut below = node.dependents().filter(blocks).take(CHAIN_MAX).peekable();
            if !waits || below.peek().is_none() {
                if id != start {
                    ends.push(self.world().object_ref(id));
                }
                continue;
            }
            for dependent in below {
                if seen.len() < CHAIN_MAX && seen.insert(dependent) {
                    open.push(dependent);
                }
            }
        }
        ends.sort();
        ends.truncate(crate::view::RELATED_MAX);
        ends
    }
}
