//! Kinds that are there and that discovery does not show: a server that was down at the start, a definition that discovery lags behind.
//! Their objects may be dependents, so they hold what a collection that fails would hold.

use super::{Leader, Undiscovered};
use crate::time::Time;
use crate::view::Unseen;
use alloc::string::ToString;
use alloc::vec::Vec;

impl Leader {
    /// This, and nothing else, is undiscovered.
    pub(super) fn undiscovered(&mut self, all: Vec<Undiscovered>) {
        let before = core::mem::take(&mut self.world.undiscovered);
        for entry in all {
            let key = (entry.group.clone(), entry.resource.clone());
            let since = before.get(&key).map_or(self.cx.now, |(_, since)| *since);
            self.world.undiscovered.insert(key, (entry, since));
        }
        if !self.world.undiscovered.keys().eq(before.keys()) {
            // A round that ends while they are hidden has not asked them.
            self.restart_barrier();
            self.mark_deletions();
        }
    }

    /// Those that an administrator has not released, with since when they are hidden.
    pub(super) fn hidden_kinds(&self) -> impl Iterator<Item = (&Undiscovered, Time)> {
        let policy = &self.cx.config.policy;
        let holds = |entry: &Undiscovered| !policy.assumes_no_dependents(&entry.group, entry.resource.as_deref());
        self.world.undiscovered.values().filter(move |(entry, _)| holds(entry)).map(|(entry, since)| (entry, *since))
    }

    /// Whether a kind that discovery does not show could hold dependents.
    pub(super) fn is_any_kind_hidden(&self) -> bool {
        self.hidden_kinds().next().is_some()
    }

    /// The same for readers.
    pub(super) fn hidden_views(&self) -> Vec<Unseen> {
        let view =
            |(entry, since): (&Undiscovered, Time)| Unseen { what: entry.to_string(), why: entry.why.clone(), since };
        self.hidden_kinds().map(view).collect()
    }
}
