//! The expected end of each cascade, and a check of every event on the way.
//!
//! The creator of a family declares the expected end of each object. Every event of the API server's watch is checked
//! against it: an object to keep is never deleted and keeps its references, an object to delete is not deleted before
//! its family is doomed, and an owner in foreground deletion is deleted last.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;
use tokio::time::Instant;

/// The maximum number of kept violations. The first one is the most informative.
const VIOLATIONS_MAX: usize = 20;

/// The propagation policy for the owner of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Policy {
    Background,
    Foreground,
    Orphan,
}

impl Policy {
    pub(super) const ALL: [Policy; 3] = [Policy::Background, Policy::Foreground, Policy::Orphan];

    /// The name in DeleteOptions.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Policy::Background => "Background",
            Policy::Foreground => "Foreground",
            Policy::Orphan => "Orphan",
        }
    }
}

/// The end of an object after the deletion of its family's owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Goes,
    /// The object stays, with references to exactly these uids.
    Stays(BTreeSet<String>),
}

/// The uid of an object.
pub(super) type Uid = String;

#[derive(Debug)]
struct Known {
    family: usize,
    name: String,
    fate: Fate,
    /// The object has reached its expected end.
    done: bool,
    /// The owner's foreground deletion must wait for the object.
    blocks: bool,
}

#[derive(Debug)]
struct Family {
    policy: Policy,
    owner: Uid,
    doomed: bool,
    /// The test itself removes the remaining objects.
    cleared: bool,
    /// The number of objects without their end.
    left: usize,
    /// The number of these objects for which the owner's foreground deletion waits.
    blocking: usize,
}

/// The observations of one object.
#[derive(Clone, Debug)]
pub(super) struct Sight {
    pub(super) uid: Uid,
    pub(super) name: String,
    pub(super) owners: BTreeSet<String>,
    /// The object has a deletion timestamp.
    pub(super) going: bool,
}

/// The oracle of the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Oracle {
    families: BTreeMap<usize, Family>,
    objects: BTreeMap<Uid, Known>,
    /// The objects that were deleted before their creator received their uid.
    early: BTreeSet<Uid>,
    /// The doomed objects that have not reached their end.
    pending: usize,
    collected: BTreeMap<Policy, u64>,
    violations: Vec<String>,
    last_progress: Option<Instant>,
    longest_stall: Duration,
}

impl Oracle {
    /// Adds a family with its owner, which will be deleted.
    pub(super) fn family(&mut self, number: usize, policy: Policy, owner: Uid, name: &str) {
        let family = Family { policy, owner: owner.clone(), doomed: false, cleared: false, left: 0, blocking: 0 };
        self.families.insert(number, family);
        self.member(number, owner, name, Fate::Goes, false);
    }

    /// Adds an object to a family. `blocks` means that the owner's foreground deletion must wait for it.
    pub(super) fn member(&mut self, number: usize, uid: Uid, name: &str, fate: Fate, blocks: bool) {
        let Some(family) = self.families.get_mut(&number) else { return };
        let gone = self.early.remove(&uid);
        if gone && (fate != Fate::Goes || !family.doomed) {
            self.violations.push(format!("{name} was deleted as soon as it was there"));
        }
        if !gone {
            family.left += 1;
            family.blocking += usize::from(blocks);
            self.pending += usize::from(family.doomed);
        }
        self.objects.insert(uid, Known { family: number, name: name.to_owned(), fate, done: gone, blocks });
    }

    /// Adds an object that must stay unchanged.
    pub(super) fn bystander(&mut self, number: usize, uid: Uid, name: &str, owners: BTreeSet<String>) {
        if self.early.remove(&uid) {
            self.violations.push(format!("{name} was deleted as soon as it was there"));
        }
        let fate = Fate::Stays(owners);
        self.objects.insert(uid, Known { family: number, name: name.to_owned(), fate, done: true, blocks: false });
    }

    /// Announces the deletion of the owner.
    pub(super) fn doom(&mut self, number: usize, now: Instant) {
        let Some(family) = self.families.get_mut(&number) else { return };
        family.doomed = true;
        if self.pending == 0 {
            self.last_progress = Some(now);
        }
        self.pending += family.left;
    }

