//! What readers may see of a leader's state: plain values, no references into it.

use crate::coverage::State;
use crate::hold::Scope;
use crate::object::{Facts, GroupResource, Name, ObjectRef, OwnerReference, ResourceVersion, ServedKind, Uid};
use crate::time::Time;
use crate::work::{ActionKind, Term};
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

mod waits;

pub use crate::lies::UntrueView;
pub use waits::{AGE_BOUNDS, Waiting, Waits};

/// The leader in numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Set while this replica leads.
    pub term: Option<Term>,
    pub nodes: usize,
    pub edges: usize,
    pub virtual_nodes: usize,
    /// What the large parts of the graph take.
    pub graph_bytes: usize,
    /// Decided, waiting for an executor.
    pub queued: usize,
    /// Of these, waiting out a backoff or behind a blocker.
    pub backing_off: usize,
    /// Of these, behind a blocker, by what blocks: `in_doubt`, `forbidden`, `webhook`, `throttled` or `unreadable`.
    pub blocked: Vec<(&'static str, usize)>,
    /// Of these, held by pauses, or because it is not known which pauses there are.
    pub held: usize,
    pub leased: usize,
    /// Of what is to be carried out and is not held, in whole seconds.
    pub oldest_pending: Option<Time>,
    /// Of what is held, likewise.
    pub oldest_held: Option<Time>,
    /// Dependents without a verdict, by cause.
    pub undecided: Vec<(Undecided, usize)>,
    /// Of the objects with more references than are looked at, the first [`EXCESSIVE_NAMED`].
    pub excessive: Vec<ObjectRef>,
    pub sessions: usize,
    /// Why nothing is granted, if nothing is.
    pub stopped: Option<String>,
    /// Why nothing is granted that destroys, if it is not because of pauses.
    pub pauses_unknown: Option<String>,
    /// Whether single objects are there.
    pub questions: Questions,
    /// Collections about which answers contradicted each other lately, and how they did last.
    pub inconsistent: Vec<(GroupResource, String)>,
    /// Collections whose lists stand elsewhere than those of the main store, and that are not among [`crate::leader::Policy::separate_stores`].
    pub kept_apart: Vec<GroupResource>,
    /// Kinds that are there, that discovery does not show, and that hold owners in deletion.
    pub hidden: Vec<Unseen>,
    /// Executors whose reports were not true, the first 20.
    pub untrue: Vec<UntrueView>,
}

/// Kinds of which nothing can be seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unseen {
    /// `RESOURCE.GROUP`, where the resource may be `*`.
    pub what: String,
    pub why: String,
    pub since: Time,
}

/// Questions to the API server whether single objects are there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Questions {
    pub waiting: usize,
    pub under_way: usize,
    /// Collections whose answers failed, by group and resource.
    pub unanswered: Vec<Unanswered>,
}

/// A collection that does not answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unanswered {
    pub collection: GroupResource,
    /// Owners that are asked for in vain.
    pub owners: usize,
    /// The last failure.
    pub why: String,
    pub since: Time,
    /// When it is asked next.
    pub next: Time,
    /// It is being asked now.
    pub asking: bool,
}

/// Most objects with too many references that a [`Status`] names.
pub const EXCESSIVE_NAMED: usize = 5;

/// One pause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PauseView {
    pub name: Name,
    pub uid: Uid,
    pub scope: Scope,
    pub reason: String,
    /// Who pressed it, as far as its resource says.
    pub actor: String,
    /// When it was written, as a time after 1970.
    pub created: Duration,
    /// How long it lasts from then on.
    pub lifetime: Duration,
    /// Its end here, which may be some seconds later than what the two before come to.
    pub until: Time,
    /// Its lifetime has passed.
    pub over: bool,
    /// No write in its scope can be sent any more, or be on its way. Known only where this replica leads.
    pub effective: bool,
    /// Sessions that may still send one, or have one on its way; those of earlier leaders count as one.
    pub sessions_remaining: usize,
    /// Why it is not effective; empty once it is, or is over.
    pub pending: String,
    /// Items that it holds. One that several pauses hold counts for the first of them by name.
    pub held: usize,
    /// What is wrong with its resource; empty if nothing is.
    pub problem: String,
}

