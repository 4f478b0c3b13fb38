//! What is known of collections, and what follows for their nodes when that changes.

use super::super::context::Context;
use super::super::{Event, KnownVersions, Output, Purpose};
use super::World;
use crate::coverage::Advance;
use crate::coverage::{Kind, KindId};
use crate::graph::{Known, NodeId, Presence};
use crate::leader::Timer;
use crate::object::{GroupResource, ResourceVersion, Uid};
use crate::object::{Name, ObjectRef, ServedKind};
use crate::time::Time;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

impl World {
    /// Leads references to what is not observed of this kind to where they lead now.
    pub(in crate::leader) fn lead_anew(&mut self, kind: KindId) {
        for owner in self.graph.unobserved(kind).collect::<Vec<_>>() {
            if self.graph.get(owner).is_some() {
                for dependent in self.graph.relink_dependents(&mut self.coverage, owner) {
                    self.mark(dependent);
                }
            }
        }
    }

    /// A resource of this kind has come or gone: references may lead to another, or not say any more which one they mean.
    pub(in crate::leader) fn compare_resources(&mut self, kind: KindId) {
        let Some(before) = self.coverage.compare_resources(kind) else { return };
        self.lead_anew(before);
        for kind in self.coverage.namesakes(kind).collect::<Vec<_>>() {
            self.mark_unobserved(kind);
            self.mark_dependents_of_kind(kind);
        }
    }

    pub(in crate::leader) fn observed_of(&self, kind: KindId) -> Vec<NodeId> {
        self.graph.iter().filter(|(_, node)| node.kind() == kind && node.is_observed()).map(|(id, _)| id).collect()
    }

    /// Whether another node of this uid is observed, of a kind that is watched.
    pub(in crate::leader) fn is_shown_elsewhere(&self, id: NodeId, uid: &Uid) -> bool {
        self.graph.by_uid(uid).any(|other| {
            let node = self.graph.node(other);
            other != id && node.is_observed() && self.coverage.kind(node.kind()).is_watched()
        })
    }

    pub(in crate::leader) fn watch_resumed(&mut self, cx: &mut Context, kind: KindId) {
        if self.coverage.watch_resumed(cx.now, kind) {
            self.tell_collection(cx, kind);
            self.mark_deletions();
        }
    }

    pub(in crate::leader) fn stale_due(&mut self, cx: &mut Context, kind: KindId) {
        if self.coverage.stale(cx.now, kind, cx.config.stale_after) {
            self.tell_collection(cx, kind);
            self.mark_deletions();
        }
    }

    pub(in crate::leader) fn freshen(&mut self, kind: KindId, id: NodeId, was_fresh: bool) {
        let entry = self.coverage.kind_mut(kind);
        entry.fresh += usize::from(!was_fresh);
        let list = entry.list;
        self.graph.set_list(id, list);
    }

    /// How long the last of its owners has been absent.
    pub(in crate::leader) fn since_owners_went(&self, cx: &Context, id: NodeId) -> Option<Duration> {
        let is_absent = |owner: &NodeId| matches!(self.graph.node(*owner).known(), Known::Absent(_));
        let absent = self.graph.node(id).owners().filter(is_absent);
        absent.filter_map(|owner| self.absent_since.get(&owner)).max().map(|&at| cx.now.since(at))
    }

    pub(in crate::leader) fn nodes_of(&self, kind: KindId) -> Vec<NodeId> {
        let unobserved = self.graph.unobserved(kind);
        let observed = self.coverage.kind(kind).observed;
        // Most kinds that come or go have no objects, and a large graph is not looked through for them.
        if observed == 0 {
            return unobserved.collect();
        }
        let all = observed + unobserved.count();
        self.graph.iter().filter(|(_, node)| node.kind() == kind).map(|(id, _)| id).take(all).collect()
    }

    pub(in crate::leader) fn unusable(&mut self, cx: &mut Context, collection: GroupResource, why: String) {
        if let Some(kind) = self.coverage.find(&collection) {
            self.coverage.kind_mut(kind).unusable += 1;
            self.is_not_empty(kind);
        }
        cx.event(Event::Unusable { collection, why });
    }

    pub(in crate::leader) fn tell_collection(&mut self, cx: &mut Context, kind: KindId) {
        let entry = self.coverage.kind(kind);
        let Some(served) = &entry.served else { return };
        let event = Event::Collection {
            collection: served.group_resource.clone(),
            state: entry.state,
            error: entry.error.clone(),
        };
        cx.event(event);
    }

    pub(in crate::leader) fn relist(&mut self, cx: &mut Context, kind: KindId, why: &str) {
        if let Some(served) = &self.coverage.kind(kind).served {
            let collection = served.group_resource.clone();
            cx.outputs.push_back(Output::Relist { collection, why: String::from(why) });
        }
    }

    pub(in crate::leader) fn set_unreadable(&mut self, id: NodeId, unreadable: bool) {
        if matches!(self.graph.node(id).known(), Known::Virtual { unreadable: known } if known != unreadable) {
            self.graph.set_unobserved(id, Presence::Virtual { unreadable });
            self.mark_dependents(id);
        }
    }

    /// Takes in a write of this replica. The store itself answers a write, and no server that lags: no list that is asked for from now on
    /// stands before it.
    pub(in crate::leader) fn wrote(&mut self, cx: &Context, collection: &GroupResource, version: &ResourceVersion) {
        if let Some(kind) = self.coverage.find(collection) {
            self.coverage.wrote(cx.now, kind, version);
        }
    }

    pub(in crate::leader) fn kept_apart(&self) -> Vec<GroupResource> {
        let of = |kind| self.coverage.kind(kind).served.as_ref().map(|served| served.group_resource.clone());
        self.coverage.unplaced().filter_map(of).collect()
    }

