//! Decisions from verdicts: the action on an object, and its causes.

use super::super::context::Context;
use super::super::{Cause, Event};
use super::{TOLD_MAX, World};
use crate::graph::{Known, NodeId, Reference};
use crate::object::{ObjectRef, OwnerReference, pick, sharing_uid};
use crate::verdict::{Collection, Standing, standings};
use crate::view::*;
use crate::work::{Action, CHECKS_MAX};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::mem;

/// Maximum number of references of an object that is judged after each answer about one of its owners. An object with
/// more references is judged once all its owners are known.
const JUDGED_EACH_TIME: usize = 64;

impl World {
    /// Picks an owner whose existence is an open question, for an object with many references. Returns false if there
    /// is no such owner. The absence of other owners decides nothing until this owner is known. The pick is random, so
    /// an object is judged about ten times while the leader asks for thousands of owners.
    pub(in crate::leader) fn await_one_owner(&mut self, cx: &mut Context, id: NodeId) -> bool {
        let node = self.graph.node(id);
        if node.references().len() <= JUDGED_EACH_TIME {
            if !self.awaited.is_empty() {
                self.awaited.remove(&id);
            }
            return false;
        }
        let is_asked = |owner: &NodeId| self.is_being_asked(*owner);
        let asked: Vec<NodeId> = node.owners().filter(is_asked).collect();
        let picked = usize::try_from(cx.jitter.next()).unwrap_or(0).checked_rem(asked.len()).map(|at| asked[at]);
        match picked {
            Some(owner) => self.awaited.insert(id, owner),
            None => self.awaited.remove(&id),
        };
        picked.is_some()
    }

    /// Returns whether this object waits for an answer about an owner other than `owner`.
    pub(in crate::leader) fn awaits_another(&self, dependent: NodeId, owner: NodeId) -> bool {
        self.awaited.get(&dependent).is_some_and(|&awaited| awaited != owner && self.is_being_asked(awaited))
    }

    pub(in crate::leader) fn is_being_asked(&self, owner: NodeId) -> bool {
        let Some(node) = self.graph.get(owner) else { return false };
        let is_open = matches!(node.known(), Known::Virtual { unreadable: false }) && !self.graph.is_orphaned(node);
        is_open && self.inquiries.contains_key(&owner)
    }

    /// Returns the indices of references to waiting owners beyond the number that one deletion can depend on. Each of
    /// these owners permits the deletion of the object. The leader removes these references instead, and the deletion
    /// checks the remaining owners. Owners that the object does not block come first.
    pub(in crate::leader) fn beyond_checks(&self, id: NodeId, collection: &Collection) -> Vec<usize> {
        let mut kept: BTreeSet<NodeId> = BTreeSet::new();
        let references: Vec<Reference<'_>> = self.graph.node(id).references().collect();
        let waiting = || collection.waiting.iter().filter_map(|&at| Some((at, *references.get(at)?)));
        let (blocked, others): (Vec<_>, Vec<_>) = waiting().partition(|(_, reference)| reference.blocks());
        for (_, reference) in blocked.into_iter().chain(others) {
            if kept.len() < CHECKS_MAX {
                kept.insert(reference.owner());
            }
        }
        waiting().filter(|(_, reference)| !kept.contains(&reference.owner())).map(|(at, _)| at).collect()
    }

