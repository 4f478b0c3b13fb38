//! Walks from a dependent to its owners, in steps: between two of them the graph may change, so a walk goes by uid.

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
    /// The first [`LISTED_MAX`] references between this object and others of the walk: of a dependent, those it has to what was found before
    /// it; of an owner, those to it.
    pub edges: Vec<EdgeView>,
}

/// What a walk came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Walked {
    /// By depth, then collection, namespace and name.
    pub found: Vec<Found>,
    /// There are more than were to be found.
    pub cut: bool,
}

/// A walk under way.
#[derive(Debug)]
pub struct OwnersWalk {
    max_depth: u32,
    max_objects: usize,
    open: VecDeque<(Uid, u32)>,
    seen: BTreeMap<Uid, u32>,
    /// In pieces, because a large one that grows is moved as a whole while the graph is held.
    found: PagedVec<(NodeView, u32)>,
    edges: PagedVec<EdgeView>,
    cut: bool,
}

/// References of a walk, for each of the objects it may find: more of them end it as more objects do.
const EDGES_PER_OBJECT: usize = 3;
/// Dependents of one object that are taken at a time, and what they cost of a budget: only their names are taken.
pub(super) const BELOW_STEP: usize = 1000;
pub(super) const BELOW_COST: usize = 50;

impl OwnersWalk {
    /// A walk from the object of this uid, which is not part of what is found. A `max_depth` of 1 is its direct owners.
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

    /// Visits at most `budget` objects. True once there is nothing left to visit.
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
        let Some(best) = queries.world.best_known(&uid) else { return };
        if depth > 0 {
            if self.found.len() == self.max_objects {
                return self.stop();
            }
            self.found.push((queries.view(best), depth));
        }
        let nodes = queries.world.graph().by_uid(&uid);
        self.edges.extend(nodes.clone().flat_map(|id| queries.world.edges(id)));
        if self.edges.len() > EDGES_PER_OBJECT * self.max_objects {
            return self.stop();
        }
        if depth < self.max_depth {
            let owners = nodes.flat_map(|id| queries.world.graph().node(id).owners());
            let owners = owners.map(|owner| (queries.world.graph().node(owner).uid(), depth + 1));
            // What is beyond the bound is not even remembered.
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

    /// What was found. To be called once `step` said that there is nothing left.
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
    /// By depth, then collection, namespace and name.
    pub fn order(&self) -> (u32, (&str, &str, &str, &str, &Uid)) {
        (self.depth, self.node.object.order())
    }
}

impl Queries<'_> {}
