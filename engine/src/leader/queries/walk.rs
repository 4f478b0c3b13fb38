//! Walks from a dependent to its owners, in steps. The graph may change between two steps, so a walk identifies objects
//! by uid.

use super::Queries;
use crate::object::Uid;
use crate::paged_vec::PagedVec;
use crate::view::{EdgeView, LISTED_MAX, NodeView};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

/// An object that a walk found, at its smallest depth.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    pub node: NodeView,
    pub depth: u32,
    /// The first [`LISTED_MAX`] references between this object and other objects of the walk. A dependent has its
    /// references to objects found earlier; an owner has the references that lead to it.
    pub edges: Vec<EdgeView>,
}

/// The result of a walk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Walked {
    /// The objects, ordered by depth, collection, namespace and name.
    pub found: Vec<Found>,
    /// True if there are more objects than requested.
    pub cut: bool,
}

/// A walk in progress.
#[derive(Debug)]
pub struct OwnersWalk {
    max_depth: u32,
    max_objects: usize,
    open: VecDeque<(Uid, u32)>,
    seen: BTreeMap<Uid, u32>,
    /// The objects found, in pages. A growing contiguous list would be moved as a whole while the graph is locked.
    found: PagedVec<(NodeView, u32)>,
    edges: PagedVec<EdgeView>,
    cut: bool,
}

/// Maximum number of references per requested object. Further references end the walk, as further objects do.
const EDGES_PER_OBJECT: usize = 3;
/// Number of dependents of one object that one step takes.
pub(super) const BELOW_STEP: usize = 1000;
/// Cost of one such step in objects. A step copies only names.
pub(super) const BELOW_COST: usize = 50;

impl OwnersWalk {
    /// Creates a walk from the object of this uid. The result does not contain the object. A `max_depth` of 1 is the
    /// direct owners.
    pub fn new(start: Uid, max_depth: u32, max_objects: usize) -> OwnersWalk {
        OwnersWalk {
            max_depth,
            max_objects,
            open: VecDeque::from([(start, 0)]),
            seen: BTreeMap::new(),
            found: PagedVec::new(),
            edges: PagedVec::new(),
            cut: false,
        }
    }

    /// Visits at most `budget` objects. Returns true after the last object.
    pub fn step(&mut self, queries: &Queries<'_>, budget: usize) -> bool {
        for _ in 0..budget {
            let Some((uid, depth)) = self.open.pop_front() else { return true };
            self.visit(queries, uid, depth);
        }
        self.open.is_empty()
    }

    fn visit(&mut self, queries: &Queries<'_>, uid: Uid, depth: u32) {
        if self.seen.contains_key(&uid) {
            return;
        }
        let Some(best) = queries.world().best_known(&uid) else { return };
        if depth > 0 {
            if self.found.len() == self.max_objects {
                return self.stop();
            }
            self.found.push((queries.view(best), depth));
        }
        let nodes = queries.graph().by_uid(&uid);
        self.edges.extend(nodes.clone().flat_map(|id| queries.world().edges(id)));
        if self.edges.len() > EDGES_PER_OBJECT * self.max_objects {
            return self.stop();
        }
        if depth < self.max_depth {
            let owners = nodes.flat_map(|id| queries.graph().node(id).owners());
            let owners = owners.map(|owner| (queries.graph().node(owner).uid(), depth + 1));
            // Objects beyond the bound are not remembered.
            let room = (2 * self.max_objects).saturating_sub(self.open.len());
            self.open.extend(owners.take(room).collect::<Vec<_>>());
        }
        self.seen.insert(uid, depth);
    }

    /// Ends the walk at its bound.
    fn stop(&mut self) {
        self.cut = true;
        self.open.clear();
    }

    /// Returns the result. The caller calls `finish` after `step` has returned true.
    pub fn finish(mut self) -> Walked {
        let mut by_owner: BTreeMap<Uid, Vec<EdgeView>> = BTreeMap::new();
        let seen = &self.seen;
        for edge in self.edges.take().filter(|edge| seen.contains_key(&edge.owner.uid)) {
            let edges = by_owner.entry(edge.owner.uid.clone()).or_default();
            if edges.len() < LISTED_MAX {
                edges.push(edge);
            }
        }
        let found = self.found.take().map(|(node, depth)| {
            let edges = by_owner.remove(&node.object.uid).unwrap_or_default();
            Found { node, depth, edges }
        });
        let mut found: Vec<Found> = found.collect();
        found.sort_by(|a, b| a.order().cmp(&b.order()));
        Walked { found, cut: self.cut }
    }
}

impl Found {
    /// Returns the sort key: depth, then collection, namespace and name.
    pub fn order(&self) -> (u32, (&str, &str, &str, &str, &Uid)) {
        (self.depth, self.node.object.order())
    }
}
