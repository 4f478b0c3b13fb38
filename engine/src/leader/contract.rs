//! What goes into the leader and what comes out: plain values, and the whole of its contract.

use crate::coverage::{ALL_RESOURCES, State, Undiscovered};
use crate::decision::{Cause, Grounds, Logged};
use crate::evidence::{CheckBy, Proof};
use crate::follow::{Failure, WatchEnd};
use crate::hold::{Pause, Scope};
use crate::lease::StreamId;
use crate::object::{GroupResource, Name, Object, ObjectRef, OwnerReference, ResourceVersion, ServedKind, Uid};
use crate::pace::Rate;
use crate::work::{ActionKind, Outcome, Protocols, Refusal, Term, ToExecutor, ToLeader};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

/// What the administrator decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    pub mode: Mode,
    /// uid of namespace kube-system.
    pub cluster_uid: Name,
    /// Where executors and clients reach this replica, for hints.
    pub endpoint: String,
    pub session_ttl: Duration,
    pub heartbeat_interval: Duration,
    /// From start to report of one attempt.
    pub execution_limit: Duration,
    /// A watch lost for this long without resuming makes its collection stale.
    pub stale_after: Duration,
    pub policy: Policy,
    /// What streams of executors may speak.
    pub protocols: Protocols,
}

/// What the administrator decides: about cases that can be seen in more than one way, and how fast things go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    pub invalid_references: InvalidReferences,
    pub on_store_rewind: OnStoreRewind,
    /// Collections that hold no owner in deletion although they cannot be seen. The resource [`ALL_RESOURCES`] stands for the whole group.
    pub assume_no_dependents: Vec<GroupResource>,
    /// Collections that the main API server keeps in stores of their own: their versions are compared with themselves alone.
    pub separate_stores: Vec<GroupResource>,
    /// What all executors together may write; `None` for no limit of our own.
    pub max_writes_per_second: Option<Rate>,
}

/// Most finalizers that [`Event::AwaitingFinalizers`] names.
pub const FINALIZERS_TOLD_MAX: usize = 20;

impl Policy {
    /// Whether nothing there is a dependent, as an administrator says. Without a resource: nothing in the whole group.
    pub(crate) fn assumes_no_dependents(&self, group: &str, resource: Option<&str>) -> bool {
        let covers = |assumed: &GroupResource| {
            let all = *assumed.resource == *ALL_RESOURCES;
            *assumed.group == *group && (all || resource.is_some_and(|resource| *assumed.resource == *resource))
        };
        self.assume_no_dependents.iter().any(covers)
    }
}

/// What becomes of an object whose reference claims the uid of an object that is elsewhere: in another namespace, of another kind, or
/// under another name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InvalidReferences {
    /// It is judged as upstream judges it: what is not where the reference says is absent.
    #[default]
    Delete,
    /// It is kept as long as the other object is there.
    Hold,
}

/// What follows once every collection of a store that went back is listed again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnStoreRewind {
    /// Go on after a minute of reads that fit together.
    #[default]
    Continue,
    /// Grant nothing until the process is started anew.
    Hold,
}

/// Whether decisions are carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Decide and act.
    Enforce,
    /// Decide, publish, count; grant nothing.
    Observe,
}

/// One question to the API server, numbered by the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProbeId(pub u64);

/// One question which pauses there are, numbered by the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PauseRead(pub u64);

