//! The messages between leader and executor: work items, leases, outcomes, and session messages.

pub use crate::lies::Origin;
use crate::object::{Facts, Name, ObjectRef, OwnerReference, ResourceVersion, Uid};
use crate::words::words;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

mod about;
mod messages;

pub(crate) use about::decision;
pub use about::{AUDIT_ID_MAX_BYTES, About, audit_id};
pub use messages::{
    GoAwayCause, HeldLease, Hello, PROTOCOL, PROTOCOL_REPORTS_SAY_WHAT, Protocols, Refusal, RevokeMode, SessionNumber,
    ToExecutor, ToLeader, Welcome,
};

/// Maximum number of leases, reports or starts in one message.
pub const BATCH_MAX_ENTRIES: usize = 100;
/// Maximum number of findings in one report.
pub const CHECKS_MAX: usize = 50;
/// Maximum length of free text in a report.
pub const MESSAGE_MAX_BYTES: usize = 1024;

/// A term of leadership, which fences leaders. Numbers are comparable only for one election uid.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Term {
    /// Uid of the election Lease.
    pub election: Name,
    /// Grows by one with each acquisition.
    pub number: u64,
}

/// Identifies one grant. Never reused: a leader numbers its grants in a range of its own, and its term is part of the
/// id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct LeaseId {
    pub term: u64,
    pub number: u64,
}

impl fmt::Display for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.term, self.number)
    }
}

impl LeaseId {
    /// Parses the text of `Display`.
    pub fn parse(text: &str) -> Option<LeaseId> {
        let (term, number) = text.split_once('-')?;
        Some(LeaseId { term: term.parse().ok()?, number: number.parse().ok()? })
    }
}

/// How the API server treats the dependents of a deleted object. Upstream's `deletionPropagationPolicy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PropagationPolicy {
    Background,
    Foreground,
    Orphan,
}

/// One action at the API server, idempotent under its preconditions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    Delete {
        propagation_policy: PropagationPolicy,
        /// Waiting owners that the decision depends on. Each must still be terminating with `foregroundDeletion` when
        /// the write is sent.
        owner_checks: Vec<ObjectRef>,
    },
    /// Remove all entries of `owner_uids`, and exactly `entries`. Upstream does this in `orphanDependents`.
    RemoveOwnerReferences {
        owner_uids: Vec<Uid>,
        entries: Vec<OwnerReference>,
        /// As in [`Action::Delete`].
        owner_checks: Vec<ObjectRef>,
    },
    /// Set `blockOwnerDeletion` to false on exactly these entries. Upstream does this with
    /// `unblockOwnerReferencesStrategicMergePatch`.
    UnblockOwnerReferences { entries: Vec<OwnerReference> },
    /// Remove one finalizer, like upstream's `removeFinalizer`.
    RemoveFinalizer { finalizer: Name },
}

words! {
    /// The kind of an action, for windows, counters and texts, in the order of the wire.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
    pub enum ActionKind {
        Delete = "delete",
        RemoveOwnerReferences = "remove_owner_references",
        UnblockOwnerReferences = "unblock_owner_references",
        RemoveFinalizer = "remove_finalizer",
    }
}

impl Action {
    /// The owners that must still wait for their dependents when the write is sent.
    pub fn owner_checks(&self) -> &[ObjectRef] {
        match self {
            Action::Delete { owner_checks, .. } | Action::RemoveOwnerReferences { owner_checks, .. } => owner_checks,
            Action::UnblockOwnerReferences { .. } | Action::RemoveFinalizer { .. } => &[],
        }
    }

    /// The kind of this action.
    pub fn kind(&self) -> ActionKind {
        match self {
            Action::Delete { .. } => ActionKind::Delete,
            Action::RemoveOwnerReferences { .. } => ActionKind::RemoveOwnerReferences,
            Action::UnblockOwnerReferences { .. } => ActionKind::UnblockOwnerReferences,
            Action::RemoveFinalizer { .. } => ActionKind::RemoveFinalizer,
        }
    }
}

/// The conditions that must still be true at the API server when the write arrives.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Preconditions {
    pub resource_version: ResourceVersion,
    /// [`Facts::digest`] at the time of the decision.
    pub facts_digest: u64,
    pub must_be_terminating: bool,
}

/// A decision as work. At most one valid lease exists for each `target.uid`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkItem {
    /// The same number in every delivery.
    pub id: u64,
    pub target: ObjectRef,
    pub preconditions: Preconditions,
    pub action: Action,
    /// The executor must read the target before the write, because the target's server may ignore preconditions.
    pub read_first: bool,
    /// Raised when a newer decision replaces the item.
    pub generation: u64,
}

/// A work item granted to one executor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkLease {
    pub id: LeaseId,
    pub term: Term,
    pub item: WorkItem,
    /// 1 on the first delivery. Unstarted returns do not count.
    pub attempt: u32,
    /// Maximum time from the start to the report.
    pub execution_limit: Duration,
    /// An earlier attempt may have been applied. The executor must read the target before the write.
    pub previous_attempt_ambiguous: bool,
    /// The trace context of the lease: passed on and never read.
    pub traceparent: Option<String>,
}

