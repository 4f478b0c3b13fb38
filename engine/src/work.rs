//! The messages between leader and executor: work items, leases, outcomes, and session messages.

pub use crate::lies::Origin;
use crate::object::{Facts, Name, ObjectRef, OwnerReference, ResourceVersion, Uid};
use crate::pace::Rate;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

mod about;

pub(crate) use about::decision;
pub use about::{AUDIT_ID_MAX_BYTES, About, audit_id};

/// The newest protocol of the work stream in this build.
pub const PROTOCOL: u32 = 2;
/// The first protocol in which a report names its target.
pub const PROTOCOL_REPORTS_SAY_WHAT: u32 = 2;
/// Maximum number of leases, reports or starts in one message.
pub const BATCH_MAX_ENTRIES: usize = 100;
/// Maximum number of findings in one report.
pub const CHECKS_MAX: usize = 50;
/// Maximum length of free text in a report.
pub const MESSAGE_MAX_BYTES: usize = 1024;

/// The supported protocols of the work stream, a range with both ends included.
///
/// Each process supports the newest protocol of its release and the one before. So two consecutive releases work
/// together in any mixture during an upgrade. A stream uses the newest protocol that both ends support.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Protocols {
    pub oldest: u32,
    pub newest: u32,
}

impl Protocols {
    /// The protocols of this build.
    pub const OURS: Protocols = Protocols::of_release(PROTOCOL);

    /// The supported protocols of a release. `newest` is its newest protocol.
    pub const fn of_release(newest: u32) -> Protocols {
        Protocols { oldest: if newest > 1 { newest - 1 } else { newest }, newest }
    }

    /// The newest protocol that both ranges include.
    pub fn common(self, other: Protocols) -> Option<u32> {
        let (oldest, newest) = (self.oldest.max(other.oldest), self.newest.min(other.newest));
        (oldest <= newest).then_some(newest)
    }

    /// Whether the range includes this protocol.
    pub fn includes(self, protocol: u32) -> bool {
        (self.oldest..=self.newest).contains(&protocol)
    }
}

impl fmt::Display for Protocols {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} to {}", self.oldest, self.newest)
    }
}

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
        /// the DELETE is sent.
        owner_checks: Vec<ObjectRef>,
    },
    /// Remove all entries of `owner_uids`, and exactly `entries`. Upstream does this in `orphanDependents`.
    RemoveOwnerReferences { owner_uids: Vec<Uid>, entries: Vec<OwnerReference> },
    /// Set `blockOwnerDeletion` to false on exactly these entries. Upstream does this with
    /// `unblockOwnerReferencesStrategicMergePatch`.
    UnblockOwnerReferences { entries: Vec<OwnerReference> },
    /// Remove one finalizer, like upstream's `removeFinalizer`.
    RemoveFinalizer { finalizer: Name },
}

/// The kind of an action, for windows, counters and texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum ActionKind {
    Delete,
    RemoveOwnerReferences,
    UnblockOwnerReferences,
    RemoveFinalizer,
}

impl ActionKind {
    /// All kinds, in the order of the wire.
    pub const ALL: [ActionKind; 4] = [
        ActionKind::Delete,
        ActionKind::RemoveOwnerReferences,
        ActionKind::UnblockOwnerReferences,
        ActionKind::RemoveFinalizer,
    ];

    /// The word for logs and labels.
    pub fn as_str(self) -> &'static str {
        match self {
            ActionKind::Delete => "delete",
            ActionKind::RemoveOwnerReferences => "remove_owner_references",
            ActionKind::UnblockOwnerReferences => "unblock_owner_references",
            ActionKind::RemoveFinalizer => "remove_finalizer",
        }
    }
}

impl Action {
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

/// What must still be true at the API server when the write arrives.
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

/// The result of an attempt. The leader defines the consequences.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Outcome {
    /// The write was accepted.
    Done,
    /// The target was already in the wanted state.
    Unchanged,
    /// 404 whose Status names this object.
    Gone,
    /// The name belongs to another uid.
    Replaced,
    /// A precondition failed and the facts changed.
    Conflict,
    /// An owner check found the owner alive and not waiting.
    OwnerExists,
    /// 403 by authorization.
    Forbidden,
    /// A webhook or an admission policy refused the write.
    AdmissionDenied,
    /// A webhook was unreachable or failed.
    AdmissionFailed,
    /// 429.
    Throttled,
    /// 405 or 415.
    Unsupported,
    /// 400 or 422.
    Invalid,
    /// 5xx, a failed connection, or a deadline before the write was sent.
    Transient,
    /// Sent without an answer: the write may have been applied.
    Ambiguous,
    /// The lease or the session expired before the write was sent.
    Abandoned,
    /// 401, or no credentials were available. Nothing was done, and nothing is known about the target. Another executor
    /// may succeed.
    Unauthenticated,
}

impl Outcome {
    /// All outcomes, in the order of the wire.
    pub const ALL: [Outcome; 16] = [
        Outcome::Done,
        Outcome::Unchanged,
        Outcome::Gone,
        Outcome::Replaced,
        Outcome::Conflict,
        Outcome::OwnerExists,
        Outcome::Forbidden,
        Outcome::AdmissionDenied,
        Outcome::AdmissionFailed,
        Outcome::Throttled,
        Outcome::Unsupported,
        Outcome::Invalid,
        Outcome::Transient,
        Outcome::Ambiguous,
        Outcome::Abandoned,
        Outcome::Unauthenticated,
    ];

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