/// Why there is no verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Undecided {
    /// No proof yet of the owner's existence or absence; it is being asked for.
    OwnerUnverified,
    /// The API server does not serve the owner's kind, or serves it as several resources.
    OwnerKindUnresolved,
    /// The owner's collection cannot be listed, or its list is under way.
    CollectionUnsynced,
    /// An owner in deletion might have dependents in a collection that cannot be seen.
    DependentsUnseen,
    /// The answers about the owner were errors.
    OwnerUnreadable,
    /// The object has more references than are looked at.
    TooManyReferences,
}

impl Undecided {
    /// All of them.
    pub const ALL: [Undecided; 6] = [
        Undecided::OwnerUnverified,
        Undecided::OwnerKindUnresolved,
        Undecided::CollectionUnsynced,
        Undecided::DependentsUnseen,
        Undecided::OwnerUnreadable,
        Undecided::TooManyReferences,
    ];

    /// The word for logs and labels.
    pub fn as_str(self) -> &'static str {
        match self {
            Undecided::OwnerUnverified => "owner_unverified",
            Undecided::OwnerKindUnresolved => "owner_kind_unresolved",
            Undecided::CollectionUnsynced => "collection_unsynced",
            Undecided::DependentsUnseen => "dependents_unseen",
            Undecided::OwnerUnreadable => "owner_unreadable",
            Undecided::TooManyReferences => "too_many_references",
        }
    }
}

/// One collection, as readiness and coverage show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CollectionStatus {
    pub kind: ServedKind,
    pub state: State,
    pub position: Option<ResourceVersion>,
    pub objects: usize,
    /// Last error, empty when there is none.
    pub error: String,
    /// Since when the collection is in this state.
    pub since: Time,
    /// Last event, bookmark or completed list.
    pub progress: Option<Time>,
    /// Its lists stand elsewhere than those of the main store, and it is not said to have a store of its own: no list proves anything of it.
    pub kept_apart: bool,
    /// How answers about it contradicted each other lately, if they did.
    pub inconsistent: Option<String>,
}

/// How far a collection has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reached {
    pub state: State,
    /// Up to here the graph has everything that its watch had to say; `None` before the first list has ended, and after
    /// the store went back before the next one has.
    pub position: Option<ResourceVersion>,
    /// The version to ask for on the wire.
    pub version: Name,
}

/// A kind that references name and the API server does not serve, or serves as several resources, with how many dependents wait for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnresolvedKind {
    pub group: Name,
    pub kind: Name,
    /// None, or several: a reference does not say which of them it means.
    pub resources: Vec<GroupResource>,
    pub since: Time,
    pub dependents: usize,
}

/// One node of the graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeView {
    /// `resource` and `version` are empty where the kind is not served.
    pub object: ObjectRef,
    pub presence: PresenceView,
    pub resource_version: Option<ResourceVersion>,
    /// Of references and finalizers the first [`LISTED_MAX`]; the finalizers of garbage collection are among these wherever they stand.
    pub facts: Facts,
    /// How many references it has, of which `facts` has the first.
    pub owners: usize,
    /// How many finalizers it has.
    pub finalizers: usize,
    /// How many objects name this one as owner.
    pub dependents: usize,
    /// Of these, how many block its foreground deletion.
    pub blocking_dependents: usize,
    pub undecided: Option<Undecided>,
    /// How far its deletion by the collector is, while it is not marked.
    pub collecting: Option<Collecting>,
    pub evidence: Evidence,
}

/// How far the deletion of an object is that the collector wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Collecting {
    /// Decided, and waits.
    Queued,
    /// A pause or the annotation holds it.
    Held,
    /// An executor has it.
    Leased,
}

/// How a node is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PresenceView {
    Observed,
    /// Referred to, and not shown by its collection. A read may have found it.
    Virtual,
    /// Proven absent.
    Absent,
}

