//! Takes out of an answer what its caller may not see.
//!
//! What an object's own metadata says belongs to the object: its references stay as they were written, and what each is worth, because the
//! object's own fate tells that too. What is known of a hidden owner beyond that goes.

use super::Visibility;
use proto::decision::v1beta1::DecisionEvent;
use proto::graph::v1beta1::find_cycles_response::Cycle;
use proto::graph::v1beta1::find_stuck_objects_response::Stuck;
use proto::graph::v1beta1::preview_deletion_response::{Entry, Total};
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

/// References of objects that are shown, to owners that may not be.
pub(in crate::grpc) fn edges(visibility: &Visibility, edges: &mut [Edge]) {
    for edge in edges {
        if !shows(visibility, edge.owner.as_ref()) {
            edge.evidence = None;
        }
    }
}

/// Objects that are only named. How many were taken out.
fn named(visibility: &Visibility, objects: &mut Vec<ObjectRef>) -> u32 {
    let all = objects.len();
    objects.retain(|object| shows(visibility, Some(object)));
    u32::try_from(all - objects.len()).unwrap_or(u32::MAX)
}

/// Reasons of a verdict on an object that is shown. How many objects were taken out.
fn reasons(visibility: &Visibility, reasons: &mut [Reason]) -> u32 {
    let mut all = 0;
    for reason in reasons {
        let hidden = named(visibility, &mut reason.related);
        if hidden > 0 {
            // It may speak of what was taken out.
            reason.detail.clear();
        }
        all += hidden;
    }
    all
}

/// Of decisions, those on objects that may be shown, of the namespaces that were asked about. Before any filter, which could ask about the
/// rest.
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

/// How much of something may be shown.
#[derive(Debug)]
pub(in crate::grpc) enum Shown<T> {
    /// All, as it is.
    Whole,
    /// This.
    Part(Box<T>),
    Nothing,
}

/// The same for one decision.
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
    // It is the last of the chain, unless that was too long.
    if !shows(visibility, event.root.as_ref()) {
        event.root = None;
        event.root_resource_version.clear();
        event.root_deletion_time = None;
        hidden = hidden.max(1);
    }
    edges(visibility, &mut event.owners);
    event.redacted_count = hidden;
}

/// A cycle with a member that is shown.
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

/// An object that does not move, and is shown.
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

/// The explanation of an object that is shown.
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

/// The plan of a deletion. How many objects were taken out; what is left is counted anew.
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

/// The namespaces of what reasons name.
fn namespaces(reasons: &[Reason]) -> impl Iterator<Item = &String> {
    reasons.iter().flat_map(|reason| reason.related.iter().map(|object| &object.namespace))
}
