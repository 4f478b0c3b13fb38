//! Converts steps of decisions to messages. The reverse conversion does not exist, because followers use the messages.

use super::clock::Clock;
use super::parity::{disagreed, parity};
use super::query::cause;
use crate::decision::v1beta1::system_event::Kind;
use crate::decision::v1beta1::{Attempt, Cause as WireCause, DecisionEvent, Phase, SystemEvent};
use crate::graph::v1beta1 as graph;
use crate::work::v1beta1 as work;
use engine::guard::{GuardId, GuardKind, HeldBy};
use engine::leader::{AttemptEnd, Cause, Event, Grounds, Logged, LoggedStep, OpenDecision};
use engine::object::{ObjectRef, clip};
use engine::work::{ActionKind, Outcome, Term};

mod bounds;
#[cfg(test)]
mod tests;

pub use bounds::{EVENT_MAX_BYTES, STUB_MAX_BYTES, bounded, stub};

/// Maximum length of a text in a change of the collector's state.
const TEXT_MAX_BYTES: usize = 1024;

/// The decision log of a leader: its events become records while it has a term.
#[derive(Clone, Debug, Default)]
pub struct LeaderLog {
    term: Option<Term>,
}

impl LeaderLog {
    /// The record of the next event, if it has one.
    pub fn record(&mut self, event: &Event, clock: Clock) -> Option<DecisionEvent> {
        if let Event::TermGained(term) = event {
            self.term = Some(term.clone());
        } else if let Event::TermLost = event {
            self.term = None;
        }
        decision_event(event, self.term.as_ref()?, clock)
    }
}

/// The record of an event in the decision log: a step of a decision, or a change of the collector's state. `None` if
/// the event has no record. The log sets the position.
pub fn decision_event(event: &Event, term: &Term, clock: Clock) -> Option<DecisionEvent> {
    record(event, term, clock).map(bounded)
}

