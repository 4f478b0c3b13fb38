//! All guards with their scopes and ends, and what they hold. A guard keeps decisions from being granted.
//!
//! `Holds` keeps the guards. `Holds::standing` are those that hold whatever is in their scope: pauses, protections,
//! and guards whose rule cannot be read. `leader::holding` matches them with objects. Approvals, gates and budgets are
//! asked when a decision would be granted.

use crate::coverage::Coverage;
use crate::guard::{Guard, GuardId, GuardKind, HeldBy, Rule};
use crate::object::{GroupResource, ResourceVersion, Uid};
use crate::scope::{Filter, Target};
use crate::selectors::{Selectors, Table};
use crate::time::Time;
use crate::view::ReasonCode;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;
use meaning::Meaning;

pub(crate) mod meaning;
#[cfg(test)]
mod tests;

/// Maximum number of distinct guards of a kind. If there are more, everything is held until there are fewer.
pub const GUARDS_MAX: usize = 1000;
/// The API group of Ownergraph's resources. No guard holds them.
pub const GROUP: &str = "ownergraph.dev";

/// Whether objects of this collection are exempt from all holds: Leases, and Ownergraph's own objects.
pub(crate) fn is_exempt(group: &str, resource: &str) -> bool {
    group == GROUP || (group == "coordination.k8s.io" && resource == "leases")
}

/// The reason why an item is held.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Hold {
    /// The hold annotation of the object.
    Annotation,
    /// An invalid owner reference of the object, which the policy holds.
    InvalidReference,
    Guard(GuardId),
    /// The built-in breaker of a collection.
    Breaker(GroupResource),
    /// Guards of this kind cannot be read.
    Unknown(GuardKind),
    /// There are too many guards of this kind.
    TooMany(GuardKind),
}

impl Hold {
    /// Whether the object holds itself.
    pub(crate) fn is_own(&self) -> bool {
        match self {
            Hold::Annotation | Hold::InvalidReference => true,
            Hold::Guard(_) | Hold::Breaker(_) | Hold::Unknown(_) | Hold::TooMany(_) => false,
        }
    }

    /// Whether the hold lasts until a user ends it.
    pub(crate) fn is_to_last(&self) -> bool {
        self.is_own() || matches!(self, Hold::Guard(GuardId { kind: GuardKind::Protection, .. }))
    }

    /// The holder that the log names. A lack of knowledge and the built-in breaker have events of their own.
    pub(crate) fn holder(&self) -> Option<HeldBy> {
        match self {
            Hold::Annotation => Some(HeldBy::Annotation),
            Hold::InvalidReference => Some(HeldBy::InvalidReference),
            Hold::Guard(id) => Some(HeldBy::Guard(id.clone())),
            Hold::Breaker(_) | Hold::Unknown(_) | Hold::TooMany(_) => None,
        }
    }

    pub(crate) fn code(&self) -> ReasonCode {
        let kind = match self {
            Hold::Annotation => return ReasonCode::HoldAnnotation,
            Hold::InvalidReference => return ReasonCode::InvalidReference,
            Hold::Guard(GuardId { kind, .. }) | Hold::Unknown(kind) | Hold::TooMany(kind) => *kind,
            Hold::Breaker(_) => GuardKind::Budget,
        };
        match kind {
            GuardKind::Pause => ReasonCode::Paused,
            GuardKind::Protection => ReasonCode::Protected,
            GuardKind::Approval => ReasonCode::AwaitingApproval,
            GuardKind::Gate => ReasonCode::Gated,
            GuardKind::Budget => ReasonCode::OverBudget,
        }
    }
}

/// A guard with its consequences.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) guard: Guard,
    /// The meaning of its scope.
    pub(crate) meaning: Meaning,
    /// Its end; `None` if it does not expire.
    pub(crate) until: Option<Time>,
    pub(crate) over: bool,
    /// When its resource was last read.
    read: Time,
    /// When it was taken with its present scope and rule. What is granted after that is out of its scope.
    pub(crate) since: Time,
    /// No write in the guard's scope can still be sent or be in flight.
    pub(crate) effective: bool,
}

/// All holds.
#[derive(Debug, Default)]
pub(crate) struct Holds {
    unknown: Kinds,
    too_many: Kinds,
    guards: BTreeMap<GuardId, Entry>,
    /// The selectors of all guards.
    selectors: Selectors,
}

/// A set of kinds of guards.
#[derive(Clone, Copy, Debug, Default)]
struct Kinds([bool; GuardKind::ALL.len()]);

