//! The messages of the work stream, and the protocols in which they are sent.

use super::{ActionKind, LeaseId, Origin, ReportResult, Term, WorkLease, WorkReport, WorkReturn};
use crate::object::Name;
use crate::pace::Rate;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

/// The newest protocol of the work stream in this build.
pub const PROTOCOL: u32 = 2;
/// The first protocol in which a report names its target.
pub const PROTOCOL_REPORTS_SAY_WHAT: u32 = 2;

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
    /// The first session of this process. It shows a new leader which of two processes of one name is newer.
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
