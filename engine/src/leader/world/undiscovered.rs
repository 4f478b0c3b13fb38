//! Kinds that exist and that discovery does not show, for example because an aggregated server was down at the start or
//! because discovery lags behind a definition. Their objects may be dependents, so a hidden kind holds the same
//! deletions as a failed collection.

use super::super::Undiscovered;
use super::super::context::Context;
use super::World;
use crate::time::Time;
use crate::view::*;
use alloc::string::ToString;
use alloc::vec::Vec;

impl World {
    /// Returns the hidden kinds that the policy does not exempt, each with the time since which it is hidden.
    pub(in crate::leader) fn hidden_kinds(&self, cx: &Context) -> impl Iterator<Item = (&Undiscovered, Time)> {
        let policy = &cx.config.policy;
        let holds = |entry: &Undiscovered| !policy.assumes_no_dependents(&entry.group, entry.resource.as_deref());
        self.undiscovered.values().filter(move |(entry, _)| holds(entry)).map(|(entry, since)| (entry, *since))
    }

    /// Returns whether a kind that discovery does not show may contain dependents.
    pub(in crate::leader) fn is_any_kind_hidden(&self, cx: &Context) -> bool {
        self.hidden_kinds(cx).next().is_some()
    }

    /// Returns the hidden kinds for readers.
    pub(in crate::leader) fn hidden_views(&self, cx: &Context) -> Vec<Unseen> {
        let view =
            |(entry, since): (&Undiscovered, Time)| Unseen { what: entry.to_string(), why: entry.why.clone(), since };
        self.hidden_kinds(cx).map(view).collect()
    }

    /// Replaces the set of hidden kinds. Returns true if the set changed.
    pub(in crate::leader) fn set_undiscovered(&mut self, now: Time, all: Vec<Undiscovered>) -> bool {
        let before = core::mem::take(&mut self.undiscovered);
        for entry in all {
            let key = (entry.group.clone(), entry.resource.clone());
            let since = before.get(&key).map_or(now, |(_, since)| *since);
            self.undiscovered.insert(key, (entry, since));
        }
        !self.undiscovered.keys().eq(before.keys())
    }
}
