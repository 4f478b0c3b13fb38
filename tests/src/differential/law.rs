//! Checks every write of a collector against the rules and the state of the objects at that time.
//!
//! A collector sees the state of a moment ago. A write is allowed if the rules allow it in a state that the collector
//! may have seen.

use super::end::{Change, End, Held, Incarnation, Owner, State};
use super::execute::Course;
use super::standing::{Standing, owner_at, standing};
use super::world::{Program, Slot};
use std::collections::{BTreeMap, BTreeSet};

/// Returns the objects with a write that no rule asks for, and the breach.
pub(super) fn breaches(program: &Program, course: &Course) -> BTreeMap<Slot, &'static str> {
    let mut law = Law {
        program,
        course,
        now: End::new(),
        settled: End::new(),
        waited: BTreeSet::new(),
        orphaned: BTreeSet::new(),
        freed: Vec::new(),
        left: Vec::new(),
        taken: BTreeSet::new(),
    };
    let mut breaches = BTreeMap::new();
    let mut quiet_at = course.quiet_at.iter().peekable();
    for change in &course.changes {
        while quiet_at.next_if(|&&revision| revision < change.revision).is_some() {
            law.settle();
        }
        let before = law.now.get(&change.slot).cloned();
        if let Some(before) = before.as_ref().filter(|before| !course.by_user.contain(change, before.incarnation)) {
            breaches.extend(law.breach(change, before).map(|what| (change.slot, what)));
        }
        law.note_taken(change, before.as_ref());
        law.note(change, before.as_ref());
    }
    breaches
}

/// A dependent and its owner.
type Pair = (Incarnation, Incarnation);

struct Law<'a> {
    program: &'a Program,
    course: &'a Course,
    now: End,
    /// The objects at the last quiet moment. A collector has seen all of them since.
    settled: End,
    /// Owners that have been in foreground deletion since the last quiet moment. No collector still acts on the state
    /// before that moment.
    waited: BTreeSet<Incarnation>,
    /// Owners that have been in orphaning deletion.
    orphaned: BTreeSet<Incarnation>,
    /// Dependents that had a reference when their owner began to orphan. The reference must go before the owner.
    freed: Vec<Pair>,
    /// Dependents that blocked their owner when its foreground deletion began. They must go before the owner.
    left: Vec<Pair>,
    /// Objects that lost a solid owner by a write of a user since the last quiet moment. The owner was solid at that
    /// moment or just before the write. A collector removes references by uid, whatever else the object has, so it may
    /// remove another reference just after that write.
    taken: BTreeSet<Incarnation>,
}

