//! How objects enter, change and leave the graph.

use super::World;
use crate::coverage::KindId;
use crate::evidence::Proof;
use crate::graph::{Change, NodeId, Presence};
use crate::leader::context::Context;
use crate::leader::{Cause, Event};
use crate::object::{Object, ObjectRef, ResourceVersion, Uid};
use crate::tombstones::Tombstone;
use alloc::vec::Vec;
use core::num::NonZeroU32;
use core::time::Duration;

/// What is known of an object that leaves the graph.
#[derive(Debug)]
pub(in crate::leader) struct Leaving {
    pub(in crate::leader) object: ObjectRef,
    /// How long the last of its owners has been absent, where it goes by us.
    pub(in crate::leader) owner_gone: Option<Duration>,
    caused_by_us: bool,
    causes: Vec<Cause>,
    resource_version: Option<ResourceVersion>,
    deletion_time: Option<NonZeroU32>,
}

impl World {
    /// Takes in an object that is observed. `shown`: the list under way shows it.
    pub(in crate::leader) fn upsert(
        &mut self,
        kind: KindId,
        list: u32,
        shown: bool,
        object: Object,
    ) -> (NodeId, Change) {
        let (id, change) = self.graph.upsert(&mut self.coverage, kind, list, object);
        if change.appeared {
            let entry = self.coverage.kind_mut(kind);
            entry.observed += 1;
            entry.fresh += usize::from(shown);
        }
        (id, change)
    }

    /// An object has appeared: its name is not asked for any more, and what claims its uid for another name is judged. Gives nodes of its uid
    /// whose kind is not served any more.
    pub(in crate::leader) fn appeared(&mut self, id: NodeId) -> Vec<NodeId> {
        self.inquiries.remove(&id);
        self.mark_other_claims(id);
        let ghost = |other: &NodeId| {
            let node = self.graph.node(*other);
            *other != id && node.is_observed() && self.coverage.kind(node.kind()).served.is_none()
        };
        let uid = self.graph.node(id).uid();
        self.graph.by_uid(&uid).filter(ghost).collect()
    }

    /// Takes in that nothing but the version of an object is new, if that is so and nothing rests on it: nearly every event is of a status, or
    /// of a lease that was renewed.
    pub(in crate::leader) fn moves_alone(&mut self, id: NodeId, object: &Object) -> bool {
        if object.facts.terminating || !self.graph.node(id).has_said(&object.facts) {
            return false;
        }
        self.graph.move_to(id, object.resource_version.clone());
        self.changes.note(&object.uid);
        true
    }

    /// The list under way shows an object that is known.
    pub(in crate::leader) fn count_shown(&mut self, kind: KindId) {
        self.coverage.kind_mut(kind).fresh += 1;
    }

    /// The list under way shows an object at an earlier version than the known one, which the watch has not reached.
    pub(in crate::leader) fn note_regression(&mut self, kind: KindId, known: ResourceVersion) {
        let entry = self.coverage.kind_mut(kind);
        let lowest = entry.regressed_to.take().filter(|lowest| lowest.is_before(&known));
        entry.regressed_to = Some(lowest.unwrap_or(known));
    }

    /// What an owner has orphaned is known to have been seen by all.
    pub(in crate::leader) fn end_orphaned(&mut self, uid: &Uid) {
        self.graph.end_orphaned(uid);
    }

    /// An object that is observed begins to leave the graph.
    pub(in crate::leader) fn leave(&mut self, cx: &Context, id: NodeId, caused_by_us: bool) -> Leaving {
        let node = self.graph.node(id);
        let kind = node.kind();
        let was_fresh = node.list() == Some(self.coverage.kind(kind).list);
        let deletion_time =
            if node.is_terminating() { node.facts().and_then(|facts| facts.deletion_time) } else { None };
        let leaving = Leaving {
            object: self.object_ref(id),
            owner_gone: if caused_by_us { self.since_owners_went(cx, id) } else { None },
            caused_by_us,
            causes: if caused_by_us { self.causes(id) } else { Vec::new() },
            resource_version: node.resource_version(),
            deletion_time,
        };
        let entry = self.coverage.kind_mut(kind);
        entry.observed -= 1;
        entry.fresh -= usize::from(was_fresh);
        self.deletions.remove(&id);
        self.undecided.remove(id);
        leaving
    }

    /// An owner that has orphaned its dependents leaves; it is remembered until this round of the barrier has passed.
    pub(in crate::leader) fn remember_orphaned(&mut self, cx: &Context, id: NodeId, round: u64) {
        self.graph.remember_orphaned(id, round);
        self.bound_orphaned(cx);
    }

    /// Takes an object out of the graph. True if its node stays, because others refer to it.
    pub(in crate::leader) fn remove(&mut self, cx: &Context, id: NodeId, proof: Option<Proof>) -> bool {
        let node = self.graph.node(id);
        let (uid, kind, is_cluster_scoped) = (node.uid(), node.kind(), node.namespace().is_empty());
        self.mark_other_claims(id);
        let (owners, stays) = self.graph.remove(id, proof);
        for owner in owners {
            self.mark(owner);
        }
        if stays && self.coverage.kind(kind).namespaced() == Some(is_cluster_scoped) {
            // The kind has changed its scope since this object was shown: the owner is somewhere else now, if anywhere.
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

    /// Remembers an object that has left.
    pub(in crate::leader) fn bury(&mut self, cx: &Context, leaving: Leaving, deleted: Option<ResourceVersion>) {
        let Leaving { object, owner_gone: _, caused_by_us, causes, resource_version, deletion_time } = leaving;
        self.tombstones.put(Tombstone {
            object,
            at: cx.now,
            caused_by_us,
            causes,
            resource_version,
            deleted,
            deletion_time,
        });
    }

    /// An object that has left did so by us.
    pub(in crate::leader) fn credit(&mut self, uid: &Uid) {
        self.tombstones.credit(uid);
    }

    /// Takes an owner that is not observed as absent.
    pub(in crate::leader) fn set_absent(&mut self, cx: &mut Context, id: NodeId, proof: Proof) {
        self.inquiries.remove(&id);
        self.graph.set_unobserved(id, Presence::Absent(proof.clone()));
        self.absent_since.insert(id, cx.now);
        self.mark_dependents_of_absent(id);
        cx.event(Event::Proven { owner: self.object_ref(id), proof });
    }

    /// The nodes that the graph has dropped. Notes about them go with them.
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
