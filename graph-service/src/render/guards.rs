//! Kubernetes Events about guards, while this replica leads.

use crate::warnings::{About, Warning};
use engine::guard::{GuardId, GuardKind, HeldBy};
use engine::leader::Event;
use engine::object::{ObjectRef, Uid};
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of cascades whose first held object has an Event. Then all are forgotten, and may have a second
/// Event.
const CASCADES_MAX: usize = 1000;

/// The guards that the leader applies, and the cascades whose hold an Event has reported.
#[derive(Debug, Default)]
pub(super) struct Guards {
    leads: bool,
    known: BTreeMap<GuardId, (Uid, String)>,
    told: BTreeSet<(Uid, Option<GuardId>)>,
}

impl Guards {
    /// The Events that follow from an event of the engine.
    #[expect(clippy::wildcard_enum_match_arm, reason = "few events are about guards")]
    pub(super) fn events(&mut self, event: &Event) -> Option<Warning> {
        match event {
            Event::TermGained(_) => self.leads = true,
            Event::TermLost => {
                self.leads = false;
                self.told.clear();
            }
            Event::GuardTaken { id, uid, reason, .. } => {
                self.known.insert(id.clone(), (uid.clone(), reason.clone()));
            }
            Event::GuardEffective { id } => {
                return self.about(id, "Effective", false, "No write in its scope is under way");
            }
            Event::GuardEnded { id, why } => {
                let ended = self.about(id, "Ended", false, &format!("It holds nothing any more: {why}"));
                self.known.remove(id);
                return ended;
            }
            Event::BudgetExceeded { id, collection, count } => {
                let message = format!("{count} deletions in its window; further {collection} wait");
                return self.about(id, "Exceeded", true, &message);
            }
            Event::ApprovalNeeded { id, root, extent } => {
                let (objects, digest) = (extent.objects, extent.digest);
                let message = format!("{root} takes {objects} objects and waits for approval of digest {digest:016x}");
                return self.about(id, "ApprovalNeeded", true, &message);
            }
            Event::Approved { id, root, actor, digest } => {
                let message = format!("{actor} approved {root}, digest {digest:016x}");
                return self.about(id, "Approved", false, &message);
            }
            Event::GateBypassed { id, reason, actor, .. } => {
                let by = if actor.is_empty() { "" } else { " by " };
                let message = format!("It is bypassed{by}{actor}: {reason}");
                return self.about(id, "Bypassed", true, &message);
            }
            Event::Held { target, by: Some(HeldBy::Guard(id)), grounds, .. } => {
                return self.held(target, id, grounds.chain.last());
            }
            _ => {}
        }
        None
    }

    fn about(&self, id: &GuardId, reason: &'static str, is_warning: bool, message: &str) -> Option<Warning> {
        let (uid, why) = self.known.get(id).filter(|_| self.leads)?;
        let object = ObjectRef {
            group: engine::hold::GROUP.into(),
            version: "v1alpha1".into(),
            resource: id.kind.plural().into(),
            kind: id.kind.as_kind().into(),
            namespace: "".into(),
            name: id.name.clone(),
            uid: uid.clone(),
        };
        let message = format!("{message} ({why})");
        Some(Warning::About(About { object, reason, is_warning, message }))
    }

    /// The first held object of a cascade has an Event.
    fn held(&mut self, target: &ObjectRef, by: &GuardId, root: Option<&ObjectRef>) -> Option<Warning> {
        let cascade = (root.unwrap_or(target).uid.clone(), Some(by.clone()));
        if self.told.len() >= CASCADES_MAX {
            self.told.clear();
        }
        if !self.leads || !self.told.insert(cascade) {
            return None;
        }
        let why = self.known.get(by).map_or("", |(_, why)| why.as_str());
        let more =
            if by.kind == GuardKind::Pause { "" } else { "; `ownergraph why` names the command that releases it" };
        let message = format!(
            "The garbage collector holds the deletion of this object, and of others of its cascade: {by}: {why}{more}"
        );
        Some(Warning::About(About { object: target.clone(), reason: "DeletionHeld", is_warning: true, message }))
    }
}