impl Law<'_> {
    fn breach(&self, change: &Change, before: &State) -> Option<&'static str> {
        let at = (change.slot, before.incarnation);
        let after = change.state.as_ref();
        if !before.terminating && after.is_none_or(|after| after.terminating) {
            return self.deletion(at, before, after);
        }
        if before.waits() && !after.is_some_and(State::waits) && self.is_there(&self.left, at, true) {
            return Some("it stopped waiting, and was blocked");
        }
        if before.orphans() && !after.is_some_and(State::orphans) && self.is_there(&self.freed, at, false) {
            return Some("it stopped orphaning, and had dependents");
        }
        let after = after?;
        if after.finalizers.iter().any(|finalizer| !before.finalizers.contains(finalizer)) {
            return Some("it was given a finalizer");
        }
        self.references(at, before, after)
    }

    fn deletion(&self, at: Incarnation, before: &State, after: Option<&State>) -> Option<&'static str> {
        if before.references.is_empty() {
            return Some("it was deleted, and had no owner");
        }
        if after.is_some_and(State::waits) && !before.references.iter().any(|reference| self.has_waited(reference)) {
            return Some("it was deleted in foreground, and no owner waited");
        }
        if !after.is_some_and(State::waits) && self.is_to_go_last(at, before) {
            return Some("it was deleted before its dependents, and an owner waited for all of them");
        }
        before.references.iter().find_map(|reference| match standing(self.program, &self.now, at.0, reference) {
            // A user may have just changed a foreground deletion into another one.
            Standing::Solid | Standing::Orphaning if self.has_waited(reference) && self.is_deleted(reference) => None,
            Standing::Solid => Some("it was deleted, and had a solid owner"),
            Standing::Orphaning => Some("it was deleted, and an owner was orphaning it"),
            Standing::Unverified => Some("it was deleted, and an owner could not be verified"),
            Standing::InvalidScope => Some("it was deleted, and has an owner of the wrong scope"),
            Standing::Dangling if self.is_orphaned(at, reference) => Some("it was deleted, and its owner orphaned it"),
            Standing::Dangling | Standing::Waiting => None,
        })
    }

    /// Returns the breach in a change of references.
    fn references(&self, at: Incarnation, before: &State, after: &State) -> Option<&'static str> {
        let is_same = |one: &Held, other: &Held| Held { blocking: other.blocking, ..one.clone() } == *other;
        if after.references.iter().any(|new| !before.references.iter().any(|old| is_same(old, new))) {
            return Some("it was given an owner");
        }
        let mut orphaned = false;
        for old in &before.references {
            match after.references.iter().find(|new| is_same(old, new)) {
                Some(new) if new.blocking == old.blocking => {}
                Some(new) if old.blocking == Some(true) && new.blocking == Some(false) && self.has_waited(old) => {}
                Some(_) => return Some("the flag of a reference was changed"),
                None => {
                    orphaned |= self.has_orphaned(old);
                    let held = match standing(self.program, &self.now, at.0, old) {
                        Standing::Dangling | Standing::Waiting | Standing::Orphaning => false,
                        Standing::Solid => !self.has_waited(old) && !self.has_orphaned(old),
                        Standing::Unverified | Standing::InvalidScope => true,
                    };
                    if held {
                        return Some("it lost an owner that no rule removes");
                    }
                }
            }
        }
        let is_bereft = after.references.is_empty() && !before.references.is_empty() && !after.terminating;
        (is_bereft && !orphaned && !self.taken.contains(&at))
            .then_some("it lost its last owner, and is never collected")
    }

    /// Returns whether the object must go after its own dependents: an owner waits for it, and the collector has known
    /// a dependent since before the last quiet moment.
    fn is_to_go_last(&self, at: Incarnation, before: &State) -> bool {
        let has_dependents = self
            .dependents_in(&self.now, at, false)
            .iter()
            .any(|pair| self.dependents_in(&self.settled, at, false).contains(pair));
        has_dependents
            && before
                .references
                .iter()
                .any(|reference| standing(self.program, &self.now, at.0, reference) == Standing::Waiting)
    }

    /// Notes a quiet moment.
    fn settle(&mut self) {
        self.settled.clone_from(&self.now);
        let waits = |(slot, incarnation): &Incarnation| {
            self.now.get(slot).is_some_and(|state| state.incarnation == *incarnation && state.waits())
        };
        self.waited.retain(waits);
        self.taken.clear();
    }

    fn note_taken(&mut self, change: &Change, before: Option<&State>) {
        let (Some(before), Some(after)) = (before, &change.state) else { return };
        let at = (change.slot, before.incarnation);
        let held = |old: &Held| {
            !after.references.iter().any(|new| incarnation(new) == incarnation(old))
                && [&self.now, &self.settled]
                    .into_iter()
                    .any(|end| standing(self.program, end, at.0, old) == Standing::Solid)
        };
        if self.course.by_user.contain(change, before.incarnation) && before.references.iter().any(held) {
            self.taken.insert(at);
        }
    }

    fn note(&mut self, change: &Change, before: Option<&State>) {
        let slot = change.slot;
        match &change.state {
            Some(state) => self.now.insert(slot, state.clone()),
            None => self.now.remove(&slot),
        };
        let Some(after) = &change.state else { return };
        let at = (slot, after.incarnation);
        let still = |(dependent, owner): &Pair| {
            *dependent != at || after.references.iter().any(|reference| incarnation(reference) == Some(*owner))
        };
        self.freed.retain(still);
        self.left.retain(still);
        if after.waits() && !before.is_some_and(State::waits) {
            self.waited.insert(at);
            self.left.extend(self.dependents(at, true));
        }
        if after.orphans() && !before.is_some_and(State::orphans) {
            self.orphaned.insert(at);
            self.freed.extend(self.dependents(at, false));
        }
    }

    fn dependents(&self, owner: Incarnation, blocking: bool) -> Vec<Pair> {
        self.dependents_in(&self.now, owner, blocking)
    }

    /// Returns the dependents with a reference that matches the owner as a whole.
    fn dependents_in(&self, end: &End, owner: Incarnation, blocking: bool) -> Vec<Pair> {
        let has = |slot: Slot, state: &State| {
            state.references.iter().any(|reference| {
                (!blocking || reference.blocking == Some(true))
                    && owner_at(self.program, end, slot, reference).is_some_and(|(at, _)| at == owner.0)
            })
        };
        let dependents = end.iter().filter(|&(&slot, state)| has(slot, state));
        dependents.map(|(&slot, state)| ((slot, state.incarnation), owner)).collect()
    }

    /// Returns whether one of these dependents of the owner still is one.
    fn is_there(&self, pairs: &[Pair], owner: Incarnation, blocking: bool) -> bool {
        self.dependents(owner, blocking).iter().any(|pair| pairs.contains(pair))
    }

    fn has_waited(&self, reference: &Held) -> bool {
        incarnation(reference).is_some_and(|owner| self.waited.contains(&owner))
    }

    fn is_deleted(&self, reference: &Held) -> bool {
        incarnation(reference).is_some_and(|owner| self.course.by_user.deleted.contains(&owner))
    }

    fn is_orphaned(&self, dependent: Incarnation, reference: &Held) -> bool {
        incarnation(reference).is_some_and(|owner| self.freed.contains(&(dependent, owner)))
    }

    fn has_orphaned(&self, reference: &Held) -> bool {
        incarnation(reference).is_some_and(|owner| self.orphaned.contains(&owner))
    }
}

fn incarnation(reference: &Held) -> Option<Incarnation> {
    match reference.owner {
        Owner::Slot(slot, incarnation) => Some((slot, incarnation)),
        Owner::Unknown(_) => None,
    }
}
