//! The events of the leader.

use crate::coverage::State;
use crate::decision::{Cause, Grounds};
use crate::evidence::{CheckBy, Proof};
use crate::guard::{Answer, Cascade, GuardId, GuardKind, HeldBy};
use crate::object::{GroupResource, Name, ObjectRef, OwnerReference, ResourceVersion, Uid};
use crate::parity::{Disagreement, ParityView};
use crate::scope::Scope;
use crate::work::{ActionKind, Outcome, Term, WorkReport};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

/// Maximum number of finalizers that [`Event::AwaitingFinalizers`] names.
pub const FINALIZERS_TOLD_MAX: usize = 20;

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
    /// A decision begins to be held, by another holder than before, or nothing holds it any more.
    Held {
        target: ObjectRef,
        action: ActionKind,
        /// The strictest holder; `None` if nothing holds the decision.
        by: Option<HeldBy>,
        grounds: Box<Grounds>,
    },
    /// An attempt ended.
    Attempted {
        item: u64,
        /// The time from the decision to the report.
        age: Duration,
        end: AttemptEnd,
    },
    /// An attempt ended whose lease is of an earlier term of this election. Only the report of the executor shows the
    /// end.
    ReportedLate {
        /// The term that granted the lease.
        lease_term: Term,
        /// The grounds are as far as this leader knows them.
        end: AttemptEnd,
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
        /// The effect of the answer and the failure policy.
        allowed: bool,
        by: String,
        message: String,
        observe_only: bool,
    },
    /// A person bypasses a gate for a time.
    GateBypassed {
        id: GuardId,
        /// The end since 1970.
        until: Duration,
        reason: String,
        /// Who bypasses it, according to its resource; empty if unknown.
        actor: String,
    },
    /// A decision has no counterpart of the other collector, or a change of it has no decision.
    Disagreed(Box<Disagreement>),
    /// The counts of the comparison with another collector, for the next leader.
    Compared(Box<ParityView>),
    /// The leader ignored an invalid input.
    Rejected {
        why: String,
    },
}

/// The end of an attempt.
#[derive(Clone, Debug, PartialEq)]
pub struct AttemptEnd {
    pub target: ObjectRef,
    pub action: ActionKind,
    pub outcome: Outcome,
    pub executor: Name,
    pub http_status: u16,
    pub message: String,
    /// The same as in [`WorkReport`].
    pub audit_id: String,
    pub api_calls: u32,
    pub attempt: u32,
    pub grounds: Box<Grounds>,
}

impl AttemptEnd {
    /// Returns the end that a report shows.
    pub(super) fn of(
        report: &WorkReport,
        target: ObjectRef,
        action: ActionKind,
        executor: Name,
        grounds: Box<Grounds>,
    ) -> AttemptEnd {
        AttemptEnd {
            target,
            action,
            outcome: report.outcome,
            executor,
            http_status: report.http_status,
            message: report.message.clone(),
            audit_id: report.audit_id.clone(),
            api_calls: report.api_calls,
            attempt: report.attempt,
            grounds,
        }
    }
}
