//! Queries for guards and for the items that they hold.

use super::super::marking;
use super::Queries;
use crate::guard::{GuardId, GuardKind};
use crate::hold::meaning::resolved;
use crate::hold::{Entry, GUARDS_MAX, Hold};
use crate::late_writes::Writers;
use crate::object::{GroupResource, HOLD_ANNOTATION, Name, ObjectRef};
use crate::plan::Brake;
use crate::queue::Item;
use crate::scope::{OwnerScope, Scope};
use crate::view::GuardView;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

impl Queries<'_> {
    /// Returns all guards by kind and name, including ended ones.
    pub fn guards(&self) -> Vec<GuardView> {
        let view = |entry: &Entry| {
            let writers =
                if entry.effective || entry.over { Writers::default() } else { self.leader.dispatcher.writers(entry) };
            let guard = &entry.guard;
            GuardView {
                id: guard.id.clone(),
                uid: guard.uid.clone(),
                generation: guard.generation,
                scope: entry.meaning.scope.clone(),
                rule: guard.rule.clone(),
                reason: guard.reason.clone(),
                actor: guard.actor.clone(),
                created: guard.created,
                lifetime: guard.lifetime,
                until: entry.until,
                over: entry.over,
                effective: entry.effective && !entry.over && self.cx().term.is_some(),
                sessions_remaining: if self.cx().term.is_some() { writers.count() } else { 0 },
                pending: if entry.effective || entry.over { String::new() } else { self.pending(entry, &writers) },
                held: self.queue().held_by(&Hold::Guard(guard.id.clone())).len(),
                problem: entry.problem(),
                known: self.cx().term.is_some() && !self.queue().holds().is_unknown(guard.id.kind),
                usage: self.leader.consent.usage(&guard.id, &guard.rule),
            }
        };
        self.queue().holds().guards().map(view).collect()
    }

    /// Returns the guards of this kind.
    pub fn guards_of(&self, kind: GuardKind) -> Vec<GuardView> {
        let mut guards = self.guards();
        guards.retain(|view| view.id.kind == kind);
        guards
    }

    /// Returns why all destructive actions are held regardless of the scopes of guards, if they are.
    pub(super) fn guards_unknown(&self) -> Option<String> {
        self.queue().holds().blind().map(|hold| self.hold_text(&hold))
    }

    /// Returns all holds on an item whose state is this hold, that hold first.
    pub(super) fn all_holds(&self, target: &ObjectRef, state: &Hold) -> Vec<Hold> {
        let others = self.leader.holding().on(target).filter(|hold| hold != state);
        core::iter::once(state.clone()).chain(others).collect()
    }

    /// Resolves a requested scope to the names that the API server knows. The error names the part of the scope that
    /// matches nothing, in a sentence.
    pub fn resolve_scope(&self, scope: &Scope) -> Result<Scope, String> {
        let namespaces = GroupResource { group: "".into(), resource: "namespaces".into() };
        let synced = self.coverage().find(&namespaces).filter(|&id| self.coverage().kind(id).is_synced());
        let has_namespace = |name: &Name| {
            synced?;
            let there = self.uids_at("", "Namespace", "", name, 1);
            Some(
                there
                    .iter()
                    .any(|uid| self.world().best_known(uid).is_some_and(|id| self.graph().node(id).is_observed())),
            )
        };
        let has_owner = |owner: &OwnerScope| {
            let kind = self.coverage().find(&owner.resource)?;
            let there = self.graph().by_address(kind, &owner.namespace, &owner.name);
            // Its cascade goes on after the end of an owner, which then needs a uid.
            let is_there = there.map(|id| self.graph().node(id)).any(|node| match &owner.uid {
                None => node.is_observed(),
                Some(uid) => *uid == node.uid() && (node.is_observed() || node.dependent_count() > 0),
            });
            let is_it = |gone: &ObjectRef| {
                gone.group_resource() == owner.resource && gone.namespace == owner.namespace && gone.name == owner.name
            };
            let gone = owner.uid.as_ref().and_then(|uid| self.tombstone(uid));
            let is_there = is_there || gone.is_some_and(|gone| is_it(&gone.object));
            (is_there || self.coverage().kind(kind).is_synced()).then_some(is_there)
        };
        resolved(scope, self.coverage(), has_namespace, has_owner)
    }

    /// Returns the resources that a kind name of a request may mean: see [`Self::resolve_scope`].
    pub fn resources_called(&self, name: &GroupResource) -> Vec<GroupResource> {
        self.coverage().called(name)
    }

    /// Describes the hold of an item for readers: `pauses/NAME: REASON`, or the reason why the guards of a kind are
    /// unknown.
    pub(super) fn hold_text(&self, hold: &Hold) -> String {
        match hold {
            Hold::Guard(id) => {
                let reason = self.queue().holds().get(id).map_or("", |entry| &entry.guard.reason);
                format!("{}/{}: {reason}", id.kind.plural(), id.name)
            }
            Hold::Annotation => format!("annotation {HOLD_ANNOTATION}"),
            Hold::InvalidReference => String::from("an invalid owner reference"),
            Hold::Breaker(collection) => {
                format!("the breaker: many {collection} lost their owners without a deletion that the watch showed")
            }
            Hold::Unknown(kind) => {
                format!("cannot read {} objects: {}", kind.as_kind(), self.leader.guards.of(*kind).doubt())
            }
            Hold::TooMany(kind) => format!("there are more than {GUARDS_MAX} {}; delete some", kind.plural()),
        }
    }

    /// Describes the hold of one item, with what the item waits for.
    pub(super) fn hold_of(&self, item: &Item, hold: &Hold) -> String {
        let text = self.hold_text(hold);
        let Hold::Guard(id) = hold else { return text };
        let waits = self.leader.consent.describe(id, &item.draft.target.uid, item.root());
        if waits.is_empty() { text } else { format!("{text} ({waits})") }
    }

    /// Returns the texts of the holds of destructive actions.
    pub(super) fn brakes(&self) -> BTreeMap<Hold, Brake> {
        let holds = self.queue().holds();
        let standing = holds.standing().map(|entry| (Hold::Guard(entry.guard.id.clone()), entry.until));
        let brake = |(hold, until): (Hold, _)| {
            let words = self.hold_text(&hold);
            let reason = match &hold {
                Hold::Guard(id) => holds.get(id).map_or_else(String::new, |entry| entry.guard.reason.clone()),
                Hold::Annotation | Hold::InvalidReference | Hold::Breaker(_) | Hold::Unknown(_) | Hold::TooMany(_) => {
                    words.clone()
                }
            };
            (hold, Brake { words, reason, until })
        };
        standing.chain(holds.blind().map(|hold| (hold, None))).map(brake).collect()
    }

    fn pending(&self, entry: &Entry, writers: &Writers) -> String {
        if self.cx().term.is_none() {
            return String::from(
                "this replica does not lead; the leader applies the guard as soon as its watch shows it",
            );
        }
        let mut parts = Vec::new();
        if !writers.sessions.is_empty() {
            parts.push(format!(
                "{} executors have not finished attempts that they started before",
                writers.sessions.len()
            ));
        }
        if writers.departed > 0 {
            parts.push(format!("{} executors disconnected without a final report", writers.departed));
        }
        if writers.unanswered > 0 {
            parts.push(String::from("a write that got no answer may be in transit"));
        }
        if writers.earlier_terms {
            parts.push(String::from("executors of an earlier leader may not know the guard"));
        }
        parts.push(marking::pending(entry, self.coverage()));
        parts.retain(|part| !part.is_empty());
        parts.join(", ")
    }
}

/// A count of the objects that each guard covers, in steps.
#[derive(Debug, Default)]
pub struct Coverings {
    next: usize,
    counts: BTreeMap<GuardId, u64>,
}

impl Coverings {
    /// Visits up to `budget` slots of the graph. Returns true after the last slot.
    pub fn step(&mut self, queries: &Queries<'_>, budget: usize) -> bool {
        let (graph, holding) = (queries.graph(), queries.leader.holding());
        let end = graph.places().min(self.next + budget);
        for id in (self.next..end).filter_map(|place| graph.at_place(place)) {
            if !graph.node(id).is_observed() {
                continue;
            }
            let object = queries.world().object_ref(id);
            for entry in holding.holds.guards().filter(|entry| !entry.over && holding.has(entry, &object)) {
                *self.counts.entry(entry.guard.id.clone()).or_default() += 1;
            }
        }
        self.next = end;
        end >= graph.places()
    }

    /// Returns the number of objects that a guard covers.
    pub fn of(&self, id: &GuardId) -> u64 {
        self.counts.get(id).copied().unwrap_or_default()
    }
}
