//! Facts from discovery and watches: the counterpart of upstream's `processGraphChanges`.

use super::closing::Left;
use super::{Event, Leader, Undiscovered};
use crate::coverage::{Advance, KindId, State};
use crate::evidence::Proof;
use crate::follow::WatchEnd;
use crate::graph::{Coordinates, Known, NodeId};
use crate::marks::Marks;
use crate::object::{GroupResource, Object, ResourceVersion, ServedKind};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// The API group of the objects that grant permissions.
const RULES_GROUP: &str = "rbac.authorization.k8s.io";

/// The source of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// The current list.
    List,
    /// The watch.
    Watch,
    /// A read of the leader, ahead of the watch.
    Ahead,
}

impl Leader {
    pub(super) fn kind_served(&mut self, served: ServedKind) {
        let renamed = |id: &KindId| self.world.coverage().kind(*id).kind != served.kind;
        if self.world.coverage().find(&served.group_resource).filter(renamed).is_some() {
            self.kind_unserved(&served.group_resource);
        }
        let known = self.world.place_of(&served.group_resource, &served.kind);
        let before = self.world.coverage().kind(known).namespaced();
        let state = self.world.coverage().kind(known).state();
        let namespaced = served.namespaced;
        let was_watched = self.world.coverage().kind(known).is_watched();
        let kind = self.world.serve(&self.cx, known, served);
        if !was_watched && self.world.coverage().kind(kind).is_watched() {
            // The current barrier round does not ask this collection, and may end before the collection is listed.
            self.restart_barrier();
            self.world.mark_deletions();
        }
        if was_watched && !self.world.coverage().kind(kind).is_watched() {
            // No collection shows changes of these objects any more.
            for id in self.world.observed_of(kind) {
                self.forget_shown(id);
            }
        }
        if before != Some(namespaced) {
            // References were resolved by the namespace of the dependent while the scope was unknown.
            self.world.lead_anew(kind);
        }
        self.read_scopes_again();
        self.world.compare_resources(kind);
        self.world.void_ambiguous(kind);
        self.world.mark_unobserved(kind);
        self.world.mark_dependents_of_kind(kind);
        if self.world.coverage().kind(kind).state() != state {
            self.world.tell_collection(&mut self.cx, kind);
        }
    }

    pub(super) fn kind_unserved(&mut self, collection: &GroupResource) {
        let Some(kind) = self.world.unserve(&self.cx, collection) else { return };
        self.barrier.unserved(kind);
        self.marking_ended(kind);
        self.relisted(kind);
        if self.world.coverage().kind(kind).is_doubtful() {
            // The leader can no longer ask this collection. Another collection must report the position of the store.
            self.suspect();
        }
        // Another group that still serves an object acts for the object.
        for id in self.world.observed_of(kind) {
            if self.world.graph().get(id).is_some_and(|node| self.world.is_shown_elsewhere(id, &node.uid())) {
                self.forget_shown(id);
            }
        }
        self.world.compare_resources(kind);
        self.world.mark_dependents_of_kind(kind);
        self.world.mark_unobserved(kind);
        self.world.mark_deletions();
        self.world.await_emptied(&mut self.cx, kind);
    }

    /// Discards the knowledge of a node from its collection. The removal proves nothing, so the next question asks for
    /// the name of the object.
    fn forget_shown(&mut self, id: NodeId) {
        // The removal of another node may have removed this node.
        if self.world.graph().get(id).is_some_and(|node| node.is_observed()) {
            self.take_out(id, None, Left::Sight);
        }
    }

    pub(super) fn undiscovered(&mut self, all: Vec<Undiscovered>) {
        if self.world.set_undiscovered(self.cx.now, all) {
            // A barrier round that ends while kinds are hidden has not asked these kinds.
            self.restart_barrier();
            self.world.mark_deletions();
        }
    }

    pub(super) fn emptied_due(&mut self, kind: KindId) {
        let Some((crd, owners)) = self.world.end_emptied(self.cx.now, kind) else { return };
        for id in self.world.graph().unobserved(kind).collect::<Vec<_>>() {
            // The removal of another node may have removed this node.
            if self.world.graph().get(id).is_some_and(|node| !node.is_observed() && owners.contains(&node.uid())) {
                self.prove(id, Proof::TypeEmptied { crd: crd.clone() });
            }
        }
    }

