//! Cascades: how many objects a root takes with it. Approvals and gates about roots depend on this.
//!
//! The walk visits the dependents of the root, in slices, and counts the objects that no other owner keeps. It is not a
//! plan: it has no order, no policies and no finalizers, so it costs little, and it counts too many rather than too few.

use super::super::holding::Holding;
use crate::graph::NodeId;
use crate::guard::{Approval, Cascade, GuardId};
use crate::hold::Entry;
use crate::object::{Digest, GroupResource, ObjectRef, Uid};
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::time::Duration;

/// Maximum number of nodes that a walk visits between two effects.
pub(super) const SLICE: usize = 2000;
/// Maximum number of nodes of a walk. A cascade with more is larger than every limit.
const NODES_MAX: usize = 1_000_000;
/// Maximum number of roots that are known at a time.
pub(super) const ROOTS_MAX: usize = 1000;

/// The cascade of one root.
#[derive(Debug)]
pub(super) struct CascadeOf {
    pub(super) root: ObjectRef,
    walk: Option<Walk>,
    pub(super) extent: Cascade,
    /// The objects in the scope of each approval, with those of its listed collections.
    pub(super) in_scope: BTreeMap<GuardId, InScope>,
    /// The number of objects that approvals still permit, by collection. `None`: no approval was needed yet.
    pub(super) permitted: Option<BTreeMap<GroupResource, u64>>,
    /// The end of the approval since 1970.
    pub(super) until: Duration,
    /// An event has reported that it needs approval.
    pub(super) told: bool,
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
    /// Begins the walk below these nodes.
    pub(super) fn begin(holding: &Holding<'_>, root: ObjectRef, from: Vec<NodeId>) -> CascadeOf {
        let graph = holding.world.graph();
        let open = from.iter().map(|&id| (id, graph.node(id).dependent_count())).collect();
        let extent = Cascade { root: root.clone(), objects: 0, totals: Vec::new(), digest: 0, complete: false };
        let walk = Walk { seen: from.into_iter().collect(), open };
        CascadeOf {
            root,
            walk: Some(walk),
            extent,
            in_scope: BTreeMap::new(),
            permitted: None,
            until: Duration::ZERO,
            told: false,
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
            for id in found {
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
        // The sum does not depend on the order of the walk.
        self.extent.digest = self.extent.digest.wrapping_add(digest(&object.uid));
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

    /// Whether the cascade is counted and needs this approval.
    pub(super) fn needs(&self, id: &GuardId, approval: &Approval) -> bool {
        let InScope { objects, listed } = self.in_scope.get(id).copied().unwrap_or_default();
        let is_large = approval.more_than.is_some_and(|max| objects > max) || !self.extent.complete;
        self.is_counted() && (is_large || listed > 0)
    }

    /// Whether approvals permit one more object of this collection.
    pub(super) fn may_take(&self, collection: &GroupResource) -> bool {
        self.permitted.as_ref().and_then(|permitted| permitted.get(collection)).is_some_and(|&left| left > 0)
    }

    /// Takes one object of this collection from what approvals permit.
    pub(super) fn take(&mut self, collection: &GroupResource) {
        if let Some(left) = self.permitted.as_mut().and_then(|permitted| permitted.get_mut(collection)) {
            *left = left.saturating_sub(1);
        }
    }
}

fn digest(uid: &Uid) -> u64 {
    let mut digest = Digest::default();
    digest.uid(uid);
    digest.0
}
