//! Knowledge of collections, and the consequences for their nodes when that knowledge changes.

use super::super::context::Context;
use super::super::{Event, KnownVersions, Output, Purpose};
use super::World;
use crate::coverage::Advance;
use crate::coverage::{Kind, KindId};
use crate::graph::{Known, NodeId};
use crate::leader::Timer;
use crate::object::{GroupResource, ResourceVersion, Uid};
use crate::object::{Name, ObjectRef, ServedKind};
use crate::time::Time;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

impl World {
    /// Resolves references to unobserved nodes of this kind again.
    pub(in crate::leader) fn lead_anew(&mut self, kind: KindId) {
        for owner in self.graph.unobserved(kind).collect::<Vec<_>>() {
            if self.graph.get(owner).is_some() {
                for dependent in self.graph.relink_dependents(&mut self.coverage, owner) {
                    self.mark(dependent);
                }
            }
        }
    }

    /// Compares the resources of a kind after one was added or removed. References may resolve to another resource, or
    /// become ambiguous.
    pub(in crate::leader) fn compare_resources(&mut self, kind: KindId) {
        let Some(before) = self.coverage.compare_resources(kind) else { return };
        self.lead_anew(before);
        for kind in self.coverage.namesakes(kind).collect::<Vec<_>>() {
            self.void_ambiguous(kind);
            self.mark_unobserved(kind);
            self.mark_dependents_of_kind(kind);
        }
    }

    /// Voids the proofs of absence of a kind while a reference by it may mean several resources. The objects of another
    /// resource may cease to be served with it, and the proof never was about them.
    pub(in crate::leader) fn void_ambiguous(&mut self, kind: KindId) {
        if !self.coverage.kind(kind).is_ambiguous() {
            return;
        }
        for id in self.graph.unobserved(kind).collect::<Vec<_>>() {
            if self.graph.node(id).is_absent() {
                self.inquiries.remove(&id);
                self.graph.set_virtual(id, false);
            }
        }
    }

    pub(in crate::leader) fn observed_of(&self, kind: KindId) -> Vec<NodeId> {
        self.graph.iter().filter(|(_, node)| node.kind() == kind && node.is_observed()).map(|(id, _)| id).collect()
    }

    /// Returns whether another node of this uid is observed in a watched kind.
    pub(in crate::leader) fn is_shown_elsewhere(&self, id: NodeId, uid: &Uid) -> bool {
        self.graph.by_uid(uid).any(|other| {
            let node = self.graph.node(other);
            other != id && node.is_observed() && self.coverage.kind(node.kind()).is_watched()
        })
    }

    pub(in crate::leader) fn watch_resumed(&mut self, cx: &mut Context, kind: KindId) {
        if self.coverage.kind_mut(kind).resume_watch(cx.now) {
            self.tell_collection(cx, kind);
            self.mark_deletions();
        }
    }

    pub(in crate::leader) fn stale_due(&mut self, cx: &mut Context, kind: KindId) {
        if self.coverage.kind_mut(kind).expire(cx.now, cx.config.stale_after) {
            self.tell_collection(cx, kind);
            self.mark_deletions();
        }
    }

    pub(in crate::leader) fn freshen(&mut self, kind: KindId, id: NodeId, was_fresh: bool) {
        if !was_fresh {
            self.count_shown(kind);
        }
        self.graph.set_list(id, self.coverage.kind(kind).list());
    }

    /// Returns how long the last owner of a node has been absent.
    pub(in crate::leader) fn since_owners_went(&self, cx: &Context, id: NodeId) -> Option<Duration> {
        let is_absent = |owner: &NodeId| matches!(self.graph.node(*owner).known(), Known::Absent(_));
        let absent = self.graph.node(id).owners().filter(is_absent);
        absent.filter_map(|owner| self.absent_since.get(&owner)).max().map(|&at| cx.now.since(at))
    }

    pub(in crate::leader) fn nodes_of(&self, kind: KindId) -> Vec<NodeId> {
        let unobserved = self.graph.unobserved(kind);
        let observed = self.coverage.kind(kind).observed();
        // Most kinds that are added or removed have no objects. The early return avoids a search of a large graph.
        if observed == 0 {
            return unobserved.collect();
        }
        let all = observed + unobserved.count();
        self.graph.iter().filter(|(_, node)| node.kind() == kind).map(|(id, _)| id).take(all).collect()
    }

