//! What decisions rest on, for those who follow them.

use super::{Cause, GROUNDS_KEPT_MAX, Grounds, Leader, OpenDecision, RootMarks};
use crate::graph::NodeId;
use crate::object::{ObjectRef, Uid};
use crate::queue::{Draft, Place};
use crate::work::{self, Action};
use alloc::boxed::Box;
use alloc::vec::Vec;

/// Longest chain of causes that is told.
const CHAIN_MAX: usize = 32;

impl Leader {
    /// What a decision rests on.
    pub(super) fn grounds(&self, draft: &Draft, causes: Vec<Cause>, chain: Vec<ObjectRef>) -> Box<Grounds> {
        let uid = &draft.target.uid;
        let node = self.world.graph.primary(uid);
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
            root: self.root_marks(&chain),
            chain,
            causes: told(causes),
            cause_count,
            owners: node.map_or_else(Vec::new, |id| self.first_edges(id, GROUNDS_KEPT_MAX)),
            owner_count: node.map_or(0, |id| self.world.graph.node(id).references().count()),
        })
    }

    /// The same, with the causes as they are now.
    pub(super) fn grounds_now(&self, draft: &Draft) -> Box<Grounds> {
        let uid = &draft.target.uid;
        let causes = match self.world.graph.primary(uid) {
            Some(id) => self.causes_now(id),
            // It went before its attempt was reported.
            None => self.tombstone(uid).map_or_else(Vec::new, |gone| gone.causes.clone()),
        };
        let chain = self.chain(uid, &causes);
        self.grounds(draft, causes, chain)
    }

    /// What is known now of what a decision rests on that was carried out, or that an earlier leader took; without owners.
    pub(super) fn grounds_of(&self, uid: &Uid, decision: u64) -> Box<Grounds> {
        let causes = match self.world.graph.primary(uid) {
            Some(id) => self.causes_now(id),
            None => self.tombstone(uid).map_or_else(Vec::new, |gone| gone.causes.clone()),
        };
        let (chain, cause_count) = (self.chain(uid, &causes), causes.len());
        let root = self.root_marks(&chain);
        Box::new(Grounds { causes, cause_count, chain, root, ..*Grounds::unknown(decision) })
    }

    /// Decisions that are not carried out yet, in the order of their targets' uids: at most `max` after `after`.
    pub fn open_decisions(&self, after: Option<&Uid>, max: usize) -> Vec<OpenDecision> {
        let open = |uid: &Uid| {
            let item = self.dispatcher.queue.get(uid)?;
            let executor = match item.place {
                Place::Leased(lease) => {
                    self.dispatcher.leases.get(lease).and_then(|lease| self.dispatcher.leases.session(lease.session))
                }
                Place::Ready | Place::Observed | Place::Held(_) | Place::Backoff { .. } | Place::Behind(_) => None,
            };
            Some(OpenDecision {
                target: item.draft.target.clone(),
                action: item.draft.action.kind(),
                decided: item.decided,
                attempts: item.attempts,
                executor: executor.map(|session| session.executor.clone()),
                held: matches!(item.place, Place::Held(_)),
                grounds: *self.grounds_now(&item.draft),
            })
        };
        self.dispatcher.queue.uids_after(after).take(max).filter_map(open).collect()
    }

    fn causes_now(&self, id: NodeId) -> Vec<Cause> {
        self.causes(id)
    }

    fn root_marks(&self, chain: &[ObjectRef]) -> RootMarks {
        let Some(root) = chain.last() else { return RootMarks::default() };
        let observed = self.best_known(&root.uid).map(|id| self.world.graph.node(id)).filter(|node| node.is_observed());
        if let Some(node) = observed {
            let deletion_time =
                if node.is_terminating() { node.facts().and_then(|facts| facts.deletion_time) } else { None };
            return RootMarks { resource_version: node.resource_version(), deletion_time };
        }
        self.tombstone(&root.uid).map_or_else(RootMarks::default, |gone| RootMarks {
            resource_version: gone.deleted.clone().or_else(|| gone.resource_version.clone()),
            deletion_time: gone.deletion_time,
        })
    }

    /// From the nearest owner whose going led here to the first: what is still in the graph is asked there, what went is remembered.
    pub(super) fn chain(&self, of: &Uid, causes: &[Cause]) -> Vec<ObjectRef> {
        let mut chain: Vec<ObjectRef> = Vec::new();
        let mut next = going(causes).cloned();
        while let Some(uid) = next.take().filter(|uid| chain.len() < CHAIN_MAX && uid != of) {
            let gone = self.tombstone(&uid);
            let Some(id) = self.best_known(&uid) else {
                let Some(gone) = gone else { break };
                if chain.contains(&gone.object) {
                    break;
                }
                chain.push(gone.object.clone());
                next = going(&gone.causes).cloned();
                continue;
            };
            let object = self.object_ref(id);
            if chain.contains(&object) {
                break;
            }
            chain.push(object);
            next = match gone {
                Some(gone) => going(&gone.causes).cloned(),
                None => going(&self.causes_now(id)).cloned(),
            };
        }
        chain
    }
}

/// What a lease keeps of what its decision rests on, so that its end can be told when the graph has moved on.
pub(super) fn kept(grounds: &Grounds) -> Box<Grounds> {
    let first = |count: usize| count.min(GROUNDS_KEPT_MAX);
    Box::new(Grounds {
        decision: grounds.decision,
        preconditions: grounds.preconditions.clone(),
        propagation_policy: grounds.propagation_policy,
        causes: grounds.causes[..first(grounds.causes.len())].to_vec(),
        cause_count: grounds.cause_count,
        owners: grounds.owners[..first(grounds.owners.len())].to_vec(),
        owner_count: grounds.owner_count,
        chain: grounds.chain.clone(),
        root: grounds.root.clone(),
    })
}

/// The same for the same action on the same object by the same facts.
pub(super) fn decision(draft: &Draft) -> u64 {
    work::decision(&draft.target.uid, draft.action.kind(), draft.preconditions.facts_digest)
}

/// Of more causes than are told, those that say what the decision is come first.
fn told(mut causes: Vec<Cause>) -> Vec<Cause> {
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

/// The first owner among the causes that went or is going.
fn going(causes: &[Cause]) -> Option<&Uid> {
    causes.iter().find_map(|cause| match cause {
        Cause::OwnerAbsent { uid, .. } | Cause::OwnerWaiting { uid, .. } | Cause::OwnerOrphans { uid, .. } => Some(uid),
        Cause::KeptBy { .. } | Cause::NoBlockingDependents | Cause::NoDependents | Cause::Cycle => None,
    })
}
