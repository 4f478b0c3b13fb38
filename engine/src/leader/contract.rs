//! The contract of the leader: its inputs, outputs and configuration as plain values.

use super::event::Event;
use crate::coverage::{ALL_RESOURCES, Undiscovered};
use crate::decision::Logged;
use crate::evidence::CheckBy;
use crate::follow::{Failure, WatchEnd};
use crate::guard::{Answered, Guard, GuardId, GuardKind, Question};
use crate::lease::StreamId;
use crate::object::{GroupResource, Name, Object, ResourceVersion, ServedKind, Uid};
use crate::pace::Rate;
use crate::parity::{Audited, Counts};
use crate::scope::{Objects, Scope};
use crate::selectors::Table;
use crate::work::{Protocols, Refusal, Term, ToExecutor, ToLeader};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

/// The configuration of the leader.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Config {
    pub mode: Mode,
    /// The uid of the namespace `kube-system`.
    pub cluster_uid: Name,
    /// The address of this replica, which executors and clients receive as a hint.
    pub endpoint: String,
    pub session_ttl: Duration,
    pub heartbeat_interval: Duration,
    /// The maximum time from the start of an attempt to its report.
    pub execution_limit: Duration,
    /// The time after which a lost watch makes its collection stale.
    pub stale_after: Duration,
    pub policy: Policy,
    /// The protocol versions that executor streams may use.
    pub protocols: Protocols,
}

/// The policy of the administrator for ambiguous cases and for the write rate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Policy {
    pub invalid_references: InvalidReferences,
    pub on_store_rewind: OnStoreRewind,
    /// Collections that never hold an owner in deletion, even while they are invisible. The resource [`ALL_RESOURCES`]
    /// stands for the whole group.
    pub assume_no_dependents: Vec<GroupResource>,
    /// Collections that the main API server keeps in separate stores. The versions of such a collection are compared
    /// only with each other.
    pub separate_stores: Vec<GroupResource>,
    /// The maximum write rate of all executors together; `None` for no limit.
    pub max_writes_per_second: Option<Rate>,
    pub breaker: BreakerMode,
}

/// Whether the built-in breaker holds mass deletions that nothing explains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum BreakerMode {
    #[default]
    On,
    Off,
}

impl Policy {
    /// Returns whether the policy declares that a collection contains no dependents. Without a resource, the question
    /// concerns the whole group.
    pub(crate) fn assumes_no_dependents(&self, group: &str, resource: Option<&str>) -> bool {
        let covers = |assumed: &GroupResource| {
            let all = *assumed.resource == *ALL_RESOURCES;
            *assumed.group == *group && (all || resource.is_some_and(|resource| *assumed.resource == *resource))
        };
        self.assume_no_dependents.iter().any(covers)
    }
}

/// The treatment of an object whose reference claims the uid of an object in another namespace, of another kind, or
/// with another name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum InvalidReferences {
    /// Judges the object like the upstream garbage collector. An owner that is not at the referenced coordinates is
    /// absent.
    #[default]
    Delete,
    /// Keeps the object as long as the other object exists.
    Hold,
}

/// The behavior after every collection of a rewound store is listed again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum OnStoreRewind {
    /// Whether decisions are carried out.
    #[default]
    Continue,
    /// Grants nothing until the process restarts.
    Hold,
}

/// Determines whether decisions are carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Mode {
    /// Makes decisions and grants them.
    Enforce,
    /// Makes, publishes and counts decisions, and grants nothing.
    Observe,
}

/// The number of a question to the API server. The engine assigns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ProbeId(pub u64);

/// A read of all guards of a kind. The engine assigns the number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct GuardRead {
    pub kind: GuardKind,
    pub number: u64,
}

