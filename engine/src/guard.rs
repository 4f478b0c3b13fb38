//! Guards as their resources state them: pauses, protections, budgets, approvals and gates. [`crate::hold`] decides
//! what they hold.

use crate::object::{GroupResource, HOLD_ANNOTATION, Name, ObjectRef, ResourceVersion, Uid};
use crate::scope::Scope;
use crate::words::words;
use crate::work::ActionKind;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

/// Prefix of the author of a Pause of the built-in breaker. The name of the collection follows.
pub const BREAKER_AUTHOR: &str = "breaker/";

words! {
    /// The kinds of guards, the strictest first. Their words are those of kubectl.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
    pub enum GuardKind {
        Pause = "pause",
        Protection = "protection",
        Approval = "approval",
        Gate = "gate",
        Budget = "budget",
    }
}

impl GuardKind {
    /// The kind, as in its resources.
    pub fn as_kind(self) -> &'static str {
        match self {
            GuardKind::Pause => "Pause",
            GuardKind::Protection => "Protection",
            GuardKind::Approval => "Approval",
            GuardKind::Gate => "Gate",
            GuardKind::Budget => "Budget",
        }
    }

    /// The plural name of the resource.
    pub fn plural(self) -> &'static str {
        match self {
            GuardKind::Pause => "pauses",
            GuardKind::Protection => "protections",
            GuardKind::Approval => "approvals",
            GuardKind::Gate => "gates",
            GuardKind::Budget => "budgets",
        }
    }
}

/// A guard by kind and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct GuardId {
    pub kind: GuardKind,
    pub name: Name,
}

impl core::fmt::Display for GuardId {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}/{}", self.kind.as_str(), self.name)
    }
}

/// The holder of a decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeldBy {
    Guard(GuardId),
    /// The hold annotation of the object.
    Annotation,
    /// An invalid owner reference of the object.
    InvalidReference,
}

impl core::fmt::Display for HeldBy {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            HeldBy::Guard(id) => id.fmt(f),
            HeldBy::Annotation => write!(f, "annotation/{HOLD_ANNOTATION}"),
            HeldBy::InvalidReference => f.write_str("invalid-reference"),
        }
    }
}

/// A guard, as in its resource.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Guard {
    pub id: GuardId,
    pub uid: Uid,
    pub resource_version: ResourceVersion,
    /// `metadata.generation`, for people: it grows when the spec changes.
    pub generation: u64,
    pub scope: Scope,
    /// For people.
    pub reason: String,
    /// Who created it, according to its resource; empty if unknown.
    pub actor: String,
    /// Creation time since 1970, for people: the engine does not read it.
    pub created: Duration,
    /// The lifetime from then on; `None`: it does not expire.
    pub lifetime: Option<Duration>,
    /// The elapsed part of the lifetime, as far as known. It counts only when the guard is first seen.
    pub elapsed: Duration,
    /// The time since 1970 at which the resource was read. Ends that the rule names are compared with it.
    pub read_at: Duration,
    /// Of a budget: the window that a leader has written to the status.
    pub recorded: Recorded,
    /// An error in the resource; empty if there is none.
    pub problem: String,
    pub rule: Rule,
}

/// The window of a budget, as a leader has written it to the status. A replica counts it when it first sees the budget,
/// and when it begins to lead.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Recorded {
    pub deletions: Vec<Spending>,
    /// The `countFrom` of the window that was exceeded; `None`: it was not.
    pub exceeded_from: Option<Duration>,
}

/// Deletions in one part of the window of a budget.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Spending {
    /// The begin of the part, since 1970.
    pub since: Duration,
    pub collection: GroupResource,
    pub count: u64,
}

/// The effect of a guard on the work in its scope.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Rule {
    /// Holds all of it. Pauses and protections differ in their manners only.
    Hold,
    Budget(Budget),
    Approval(Approval),
    Gate(Gate),
}

/// At most so many deletions in a window.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Budget {
    pub limit: Limit,
    pub window: Duration,
    pub on_exceeded: OnExceeded,
    /// Deletions before this time since 1970 do not count; zero: all of the window count.
    pub count_from: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Limit {
    Objects(u64),
    /// Of each collection, as it was when the window began.
    Percent(u8),
}

