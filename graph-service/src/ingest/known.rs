//! The kinds that the API server is known to serve, and the changes by a new view.
//!
//! Additions count at once. A removal counts only after two fresh and complete views without the resource, some time
//! apart, or after the deletion of its definition. The reason is that a restarting server shows fewer kinds than it
//! serves for a while.

use super::discovery::View;
use engine::leader::Undiscovered;
use engine::object::{Access, GroupResource, Name, ServedKind, Uid};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::time::Instant;

#[cfg(test)]
mod tests;

/// Time for which successive views must lack a resource before it counts as gone.
pub(crate) const CONFIRM_AFTER: Duration = Duration::from_secs(10);

/// The content of the definitions, besides discovery.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Declared {
    /// Resources with a custom resource definition, and its uid. These resources exist, even if discovery lacks them.
    pub(crate) custom: BTreeMap<GroupResource, Uid>,
    /// Resources whose custom resource definition was deleted and has not returned.
    pub(crate) deleted: BTreeSet<GroupResource>,
    /// Group versions whose APIService was deleted and has not returned.
    pub(crate) withdrawn: BTreeSet<(Name, Name)>,
}

impl Declared {
    fn confirms_loss(&self, kind: &ServedKind) -> bool {
        let group_version = (kind.group_resource.group.clone(), kind.version.clone());
        self.deleted.contains(&kind.group_resource) || self.withdrawn.contains(&group_version)
    }
}

/// Consequences of a new view, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// End the collection's task at once, because the kind is served but no longer watched.
    Stop(GroupResource),
    /// Tell the engine about a served kind.
    Served(ServedKind),
    /// Let the collection's task read the rest of its watch, then notify the engine that the kind is no longer served.
    Unserved(GroupResource),
    /// Start the collection's task.
    Start(ServedKind),
    /// End the collection's task, if it runs, and start it again.
    Restart(ServedKind),
}

/// The last good view, merged over time.
#[derive(Debug, Default)]
pub(crate) struct Known {
    kinds: BTreeMap<GroupResource, Entry>,
    /// Group versions that were shown once and still exist. Their kinds are in `kinds`.
    versions: BTreeSet<(Name, Name)>,
}

#[derive(Debug)]
struct Entry {
    served: ServedKind,
    /// The uid of the last known definition.
    definition: Option<Uid>,
    missing_since: Option<Instant>,
}

impl Known {
    /// Every kind, by group and resource.
    pub(crate) fn kinds(&self) -> impl Iterator<Item = &ServedKind> {
        self.kinds.values().map(|entry| &entry.served)
    }

    pub(crate) fn get(&self, collection: &GroupResource) -> Option<&ServedKind> {
        self.kinds.get(collection).map(|entry| &entry.served)
    }

    /// Whether a missing resource needs the next view as confirmation.
    pub(crate) fn awaits_confirmation(&self) -> bool {
        self.kinds.values().any(|entry| entry.missing_since.is_some())
    }

    /// Groups and resources that exist and are neither in this view (already absorbed) nor known from an earlier one,
    /// by group and resource.
    pub(crate) fn undiscovered(
        &self,
        view: &View,
        declared: &Declared,
        ignored: &BTreeSet<GroupResource>,
    ) -> Vec<Undiscovered> {
        let has_kind_of = |group: &Name| self.kinds.keys().any(|key| key.group == *group);
        let is_known =
            |of: &(Name, Name)| if of.1.is_empty() { has_kind_of(&of.0) } else { self.versions.contains(of) };
        let mut groups: BTreeMap<&Name, &String> = BTreeMap::new();
        for (of, why) in view.blank.iter().filter(|(of, _)| !is_known(of)) {
            groups.entry(&of.0).or_insert(why);
        }
        let groups = groups.into_iter().map(|(group, why)| (group.clone(), None, why.clone()));
        let customs = declared.custom.keys().filter(|key| !self.kinds.contains_key(key) && !ignored.contains(key));
        let why = "it lags behind the custom resource definition";
        let customs = customs.map(|key| (key.group.clone(), Some(key.resource.clone()), why.to_owned()));
        let entry = |(group, resource, why)| Undiscovered { group, resource, why };
        groups.chain(customs).map(entry).collect()
    }

