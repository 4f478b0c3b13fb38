//! Cascades: how many objects a root takes with it. Approvals and gates about roots depend on this.
//!
//! The walk visits the dependents of the root, in slices, and counts the objects that no other owner keeps and that are
//! not in deletion yet. It is not a plan: it has no order, no policies and no finalizers, so it costs little, and it
//! counts too many rather than too few. Labels count as they are at that time.

use super::super::holding::Holding;
use crate::graph::{Graph, NodeId};
use crate::guard::{Approval, Cascade, GuardId};
use crate::hold::Entry;
use crate::object::{Digest, ObjectRef, Uid};
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

/// Maximum number of nodes that a walk visits between two effects.
pub(super) const SLICE: usize = 2000;
/// Maximum number of nodes of a walk. A cascade with more is larger than every limit.
const NODES_MAX: usize = 1_000_000;
/// Maximum number of roots that are known at a time.
pub(in crate::leader) const ROOTS_MAX: usize = 4000;

/// The cascade of one root.
///
/// | State | Meaning | Ends |
/// |---|---|---|
/// | being counted | all its items wait | when the walk ends |
/// | counted | the counted objects may go, if the approvals that it needs permit it | when another object joins |
/// | outdated | labels or approvals have changed, and no approval permits it | at the next item: the cascade is counted again |
#[derive(Debug)]
pub(super) struct CascadeOf {
    pub(super) root: ObjectRef,
    walk: Option<Walk>,
    pub(super) extent: Cascade,
    /// The objects in the scope of each approval, with those of its listed collections.
    in_scope: BTreeMap<GuardId, InScope>,
    /// The digests of the counted objects that have not gone and have no lease. A number would let an object that joins
    /// take the place of one that left the cascade.
    left: BTreeSet<u64>,
    /// The objects in the scope of each approval that went before the last count.
    gone: BTreeMap<GuardId, u64>,
    /// The approvals that permit the counted objects, and no more.
    permitted: BTreeSet<GuardId>,
    /// The approvals of which an event has reported that the cascade needs them.
    pub(super) told: BTreeSet<GuardId>,
    pub(super) outdated: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct InScope {
    pub(super) objects: u64,
    pub(super) listed: u64,
}

#[derive(Debug)]
struct Walk {
    seen: BTreeSet<NodeId>,
    /// Nodes whose dependents are to visit, and the number of dependents that are left.
    open: VecDeque<(NodeId, usize)>,
}

impl CascadeOf {
    pub(super) fn new(root: ObjectRef) -> CascadeOf {
        let extent = Cascade { root: root.clone(), objects: 0, totals: Vec::new(), digest: 0, complete: false };
        CascadeOf {
            root,
            walk: None,
            extent,
            in_scope: BTreeMap::new(),
            left: BTreeSet::new(),
            gone: BTreeMap::new(),
            permitted: BTreeSet::new(),
            told: BTreeSet::new(),
            outdated: true,
        }
    }

    /// Begins the count of the objects below these nodes. No approval permits the new count yet.
    pub(super) fn begin(&mut self, graph: &Graph, from: Vec<NodeId>) {
        let open = from.iter().map(|&id| (id, graph.node(id).dependent_count())).collect();
        self.walk = Some(Walk { seen: from.into_iter().collect(), open });
        self.extent = Cascade { objects: 0, totals: Vec::new(), digest: 0, complete: false, ..self.extent.clone() };
        self.in_scope.clear();
        self.left.clear();
        self.permitted.clear();
        self.told.clear();
        self.outdated = false;
    }

    /// Counts an object even if the walk does not reach it.
    pub(super) fn add(&mut self, holding: &Holding<'_>, approvals: &[&Entry], id: NodeId) {
        if let Some(walk) = &mut self.walk
            && walk.seen.insert(id)
        {
            walk.open.push_back((id, holding.world.graph().node(id).dependent_count()));
            self.count(holding, approvals, id);
        }
    }

    pub(super) fn is_counted(&self) -> bool {
        self.walk.is_none()
    }