fn record(event: &Event, term: &Term, clock: Clock) -> Option<DecisionEvent> {
    let about = |target: &ObjectRef, action: ActionKind, grounds: &Grounds, phase: Phase| DecisionEvent {
        phase: phase.into(),
        ..step(target, action, grounds, term, clock)
    };
    let ended = |end: &AttemptEnd| DecisionEvent {
        executor: end.executor.to_string(),
        attempt: end.attempt,
        report: Some(report(end)),
        ..about(&end.target, end.action, &end.grounds, phase_of(end.outcome))
    };
    let change = |system: SystemEvent| DecisionEvent {
        event_time: Some(clock.calendar.into()),
        term: Some(term.clone().into()),
        system: Some(system),
        ..DecisionEvent::default()
    };
    Some(match event {
        Event::Decided { target, action, grounds: Some(grounds), .. } => {
            about(target, *action, grounds, Phase::Proposed)
        }
        Event::Granted { target, action, executor, attempt, grounds, .. } => DecisionEvent {
            executor: executor.to_string(),
            attempt: *attempt,
            ..about(target, *action, grounds, Phase::Leased)
        },
        Event::Attempted { end, .. } => ended(end),
        Event::ReportedLate { lease_term, end } => {
            DecisionEvent { lease_term: Some(lease_term.clone().into()), ..ended(end) }
        }
        Event::Withdrawn { target, action, grounds, .. } => about(target, *action, grounds, Phase::Superseded),
        Event::Held { target, action, by: Some(by), grounds } => {
            let pause = match by {
                HeldBy::Guard(GuardId { kind: GuardKind::Pause, name }) => name.to_string(),
                HeldBy::Guard(_) | HeldBy::Annotation | HeldBy::InvalidReference => String::new(),
            };
            let guard = match by {
                HeldBy::Guard(id) => guard_name(id),
                HeldBy::Annotation | HeldBy::InvalidReference => by.to_string(),
            };
            DecisionEvent { pause, guard, ..about(target, *action, grounds, Phase::Held) }
        }
        Event::Held { target, action, by: None, grounds } => about(target, *action, grounds, Phase::Released),
        Event::Confirmed { target, resource_version, grounds } => DecisionEvent {
            watch_resource_version: resource_version.as_ref().map(ToString::to_string).unwrap_or_default(),
            ..about(target, ActionKind::Delete, grounds, Phase::Confirmed)
        },
        Event::AwaitingFinalizers { target, resource_version, finalizers, grounds } => DecisionEvent {
            watch_resource_version: resource_version.to_string(),
            finalizers: finalizers.iter().map(ToString::to_string).collect(),
            ..about(target, ActionKind::Delete, grounds, Phase::AwaitingFinalizers)
        },

        Event::Disagreed(disagreement) => disagreed(disagreement, term, clock),
        Event::Compared(view) => {
            let numbers = parity((**view).clone(), clock);
            change(SystemEvent { parity: Some(numbers), ..system(Kind::Compared, "", "") })
        }

        Event::GuardTaken { id, scope, reason, actor, problem, .. } => {
            let colon = if reason.is_empty() || problem.is_empty() { "" } else { ": " };
            change(SystemEvent {
                actor: actor.clone(),
                targets: scope.targets.iter().cloned().map(Into::into).collect(),
                ..of_guard(id, Kind::PausePressed, Kind::GuardTaken, &format!("{reason}{colon}{problem}"))
            })
        }
        Event::GuardEffective { id } => change(of_guard(id, Kind::PauseEffective, Kind::GuardEffective, "")),
        Event::GuardEnded { id, why } => change(of_guard(id, Kind::PauseEnded, Kind::GuardEnded, why)),
        Event::GuardsUnknown { kind: GuardKind::Pause, why } => change(system(Kind::PausesUnknown, "", why)),
        Event::GuardsUnknown { kind, why } => change(system(Kind::GuardsUnknown, kind.plural(), why)),
        Event::GuardsKnown { kind: GuardKind::Pause } => change(system(Kind::PausesKnown, "", "")),
        Event::GuardsKnown { kind } => change(system(Kind::GuardsKnown, kind.plural(), "")),
        Event::BudgetExceeded { id, collection, count } => {
            let why = format!("{count} deletions in the window; {collection} wait");
            change(of_guard(id, Kind::BudgetExceeded, Kind::BudgetExceeded, &why))
        }
        Event::BreakerOpened { collection, why } => {
            let collection = collection.to_string();
            change(SystemEvent { collection, ..system(Kind::BreakerOpened, "", why) })
        }
        Event::ApprovalNeeded { id, root, extent } => {
            let why = format!("{root}: {} objects, digest {:016x}", extent.objects, extent.digest);
            change(of_guard(id, Kind::ApprovalNeeded, Kind::ApprovalNeeded, &why))
        }
        Event::Approved { id, root, actor, digest } => {
            let why = format!("{root}: digest {digest:016x}");
            let event = of_guard(id, Kind::Approved, Kind::Approved, &why);
            change(SystemEvent { actor: actor.clone(), ..event })
        }
        Event::GateAnswered { id, target, answer, allowed, by, message, observe_only } => {
            let follows = match (allowed, observe_only) {
                (_, true) => "nothing follows, the gate only observes",
                (true, false) => "allowed",
                (false, false) => "held",
            };
            let colon = if message.is_empty() { "" } else { ": " };
            let why = format!("{target}: {}, {follows}{colon}{message}", answer.as_str());
            let event = of_guard(id, Kind::GateAnswered, Kind::GateAnswered, &why);
            change(SystemEvent { actor: by.clone(), ..event })
        }
        Event::GateBypassed { id, until, reason, actor } => {
            let until =
                prost_types::Timestamp { seconds: i64::try_from(until.as_secs()).unwrap_or(i64::MAX), nanos: 0 };
            let event = of_guard(id, Kind::GateBypassed, Kind::GateBypassed, &format!("until {until}: {reason}"));
            change(SystemEvent { actor: actor.clone(), ..event })
        }
        Event::GrantsStopped { why } => change(system(Kind::GrantsStopped, "", why)),
        Event::GrantsResumed => change(system(Kind::GrantsResumed, "", "")),
        Event::Rewound { collection, why } => {
            let collection = collection.to_string();
            change(SystemEvent { collection, ..system(Kind::StoreRewound, "", why) })
        }
        Event::ExecutorRefused { executor, why } => change(system(Kind::ExecutorRefused, executor, why)),
        Event::SessionEnded { executor, why: "superseded", .. } => {
            change(system(Kind::ExecutorSuperseded, executor, ""))
        }

        Event::Decided { grounds: None, .. }
        | Event::SessionEnded { .. }
        | Event::Removed { .. }
        | Event::Proven { .. }
        | Event::Prevented { .. }
        | Event::Undone { .. }
        | Event::Collection { .. }
        | Event::Asked { .. }
        | Event::Inconsistent { .. }
        | Event::KeptApart { .. }
        | Event::SessionOpened { .. }
        | Event::Untrue { .. }
        | Event::TermGained(_)
        | Event::TermLost
        | Event::OwnerInOtherNamespace { .. }
        | Event::TooManyReferences { .. }
        | Event::Readopted { .. }
        | Event::OrphaningForgotten { .. }
        | Event::Unusable { .. }
        | Event::Rejected { .. } => return None,
    })
}

