//! Walks along references, in steps: between two of them the graph may change, so a walk goes by uid.

use super::Leader;
use crate::graph::{Node, NodeId, Reference};
use crate::object::Uid;
use crate::pieces::Pieces;
use crate::view::{EdgeView, LISTED_MAX, NodeView};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

/// Which way to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    Dependents,
    Owners,
}

/// What to walk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WalkOptions {
    pub direction: Direction,
    /// 1 is the direct neighbours.
    pub max_depth: u32,
    /// Along blocking references only.
    pub blocking_only: bool,
    /// Most objects that are found.
    pub max_objects: usize,
}

/// An object that a walk found, at its smallest depth.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    pub node: NodeView,
    pub depth: u32,
    /// References between this object and others of the walk: of a dependent, those it has; of an owner, those to it. The first
    /// [`LISTED_MAX`].
    pub edges: Vec<EdgeView>,
}

/// What a walk came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Walked {
    /// By depth, then collection, namespace and name.
    pub found: Vec<Found>,
    /// There is more below `max_depth`.
    pub depth_limited: bool,
    /// There are more than `max_objects`.
    pub cut: bool,
}

/// A walk under way.
#[derive(Debug)]
pub struct Walk {
    options: WalkOptions,
    start: Uid,
    open: VecDeque<Step>,
    seen: BTreeMap<Uid, u32>,
    /// In pieces, because a large one that grows is moved as a whole while the graph is held.
    found: Pieces<(NodeView, u32)>,
    edges: Pieces<EdgeView>,
    depth_limited: bool,
    cut: bool,
}

/// References of a walk, for each of the objects it may find: more of them end it as more objects do.
const EDGES_PER_OBJECT: usize = 3;
/// Dependents of one object that are taken at a time, and what they cost of a budget: only their names are taken.
pub(super) const BELOW_STEP: usize = 1000;
pub(super) const BELOW_COST: usize = 50;

#[derive(Debug)]
struct Step {
    uid: Uid,
    depth: u32,
    /// Whom it was reached from; the start from itself.
    from: Uid,
    /// It was visited, and its dependents below this place are still to come.
    below: Option<usize>,
}

impl Step {
    /// One further.
    fn to(&self, uid: Uid) -> Step {
        Step { uid, depth: self.depth + 1, from: self.uid.clone(), below: None }
    }
}

impl Walk {
    /// A walk from the object of this uid, which is not part of what is found.
    pub fn new(start: Uid, options: WalkOptions) -> Walk {
        let first = Step { uid: start.clone(), depth: 0, from: start.clone(), below: None };
        Walk {
            options,
            start,
            open: VecDeque::from([first]),
            seen: BTreeMap::new(),
            found: Pieces::new(),
            edges: Pieces::new(),
            depth_limited: false,
            cut: false,
        }
    }

    /// Visits at most `budget` objects. True once there is nothing left to visit.
    pub fn step(&mut self, leader: &Leader, budget: usize) -> bool {
        let mut left = budget;
        while left > 0 {
            let Some(step) = self.open.pop_front() else { return true };
            left = left.saturating_sub(
                1 + match step.below {
                    Some(_) => self.dependents(leader, &step),
                    None => self.visit(leader, &step),
                },
            );
        }
        self.open.is_empty()
    }

    /// What it costs beside the visit itself.
    fn visit(&mut self, leader: &Leader, step: &Step) -> usize {
        if self.seen.contains_key(&step.uid) {
            return 0;
        }
        let nodes = leader.graph.by_uid(&step.uid).map(|id| (id, leader.graph.node(id)));
        let Some(best) = leader.best_known(&step.uid) else { return 0 };
        if step.depth > 0 && self.options.blocking_only && !self.blocks(leader, step) {
            return 0;
        }
        if step.depth > 0 {
            if self.found.len() == self.options.max_objects {
                self.cut = true;
                self.open.clear();
                return 0;
            }
            self.found.push((leader.view(best), step.depth));
        }
        self.seen.insert(step.uid.clone(), step.depth);
        let edges_of = match self.options.direction {
            Direction::Dependents => step.depth > 0,
            Direction::Owners => true,
        };
        if edges_of {
            self.edges.extend(nodes.clone().flat_map(|(id, _)| match self.options.direction {
                // Of very many, those to what was found before go first: through one of them this object was reached.
                Direction::Dependents if leader.graph.node(id).owners().len() > LISTED_MAX => {
                    let is_known = |uid: &Uid| *uid == self.start || self.seen.contains_key(uid);
                    let mut edges = leader.edges_to(id, LISTED_MAX, is_known);
                    let room = LISTED_MAX - edges.len();
                    edges.extend(leader.edges_to(id, room, |uid| !is_known(uid)));
                    edges
                }
                Direction::Dependents | Direction::Owners => leader.edges(id),
            }));
            if self.edges.len() > EDGES_PER_OBJECT * self.options.max_objects {
                self.cut = true;
                self.open.clear();
                return 0;
            }
        }
        let all = nodes.map(|(_, node)| node);
        let count: usize = match self.options.direction {
            Direction::Dependents => all.clone().map(Node::dependent_count).sum(),
            Direction::Owners => all.clone().map(|node| node.owners().len()).sum(),
        };
        if step.depth == self.options.max_depth {
            self.depth_limited |= count > 0;
            return 0;
        }
        // What is beyond the bound is not even remembered: an owner may have a million dependents.
        let room = (2 * self.options.max_objects).saturating_sub(self.open.len());
        self.cut |= count > room;
        match self.options.direction {
            Direction::Dependents => self.dependents(leader, step),
            Direction::Owners => {
                let next = |id: NodeId| step.to(leader.graph.node(id).uid());
                let found: Vec<Step> = all.flat_map(Node::owners).take(room).map(next).collect();
                self.open.extend(found);
                0
            }
        }
    }

