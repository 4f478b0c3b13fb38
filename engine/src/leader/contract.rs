//! The contract of the leader: its inputs, outputs, configuration and events as plain values.

use crate::coverage::{ALL_RESOURCES, State, Undiscovered};
use crate::decision::{Cause, Grounds, Logged};
use crate::evidence::{CheckBy, Proof};
use crate::follow::{Failure, WatchEnd};
use crate::guard::{Answer, Answered, Cascade, Guard, GuardId, GuardKind, Question};
use crate::lease::StreamId;
use crate::object::{GroupResource, Name, Object, ObjectRef, OwnerReference, ResourceVersion, ServedKind, Uid};
use crate::pace::Rate;
use crate::scope::Scope;
use crate::selectors::Table;
use crate::work::{ActionKind, Outcome, Protocols, Refusal, Term, ToExecutor, ToLeader};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

/// The configuration of the leader.
#[derive(Clone, Debug, PartialEq, Eq)]
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
pub enum BreakerMode {
    #[default]
    On,
    Off,
}

/// Maximum number of finalizers that [`Event::AwaitingFinalizers`] names.
pub const FINALIZERS_TOLD_MAX: usize = 20;

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
pub enum OnStoreRewind {
    /// Whether decisions are carried out.
    #[default]
    Continue,
    /// Grants nothing until the process restarts.
    Hold,
}

/// Determines whether decisions are carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Makes decisions and grants them.
    Enforce,
    /// Makes, publishes and counts decisions, and grants nothing.
    Observe,
}

/// The number of a question to the API server. The engine assigns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProbeId(pub u64);

/// A read of all guards of a kind. The engine assigns the number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GuardRead {
    pub kind: GuardKind,
    pub number: u64,
}

/// A fact for the leader. Upstream queues such facts in `graphChanges`.
#[derive(Clone, Debug, PartialEq)]
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
    /// The list failed. The shell retries without a request. `broke` is true if the connection broke, could not be
    /// made, or brought no answer.
    ListFailed { collection: GroupResource, error: String, broke: bool },
    /// An ADDED or MODIFIED event.
    Seen { collection: GroupResource, object: Object },
    /// A DELETED event with the last state of the object.
    Deleted { collection: GroupResource, object: Object },
    /// A BOOKMARK event.
    Bookmark { collection: GroupResource, resource_version: ResourceVersion },
    /// The watch ended before its time limit. The shell resumes the watch, or lists the collection again.
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
    /// The policy of a gate has changed, so its denials are void.
    GateReopened { gate: Name },

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
    /// This replica does not lead any more.
    TermLost { leader_endpoint: String },
    /// The process that runs the leader withholds all grants for this reason. `None` permits grants again.
    Withhold { why: Option<String> },
    /// The process is about to stop. The leader grants nothing and asks all executors to connect to another replica.
    Stop,
}

/// A consistent metadata list (without resourceVersion) or a read that the shell makes for the engine.
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
pub enum GuardAnswer {
    /// A consistent answer shows that the definition of the kind does not exist, so there are no such guards.
    NotServed,
    /// A consistent list shows all guards of the kind.
    Served(GuardList),
}

/// All guards of a kind at one position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuardList {
    pub position: ResourceVersion,
    /// The guards, at most [`crate::hold::GUARDS_MAX`].
    pub guards: Vec<Guard>,
    /// True if there are more guards than the list contains.
    pub more: bool,
}

/// An effect for the shell.
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
    /// Asks a policy engine. The shell answers with [`Input::GateAnswered`].
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
    /// Reads all guards of a kind consistently. The shell answers with [`Input::GuardsRead`].
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

