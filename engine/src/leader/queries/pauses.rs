//! Queries for pauses and for the items that they hold.

use super::Queries;
use crate::hold::Hold;
use crate::hold::meaning::resolved;
use crate::late_writes::Writers;
use crate::object::{GroupResource, Name};
use crate::plan::Brake;
use crate::scope::Scope;
use crate::view::PauseView;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

impl Queries<'_> {
    /// Returns all pauses by name, including ended ones.
    pub fn pauses(&self) -> Vec<PauseView> {
        let view = |entry: &crate::hold::Entry| {
            let writers = if entry.effective || entry.over {
                Writers::default()
            } else {
                self.dispatcher.writers(&entry.meaning.scope)
            };
            PauseView {
                name: entry.pause.name.clone(),
                uid: entry.pause.uid.clone(),
                generation: entry.pause.generation,
                scope: entry.meaning.scope.clone(),
                reason: entry.pause.reason.clone(),
                actor: entry.pause.actor.clone(),
                created: entry.pause.created,
                lifetime: entry.pause.lifetime,
                until: entry.until,
                over: entry.over,
                effective: entry.effective && !entry.over && self.cx.term.is_some(),
                sessions_remaining: if self.cx.term.is_some() { writers.count() } else { 0 },
                pending: if entry.effective || entry.over { String::new() } else { self.pending(&writers) },
                held: self.dispatcher.queue().held_by(&Hold::Pause(entry.pause.name.clone())).len(),
                problem: entry.problem(),
            }
        };
        self.dispatcher.queue().holds().pauses().map(view).collect()
    }

    /// Returns why all destructive actions are held regardless of pauses, if they are.
    pub(super) fn pauses_unknown(&self) -> Option<String> {
        if self.dispatcher.queue().holds().is_unknown() {
            return Some(format!("cannot read Pause objects: {}", self.pauses.doubt()));
        }
        let max = crate::hold::PAUSES_MAX;
        self.dispatcher.queue().holds().has_too_many().then(|| format!("there are more than {max} pauses; delete some"))
    }

    /// Resolves a requested scope to the names that the API server knows. The error names the part of the scope that
    /// matches nothing, in a sentence.
    pub fn resolve_scope(&self, scope: &Scope) -> Result<Scope, String> {
        let namespaces = GroupResource { group: "".into(), resource: "namespaces".into() };
        let synced = self.world.coverage().find(&namespaces).filter(|&id| self.world.coverage().kind(id).is_synced());
        let has_namespace = |name: &Name| {
            synced?;
            let there = self.uids_at("", "Namespace", "", name, 1);
            Some(
                there
                    .iter()
                    .any(|uid| self.world.best_known(uid).is_some_and(|id| self.world.graph().node(id).is_observed())),
            )
        };
        resolved(scope, self.world.coverage(), has_namespace)
    }

    /// Returns the resources that a kind name of a request may mean: see [`Self::resolve_scope`].
    pub fn resources_called(&self, name: &GroupResource) -> Vec<GroupResource> {
        self.world.coverage().called(name)
    }

    /// Describes the hold of an item for readers: `pauses/NAME: REASON`, or the reason why the set of pauses is
    /// unknown.
    pub(super) fn hold_text(&self, hold: &Hold) -> String {
        match hold {
            Hold::Pause(name) => {
                let reason = self.dispatcher.queue().holds().get(name).map_or("", |entry| &entry.pause.reason);
                format!("pauses/{name}: {reason}")
            }
            Hold::Unknown | Hold::TooMany => self.pauses_unknown().unwrap_or_default(),
        }
    }

    /// Returns the holds of destructive actions, ordered by name.
    pub(super) fn brakes(&self) -> Vec<Brake> {
        let standing = self.dispatcher.queue().holds().pauses().filter(|entry| !entry.over);
        let brake = |entry: &crate::hold::Entry| Brake {
            scope: entry.meaning.scope.clone(),
            words: self.hold_text(&Hold::Pause(entry.pause.name.clone())),
            until: Some(entry.until),
        };
        let unknown = self.pauses_unknown().map(|words| Brake { scope: Scope::default(), words, until: None });
        standing.map(brake).chain(unknown).collect()
    }

    fn pending(&self, writers: &Writers) -> String {
        if self.cx.term.is_none() {
            return String::from(
                "this replica does not lead; the leader applies the pause as soon as its watch shows it",
            );
        }
        let mut parts = Vec::new();
        if !writers.sessions.is_empty() {
            parts.push(format!(
                "{} executors have not finished attempts that they started before the pause",
                writers.sessions.len()
            ));
        }
        if writers.departed > 0 {
            parts.push(format!("{} executors disconnected without a final report", writers.departed));
        }
        if writers.earlier_terms {
            parts.push(String::from("executors of an earlier leader may not know the pause"));
        }
        parts.join(", ")
    }
}