    /// Has dependents of an object visited: some of them, and the others before anything else. Gives what it costs.
    fn dependents(&mut self, leader: &Leader, step: &Step) -> usize {
        if self.open.len() > 2 * self.options.max_objects {
            self.cut = true;
            return 0;
        }
        let (found, rest) = leader.dependents_of(&step.uid, step.below, BELOW_STEP);
        let cost = BELOW_COST * found.len() / BELOW_STEP;
        let found: Vec<Step> = found.into_iter().map(|uid| step.to(uid)).collect();
        self.open.extend(found);
        if let Some(rest) = rest {
            let (uid, from) = (step.uid.clone(), step.from.clone());
            self.open.push_front(Step { uid, depth: step.depth, from, below: Some(rest) });
        }
        cost
    }

    /// Whether the reference that led here blocks.
    fn blocks(&self, leader: &Leader, step: &Step) -> bool {
        let (dependent, owner) = match self.options.direction {
            Direction::Dependents => (&step.uid, &step.from),
            Direction::Owners => (&step.from, &step.uid),
        };
        let mut references = leader.graph.by_uid(dependent).flat_map(|id| leader.graph.node(id).references());
        references.any(|reference| reference.blocks() && leader.graph.node(reference.owner()).uid() == *owner)
    }

    /// What was found. To be called once `step` said that there is nothing left.
    pub fn finish(mut self) -> Walked {
        let (seen, start) = (&self.seen, &self.start);
        let within = |uid: &Uid| uid == start || seen.contains_key(uid);
        let mut by_object: BTreeMap<Uid, Vec<EdgeView>> = BTreeMap::new();
        for edge in self.edges.take().filter(|edge| within(&edge.owner.uid) && within(&edge.dependent)) {
            let key = match self.options.direction {
                Direction::Dependents => edge.dependent.clone(),
                Direction::Owners => edge.owner.uid.clone(),
            };
            let edges = by_object.entry(key).or_default();
            if edges.len() < LISTED_MAX {
                edges.push(edge);
            }
        }
        let found = self.found.take().map(|(node, depth)| {
            let edges = by_object.remove(&node.object.uid).unwrap_or_default();
            Found { node, depth, edges }
        });
        let mut found: Vec<Found> = found.collect();
        found.sort_by(|a, b| (a.depth, a.node.object.order()).cmp(&(b.depth, b.node.object.order())));
        Walked { found, depth_limited: self.depth_limited, cut: self.cut }
    }
}

impl Leader {
    /// The node of a uid that shows most of it: observed, then read, then only claimed.
    pub(in crate::leader) fn best_known(&self, uid: &Uid) -> Option<NodeId> {
        let known = |id: &NodeId| {
            let node = self.graph.node(*id);
            (!node.is_observed(), !node.has_facts())
        };
        self.graph.by_uid(uid).min_by_key(known)
    }

    /// The references of a node, in order, with their standings.
    pub(in crate::leader) fn edges(&self, id: NodeId) -> Vec<EdgeView> {
        self.first_edges(id, usize::MAX)
    }

    /// The first `max` of them.
    pub(in crate::leader) fn first_edges(&self, id: NodeId, max: usize) -> Vec<EdgeView> {
        self.edges_to(id, max, |_| true)
    }

    /// Of these, the first `max` to owners that are wanted. Only they are made.
    pub(in crate::leader) fn edges_to(&self, id: NodeId, max: usize, wanted: impl Fn(&Uid) -> bool) -> Vec<EdgeView> {
        let node = self.graph.node(id);
        let is_wanted = |(reference, _): &(Reference<'_>, _)| wanted(&self.graph.node(reference.owner()).uid());
        let standings = crate::verdict::standings(&self.graph, &self.coverage, node);
        let edge = |(reference, standing): (Reference<'_>, _)| EdgeView {
            owner: self.object_ref(reference.owner()),
            dependent: node.uid(),
            reference: reference.to_owned(),
            standing: self.standing_view(node, reference.owner(), standing),
            evidence: self.evidence(reference.owner()),
        };
        node.references().zip(standings).filter(is_wanted).take(max).map(edge).collect()
    }
}