/// An event for logs, counters and subscribers. The engine itself neither logs nor counts.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The leader made a decision, or replaced it with a decision of a higher generation.
    Decided {
        item: u64,
        generation: u64,
        target: ObjectRef,
        action: ActionKind,
        causes: Vec<Cause>,
        /// The grounds; `None` if this replica does not lead.
        grounds: Option<Box<Grounds>>,
        /// True if the replica made the decision before its term began. The event then precedes the first step of the
        /// term.
        repeated: bool,
    },
    /// The leader granted a decision to an executor. The event precedes the grant message.
    Granted {
        item: u64,
        target: ObjectRef,
        action: ActionKind,
        executor: Name,
        attempt: u32,
        grounds: Box<Grounds>,
    },
    /// A decision ended without being carried out, because it is obsolete or replaced. The grounds are those of its
    /// lease, or the current ones if it had no lease.
    Withdrawn {
        item: u64,
        target: ObjectRef,
        action: ActionKind,
        /// True if another decision about the same object follows.
        replaced: bool,
        grounds: Box<Grounds>,
    },
    /// A guard begins to hold a decision, or no guard holds it any more.
    Held {
        target: ObjectRef,
        action: ActionKind,
        /// The strictest guard that holds the decision; `None` if no guard does.
        by: Option<GuardId>,
        grounds: Box<Grounds>,
    },
    /// An attempt ended.
    Attempted {
        item: u64,
        target: ObjectRef,
        action: ActionKind,
        outcome: Outcome,
        executor: Name,
        http_status: u16,
        message: String,
        /// The same as in [`crate::work::WorkReport`].
        audit_id: String,
        api_calls: u32,
        /// The time from the decision to the report.
        age: Duration,
        attempt: u32,
        grounds: Box<Grounds>,
    },
    /// An attempt ended whose lease is of an earlier term of this election. Only the report of the executor shows the
    /// end.
    ReportedLate {
        target: ObjectRef,
        action: ActionKind,
        outcome: Outcome,
        executor: Name,
        http_status: u16,
        message: String,
        /// The same as in [`crate::work::WorkReport`].
        audit_id: String,
        api_calls: u32,
        attempt: u32,
        /// The term that granted the lease.
        lease_term: Term,
        /// The grounds as far as this leader knows them.
        grounds: Box<Grounds>,
    },
    /// The object of a deletion that was carried out does not exist any more.
    Confirmed {
        target: ObjectRef,
        /// The version of the DELETED event. `None` if a list without the object showed the deletion.
        resource_version: Option<ResourceVersion>,
        grounds: Box<Grounds>,
    },
    /// An object is in deletion after a DELETE of an executor, and finalizers of other controllers hold it. The event
    /// occurs once per decision.
    AwaitingFinalizers {
        target: ObjectRef,
        /// The version at which the watch shows the object in deletion.
        resource_version: ResourceVersion,
        /// The finalizers, at most [`FINALIZERS_TOLD_MAX`].
        finalizers: Vec<Name>,
        grounds: Box<Grounds>,
    },
    /// A node left the graph by DELETED or by a relist. `caused_by_us` is true if a DELETE of an executor was accepted.
    Removed {
        object: ObjectRef,
        caused_by_us: bool,
        /// The time for which the last owner was known to be absent, if an executor deleted the object and an owner was
        /// absent.
        owner_gone: Option<Duration>,
    },
    /// An owner was proven absent.
    Proven {
        owner: ObjectRef,
        proof: Proof,
    },
    /// An owner check found the owner alive, so a deletion did not happen.
    Prevented {
        target: ObjectRef,
        owner: ObjectRef,
    },
    /// A report of an executor is not true: it is impossible, or the API server contradicts it.
    Untrue {
        executor: Name,
        incarnation: Name,
        /// The name of the report field.
        field: &'static str,
        why: String,
        /// The number of untrue reports of this executor process.
        count: u32,
        /// True if the report is the first untrue one of this process in this field.
        first: bool,
        /// True if the leader refuses the executor because of the number of untrue reports.
        refused: bool,
    },
    /// A question about the object of a node ended: the object `exists`, is `absent`, or the question `failed`.
    Asked {
        owner: ObjectRef,
        by: CheckBy,
        answer: &'static str,
    },
    /// The lists of a collection return versions that do not match the main store, and the configuration declares no
    /// separate store for the collection.
    KeptApart {
        collection: GroupResource,
    },
    /// Answers of the API server about a collection contradict each other.
    Inconsistent {
        collection: GroupResource,
        why: String,
    },
    /// A recent action must be repeated, because another client undoes it or the server did not perform it. The
    /// decision waits for the given time.
    Undone {
        target: ObjectRef,
        action: ActionKind,
        times: u32,
        wait: Duration,
    },
    /// A collection changed its state.
    Collection {
        collection: GroupResource,
        state: State,
        error: String,
    },
    SessionOpened {
        executor: Name,
        /// The version that the process of the executor reports.
        version: String,
        /// The protocol version of the stream.
        protocol: u32,
    },
    SessionEnded {
        executor: Name,
        why: &'static str,
        leases: usize,
    },
    /// An executor was refused. The event occurs once per executor and reason in a term, for a bounded number of
    /// executors.
    ExecutorRefused {
        executor: Name,
        why: &'static str,
    },
    TermGained(Term),
    TermLost,
    /// Grants stop until the positions are confirmed, or until the process that runs the leader permits grants.
    GrantsStopped {
        why: String,
    },
    GrantsResumed,
    /// The history of the store differs from the history of the graph.
    Rewound {
        collection: GroupResource,
        why: String,
    },
    /// A reference names a namespaced owner in another namespace. The event occurs once per reference and term.
    OwnerInOtherNamespace {
        dependent: ObjectRef,
        reference: OwnerReference,
    },
    /// A known object has again a reference to an owner that orphaned its dependents and is gone. The leader removes
    /// the reference.
    Readopted {
        dependent: ObjectRef,
        /// The version at which the dependent has the reference.
        resource_version: ResourceVersion,
        owner: ObjectRef,
        /// True if the event is the first one for this reference in this term.
        first: bool,
    },
    /// An orphaning owner was forgotten before the regular time, because too many owners orphaned their dependents.
    OrphaningForgotten {
        remembered_for: Duration,
    },
    /// An object has more than [`crate::object::REFERENCES_MAX`] distinct references. The object is kept, and none of
    /// its references counts. The event occurs once per object and term.
    TooManyReferences {
        object: ObjectRef,
        count: u32,
    },
    /// The collector cannot use an item of a list or watch, and never touches the object.
    Unusable {
        collection: GroupResource,
        why: String,
    },
    /// A guard takes effect, or changes its scope or its rule.
    GuardTaken {
        id: GuardId,
        uid: Uid,
        scope: Scope,
        reason: String,
        /// The actor who created the guard, according to its resource.
        actor: String,
        /// The problem of the guard; empty if there is none.
        problem: String,
        /// `None` if the guard does not expire.
        lasts: Option<Duration>,
    },
    /// No write that this guard holds can be sent or be in transit any more.
    GuardEffective {
        id: GuardId,
    },
    GuardEnded {
        id: GuardId,
        why: &'static str,
    },
    /// All destructive actions are withheld, because the guards of this kind are unknown.
    GuardsUnknown {
        kind: GuardKind,
        why: String,
    },
    GuardsKnown {
        kind: GuardKind,
    },
    /// A budget is exhausted.
    BudgetExceeded {
        id: GuardId,
        /// The collection of the object that waits.
        collection: GroupResource,
        /// The deletions in the window.
        count: u64,
    },
    /// The breaker of a collection has opened: deletions that nothing explains are held.
    BreakerOpened {
        collection: GroupResource,
        why: String,
    },
    /// A cascade waits for the approval of a person.
    ApprovalNeeded {
        id: GuardId,
        root: ObjectRef,
        extent: Cascade,
    },
    /// The leader has accepted an approval.
    Approved {
        id: GuardId,
        root: ObjectRef,
        /// Who approved it, according to the resource.
        actor: String,
        digest: u64,
    },
    /// A policy engine has answered, or has failed.
    GateAnswered {
        id: GuardId,
        /// The target of the decision, or the root of the cascade.
        target: ObjectRef,
        answer: Answer,
        /// What follows from the answer and the failure policy.
        allowed: bool,
        by: String,
        message: String,
        observe_only: bool,
    },
    /// The leader ignored an invalid input.
    Rejected {
        why: String,
    },
}