    pub(super) fn list_begun(&mut self, kind: KindId, selectors: u32) {
        self.prober.forget_count(kind);
        self.world.begin_list(&mut self.cx, kind, selectors);
    }

    pub(super) fn listed(&mut self, kind: KindId, object: Object) {
        self.world.show(kind, &object.resource_version);
        self.take_in(kind, object, Source::List);
    }

    pub(super) fn list_ended(&mut self, kind: KindId, version: ResourceVersion) {
        let has_selectors = !self.dispatcher.queue().holds().table().is_empty();
        let entry = self.world.coverage().kind(kind);
        let (list, all_fresh, was_lost) = (entry.list(), entry.fresh() == entry.observed(), entry.is_rewound());
        if !all_fresh {
            for id in self.world.nodes_of(kind) {
                let Some(node) = self.world.graph().get(id) else { continue };
                let seen = node.resource_version().filter(|_| !was_lost);
                if node.list() == Some(list) {
                    continue;
                }
                // A read or a write showed the object after the list was taken. The watch shows later changes of the
                // object.
                if seen.is_some_and(|seen| version.is_before(&seen)) {
                    self.world.freshen(kind, id, false);
                    if has_selectors {
                        // The marks of the node may come from earlier selectors.
                        self.world.forget_marks(id);
                    }
                } else if node.is_observed() {
                    // The absence from a full list is no proof. The leader asks for the name of the object.
                    self.take_out(id, None, Left::Collection { deleted: None });
                    if self.world.graph().get(id).is_some() {
                        self.world.inquire_at_once(&self.cx, id);
                    }
                }
            }
        }
        let matched = self.world.coverage().kind(kind).selectors();
        let advance = self.world.end_list(&self.cx, kind, version.clone());
        if self.world.coverage().kind(kind).selectors() != matched {
            self.rehold();
            self.reconsider_labels(|wants| wants.object.is_some() || wants.namespace.is_some());
        }
        self.marking_ended(kind);
        self.barrier.advanced(kind, &version);
        self.audit_later(kind);
        self.compare_stores_later();
        self.world.tell_collection(&mut self.cx, kind);
        if advance == Advance::Rewind {
            self.rewind(kind, format!("a new list ended at version {version}, which is before the known positions"));
        }
        // Part of a list from another history may have been taken for the known history. Only the next list counts.
        if !self.world.coverage().kind(kind).is_rewound() {
            self.relisted(kind);
            self.compare_from_here();
            if was_lost {
                self.world.mark_dependents_of_kind(kind);
            }
        }
        self.world.mark_unobserved(kind);
        self.world.mark_dependents_of_unobserved(kind);
        self.world.mark_deletions();
    }

    pub(super) fn list_failed(&mut self, kind: KindId, error: String, broke: bool) {
        self.world.fail_list(&mut self.cx, kind, error);
        self.marking_ended(kind);
        self.relisted(kind);
        if broke && !self.world.coverage().kind(kind).is_aggregated() {
            self.list_broke();
        }
    }

    pub(super) fn seen(&mut self, kind: KindId, object: Object) {
        if !self.is_of_lost_history(kind) && self.advance(kind, &object.resource_version) {
            if *self.world.coverage().kind(kind).group == *RULES_GROUP {
                self.dispatcher.rules_changed(&mut self.cx, &object.namespace);
            }
            self.take_in(kind, object, Source::Watch);
        }
    }

    /// Whether the watch of a collection may show a lost history. The list that replaces the watch has not begun.
    fn is_of_lost_history(&self, kind: KindId) -> bool {
        let entry = self.world.coverage().kind(kind);
        entry.is_lost(entry.list())
    }

    pub(super) fn bookmark(&mut self, kind: KindId, version: &ResourceVersion) {
        if !self.is_of_lost_history(kind) {
            self.advance(kind, version);
        }
    }