/// Something that stands in the way of many items at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockerView {
    /// The rule, webhook or collection, in words that begin with `in_doubt`, `forbidden`, `webhook`, `throttled`, `unreadable`,
    /// `undiscovered` or `ambiguous`.
    pub what: String,
    /// Items that wait for it.
    pub items: usize,
    pub since: Time,
    /// What the last attempt that met it came to; empty where none did.
    pub said: String,
    /// When one of these items, or of those behind a blocker of the same kind, tries next. `None` where all are let go at a pace.
    pub next_probe: Option<Time>,
    /// One of them is trying now.
    pub probing: bool,
}

/// A decision that waits for another try of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TroubleView {
    pub object: ObjectRef,
    pub action: ActionKind,
    pub attempts: u32,
    /// When it was decided.
    pub since: Time,
    /// Why it waits, in words.
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
    /// Leases it was too late with, and that others have by now.
    pub overdue: usize,
    pub last_heard: Time,
    pub draining: bool,
    /// It takes no work, because the API server does not accept its credentials.
    pub unauthenticated: bool,
    pub connected: bool,
    /// Reports of this process that cannot be true, or that the API server contradicts.
    pub untrue_reports: u32,
}

/// Where what is known of a node comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evidence {
    pub source: Source,
    /// The version of the object, or the position at which it was absent. `None` where the source has none.
    pub resource_version: Option<ResourceVersion>,
}

/// See [`Evidence`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// A list or watch of its collection.
    Watch,
    /// An executor read it from the API server.
    LiveRead,
    /// Only references to it are known.
    Inferred,
    /// A consistent list of its name lacks it.
    List,
    /// Two reads of a kind without list did not find it.
    ReadTwice,
    /// The instances of its kind were deleted, by its definition's own last status.
    TypeEmptied,
}

/// One reference, and what it is worth to the object that has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EdgeView {
    /// Where the reference leads.
    pub owner: ObjectRef,
    pub dependent: Uid,
    pub reference: OwnerReference,
    pub standing: OwnerStanding,
    pub evidence: Evidence,
}

/// What a reference is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum OwnerStanding {
    /// The owner is there, and does not wait for the dependent to go.
    Solid,
    /// The owner is proven absent.
    Dangling,
    /// The owner is in foreground deletion.
    Waiting,
    /// The owner is, or was when it went, in orphaning deletion.
    Orphaning,
    /// No proof of presence or absence yet.
    Unverified,
    /// A cluster-scoped object cannot have a namespaced owner.
    InvalidScope,
    /// The uid is that of an object in another namespace.
    WrongNamespace,
    /// The API server does not serve the owner's kind.
    KindUnresolved,
    /// The uid is that of an object of another kind or name.
    CoordinatesMismatch,
}

/// Why an object is still here, is going, or went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    pub object: NodeView,
    pub verdict: VerdictView,
    /// The most important first.
    pub reasons: Vec<Reason>,
    /// References, in order: the first [`LISTED_MAX`]; `object` has their number.
    pub owners: Vec<EdgeView>,
    pub item: Option<ItemView>,
}

/// What follows for an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum VerdictView {
    /// An owner keeps it.
    Kept,
    /// It has no references: never collected.
    Unowned,
    /// Its deletion is decided, and queued or leased.
    Collectable,
    /// Facts are missing.
    Undecided,
    /// Would be collected, but something holds it.
    Held,
    /// It is being deleted, and nothing is in the way.
    InProgress,
    /// It is being deleted, and waits for finalizers or dependents.
    Blocked,
    /// Was refused as invalid, and is tried again now and then.
    Parked,
    /// Proven absent.
    Gone,
}

/// One reason of an [`Explanation`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    pub code: ReasonCode,
    /// What it is about: a finalizer, a collection, a webhook. Empty where `related` says it.
    pub detail: String,
    /// Objects it is about, at most [`RELATED_MAX`].
    pub related: Vec<ObjectRef>,
    /// How many there are, of which `related` names the first.
    pub count: usize,
    pub since: Option<Time>,
    /// When it ends by itself, where it does.
    pub until: Option<Time>,
}

/// Most objects that one reason names.
pub const RELATED_MAX: usize = 20;
/// Most references, and most finalizers, that are listed with one object.
pub const LISTED_MAX: usize = 100;

