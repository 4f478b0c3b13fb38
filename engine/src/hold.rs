//! Pauses with their scopes and ends, which keep decisions from being granted.

use crate::coverage::Coverage;
use crate::object::{Name, ResourceVersion, Uid};
use crate::scope::{Scope, Target};
use crate::time::Time;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;
use meaning::Meaning;

pub(crate) mod meaning;
#[cfg(test)]
mod tests;

/// Maximum number of distinct pauses. If there are more, everything is held until there are fewer.
pub const PAUSES_MAX: usize = 1000;
/// The API group of Ownergraph's resources. No pause holds them.
pub const GROUP: &str = "ownergraph.dev";

/// A pause, as in its resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pause {
    /// `metadata.name`.
    pub name: Name,
    pub uid: Uid,
    pub resource_version: ResourceVersion,
    /// `metadata.generation`, for people: it grows when the spec changes.
    pub generation: u64,
    pub scope: Scope,
    /// For people.
    pub reason: String,
    /// Who created it, according to its resource; empty if unknown.
    pub actor: String,
    /// Creation time since 1970, for people: the engine does not read it.
    pub created: Duration,
    /// The lifetime from then on.
    pub lifetime: Duration,
    /// The elapsed part of the lifetime, as far as known. It counts only when the pause is first seen.
    pub elapsed: Duration,
    /// An error in the resource; empty if there is none.
    pub problem: String,
}

/// Whether objects of this collection are exempt from all holds: Leases, and Ownergraph's own objects.
pub(crate) fn is_exempt(group: &str, resource: &str) -> bool {
    group == GROUP || (group == "coordination.k8s.io" && resource == "leases")
}

/// The reason why an item is held.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Hold {
    /// Pause objects cannot be read.
    Unknown,
    /// There are too many pauses.
    TooMany,
    Pause(Name),
}

/// A pause with its consequences.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) pause: Pause,
    /// The meaning of its scope.
    pub(crate) meaning: Meaning,
    /// Its end.
    pub(crate) until: Time,
    pub(crate) over: bool,
    /// No write in the pause's scope can still be sent or be in flight.
    pub(crate) effective: bool,
}

/// All holds.
#[derive(Debug, Default)]
pub(crate) struct Holds {
    unknown: bool,
    too_many: bool,
    pauses: BTreeMap<Name, Entry>,
}

/// The result of taking a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    New,
    /// Its scope has changed.
    Rescoped,
    /// Its end has changed.
    Moved,
    /// Nothing relevant has changed.
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

    /// All pauses by name, including expired ones.
    pub(crate) fn pauses(&self) -> impl Iterator<Item = &Entry> {
        self.pauses.values()
    }

    pub(crate) fn is_unknown(&self) -> bool {
        self.unknown
    }

    pub(crate) fn has_too_many(&self) -> bool {
        self.too_many
    }

    /// The hold on a destructive write at a place. If several pauses cover the place, the first one by name.
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

    /// Whether a pause covers a write at this place. If the pauses cannot be read, the answer is false: then nothing is
    /// granted, and started writes are not stopped.
    pub(crate) fn is_pressed(&self, place: &Target) -> bool {
        self.too_many || self.pauses.values().any(|entry| !entry.over && entry.meaning.scope.covers_target(place))
    }

    /// Whether there is any pause.
    pub(crate) fn are_pressed(&self) -> bool {
        self.too_many || self.pauses.values().any(|entry| !entry.over)
    }

    /// Forgets the versions of all pauses. After a rewind they cannot be compared with future versions.
    pub(crate) fn forget_versions(&mut self) {
        for entry in self.pauses.values_mut() {
            entry.pause.resource_version = ResourceVersion::parse("");
        }
    }

    /// True if it changed.
    pub(crate) fn set_unknown(&mut self, unknown: bool) -> bool {
        core::mem::replace(&mut self.unknown, unknown) != unknown
    }

    /// True if it changed.
    pub(crate) fn set_too_many(&mut self, too_many: bool) -> bool {
        core::mem::replace(&mut self.too_many, too_many) != too_many
    }

    /// Takes the current state of a pause. An older state of the same pause is ignored.
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

    /// Forgets a deleted pause, unless a new one has its name. Returns it if it existed.
    pub(crate) fn remove(&mut self, name: &str, uid: &Uid) -> Option<Entry> {
        if self.pauses.get(name).is_none_or(|entry| entry.pause.uid != *uid) {
            return None;
        }
        self.pauses.remove(name)
    }

    /// Resolves the scopes again after the served kinds have changed. Returns the pauses whose scope has another
    /// meaning now.
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

    /// Marks the effect of every pause as unknown.
    pub(crate) fn reset_effective(&mut self) {
        for entry in self.pauses.values_mut() {
            entry.effective = false;
        }
    }
}

impl Entry {
    /// The error of the pause; empty if there is none.
    pub(crate) fn problem(&self) -> String {
        let problems = [self.pause.problem.clone(), self.meaning.problem()];
        let problems: Vec<String> = problems.into_iter().filter(|problem| !problem.is_empty()).collect();
        problems.join("; ")
    }

    fn change(&mut self, now: Time, pause: Pause, coverage: &Coverage) -> Taken {
        let (scope, lifetime) = (self.pause.scope != pause.scope, self.pause.lifetime != pause.lifetime);
        if lifetime {
            // Counted from the creation of the pause, which may be before the clock's origin.
            let left = self.until.since_origin() + pause.lifetime;
            self.until = Time::from_origin(left.saturating_sub(self.pause.lifetime));
        }
        self.pause = pause;
        if scope {
            self.meaning = Meaning::of(&self.pause.scope, coverage);
        }
        if self.until <= now {
            // The new end has already passed. The timer of the old end handles it.
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
