//! What is known of collections, and what follows for their nodes when that changes.

use super::super::context::Context;
use super::super::{Event, KnownVersions, Output, Purpose};
use super::World;
use crate::coverage::{Kind, KindId};
use crate::graph::{Known, NodeId, Presence};
use crate::object::{GroupResource, ResourceVersion, Uid};
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
}
