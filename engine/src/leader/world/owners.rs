//! Owners that no collection shows: what is asked about them, and what the answers come to.

use super::World;
use crate::coverage::KindId;
use crate::evidence::{Absence, Ground, Inquiry, Step};
use crate::graph::{NodeId, Presence};
use crate::leader::context::Context;
use crate::leader::{CheckBy, Timer};
use crate::object::{Access, ResourceVersion};
use crate::work::Sighting;

impl World {
    /// Begins an inquiry about an owner, or goes on with it. True if its time has come; otherwise a timer is set.
    pub(in crate::leader) fn inquire(&mut self, cx: &mut Context, id: NodeId, access: Access) -> bool {
        let new = Inquiry::new(cx.now);
        // Only a watched collection will show its owner by itself in a moment.
        let new = if access == Access::Watched { new } else { new.at_once(cx.now) };
        let at = self.inquiries.entry(id).or_insert(new).not_before;
        if cx.now < at {
            cx.timers.set(at, Timer::Inquiry(id));
        }
        cx.now >= at
    }

    /// Begins an inquiry anew, without waiting for the collection.
    pub(in crate::leader) fn inquire_at_once(&mut self, cx: &Context, id: NodeId) {
        self.inquiries.insert(id, Inquiry::new(cx.now).at_once(cx.now));
    }

    /// Begins an inquiry anew after a DELETED that proves nothing by itself.
    pub(in crate::leader) fn inquire_after_deleted(&mut self, cx: &Context, id: NodeId, version: ResourceVersion) {
        self.inquiries.insert(id, Inquiry::after_deleted(cx.now, version));
        self.mark(id);
    }

    /// An executor has missed an owner: its inquiry waits no longer.
    pub(in crate::leader) fn hurry(&mut self, cx: &Context, id: NodeId) {
        self.inquiries.entry(id).or_insert_with(|| Inquiry::new(cx.now)).hurry(cx.now);
        self.mark(id);
    }

    pub(in crate::leader) fn end_inquiry(&mut self, id: NodeId) {
        self.inquiries.remove(&id);
    }

    /// The next step of an inquiry.
    pub(in crate::leader) fn step(&self, kind: KindId, id: NodeId) -> Option<Step> {
        Some(self.inquiries.get(&id)?.next(self.ground(kind)?))
    }

    /// What is known of a kind whose objects are asked for.
    fn ground(&self, kind: KindId) -> Option<Ground<'_>> {
        let entry = self.coverage.kind(kind);
        let contradictions = entry.contradiction.as_ref().map_or(0, |contradiction| contradiction.count);
        Some(Ground { kind: entry.served.as_ref()?, listed: entry.is_listed(), contradictions })
    }

    /// Takes in an answer at `at` that shows an owner. Gives the version of an earlier list that did not show it.
    pub(in crate::leader) fn shown(
        &mut self,
        cx: &Context,
        id: NodeId,
        sighting: &Sighting,
        at: &ResourceVersion,
    ) -> Option<ResourceVersion> {
        let changed = self.graph.node(id).facts().as_ref() != Some(&sighting.facts);
        let (facts, position) = (sighting.facts.clone(), sighting.resource_version.clone());
        self.is_not_empty(self.graph.node(id).kind());
        self.graph.set_unobserved(id, Presence::Read { facts, position });
        let lacked = self.inquiries.entry(id).or_insert_with(|| Inquiry::new(cx.now)).found(cx.now, at);
        self.mark(id);
        if changed {
            self.mark_dependents(id);
        }
        lacked
    }

    /// Takes in an answer that does not show an owner. `None` where the inquiry has begun anew since it was asked for.
    pub(in crate::leader) fn missed(
        &mut self,
        cx: &Context,
        id: NodeId,
        by: CheckBy,
        version: Option<&ResourceVersion>,
    ) -> Option<Absence> {
        let entry = self.coverage.kind(self.graph.node(id).kind());
        let contradictions = entry.contradiction.as_ref().map_or(0, |contradiction| contradiction.count);
        let ground = Ground { kind: entry.served.as_ref()?, listed: entry.is_listed(), contradictions };
        let inquiry = self.inquiries.entry(id).or_insert_with(|| Inquiry::new(cx.now));
        (inquiry.next(ground).by == by).then(|| inquiry.absent(cx.now, ground, version))
    }
}