    pub(super) fn deleted(&mut self, kind: KindId, object: &Object) {
        if self.is_of_lost_history(kind) || !self.advance(kind, &object.resource_version) {
            return;
        }
        let at = Coordinates { kind, namespace: object.namespace.clone(), name: object.name.clone() };
        self.history.remember_gone(object.uid.clone(), kind);
        let Some(id) = self.world.graph().find(&object.uid, &at) else { return };
        let entry = self.world.coverage().kind(kind);
        let proof = Proof::WatchDeleted { resource_version: object.resource_version.clone() };
        // Some servers send DELETED for an object that only left the view of the caller. During a list, the event
        // proves nothing.
        let proven = entry.is_synced() && !entry.is_aggregated();
        // For an object that the watch has never shown, DELETED is a proof only from a server with a known store.
        let proven = proven && (entry.is_placed() || self.world.graph().node(id).is_observed());
        if proven && !object.facts.orphans_dependents() {
            self.world.end_orphaned(&object.uid);
        }
        if self.world.graph().node(id).is_observed() {
            let deleted = Some(object.resource_version.clone());
            self.take_out(id, proven.then_some(proof), Left::Collection { deleted });
        } else if proven && !self.world.graph().node(id).is_absent() {
            self.prove(id, proof);
        }
        if !proven && self.world.graph().get(id).is_some_and(|node| !node.is_absent()) {
            self.world.inquire_after_deleted(&self.cx, id, object.resource_version.clone());
        }
    }

    /// Moves the position of a collection. Returns false if the version belongs to another history.
    fn advance(&mut self, kind: KindId, version: &ResourceVersion) -> bool {
        if self.world.coverage().kind(kind).lacks_watch() {
            self.world.watch_resumed(&mut self.cx, kind);
        }
        self.compare_count(kind, version);
        match self.world.advance(&self.cx, kind, version) {
            Advance::Moved => {
                self.barrier.advanced(kind, version);
                true
            }
            Advance::Rewind => {
                self.rewind(
                    kind,
                    format!("the watch continues at version {version}, which is before the known positions"),
                );
                false
            }
        }
    }

    pub(super) fn watch_lost(&mut self, kind: KindId, end: WatchEnd, error: String) {
        self.world.lose_watch(&mut self.cx, kind, error);
        if end.is_doubt() {
            self.doubt(kind);
            if !self.world.coverage().kind(kind).is_aggregated() {
                self.suspect();
            }
        }
    }

