//! Walks from an owner to its dependents. A walk finds a requested number of objects and continues from there
//! afterwards. The first of a million dependents therefore cost as much as the first of ten.
//!
//! The graph may change between two steps. When a walk reaches an owner, it notes the nodes of the dependents at that
//! time. The walk finds each object that remains a dependent once, regardless of changes to the others. The walk may
//! miss a dependent that is added afterwards. The walk omits a former dependent, even if another object has its node by
//! then.

use super::walk::Found;
use super::{Node, NodeId, Queries};
use crate::object::Uid;
use crate::view::LISTED_MAX;
use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;

/// The options of a walk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DependentsOptions {
    /// The maximum depth. A depth of 1 is the direct dependents.
    pub max_depth: u32,
    /// True if the walk follows only blocking references.
    pub blocking_only: bool,
    /// The maximum number of objects to find.
    pub max_objects: usize,
}

/// A walk in progress.
#[derive(Debug)]
pub struct DependentsWalk {
    options: DependentsOptions,
    start: Uid,
    /// The owners to visit, in the order in which they were found, which is by depth.
    open: VecDeque<Below>,
    /// The number of nodes noted in `open`.
    noted: usize,
    found: BTreeSet<Uid>,
    depth_limited: bool,
    cut: bool,
}

/// An owner whose dependents are not visited yet.
#[derive(Debug)]
struct Below {
    owner: Uid,
    depth: u32,
    /// The dependents, noted when the walk reaches the owner. The first of them is visited last.
    dependents: Option<Vec<NodeId>>,
}

/// Number of references that cost as much as one object.
const REFERENCES_PER_OBJECT: usize = 10;
/// Number of noted dependents that cost as much as one object.
const NOTES_PER_OBJECT: usize = 1000;

impl DependentsWalk {
    /// Creates a walk from the object of this uid. The result does not contain the object.
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

    /// Visits about `budget` objects, and finds at most `wanted` of them. Returns `None` after the last object.
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

    /// Notes the dependents of the next owner. Returns the cost.
    fn note(&mut self, queries: &Queries<'_>) -> usize {
        let Some(below) = self.open.front_mut() else { return 0 };
        let nodes = || queries.graph().by_uid(&below.owner).map(|id| queries.graph().node(id));
        // Dependents beyond the bound are not noted, because an owner may have a million dependents.
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

    /// Visits a noted node below this owner. Returns the object found, and the cost of the visit.
    fn visit(&mut self, queries: &Queries<'_>, owner: &Uid, depth: u32, id: NodeId) -> (Option<Found>, usize) {
        let Some(node) = queries.graph().get(id) else { return (None, 1) };
        let cost = 1 + node.owners().len() / REFERENCES_PER_OBJECT;
        let leads_here = |uid: &Uid| uid == owner;
        let is_dependent = node.references().any(|reference| {
            (!self.options.blocking_only || reference.blocks())
                && leads_here(&queries.graph().node(reference.owner()).uid())
        });
        let uid = node.uid();
        if !is_dependent || uid == self.start || self.found.contains(&uid) {
            return (None, cost);
        }
        let Some(best) = queries.world().best_known(&uid) else { return (None, cost) };
        if self.found.len() == self.options.max_objects {
            self.stop();
            return (None, cost);
        }
        let nodes = || queries.graph().by_uid(&uid);
        let is_known = |owner: &Uid| *owner == self.start || self.found.contains(owner);
        let mut edges = Vec::new();
        for id in nodes() {
            edges.extend(queries.world().edges_to(id, LISTED_MAX - edges.len(), is_known));
        }
        if nodes().any(|id| queries.graph().node(id).dependent_count() > 0) {
            if depth < self.options.max_depth {
                self.open.push_back(Below { owner: uid.clone(), depth: depth + 1, dependents: None });
            } else {
                self.depth_limited = true;
            }
        }
        self.found.insert(uid);
        (Some(Found { node: queries.view(best), depth, edges }), cost)
    }

    /// Returns whether an object of the result has dependents below `max_depth`.
    pub fn is_depth_limited(&self) -> bool {
        self.depth_limited
    }

    /// Returns whether `max_objects` ended the walk early.
    pub fn is_cut(&self) -> bool {
        self.cut
    }

    /// Returns the approximate size of the walk in bytes.
    pub fn bytes(&self) -> usize {
        self.noted * size_of::<NodeId>()
            + self.open.len() * size_of::<Below>()
            + self.found.len() * 2 * size_of::<Uid>()
    }
}
