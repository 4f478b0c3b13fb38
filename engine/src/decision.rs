//! The grounds of a decision: the facts behind it. Also the logged decisions of earlier leaders.

use crate::evidence::Proof;
use crate::object::{Name, ObjectRef, ResourceVersion, Uid};
use crate::time::Time;
use crate::view::EdgeView;
use crate::work::{ActionKind, Preconditions, PropagationPolicy};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use core::num::NonZeroU32;

/// Maximum number of decisions of earlier leaders that a leader closes. The log keeps as many in memory.
pub const LOGGED_MAX: usize = 65_536;

/// Maximum number of owners and causes in an event of a decision, and in a lease. An object may have thousands.
pub const GROUNDS_KEPT_MAX: usize = 20;

/// A decision of an earlier leader without an end in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Logged {
    pub target: ObjectRef,
    pub action: ActionKind,
    /// As in [`Grounds::decision`].
    pub decision: u64,
    pub step: LoggedStep,
}

/// The last logged step of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum LoggedStep {
    /// No executor has it.
    Waiting,
    /// An executor had it when the term ended.
    Leased,
    /// A deletion was accepted, and the object was not gone yet.
    Accepted,
}

/// The facts behind a decision, at the time of its event.
#[derive(Clone, Debug, PartialEq)]
pub struct Grounds {
    /// Identifies the decision. The same action on the same object for the same facts has the same number on every
    /// replica and in every term.
    pub decision: u64,
    pub preconditions: Preconditions,
    /// `None` for anything but a Delete.
    pub propagation_policy: Option<PropagationPolicy>,
    /// At most [`GROUNDS_KEPT_MAX`] in a step that ends a lease.
    pub causes: Vec<Cause>,
    /// The number of causes.
    pub cause_count: usize,
    /// Every reference of the target, with its standing and evidence. At most [`GROUNDS_KEPT_MAX`] in a step that ends
    /// a lease.
    pub owners: Vec<EdgeView>,
    /// The number of references.
    pub owner_count: usize,
    /// The owners whose deletion led to this decision, from the nearest owner to the root of the cascade, as far as
    /// known.
    pub chain: Vec<ObjectRef>,
    /// The marks of the root of the cascade, as far as known.
    pub root: RootMarks,
}

/// Identifies the deletion that began a cascade in an audit log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RootMarks {
    /// The version of its DELETED event, or of its last known state if it exists.
    pub resource_version: Option<ResourceVersion>,
    /// `metadata.deletionTimestamp`, in seconds of the Unix epoch.
    pub deletion_time: Option<NonZeroU32>,
}

impl Grounds {
    /// The grounds of a decision of which only the number is known.
    pub fn unknown(decision: u64) -> Box<Grounds> {
        let preconditions =
            Preconditions { resource_version: ResourceVersion::parse(""), facts_digest: 0, must_be_terminating: false };
        Box::new(Grounds {
            decision,
            preconditions,
            propagation_policy: None,
            causes: Vec::new(),
            cause_count: 0,
            owners: Vec::new(),
            owner_count: 0,
            chain: Vec::new(),
            root: RootMarks::default(),
        })
    }
}

/// An open decision.
#[derive(Clone, Debug, PartialEq)]
pub struct OpenDecision {
    pub target: ObjectRef,
    pub action: ActionKind,
    pub decided: Time,
    pub attempts: u32,
    /// The executor that has it.
    pub executor: Option<Name>,
    /// A guard or the object itself holds it.
    pub held: bool,
    pub grounds: Grounds,
}

/// A reason of a decision. There is one for each relevant owner reference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    OwnerAbsent {
        kind: Name,
        namespace: Name,
        name: Name,
        uid: Uid,
        proof: Proof,
    },
    OwnerWaiting {
        kind: Name,
        namespace: Name,
        name: Name,
        uid: Uid,
    },
    OwnerOrphans {
        kind: Name,
        namespace: Name,
        name: Name,
        uid: Uid,
    },
    /// Another owner keeps the object, so it loses only references.
    KeptBy {
        kind: Name,
        namespace: Name,
        name: Name,
        uid: Uid,
    },
    /// The object is an owner in foreground deletion without blocking dependents.
    NoBlockingDependents,
    /// The object is an owner in orphaning deletion whose dependents all lost their reference.
    NoDependents,
    /// The object is in a cycle of blocking references.
    Cycle,
}

impl Cause {
    /// The words of all causes, for labels. The most specific cause is first.
    pub const WORDS: [&'static str; 7] =
        ["cycle", "no_dependents", "no_blocking_dependents", "owner_orphans", "owner_waiting", "owner_absent", "kept"];

    /// The word for labels and attributes.
    pub fn as_str(&self) -> &'static str {
        Cause::WORDS[self.rank()]
    }

    /// The word of the most specific of these causes. Every decision has a cause.
    pub fn most_specific(causes: &[Cause]) -> &'static str {
        Cause::WORDS[causes.iter().map(Cause::rank).min().unwrap_or(Cause::WORDS.len() - 1)]
    }

    fn rank(&self) -> usize {
        match self {
            Cause::Cycle => 0,
            Cause::NoDependents => 1,
            Cause::NoBlockingDependents => 2,
            Cause::OwnerOrphans { .. } => 3,
            Cause::OwnerWaiting { .. } => 4,
            Cause::OwnerAbsent { .. } => 5,
            Cause::KeptBy { .. } => 6,
        }
    }
}

/// The clause for the log.
impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cause::OwnerAbsent { kind, name, uid, proof, .. } => {
                write!(f, "{kind} {name} ({uid}) is absent by {proof:?}")
            }
            Cause::OwnerWaiting { kind, name, uid, .. } => write!(f, "{kind} {name} ({uid}) waits for its dependents"),
            Cause::OwnerOrphans { kind, name, uid, .. } => write!(f, "{kind} {name} ({uid}) orphans its dependents"),
            Cause::KeptBy { kind, name, uid, .. } => write!(f, "kept by {kind} {name} ({uid})"),
            Cause::NoBlockingDependents => f.write_str("no blocking dependents are left"),
            Cause::NoDependents => f.write_str("no dependent has a reference any more"),
            Cause::Cycle => f.write_str("the object is in a cycle of blocking references"),
        }
    }
}
