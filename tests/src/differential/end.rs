//! The course and the end of a world: existence, references, finalizers and deletion mark of each object. Slots stand
//! in place of uids.

use super::world::{Slot, flag};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// The owner of the uid in a reference.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Owner {
    /// The incarnation of the slot, from 0.
    Slot(Slot, usize),
    /// A uid that no object of the program had.
    Unknown(String),
}

/// A reference of an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Held {
    pub owner: Owner,
    pub api_version: String,
    pub kind: String,
    pub name: String,
    pub blocking: Option<bool>,
}

/// The state of an existing object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// The incarnation, from 0.
    pub incarnation: usize,
    pub terminating: bool,
    pub finalizers: Vec<String>,
    /// The references in sorted order. A patch may change their order, which has no meaning.
    pub references: Vec<Held>,
}

impl State {
    /// The object is in foreground deletion, and waits for blocking dependents.
    pub fn waits(&self) -> bool {
        self.terminating && self.has_finalizer("foregroundDeletion")
    }

    /// The object is in deletion. Its dependents lose their reference to it, and stay.
    pub fn orphans(&self) -> bool {
        self.terminating && self.has_finalizer("orphan")
    }

    fn has_finalizer(&self, finalizer: &str) -> bool {
        self.finalizers.iter().any(|present| present == finalizer)
    }
}

/// The end of a seed: the existing objects by slot.
pub type End = BTreeMap<Slot, State>;

impl fmt::Display for Held {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Held { owner, api_version, kind, name, blocking } = self;
        match owner {
            Owner::Slot(slot, 0) => write!(formatter, "[{slot}]")?,
            Owner::Slot(slot, incarnation) => write!(formatter, "[{slot}]#{incarnation}")?,
            Owner::Unknown(uid) => write!(formatter, "{uid}")?,
        }
        write!(formatter, " as {api_version} {kind} {name} (blocking {})", flag(*blocking))
    }
}

impl fmt::Display for State {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let terminating = if self.terminating { "terminating" } else { "alive" };
        write!(formatter, "{terminating}, incarnation {}", self.incarnation)?;
        if !self.finalizers.is_empty() {
            write!(formatter, ", finalizers {}", self.finalizers.join(" "))?;
        }
        let owners: Vec<String> = self.references.iter().map(Held::to_string).collect();
        write!(formatter, ", owners: {}", if owners.is_empty() { "none".to_owned() } else { owners.join(", ") })
    }
}

/// The state of an object after one write. `None` means that the object is gone.
#[derive(Clone, Debug)]
pub struct Change {
    pub revision: u64,
    pub slot: Slot,
    pub state: Option<State>,
}

/// Returns the objects after all writes up to this revision.
pub(super) fn end_at(changes: &[Change], revision: u64) -> End {
    let mut end = End::new();
    for change in changes.iter().take_while(|change| change.revision <= revision) {
        match &change.state {
            Some(state) => end.insert(change.slot, state.clone()),
            None => end.remove(&change.slot),
        };
    }
    end
}

/// One incarnation of a slot.
pub(super) type Incarnation = (Slot, usize);

/// The writes of a program's user.
#[derive(Clone, Debug, Default)]
pub struct Writes {
    pub(super) revisions: BTreeSet<u64>,
    /// All objects that the user deleted.
    pub(super) deleted: BTreeSet<Incarnation>,
    /// The objects that were gone at once. The answer to such a deletion has no revision.
    pub(super) removed: BTreeSet<Incarnation>,
}

impl Writes {
    /// Returns whether the user made this change of an object.
    pub(super) fn contain(&self, change: &Change, incarnation: usize) -> bool {
        // The server marks a Pod as deleted before it removes the Pod. Both writes belong to the user.
        let is_removal = change.state.as_ref().is_none_or(|state| state.terminating && state.finalizers.is_empty());
        self.revisions.contains(&change.revision) || is_removal && self.removed.contains(&(change.slot, incarnation))
    }
}
