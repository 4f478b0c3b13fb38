//! The events of the graph service, recorded so that the story can wait for them and print them.

use engine::coverage::State;
use engine::leader::{Cause, Event};
use engine::object::{GroupResource, ObjectRef, Uid};
use engine::work::{ActionKind, Outcome};
use graph_service::Observer;
use std::collections::{BTreeMap, BTreeSet};
use tokio::sync::watch;

/// The limit of recorded moments. The big cascade is shown as numbers only.
const MOMENTS_MAX: usize = 500;

/// All recorded events. The sets are bounded by the number of objects of the demo.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// The moments, in the order in which they happened.
    pub(super) moments: Vec<Moment>,
    /// Objects that left the graph.
    pub(super) gone: BTreeSet<Uid>,
    /// Objects from which the collector removed references.
    pub(super) changed: BTreeSet<Uid>,
    /// Owners proven absent.
    pub(super) proofs: u64,
    /// Executors connected.
    pub(super) executors: usize,
    pub(super) collections: BTreeMap<GroupResource, State>,
    /// Decisions about objects that still exist.
    decisions: BTreeMap<Uid, Vec<Decision>>,
}

/// An event that the story prints.
#[derive(Clone, Debug)]
pub(super) enum Moment {
    /// The object has left the graph, after these decisions.
    Gone { object: ObjectRef, decisions: Vec<Decision> },
    /// The object has lost references.
    Changed { object: ObjectRef, decisions: Vec<Decision> },
    /// A deletion was prevented because the owner was alive.
    Prevented { object: ObjectRef, owner: ObjectRef },
}

/// A decision about an object, with its reason.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Decision {
    pub(super) action: ActionKind,
    pub(super) causes: Vec<Cause>,
}

/// An observer for the graph service, and the ledger that it fills.
pub(super) fn witness() -> (Observer, watch::Receiver<Ledger>) {
    let (ledger, seen) = watch::channel(Ledger::default());
    (Box::new(move |event| ledger.send_modify(|ledger| ledger.note(event))), seen)
}

impl Ledger {
    fn note(&mut self, event: &Event) {
        if let Event::Decided { target, action, causes, .. } = event {
            let decision = Decision { action: *action, causes: causes.clone() };
            let decisions = self.decisions.entry(target.uid.clone()).or_default();
            if decisions.last() != Some(&decision) {
                decisions.push(decision);
            }
        } else if let Event::Attempted { end, .. } = event
            && end.action == ActionKind::RemoveOwnerReferences
            && matches!(end.outcome, Outcome::Done | Outcome::Unchanged)
        {
            let decisions = self.decisions.remove(&end.target.uid).unwrap_or_default();
            self.changed.insert(end.target.uid.clone());
            self.keep(Moment::Changed { object: end.target.clone(), decisions });
        } else if let Event::Removed { object, .. } = event {
            let decisions = self.decisions.remove(&object.uid).unwrap_or_default();
            self.gone.insert(object.uid.clone());
            self.keep(Moment::Gone { object: object.clone(), decisions });
        } else if let Event::Proven { .. } = event {
            self.proofs += 1;
        } else if let Event::Prevented { target, owner } = event {
            self.keep(Moment::Prevented { object: target.clone(), owner: owner.clone() });
        } else if let Event::Collection { collection, state, .. } = event {
            self.collections.insert(collection.clone(), *state);
        } else if let Event::SessionOpened { .. } = event {
            self.executors += 1;
        } else if let Event::SessionEnded { .. } = event {
            self.executors = self.executors.saturating_sub(1);
        }
    }

    fn keep(&mut self, moment: Moment) {
        if self.moments.len() < MOMENTS_MAX {
            self.moments.push(moment);
        }
    }
}