words! {
    /// The result of an attempt, in the order of the wire. The leader defines the consequences.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
    pub enum Outcome {
        /// The write was accepted.
        Done = "done",
        /// The target was already in the wanted state.
        Unchanged = "unchanged",
        /// 404 whose Status names this object.
        Gone = "gone",
        /// The name belongs to another uid.
        Replaced = "replaced",
        /// A precondition failed and the facts changed.
        Conflict = "conflict",
        /// An owner check found the owner alive and not waiting.
        OwnerExists = "owner_exists",
        /// 403 by authorization.
        Forbidden = "forbidden",
        /// A webhook or an admission policy refused the write.
        AdmissionDenied = "admission_denied",
        /// A webhook was unreachable or failed.
        AdmissionFailed = "admission_failed",
        /// 429.
        Throttled = "throttled",
        /// 405 or 415.
        Unsupported = "unsupported",
        /// 400 or 422.
        Invalid = "invalid",
        /// 5xx, a failed connection, or a deadline before the write was sent.
        Transient = "transient",
        /// Sent without an answer: the write may have been applied.
        Ambiguous = "ambiguous",
        /// The lease or the session expired before the write was sent.
        Abandoned = "abandoned",
        /// The API server answers 401, or the executor has no credentials. Another executor may succeed.
        Unauthenticated = "unauthenticated",
    }
}

impl Outcome {
    /// Whether the target is in the wanted state, by this attempt or without it.
    pub fn is_success(self) -> bool {
        match self {
            Outcome::Done | Outcome::Unchanged | Outcome::Gone | Outcome::Replaced => true,
            Outcome::Conflict
            | Outcome::OwnerExists
            | Outcome::Forbidden
            | Outcome::AdmissionDenied
            | Outcome::AdmissionFailed
            | Outcome::Throttled
            | Outcome::Unsupported
            | Outcome::Invalid
            | Outcome::Transient
            | Outcome::Ambiguous
            | Outcome::Abandoned
            | Outcome::Unauthenticated => false,
        }
    }
}

/// An object in an answer of the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Sighting {
    pub uid: Uid,
    pub resource_version: ResourceVersion,
    pub facts: Facts,
}

/// The result of an owner check.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Finding {
    pub owner: ObjectRef,
    pub result: FindingResult,
}

/// The result of one read of an owner. An answer "absent" is no proof of absence.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum FindingResult {
    Exists(Sighting),
    /// NotFound with a Status that names the object.
    Absent,
    /// The name belongs to another uid.
    OtherUid,
}

/// The end of one attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct WorkReport {
    pub lease: LeaseId,
    pub item: u64,
    pub term: Term,
    pub attempt: u32,
    pub outcome: Outcome,
    /// The target in the last answer, if it contained it.
    pub observed: Option<Sighting>,
    /// Owners that the decision expected to wait, and that did not, for [`Outcome::OwnerExists`] and the
    /// [`Outcome::Conflict`] of an owner check.
    pub findings: Vec<Finding>,
    /// 0 without an answer.
    pub http_status: u16,
    /// `reason` of the Status, or empty.
    pub status_reason: String,
    /// At most [`MESSAGE_MAX_BYTES`].
    pub message: String,
    /// The webhook or policy that refused or failed, if the answer names it.
    pub webhook: Option<String>,
    pub retry_after: Option<Duration>,
    pub api_calls: u32,
    pub execution_time: Duration,
    /// The id of the last answer to a write in the API server's audit log: at most [`AUDIT_ID_MAX_BYTES`] visible ASCII
    /// characters, or empty. Not on streams before [`PROTOCOL_REPORTS_SAY_WHAT`].
    pub audit_id: String,
    /// The target and action of the lease, for a leader that did not grant the lease. Not on streams before
    /// [`PROTOCOL_REPORTS_SAY_WHAT`].
    pub about: Option<Box<About>>,
}

impl WorkReport {
    /// Creates the report of a lease that ended with one answer.
    pub fn new(lease: &WorkLease, outcome: Outcome, http_status: u16) -> WorkReport {
        WorkReport {
            lease: lease.id,
            item: lease.item.id,
            term: lease.term.clone(),
            attempt: lease.attempt,
            outcome,
            observed: None,
            findings: Vec::new(),
            http_status,
            status_reason: String::new(),
            message: String::new(),
            webhook: None,
            retry_after: None,
            api_calls: 1,
            execution_time: Duration::ZERO,
            audit_id: String::new(),
            about: Some(Box::new(About {
                target: lease.item.target.clone(),
                action: lease.item.action.kind(),
                decision: lease.item.decision(),
            })),
        }
    }
}

/// Returns a lease that did not touch the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct WorkReturn {
    pub lease: LeaseId,
    pub cause: ReturnCause,
}

/// Why a lease is returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum ReturnCause {
    /// Drain, recall, overload.
    NotStarted,
    /// Unknown action: do not send it to this executor again.
    KindUnsupported,
    /// The executor knows a newer leader.
    TermStale,
    /// The session ended before the start.
    SessionLapsed,
}

/// The leader's answer to a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReportResult {
    Accepted,
    /// The lease was no longer valid. The leader uses the facts of the report, and does not count the lease as done.
    AcceptedLate,
    /// Unknown item.
    Unknown,
}
