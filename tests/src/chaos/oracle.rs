//! The expected end of each cascade, and a check of every event on the way.
//!
//! The creator of a family declares the expected end of each object. Every event of the API server's watch is checked
//! against it: an object to keep is never deleted and keeps its references, an object to delete is not deleted before
//! its family is doomed, and an owner in foreground deletion is deleted last.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;
use tokio::time::Instant;

/// Violations that are kept; the first says most.
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

/// The outcome of an object once its family's owner is deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Goes,
    /// It stays, with references to exactly these uids.
    Stays(BTreeSet<String>),
}

/// The uid of an object.
pub(super) type Uid = String;

#[derive(Debug)]
struct Known {
    family: usize,
    name: String,
    fate: Fate,
    /// It has reached its expected end.
    done: bool,
    /// The owner of a foreground deletion must wait for it.
    blocks: bool,
}

#[derive(Debug)]
struct Family {
    policy: Policy,
    owner: Uid,
    doomed: bool,
    /// Its remains are being removed by the test.
    cleared: bool,
    /// Objects that are not done.
    left: usize,
    /// Of those, what a foreground deletion of the owner waits for.
    blocking: usize,
}

/// The observations of one object.
#[derive(Clone, Debug)]
pub(super) struct Sight {
    pub(super) uid: Uid,
    pub(super) name: String,
    pub(super) owners: BTreeSet<String>,
    /// It has a deletion timestamp.
    pub(super) going: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Oracle {
    families: BTreeMap<usize, Family>,
    objects: BTreeMap<Uid, Known>,
    /// Deleted before their creator received their uid.
    early: BTreeSet<Uid>,
    /// Every object that is still to come to its end because its family is doomed.
    pending: usize,
    collected: BTreeMap<Policy, u64>,
    violations: Vec<String>,
    last_progress: Option<Instant>,
    longest_stall: Duration,
}

impl Oracle {
    /// A family with its owner, which goes.
    pub(super) fn family(&mut self, number: usize, policy: Policy, owner: Uid, name: &str) {
        let family = Family { policy, owner: owner.clone(), doomed: false, cleared: false, left: 0, blocking: 0 };
        self.families.insert(number, family);
        self.member(number, owner, name, Fate::Goes, false);
    }

    /// One more object of a family. `blocks`: the owner's foreground deletion has to wait for it.
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

    /// An object that needs nothing done to it, and must stay as it is.
    pub(super) fn bystander(&mut self, number: usize, uid: Uid, name: &str, owners: BTreeSet<String>) {
        if self.early.remove(&uid) {
            self.violations.push(format!("{name} was deleted as soon as it was there"));
        }
        let fate = Fate::Stays(owners);
        self.objects.insert(uid, Known { family: number, name: name.to_owned(), fate, done: true, blocks: false });
    }

    /// The owner is about to be deleted.
    pub(super) fn doom(&mut self, number: usize, now: Instant) {
        let Some(family) = self.families.get_mut(&number) else { return };
        family.doomed = true;
        if self.pending == 0 {
            self.last_progress = Some(now);
        }
        self.pending += family.left;
    }

    /// The test is about to remove what the family left.
    pub(super) fn clear(&mut self, number: usize) {
        if let Some(family) = self.families.get_mut(&number) {
            family.cleared = true;
        }
    }

    /// All of the family has come to its end.
    pub(super) fn is_settled(&self, number: usize) -> bool {
        self.families.get(&number).is_none_or(|family| family.doomed && family.left == 0)
    }

    /// What is to be there of the family: name, uid, owners.
    pub(super) fn remains(&self, number: usize) -> BTreeMap<String, (Uid, BTreeSet<String>)> {
        let stays = self.objects.iter().filter(|(_, known)| known.family == number);
        stays
            .filter_map(|(uid, known)| match &known.fate {
                Fate::Stays(owners) => Some((known.name.clone(), (uid.clone(), owners.clone()))),
                Fate::Goes => None,
            })
            .collect()
    }

    /// Objects that are still to come to their end.
    pub(super) fn pending(&self) -> usize {
        self.pending
    }

    /// Examples, for diagnosis.
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

    /// The watch shows an object as it is now.
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

    /// The watch shows that an object is gone.
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
