//! What leader and executor say to each other: work items, leases, outcomes, and the messages of a session.

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

/// The newest protocol of the work stream that this build speaks.
pub const PROTOCOL: u32 = 2;
/// The first protocol in which a report says what it is about.
pub const PROTOCOL_REPORTS_SAY_WHAT: u32 = 2;
/// Most leases, reports or starts in one message.
pub const BATCH_MAX_ENTRIES: usize = 100;
/// Most findings in one report.
pub const CHECKS_MAX: usize = 50;
/// Longest free text in a report.
pub const MESSAGE_MAX_BYTES: usize = 1024;

/// The protocols of the work stream that a process speaks, both ends included.
///
/// Each process speaks the newest of its release and the one before, so that two releases that follow each other work together in
/// every mixture while one takes the place of the other. A stream speaks the newest that both of its ends do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Protocols {
    pub oldest: u32,
    pub newest: u32,
}

impl Protocols {
    /// What this build speaks.
    pub const OURS: Protocols = Protocols::of_release(PROTOCOL);

    /// What a release speaks whose newest is this one. Before the first there is none.
    pub const fn of_release(newest: u32) -> Protocols {
        Protocols { oldest: if newest > 1 { newest - 1 } else { newest }, newest }
    }

    /// The newest that both speak.
    pub fn common(self, other: Protocols) -> Option<u32> {
        let (oldest, newest) = (self.oldest.max(other.oldest), self.newest.min(other.newest));
        (oldest <= newest).then_some(newest)
    }

    /// Whether this is one of them.
    pub fn includes(self, protocol: u32) -> bool {
        (self.oldest..=self.newest).contains(&protocol)
    }
}

impl fmt::Display for Protocols {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} to {}", self.oldest, self.newest)
    }
}

/// Leadership fence. Numbers are comparable only under one election uid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Term {
    /// uid of the election Lease.
    pub election: Name,
    /// Grows by one with every acquisition.
    pub number: u64,
}

/// Names one grant. Never used twice: a leader numbers its grants in a range of its own, and its term is part of the id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
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
    /// Reads what `Display` writes.
    pub fn parse(text: &str) -> Option<LeaseId> {
        let (term, number) = text.split_once('-')?;
        Some(LeaseId { term: term.parse().ok()?, number: number.parse().ok()? })
    }
}

/// How the API server is asked to treat the dependents of what it deletes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PropagationPolicy {
    Background,
    Foreground,
    Orphan,
}

/// One thing to do at the API server, idempotent under its preconditions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    Delete {
        propagation_policy: PropagationPolicy,
        /// Waiting owners the decision rests on: each must still be terminating with `foregroundDeletion` when the DELETE is sent.
        owner_checks: Vec<ObjectRef>,
    },
    /// Drop all entries of `owner_uids`, and exactly `entries`.
    RemoveOwnerReferences {
        owner_uids: Vec<Uid>,
        entries: Vec<OwnerReference>,
    },
    /// Set `blockOwnerDeletion` to false on exactly these entries.
    UnblockOwnerReferences {
        entries: Vec<OwnerReference>,
    },
    RemoveFinalizer {
        finalizer: Name,
    },
}

/// The kind of an action, for windows, counters and texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
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

/// What must still be true on the API server when the write lands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preconditions {
    pub resource_version: ResourceVersion,
    /// [`Facts::digest`] of what the decision rested on.
    pub facts_digest: u64,
    pub must_be_terminating: bool,
}

/// A decision turned into work. One live lease per `target.uid`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkItem {
    /// Stable over redelivery.
    pub id: u64,
    pub target: ObjectRef,
    pub preconditions: Preconditions,
    pub action: Action,
    /// Precede the write by a read of the target: its server may ignore preconditions.
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
    /// 1 on first delivery; returns that were not started do not count.
    pub attempt: u32,
    /// From start to report.
    pub execution_limit: Duration,
    /// An earlier attempt may have landed: read before writing.
    pub previous_attempt_ambiguous: bool,
    /// Whom to tell what becomes of it, where somebody records that: carried, never looked at.
    pub traceparent: Option<String>,
}

/// How an attempt ended. What each means to the leader stands with the leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// Write accepted.
    Done,
    /// Already in the wanted state.
    Unchanged,
    /// 404 whose Status names this object.
    Gone,
    /// The name is taken by another uid.
    Replaced,
    /// A precondition failed and the facts changed.
    Conflict,
    /// An owner check found the owner alive and not waiting.
    OwnerExists,
    /// 403 by authorization.
    Forbidden,
    /// Refused by a webhook or an admission policy.
    AdmissionDenied,
    /// Webhook unreachable or broken.
    AdmissionFailed,
    /// 429.
    Throttled,
    /// 405 or 415.
    Unsupported,
    /// 400 or 422.
    Invalid,
    /// 5xx, connection, deadline before sending.
    Transient,
    /// Sent without an answer: it may have landed.
    Ambiguous,
    /// Lease or session ran out before the write was sent.
    Abandoned,
    /// 401, or no credentials could be got: nothing was done, and nothing is said of the target. Another executor may fare better.
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

    /// Whether things are as the action wanted them, by this attempt or without it.
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