    /// Adds an object from a list, a watch or a trusted read to the graph, unless the graph has a newer version.
    pub(super) fn take_in(&mut self, kind: KindId, mut object: Object, source: Source) {
        object.facts.bound();
        self.world.is_not_empty(kind);
        let has_selectors = !self.dispatcher.queue().holds().table().is_empty();
        if source == Source::Ahead {
            // Reads and executors do not match labels. The watch will show the object again.
            object.marks = if has_selectors { Marks::unknown() } else { Marks::default() };
        }
        let at = Coordinates { kind, namespace: object.namespace.clone(), name: object.name.clone() };
        if source == Source::Ahead && self.leapt(kind, &object.resource_version) {
            return;
        }
        let entry = self.world.coverage().kind(kind);
        // During a list, only the list and its watch show the object as current. A failed collection may be listed
        // again meanwhile.
        let shown = source != Source::Ahead || !matches!(entry.state(), State::Listing | State::Failed);
        let current = entry.list();
        let found = self.world.graph().find(&object.uid, &at);
        let known = found.filter(|&id| self.world.graph().node(id).is_observed());
        let mut list = if shown { current } else { current.wrapping_sub(1) };
        if let Some(id) = known {
            let node = self.world.graph().node(id);
            let version = node.resource_version().expect("the filter keeps only observed nodes");
            let older = object.resource_version.is_before(&version);
            let was_fresh = node.list() == Some(current);
            let moved = object.resource_version != version;
            if source == Source::Ahead && !moved {
                object.marks = node.marks();
            }
            if was_fresh {
                list = current;
            }
            let ahead = entry.position().is_none_or(|position| position.is_before(&version));
            if older && !entry.is_rewound() {
                if source == Source::List && ahead {
                    self.world.note_regression(kind, version);
                }
                if source == Source::List && !ahead {
                    let why = format!("a list shows {} at a lower version than the known one", object.name);
                    self.rewind(kind, why);
                } else {
                    // A read or a write was ahead of the watch.
                    if shown {
                        self.world.freshen(kind, id, was_fresh);
                        if !was_fresh && has_selectors {
                            // The marks of the node may come from earlier selectors.
                            self.world.forget_marks(id);
                        }
                    }
                    return;
                }
            }
            // Between the two versions, the object may have been in another deletion mode. Dependents from that time
            // may be unknown.
            if source != Source::Watch && moved {
                self.world.end_deletion(id);
            }
            // A decision about an object contains the version of the object. An object in deletion may need a new
            // record as an orphaning owner.
            let is_decided = || self.dispatcher.queue().get(&object.uid).is_some();
            if source == Source::Watch && was_fresh && !is_decided() && self.world.moves_alone(id, &object) {
                return self.settle_shown(id);
            }
            if shown && !was_fresh {
                self.world.count_shown(kind);
            }
        }
        if known.is_none() && self.history.has_gone(&object.uid, kind) && !self.world.coverage().kind(kind).is_rewound()
        {
            self.rewind(kind, format!("{} appears again after its DELETED event", object.name));
        }
        let disproves = found.and_then(|id| match self.world.graph().node(id).known() {
            Known::Absent(Proof::Listed { resource_version: at }) if at.is_before(&object.resource_version) => {
                Some(format!(
                    "a list at version {at} does not show {}, but the object has version {}",
                    object.name, object.resource_version
                ))
            }
            Known::Observed | Known::Read { .. } | Known::Virtual { .. } | Known::Absent(_) => None,
        });
        if let Some(why) = disproves {
            self.contradicted(kind, why);
        }
        if let Some(id) = known {
            self.compare_change(id, &object, source == Source::Watch);
        }
        let orphaning = known.map(|id| self.world.orphaning_owners(id));
        let (id, change) = self.world.upsert(kind, list, shown, object);
        if let Some(before) = orphaning.filter(|_| !change.owners.is_empty()) {
            self.world.note_readoption(&mut self.cx, id, &before);
        }
        if change.marked || change.appeared {
            let uid = self.world.graph().node(id).uid();
            self.marks_changed(kind, &uid);
        }
        if change.appeared {
            for other in self.world.appeared(id) {
                self.forget_shown(other);
            }
            let uid = self.world.graph().node(id).uid();
            if self.world.is_mirrored(&uid) && self.dispatcher.note_mirror(self.cx.now, &uid) {
                // A guard by the resource of this group may cover the write now.
                self.press();
            }
        }
        self.settle_shown(id);
        self.world.mark(id);
        if source != Source::Ahead {
            self.tell_finalizers(id);
        }
        if change.standing {
            // A barrier round that passed for the earlier deletion mode says nothing about the new mode.
            self.world.end_deletion(id);
            self.world.mark_dependents(id);
            if source == Source::Watch {
                self.compare_owner(id);
            }
        }
        if change.remembered {
            // The orphaning counts under each group that references use.
            let uid = self.world.graph().node(id).uid();
            for claim in self.world.graph().few_by_uid(&uid).collect::<Vec<_>>() {
                self.world.mark_dependents(claim);
            }
        }
        for owner in change.owners {
            self.world.mark(owner);
        }
    }

    /// Removes an observed object from the graph.
    pub(super) fn take_out(&mut self, id: NodeId, proof: Option<Proof>, left: Left) {
        let node = self.world.graph().node(id);
        let (uid, kind, namespace) = (node.uid(), node.kind(), node.namespace().clone());
        let proof = proof.filter(|_| !self.world.coverage().kind(kind).is_ambiguous());
        let deleted = left.version();
        self.compare_removal(id, &left);
        let caused_by_us = self.leaves(id, left);
        let owner_gone = if caused_by_us { self.world.since_owners_went(&self.cx, id) } else { None };
        let tombstone = self.world.leave(&self.cx, id, caused_by_us, deleted);
        self.withdraw(id);
        if self.world.graph().has_orphaned(&uid) {
            let round = self.barrier.request(&namespace);
            self.world.remember_orphaned(&self.cx, id, round);
        }
        let stays = self.world.remove(&self.cx, id, proof.clone());
        self.ledger.end_removal(&uid);
        self.settle_claim(&uid);
        let object = tombstone.object.clone();
        self.world.bury(tombstone);
        self.cx.event(Event::Removed { object: object.clone(), caused_by_us, owner_gone });
        if let Some(proof) = proof.filter(|_| stays) {
            self.cx.event(Event::Proven { owner: object, proof });
        }
    }

    /// Marks an unobserved owner as absent.
    pub(super) fn prove(&mut self, id: NodeId, proof: Proof) {
        if !self.world.coverage().kind(self.world.graph().node(id).kind()).is_ambiguous() {
            self.withdraw(id);
            self.world.set_absent(&mut self.cx, id, proof);
        }
    }
}