impl Event {
    /// The word for the kind of event.
    pub fn as_str(&self) -> &'static str {
        match self {
            Event::Decided { .. } => "decided",
            Event::Granted { .. } => "granted",
            Event::Withdrawn { .. } => "withdrawn",
            Event::Held { by: Some(_), .. } => "held",
            Event::Held { by: None, .. } => "released",
            Event::Attempted { .. } => "attempted",
            Event::ReportedLate { .. } => "reported late",
            Event::Confirmed { .. } => "confirmed",
            Event::AwaitingFinalizers { .. } => "awaiting finalizers",
            Event::Removed { .. } => "removed",
            Event::Proven { .. } => "proven",
            Event::Prevented { .. } => "prevented",
            Event::Untrue { .. } => "untrue report",
            Event::Asked { .. } => "asked",
            Event::KeptApart { .. } => "kept apart",
            Event::Inconsistent { .. } => "inconsistent reads",
            Event::Undone { .. } => "undone",
            Event::Collection { .. } => "collection",
            Event::SessionOpened { .. } => "session opened",
            Event::SessionEnded { .. } => "session ended",
            Event::ExecutorRefused { .. } => "executor refused",
            Event::TermGained(_) => "term gained",
            Event::TermLost => "term lost",
            Event::GrantsStopped { .. } => "grants stopped",
            Event::GrantsResumed => "grants resumed",
            Event::Rewound { .. } => "rewound",
            Event::OwnerInOtherNamespace { .. } => "owner in other namespace",
            Event::Readopted { .. } => "readopted",
            Event::OrphaningForgotten { .. } => "orphaning forgotten",
            Event::TooManyReferences { .. } => "too many references",
            Event::Unusable { .. } => "unusable",
            Event::GuardTaken { .. } => "guard taken",
            Event::GuardEffective { .. } => "guard effective",
            Event::GuardEnded { .. } => "guard ended",
            Event::GuardsUnknown { .. } => "guards unknown",
            Event::GuardsKnown { .. } => "guards known",
            Event::BudgetExceeded { .. } => "budget exceeded",
            Event::BreakerOpened { .. } => "breaker opened",
            Event::ApprovalNeeded { .. } => "approval needed",
            Event::Approved { .. } => "approved",
            Event::GateAnswered { .. } => "gate answered",
            Event::Rejected { .. } => "rejected",
        }
    }
}