/// A fact for the leader.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// Discovery shows this kind, for the first time or changed.
    KindServed(ServedKind),
    /// A complete and fresh discovery shows it no longer. That proves nothing about its objects.
    KindUnserved(GroupResource),
    /// All that discovery cannot show, each time that changes: what is new in it before the kinds that are served now, what has left it after
    /// them.
    Undiscovered(Vec<Undiscovered>),
    /// The CRD says `Terminating=False`, reason `InstanceDeletionCompleted`: its instances are absent. Told when it is first seen to say so,
    /// and when it goes. `standing`: it is still there, and the API server takes new instances.
    KindEmptied { group: Name, kind: Name, crd: Uid, standing: bool },

    /// The collection's first list, or a new one, begins.
    ListBegun { collection: GroupResource },
    /// An object of the list under way.
    Listed { collection: GroupResource, object: Object },
    /// The list is complete as of this version; the watch goes on from it.
    ListEnded { collection: GroupResource, resource_version: ResourceVersion },
    /// The list failed; the shell tries again by itself. `broke`: its connection broke, could not be made, or brought no answer.
    ListFailed { collection: GroupResource, error: String, broke: bool },
    /// ADDED or MODIFIED.
    Seen { collection: GroupResource, object: Object },
    /// DELETED, with the object's last state.
    Deleted { collection: GroupResource, object: Object },
    /// BOOKMARK.
    Bookmark { collection: GroupResource, resource_version: ResourceVersion },
    /// The watch ended other than by its own time limit; the shell resumes it, or lists anew.
    WatchLost { collection: GroupResource, end: WatchEnd, error: String },
    /// The watch goes on from where it was.
    WatchResumed { collection: GroupResource },
    /// An item of a list or watch was no object the collector can use (no uid, say).
    Unusable { collection: GroupResource, why: String },

    /// Answer to [`Output::Probe`].
    Probed { probe: ProbeId, answer: Result<ProbeAnswer, Failure> },

    /// All pauses, as the list shows them that their watch begins with.
    PausesListed(PauseList),
    /// The watch of pauses follows, up to this position where it says so.
    PausesFollowed { position: Option<ResourceVersion> },
    /// The watch of pauses does not follow, or there is nothing to watch any more.
    PausesLost { error: String },
    /// A pause, as its watch or the answer to its creation shows it.
    PauseSeen(Pause),
    /// A pause was deleted.
    PauseGone { name: Name, uid: Uid },
    /// Answer to [`Output::ReadPauses`]. An error is whatever does not say for certain which pauses there are.
    PausesRead { read: PauseRead, answer: Result<PauseAnswer, String> },

    /// A message on an executor's stream. The first must be a hello.
    Message { stream: StreamId, message: ToLeader },
    /// The stream has ended.
    StreamClosed { stream: StreamId },

    /// The API server took a write of this replica to an object of this collection, at this version. The write that makes it leader comes
    /// before the term.
    Wrote { collection: GroupResource, resource_version: ResourceVersion },
    /// This replica leads.
    TermGained(Term),
    /// What the log shows of decisions that earlier leaders took and that have no end there, in the order of their last steps. At most
    /// [`LOGGED_MAX`](crate::leader::LOGGED_MAX) count. Once in a term, where the log outlives leaders.
    OpenAtTermStart(Vec<Logged>),
    /// It does not any more.
    TermLost { leader_endpoint: String },
    /// Whoever runs the leader wants nothing granted, for this reason; `None`: not any more.
    Withhold { why: Option<String> },
    /// The process is about to stop: no grants, every executor is sent away.
    Stop,
}

/// A consistent metadata list (resourceVersion unset), or a read, that the shell makes for the engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    pub id: ProbeId,
    pub collection: GroupResource,
    /// Of the collection's objects. An answer that says that it is of another kind or group is no answer.
    pub kind: Name,
    /// The version to ask for on the wire.
    pub version: Name,
    /// `None`: all namespaces, or a cluster-scoped kind.
    pub namespace: Option<Name>,
    /// `Some(1)` asks only for the position.
    pub limit: Option<u32>,
    /// Asks for the object of this name alone, in `namespace`.
    pub object: Option<Named>,
    /// Over a connection that no earlier question has used, so that another API server behind the same address may answer.
    pub fresh: bool,
}

/// The one object that a probe asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    pub name: Name,
    /// By a list with a field selector, or by one GET. A GET that finds nothing counts only where a Status with reason NotFound names
    /// the object; it is then answered without objects, and without a version.
    pub by: CheckBy,
}