impl Kinds {
    /// True if it changed.
    fn set(&mut self, kind: GuardKind, is: bool) -> bool {
        core::mem::replace(&mut self.0[kind as usize], is) != is
    }

    fn has(self, kind: GuardKind) -> bool {
        self.0[kind as usize]
    }

    fn first(self) -> Option<GuardKind> {
        GuardKind::ALL.into_iter().find(|&kind| self.has(kind))
    }
}

/// The result of taking a guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    New,
    /// Its scope or its rule has changed.
    Rescoped,
    /// Its end has changed.
    Moved,
    /// Nothing relevant has changed.
    Same,
    /// There are too many.
    NoRoom,
}

impl Holds {
    pub(crate) fn get(&self, id: &GuardId) -> Option<&Entry> {
        self.guards.get(id)
    }

    pub(crate) fn get_mut(&mut self, id: &GuardId) -> Option<&mut Entry> {
        self.guards.get_mut(id)
    }

    /// All guards by kind and name, including expired ones.
    pub(crate) fn guards(&self) -> impl Iterator<Item = &Entry> {
        self.guards.values()
    }

    /// The guards that hold whatever is in their scope, the strictest kind first.
    pub(crate) fn standing(&self) -> impl Iterator<Item = &Entry> {
        self.guards.values().filter(|entry| !entry.over && entry.guard.rule == Rule::Hold)
    }

    /// The guards that are asked when a decision would be granted, in the order in which they are asked.
    pub(crate) fn asking(&self) -> impl Iterator<Item = &Entry> {
        self.guards.values().filter(|entry| !entry.over && entry.guard.rule != Rule::Hold)
    }

    /// Whether there is a guard that is asked at the grant.
    pub(crate) fn any_asks(&self) -> bool {
        self.asking().next().is_some()
    }

    /// Whether there is no guard, and every kind is known.
    pub(crate) fn is_idle(&self) -> bool {
        self.guards.is_empty() && self.blind().is_none()
    }

    /// The hold that is due to a lack of knowledge, and covers everything.
    pub(crate) fn blind(&self) -> Option<Hold> {
        self.unknown.first().map(Hold::Unknown).or_else(|| self.too_many.first().map(Hold::TooMany))
    }

    pub(crate) fn is_unknown(&self, kind: GuardKind) -> bool {
        self.unknown.has(kind)
    }

    pub(crate) fn has_too_many(&self, kind: GuardKind) -> bool {
        self.too_many.has(kind)
    }

    /// The selectors of all guards.
    pub(crate) fn table(&self) -> &Arc<Table> {
        self.selectors.table()
    }

    /// Whether a guard selects namespaces by their labels.
    pub(crate) fn any_selects_namespaces(&self) -> bool {
        self.guards.values().any(|entry| !entry.over && entry.selects_namespaces())
    }

    /// Whether labels decide if a guard covers an object at this place.
    pub(crate) fn depends_on_labels(&self, place: &Target) -> bool {
        let depends = |filter: &Filter| {
            !(filter.marks.is_empty() && filter.namespace_marks.is_empty()) && filter.may_cover_target(place)
        };
        let mut standing = self.guards.values().filter(|entry| !entry.over);
        standing.any(|entry| entry.meaning.scope.targets.iter().any(depends))
    }

    /// Whether a guard in force may cover a write at this place. If guards cannot be read, the answer is false: then
    /// nothing is granted, and started writes are not stopped.
    pub(crate) fn is_pressed(&self, place: &Target) -> bool {
        self.too_many.first().is_some() || self.standing().any(|entry| entry.meaning.scope.covers_target(place))
    }

    /// Whether there is any guard in force.
    pub(crate) fn are_pressed(&self) -> bool {
        self.too_many.first().is_some() || self.standing().next().is_some()
    }

    /// Forgets the versions of all guards. After a rewind they cannot be compared with future versions.
    pub(crate) fn forget_versions(&mut self) {
        for entry in self.guards.values_mut() {
            entry.guard.resource_version = ResourceVersion::parse("");
        }
    }

    /// True if it changed.
    pub(crate) fn set_unknown(&mut self, kind: GuardKind, unknown: bool) -> bool {
        self.unknown.set(kind, unknown)
    }

    /// True if it changed.
    pub(crate) fn set_too_many(&mut self, kind: GuardKind, too_many: bool) -> bool {
        self.too_many.set(kind, too_many)
    }

