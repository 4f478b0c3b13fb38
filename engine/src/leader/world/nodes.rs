//! Addition, change and removal of objects in the graph.

use super::World;
use crate::coverage::KindId;
use crate::evidence::Proof;
use crate::graph::{Change, NodeId};
use crate::leader::Event;
use crate::leader::context::Context;
use crate::marks::Marks;
use crate::object::{Object, ResourceVersion, Uid};
use crate::tombstones::Tombstone;
use alloc::vec::Vec;

impl World {
    /// Adds or updates an observed object. `shown` is true if the current list shows the object.
    pub(in crate::leader) fn upsert(
        &mut self,
        kind: KindId,
        list: u32,
        shown: bool,
        object: Object,
    ) -> (NodeId, Change) {
        let (id, change) = self.graph.upsert(&mut self.coverage, kind, list, object);
        if change.appeared {
            self.coverage.kind_mut(kind).count_in(shown);
        }
        (id, change)
    }

    /// Records that an object appeared: ends the inquiry about its name, and marks objects that claim its uid under
    /// another name. Returns nodes of the same uid whose kind is no longer served.
    pub(in crate::leader) fn appeared(&mut self, id: NodeId) -> Vec<NodeId> {
        self.inquiries.remove(&id);
        self.mark_other_claims(id);
        let ghost = |other: &NodeId| {
            let node = self.graph.node(*other);
            *other != id && node.is_observed() && self.coverage.kind(node.kind()).served().is_none()
        };
        let uid = self.graph.node(id).uid();
        self.graph.by_uid(&uid).filter(ghost).collect()
    }

    /// Updates only the version of an object, if nothing else changed and no deletion depends on the object. Returns
    /// false otherwise. Most events change only a status or renew a lease.
    pub(in crate::leader) fn moves_alone(&mut self, id: NodeId, object: &Object) -> bool {
        let node = self.graph.node(id);
        if object.facts.terminating || !node.has_said(&object.facts) || !node.has_marks(&object.marks) {
            return false;
        }
        self.graph.move_to(id, object.resource_version.clone());
        self.changes.note(&object.uid);
        true
    }

    /// Marks the labels of an observed object as unknown. An event of the watch shows them.
    pub(in crate::leader) fn forget_marks(&mut self, id: NodeId) {
        self.graph.set_marks(id, Marks::unknown());
    }

    /// Counts a known object that the current list shows.
    pub(in crate::leader) fn count_shown(&mut self, kind: KindId) {
        self.coverage.kind_mut(kind).count_shown();
    }

    /// Records that the current list shows an object at an earlier version than the known one, which the watch has not
    /// reached.
    pub(in crate::leader) fn note_regression(&mut self, kind: KindId, known: ResourceVersion) {
        self.coverage.kind_mut(kind).regress(known);
    }

    /// Ends the orphaning of an owner, because the watches have shown all dependents of the owner.
    pub(in crate::leader) fn end_orphaned(&mut self, uid: &Uid) {
        self.graph.end_orphaned(uid);
    }

    /// Begins the removal of an observed object from the graph. Returns what is remembered of it.
    pub(in crate::leader) fn leave(
        &mut self,
        cx: &Context,
        id: NodeId,
        caused_by_us: bool,
        deleted: Option<ResourceVersion>,
    ) -> Tombstone {
        let node = self.graph.node(id);
        let kind = node.kind();
        let was_fresh = node.list() == Some(self.coverage.kind(kind).list());
        let deletion_time =
            if node.is_terminating() { node.facts().and_then(|facts| facts.deletion_time) } else { None };
        let tombstone = Tombstone {
            object: self.object_ref(id),
            at: cx.now,
            caused_by_us,
            causes: if caused_by_us { self.causes(id) } else { Vec::new() },
            resource_version: node.resource_version(),
            deleted,
            deletion_time,
            deleted_dependents: node.deletes_dependents(),
            orphaned_dependents: node.orphans_dependents(),
        };
        self.coverage.kind_mut(kind).count_out(was_fresh);
        self.deletions.remove(&id);
        self.undecided.remove(id);
        tombstone
    }

    /// Remembers an owner that orphaned its dependents until this barrier round has passed.
    pub(in crate::leader) fn remember_orphaned(&mut self, cx: &Context, id: NodeId, round: u64) {
        self.graph.remember_orphaned(id, round);
        self.bound_orphaned(cx);
    }

    /// Removes an object from the graph. Returns true if its node stays because other nodes refer to it.
    pub(in crate::leader) fn remove(&mut self, cx: &Context, id: NodeId, proof: Option<Proof>) -> bool {
        let node = self.graph.node(id);
        let (uid, kind, is_cluster_scoped) = (node.uid(), node.kind(), node.namespace().is_empty());
        self.mark_other_claims(id);
        let (owners, stays) = self.graph.remove(id, proof);
        for owner in owners {
            self.mark(owner);
        }
        if stays && self.coverage.kind(kind).namespaced() == Some(is_cluster_scoped) {
            // The kind changed its scope after this object was shown. If the owner exists, it has another namespace
            // now.
            for dependent in self.graph.relink_dependents(&mut self.coverage, id) {
                self.mark(dependent);
                for owner in self.graph.node(dependent).owners().collect::<Vec<_>>() {
                    self.mark(owner);
                }
            }
        }
        let stays = stays && self.graph.get(id).is_some();
        if stays {
            self.absent_since.insert(id, cx.now);
            self.mark(id);
            self.mark_dependents(id);
        }
        self.mark_uid(&uid);
        self.changes.note(&uid);
        stays
    }

    /// Remembers an object that left the graph.
    pub(in crate::leader) fn bury(&mut self, tombstone: Tombstone) {
        self.tombstones.put(tombstone);
    }

    /// Records that Ownergraph deleted an object that left the graph.
    pub(in crate::leader) fn credit(&mut self, uid: &Uid) {
        self.tombstones.credit(uid);
    }

    /// Marks an unobserved owner as absent.
    pub(in crate::leader) fn set_absent(&mut self, cx: &mut Context, id: NodeId, proof: Proof) {
        self.inquiries.remove(&id);
        self.graph.set_absent(id, proof.clone());
        self.absent_since.insert(id, cx.now);
        self.mark_dependents_of_absent(id);
        cx.event(Event::Proven { owner: self.object_ref(id), proof });
    }

    /// Returns the nodes that the graph dropped, and removes the notes about them.
    pub(in crate::leader) fn take_dropped(&mut self, cx: &mut Context) -> Vec<NodeId> {
        let dropped = self.graph.take_dropped();
        for &id in &dropped {
            self.undecided.remove(id);
            self.absent_since.remove(&id);
            self.inquiries.remove(&id);
            self.awaited.remove(&id);
            self.deletions.remove(&id);
        }
        self.remember_former(cx);
        if self.coverage.wants_sweep() {
            let mut used = self.graph.kinds();
            used.extend(self.emptied.keys());
            self.coverage.sweep(cx.now, &used);
        }
        dropped
    }
}
