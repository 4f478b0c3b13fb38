//! Converts answers about the graph to messages. The reverse conversion does not exist, because readers use the
//! messages.

use super::clock::Clock;
use super::texts::{MESSAGE_MAX_BYTES, cut_edge, cut_object, text};
use crate::graph::v1beta1 as graph;
use crate::graph::v1beta1::preview_deletion_response::{Effect, Entry, Guard, GuardEffect, Total};
use crate::graph::v1beta1::reason::Code;
use crate::r#type::v1beta1 as wire;
use crate::r#type::v1beta1::evidence::Source;
use engine::evidence::{Presence, Proof};
use engine::leader::{Cause, Found, Tombstone};
use engine::object::{GroupResource, ObjectRef, clip};
use engine::view::{
    CycleView, EdgeView, Explanation, GuardDoes, ItemView, LISTED_MAX, OwnerStanding, PlaceView, Plan, PlanGuard,
    Reason, ReasonCode, VerdictView,
};
use std::collections::BTreeMap;

/// The source of the knowledge about `object`.
pub(super) fn evidence_of(object: &ObjectRef, presence: &Presence) -> wire::Evidence {
    let (source, version) = match presence {
        Presence::Observed { resource_version } => (Source::Watch, Some(resource_version)),
        Presence::Read { position } => (Source::LiveRead, Some(position)),
        Presence::Virtual { .. } => (Source::Inferred, None),
        Presence::Absent(Proof::WatchDeleted { resource_version }) => (Source::Watch, Some(resource_version)),
        Presence::Absent(Proof::Listed { resource_version }) => (Source::List, Some(resource_version)),
        Presence::Absent(Proof::TypeEmptied { .. }) => (Source::TypeEmptied, None),
        Presence::Absent(Proof::ReadTwice) => (Source::ReadTwice, None),
    };
    // A kind that is not served has no collection.
    let served = |collection: &GroupResource| !collection.resource.is_empty();
    wire::Evidence {
        source: source.into(),
        group_resource: Some(object.group_resource()).filter(served).map(Into::into),
        resource_version: text(version),
    }
}

impl From<EdgeView> for graph::Edge {
    fn from(edge: EdgeView) -> Self {
        let standing = graph::OwnerStanding::from(edge.standing);
        let mut edge = graph::Edge {
            owner_uid: edge.owner.uid.to_string(),
            dependent_uid: edge.dependent.to_string(),
            reference: Some(edge.reference.into()),
            standing: standing.into(),
            evidence: Some(evidence_of(&edge.owner, &edge.presence)),
            owner: Some(edge.owner.into()),
        };
        cut_edge(&mut edge);
        edge
    }
}

impl From<Found> for graph::list_dependents_response::Dependent {
    fn from(found: Found) -> Self {
        let edges = found.edges.into_iter().map(Into::into).collect();
        Self { node: Some(found.node.into()), depth: found.depth, edges }
    }
}

impl From<Found> for graph::list_owners_response::Owner {
    fn from(found: Found) -> Self {
        let edges = found.edges.into_iter().map(Into::into).collect();
        Self { node: Some(found.node.into()), depth: found.depth, edges }
    }
}

same_names!(VerdictView => graph::Verdict {
    Kept, Unowned, Collectable, Undecided, Held, InProgress, Blocked, Parked, Gone,
});
same_names!(OwnerStanding => graph::OwnerStanding {
    Solid, Dangling, Waiting, Orphaning, Unverified, InvalidScope, WrongNamespace, KindUnresolved,
    CoordinatesMismatch,
});
same_names!(engine::view::Effect => Effect {
    Delete, ReferenceRemoved, Orphaned, Waits, Held, Unknown,
});