/// A guard as a resource name: `protections/NAME`.
fn guard_name(id: &GuardId) -> String {
    format!("{}/{}", id.kind.plural(), id.name)
}

/// Pauses have kinds of events of their own.
fn of_guard(id: &GuardId, of_pause: Kind, of_other: Kind, why: &str) -> SystemEvent {
    match id.kind {
        GuardKind::Pause => SystemEvent { guard: guard_name(id), ..system(of_pause, &id.name, why) },
        GuardKind::Protection | GuardKind::Approval | GuardKind::Gate | GuardKind::Budget => {
            SystemEvent { guard: guard_name(id), ..system(of_other, &id.name, why) }
        }
    }
}

fn report(end: &AttemptEnd) -> Attempt {
    Attempt {
        outcome: work::Outcome::from(end.outcome).into(),
        http_status: u32::from(end.http_status),
        message: end.message.clone(),
        api_calls: end.api_calls,
        audit_id: end.audit_id.clone(),
    }
}

fn system(kind: Kind, name: &str, reason: &str) -> SystemEvent {
    SystemEvent {
        kind: kind.into(),
        name: name.to_owned(),
        reason: clip(reason, TEXT_MAX_BYTES),
        ..SystemEvent::default()
    }
}

/// The current state of an open decision.
pub fn open_decision(open: &OpenDecision, term: &Term, clock: Clock) -> DecisionEvent {
    let phase = match (&open.executor, open.held) {
        (Some(_), _) => Phase::Leased,
        (None, true) => Phase::Held,
        (None, false) => Phase::Proposed,
    };
    bounded(DecisionEvent {
        event_time: Some(clock.timestamp(open.decided)),
        phase: phase.into(),
        executor: open.executor.as_ref().map(ToString::to_string).unwrap_or_default(),
        attempt: open.attempts,
        ..step(&open.target, open.action, &open.grounds, term, clock)
    })
}

/// The meaning of a step for the next leader.
#[derive(Clone, Debug, PartialEq)]
pub enum Standing {
    /// Another step follows.
    Open(Logged),
    /// The decision has ended.
    Ended,
}

/// The standing after a step. `None` if the event is not a step or cannot be read.
pub fn standing(event: &DecisionEvent) -> Option<Standing> {
    let action: ActionKind = Option::from(event.kind())?;
    let is_ambiguous = event.report.as_ref().is_some_and(|report| report.outcome() == work::Outcome::Ambiguous);
    let step = match event.phase() {
        Phase::Unspecified | Phase::Disagreed => return None,
        Phase::Superseded | Phase::Confirmed => return Some(Standing::Ended),
        Phase::Succeeded if action != ActionKind::Delete => return Some(Standing::Ended),
        Phase::Succeeded | Phase::AwaitingFinalizers => LoggedStep::Accepted,
        Phase::Leased => LoggedStep::Leased,
        Phase::Failed if is_ambiguous => LoggedStep::Leased,
        Phase::Proposed | Phase::Held | Phase::Released | Phase::Failed | Phase::Parked => LoggedStep::Waiting,
    };
    let target = ObjectRef::try_from(event.target.clone()?).ok()?;
    Some(Standing::Open(Logged { target, action, decision: parse_decision_id(&event.decision_id)?, step }))
}

