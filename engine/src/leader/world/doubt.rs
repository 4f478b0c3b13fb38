//! Which collections can say where the store stands, and what rests on those that have yet to.

use super::super::Event;
use super::super::Timer;
use super::super::context::Context;
use super::World;
use crate::coverage::Contradiction;
use crate::coverage::{KindId, State};
use crate::evidence::{Inquiry, Proof};
use crate::graph::{self, NodeId, Presence};
use crate::object::ResourceVersion;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

/// A contradiction counts for so long: proofs take more answers meanwhile.
pub(in crate::leader) const CONTRADICTION_COUNTS: Duration = Duration::from_secs(600);

/// Contradictions within this of each other are one: they void nothing more.
const CONTRADICTIONS_APART: Duration = Duration::from_millis(500);

/// The history of a store that went back.
#[derive(Debug)]
pub(in crate::leader) struct Lost {
    /// Collections that are listed again.
    pub(in crate::leader) kinds: Vec<KindId>,
    /// It was the main store, on which every collection but those behind an APIService rests.
    pub(in crate::leader) everything: bool,
}

impl World {
    /// What lists of single names have shown of a collection is asked anew.
    pub(in crate::leader) fn void_lists(&mut self, cx: &Context, kind: KindId) {
        for id in self.graph.unobserved(kind).collect::<Vec<_>>() {
            if let Some(inquiry) = self.inquiries.get_mut(&id) {
                inquiry.begin_anew();
            }
            if matches!(self.graph.node(id).known(), graph::Known::Absent(Proof::Listed { .. })) {
                self.graph.set_unobserved(id, Presence::Virtual { unreadable: false });
                self.absent_since.remove(&id);
                self.inquiries.insert(id, Inquiry::new(cx.now).at_once(cx.now));
                self.mark_dependents(id);
                self.mark(id);
            }
        }
    }

    /// Whether answers about a collection have agreed for long enough to be believed as any other.
    pub(in crate::leader) fn contradiction_due(&mut self, cx: &mut Context, kind: KindId) {
        let entry = self.coverage.kind_mut(kind);
        let Some(until) = entry.contradiction.as_ref().map(|last| last.last + CONTRADICTION_COUNTS) else { return };
        if until <= cx.now {
            entry.contradiction = None;
        } else {
            cx.timers.set(until, Timer::Contradiction(kind));
        }
    }

    /// Collections of the main store that can say where it stands, with how far each was seen, the furthest first.
    pub(in crate::leader) fn witnesses(&self) -> Vec<(KindId, ResourceVersion)> {
        let usable = |kind: &crate::coverage::Kind| {
            kind.is_watched() && !kind.is_aggregated() && kind.position.is_some() && kind.state != State::Failed
        };
        let known = |(id, kind): (KindId, &crate::coverage::Kind)| {
            let (high, _) = kind.high.as_ref().filter(|_| usable(kind))?;
            Some((id, high.clone()))
        };
        let mut witnesses: Vec<(KindId, ResourceVersion)> = self.coverage.served().filter_map(known).collect();
        witnesses.sort_by(|(one, high), (other, lower)| high.furthest_first(lower).then(one.cmp(other)));
        witnesses
    }

    /// Whether a store that has been at `seen` cannot stand at `version` now.
    pub(in crate::leader) fn contradicts(
        &self,
        cx: &Context,
        kind: KindId,
        seen: &ResourceVersion,
        version: &ResourceVersion,
    ) -> bool {
        version.is_before(seen) || self.coverage.kind(kind).leaps(cx.now, version)
    }

    /// A kind that is not served cannot be asked. What is known of it stands where the store has come at least as far, and waits else:
    /// until it is served, and its list tells. True if one waits.
    pub(in crate::leader) fn doubt_unserved(&mut self, version: &ResourceVersion) -> bool {
        let mut waits = false;
        for id in self.coverage.ids() {
            let entry = self.coverage.kind_mut(id);
            if let (None, Some(floor), false) = (&entry.served, &entry.floor, entry.was_aggregated) {
                entry.doubtful = !version.reached(floor);
                waits |= entry.doubtful;
            }
        }
        waits
    }