    /// Visits at most `budget` nodes. Returns what is left of the budget.
    pub(super) fn step(&mut self, holding: &Holding<'_>, approvals: &[&Entry], mut budget: usize) -> usize {
        let graph = holding.world.graph();
        while let Some(walk) = self.walk.as_mut().filter(|_| budget > 0) {
            let Some((id, left)) = walk.open.pop_front() else {
                self.extent.complete = true;
                self.walk = None;
                break;
            };
            // The graph may have changed since the last slice.
            let Some(node) = graph.get(id) else { continue };
            let left = left.min(node.dependent_count());
            let first = left.saturating_sub(budget);
            budget -= (left - first).max(1).min(budget);
            if first > 0 {
                walk.open.push_front((id, first));
            }
            let mut found = Vec::new();
            for dependent in node.dependents_at(first..left) {
                let keeps = |owner: NodeId| {
                    let owner = graph.node(owner);
                    owner.is_observed() && !owner.is_terminating()
                };
                let kept = graph.node(dependent).owners().any(|owner| keeps(owner) && !walk.seen.contains(&owner));
                if !kept && walk.seen.insert(dependent) {
                    found.push(dependent);
                }
            }
            walk.open.extend(found.iter().map(|&id| (id, graph.node(id).dependent_count())));
            let full = walk.seen.len() > NODES_MAX;
            for id in found.into_iter().filter(|&id| !graph.node(id).is_terminating()) {
                self.count(holding, approvals, id);
            }
            if full {
                self.walk = None;
            }
        }
        budget
    }

    fn count(&mut self, holding: &Holding<'_>, approvals: &[&Entry], id: NodeId) {
        let object = holding.world.object_ref(id);
        let collection = object.group_resource();
        self.extent.objects += 1;
        let digest = digest(&object.uid);
        self.left.insert(digest);
        // The sum does not depend on the order of the walk.
        self.extent.digest = self.extent.digest.wrapping_add(digest);
        match self.extent.totals.binary_search_by(|(of, _)| of.cmp(&collection)) {
            Ok(at) => self.extent.totals[at].1 += 1,
            Err(at) => self.extent.totals.insert(at, (collection.clone(), 1)),
        }
        for entry in approvals.iter().filter(|entry| holding.has(entry, &object)) {
            let crate::guard::Rule::Approval(approval) = &entry.guard.rule else { continue };
            let in_scope = self.in_scope.entry(entry.guard.id.clone()).or_default();
            in_scope.objects += 1;
            in_scope.listed += u64::from(approval.resources.contains(&collection));
        }
    }

    /// Completes a count: these leases have taken their objects.
    pub(super) fn counted<'a>(&mut self, leased: impl Iterator<Item = &'a Uid>) {
        for uid in leased {
            self.take(uid);
        }
    }

    /// Whether the cascade is counted and needs this approval.
    pub(super) fn needs(&self, id: &GuardId, approval: &Approval) -> bool {
        let InScope { objects, listed } = self.in_scope.get(id).copied().unwrap_or_default();
        let objects = objects + self.gone.get(id).copied().unwrap_or_default();
        let is_large = approval.more_than.is_some_and(|max| objects > max) || !self.extent.complete;
        self.is_counted() && (is_large || listed > 0)
    }

    /// Lets an approval permit the counted objects, and no more.
    pub(super) fn permit(&mut self, approval: &GuardId) {
        self.permitted.insert(approval.clone());
    }

    pub(super) fn is_permitted(&self, approval: &GuardId) -> bool {
        self.permitted.contains(approval)
    }

    pub(super) fn permitted(&self) -> impl Iterator<Item = &GuardId> {
        self.permitted.iter()
    }

    pub(super) fn is_permitted_by_any(&self) -> bool {
        !self.permitted.is_empty()
    }

    /// Whether this object was counted, and was not taken.
    pub(super) fn may_take(&self, uid: &Uid) -> bool {
        self.left.contains(&digest(uid))
    }

    /// Takes a counted object. Returns false if it was not counted, or was taken.
    pub(super) fn take(&mut self, uid: &Uid) -> bool {
        self.left.remove(&digest(uid))
    }

    pub(super) fn give_back(&mut self, uid: &Uid) {
        self.left.insert(digest(uid));
    }

    /// Records that an object in the scope of these approvals went.
    pub(super) fn went(&mut self, approvals: impl Iterator<Item = GuardId>) {
        for id in approvals {
            *self.gone.entry(id).or_default() += 1;
        }
    }
}

fn digest(uid: &Uid) -> u64 {
    let mut digest = Digest::default();
    digest.uid(uid);
    digest.0
}
