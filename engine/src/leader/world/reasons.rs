//! The grounds of decisions, for subscribers.

use super::super::context::Context;
use super::super::{Cause, Event, GROUNDS_KEPT_MAX, Grounds, Logged, RootMarks};
use super::World;
use crate::object::{ObjectRef, Uid};
use crate::queue::Draft;
use crate::work::{self, Action};
use alloc::boxed::Box;
use alloc::vec::Vec;

impl World {
    /// Returns the grounds of a decision.
    pub(in crate::leader) fn grounds(
        &self,
        cx: &Context,
        draft: &Draft,
        causes: Vec<Cause>,
        chain: Vec<ObjectRef>,
    ) -> Box<Grounds> {
        let uid = &draft.target.uid;
        let node = self.graph.primary(uid);
        let cause_count = causes.len();
        Box::new(Grounds {
            decision: decision(draft),
            preconditions: draft.preconditions.clone(),
            propagation_policy: match draft.action {
                Action::Delete { propagation_policy, .. } => Some(propagation_policy),
                Action::RemoveOwnerReferences { .. }
                | Action::UnblockOwnerReferences { .. }
                | Action::RemoveFinalizer { .. } => None,
            },
            root: self.root_marks(cx, &chain),
            chain,
            causes: told(causes),
            cause_count,
            owners: node.map_or_else(Vec::new, |id| self.first_edges(id, GROUNDS_KEPT_MAX)),
            owner_count: node.map_or(0, |id| self.graph.node(id).references().count()),
        })
    }

    /// Returns the grounds of a decision with the current causes.
    pub(in crate::leader) fn grounds_now(&self, cx: &Context, draft: &Draft) -> Box<Grounds> {
        let uid = &draft.target.uid;
        let causes = self.last_causes(cx, uid);
        let chain = self.chain(cx, uid, &causes);
        self.grounds(cx, draft, causes, chain)
    }

    /// Returns the grounds of a decision that was carried out, or that an earlier leader made, as far as this leader
    /// knows them. The result has no owners.
    pub(in crate::leader) fn grounds_of(&self, cx: &Context, uid: &Uid, decision: u64) -> Box<Grounds> {
        let causes = self.last_causes(cx, uid);
        let (chain, cause_count) = (self.chain(cx, uid, &causes), causes.len());
        let root = self.root_marks(cx, &chain);
        Box::new(Grounds { causes, cause_count, chain, root, ..*Grounds::unknown(decision) })
    }

    /// Returns the causes of a decision, or the last ones known of a deleted object.
    fn last_causes(&self, cx: &Context, uid: &Uid) -> Vec<Cause> {
        match self.graph.primary(uid) {
            Some(id) => self.causes(id),
            None => self.tombstones.get(cx.now, uid).map_or_else(Vec::new, |gone| gone.causes.clone()),
        }
    }

    pub(in crate::leader) fn root_marks(&self, cx: &Context, chain: &[ObjectRef]) -> RootMarks {
        let Some(root) = chain.last() else { return RootMarks::default() };
        let observed = self.best_known(&root.uid).map(|id| self.graph.node(id)).filter(|node| node.is_observed());
        if let Some(node) = observed {
            let deletion_time =
                if node.is_terminating() { node.facts().and_then(|facts| facts.deletion_time) } else { None };
            return RootMarks { resource_version: node.resource_version(), deletion_time };
        }
        self.tombstones.get(cx.now, &root.uid).map_or_else(RootMarks::default, |gone| RootMarks {
            resource_version: gone.deleted.clone().or_else(|| gone.resource_version.clone()),
            deletion_time: gone.deletion_time,
        })
    }

    /// Returns the chain of deleted owners that led to this decision, from the nearest owner to the first one. The
    /// graph has the owners that still exist, and the tombstones have the deleted ones. An object that lives began
    /// nothing: a wrong reference has its uid.
    pub(in crate::leader) fn chain(&self, cx: &Context, of: &Uid, causes: &[Cause]) -> Vec<ObjectRef> {
        let mut chain: Vec<ObjectRef> = Vec::new();
        let mut next = going(causes).cloned();
        while let Some(uid) = next.take().filter(|uid| chain.len() < CHAIN_MAX && uid != of) {
            let gone = self.tombstones.get(cx.now, &uid);
            let Some(id) = self.best_known(&uid) else {
                let Some(gone) = gone else { break };
                if chain.contains(&gone.object) {
                    break;
                }
                chain.push(gone.object.clone());
                next = going(&gone.causes).cloned();
                continue;
            };
            let (object, node) = (self.object_ref(id), self.graph.node(id));
            if chain.contains(&object) || (node.is_observed() && !node.is_terminating()) {
                break;
            }
            chain.push(object);
            next = match gone {
                Some(gone) => going(&gone.causes).cloned(),
                None => going(&self.causes(id)).cloned(),
            };
        }
        chain
    }

    pub(in crate::leader) fn supersede_logged(
        &mut self,
        cx: &mut Context,
        Logged { target, action, decision, .. }: Logged,
    ) {
        let grounds = self.grounds_of(cx, &target.uid, decision);
        cx.event(Event::Withdrawn { item: 0, target, action, replaced: false, grounds });
    }
}

/// Maximum number of causes in the chain that an event carries.
const CHAIN_MAX: usize = 32;

/// Returns the identifier of a decision. The same action on the same object with the same facts has the same
/// identifier.
pub(in crate::leader) fn decision(draft: &Draft) -> u64 {
    work::decision(&draft.target.uid, draft.action.kind(), draft.preconditions.facts_digest)
}

/// Returns at most [`GROUNDS_KEPT_MAX`] causes. The causes that explain the decision best come first.
pub(in crate::leader) fn told(mut causes: Vec<Cause>) -> Vec<Cause> {
    if causes.len() > GROUNDS_KEPT_MAX {
        causes.sort_by_key(|cause| match cause {
            Cause::OwnerWaiting { .. } | Cause::OwnerOrphans { .. } => 0,
            Cause::OwnerAbsent { .. } => 1,
            Cause::KeptBy { .. } | Cause::NoBlockingDependents | Cause::NoDependents | Cause::Cycle => 2,
        });
        causes.truncate(GROUNDS_KEPT_MAX);
    }
    causes
}

/// Returns the uid of the first owner among the causes that is absent or in deletion.
pub(in crate::leader) fn going(causes: &[Cause]) -> Option<&Uid> {
    causes.iter().find_map(|cause| match cause {
        Cause::OwnerAbsent { uid, .. } | Cause::OwnerWaiting { uid, .. } | Cause::OwnerOrphans { uid, .. } => Some(uid),
        Cause::KeptBy { .. } | Cause::NoBlockingDependents | Cause::NoDependents | Cause::Cycle => None,
    })
}
