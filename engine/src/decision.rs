//! What a decision rests on, and what the log says of earlier ones.

use crate::evidence::Proof;
use crate::object::{Name, ObjectRef, ResourceVersion, Uid};
use crate::time::Time;
use crate::view::EdgeView;
use crate::work::{ActionKind, Preconditions, PropagationPolicy};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::num::NonZeroU32;

/// Most decisions of earlier leaders that a leader closes: as many as the log keeps in memory.
pub const LOGGED_MAX: usize = 65_536;

/// Owners and causes that are told of one decision, and that a lease keeps of it: an object may have thousands.
pub const GROUNDS_KEPT_MAX: usize = 20;

/// A decision that an earlier leader took, and that has no end in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Logged {
    pub target: ObjectRef,
    pub action: ActionKind,
    /// As in [`Grounds::decision`].
    pub decision: u64,
    pub step: LoggedStep,
}

/// How far the log shows a decision to have come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LoggedStep {
    /// No executor has it.
    Waiting,
    /// An executor had it when the term ended.
    Leased,
    /// A deletion was carried out, and its object had not gone.
    Accepted,
}

/// What a decision rests on, as of the event that carries it.
#[derive(Clone, Debug, PartialEq)]
pub struct Grounds {
    /// The same for the same action on the same object by the same facts, on every replica and under every term.
    pub decision: u64,
    pub preconditions: Preconditions,
    /// `None` for anything but a Delete.
    pub propagation_policy: Option<PropagationPolicy>,
    /// Of a step that ends a lease, at most [`GROUNDS_KEPT_MAX`] of them.
    pub causes: Vec<Cause>,
    /// How many causes there are.
    pub cause_count: usize,
    /// Every reference of the target, with its standing and evidence; of a step that ends a lease, at most
    /// [`GROUNDS_KEPT_MAX`] of them.
    pub owners: Vec<EdgeView>,
    /// How many references there are.
    pub owner_count: usize,
    /// The owners whose going led here, from the nearest to the root of the cascade, as far as they are remembered.
    pub chain: Vec<ObjectRef>,
    /// The last of the chain, as far as it is known.
    pub root: RootMarks,
}

/// When and where the deletion shows that began a cascade, to find it in an audit log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RootMarks {
    /// Of its DELETED, or of its last known state where it is still there.
    pub resource_version: Option<ResourceVersion>,
    /// `metadata.deletionTimestamp`, in seconds of the Unix epoch.
    pub deletion_time: Option<NonZeroU32>,
}

impl Grounds {
    /// Of a decision of which nothing is known but its number.
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

/// A decision that is not carried out yet.
#[derive(Clone, Debug, PartialEq)]
pub struct OpenDecision {
    pub target: ObjectRef,
    pub action: ActionKind,
    pub decided: Time,
    pub attempts: u32,
    /// Who has it.
    pub executor: Option<Name>,
    /// A pause keeps it from being carried out.
    pub held: bool,
    pub grounds: Grounds,
}

/// Why a decision was made: one per owner reference that counted.
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
    /// Another owner keeps the object, so it only loses references.
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