    /// Ends the doubt in kinds that are not served, where the store has come as far by now as they were seen.
    pub(in crate::leader) fn trust_unserved(&mut self, version: &ResourceVersion) {
        for id in self.coverage.ids() {
            let entry = self.coverage.kind_mut(id);
            if let (None, Some(floor)) = (&entry.served, &entry.floor) {
                entry.doubtful &= !version.reached(floor);
            }
        }
    }

    /// A collection on which a decision about this node rests, and that has to say first where it stands. Which collections have shown all
    /// dependents of an owner is asked when the owner is judged.
    pub(in crate::leader) fn rests_on_doubt(&self, id: NodeId) -> Option<KindId> {
        let node = self.graph.node(id);
        let kinds = core::iter::once(node.kind()).chain(node.owners().map(|owner| self.graph.node(owner).kind()));
        kinds.into_iter().find(|&kind| self.coverage.kind(kind).is_in_doubt())
    }

    pub(in crate::leader) fn is_any_watched_kind_in_doubt(&self) -> bool {
        self.coverage.served().any(|(_, kind)| kind.is_watched() && kind.is_in_doubt())
    }

    /// Notes that answers about a collection contradict each other: what its lists of single names have proven counts no more.
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
        if let Some(served) = &entry.served {
            cx.event(Event::Inconsistent { collection: served.group_resource.clone(), why });
        }
        if is_fresh {
            self.void_lists(cx, kind);
        }
    }

    /// The store of a collection went back: its collections are listed again, and lower versions are expected of them. `None` where the kind
    /// is not served any more.
    pub(in crate::leader) fn lose_history(&mut self, cx: &mut Context, kind: KindId, why: String) -> Option<Lost> {
        let collection = self.coverage.kind(kind).served.as_ref()?.group_resource.clone();
        let everything = !self.coverage.kind(kind).is_aggregated();
        cx.event(Event::Rewound { collection, why });
        let kinds: Vec<KindId> = self
            .coverage
            .served()
            // Behind an APIService there may be the same store: what is kept elsewhere is only listed once more.
            .filter(|&(id, other)| other.is_watched() && (id == kind || everything))
            .map(|(id, _)| id)
            .collect();
        for &id in &kinds {
            self.relist(cx, id, "the store's history changed");
        }
        // What is not served now may be again: it is of the other history too.
        for id in self.coverage.ids() {
            let entry = self.coverage.kind_mut(id);
            if id == kind || everything {
                // A collection that is only asked has no list that a new one replaces.
                entry.rewound = (entry.served.is_none() || entry.is_watched()).then_some(entry.list);
                entry.high = None;
                entry.floor = None;
                entry.doubtful = false;
            }
        }
        if everything {
            self.coverage.forget_main_store();
        }
        Some(Lost { kinds, everything })
    }

    /// What was concluded from the lost history is void, and every node is judged again.
    pub(in crate::leader) fn void_history(&mut self, cx: &mut Context, lost: &Lost) {
        self.emptied.clear();
        self.remember_former(cx);
        self.former.lose(cx.now);
        self.graph.lose_orphaned();
        for (id, told) in self.graph.iter().map(|(id, node)| (id, node.is_told())).collect::<Vec<_>>() {
            let of = self.graph.node(id).kind();
            if told && (lost.everything || lost.kinds.contains(&of)) {
                self.inquiries.remove(&id);
                self.graph.set_unobserved(id, Presence::Virtual { unreadable: false });
                self.mark_dependents(id);
            }
            self.mark(id);
        }
    }

    /// Nodes of kinds that are known from a lost history alone, because nothing serves them now.
    pub(in crate::leader) fn of_lost_kinds(&self) -> Vec<NodeId> {
        let is_lost = |id: &KindId| {
            let kind = self.coverage.kind(*id);
            kind.served.is_none() && kind.rewound.is_some()
        };
        self.coverage.ids().filter(is_lost).flat_map(|kind| self.nodes_of(kind)).collect()
    }
}