    /// Announces that the test removes the rest of the family.
    pub(super) fn clear(&mut self, number: usize) {
        if let Some(family) = self.families.get_mut(&number) {
            family.cleared = true;
        }
    }

    /// Returns whether all objects of the family have reached their end.
    pub(super) fn is_settled(&self, number: usize) -> bool {
        self.families.get(&number).is_none_or(|family| family.doomed && family.left == 0)
    }

    /// Returns the objects of the family that must exist: name, uid and owners.
    pub(super) fn remains(&self, number: usize) -> BTreeMap<String, (Uid, BTreeSet<String>)> {
        let stays = self.objects.iter().filter(|(_, known)| known.family == number);
        stays
            .filter_map(|(uid, known)| match &known.fate {
                Fate::Stays(owners) => Some((known.name.clone(), (uid.clone(), owners.clone()))),
                Fate::Goes => None,
            })
            .collect()
    }

    /// Returns the number of objects that have not reached their end.
    pub(super) fn pending(&self) -> usize {
        self.pending
    }

    /// Returns examples of them, for diagnosis.
    pub(super) fn pending_names(&self, most: usize) -> Vec<String> {
        let doomed = |known: &&Known| !known.done && self.families.get(&known.family).is_some_and(|f| f.doomed);
        self.objects.values().filter(doomed).take(most).map(|known| known.name.clone()).collect()
    }

    pub(super) fn collected(&self) -> &BTreeMap<Policy, u64> {
        &self.collected
    }

    pub(super) fn longest_stall(&self) -> Duration {
        self.longest_stall
    }

    pub(super) fn violations(&self) -> &[String] {
        &self.violations
    }

    /// Handles an event of the watch with the present state of an object.
    pub(super) fn seen(&mut self, sight: &Sight, now: Instant) {
        let Some(known) = self.objects.get(&sight.uid) else { return };
        let Some(family) = self.families.get(&known.family).filter(|family| !family.cleared) else { return };
        let Fate::Stays(wanted) = &known.fate else {
            if sight.going && !family.doomed {
                self.violation(format!("{} is being deleted before its owner", sight.name));
            }
            return;
        };
        if sight.going {
            return self.violation(format!("{} is being deleted and must stay", sight.name));
        }
        if !wanted.is_subset(&sight.owners) {
            return self.violation(format!("{} has lost a reference to a living owner", sight.name));
        }
        let done = sight.owners == *wanted;
        if done && !family.doomed && !known.done {
            return self.violation(format!("{} has lost a reference before its owner was deleted", sight.name));
        }
        if known.done && !done {
            return self.violation(format!("{} has got a reference back", sight.name));
        }
        if done && !known.done {
            self.done(&sight.uid, now);
        }
    }

    /// Handles an event of the watch that an object is gone.
    pub(super) fn deleted(&mut self, sight: &Sight, now: Instant) {
        let Some(known) = self.objects.get(&sight.uid) else {
            self.early.insert(sight.uid.clone());
            return;
        };
        let Some(family) = self.families.get(&known.family) else { return };
        if family.cleared {
            self.objects.remove(&sight.uid);
            return;
        }
        if known.fate != Fate::Goes {
            return self.violation(format!("{} was deleted and must stay", sight.name));
        }
        if !family.doomed {
            return self.violation(format!("{} was deleted before its owner", sight.name));
        }
        if family.policy == Policy::Foreground && family.owner == sight.uid && family.blocking > 0 {
            let left = family.blocking;
            self.violation(format!("{} went before {left} objects that block its deletion", sight.name));
        }
        self.done(&sight.uid, now);
        self.objects.remove(&sight.uid);
    }

    fn done(&mut self, uid: &str, now: Instant) {
        let Some(known) = self.objects.get_mut(uid).filter(|known| !known.done) else { return };
        known.done = true;
        let Some(family) = self.families.get_mut(&known.family) else { return };
        family.left -= 1;
        family.blocking -= usize::from(known.blocks);
        self.pending -= 1;
        *self.collected.entry(family.policy).or_default() += 1;
        if let Some(last) = self.last_progress.replace(now) {
            self.longest_stall = self.longest_stall.max(now.duration_since(last));
        }
    }

    fn violation(&mut self, what: String) {
        if self.violations.len() < VIOLATIONS_MAX {
            self.violations.push(what);
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests;
