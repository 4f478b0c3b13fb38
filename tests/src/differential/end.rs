//! How a world goes and ends: each object's existence, references, finalizers and deletion mark, with slots in the place of uids.

use super::world::{Slot, flag};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Whose uid a reference carries.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Owner {
    /// This incarnation of the slot, counted from 0.
    Slot(Slot, usize),
    /// A uid that no object of the program had.
    Unknown(String),
}

/// A reference as it stands in the end.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Held {
    pub owner: Owner,
    pub api_version: String,
    pub kind: String,
    pub name: String,
    pub blocking: Option<bool>,
}

/// An object that is there in the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// Which incarnation, counted from 0.
    pub incarnation: usize,
    pub terminating: bool,
    pub finalizers: Vec<String>,
    /// Sorted: a patch may change their order, which means nothing.
    pub references: Vec<Held>,
}

impl State {
    /// In foreground deletion: it waits for dependents that block it.
    pub fn waits(&self) -> bool {
        self.terminating && self.has_finalizer("foregroundDeletion")
    }

    /// In deletion, and its dependents are to lose it and stay.
    pub fn orphans(&self) -> bool {
        self.terminating && self.has_finalizer("orphan")
    }

    fn has_finalizer(&self, finalizer: &str) -> bool {
        self.finalizers.iter().any(|present| present == finalizer)
    }
}

/// A seed's end: what is there, by slot.
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

/// What one write made of an object; `None`: it is gone.
#[derive(Clone, Debug)]
pub struct Change {
    pub revision: u64,
    pub slot: Slot,
    pub state: Option<State>,
}

/// What is there when everything up to this revision has been written.
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
    /// Everything that the user has deleted.
    pub(super) deleted: BTreeSet<Incarnation>,
    /// What was gone at once: such an answer names no revision.
    pub(super) removed: BTreeSet<Incarnation>,
}

impl Writes {
    /// Whether it was the user who made this change to an object.
    pub(super) fn contain(&self, change: &Change, incarnation: usize) -> bool {
        // A Pod is marked before it goes.
        let is_removal = change.state.as_ref().is_none_or(|state| state.terminating && state.finalizers.is_empty());
        self.revisions.contains(&change.revision) || is_removal && self.removed.contains(&(change.slot, incarnation))
    }
}
