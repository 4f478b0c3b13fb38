//! Steps of decisions. One way: followers take the messages as they are.

use super::query::cause;
use super::view::Clock;
use crate::decision::v1beta1::{Attempt, Cause as WireCause, DecisionEvent, Phase};
use crate::graph::v1beta1 as graph;
use crate::work::v1beta1 as work;
use engine::leader::{Cause, Event, Grounds, OpenDecision};
use engine::object::ObjectRef;
use engine::work::{ActionKind, Outcome, Term};

/// The step of a decision that an event is, if it is one. Its position is the log's to give.
pub fn decision_event(event: &Event, term: &Term, clock: Clock) -> Option<DecisionEvent> {
    let base = |target: &ObjectRef, action: ActionKind, grounds: &Grounds, phase: Phase| DecisionEvent {
        phase: phase.into(),
        ..step(target, action, grounds, term, clock)
    };
    Some(match event {
        Event::Decided { target, action, grounds: Some(grounds), .. } => {
            base(target, *action, grounds, Phase::Proposed)
        }
        Event::Granted { target, action, executor, attempt, grounds, .. } => DecisionEvent {
            executor: executor.to_string(),
            attempt: *attempt,
            ..base(target, *action, grounds, Phase::Leased)
        },
        Event::Attempted {
            target,
            action,
            outcome,
            executor,
            http_status,
            message,
            api_calls,
            attempt,
            grounds,
            ..
        } => DecisionEvent {
            executor: executor.to_string(),
            attempt: *attempt,
            report: Some(Attempt {
                outcome: work::Outcome::from(*outcome).into(),
                http_status: u32::from(*http_status),
                message: message.clone(),
                api_calls: *api_calls,
            }),
            ..base(target, *action, grounds, phase_of(*outcome))
        },
        Event::Withdrawn { target, action, decision, .. } => DecisionEvent {
            event_time: Some(clock.calendar.into()),
            decision_id: decision_id(*decision),
            phase: Phase::Superseded.into(),
            kind: work::ItemKind::from(*action).into(),
            target: Some(target.clone().into()),
            term: Some(term.clone().into()),
            ..Default::default()
        },
        Event::Decided { grounds: None, .. }
        | Event::Removed { .. }
        | Event::Proven { .. }
        | Event::Prevented { .. }
        | Event::Undone { .. }
        | Event::Collection { .. }
        | Event::Asked { .. }
        | Event::Inconsistent { .. }
        | Event::KeptApart { .. }
        | Event::SessionOpened { .. }
        | Event::SessionEnded { .. }
        | Event::Untrue { .. }
        | Event::TermGained(_)
        | Event::TermLost
        | Event::GrantsStopped { .. }
        | Event::GrantsResumed
        | Event::Rewound { .. }
        | Event::PauseTaken { .. }
        | Event::PauseEffective { .. }
        | Event::PauseEnded { .. }
        | Event::PausesUnknown { .. }
        | Event::PausesKnown
        | Event::OwnerInOtherNamespace { .. }
        | Event::TooManyReferences { .. }
        | Event::Readopted { .. }
        | Event::OrphaningForgotten { .. }
        | Event::Unusable { .. }
        | Event::Rejected { .. } => return None,
    })
}

/// The present state of a decision that is not carried out yet.
pub fn open_decision(open: &OpenDecision, term: &Term, clock: Clock) -> DecisionEvent {
    let phase = match (&open.executor, open.held) {
        (Some(_), _) => Phase::Leased,
        (None, true) => Phase::Held,
        (None, false) => Phase::Proposed,
    };
    DecisionEvent {
        event_time: Some(clock.timestamp(open.decided)),
        phase: phase.into(),
        executor: open.executor.as_ref().map(ToString::to_string).unwrap_or_default(),
        attempt: open.attempts,
        ..step(&open.target, open.action, &open.grounds, term, clock)
    }
}

/// How a decision is named.
pub fn decision_id(decision: u64) -> String {
    format!("{decision:016x}")
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
        reasons: owner_reasons,
        owners: grounds.owners.iter().cloned().map(Into::into).collect(),
        preconditions: Some(grounds.preconditions.clone().into()),
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
        // The owner is alive: nothing was deleted, and the decision is void.
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