    /// Takes the current state of a guard. An older state of the same guard is ignored.
    pub(crate) fn take(&mut self, now: Time, guard: Guard, coverage: &Coverage) -> Taken {
        if let Some(entry) = self.guards.get_mut(&guard.id).filter(|entry| entry.guard.uid == guard.uid) {
            if guard.resource_version.is_before(&entry.guard.resource_version) {
                return Taken::Same;
            }
            return entry.change(now, guard, coverage, &mut self.selectors);
        }
        let of_kind = self.guards.keys().filter(|id| id.kind == guard.id.kind).count();
        if of_kind >= GUARDS_MAX && !self.guards.contains_key(&guard.id) {
            return Taken::NoRoom;
        }
        let until = guard.lifetime.map(|lifetime| now + lifetime.saturating_sub(guard.elapsed));
        let over = until.is_some_and(|until| until <= now);
        let meaning = Meaning::of(&guard.scope, coverage, &mut self.selectors);
        self.guards
            .insert(guard.id.clone(), Entry { guard, meaning, until, over, read: now, since: now, effective: false });
        if over { Taken::Same } else { Taken::New }
    }

    /// Forgets a deleted guard, unless a new one has its name. Returns it if it existed.
    pub(crate) fn remove(&mut self, id: &GuardId, uid: &Uid) -> Option<Entry> {
        if self.guards.get(id).is_none_or(|entry| entry.guard.uid != *uid) {
            return None;
        }
        self.guards.remove(id)
    }

    /// Resolves the scopes again after the served kinds have changed. Returns the guards whose scope has another
    /// meaning now.
    pub(crate) fn read_again(&mut self, now: Time, coverage: &Coverage) -> Vec<GuardId> {
        let mut changed = Vec::new();
        for entry in self.guards.values_mut().filter(|entry| !entry.over) {
            let meaning = entry.meaning.again(&entry.guard.scope, coverage, &mut self.selectors);
            let before = core::mem::replace(&mut entry.meaning, meaning);
            if before.scope != entry.meaning.scope || before.wants != entry.meaning.wants {
                (entry.effective, entry.since) = (false, now);
                changed.push(entry.guard.id.clone());
            }
        }
        changed
    }

    /// Marks the effect of these guards as unknown.
    pub(crate) fn reset_effective(&mut self, now: Time, of: impl Fn(&Entry) -> bool) {
        for entry in self.guards.values_mut().filter(|entry| of(entry)) {
            (entry.effective, entry.since) = (false, now);
        }
    }
}

impl Entry {
    /// Whether labels of namespaces decide about its scope.
    pub(crate) fn selects_namespaces(&self) -> bool {
        self.meaning.wants.iter().any(|wants| wants.namespace.is_some())
    }

    /// The error of the guard; empty if there is none.
    pub(crate) fn problem(&self) -> String {
        let problems = [self.guard.problem.clone(), self.meaning.problem(self.guard.id.kind)];
        let problems: Vec<String> = problems.into_iter().filter(|problem| !problem.is_empty()).collect();
        problems.join("; ")
    }

    /// The time since 1970, by the clock with which the resource was read.
    pub(crate) fn calendar(&self, now: Time) -> Duration {
        self.guard.read_at.saturating_add(now.since(self.read))
    }

    fn change(&mut self, now: Time, guard: Guard, coverage: &Coverage, selectors: &mut Selectors) -> Taken {
        let scope = self.guard.scope != guard.scope;
        let (rule, lifetime) = (self.guard.rule != guard.rule, self.guard.lifetime != guard.lifetime);
        if lifetime {
            // Counted from the creation of the guard, which may be before the clock's origin.
            self.until = match (self.until, self.guard.lifetime, guard.lifetime) {
                (Some(until), Some(before), Some(lifetime)) => {
                    Some(Time::from_origin(until.since_origin().saturating_add(lifetime).saturating_sub(before)))
                }
                (_, _, Some(lifetime)) => Some(now + lifetime.saturating_sub(guard.elapsed)),
                (_, _, None) => None,
            };
        }
        self.guard = guard;
        self.read = now;
        if scope {
            self.meaning = Meaning::of(&self.guard.scope, coverage, selectors);
        }
        if self.until.is_some_and(|until| until <= now) {
            // The new end has already passed. The timer of the old end handles it.
            return if self.over { Taken::Same } else { Taken::Moved };
        }
        match (core::mem::replace(&mut self.over, false), scope || rule, lifetime) {
            (true, _, _) => {
                (self.effective, self.since) = (false, now);
                Taken::New
            }
            (false, true, _) => {
                (self.effective, self.since) = (false, now);
                Taken::Rescoped
            }
            (false, false, true) => Taken::Moved,
            (false, false, false) => Taken::Same,
        }
    }
}
