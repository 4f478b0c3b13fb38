//! Removes from an answer the objects that its caller may not see.
//!
//! The metadata of a visible object stays as it is: its references, and the verdict on each, because the fate of the
//! object shows them too. All other data about a hidden owner is removed.

use super::Visibility;
use proto::decision::v1beta1::DecisionEvent;
use proto::graph::v1beta1::find_cycles_response::Cycle;
use proto::graph::v1beta1::find_stuck_objects_response::Stuck;
use proto::graph::v1beta1::preview_deletion_response::{Entry, Guard, Total};
use proto::graph::v1beta1::{Edge, ExplainObjectResponse, Node, Reason};
use proto::r#type::v1beta1::ObjectRef;
use std::collections::{BTreeMap, BTreeSet};
use tonic::Status;

/// Whether an object of an answer may be shown.
fn shows(visibility: &Visibility, object: Option<&ObjectRef>) -> bool {
    object.is_none_or(|object| visibility.sees(&object.namespace))
}

/// Whether a node of an answer may be shown.
fn shows_node(visibility: &Visibility, node: Option<&Node>) -> bool {
    shows(visibility, node.and_then(|node| node.r#ref.as_ref()))
}

/// Redacts references of visible objects to owners that may be hidden.
pub(in crate::grpc) fn edges(visibility: &Visibility, edges: &mut [Edge]) {
    for edge in edges {
        if !shows(visibility, edge.owner.as_ref()) {
            edge.evidence = None;
        }
    }
}

/// Removes hidden objects from a list of names. Returns the number of removed objects.
fn named(visibility: &Visibility, objects: &mut Vec<ObjectRef>) -> u32 {
    let all = objects.len();
    objects.retain(|object| shows(visibility, Some(object)));
    u32::try_from(all - objects.len()).unwrap_or(u32::MAX)
}

/// Removes hidden objects from the reasons of a verdict on a visible object. Returns the number of removed objects.
fn reasons(visibility: &Visibility, reasons: &mut [Reason]) -> u32 {
    let mut all = 0;
    for reason in reasons {
        let hidden = named(visibility, &mut reason.related);
        if hidden > 0 {
            // The detail may mention a removed object.
            reason.detail.clear();
        }
        all += hidden;
    }
    all
}

/// Keeps decisions on visible objects in the requested namespaces. Call this before any filter, because a filter could
/// reveal hidden objects.
pub(in crate::grpc) async fn events(
    visibility: &Visibility,
    events: Vec<DecisionEvent>,
) -> Result<Vec<DecisionEvent>, Status> {
    if visibility.sees_everything() {
        return Ok(events);
    }
    let mut shown = Vec::new();
    for found in events {
        match event(visibility, &found).await? {
            Shown::Whole => shown.push(found),
            Shown::Part(part) => shown.push(*part),
            Shown::Nothing => {}
        }
    }
    Ok(shown)
}

/// The visible part of a value.
#[derive(Debug)]
pub(in crate::grpc) enum Shown<T> {
    /// The whole value.
    Whole,
    /// Only this part.
    Part(Box<T>),
    Nothing,
}

/// The visible part of one decision.
pub(in crate::grpc) async fn event(
    visibility: &Visibility,
    event: &DecisionEvent,
) -> Result<Shown<DecisionEvent>, Status> {
    if visibility.sees_everything() {
        return Ok(Shown::Whole);
    }
    if event.target.is_none() || !shows(visibility, event.target.as_ref()) {
        return Ok(Shown::Nothing);
    }
    let chain = event.cause_chain.iter().chain(&event.root);
    visibility.learn(namespaces(&event.reasons).chain(chain.clone().map(|object| &object.namespace))).await?;
    let owners = event.owners.iter().filter_map(|edge| edge.owner.as_ref());
    let related = event.reasons.iter().flat_map(|reason| &reason.related);
    if chain.chain(owners).chain(related).all(|object| shows(visibility, Some(object))) {
        return Ok(Shown::Whole);
    }
    let mut part = Box::new(event.clone());
    redact_event(visibility, &mut part);
    Ok(Shown::Part(part))
}

fn redact_event(visibility: &Visibility, event: &mut DecisionEvent) {
    let mut hidden = reasons(visibility, &mut event.reasons) + named(visibility, &mut event.cause_chain);
    // The root is the last object of the chain, unless the chain was cut.
    if !shows(visibility, event.root.as_ref()) {
        event.root = None;
        event.root_resource_version.clear();
        event.root_deletion_time = None;
        hidden = hidden.max(1);
    }
    edges(visibility, &mut event.owners);
    event.redacted_count = hidden;
}

/// Redacts a cycle with a visible member.
pub(in crate::grpc) async fn cycle(visibility: &Visibility, cycle: &mut Cycle) -> Result<(), Status> {
    if visibility.sees_everything() {
        return Ok(());
    }
    let place = |member: &Node| member.r#ref.as_ref().map(|object| object.namespace.clone());
    visibility.learn(cycle.members.iter().filter_map(place)).await?;
    let all = cycle.members.len();
    cycle.members.retain(|member| shows_node(visibility, Some(member)));
    cycle.redacted_count = u32::try_from(all - cycle.members.len()).unwrap_or(u32::MAX);
    let uid = |member: &Node| member.r#ref.as_ref().map(|object| object.uid.clone());
    let shown: BTreeSet<String> = cycle.members.iter().filter_map(uid).collect();
    cycle.edges.retain(|edge| shown.contains(&edge.dependent_uid));
    edges(visibility, &mut cycle.edges);
    if !shown.contains(&cycle.unblock_candidate_uid) {
        cycle.unblock_candidate_uid.clear();
    }
    Ok(())
}

/// Redacts a visible stuck object.
pub(in crate::grpc) async fn stuck(visibility: &Visibility, stuck: &mut Stuck) -> Result<(), Status> {
    if visibility.sees_everything() {
        return Ok(());
    }
    visibility
        .learn(namespaces(&stuck.reasons).chain(stuck.root_blockers.iter().map(|object| &object.namespace)))
        .await?;
    stuck.redacted_count = reasons(visibility, &mut stuck.reasons) + named(visibility, &mut stuck.root_blockers);
    Ok(())
}

/// Redacts the explanation of a visible object.
pub(in crate::grpc) async fn explanation(
    visibility: &Visibility,
    answer: &mut ExplainObjectResponse,
) -> Result<(), Status> {
    if visibility.sees_everything() {
        return Ok(());
    }
    let causes = answer.departure.iter().flat_map(|departure| namespaces(&departure.reasons));
    visibility.learn(namespaces(&answer.reasons).chain(causes)).await?;
    edges(visibility, &mut answer.owners);
    answer.redacted_count = reasons(visibility, &mut answer.reasons);
    if let Some(departure) = &mut answer.departure {
        answer.redacted_count += reasons(visibility, &mut departure.reasons);
    }
    Ok(())
}

/// Removes the roots of cascades that the caller may not see. The counts of guards stay.
pub(in crate::grpc) async fn plan_guards(visibility: &Visibility, guards: &mut [Guard]) -> Result<(), Status> {
    let places = guards.iter().filter_map(|guard| guard.root.as_ref()).map(|root| &root.namespace);
    visibility.learn(places.collect::<BTreeSet<&String>>()).await?;
    for guard in guards.iter_mut().filter(|guard| !shows(visibility, guard.root.as_ref())) {
        (guard.root, guard.cascade_digest) = (None, String::new());
    }
    Ok(())
}

/// Redacts the plan of a deletion, and counts the rest again. Returns how many objects were removed.
pub(in crate::grpc) async fn plan(
    visibility: &Visibility,
    entries: &mut Vec<Entry>,
    totals: &mut Vec<Total>,
) -> Result<u32, Status> {
    if visibility.sees_everything() {
        return Ok(0);
    }
    let places = entries.iter().filter_map(|entry| entry.r#ref.as_ref()).map(|object| &object.namespace);
    visibility.learn(places.collect::<BTreeSet<&String>>()).await?;
    let all = entries.len();
    entries.retain(|entry| shows(visibility, entry.r#ref.as_ref()));
    let mut counts: BTreeMap<(&str, &str, i32), u64> = BTreeMap::new();
    for entry in entries.iter_mut() {
        reasons(visibility, &mut entry.reasons);
    }
    for entry in entries.iter() {
        let (group, kind) =
            entry.r#ref.as_ref().map_or(("", ""), |object| (object.group.as_str(), object.kind.as_str()));
        *counts.entry((group, kind, entry.effect)).or_default() += 1;
    }
    let total = |((group, kind, effect), count): ((&str, &str, i32), u64)| Total {
        group: group.to_owned(),
        kind: kind.to_owned(),
        effect,
        count,
    };
    *totals = counts.into_iter().map(total).collect();
    Ok(u32::try_from(all - entries.len()).unwrap_or(u32::MAX))
}

/// The namespaces of the objects that reasons name.
fn namespaces(reasons: &[Reason]) -> impl Iterator<Item = &String> {
    reasons.iter().flat_map(|reason| reason.related.iter().map(|object| &object.namespace))
}
