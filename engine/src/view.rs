//! Values for readers of a leader's state, without references into it.

use crate::coverage::State;
use crate::evidence::Presence;
use crate::guard::{Cascade, GuardId, GuardKind, Rule, Spending};
use crate::object::{Facts, GroupResource, Name, ObjectRef, OwnerReference, ResourceVersion, ServedKind, Uid};
use crate::scope::Scope;
use crate::time::Time;
use crate::words::words;
use crate::work::{ActionKind, Term};
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

mod waits;

pub use crate::lies::UntrueView;
pub use waits::{AGE_BOUNDS, Waiting, Waits};

/// The numbers of the leader.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Set while this replica leads.
    pub term: Option<Term>,
    pub nodes: usize,
    pub edges: usize,
    pub virtual_nodes: usize,
    /// Bytes of the large parts of the graph.
    pub graph_bytes: usize,
    /// Decided, and ready for an executor.
    pub queued: usize,
    /// Waiting in backoff or behind a blocker.
    pub backing_off: usize,
    /// Behind a blocker, by its kind: `in_doubt`, `forbidden`, `webhook`, `throttled` or `unreadable`.
    pub blocked: Vec<(&'static str, usize)>,
    /// Held by guards or by the objects themselves, or because guards cannot be read.
    pub held: usize,
    pub leased: usize,
    /// The time of the oldest decision that is to be carried out and is not held, in whole seconds.
    pub oldest_pending: Option<Time>,
    /// The time of the oldest held decision, in whole seconds.
    pub oldest_held: Option<Time>,
    /// Dependents without a verdict, by cause.
    pub undecided: Vec<(Undecided, usize)>,
    /// The first [`EXCESSIVE_NAMED`] objects with more references than the collector reads.
    pub excessive: Vec<ObjectRef>,
    pub sessions: usize,
    /// Why grants are stopped, if they are.
    pub stopped: Option<String>,
    /// The mode is observe.
    pub observes: bool,
    /// Why deletions are suspended without a pause.
    pub guards_unknown: Option<String>,
    /// Checks of single objects.
    pub questions: Questions,
    /// Collections with recent contradictory answers, and the last contradiction.
    pub inconsistent: Vec<(GroupResource, String)>,
    /// Collections whose lists do not match the main store. [`crate::leader::Policy::separate_stores`] does not name
    /// them.
    pub kept_apart: Vec<GroupResource>,
    /// Kinds that exist, are missing in discovery, and hold terminating owners.
    pub hidden: Vec<Unseen>,
    /// The first 20 executors with wrong reports.
    pub untrue: Vec<UntrueView>,
}

/// Kinds that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unseen {
    /// `RESOURCE.GROUP`; the resource may be `*`.
    pub what: String,
    pub why: String,
    pub since: Time,
}

/// Checks of single objects at the API server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Questions {
    pub waiting: usize,
    pub under_way: usize,
    /// Collections with failing reads, by group and resource.
    pub unanswered: Vec<Unanswered>,
}

/// A collection that does not answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unanswered {
    pub collection: GroupResource,
    /// Owners that could not be checked.
    pub owners: usize,
    /// The last error.
    pub why: String,
    pub since: Time,
    /// The time of the next check.
    pub next: Time,
    /// A check is in progress.
    pub asking: bool,
}

/// Maximum number of objects with too many references in a [`Status`].
pub const EXCESSIVE_NAMED: usize = 5;

/// One guard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuardView {
    pub id: GuardId,
    pub uid: Uid,
    /// The generation of the resource that this view shows.
    pub generation: u64,
    pub scope: Scope,
    pub rule: Rule,
    pub reason: String,
    /// The creator of the guard, according to its resource.
    pub actor: String,
    /// Creation time, since 1970.
    pub created: Duration,
    /// The lifetime, counted from the creation time; `None` if the guard does not expire.
    pub lifetime: Option<Duration>,
    /// The end of the guard on this replica. It may be some seconds after creation time plus lifetime.
    pub until: Option<Time>,
    /// Its lifetime has passed.
    pub over: bool,
    /// No write in its scope can still be sent or be in flight. Known only on the leader.
    pub effective: bool,
    /// The number of sessions that may still send such a write or have one in flight. Sessions of earlier leaders count
    /// as one.
    pub sessions_remaining: usize,
    /// Why the guard is not effective; empty when it is effective or over.
    pub pending: String,
    /// The number of items that the guard holds. An item that several guards hold counts for the strictest of them.
    pub held: usize,
    /// An error in its resource; empty if there is none.
    pub problem: String,
    /// The leader has read all guards of this kind. Until then, the status of an earlier leader says more.
    pub known: bool,
    pub usage: GuardUsage,
}