    pub(in crate::leader) fn unusable(&mut self, cx: &mut Context, collection: GroupResource, why: String) {
        if let Some(kind) = self.coverage.find(&collection) {
            self.coverage.kind_mut(kind).count_unusable();
            self.is_not_empty(kind);
        }
        cx.event(Event::Unusable { collection, why });
    }

    pub(in crate::leader) fn tell_collection(&mut self, cx: &mut Context, kind: KindId) {
        let entry = self.coverage.kind(kind);
        let Some(served) = entry.served() else { return };
        let event = Event::Collection {
            collection: served.group_resource.clone(),
            state: entry.state(),
            error: String::from(entry.error()),
        };
        cx.event(event);
    }

    pub(in crate::leader) fn relist(&mut self, cx: &mut Context, kind: KindId, why: &str) {
        if let Some(served) = self.coverage.kind(kind).served() {
            let collection = served.group_resource.clone();
            cx.outputs.push_back(Output::Relist { collection, why: String::from(why) });
        }
    }

    pub(in crate::leader) fn set_unreadable(&mut self, id: NodeId, unreadable: bool) {
        if matches!(self.graph.node(id).known(), Known::Virtual { unreadable: known } if known != unreadable) {
            self.graph.set_virtual(id, unreadable);
            self.mark_dependents(id);
        }
    }

    /// Handles a write of this replica. The store itself confirms a write, so no lagging server is involved. The
    /// version of each list requested after the write is therefore at or past the write.
    pub(in crate::leader) fn wrote(&mut self, cx: &Context, collection: &GroupResource, version: &ResourceVersion) {
        if let Some(kind) = self.coverage.find(collection) {
            self.coverage.wrote(cx.now, kind, version);
        }
    }

    pub(in crate::leader) fn kept_apart(&self) -> Vec<GroupResource> {
        let of = |kind| self.coverage.kind(kind).served().map(|served| served.group_resource.clone());
        self.coverage.unplaced().filter_map(of).collect()
    }

    pub(in crate::leader) fn inconsistent(&self) -> Vec<(GroupResource, String)> {
        let why = |(_, kind): (KindId, &Kind)| {
            let contradiction = kind.contradiction.as_ref()?;
            Some((kind.served()?.group_resource.clone(), contradiction.why.clone()))
        };
        self.coverage.served().filter_map(why).collect()
    }

    /// Returns the known versions of a collection and of its stores.
    pub(in crate::leader) fn known(&self, kind: KindId) -> KnownVersions {
        let own = self.coverage.kind(kind).high().cloned();
        KnownVersions { own, store: self.coverage.floor(kind).cloned(), main: self.coverage.main().cloned() }
    }

    /// Returns whether only an orderable version dates a list of this collection. A collection behind an APIService may
    /// have no orderable versions; the leader knows this once it has seen versions of the collection. Before that, its
    /// lists count only for owners, because a proof about an owner takes several lists.
    pub(in crate::leader) fn has_order(&self, kind: KindId, known: &KnownVersions, purpose: &Purpose) -> bool {
        let is_of_owner = matches!(purpose, Purpose::Existence { .. });
        let seen = known.own.as_ref().map(ResourceVersion::is_ordered);
        !self.coverage.kind(kind).is_aggregated() || seen.unwrap_or(!is_of_owner)
    }

    /// Handles a resource that discovery shows. `known` is the kind that the resource replaces.
    pub(in crate::leader) fn serve(&mut self, cx: &Context, known: KindId, served: ServedKind) -> KindId {
        if self.coverage.kind(known).served().is_none() {
            self.emptied.remove(&known);
        }
        let kept_apart = cx.config.policy.separate_stores.contains(&served.group_resource);
        let kind = self.coverage.serve(cx.now, served);
        self.coverage.kind_mut(kind).set_apart(kept_apart);
        kind
    }

    pub(in crate::leader) fn unserve(&mut self, cx: &Context, collection: &GroupResource) -> Option<KindId> {
        self.coverage.unserve(cx.now, collection)
    }

    /// Begins a list. Objects that the list has not shown yet may be dependents.
    pub(in crate::leader) fn begin_list(&mut self, cx: &mut Context, kind: KindId, selectors: u32) {
        self.graph.lose_sight_of_orphaned(kind);
        if self.coverage.kind_mut(kind).begin_list(cx.now, selectors) {
            self.tell_collection(cx, kind);
            // Decisions that are not granted yet wait for the list.
            self.mark_deletions();
        }
    }