/// An explanation, without the state of the answering replica.
pub fn explanation(of: Explanation, clock: Clock) -> graph::ExplainObjectResponse {
    let Explanation { object, verdict, reasons, owners, item } = of;
    graph::ExplainObjectResponse {
        node: Some(object.into()),
        verdict: graph::Verdict::from(verdict).into(),
        reasons: reasons.into_iter().map(|each| reason(each, clock)).collect(),
        owners: owners.into_iter().map(Into::into).collect(),
        work: item.map(|item| pending_work(item, clock)),
        ..Default::default()
    }
}

/// Converts the record of a deleted object, without the state of the answering replica.
pub fn gone(tombstone: Tombstone, clock: Clock) -> graph::ExplainObjectResponse {
    graph::ExplainObjectResponse {
        node: Some(graph::Node::from(&tombstone)),
        verdict: graph::Verdict::Gone.into(),
        departure: Some(departure(tombstone, clock)),
        ..Default::default()
    }
}

/// A deleted object as a node.
impl From<&Tombstone> for graph::Node {
    fn from(tombstone: &Tombstone) -> graph::Node {
        graph::Node {
            r#ref: Some(tombstone.object.clone().into()),
            state: graph::NodeState::Gone.into(),
            resource_version: text(tombstone.resource_version.as_ref()),
            ..Default::default()
        }
    }
}

same_names!(ReasonCode => Code {
    SolidOwner, OwnerUnverified, OwnerKindUnresolved, OwnerUnreadable, OwnersAbsent, OwnersWaiting,
    CollectionUnsynced, HoldAnnotation, Paused, Protected, AwaitingApproval, Gated, OverBudget, InvalidReference,
    TooManyReferences, FinalizerPresent, BlockingDependents, DependentsToOrphan, Cycle, Forbidden, AdmissionDenied,
    Throttled, Backoff, NoExecutor, NotLeading, GrantsStopped, ObserveOnly, AwaitingOwnWrite, GracePeriod,
    NeverObserved, CollectionInDoubt, Undone, Deleted, ContentsRemain,
});

/// One reason of a verdict.
pub fn reason(reason: Reason, clock: Clock) -> graph::Reason {
    let mut related: Vec<wire::ObjectRef> = reason.related.into_iter().map(Into::into).collect();
    related.iter_mut().for_each(cut_object);
    graph::Reason {
        code: Code::from(reason.code).into(),
        detail: clip(&reason.detail, MESSAGE_MAX_BYTES),
        related,
        since: reason.since.map(|since| clock.timestamp(since)),
        related_count: reason.count as u64,
        until: reason.until.map(|until| clock.later(until)),
    }
}

/// An open decision.
pub fn pending_work(item: ItemView, clock: Clock) -> graph::PendingWork {
    let (executor, started, retry) = match item.place {
        PlaceView::Leased { executor, started } => (executor.to_string(), started, None),
        PlaceView::Backoff { until } => (String::new(), None, Some(until)),
        PlaceView::Ready | PlaceView::Observed | PlaceView::Held { .. } | PlaceView::Behind { .. } => {
            (String::new(), None, None)
        }
    };
    graph::PendingWork {
        action: item.action.as_str().to_owned(),
        decide_time: Some(clock.timestamp(item.decided)),
        attempts: item.attempts,
        executor,
        start_time: started.map(|at| clock.timestamp(at)),
        retry_time: retry.map(|at| clock.later(at)),
    }
}

/// How an object was deleted.
pub fn departure(tombstone: Tombstone, clock: Clock) -> graph::Departure {
    graph::Departure {
        time: Some(clock.timestamp(tombstone.at)),
        by_us: tombstone.caused_by_us,
        reasons: tombstone.causes.iter().map(cause).collect(),
    }
}