/// What a probe found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeAnswer {
    pub resource_version: ResourceVersion,
    pub objects: Vec<Object>,
    /// The list was not cut by its limit.
    pub complete: bool,
    /// `remainingItemCount`, where the list was cut and the server says it.
    pub remaining: Option<u64>,
}

/// Which pauses there are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PauseAnswer {
    /// Their definition does not exist, by a consistent answer: there can be none.
    NotServed,
    /// All of them, by a consistent list.
    Served(PauseList),
}

/// All pauses as of one position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PauseList {
    pub position: ResourceVersion,
    /// At most [`crate::hold::PAUSES_MAX`].
    pub pauses: Vec<Pause>,
    /// There are more than these.
    pub more: bool,
}

/// An effect for the shell.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    Send {
        stream: StreamId,
        message: ToExecutor,
    },
    /// End the call with an error.
    Refuse {
        stream: StreamId,
        refusal: Refusal,
    },
    /// End the stream, after everything sent before has gone out.
    Close {
        stream: StreamId,
    },
    Probe(Probe),
    /// Find out which pauses there are, by a consistent read, and answer with [`Input::PausesRead`].
    ReadPauses(PauseRead),
    /// Throw the collection's watch away and list it anew.
    Relist {
        collection: GroupResource,
        why: String,
    },
    Event(Event),
}

