//! The list of nodes that need a new verdict.

use super::World;
use crate::coverage::KindId;
use crate::graph::{Coordinates, NodeId};
use crate::leader::context::Context;
use crate::object::Name;
use crate::object::{Object, ObjectRef, Uid};
use crate::view::Undecided;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

impl World {
    /// Marks a node for judging before the next effect, because the node or one of its owners has changed.
    pub(in crate::leader) fn mark(&mut self, id: NodeId) {
        if let Some(node) = self.graph.get(id) {
            self.changes.note(&node.uid());
        }
        if self.graph.get(id).is_some_and(|node| !node.is_dirty()) {
            self.graph.set_dirty(id, true);
            self.dirty.push_back(id);
        }
    }

    pub(in crate::leader) fn mark_dependents(&mut self, id: NodeId) {
        let dependents: Vec<NodeId> = self.graph.node(id).dependents().collect();
        for dependent in dependents {
            self.mark(dependent);
        }
    }

    pub(in crate::leader) fn mark_uid(&mut self, uid: &Uid) {
        for id in self.graph.by_uid(uid).collect::<Vec<_>>() {
            self.mark(id);
        }
    }

    pub(in crate::leader) fn node_of(&mut self, object: &ObjectRef) -> Option<NodeId> {
        let kind = self.coverage.kind_of(object);
        let at = Coordinates { kind, namespace: object.namespace.clone(), name: object.name.clone() };
        self.graph.find(&object.uid, &at)
    }

    /// Marks the dependents of an absent owner for judging. A dependent that still waits for the answer about another
    /// owner is not marked, because the verdict would stay the same.
    pub(in crate::leader) fn mark_dependents_of_absent(&mut self, id: NodeId) {
        let decides = self.graph.is_orphaned(self.graph.node(id));
        for dependent in self.graph.node(id).dependents().collect::<Vec<_>>() {
            if decides || !self.awaits_another(dependent, id) {
                self.mark(dependent);
            } else {
                self.changes.note(&self.graph.node(dependent).uid());
            }
        }
    }

    pub(in crate::leader) fn mark_unobserved(&mut self, kind: KindId) {
        for id in self.graph.unobserved(kind).collect::<Vec<_>>() {
            self.mark(id);
        }
    }

    /// Marks other objects that claim this uid under another name, because their verdict depends on this object.
    pub(in crate::leader) fn mark_other_claims(&mut self, id: NodeId) {
        let uid = self.graph.node(id).uid();
        for other in self.graph.by_uid(&uid).collect::<Vec<_>>() {
            if other != id {
                self.mark_dependents(other);
            }
        }
    }

    pub(in crate::leader) fn mark_dependents_of_unobserved(&mut self, kind: KindId) {
        for id in self.graph.unobserved(kind).collect::<Vec<_>>() {
            self.mark_dependents(id);
        }
    }

    pub(in crate::leader) fn mark_dependents_of_kind(&mut self, kind: KindId) {
        for id in self.nodes_of(kind) {
            self.mark(id);
            self.mark_dependents(id);
        }
    }

    pub(in crate::leader) fn mark_deletions(&mut self) {
        for id in self.deletions.keys().copied().collect::<Vec<_>>() {
            self.mark(id);
        }
    }

    /// Marks the observed nodes of this uid that are in deletion, because they may wait for the changed node.
    pub(in crate::leader) fn mark_acting(&mut self, id: NodeId) {
        let Some(acting) = self.graph.primary(&self.graph.node(id).uid()).filter(|&acting| acting != id) else {
            return;
        };
        let node = self.graph.node(acting);
        if node.deletes_dependents() || node.orphans_dependents() {
            self.mark(acting);
        }
    }

    /// Marks the owners in deletion that the object of this uid references, because they may wait for a decision about
    /// the object.
    pub(in crate::leader) fn mark_deleting_owners(&mut self, uid: &Uid) {
        let Some(id) = self.graph.primary(uid) else { return };
        let acting = |owner| self.graph.primary(&self.graph.node(owner).uid());
        for owner in self.graph.node(id).owners().filter_map(acting).collect::<Vec<_>>() {
            if self.deletions.contains_key(&owner) {
                self.mark(owner);
            }
        }
    }

    pub(in crate::leader) fn concerns_deletion(&self, object: &Object) -> bool {
        let in_deletion = |id: NodeId| self.deletions.contains_key(&id);
        // An owner that orphaned its dependents may have no node left, because no reference to the owner was known.
        object
            .facts
            .owners
            .iter()
            .any(|owner| self.graph.has_orphaned(&owner.uid) || self.graph.by_uid(&owner.uid).any(in_deletion))
    }

    /// Returns the next node to judge.
    pub(in crate::leader) fn next_marked(&mut self) -> Option<NodeId> {
        self.dirty.pop_front()
    }

    pub(in crate::leader) fn has_marked(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// Removes the mark of a node. Returns false if the node was not marked.
    pub(in crate::leader) fn unmark(&mut self, id: NodeId) -> bool {
        let is_marked = self.graph.get(id).is_some_and(|node| node.is_dirty());
        if is_marked {
            self.graph.set_dirty(id, false);
        }
        is_marked
    }

    /// Marks nodes that entered or left a cycle of foreground deletions.
    pub(in crate::leader) fn mark_knots(&mut self) {
        for id in self.graph.find_knots() {
            self.mark(id);
        }
    }

    /// Records why a dependent has no verdict; `None` clears the reason.
    pub(in crate::leader) fn set_undecided(&mut self, id: NodeId, why: Option<Undecided>) {
        match why {
            Some(why) => self.undecided.insert(id, why),
            None => self.undecided.remove(id),
        }
    }

    /// Records that an owner is in deletion. Returns the barrier round that the owner waits for.
    pub(in crate::leader) fn begin_deletion(&mut self, id: NodeId) -> Option<u64> {
        *self.deletions.entry(id).or_insert(None)
    }

    pub(in crate::leader) fn await_round(&mut self, id: NodeId, round: u64) {
        self.deletions.insert(id, Some(round));
    }

    /// Records that the deletion of an owner ended or changed its mode. A barrier round that passed says nothing about
    /// the new mode.
    pub(in crate::leader) fn end_deletion(&mut self, id: NodeId) {
        self.deletions.remove(&id);
    }

    /// Discards the barrier rounds of the term. Returns the namespaces of owners that orphaned their dependents and
    /// wait for a round.
    pub(in crate::leader) fn forget_rounds(&mut self) -> Vec<Name> {
        self.deletions.values_mut().for_each(|round| *round = None);
        self.graph.namespaces_of_gone_orphaned().into_iter().collect()
    }

    pub(in crate::leader) fn remember_orphaned_longer(&mut self, namespace: &Name, round: u64) {
        self.graph.remember_orphaned_longer(namespace, round);
    }

    /// Records that a barrier round has passed for these namespaces.
    pub(in crate::leader) fn round_passed(&mut self, cx: &mut Context, namespaces: &BTreeSet<Name>, number: u64) {
        if !self.is_any_kind_hidden(cx) {
            self.graph.forget_orphaned(namespaces, number);
        }
        self.remember_former(cx);
        self.mark_deletions();
    }
}