/// The usage of a guard that is asked at the grant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GuardUsage {
    /// The guard holds every decision in its scope.
    Standing,
    Budget {
        /// The deletions in its window.
        spent: u64,
        /// The `countFrom` of the window, if items wait for it.
        exceeded_from: Option<Duration>,
        /// The deletions by part of the window, the oldest first.
        window: Vec<Spending>,
    },
    Approval {
        /// The cascades that wait for an approval, at most [`LISTED_MAX`].
        waiting: Vec<Cascade>,
        /// The cascades whose approval was accepted, at most [`LISTED_MAX`].
        accepted: Vec<Cascade>,
        /// The roots and digests that an earlier leader has accepted, and of which this one has permitted nothing yet.
        inherited: Vec<(Uid, u64)>,
    },
    Gate {
        /// Questions that wait for an answer.
        in_flight: usize,
        /// Decisions and cascades that the gate denies.
        denied: usize,
    },
}

words! {
    /// Why there is no verdict.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Undecided {
        /// Neither the existence nor the absence of the owner is proven; a check is in progress.
        OwnerUnverified = "owner_unverified",
        /// The API server does not serve the owner's kind, or serves it as several resources.
        OwnerKindUnresolved = "owner_kind_unresolved",
        /// The owner's collection cannot be listed, or its list is in progress.
        CollectionUnsynced = "collection_unsynced",
        /// A terminating owner might have dependents in a collection that is not synced.
        DependentsUnseen = "dependents_unseen",
        /// Reads of the owner fail.
        OwnerUnreadable = "owner_unreadable",
        /// The object has more references than the collector reads.
        TooManyReferences = "too_many_references",
    }
}

/// One collection, for readiness and coverage. A collection is what upstream calls a monitor (`monitors`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CollectionStatus {
    pub kind: ServedKind,
    pub state: State,
    pub position: Option<ResourceVersion>,
    pub objects: usize,
    /// Last error, empty when there is none.
    pub error: String,
    /// The time since which the collection is in this state.
    pub since: Time,
    /// The time of the last event, bookmark or completed list.
    pub progress: Option<Time>,
    /// Its lists do not match the main store, and the configuration names no separate store. Its lists prove nothing.
    pub kept_apart: bool,
    /// The last recent contradiction between answers about it.
    pub inconsistent: Option<String>,
}

/// The progress of a collection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reached {
    pub state: State,
    /// The graph has everything that the watch has sent up to this version. `None` before the end of the first list,
    /// and between a restore of the store and the end of the next list.
    pub position: Option<ResourceVersion>,
    /// The API version for requests.
    pub version: Name,
}

/// A kind that references name, and that the API server does not serve, serves as several resources, or serves as one
/// resource whose versions differ. `dependents` wait for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnresolvedKind {
    pub group: Name,
    pub kind: Name,
    /// Empty without a served resource. One has versions with different servers, scopes or kinds. With several, a
    /// reference does not say which one it means.
    pub resources: Vec<GroupResource>,
    pub since: Time,
    pub dependents: usize,
}

/// One node of the graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeView {
    /// `resource` and `version` are empty if the kind is not served.
    pub object: ObjectRef,
    pub presence: Presence,
    /// With the first [`LISTED_MAX`] references and finalizers, and the finalizers of garbage collection at any
    /// position.
    pub facts: Facts,
    /// The number of references. `facts` has the first of them.
    pub owners: usize,
    /// The number of finalizers. `facts` has the first of them.
    pub finalizers: usize,
    /// The number of objects that name this one as owner.
    pub dependents: usize,
    /// The number of dependents that block its foreground deletion.
    pub blocking_dependents: usize,
    pub undecided: Option<Undecided>,
    /// The progress of its deletion by the collector, before the deletion mark.
    pub collecting: Option<Collecting>,
}

impl NodeView {
    /// Whether its collection shows it.
    pub fn is_observed(&self) -> bool {
        matches!(self.presence, Presence::Observed { .. })
    }