    /// Reports, once, each reference to a namespaced owner in another namespace. Without a term, the report waits for
    /// one.
    pub(in crate::leader) fn tell_misplaced(&mut self, cx: &mut Context, id: NodeId) {
        let node = self.graph.node(id);
        let mut asked = BTreeSet::new();
        let elsewhere = |reference: &Reference<'_>| {
            let owner = self.graph.node(reference.owner());
            let mut observed = || {
                let uid = owner.uid();
                let is_news = asked.insert(uid.clone());
                self.graph.primary(&uid).filter(|_| is_news).map(|id| self.graph.node(id).namespace())
            };
            !owner.is_observed() && observed().is_some_and(|at| !at.is_empty() && at != node.namespace())
        };
        let misplaced: Vec<OwnerReference> = node.references().filter(elsewhere).map(Reference::to_owned).collect();
        if cx.term.is_none() && !misplaced.is_empty() {
            return self.tell_later(id);
        }
        let uid = node.uid();
        for reference in misplaced {
            if self.reported.len() < TOLD_MAX && self.reported.insert((uid.clone(), reference.uid.clone())) {
                let dependent = self.object_ref(id);
                cx.event(Event::OwnerInOtherNamespace { dependent, reference });
            }
        }
    }

    /// Reports, once, an object with more references than the leader examines.
    pub(in crate::leader) fn tell_excess(&mut self, cx: &mut Context, id: NodeId) {
        let Some(excess) = self.graph.node(id).excess() else { return };
        if cx.term.is_none() {
            return self.tell_later(id);
        }
        let uid = self.graph.node(id).uid();
        if self.reported.len() < TOLD_MAX && self.reported.insert((uid.clone(), uid)) {
            cx.event(Event::TooManyReferences { object: self.object_ref(id), count: excess.count });
        }
    }

    fn tell_later(&mut self, id: NodeId) {
        if self.untold.len() < TOLD_MAX {
            self.untold.insert(id);
        }
    }

    /// Marks the objects whose reports wait for a term.
    pub(in crate::leader) fn mark_untold(&mut self) {
        for id in mem::take(&mut self.untold) {
            self.mark(id);
        }
    }

    /// Returns the action that drops these references. The action names an owner by uid alone if the uid is
    /// unambiguous.
    pub(in crate::leader) fn removal(&self, id: NodeId, drop: &[usize]) -> Option<(Action, Vec<Cause>)> {
        let node = self.graph.node(id);
        let facts = node.facts().filter(|_| !drop.is_empty())?;
        let (mut entries, mut alone) = sharing_uid(&facts.owners, drop);
        let standings = standings(&self.graph, &self.coverage, node);
        // The object of a dangling reference lives at other coordinates. If a client corrects the reference meanwhile,
        // a removal by uid would remove the correct one.
        let lives = |&at: &usize| {
            let mut nodes = self.graph.by_uid(&facts.owners[at].uid).map(|owner| self.graph.node(owner));
            standings[at] == Standing::Dangling && nodes.any(|owner| owner.is_observed() || owner.has_facts())
        };
        entries.extend(alone.extract_if(.., |at| lives(at)));
        entries.sort_unstable();
        let waiting = drop.iter().copied().filter(|&at| standings[at] == Standing::Waiting);
        let action = Action::RemoveOwnerReferences {
            owner_uids: alone.iter().map(|&at| facts.owners[at].uid.clone()).collect(),
            entries: pick(&facts.owners, &entries),
            owner_checks: self.owner_checks(id, waiting),
        };
        Some((action, self.causes(id)))
    }

    pub(in crate::leader) fn deletion(&self, id: NodeId, collection: &Collection) -> (Action, Vec<Cause>) {
        let node = self.graph.node(id);
        let facts = node.facts().expect("only an observed object gets a verdict to delete");
        let mut causes = self.causes(id);
        if !collection.unblock.is_empty() {
            causes.push(Cause::Cycle);
            return (Action::UnblockOwnerReferences { entries: pick(&facts.owners, &collection.unblock) }, causes);
        }
        let action = Action::Delete {
            propagation_policy: collection.propagation_policy,
            owner_checks: self.owner_checks(id, collection.waiting.iter().copied()),
        };
        (action, causes)
    }

    /// Returns the owners of these references, each once.
    fn owner_checks(&self, id: NodeId, references: impl Iterator<Item = usize>) -> Vec<ObjectRef> {
        let owners: Vec<NodeId> = self.graph.node(id).owners().collect();
        let mut checked = BTreeSet::new();
        let owners = references.map(|at| owners[at]).filter(|&owner| checked.insert(owner));
        owners.map(|owner| self.object_ref(owner)).collect()
    }

    /// Returns the action that makes these references of a cycle non-blocking.
    pub(in crate::leader) fn unblocking(&self, id: NodeId, unblock: &[usize]) -> Option<(Action, Vec<Cause>)> {
        let facts = self.graph.node(id).facts()?;
        Some((Action::UnblockOwnerReferences { entries: pick(&facts.owners, unblock) }, alloc::vec![Cause::Cycle]))
    }

    /// Returns the reason if all remaining `count` dependents are of unserved kinds. The leader knows nothing about
    /// such dependents until their kind is served again. A check of the first dependent suffices, because dependents of
    /// served kinds are removed one by one.
    pub(in crate::leader) fn unreachable_dependents(&self, id: NodeId, count: usize) -> Option<Undecided> {
        let first = self.graph.dependents(&self.coverage, id).next().filter(|_| count > 0)?;
        let unserved = self.coverage.kind(self.graph.node(first).kind()).served().is_none();
        unserved.then_some(Undecided::DependentsUnseen)
    }

    /// Returns whether a collection that is invisible or in doubt may contain dependents of this owner.
    pub(in crate::leader) fn is_any_dependent_hidden(&self, cx: &Context, id: NodeId) -> bool {
        let everywhere = self.graph.node(id).namespace().is_empty();
        self.is_any_kind_hidden(cx)
            || self
                .coverage
                .served()
                .any(|(_, kind)| cx.may_hide_dependents(kind) && (everywhere || kind.namespaced() == Some(true)))
    }

    /// Returns the causes of the decision about an object, one for each reference that contributes.
    pub(in crate::leader) fn causes(&self, id: NodeId) -> Vec<Cause> {
        let node = self.graph.node(id);
        let standings = standings(&self.graph, &self.coverage, node);
        node.references().zip(standings).filter_map(|(reference, standing)| self.cause(reference, standing)).collect()
    }

    pub(in crate::leader) fn cause(&self, reference: Reference<'_>, standing: Standing) -> Option<Cause> {
        let owner = self.graph.node(reference.owner());
        let OwnerReference { kind, name, uid, .. } = reference.to_owned();
        let namespace = owner.namespace().clone();
        match (standing, owner.known()) {
            (Standing::Dangling, Known::Absent(proof)) => {
                Some(Cause::OwnerAbsent { kind, namespace, name, uid, proof: proof.clone() })
            }
            (Standing::Waiting, _) => Some(Cause::OwnerWaiting { kind, namespace, name, uid }),
            (Standing::Orphaning, _) => Some(Cause::OwnerOrphans { kind, namespace, name, uid }),
            (Standing::Solid, _) => Some(Cause::KeptBy { kind, namespace, name, uid }),
            (Standing::Dangling | Standing::Unverified(_) | Standing::InvalidScope, _) => None,
        }
    }
}