/// The id of a decision as text.
pub fn decision_id(decision: u64) -> String {
    format!("{decision:016x}")
}

/// Parses the text of [`decision_id`].
pub fn parse_decision_id(text: &str) -> Option<u64> {
    let is_plain = text.len() == 16 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    u64::from_str_radix(text, 16).ok().filter(|_| is_plain)
}

fn step(target: &ObjectRef, action: ActionKind, grounds: &Grounds, term: &Term, clock: Clock) -> DecisionEvent {
    let owner_reasons = grounds.causes.iter().map(cause).collect::<Vec<graph::Reason>>();
    let cause_chain: Vec<_> = grounds.chain.iter().cloned().map(Into::into).collect();
    DecisionEvent {
        event_time: Some(clock.calendar.into()),
        decision_id: decision_id(grounds.decision),
        cause: cause_of(action, &grounds.causes).into(),
        kind: work::ItemKind::from(action).into(),
        target: Some(target.clone().into()),
        root: cause_chain.last().cloned(),
        root_resource_version: grounds.root.resource_version.as_ref().map(ToString::to_string).unwrap_or_default(),
        root_deletion_time: grounds
            .root
            .deletion_time
            .map(|seconds| prost_types::Timestamp { seconds: i64::from(seconds.get()), nanos: 0 }),
        reasons: owner_reasons,
        reason_count: grounds.cause_count as u64,
        owner_count: grounds.owner_count as u64,
        owners: grounds.owners.iter().cloned().map(Into::into).collect(),
        // A step without an item has none.
        preconditions: (!grounds.preconditions.resource_version.is_empty())
            .then(|| grounds.preconditions.clone().into()),
        propagation_policy: grounds
            .propagation_policy
            .map(crate::r#type::v1beta1::PropagationPolicy::from)
            .unwrap_or_default()
            .into(),
        term: Some(term.clone().into()),
        cause_chain,
        ..Default::default()
    }
}

fn cause_of(action: ActionKind, causes: &[Cause]) -> WireCause {
    let any = |wanted: fn(&Cause) -> bool| causes.iter().any(wanted);
    match action {
        // The cause is no longer known.
        ActionKind::Delete if causes.is_empty() => WireCause::Unspecified,
        ActionKind::Delete if any(|cause| matches!(cause, Cause::OwnerWaiting { .. })) => WireCause::ForegroundCascade,
        ActionKind::Delete => WireCause::OwnersGone,
        ActionKind::RemoveOwnerReferences if any(|cause| matches!(cause, Cause::OwnerOrphans { .. })) => {
            WireCause::OrphanRequested
        }
        ActionKind::RemoveOwnerReferences => WireCause::DanglingReference,
        ActionKind::UnblockOwnerReferences => WireCause::CycleBreak,
        ActionKind::RemoveFinalizer => WireCause::DependentsDone,
    }
}

fn phase_of(outcome: Outcome) -> Phase {
    match outcome {
        Outcome::Done | Outcome::Unchanged | Outcome::Gone | Outcome::Replaced => Phase::Succeeded,
        // The owner is alive, so nothing was deleted, and the decision is void.
        Outcome::OwnerExists => Phase::Superseded,
        Outcome::Invalid | Outcome::Unsupported => Phase::Parked,
        Outcome::Conflict
        | Outcome::Forbidden
        | Outcome::Unauthenticated
        | Outcome::AdmissionDenied
        | Outcome::AdmissionFailed
        | Outcome::Throttled
        | Outcome::Transient
        | Outcome::Ambiguous
        | Outcome::Abandoned => Phase::Failed,
    }
}