    /// The word for logs and labels.
    pub fn as_str(self) -> &'static str {
        match self {
            Outcome::Done => "done",
            Outcome::Unchanged => "unchanged",
            Outcome::Gone => "gone",
            Outcome::Replaced => "replaced",
            Outcome::Conflict => "conflict",
            Outcome::OwnerExists => "owner_exists",
            Outcome::Forbidden => "forbidden",
            Outcome::AdmissionDenied => "admission_denied",
            Outcome::AdmissionFailed => "admission_failed",
            Outcome::Throttled => "throttled",
            Outcome::Unsupported => "unsupported",
            Outcome::Invalid => "invalid",
            Outcome::Transient => "transient",
            Outcome::Ambiguous => "ambiguous",
            Outcome::Abandoned => "abandoned",
            Outcome::Unauthenticated => "unauthenticated",
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

/// A lease that an executor still holds at its hello.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct HeldLease {
    pub lease: LeaseId,
    pub item: u64,
    pub term: Term,
    pub started: bool,
}

/// The number of a session at the leader that opened it. In one election newer sessions have greater numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct SessionNumber {
    pub term: Term,
    pub number: u64,
}

/// The executor's first message on a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Hello {
    /// Stable name, normally the pod.
    pub executor: Name,
    /// Unique for each start of a process.
    pub incarnation: Name,
    pub min_protocol: u32,
    pub max_protocol: u32,
    pub kinds: Vec<ActionKind>,
    pub window: u32,
    pub held: Vec<HeldLease>,
    pub known_term: Option<Term>,
    /// The first session of this process. It tells a new leader which of two processes of one name is newer.
    pub first_session: Option<SessionNumber>,
    pub version: String,
    /// Uid of namespace kube-system, read with the executor's own credentials.
    pub cluster_uid: Name,
    pub origin: Origin,
}

/// From executor to leader.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum ToLeader {
    Hello(Hello),
    Heartbeat {
        sequence: u64,
        started: u32,
        buffered: u32,
    },
    Window {
        max_outstanding: u32,
    },
    /// Sent before the first write of each item.
    Started {
        leases: Vec<LeaseId>,
    },
    Reports {
        reports: Vec<WorkReport>,
        returns: Vec<WorkReturn>,
    },
    /// No grant follows the acknowledgement.
    Drain {
        reason: String,
        deadline: Duration,
    },
}

/// From leader to executor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToExecutor {
    Welcome(Welcome),
    /// The session is valid for the TTL, counted from the executor's send time of that heartbeat.
    HeartbeatAck {
        sequence: u64,
        session_ttl: Duration,
        term: Term,
    },
    Grant {
        leases: Vec<WorkLease>,
    },
    ReportAck {
        results: Vec<(LeaseId, ReportResult)>,
    },
    Revoke {
        leases: Vec<LeaseId>,
        mode: RevokeMode,
        reason: String,
    },
    /// This executor's share of the allowed writes of all executors, valid for this time. It replaces the previous
    /// share. Before the first share there is no limit.
    Throttle {
        max_writes_per_second: Rate,
        valid_for: Duration,
    },
    /// Sent again with 0 when nothing is outstanding.
    DrainAck {
        outstanding: u32,
    },
    GoAway {
        cause: GoAwayCause,
        leader_endpoint: String,
        reconnect_after: Duration,
        close_after: Duration,
    },
}

/// The leader's answer to a hello.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Welcome {
    pub session: u64,
    pub term: Term,
    pub protocol: u32,
    pub session_ttl: Duration,
    pub heartbeat_interval: Duration,
    /// Held leases that stay valid.
    pub adopted: Vec<LeaseId>,
    /// Held leases to return, or to finish and report late.
    pub dropped: Vec<LeaseId>,
    pub max_window: u32,
}

/// The mode of a revocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RevokeMode {
    /// Recall: only unstarted leases.
    IfNotStarted,
    /// All leases. The executor sends no further request for them.
    Stop,
}

/// Why the leader ends a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum GoAwayCause {
    LeaderChanged,
    ShuttingDown,
    /// Routine renewal of a long stream.
    SessionAge,
    /// A newer incarnation of the same executor is connected: do not reconnect.
    Superseded,
    ProtocolError,
}

/// Why a hello is refused. Only these end a call with an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    NotLeader,
    /// The executor knows a newer leader than this one.
    TermStale {
        known: Term,
    },
    OtherCluster {
        ours: Name,
        theirs: Name,
    },
    ProtocolUnsupported {
        min: u32,
        max: u32,
    },
    /// A newer incarnation of this name was connected.
    Superseded,
    /// This incarnation asked to stop.
    Drained,
    /// The first message was not a hello, or there was a second hello.
    OutOfTurn,
    /// Another caller holds a session with this executor name.
    NameTaken,
    /// The executor sent too many wrong reports.
    Untrusted {
        retry_in: Duration,
    },
    /// The leader has reached its limit of sessions.
    TooManySessions {
        max: usize,
    },
}