impl Limit {
    /// How many further deletions are within the limit. For a share, all numbers are those of one collection: `spent`
    /// counts the deletions of the window, `gone` those of them whose objects have gone, and `size` the objects that
    /// are left.
    pub(crate) fn room(self, spent: u64, gone: u64, size: u64) -> u64 {
        let max = match self {
            Limit::Objects(max) => max,
            // A small collection loses one object at a time.
            Limit::Percent(percent) => ((size + gone) * u64::from(percent) / 100).max(1),
        };
        max.saturating_sub(spent)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum OnExceeded {
    Hold,
    /// Creates a Pause with this lifetime.
    Pause(Duration),
    Approve,
}

/// Cascades that need the consent of a person.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Approval {
    /// A cascade with more objects in scope needs approval.
    pub more_than: Option<u64>,
    /// So does a cascade with an object of one of these collections in scope.
    pub resources: Vec<GroupResource>,
    pub approved: Vec<Approved>,
}

/// The approval of one cascade.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Approved {
    pub root: Uid,
    pub digest: u64,
    /// The end of the approval since 1970.
    pub until: Duration,
    pub actor: String,
    /// An earlier leader has compared the digest.
    pub accepted: bool,
}

impl Approved {
    /// Whether the entry is about this root and has not ended at this time since 1970.
    pub(crate) fn stands(&self, root: &Uid, calendar: Duration) -> bool {
        calendar < self.until && self.root == *root
    }
}

/// A policy engine is asked first.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Gate {
    pub roots_only: bool,
    pub observe_only: bool,
    pub timeout: Duration,
    pub failure_policy: FailurePolicy,
    pub max_hold: Duration,
    /// True: allow after the longest hold; false: deny.
    pub allow_after_max_hold: bool,
    /// A digest of the transport and the expression of the policy engine. After a change of it, the leader asks again.
    pub engine: u64,
    /// The end of a bypass since 1970; zero: none.
    pub bypass_until: Duration,
    /// Why the gate is bypassed.
    pub bypass: String,
    /// Who bypasses it, according to its resource; empty if unknown.
    pub bypass_by: String,
}

/// Maximum time of a question, with the extra time that its engine asks for.
pub const TIMEOUT_MAX: Duration = Duration::from_secs(10);

/// The time of a question after its engine has asked for extra time.
pub fn extended(timeout: Duration, extra: Duration) -> Duration {
    timeout.saturating_add(extra).min(TIMEOUT_MAX).max(timeout)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum FailurePolicy {
    Allow,
    Hold,
    Deny,
}

/// A question to a gate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    pub gate: Name,
    /// [`Gate::engine`] of the gate that the leader knows. Only this policy engine may answer.
    pub engine: u64,
    /// Distinguishes the questions of this process.
    pub number: u64,
    pub timeout: Duration,
    pub action: ActionKind,
    pub target: ObjectRef,
    pub resource_version: ResourceVersion,
    /// The objects that led to the decision, from the owner to the root; empty if the owner is unknown.
    pub chain: Vec<ObjectRef>,
    /// Identifies the decision in the log.
    pub decision: u64,
    /// Of a gate that is asked about roots only.
    pub cascade: Option<Cascade>,
    pub observe_only: bool,
}

/// The extent of a cascade.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cascade {
    pub root: ObjectRef,
    pub objects: u64,
    /// Objects by collection.
    pub totals: Vec<(GroupResource, u64)>,
    /// As text, the form that a plan shows.
    pub digest: u64,
    /// False if the walk stopped at a limit: there are more.
    pub complete: bool,
}

/// The answer of a policy engine.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Answer {
    Allow,
    Deny,
    /// Ask again after this time.
    Hold {
        again_after: Duration,
    },
    /// As if not asked.
    Abstain,
    /// No answer: the failure policy applies.
    Failed,
}

impl Answer {
    /// The word for the answer.
    pub fn as_str(&self) -> &'static str {
        match self {
            Answer::Allow => "allow",
            Answer::Deny => "deny",
            Answer::Hold { .. } => "hold",
            Answer::Abstain => "abstain",
            Answer::Failed => "no answer",
        }
    }
}

/// An answer with its author.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Answered {
    pub gate: Name,
    pub number: u64,
    pub answer: Answer,
    /// The policy or the instance that answered; for a failure, empty.
    pub by: String,
    /// For people: the message of the policy, or the error.
    pub message: String,
    /// How long the answer may be used again for the same facts.
    pub valid_for: Duration,
}
