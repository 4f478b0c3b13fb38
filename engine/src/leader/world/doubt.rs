//! Which collections can say where the store stands, and what rests on those that have yet to.

use super::super::Timer;
use super::super::context::Context;
use super::World;
use crate::coverage::{KindId, State};
use crate::evidence::{Inquiry, Proof};
use crate::graph::{self, NodeId, Presence};
use crate::object::ResourceVersion;
use alloc::vec::Vec;
use core::time::Duration;

/// A contradiction counts for so long: proofs take more answers meanwhile.
pub(in crate::leader) const CONTRADICTION_COUNTS: Duration = Duration::from_secs(600);

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
}
