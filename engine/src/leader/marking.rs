//! The labels and annotations that guards require. The caller matches them; a new selector needs new lists.

use super::holding::namespaces;
use super::{Leader, Output};
use crate::coverage::{Coverage, KindId, State};
use crate::hold::{Entry, is_exempt};
use crate::object::{GroupResource, Uid};
use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;

/// Maximum number of lists at a time whose reason is a new selector.
const LISTS_MAX: usize = 4;
/// Maximum number of collections that a sentence names.
const NAMED_MAX: usize = 5;

/// Lists that make selectors known.
#[derive(Debug, Default)]
pub(super) struct Marking {
    /// The generation that the caller has.
    told: u32,
    listing: BTreeSet<KindId>,
}

/// The watched collections whose objects have not been matched with all selectors of a guard.
pub(super) fn unmatched(entry: &Entry, coverage: &Coverage) -> Vec<(KindId, GroupResource)> {
    let namespaces = namespaces();
    let mut found = BTreeSet::new();
    for (filter, wants) in entry.meaning.scope.targets.iter().zip(&entry.meaning.wants) {
        if wants.object.is_none() && wants.namespace.is_none() {
            continue;
        }
        for (id, kind) in coverage.served().filter(|(_, kind)| kind.is_watched()) {
            let Some(of) = kind.served().map(|served| &served.group_resource) else { continue };
            let is_covered =
                (filter.resources.is_empty() || filter.resources.contains(of)) && !is_exempt(&of.group, &of.resource);
            let object = wants.object.filter(|_| is_covered);
            let namespace = wants.namespace.filter(|_| *of == namespaces);
            if object.into_iter().chain(namespace).any(|selector| !kind.knows_selector(selector.since)) {
                found.insert(id);
            }
        }
    }
    let named = |id: KindId| Some((id, coverage.kind(id).served()?.group_resource.clone()));
    found.into_iter().filter_map(named).collect()
}

impl Leader {
    /// Publishes new selectors, and lists collections again that have not been matched with them.
    pub(super) fn match_anew(&mut self) {
        let holds = self.dispatcher.queue().holds();
        let table = holds.table().clone();
        if table.is_empty() {
            return;
        }
        if self.marking.told != table.generation() {
            self.marking.told = table.generation();
            self.cx.outputs.push_back(Output::Selectors(table));
        }
        let wanted = holds.guards().filter(|entry| !entry.over);
        let wanted = wanted.flat_map(|entry| unmatched(entry, self.world.coverage()));
        let wanted: BTreeSet<KindId> = wanted.map(|(kind, _)| kind).collect();
        for kind in wanted {
            if self.marking.listing.len() >= LISTS_MAX {
                return;
            }
            // A list in progress may have an earlier table. Its end leads here again.
            let is_listed = matches!(self.world.coverage().kind(kind).state(), State::Synced | State::Stale);
            if is_listed && self.marking.listing.insert(kind) {
                self.world.relist(&mut self.cx, kind, "a guard asks for labels or annotations");
            }
        }
    }

    /// Records that a list has ended or failed, or that its kind is not served any more.
    pub(super) fn marking_ended(&mut self, kind: KindId) {
        self.marking.listing.remove(&kind);
        self.match_anew();
    }

    /// Recomputes the holds of an object whose marks have changed. If the object is a namespace, recomputes the holds
    /// of all objects, and stops leases that are in scope now.
    pub(super) fn marks_changed(&mut self, kind: KindId, uid: &Uid) {
        let is_namespace = self.world.coverage().find(&namespaces()) == Some(kind);
        if is_namespace && self.dispatcher.queue().holds().any_selects_namespaces() {
            let name = self.world.graph().primary(uid).map(|id| self.world.graph().node(id).name());
            // Writes that were granted before can be in scope now.
            if name.is_some_and(|name| self.dispatcher.namespace_changed(&self.cx, name)) {
                self.press();
            } else {
                self.rehold();
            }
            return self.reconsider_labels(|wants| wants.namespace.is_some());
        }
        let Some(item) = self.dispatcher.queue().get(uid) else { return };
        let hold = self.holding().first(&item.draft);
        self.dispatcher.set_hold(uid, hold);
        self.dispatcher.release_item(uid);
    }
}

/// The sentence about collections that are still to be listed for a guard; empty if there are none.
pub(super) fn pending(entry: &Entry, coverage: &Coverage) -> String {
    let names: Vec<String> = unmatched(entry, coverage).iter().map(|(_, of)| alloc::format!("{of}")).collect();
    match names.len() {
        0 => String::new(),
        count if count > NAMED_MAX => alloc::format!("{count} collections are being listed for its labels"),
        _ => alloc::format!("{} are being listed for its labels", names.join(", ")),
    }
}
