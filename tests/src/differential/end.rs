//! How a world goes and ends: each object's existence, references, finalizers and deletion mark, with slots in the place of uids.

use super::record::Event;
use super::user::User;
use super::world::{Object, Slot, flag};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;

/// Whose uid a reference carries.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Owner {
    /// This incarnation of the slot, counted from 0.
    Slot(Slot, usize),
    Nobody(String),
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
            Owner::Nobody(uid) => write!(formatter, "{uid}")?,
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

/// What happened to the objects of one user's program, in order.
pub(super) fn changes(user: &User<'_>, events: &[Event]) -> anyhow::Result<Vec<Change>> {
    let program = user.program;
    let mut changes = Vec::new();
    for event in events {
        let field = |name: &str| event.metadata[name].as_str();
        let is_at = |object: &Object| {
            (object.kind, object.namespace.as_deref(), Some(object.name.as_str()))
                == (event.kind, field("namespace"), field("name"))
        };
        let Some(slot) = program.objects.iter().position(is_at) else { continue };
        let uid = field("uid").unwrap_or_default();
        let Owner::Slot(of, incarnation) = user.whose(uid) else {
            anyhow::bail!("seed {}: [{slot}] has a uid that its user does not know", program.seed);
        };
        anyhow::ensure!(of == slot, "seed {}: [{slot}] has the uid of [{of}]", program.seed);
        let state = (!event.gone).then(|| state(user, incarnation, &event.metadata));
        changes.push(Change { revision: event.revision, slot, state });
    }
    Ok(changes)
}

fn state(user: &User<'_>, incarnation: usize, metadata: &Value) -> State {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let list = |field: &str| metadata[field].as_array().into_iter().flatten();
    let mut references: Vec<Held> = list("ownerReferences")
        .map(|entry| Held {
            owner: user.whose(entry["uid"].as_str().unwrap_or_default()),
            api_version: text(&entry["apiVersion"]),
            kind: text(&entry["kind"]),
            name: text(&entry["name"]),
            blocking: entry["blockOwnerDeletion"].as_bool(),
        })
        .collect();
    references.sort();
    State {
        incarnation,
        terminating: !metadata["deletionTimestamp"].is_null(),
        finalizers: list("finalizers").map(text).collect(),
        references,
    }
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