pub(super) fn cause(cause: &Cause) -> graph::Reason {
    let owner = |code: Code, kind: &str, namespace: &str, name: &str, uid: String| {
        let (kind, namespace, name) = (kind.to_owned(), namespace.to_owned(), name.to_owned());
        let related = wire::ObjectRef { kind, namespace, name, uid, ..Default::default() };
        graph::Reason { code: code.into(), related: vec![related], related_count: 1, ..Default::default() }
    };
    let plain = |code: Code| graph::Reason { code: code.into(), ..Default::default() };
    match cause {
        Cause::OwnerAbsent { kind, namespace, name, uid, proof } => {
            let at = proof.version().map_or_else(String::new, |version| format!(" at {version}"));
            let detail = format!("{}{at}", proof.as_str());
            graph::Reason { detail, ..owner(Code::OwnersAbsent, kind, namespace, name, uid.to_string()) }
        }
        Cause::OwnerWaiting { kind, namespace, name, uid } => {
            owner(Code::OwnersWaiting, kind, namespace, name, uid.to_string())
        }
        Cause::OwnerOrphans { kind, namespace, name, uid } => {
            owner(Code::DependentsToOrphan, kind, namespace, name, uid.to_string())
        }
        Cause::KeptBy { kind, namespace, name, uid } => owner(Code::SolidOwner, kind, namespace, name, uid.to_string()),
        Cause::NoBlockingDependents | Cause::NoDependents => plain(Code::Deleted),
        Cause::Cycle => plain(Code::Cycle),
    }
}

/// The entries of a plan, and the totals by effect.
pub fn plan(plan: &Plan, clock: Clock) -> (Vec<Entry>, Vec<Total>) {
    let mut totals: BTreeMap<(&str, &str, engine::view::Effect), u64> = BTreeMap::new();
    for entry in &plan.entries {
        *totals.entry((&entry.object.group, &entry.object.kind, entry.effect)).or_default() += 1;
    }
    let total = |((group, kind, effect), count): ((&str, &str, _), u64)| Total {
        group: group.to_owned(),
        kind: kind.to_owned(),
        effect: Effect::from(effect).into(),
        count,
    };
    let entries = plan.entries.iter().map(|entry| Entry {
        r#ref: Some(entry.object.clone().into()),
        effect: Effect::from(entry.effect).into(),
        step: entry.step,
        reasons: entry.reasons.iter().map(|of| reason(of.clone(), clock)).collect(),
    });
    (entries.collect(), totals.into_iter().map(total).collect())
}

/// Converts the effect of a guard on a plan.
pub fn plan_guard(guard: PlanGuard, clock: Clock) -> Guard {
    let (mut root, mut cascade_digest, mut more, mut in_scope_count) = (None, String::new(), false, 0);
    let effect = match guard.does {
        GuardDoes::Hold => GuardEffect::Held,
        GuardDoes::Await(cascade) => {
            (root, more) = (Some(cascade.root.into()), !cascade.complete);
            cascade_digest = format!("{:016x}", cascade.digest);
            GuardEffect::AwaitsApproval
        }
        GuardDoes::Ask => GuardEffect::Asked,
        GuardDoes::Exceed { of } => {
            in_scope_count = of;
            GuardEffect::OverBudget
        }
    };
    let slash = if guard.name.is_empty() { "" } else { "/" };
    Guard {
        guard: format!("{}{slash}{}", guard.kind.plural(), guard.name),
        effect: effect.into(),
        count: guard.objects,
        reason: clip(&guard.reason, MESSAGE_MAX_BYTES),
        until: guard.until.map(|until| clock.later(until)),
        root,
        cascade_digest,
        more,
        in_scope_count,
    }
}

impl From<CycleView> for graph::find_cycles_response::Cycle {
    fn from(cycle: CycleView) -> Self {
        let count = |all: usize| u32::try_from(all).unwrap_or(u32::MAX);
        Self {
            member_count: count(cycle.members.len()),
            edge_count: count(cycle.edges.len()),
            members: cycle.members.into_iter().take(LISTED_MAX).map(Into::into).collect(),
            edges: cycle.edges.into_iter().take(LISTED_MAX).map(Into::into).collect(),
            deadlocked: cycle.deadlocked,
            unblock_candidate_uid: cycle.unblock.to_string(),
            redacted_count: 0,
        }
    }
}
