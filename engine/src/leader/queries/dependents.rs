//! Walks from an owner to what depends on it. A walk finds as many objects as are asked for and goes on later from there, so the first of a
//! million dependents cost as much as the first of ten.
//!
//! Between two steps the graph may change. When a walk comes to an owner, it notes the nodes of the dependents that the owner has then. A
//! dependent that is one throughout is found once, whatever happens to the others. One that comes later may be missed. One that is none any
//! more when the walk comes to it is left out, also where another object has its node by then.

use super::walk::Found;
use super::{Node, NodeId, Queries};
use crate::object::Uid;
use crate::view::LISTED_MAX;
use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;

/// What to walk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DependentsOptions {
    /// 1 is the direct dependents.
    pub max_depth: u32,
    /// Along blocking references only.
    pub blocking_only: bool,
    /// Most objects that are found.
    pub max_objects: usize,
}

/// A walk under way.
#[derive(Debug)]
pub struct DependentsWalk {
    options: DependentsOptions,
    start: Uid,
    /// In the order in which they were found, which is by depth.
    open: VecDeque<Below>,
    /// Nodes noted in `open`.
    noted: usize,
    found: BTreeSet<Uid>,
    depth_limited: bool,
    cut: bool,
}

/// An owner whose dependents are still to be visited.
#[derive(Debug)]
struct Below {
    owner: Uid,
    depth: u32,
    /// Noted when the walk comes to the owner; the first of them is visited last.
    dependents: Option<Vec<NodeId>>,
}

/// References that cost a step as much as one more object.
const REFERENCES_PER_OBJECT: usize = 10;
/// Dependents whose notes cost a step as much as one object.
const NOTES_PER_OBJECT: usize = 1000;

impl DependentsWalk {
    /// A walk from the object of this uid, which is not part of what is found.
    pub fn new(start: Uid, options: DependentsOptions) -> DependentsWalk {
        let first = Below { owner: start.clone(), depth: 1, dependents: None };
        DependentsWalk {
            options,
            start,
            open: VecDeque::from([first]),
            noted: 0,
            found: BTreeSet::new(),
            depth_limited: false,
            cut: false,
        }
    }

    /// Visits about `budget` objects, and finds at most `wanted` of them. `None` once there is nothing left to visit.
    pub fn step(&mut self, queries: &Queries<'_>, budget: usize, wanted: usize) -> Option<Vec<Found>> {
        let (mut found, mut left) = (Vec::new(), budget);
        while left > 0 && found.len() < wanted {
            let Some(below) = self.open.front_mut() else {
                return Some(found).filter(|found| !found.is_empty());
            };
            let cost = match below.dependents.as_mut().map(Vec::pop) {
                None => self.note(queries),
                Some(None) => {
                    self.open.pop_front();
                    0
                }
                Some(Some(id)) => {
                    let (owner, depth) = (below.owner.clone(), below.depth);
                    self.noted -= 1;
                    let (one, cost) = self.visit(queries, &owner, depth, id);
                    found.extend(one);
                    cost
                }
            };
            left = left.saturating_sub(cost);
        }
        Some(found)
    }

    /// Notes the dependents of the owner that comes next. Gives what it costs.
    fn note(&mut self, queries: &Queries<'_>) -> usize {
        let Some(below) = self.open.front_mut() else { return 0 };
        let nodes = || queries.world.graph().by_uid(&below.owner).map(|id| queries.world.graph().node(id));
        // What is beyond the bound is not even noted: an owner may have a million dependents.
        let count: usize = nodes().map(Node::dependent_count).sum();
        if self.noted + count > 2 * self.options.max_objects {
            self.stop();
            return 0;
        }
        let mut dependents: Vec<NodeId> = nodes().flat_map(Node::dependents).collect();
        dependents.reverse();
        self.noted += dependents.len();
        below.dependents = Some(dependents);
        1 + count / NOTES_PER_OBJECT
    }

    /// Ends the walk at its bound.
    fn stop(&mut self) {
        self.cut = true;
        self.open.clear();
        self.noted = 0;
    }

    /// Visits a node that was noted below this owner. Gives what it found, and what that costs.
    fn visit(&mut self, queries: &Queries<'_>, owner: &Uid, depth: u32, id: NodeId) -> (Option<Found>, usize) {
        let Some(node) = queries.world.graph().get(id) else { return (None, 1) };
        let cost = 1 + node.owners().len() / REFERENCES_PER_OBJECT;
        let leads_here = |uid: &Uid| uid == owner;
        let is_dependent = node.references().any(|reference| {
            (!self.options.blocking_only || reference.blocks())
                && leads_here(&queries.world.graph().node(reference.owner()).uid())
        });
        let uid = node.uid();
        if !is_dependent || uid == self.start || self.found.contains(&uid) {
            return (None, cost);
        }
        let Some(best) = queries.world.best_known(&uid) else { return (None, cost) };
        if self.found.len() == self.options.max_objects {
            self.stop();
            return (None, cost);
        }
        let nodes = || queries.world.graph().by_uid(&uid);
        let is_known = |owner: &Uid| *owner == self.start || self.found.contains(owner);
        let mut edges = Vec::new();
        for id in nodes() {
            edges.extend(queries.world.edges_to(id, LISTED_MAX - edges.len(), is_known));
        }
        if nodes().any(|id| queries.world.graph().node(id).dependent_count() > 0) {
            if depth < self.options.max_depth {
                self.open.push_back(Below { owner: uid.clone(), depth: depth + 1, dependents: None });
            } else {
                self.depth_limited = true;
            }
        }
        self.found.insert(uid);
        (Some(Found { node: queries.view(best), depth, edges }), cost)
    }

    /// Whether an object that was found has dependents below `max_depth`.
    pub fn is_depth_limited(&self) -> bool {
        self.depth_limited
    }

    /// Whether there are more than `max_objects`, so that the walk ended before its end.
    pub fn is_cut(&self) -> bool {
        self.cut
    }

    /// About how many bytes the walk holds.
    pub fn bytes(&self) -> usize {
        self.noted * size_of::<NodeId>()
            + self.open.len() * size_of::<Below>()
            + self.found.len() * 2 * size_of::<Uid>()
    }
}