    /// The version at which its collection shows it.
    pub fn resource_version(&self) -> Option<&ResourceVersion> {
        match &self.presence {
            Presence::Observed { resource_version } => Some(resource_version),
            Presence::Virtual { .. } | Presence::Read { .. } | Presence::Absent(_) => None,
        }
    }
}

/// The progress of a deletion by the collector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Collecting {
    /// Decided, and waiting.
    Queued,
    /// Held by a guard or by the object itself.
    Held,
    /// Leased to an executor.
    Leased,
}

/// A blocker of many items.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockerView {
    /// The rule, webhook or collection. The text begins with `in_doubt`, `forbidden`, `webhook`, `throttled`,
    /// `unreadable`, `undiscovered` or `ambiguous`.
    pub what: String,
    /// The number of waiting items.
    pub items: usize,
    pub since: Time,
    /// The result of the last attempt that the blocker refused; empty without one.
    pub said: String,
    /// The time of the next probe of these items, or of those behind a similar blocker. `None` if all are released
    /// gradually.
    pub next_probe: Option<Time>,
    /// A probe is in progress.
    pub probing: bool,
}

/// A decision that waits for a retry of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TroubleView {
    pub object: ObjectRef,
    pub action: ActionKind,
    pub attempts: u32,
    /// When it was decided.
    pub since: Time,
    /// Why it waits, as text.
    pub why: String,
}

/// One executor with a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecutorView {
    pub executor: Name,
    pub incarnation: Name,
    pub version: String,
    pub window: u32,
    pub started: usize,
    pub buffered: usize,
    /// Overdue leases that other executors have now.
    pub overdue: usize,
    pub last_heard: Time,
    pub draining: bool,
    /// The executor accepts no work, because the API server refuses its credentials.
    pub unauthenticated: bool,
    pub connected: bool,
    /// Wrong reports of this process: impossible ones, or ones that the API server contradicts.
    pub untrue_reports: u32,
}

/// One reference, and its meaning for the dependent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EdgeView {
    /// The owner in the reference.
    pub owner: ObjectRef,
    pub dependent: Uid,
    pub reference: OwnerReference,
    pub standing: OwnerStanding,
    /// How the owner is known.
    pub presence: Presence,
}

/// The meaning of a reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum OwnerStanding {
    /// The owner exists and does not wait for the dependent.
    Solid,
    /// The owner is proven absent.
    Dangling,
    /// The owner is in foreground deletion.
    Waiting,
    /// The owner orphans its dependents, or did so at its deletion.
    Orphaning,
    /// Neither presence nor absence is proven yet.
    Unverified,
    /// A cluster-scoped object cannot have a namespaced owner.
    InvalidScope,
    /// The uid belongs to an object in another namespace.
    WrongNamespace,
    /// The API server does not serve the owner's kind.
    KindUnresolved,
    /// The uid belongs to an object of another kind or name.
    CoordinatesMismatch,
}

/// Why an object exists, is terminating, or is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    pub object: NodeView,
    pub verdict: VerdictView,
    /// The most important first.
    pub reasons: Vec<Reason>,
    /// The first [`LISTED_MAX`] references, in order. `object` has the total number.
    pub owners: Vec<EdgeView>,
    pub item: Option<ItemView>,
}

/// The verdict on an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum VerdictView {
    /// An owner keeps it.
    Kept,
    /// The object has no references: never collected.
    Unowned,
    /// Its deletion is decided, and queued or leased.
    Collectable,
    /// Facts are missing.
    Undecided,
    /// The object would be deleted, and is held.
    Held,
    /// The object is being deleted, and nothing blocks the deletion.
    InProgress,
    /// The object is being deleted, and waits for finalizers or dependents.
    Blocked,
    /// The deletion was refused as invalid, and is retried.
    Parked,
    /// Proven absent.
    Gone,
}

/// One reason of an [`Explanation`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    pub code: ReasonCode,
    /// The subject: a finalizer, a collection, a webhook. Empty if `related` names it.
    pub detail: String,
    /// Related objects, at most [`RELATED_MAX`].
    pub related: Vec<ObjectRef>,
    /// The number of related objects. `related` names the first of them.
    pub count: usize,
    pub since: Option<Time>,
    /// When it ends without action, if known.
    pub until: Option<Time>,
}