/// What kind of reason.
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

impl ReasonCode {
    /// The word for logs, labels and screens.
    pub fn as_str(self) -> &'static str {
        match self {
            ReasonCode::SolidOwner => "solid_owner",
            ReasonCode::OwnerUnverified => "owner_unverified",
            ReasonCode::OwnerKindUnresolved => "owner_kind_unresolved",
            ReasonCode::OwnerUnreadable => "owner_unreadable",
            ReasonCode::OwnersAbsent => "owners_absent",
            ReasonCode::OwnersWaiting => "owners_waiting",
            ReasonCode::CollectionUnsynced => "collection_unsynced",
            ReasonCode::HoldAnnotation => "hold_annotation",
            ReasonCode::Paused => "paused",
            ReasonCode::InvalidReference => "invalid_reference",
            ReasonCode::TooManyReferences => "too_many_references",
            ReasonCode::FinalizerPresent => "finalizer_present",
            ReasonCode::BlockingDependents => "blocking_dependents",
            ReasonCode::ContentsRemain => "contents_remain",
            ReasonCode::DependentsToOrphan => "dependents_to_orphan",
            ReasonCode::Cycle => "cycle",
            ReasonCode::Forbidden => "forbidden",
            ReasonCode::AdmissionDenied => "admission_denied",
            ReasonCode::Throttled => "throttled",
            ReasonCode::Backoff => "backoff",
            ReasonCode::NoExecutor => "no_executor",
            ReasonCode::NotLeading => "not_leading",
            ReasonCode::GrantsStopped => "grants_stopped",
            ReasonCode::ObserveOnly => "observe_only",
            ReasonCode::AwaitingOwnWrite => "awaiting_own_write",
            ReasonCode::GracePeriod => "grace_period",
            ReasonCode::NeverObserved => "never_observed",
            ReasonCode::Deleted => "deleted",
            ReasonCode::CollectionInDoubt => "collection_in_doubt",
            ReasonCode::Undone => "undone",
        }
    }
}

/// A decision that is not carried out yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ItemView {
    pub id: u64,
    pub action: ActionKind,
    pub place: PlaceView,
    pub decided: Time,
    pub attempts: u32,
}

/// Where a decision is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlaceView {
    /// Waits for an executor.
    Ready,
    /// Is never granted: the mode is observe.
    Observed,
    /// A pause holds it, or it is not known which pauses there are; in words.
    Held { by: String },
    /// Is tried again then.
    Backoff { until: Time },
    /// Waits with others for what refused it.
    Behind { blocker: String },
    /// Held by this executor; `started` since then, if it has begun.
    Leased { executor: Name, started: Option<Time> },
}

/// What a deletion would do to one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanEntry {
    pub object: ObjectRef,
    pub effect: Effect,
    /// Order of execution; equal steps do not wait for each other.
    pub step: u32,
    pub reasons: Vec<Reason>,
}

/// See [`PlanEntry`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effect {
    /// It goes.
    Delete,
    /// It stays, and loses references.
    ReferenceRemoved,
    /// It stays, and loses the reference to an owner that orphans it.
    Orphaned,
    /// It is marked for deletion, and stays until something else happens.
    Waits,
    /// Something would keep it.
    Held,
    /// Facts are missing.
    Unknown,
}

/// What a deletion would do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// By step, collection, namespace and name.
    pub entries: Vec<PlanEntry>,
    /// Over every fact the plan rests on: equal digests, equal plans.
    pub digest: u64,
    /// Objects asked for that the graph does not hold.
    pub missing: Vec<Uid>,
    /// Collections whose state left something undecided.
    pub unsynced: Vec<GroupResource>,
    /// More objects than are looked at hang on the targets: the plan is not whole.
    pub cut: bool,
}

/// A strongly connected component of references.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CycleView {
    pub members: Vec<NodeView>,
    pub edges: Vec<EdgeView>,
    /// All members are in foreground deletion.
    pub deadlocked: bool,
    /// The member whose reference is relaxed first.
    pub unblock: Uid,
}