/// A fact for the leader. Upstream queues such facts in `graphChanges`.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Input {
    /// Discovery shows this kind for the first time, or shows it with changes.
    KindServed(ServedKind),
    /// A complete and fresh discovery does not show the resource any more. The fact proves nothing about its objects.
    KindUnserved(GroupResource),
    /// All resources that discovery cannot show, after each change. New entries arrive before the kinds that are served
    /// now, and removed entries arrive after them.
    Undiscovered(Vec<Undiscovered>),
    /// The definition reports `Terminating=False` with the reason `InstanceDeletionCompleted`, so its instances are
    /// absent. The input arrives when the report is first seen, and when the definition is removed. `standing` is true
    /// if the definition still exists and the API server accepts new instances.
    KindEmptied { group: Name, kind: Name, crd: Uid, standing: bool },

    /// A list of the collection begins.
    ListBegun {
        collection: GroupResource,
        /// The generation of the selectors that its objects, and those of its watch, are matched with.
        selectors: u32,
    },
    /// An object of the current list.
    Listed { collection: GroupResource, object: Object },
    /// The list is complete at this version. The watch starts there.
    ListEnded { collection: GroupResource, resource_version: ResourceVersion },
    /// The list failed. The caller retries without a request. `broke` is true if the connection broke, could not be
    /// made, or brought no answer, and if the server ended a watch-list before its time.
    ListFailed { collection: GroupResource, error: String, broke: bool },
    /// An ADDED or MODIFIED event.
    Seen { collection: GroupResource, object: Object },
    /// A DELETED event with the last state of the object.
    Deleted { collection: GroupResource, object: Object },
    /// A BOOKMARK event.
    Bookmark { collection: GroupResource, resource_version: ResourceVersion },
    /// The watch ended before its time limit. The caller resumes the watch, or lists the collection again.
    WatchLost { collection: GroupResource, end: WatchEnd, error: String },
    /// The watch resumed at its last position.
    WatchResumed { collection: GroupResource },
    /// The collector cannot use an item of a list or watch, for example an item without uid.
    Unusable { collection: GroupResource, why: String },

    /// The answer to [`Output::Probe`].
    Probed { probe: ProbeId, answer: Result<ProbeAnswer, Failure> },

    /// All guards of a kind, from the list with which their watch begins.
    GuardsListed { kind: GuardKind, list: GuardList },
    /// The watch of a kind of guards follows, up to this position if the position is known.
    GuardsFollowed { kind: GuardKind, position: Option<ResourceVersion> },
    /// The watch of a kind of guards is lost, or there is nothing to watch any more.
    GuardsLost { kind: GuardKind, error: String },
    /// A guard, from its watch or from the answer to its creation.
    GuardSeen(Guard),
    /// A guard was deleted.
    GuardGone { id: GuardId, uid: Uid },
    /// The answer to [`Output::ReadGuards`]. An answer that does not establish the set of guards is an error.
    GuardsRead { read: GuardRead, answer: Result<GuardAnswer, String> },

    /// The answer to [`Output::AskGate`].
    GateAnswered(Answered),
    /// The policy or the instances of a gate have changed, so its denials and holds are void.
    GateReopened { gate: Name },
    /// A policy engine takes back what it has answered about these objects: what one of the filters has, or everything
    /// without filters.
    GateInvalidated { gate: Name, targets: Vec<Objects> },
    /// A policy engine needs more time for a question.
    GateNeedsTime { gate: Name, number: u64, extra: Duration },

    /// A request from the API server's audit log. Only mode `observe` uses it.
    Audited(Box<Audited>),
    /// The counts of earlier leaders in the log, which began to count this long ago; zeros if there are none. The input
    /// arrives once per term if the log outlives leaders and its end can be read.
    ComparedBefore { counts: Box<Counts>, lasted: Duration },

    /// A message on the stream of an executor. The first message must be a hello.
    Message { stream: StreamId, message: ToLeader },
    /// The stream has ended.
    StreamClosed { stream: StreamId },

    /// The API server accepted a write of this replica to an object of this collection at this version. The write that
    /// makes the replica the leader arrives before the term.
    Wrote { collection: GroupResource, resource_version: ResourceVersion },
    /// This replica leads now.
    TermGained(Term),
    /// Decisions of earlier leaders without an end in the log, in the order of their last steps. At most
    /// [`LOGGED_MAX`](crate::leader::LOGGED_MAX) entries count. The input arrives once per term if the log outlives
    /// leaders.
    OpenAtTermStart(Vec<Logged>),
    /// This replica does not lead, and another replica leads at this address; empty if unknown. The input comes again
    /// when the leader changes.
    TermLost { leader_endpoint: String },
    /// The process that runs the leader withholds all grants for this reason. `None` permits grants again.
    Withhold { why: Option<String> },
    /// The process is about to stop. The leader grants nothing and asks all executors to connect to another replica.
    Stop,
}

/// A consistent metadata list (without resourceVersion) or a read that the caller makes for the engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    pub id: ProbeId,
    pub collection: GroupResource,
    /// The kind of the objects. An answer of another kind or group is a failure.
    pub kind: Name,
    /// The API version of the request.
    pub version: Name,
    /// The namespace of the request. `None` means all namespaces or a cluster-scoped kind.
    pub namespace: Option<Name>,
    /// The limit of the list. `Some(1)` requests only the position.
    pub limit: Option<u32>,
    /// The single object to request, in `namespace`.
    pub object: Option<Named>,
    /// True if the request uses a new connection, so that another API server behind the same address may answer.
    pub fresh: bool,
}

/// The single object that a probe requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    pub name: Name,
    /// The form of the request: a list with a field selector, or one GET. A GET without a result counts only if a
    /// Status with the reason NotFound names the object. The answer then has no objects and no version.
    pub by: CheckBy,
}

/// The result of a probe.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ProbeAnswer {
    pub resource_version: ResourceVersion,
    pub objects: Vec<Object>,
    /// True if the limit did not truncate the list.
    pub complete: bool,
    /// The value of `remainingItemCount`, if the list was truncated and the server reports the value.
    pub remaining: Option<u64>,
}

/// The answer to a read of all guards of a kind.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum GuardAnswer {
    /// A consistent answer shows that the definition of the kind does not exist, so there are no such guards.
    NotServed,
    /// A consistent list shows all guards of the kind.
    Served(GuardList),
}

/// All guards of a kind at one position.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct GuardList {
    pub position: ResourceVersion,
    /// The guards, at most [`crate::hold::GUARDS_MAX`].
    pub guards: Vec<Guard>,
    /// True if there are more guards than the list contains.
    pub more: bool,
}

/// An effect for the caller.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    Send {
        stream: StreamId,
        message: ToExecutor,
    },
    /// Ends the call with an error.
    Refuse {
        stream: StreamId,
        refusal: Refusal,
    },
    /// Ends the stream after all earlier messages are sent.
    Close {
        stream: StreamId,
    },
    Probe(Probe),
    /// Asks a policy engine. The caller answers with [`Input::GateAnswered`].
    AskGate(Question),
    /// The answer to a question is not awaited any more.
    CancelQuestion {
        gate: Name,
        number: u64,
    },
    /// Creates a Pause, because a budget is exhausted or a breaker has opened.
    CreatePause {
        /// The guard, or the breaker of a collection: the author of the Pause.
        by: String,
        scope: Scope,
        reason: String,
        lifetime: Duration,
    },
    /// Reads all guards of a kind consistently. The caller answers with [`Input::GuardsRead`].
    ReadGuards(GuardRead),
    /// Matches the objects of the next lists with these selectors.
    Selectors(Arc<Table>),
    /// Discards the watch of the collection and lists the collection again.
    Relist {
        collection: GroupResource,
        why: String,
    },
    Event(Event),
}