/// Returns a reason without related objects.
pub(crate) fn plain(code: ReasonCode) -> Reason {
    Reason { code, detail: String::new(), related: Vec::new(), count: 0, since: None, until: None }
}

/// Maximum number of related objects of one reason.
pub const RELATED_MAX: usize = 20;
/// Maximum number of references, and of finalizers, in the view of one object.
pub const LISTED_MAX: usize = 100;

/// The kind of reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReasonCode {
    SolidOwner,
    OwnerUnverified,
    OwnerKindUnresolved,
    OwnerUnreadable,
    OwnersAbsent,
    OwnersWaiting,
    CollectionUnsynced,
    HoldAnnotation,
    Paused,
    Protected,
    AwaitingApproval,
    Gated,
    OverBudget,
    InvalidReference,
    TooManyReferences,
    FinalizerPresent,
    BlockingDependents,
    ContentsRemain,
    DependentsToOrphan,
    Cycle,
    Forbidden,
    AdmissionDenied,
    Throttled,
    Backoff,
    NoExecutor,
    NotLeading,
    GrantsStopped,
    ObserveOnly,
    AwaitingOwnWrite,
    GracePeriod,
    NeverObserved,
    Deleted,
    CollectionInDoubt,
    Undone,
}

/// An open decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ItemView {
    pub id: u64,
    pub action: ActionKind,
    pub place: PlaceView,
    pub decided: Time,
    pub attempts: u32,
}

/// The state of a decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlaceView {
    /// Waits for an executor.
    Ready,
    /// Never granted: the mode is observe.
    Observed,
    /// Held by a guard or by the object itself, or because guards cannot be read; as text.
    Held { by: String },
    /// Retried at this time.
    Backoff { until: Time },
    /// Waits with others for the blocker that refused it.
    Behind { blocker: String },
    /// Leased to this executor, and `started` at this time if it has started.
    Leased { executor: Name, started: Option<Time> },
}

/// The effect of a deletion on one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanEntry {
    pub object: ObjectRef,
    pub effect: Effect,
    /// The step of the plan. Objects of the same step do not wait for each other.
    pub step: u32,
    pub reasons: Vec<Reason>,
}

/// See [`PlanEntry`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effect {
    /// The object is deleted.
    Delete,
    /// The object stays, and loses references.
    ReferenceRemoved,
    /// The object stays, and loses the reference to an owner that orphans it.
    Orphaned,
    /// The object is marked for deletion, and waits.
    Waits,
    /// The object is held.
    Held,
    /// Facts are missing.
    Unknown,
}

/// The effects of a deletion.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// By step, collection, namespace and name.
    pub entries: Vec<PlanEntry>,
    /// Digest of all facts of the plan: equal digests mean equal plans.
    pub digest: u64,
    /// Targets that the graph does not hold.
    pub missing: Vec<Uid>,
    /// Collections whose state left effects undecided.
    pub unsynced: Vec<GroupResource>,
    /// The plan is incomplete, because the targets have more dependents than the limit.
    pub cut: bool,
    /// The effect of guards on the collector's part of the plan, by kind and name.
    pub guards: Vec<PlanGuard>,
}

/// The effect of a guard on a plan. A guard that lets everything pass is left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanGuard {
    pub kind: GuardKind,
    /// Empty if the guards of the kind cannot be read, or are too many.
    pub name: Name,
    pub does: GuardDoes,
    /// The number of objects that this concerns.
    pub objects: u64,
    /// The reason of the guard.
    pub reason: String,
    pub until: Option<Time>,
}

/// See [`PlanGuard`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GuardDoes {
    /// The guard holds the objects. An object that several guards hold counts for the strictest.
    Hold,
    /// The cascade of this root waits until a person approves this digest. Its objects are those that the cascade
    /// counts.
    Await(Cascade),
    /// The guard is asked about the objects. The answer is not known.
    Ask,
    /// The objects are beyond the room that its window has now, of this number of objects in its scope.
    Exceed { of: u64 },
}

/// A strongly connected component of references.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CycleView {
    pub members: Vec<NodeView>,
    pub edges: Vec<EdgeView>,
    /// All members are in foreground deletion.
    pub deadlocked: bool,
    /// The member whose reference is unblocked first.
    pub unblock: Uid,
}