    pub(in crate::leader) fn inconsistent(&self) -> Vec<(GroupResource, String)> {
        let why = |(_, kind): (KindId, &Kind)| {
            let contradiction = kind.contradiction.as_ref()?;
            Some((kind.served.as_ref()?.group_resource.clone(), contradiction.why.clone()))
        };
        self.coverage.served().filter_map(why).collect()
    }

    /// How far a collection and its store are known to have come.
    pub(in crate::leader) fn known(&self, kind: KindId) -> KnownVersions {
        let own = self.coverage.kind(kind).high.as_ref().map(|(high, _)| high.clone());
        KnownVersions { own, store: self.coverage.floor(kind).cloned(), main: self.coverage.main().cloned() }
    }

    /// Whether only a version that can be ordered says when a list of this collection was true. Behind an APIService there may be none: that
    /// is so once its versions were seen to be none. Before that, its lists count only for owners, who take several.
    pub(in crate::leader) fn has_order(&self, kind: KindId, known: &KnownVersions, purpose: &Purpose) -> bool {
        let is_of_owner = matches!(purpose, Purpose::Existence { .. });
        let seen = known.own.as_ref().map(ResourceVersion::is_ordered);
        !self.coverage.kind(kind).is_aggregated() || seen.unwrap_or(!is_of_owner)
    }

    /// Discovery shows a resource. `known`: the kind in whose place it comes.
    pub(in crate::leader) fn serve(&mut self, cx: &Context, known: KindId, served: ServedKind) -> KindId {
        if self.coverage.kind(known).served.is_none() {
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

    /// A list begins: what it has yet to show may hide dependents.
    pub(in crate::leader) fn begin_list(&mut self, cx: &mut Context, kind: KindId) {
        self.graph.lose_sight_of_orphaned(kind);
        if self.coverage.list_begun(cx.now, kind) {
            self.tell_collection(cx, kind);
            // What was decided while all was seen, and is not granted yet, waits for the list.
            self.mark_deletions();
        }
    }

    /// A list has shown an object at this version.
    pub(in crate::leader) fn show(&mut self, kind: KindId, version: &ResourceVersion) {
        self.coverage.show(kind, version);
    }

    pub(in crate::leader) fn end_list(&mut self, cx: &Context, kind: KindId, version: ResourceVersion) -> Advance {
        self.coverage.list_ended(cx.now, kind, version)
    }

    pub(in crate::leader) fn fail_list(&mut self, cx: &mut Context, kind: KindId, error: String) {
        if self.coverage.list_failed(cx.now, kind, error) {
            self.tell_collection(cx, kind);
            self.mark_unobserved(kind);
            self.mark_dependents_of_unobserved(kind);
            self.mark_deletions();
        }
    }

    pub(in crate::leader) fn advance(&mut self, cx: &Context, kind: KindId, version: &ResourceVersion) -> Advance {
        self.coverage.advance(cx.now, kind, version)
    }

    /// A watch has ended. It makes its collection stale if it does not go on in time.
    pub(in crate::leader) fn lose_watch(&mut self, cx: &mut Context, kind: KindId, error: String) {
        self.coverage.watch_lost(cx.now, kind, error);
        cx.timers.set(cx.now + cx.config.stale_after, Timer::Stale(kind));
    }

    /// Shows an error of a collection that is still watched; none where it is empty.
    pub(in crate::leader) fn note_error(&mut self, cx: &mut Context, kind: KindId, error: String) {
        if self.coverage.note(kind, error) {
            self.tell_collection(cx, kind);
        }
    }

    /// The store of a collection was seen at this version.
    pub(in crate::leader) fn raise(&mut self, now: Time, kind: KindId, version: &ResourceVersion) {
        self.coverage.raise(now, kind, version);
    }

    /// The kind of an object, which becomes known if it was not.
    pub(in crate::leader) fn kind_of(&mut self, object: &ObjectRef) -> KindId {
        self.coverage.kind_of(object)
    }

    /// The connection to a collection broke, or the collection has said where it stands.
    pub(in crate::leader) fn set_doubtful(&mut self, kind: KindId, doubtful: bool) {
        self.coverage.kind_mut(kind).doubtful = doubtful;
    }

    pub(in crate::leader) fn compare_stores(&mut self) {
        self.coverage.compare_stores();
    }

    /// These collections do not share the main store: their lists prove nothing about it.
    pub(in crate::leader) fn take_apart(&mut self, cx: &mut Context, apart: Vec<KindId>) {
        self.coverage.take_apart(&apart);
        for kind in apart {
            // What its lists have proven counts no more, nor what was decided about its objects by lists of others.
            self.void_lists(cx, kind);
            self.mark_dependents_of_kind(kind);
            if let Some(served) = &self.coverage.kind(kind).served {
                cx.event(Event::KeptApart { collection: served.group_resource.clone() });
            }
        }
    }

    /// An answer speaks against what a collection is taken for, unless it keeps up.
    pub(in crate::leader) fn speaks_against(&mut self, kind: KindId) {
        self.coverage.kind_mut(kind).speak_against();
    }

    pub(in crate::leader) fn begin_count(&mut self, kind: KindId) {
        self.coverage.kind_mut(kind).begin_count();
    }

    /// A collection that is taken for one apart stands at this version. In the main store, it stands no earlier than that was seen at, and
    /// that was seen where the collection stood a round ago. After so many such rounds it is one of the main store again.
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

    /// The kind in whose place a resource comes.
    pub(in crate::leader) fn place_of(&mut self, collection: &GroupResource, kind: &Name) -> KindId {
        self.coverage.place_of(collection, kind)
    }
}