/// What happened, for logs, counters and whoever watches. The engine itself neither logs nor counts.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A decision was made, or replaced by a newer one of a higher generation.
    Decided {
        item: u64,
        generation: u64,
        target: ObjectRef,
        action: ActionKind,
        causes: Vec<Cause>,
        /// `None` where this replica does not lead.
        grounds: Option<Box<Grounds>>,
        /// This replica made the decision before its term began. The event comes before the first step of the term.
        repeated: bool,
    },
    /// A decision was given to an executor. Comes before the message that does so.
    Granted {
        item: u64,
        target: ObjectRef,
        action: ActionKind,
        executor: Name,
        attempt: u32,
        grounds: Box<Grounds>,
    },
    /// A decision ended without being carried out: it no longer holds, or another one is in its place. The grounds are those of its lease if it
    /// had one, and else those of this moment.
    Withdrawn {
        item: u64,
        target: ObjectRef,
        action: ActionKind,
        /// Another decision about the same object follows.
        replaced: bool,
        grounds: Box<Grounds>,
    },
    /// A pause holds a decision from now on; or none does any more.
    Held {
        target: ObjectRef,
        action: ActionKind,
        /// `None`: nothing does.
        pause: Option<Name>,
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
        /// As in [`crate::work::WorkReport`].
        audit_id: String,
        api_calls: u32,
        /// From decision to report.
        age: Duration,
        attempt: u32,
        grounds: Box<Grounds>,
    },
    /// An attempt ended whose lease is of an earlier term of this election: an executor says so, and nothing else shows it.
    ReportedLate {
        target: ObjectRef,
        action: ActionKind,
        outcome: Outcome,
        executor: Name,
        http_status: u16,
        message: String,
        /// As in [`crate::work::WorkReport`].
        audit_id: String,
        api_calls: u32,
        attempt: u32,
        /// That gave the work out.
        lease_term: Term,
        /// As far as this leader knows them now.
        grounds: Box<Grounds>,
    },
    /// The object of a deletion that was carried out is not there any more.
    Confirmed {
        target: ObjectRef,
        /// Of its DELETED; `None` where a list without the object showed that it has gone.
        resource_version: Option<ResourceVersion>,
        grounds: Box<Grounds>,
    },
    /// An object is in deletion after a DELETE of ours, and finalizers that are not the collector's hold it. Once for each decision.
    AwaitingFinalizers {
        target: ObjectRef,
        /// At which the watch shows it so.
        resource_version: ResourceVersion,
        /// At most [`FINALIZERS_TOLD_MAX`].
        finalizers: Vec<Name>,
        grounds: Box<Grounds>,
    },
    /// A node left the graph by DELETED or by a relist; `caused_by_us` if a DELETE of ours had been accepted.
    Removed {
        object: ObjectRef,
        caused_by_us: bool,
        /// How long the last of its owners had been known to be absent, where it went by us and an owner was.
        owner_gone: Option<Duration>,
    },
    /// An owner was proven absent.
    Proven {
        owner: ObjectRef,
        proof: Proof,
    },
    /// An owner check found the owner alive, so that a deletion did not happen.
    Prevented {
        target: ObjectRef,
        owner: ObjectRef,
    },
    /// A report of an executor is not true: it cannot be, or the API server contradicts it.
    Untrue {
        executor: Name,
        incarnation: Name,
        /// Of the report.
        field: &'static str,
        why: String,
        /// Of this process of the executor.
        count: u32,
        /// The first one of this process in this field.
        first: bool,
        /// There are so many that the executor is sent away.
        refused: bool,
    },
    /// It was asked whether the object of a node is there: it `exists`, is `absent`, or the question `failed`.
    Asked {
        owner: ObjectRef,
        by: CheckBy,
        answer: &'static str,
    },
    /// The lists of a collection stand elsewhere than those of the main store, and it is not said to have a store of its own.
    KeptApart {
        collection: GroupResource,
    },
    /// Answers of the API server about a collection cannot all be true.
    Inconsistent {
        collection: GroupResource,
        why: String,
    },
    /// What was carried out a moment ago has to be done once more: somebody undoes it, or the server did not do it. It waits for so long.
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
        /// What its process says it is.
        version: String,
        /// What its stream speaks.
        protocol: u32,
    },
    SessionEnded {
        executor: Name,
        why: &'static str,
        leases: usize,
    },
    /// An executor was not let in. Once for each executor and reason in a term, for some hundred of them.
    ExecutorRefused {
        executor: Name,
        why: &'static str,
    },
    TermGained(Term),
    TermLost,
    /// Nothing is granted until the positions are known to be right, or whoever runs the leader allows it.
    GrantsStopped {
        why: String,
    },
    GrantsResumed,
    /// The store's history is not the one the graph was built from.
    Rewound {
        collection: GroupResource,
        why: String,
    },
    /// A reference names a namespaced owner that is in another namespace. Once per reference and term.
    OwnerInOtherNamespace {
        dependent: ObjectRef,
        reference: OwnerReference,
    },
    /// An object that the graph knew has a reference again to an owner that orphaned its dependents and is gone. The reference is taken
    /// away again.
    Readopted {
        dependent: ObjectRef,
        /// At which the dependent has the reference.
        resource_version: ResourceVersion,
        owner: ObjectRef,
        /// Of this reference, in this term.
        first: bool,
    },
    /// So many owners orphaned their dependents that one is forgotten after a shorter time than it would be remembered for.
    OrphaningForgotten {
        remembered_for: Duration,
    },
    /// An object has more than [`crate::object::REFERENCES_MAX`] distinct references: it is kept, and none of them counts. Once per object and
    /// term.
    TooManyReferences {
        object: ObjectRef,
        count: u32,
    },
    /// An item of a list or watch that the collector cannot use, and so will never touch.
    Unusable {
        collection: GroupResource,
        why: String,
    },
    /// A pause holds from now on, or holds something else than before.
    PauseTaken {
        name: Name,
        scope: Scope,
        reason: String,
        /// Who pressed it, as far as its resource says.
        actor: String,
        /// What is wrong with it; empty if nothing is.
        problem: String,
        lasts: Duration,
    },
    /// No write that this pause holds can be sent any more, or be on its way.
    PauseEffective {
        name: Name,
    },
    PauseEnded {
        name: Name,
        why: &'static str,
    },
    /// Nothing that destroys is granted, because it cannot be found out which pauses there are.
    PausesUnknown {
        why: String,
    },
    PausesKnown,
    /// An input that makes no sense was ignored.
    Rejected {
        why: String,
    },
}
