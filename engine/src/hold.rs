//! What keeps decided work from being granted: pauses, each with its scope and its end.

use crate::coverage::Coverage;
use crate::object::{GroupResource, Name, ResourceVersion, Uid};
use crate::time::Time;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;
use meaning::Meaning;

pub(crate) mod meaning;
#[cfg(test)]
mod tests;

/// Most pauses that are kept apart. Beyond that everything is held until there are fewer.
pub const PAUSES_MAX: usize = 1000;
/// The API group of our own resources, which no pause holds.
pub const GROUP: &str = "ownergraph.dev";

/// A pause, as its resource shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pause {
    /// `metadata.name`.
    pub name: Name,
    pub uid: Uid,
    pub resource_version: ResourceVersion,
    pub scope: Scope,
    /// For people.
    pub reason: String,
    /// Who pressed it, as far as its resource says; empty if it does not.
    pub actor: String,
    /// When it was written, as a time after 1970, for people: the engine does not read it.
    pub created: Duration,
    /// How long it lasts from then on.
    pub lifetime: Duration,
    /// How much of that has passed, as far as whoever shows it can tell; counts only when the pause is first seen.
    pub elapsed: Duration,
    /// What is wrong with the resource; empty if nothing is.
    pub problem: String,
}

/// What a pause is about: whatever one of the filters covers; everything where there is none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scope {
    pub targets: Vec<Filter>,
}

/// Conditions that all have to be met; an empty one is met by everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    pub resources: Vec<GroupResource>,
    /// Cluster-scoped objects are in none.
    pub namespaces: Vec<Name>,
}

/// Where the target of a write is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) collection: GroupResource,
    pub(crate) namespace: Name,
}

impl Scope {
    /// Whether a write there is in scope.
    pub fn covers(&self, group: &str, resource: &str, namespace: &str) -> bool {
        self.targets.is_empty() || self.targets.iter().any(|filter| filter.covers(group, resource, namespace))
    }

    pub(crate) fn covers_place(&self, place: &Place) -> bool {
        self.covers(&place.collection.group, &place.collection.resource, &place.namespace)
    }
}

impl Filter {
    fn covers(&self, group: &str, resource: &str, namespace: &str) -> bool {
        let collection = |known: &GroupResource| *known.group == *group && *known.resource == *resource;
        (self.resources.is_empty() || self.resources.iter().any(collection))
            && (self.namespaces.is_empty() || self.namespaces.iter().any(|known| **known == *namespace))
    }
}

/// Whether no hold applies to objects of this collection, whatever is done to them: leases, and our own objects.
pub(crate) fn is_exempt(group: &str, resource: &str) -> bool {
    group == GROUP || (group == "coordination.k8s.io" && resource == "leases")
}

/// What holds an item.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Hold {
    /// Which pauses there are is not known.
    Unknown,
    /// There are more pauses than can be kept apart.
    TooMany,
    Pause(Name),
}

/// One pause with what follows from it here.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) pause: Pause,
    /// What its scope means.
    pub(crate) meaning: Meaning,
    /// Its end.
    pub(crate) until: Time,
    pub(crate) over: bool,
    /// No write in its scope can be sent any more, or be on its way.
    pub(crate) effective: bool,
}

/// All that holds.
#[derive(Debug, Default)]
pub(crate) struct Holds {
    unknown: bool,
    too_many: bool,
    pauses: BTreeMap<Name, Entry>,
}

/// What became of a pause that was shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    New,
    /// Its scope is another one now.
    Rescoped,
    /// Its end is another one now.
    Moved,
    /// Nothing that counts.
    Same,
    /// There are too many.
    NoRoom,
}

impl Holds {
    pub(crate) fn get(&self, name: &str) -> Option<&Entry> {
        self.pauses.get(name)
    }

    pub(crate) fn get_mut(&mut self, name: &str) -> Option<&mut Entry> {
        self.pauses.get_mut(name)
    }

    /// All pauses by name, those that are over included.
    pub(crate) fn pauses(&self) -> impl Iterator<Item = &Entry> {
        self.pauses.values()
    }

    pub(crate) fn is_unknown(&self) -> bool {
        self.unknown
    }

    pub(crate) fn has_too_many(&self) -> bool {
        self.too_many
    }

    /// What holds a destructive write there: the first by name, where several do.
    pub(crate) fn find(&self, group: &str, resource: &str, namespace: &str) -> Option<Hold> {
        if is_exempt(group, resource) {
            return None;
        }
        let covers = |entry: &&Entry| !entry.over && entry.meaning.scope.covers(group, resource, namespace);
        if let Some(entry) = self.pauses.values().find(covers) {
            return Some(Hold::Pause(entry.pause.name.clone()));
        }
        match (self.unknown, self.too_many) {
            (true, _) => Some(Hold::Unknown),
            (false, true) => Some(Hold::TooMany),
            (false, false) => None,
        }
    }

