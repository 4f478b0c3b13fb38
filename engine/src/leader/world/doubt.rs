//! Collections that can report the position of the store, and the decisions that wait for collections in doubt.

use super::super::Event;
use super::super::Timer;
use super::super::context::Context;
use super::World;
use crate::coverage::Contradiction;
use crate::coverage::KindId;
use crate::evidence::{Inquiry, Proof};
use crate::graph::{self, NodeId};
use crate::object::ResourceVersion;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

/// Time for which a contradiction counts. Proofs take more answers during this time.
pub(in crate::leader) const CONTRADICTION_COUNTS: Duration = Duration::from_secs(600);

/// Time within which several contradictions count as one. Only the first contradiction voids proofs.
const CONTRADICTIONS_APART: Duration = Duration::from_millis(500);

/// The extent of a store rewind.
#[derive(Debug)]
pub(in crate::leader) struct Lost {
    /// The collections that are listed again.
    pub(in crate::leader) kinds: Vec<KindId>,
    /// True if the store is the main store. All collections depend on the main store, except those behind an
    /// APIService.
    pub(in crate::leader) everything: bool,
}

impl World {
    /// Restarts the inquiries whose conclusions came from lists of single names of this collection.
    pub(in crate::leader) fn void_lists(&mut self, cx: &Context, kind: KindId) {
        for id in self.graph.unobserved(kind).collect::<Vec<_>>() {
            if let Some(inquiry) = self.inquiries.get_mut(&id) {
                inquiry.begin_anew();
            }
            if matches!(self.graph.node(id).known(), graph::Known::Absent(Proof::Listed { .. })) {
                self.graph.set_virtual(id, false);
                self.absent_since.remove(&id);
                self.inquiries.insert(id, Inquiry::new(cx.now).at_once(cx.now));
                self.mark_dependents(id);
                self.mark(id);
            }
        }
    }

    /// Ends a contradiction once the answers about the collection have agreed for long enough.
    pub(in crate::leader) fn contradiction_due(&mut self, cx: &mut Context, kind: KindId) {
        let entry = self.coverage.kind_mut(kind);
        let Some(until) = entry.contradiction.as_ref().map(|last| last.last + CONTRADICTION_COUNTS) else { return };
        if until <= cx.now {
            entry.contradiction = None;
        } else {
            cx.timers.set(until, Timer::Contradiction(kind));
        }
    }

    /// Returns the collections of the main store that can report its position, with their highest known versions. The
    /// collection with the highest version comes first.
    pub(in crate::leader) fn witnesses(&self) -> Vec<(KindId, ResourceVersion)> {
        let known = |(id, kind): (KindId, &crate::coverage::Kind)| {
            Some((id, kind.high().filter(|_| !kind.is_aggregated() && kind.is_listed())?.clone()))
        };
        let mut witnesses: Vec<(KindId, ResourceVersion)> = self.coverage.served().filter_map(known).collect();
        witnesses.sort_by(|(one, high), (other, lower)| high.furthest_first(lower).then(one.cmp(other)));
        witnesses
    }

    /// Returns whether `version` contradicts a store that was seen at `seen`.
    pub(in crate::leader) fn contradicts(
        &self,
        cx: &Context,
        kind: KindId,
        seen: &ResourceVersion,
        version: &ResourceVersion,
    ) -> bool {
        version.is_before(seen) || self.coverage.kind(kind).leaps(cx.now, version)
    }

    pub(in crate::leader) fn doubt_unserved(&mut self, version: &ResourceVersion) -> bool {
        self.coverage.doubt_unserved(version)
    }

    pub(in crate::leader) fn trust_unserved(&mut self, version: &ResourceVersion) {
        self.coverage.trust_unserved(version);
    }

    /// Returns a collection in doubt that a decision about this node depends on. The judging of an owner checks
    /// separately which collections have shown all dependents of the owner.
    pub(in crate::leader) fn rests_on_doubt(&self, id: NodeId) -> Option<KindId> {
        let node = self.graph.node(id);
        let kinds = core::iter::once(node.kind()).chain(node.owners().map(|owner| self.graph.node(owner).kind()));
        kinds.into_iter().find(|&kind| self.coverage.kind(kind).is_in_doubt())
    }

    pub(in crate::leader) fn is_any_watched_kind_in_doubt(&self) -> bool {
        self.coverage.served().any(|(_, kind)| kind.is_watched() && kind.is_in_doubt())
    }

    /// Records that answers about a collection contradict each other. Proofs from lists of single names of this
    /// collection become void.
    pub(in crate::leader) fn contradicted(&mut self, cx: &mut Context, kind: KindId, why: String) {
        let now = cx.now;
        let entry = self.coverage.kind_mut(kind);
        let before = entry.contradiction.take().filter(|before| now.since(before.last) < CONTRADICTION_COUNTS);
        let is_fresh = before.as_ref().is_none_or(|before| now.since(before.last) >= CONTRADICTIONS_APART);
        let count = before.map_or(1, |before| before.count.saturating_add(1));
        entry.contradiction = Some(Contradiction { why: why.clone(), count, last: now });
        if count == 1 {
            cx.timers.set(now + CONTRADICTION_COUNTS, Timer::Contradiction(kind));
        }
        if let Some(served) = entry.served() {
            cx.event(Event::Inconsistent { collection: served.group_resource.clone(), why });
        }
        if is_fresh {
            self.void_lists(cx, kind);
        }
    }

    /// Records that the store of a collection was rewound. The collections of the store are listed again and may show
    /// lower versions. Returns `None` if the kind is no longer served.
    pub(in crate::leader) fn lose_history(&mut self, cx: &mut Context, kind: KindId, why: String) -> Option<Lost> {
        let collection = self.coverage.kind(kind).served()?.group_resource.clone();
        let everything = !self.coverage.kind(kind).is_aggregated();
        cx.event(Event::Rewound { collection, why });
        let kinds: Vec<KindId> = self
            .coverage
            .served()
            // A collection behind an APIService may be in the same store. If it is in another store, it is only listed
            // once more.
            .filter(|&(id, other)| other.is_watched() && (id == kind || everything))
            .map(|(id, _)| id)
            .collect();
        for &id in &kinds {
            self.relist(cx, id, "the store was rewound");
        }
        self.coverage.lose_history(kind);
        Some(Lost { kinds, everything })
    }

    /// Voids the conclusions from the lost history, and marks all nodes for judging.
    pub(in crate::leader) fn void_history(&mut self, cx: &mut Context, lost: &Lost) {
        self.emptied.clear();
        self.remember_former(cx);
        self.former.lose(cx.now);
        self.graph.lose_orphaned();
        for (id, checked) in self.graph.iter().map(|(id, node)| (id, node.is_checked())).collect::<Vec<_>>() {
            let of = self.graph.node(id).kind();
            if lost.everything || lost.kinds.contains(&of) {
                // The answers so far are of the lost history, also those of an inquiry that has not ended.
                self.inquiries.remove(&id);
                if checked {
                    self.graph.set_virtual(id, false);
                    self.mark_dependents(id);
                }
            }
            self.mark(id);
        }
    }

    /// Returns the nodes of unserved kinds that are known only from a lost history.
    pub(in crate::leader) fn of_lost_kinds(&self) -> Vec<NodeId> {
        let is_lost = |id: &KindId| {
            let kind = self.coverage.kind(*id);
            kind.served().is_none() && kind.is_rewound()
        };
        self.coverage.ids().filter(is_lost).flat_map(|kind| self.nodes_of(kind)).collect()
    }
}