/// What an executor saw of an object in an answer of the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sighting {
    pub uid: Uid,
    pub resource_version: ResourceVersion,
    pub facts: Facts,
}

/// What an owner check found of its owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub owner: ObjectRef,
    pub result: FindingResult,
}

/// What one read of an owner shows. That it is not there is no proof.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FindingResult {
    Exists(Sighting),
    /// NotFound, and the Status names the object.
    Absent,
    /// The name belongs to another uid.
    OtherUid,
}

/// The end of one attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkReport {
    pub lease: LeaseId,
    pub item: u64,
    pub term: Term,
    pub attempt: u32,
    pub outcome: Outcome,
    /// The target as the last answer showed it, where it did.
    pub observed: Option<Sighting>,
    /// The waiting owner that was found not to wait, for [`Outcome::OwnerExists`] and the [`Outcome::Conflict`] of an owner check.
    pub findings: Vec<Finding>,
    /// 0 where there was no answer.
    pub http_status: u16,
    /// `reason` of the Status, or empty.
    pub status_reason: String,
    /// At most [`MESSAGE_MAX_BYTES`].
    pub message: String,
    /// The webhook or policy that refused or failed, where the answer names it.
    pub webhook: Option<String>,
    pub retry_after: Option<Duration>,
    pub api_calls: u32,
    pub execution_time: Duration,
    /// Names the last answer to a write in the API server's audit log: at most [`AUDIT_ID_MAX_BYTES`] visible ASCII characters, or empty. Not on
    /// streams before [`PROTOCOL_REPORTS_SAY_WHAT`].
    pub audit_id: String,
    /// For a leader that did not grant the lease. Not on streams before [`PROTOCOL_REPORTS_SAY_WHAT`].
    pub about: Option<Box<About>>,
}

impl WorkReport {
    /// How a lease ended, when one answer said so and nothing else is to be told.
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

/// Giving a lease back without having touched the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkReturn {
    pub lease: LeaseId,
    pub cause: ReturnCause,
}

/// Why a lease comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReturnCause {
    /// Drain, recall, overload.
    NotStarted,
    /// Unknown action: do not send it here again.
    KindUnsupported,
    /// The executor knows a newer leader.
    TermStale,
    /// The session ended before the start.
    SessionLapsed,
}

/// What the leader did with a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReportResult {
    Accepted,
    /// The lease was no longer valid: facts used, lease not credited.
    AcceptedLate,
    /// No such item.
    Unknown,
}

/// A lease that an executor still holds when it says hello.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldLease {
    pub lease: LeaseId,
    pub item: u64,
    pub term: Term,
    pub started: bool,
}

/// A session, as the leader that opened it counts them. In one election later ones are greater.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionNumber {
    pub term: Term,
    pub number: u64,
}

/// The executor's first message on a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Stable name, normally the pod.
    pub executor: Name,
    /// Unique per process start.
    pub incarnation: Name,
    pub min_protocol: u32,
    pub max_protocol: u32,
    pub kinds: Vec<ActionKind>,
    pub window: u32,
    pub held: Vec<HeldLease>,
    pub known_term: Option<Term>,
    /// The first session of this process. Which of two processes of one name is the newer one, a new leader knows only by this.
    pub first_session: Option<SessionNumber>,
    pub version: String,
    /// uid of namespace kube-system, read with the executor's own credentials.
    pub cluster_uid: Name,
    pub origin: Origin,
}

/// From executor to leader.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    /// Sent before the first write of each item leaves.
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
    /// The session is valid until the local send time of that heartbeat plus the TTL.
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
    /// This executor's share of the writes that all executors together may start, good for so long from now. Replaces the last one.
    /// Before the first nobody limits the executor.
    Throttle {
        max_writes_per_second: Rate,
        valid_for: Duration,
    },
    /// Sent again with 0 when nothing is outstanding any more.
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

/// How far a revocation goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RevokeMode {
    /// Recall: only what was not started.
    IfNotStarted,
    /// Also no retry, and nothing that is not yet sent.
    Stop,
}

/// Why the leader ends a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum GoAwayCause {
    LeaderChanged,
    ShuttingDown,
    /// Routine renewal of a long stream.
    SessionAge,
    /// A newer incarnation of the same executor is here: do not come back.
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
    /// A newer incarnation of this name has been here.
    Superseded,
    /// This incarnation asked to stop.
    Drained,
    /// The first message was no hello, or a second hello came.
    OutOfTurn,
    /// Another caller holds a session of this executor's name.
    NameTaken,
    /// The executor's reports are not true.
    Untrusted {
        retry_in: Duration,
    },
    /// More sessions than the leader keeps.
    TooManySessions {
        max: usize,
    },
}