    /// Absorbs a view. All new kinds are served before any task starts.
    pub(crate) fn absorb(&mut self, view: &View, declared: &Declared, now: Instant) -> Vec<Change> {
        let mut changes = Vec::new();
        self.versions.retain(|of| view.blank.contains_key(of));
        self.versions.extend(view.shown.iter().cloned());
        // A version that was never seen may serve the same resource from another server.
        let unseen: BTreeSet<&Name> =
            view.blank.keys().filter(|of| !self.versions.contains(of)).map(|(group, _)| group).collect();
        let of_view = |new: &ServedKind| {
            let split = new.split || unseen.contains(&new.group_resource.group);
            ServedKind { split, ..new.clone() }
        };
        let known: Vec<GroupResource> = self.kinds.keys().cloned().collect();
        for key in known {
            let suspect = view.incomplete.is_some() || view.suspects.contains_key(&key.group);
            let Some(entry) = self.kinds.get_mut(&key) else { continue };
            match view.kinds.get(&key) {
                Some(new) => {
                    entry.meet(&of_view(new), view.suspects.contains_key(&key.group), declared, now, &mut changes)
                }
                None if suspect || declared.custom.contains_key(&key) => entry.missing_since = None,
                None => {
                    if entry.is_gone(declared, now) {
                        changes.push(Change::Unserved(key.clone()));
                        self.kinds.remove(&key);
                    }
                }
            }
        }
        for (key, new) in &view.kinds {
            if !self.kinds.contains_key(key) {
                let served = of_view(new);
                changes.push(Change::Served(served.clone()));
                if served.access == Access::Watched {
                    changes.push(Change::Start(served.clone()));
                }
                let definition = declared.custom.get(key).cloned();
                self.kinds.insert(key.clone(), Entry { served, definition, missing_since: None });
            }
        }
        // The sort is stable. A reader that asks about all kinds must know all of them before the first kind has an
        // answer.
        changes.sort_by_key(|change| matches!(change, Change::Start(_)));
        changes
    }
}

impl Entry {
    /// The view contains the resource.
    fn meet(&mut self, new: &ServedKind, suspect: bool, declared: &Declared, now: Instant, changes: &mut Vec<Change>) {
        let definition = declared.custom.get(&new.group_resource);
        let recreated = matches!((&self.definition, definition), (Some(old), Some(new)) if old != new);
        if definition.is_some() {
            self.definition = definition.cloned();
        }
        // The enum is ordered from full access to least.
        let keeps = suspect || (new.access > self.served.access && !self.is_gone(declared, now));
        if keeps {
            if suspect {
                self.missing_since = None;
            }
            // Doubt about the versions counts at once.
            let splits = new.split && !self.served.split;
            self.served.split |= splits;
            if recreated || splits {
                changes.push(Change::Served(self.served.clone()));
            }
            if recreated && self.served.access == Access::Watched {
                changes.push(Change::Restart(self.served.clone()));
            }
            return;
        }
        self.missing_since = None;
        let old = std::mem::replace(&mut self.served, new.clone());
        let collected = (old.access == Access::Watched, new.access == Access::Watched);
        if collected == (true, false) {
            changes.push(Change::Stop(new.group_resource.clone()));
        }
        // A new definition of the same name invalidates the facts about the objects of the old one.
        if old != *new || recreated {
            changes.push(Change::Served(new.clone()));
        }
        let moved = old.version != new.version || old.namespaced != new.namespaced || old.kind != new.kind;
        if collected == (false, true) {
            changes.push(Change::Start(new.clone()));
        } else if collected == (true, true) && (moved || recreated) {
            changes.push(Change::Restart(new.clone()));
        }
    }

    /// Counts one more view without the resource.
    fn is_gone(&mut self, declared: &Declared, now: Instant) -> bool {
        if declared.confirms_loss(&self.served) {
            return true;
        }
        let since = *self.missing_since.get_or_insert(now);
        now.duration_since(since) >= CONFIRM_AFTER
    }
}