    /// Whether anybody has pressed pause for a write there. Not knowing is another matter: it grants nothing, and stops nothing.
    pub(crate) fn is_pressed(&self, place: &Place) -> bool {
        self.too_many || self.pauses.values().any(|entry| !entry.over && entry.meaning.scope.covers_place(place))
    }

    /// The same for any write.
    pub(crate) fn are_pressed(&self) -> bool {
        self.too_many || self.pauses.values().any(|entry| !entry.over)
    }

    /// The versions seen so far say nothing about those to come.
    pub(crate) fn forget_versions(&mut self) {
        for entry in self.pauses.values_mut() {
            entry.pause.resource_version = ResourceVersion::parse("");
        }
    }

    /// True if that changed anything.
    pub(crate) fn set_unknown(&mut self, unknown: bool) -> bool {
        core::mem::replace(&mut self.unknown, unknown) != unknown
    }

    /// True if that changed anything.
    pub(crate) fn set_too_many(&mut self, too_many: bool) -> bool {
        core::mem::replace(&mut self.too_many, too_many) != too_many
    }

    /// Takes a pause as it is now; an older state of the same pause counts for nothing.
    pub(crate) fn take(&mut self, now: Time, pause: Pause, coverage: &Coverage) -> Taken {
        if let Some(entry) = self.pauses.get_mut(&pause.name).filter(|entry| entry.pause.uid == pause.uid) {
            if pause.resource_version.is_before(&entry.pause.resource_version) {
                return Taken::Same;
            }
            return entry.change(now, pause, coverage);
        }
        if self.pauses.len() >= PAUSES_MAX && !self.pauses.contains_key(&pause.name) {
            return Taken::NoRoom;
        }
        let until = now + pause.lifetime.saturating_sub(pause.elapsed);
        let over = until <= now;
        let meaning = Meaning::of(&pause.scope, coverage);
        self.pauses.insert(pause.name.clone(), Entry { pause, meaning, until, over, effective: false });
        if over { Taken::Same } else { Taken::New }
    }

    /// Forgets a pause that is gone; one that came after it under its name stays. Gives it if it was there.
    pub(crate) fn remove(&mut self, name: &str, uid: &Uid) -> Option<Entry> {
        if self.pauses.get(name).is_none_or(|entry| entry.pause.uid != *uid) {
            return None;
        }
        self.pauses.remove(name)
    }

    /// What is served has changed: gives the pauses whose scope means something else now.
    pub(crate) fn read_again(&mut self, coverage: &Coverage) -> Vec<Name> {
        let mut changed = Vec::new();
        for entry in self.pauses.values_mut().filter(|entry| !entry.over) {
            let meaning = entry.meaning.again(&entry.pause.scope, coverage);
            let before = core::mem::replace(&mut entry.meaning, meaning);
            if before.scope != entry.meaning.scope {
                entry.effective = false;
                changed.push(entry.pause.name.clone());
            }
        }
        changed
    }

    /// Whatever was effective has to be found out anew.
    pub(crate) fn reset_effective(&mut self) {
        for entry in self.pauses.values_mut() {
            entry.effective = false;
        }
    }
}

impl Entry {
    /// What is wrong with it; empty if nothing is.
    pub(crate) fn problem(&self) -> String {
        let problems = [self.pause.problem.clone(), self.meaning.problem()];
        let problems: Vec<String> = problems.into_iter().filter(|problem| !problem.is_empty()).collect();
        problems.join("; ")
    }

    fn change(&mut self, now: Time, pause: Pause, coverage: &Coverage) -> Taken {
        let (scope, lifetime) = (self.pause.scope != pause.scope, self.pause.lifetime != pause.lifetime);
        if lifetime {
            // From the same beginning, which may lie before the clock's origin.
            let left = self.until.since_origin() + pause.lifetime;
            self.until = Time::from_origin(left.saturating_sub(self.pause.lifetime));
        }
        self.pause = pause;
        if scope {
            self.meaning = Meaning::of(&self.pause.scope, coverage);
        }
        if self.until <= now {
            // The end that it has now has passed: whoever waits for the old one finds that out.
            return if self.over { Taken::Same } else { Taken::Moved };
        }
        match (core::mem::replace(&mut self.over, false), scope, lifetime) {
            (true, _, _) => {
                self.effective = false;
                Taken::New
            }
            (false, true, _) => {
                self.effective = false;
                Taken::Rescoped
            }
            (false, false, true) => Taken::Moved,
            (false, false, false) => Taken::Same,
        }
    }
}
