//! What readers may see of a leader's state: plain values, no references into it.

use crate::coverage::State;
use crate::object::{Facts, Name, ObjectRef, ResourceVersion, ServedKind};
use crate::time::Time;
use crate::work::Term;
use alloc::string::String;
use alloc::vec::Vec;

/// The leader in numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Set while this replica leads.
    pub term: Option<Term>,
    pub nodes: usize,
    pub edges: usize,
    pub virtual_nodes: usize,
    /// Decided, waiting for an executor.
    pub queued: usize,
    /// Of these, waiting out a backoff or behind a blocker.
    pub backing_off: usize,
    pub leased: usize,
    pub oldest_queued: Option<Time>,
    /// Dependents without a verdict, by cause.
    pub undecided: Vec<(Undecided, usize)>,
    pub sessions: usize,
    /// Why nothing is granted, if nothing is.
    pub stopped: Option<String>,
}

/// Why there is no verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Undecided {
    /// No proof yet of the owner's existence or absence; it is being asked for.
    OwnerUnverified,
    /// The API server does not serve the owner's kind.
    OwnerKindUnresolved,
    /// The owner's collection cannot be listed, or its list is under way.
    CollectionUnsynced,
    /// An owner in deletion might have dependents in a collection that cannot be seen.
    DependentsUnseen,
    /// The answers about the owner were errors.
    OwnerUnreadable,
}

impl Undecided {
    /// The word for logs and labels.
    pub fn as_str(self) -> &'static str {
        match self {
            Undecided::OwnerUnverified => "owner_unverified",
            Undecided::OwnerKindUnresolved => "owner_kind_unresolved",
            Undecided::CollectionUnsynced => "collection_unsynced",
            Undecided::DependentsUnseen => "dependents_unseen",
            Undecided::OwnerUnreadable => "owner_unreadable",
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
}

/// A kind that references name and the API server does not serve, with how many dependents wait for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnresolvedKind {
    pub group: Name,
    pub kind: Name,
    pub dependents: usize,
}

/// One node of the graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeView {
    /// `resource` and `version` are empty where the kind is not served.
    pub object: ObjectRef,
    pub presence: PresenceView,
    pub resource_version: Option<ResourceVersion>,
    pub facts: Facts,
    /// How many objects name this one as owner.
    pub dependents: usize,
    /// Of these, how many block its foreground deletion.
    pub blocking_dependents: usize,
    pub undecided: Option<Undecided>,
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

/// One executor with a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecutorView {
    pub executor: Name,
    pub incarnation: Name,
    pub version: String,
    pub window: u32,
    pub started: usize,
    pub buffered: usize,
    pub last_heard: Time,
    pub draining: bool,
    pub connected: bool,
}