    /// Records that a list has shown an object at this version.
    pub(in crate::leader) fn show(&mut self, kind: KindId, version: &ResourceVersion) {
        self.coverage.show(kind, version);
    }

    pub(in crate::leader) fn end_list(&mut self, cx: &Context, kind: KindId, version: ResourceVersion) -> Advance {
        self.coverage.end_list(cx.now, kind, version)
    }

    pub(in crate::leader) fn fail_list(&mut self, cx: &mut Context, kind: KindId, error: String) {
        if self.coverage.kind_mut(kind).fail_list(cx.now, error) {
            self.tell_collection(cx, kind);
            self.mark_unobserved(kind);
            self.mark_dependents_of_unobserved(kind);
            self.mark_deletions();
        }
    }

    pub(in crate::leader) fn advance(&mut self, cx: &Context, kind: KindId, version: &ResourceVersion) -> Advance {
        self.coverage.advance(cx.now, kind, version)
    }

    /// Records the end of a watch. The collection becomes stale if the watch does not resume in time.
    pub(in crate::leader) fn lose_watch(&mut self, cx: &mut Context, kind: KindId, error: String) {
        self.coverage.kind_mut(kind).lose_watch(cx.now, error);
        cx.timers.set(cx.now + cx.config.stale_after, Timer::Stale(kind));
    }

    /// Shows an error of a collection that is still watched. An empty error clears it.
    pub(in crate::leader) fn note_error(&mut self, cx: &mut Context, kind: KindId, error: String) {
        if self.coverage.kind_mut(kind).note(error) {
            self.tell_collection(cx, kind);
        }
    }

    /// Records that the store of a collection was seen at this version.
    pub(in crate::leader) fn raise(&mut self, now: Time, kind: KindId, version: &ResourceVersion) {
        self.coverage.raise(now, kind, version);
    }

    /// Returns the kind of an object, and adds the kind if it is unknown.
    pub(in crate::leader) fn kind_of(&mut self, object: &ObjectRef) -> KindId {
        self.coverage.kind_of(object)
    }

    /// Sets whether a collection is in doubt: true after its connection broke, false after it reported its position.
    pub(in crate::leader) fn set_doubtful(&mut self, kind: KindId, doubtful: bool) {
        self.coverage.kind_mut(kind).set_doubtful(doubtful);
    }

    pub(in crate::leader) fn compare_stores(&mut self) {
        self.coverage.compare_stores();
    }

    /// Separates collections that are not in the main store. Their lists prove nothing about the main store.
    pub(in crate::leader) fn take_apart(&mut self, cx: &mut Context, apart: Vec<KindId>) {
        self.coverage.take_apart(&apart);
        for kind in apart {
            // Proofs from lists of this collection become void, and so do verdicts that used lists of other
            // collections.
            self.void_lists(cx, kind);
            self.mark_dependents_of_kind(kind);
            if let Some(served) = self.coverage.kind(kind).served() {
                cx.event(Event::KeptApart { collection: served.group_resource.clone() });
            }
        }
    }

    /// Counts an answer against the assumed store of a collection, unless the collection keeps up.
    pub(in crate::leader) fn speaks_against(&mut self, kind: KindId) {
        self.coverage.kind_mut(kind).speak_against();
    }

    pub(in crate::leader) fn begin_count(&mut self, kind: KindId) {
        self.coverage.kind_mut(kind).begin_count();
    }

    /// Records the position of a collection that is assumed to be in a separate store. A collection of the main store
    /// is at or past the position at which the main store was seen. That position is at or past the position of the
    /// collection one round earlier. After `rounds` consecutive rounds of this kind, the collection joins the main
    /// store again.
    pub(in crate::leader) fn goes_along(
        &mut self,
        kind: KindId,
        main: Option<&ResourceVersion>,
        version: &ResourceVersion,
        rounds: u32,
    ) {
        if self.coverage.kind_mut(kind).go_along(main, version) >= rounds {
            self.coverage.rejoin(kind);
            self.mark_dependents_of_kind(kind);
        }
    }

    /// Returns the kind that a resource replaces.
    pub(in crate::leader) fn place_of(&mut self, collection: &GroupResource, kind: &Name) -> KindId {
        self.coverage.place_of(collection, kind)
    }
}
