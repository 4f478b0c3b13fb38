//! Owners that no collection shows: the inquiries about them, and the conclusions from the answers.

use super::World;
use crate::coverage::{Coverage, KindId};
use crate::evidence::{Absence, Ground, Inquiry, Step};
use crate::graph::NodeId;
use crate::leader::context::Context;
use crate::leader::{CheckBy, Timer};
use crate::object::{Access, ResourceVersion};
use crate::work::Sighting;

impl World {
    /// Starts or continues an inquiry about an owner. Returns true if the next question is due; otherwise sets a timer.
    pub(in crate::leader) fn inquire(&mut self, cx: &mut Context, id: NodeId, access: Access) -> bool {
        let new = Inquiry::new(cx.now);
        // Only a watched collection shows the owner without a question.
        let new = if access == Access::Watched { new } else { new.at_once(cx.now) };
        let at = self.inquiries.entry(id).or_insert(new).not_before;
        if cx.now < at {
            cx.timers.set(at, Timer::Inquiry(id));
        }
        cx.now >= at
    }

    /// Restarts an inquiry without waiting for the collection.
    pub(in crate::leader) fn inquire_at_once(&mut self, cx: &Context, id: NodeId) {
        self.inquiries.insert(id, Inquiry::new(cx.now).at_once(cx.now));
    }

    /// Restarts an inquiry after a DELETED event that proves nothing by itself.
    pub(in crate::leader) fn inquire_after_deleted(&mut self, cx: &Context, id: NodeId, version: ResourceVersion) {
        self.inquiries.insert(id, Inquiry::after_deleted(cx.now, version));
        self.mark(id);
    }

    /// Makes an inquiry due immediately, because an executor did not find the owner.
    pub(in crate::leader) fn hurry(&mut self, cx: &Context, id: NodeId) {
        self.inquiries.entry(id).or_insert_with(|| Inquiry::new(cx.now)).hurry(cx.now);
        self.mark(id);
    }

    pub(in crate::leader) fn end_inquiry(&mut self, id: NodeId) {
        self.inquiries.remove(&id);
    }

    /// Returns the next step of an inquiry.
    pub(in crate::leader) fn step(&self, kind: KindId, id: NodeId) -> Option<Step> {
        Some(self.inquiries.get(&id)?.next(ground(&self.coverage, kind)?))
    }

    /// Handles an answer at version `at` that shows an owner. Returns the version of an earlier list that did not show
    /// the owner.
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
        self.graph.set_read(id, facts, position);
        let lacked = self.inquiries.entry(id).or_insert_with(|| Inquiry::new(cx.now)).found(cx.now, at);
        self.mark(id);
        if changed {
            self.mark_dependents(id);
        }
        lacked
    }

    /// Handles an answer that does not show an owner. Returns `None` if the inquiry restarted after the question was
    /// sent.
    pub(in crate::leader) fn missed(
        &mut self,
        cx: &Context,
        id: NodeId,
        by: CheckBy,
        version: Option<&ResourceVersion>,
    ) -> Option<Absence> {
        let ground = ground(&self.coverage, self.graph.node(id).kind())?;
        let inquiry = self.inquiries.entry(id).or_insert_with(|| Inquiry::new(cx.now));
        (inquiry.next(ground).by == by).then(|| inquiry.absent(cx.now, ground, version))
    }
}

/// Returns the facts about a kind that an inquiry about one of its objects depends on. Returns `None` if the kind is
/// not served.
fn ground(coverage: &Coverage, kind: KindId) -> Option<Ground<'_>> {
    let entry = coverage.kind(kind);
    let contradictions = entry.contradiction.as_ref().map_or(0, |contradiction| contradiction.count);
    Some(Ground { kind: entry.served()?, listed: entry.is_listed(), contradictions })
}
