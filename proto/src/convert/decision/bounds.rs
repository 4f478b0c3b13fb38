//! Bounds the size of events.
//!
//! By default, gRPC clients accept messages of 4 MiB, and NATS servers messages of 1 MiB. The API server accepts
//! objects of 1.5 MiB, and sets no limit on the texts of a reference.

use crate::convert::texts::{MESSAGE_MAX_BYTES, TEXT_MAX_BYTES, cut, cut_edge, cut_object};
use crate::decision::v1beta1::{DecisionEvent, GetParityResponse, SystemEvent};
use crate::graph::v1beta1 as graph;
use crate::r#type::v1beta1 as wire;
use engine::parity::CLASSES;

/// Maximum size of an encoded event.
pub const EVENT_MAX_BYTES: usize = 256 * 1024;
/// Maximum size of an encoded stub.
pub const STUB_MAX_BYTES: usize = 4 * 1024;
/// Maximum number of owners, reasons, and objects of one reason in an event.
const TOLD_MAX: usize = 20;
/// Maximum number of entries of each list of a pause in an event. Such an event has no other lists.
const SCOPE_TOLD_MAX: usize = 8;
/// Maximum number of requirements of one selector, and of values of one requirement, in an event.
const SELECTOR_TOLD_MAX: usize = 3;
/// Maximum lengths of the key and of a value of a label in an event.
const LABEL_KEY_MAX_BYTES: usize = 320;
const LABEL_VALUE_MAX_BYTES: usize = 64;
/// Maximum number of objects of a cause chain in an event.
const CHAIN_MAX: usize = 32;
/// Maximum number of collections with numbers of their own in an event about a comparison.
const COMPARED_TOLD_MAX: usize = 256;

// An event has sixteen texts of an owner, seven of an object, and seventeen other texts including finalizers. A text
// has three bytes of framing, a message four, a number eleven.
const _: () = {
    let text = TEXT_MAX_BYTES + 3;
    let (object, owner) = (7 * text + 4, 16 * text + 64);
    let reason = 2 * text + object + 64;
    let finalizers = TOLD_MAX * text;
    let most =
        TOLD_MAX * (owner + reason) + (CHAIN_MAX + 2) * object + 17 * text + finalizers + MESSAGE_MAX_BYTES + 1024;
    assert!(most <= EVENT_MAX_BYTES);
    let expression = LABEL_KEY_MAX_BYTES + (SELECTOR_TOLD_MAX + 1) * (LABEL_VALUE_MAX_BYTES + 3) + 16;
    let label = LABEL_KEY_MAX_BYTES + LABEL_VALUE_MAX_BYTES + 16;
    let selectors = 2 * SELECTOR_TOLD_MAX * (label + expression);
    let filter = SCOPE_TOLD_MAX * (5 * text + 4) + 5 * text + selectors + MESSAGE_MAX_BYTES + 64;
    assert!(SCOPE_TOLD_MAX * filter + 4 * text + MESSAGE_MAX_BYTES + 1024 <= EVENT_MAX_BYTES);
    let collection = 2 * text + 5 * 11 + 8;
    let classes = CLASSES * (3 * 11 + 4);
    assert!(COMPARED_TOLD_MAX * collection + classes + 4 * text + MESSAGE_MAX_BYTES + 1024 <= EVENT_MAX_BYTES);
    assert!(2 * object + 4 * 256 <= STUB_MAX_BYTES + object);
};

/// Cuts the lists and texts of an event to their bounds.
pub fn bounded(mut event: DecisionEvent) -> DecisionEvent {
    event.owner_count = event.owner_count.max(event.owners.len() as u64);
    event.reason_count = event.reason_count.max(event.reasons.len() as u64);
    event.owners.truncate(TOLD_MAX);
    event.reasons.truncate(TOLD_MAX);
    event.cause_chain.truncate(CHAIN_MAX);
    event.owners.iter_mut().for_each(cut_edge);
    event.reasons.iter_mut().for_each(cut_reason);
    event.cause_chain.iter_mut().chain(&mut event.target).chain(&mut event.root).for_each(cut_object);
    event.finalizers.truncate(TOLD_MAX);
    let texts = [&mut event.decision_id, &mut event.executor, &mut event.pause, &mut event.watch_resource_version];
    texts
        .into_iter()
        .chain([&mut event.root_resource_version])
        .chain(&mut event.finalizers)
        .for_each(|text| cut(text, TEXT_MAX_BYTES));
    if let Some(term) = &mut event.lease_term {
        cut(&mut term.election_uid, TEXT_MAX_BYTES);
    }
    if let Some(system) = &mut event.system {
        cut_system(system);
    }
    if let Some(term) = &mut event.term {
        cut(&mut term.election_uid, TEXT_MAX_BYTES);
    }
    if let Some(preconditions) = &mut event.preconditions {
        cut(&mut preconditions.resource_version, TEXT_MAX_BYTES);
        preconditions.facts_digest.truncate(8);
    }
    if let Some(report) = &mut event.report {
        cut(&mut report.message, MESSAGE_MAX_BYTES);
        cut(&mut report.audit_id, TEXT_MAX_BYTES);
    }
    if let Some(disagreement) = &mut event.disagreement {
        cut(&mut disagreement.user, TEXT_MAX_BYTES);
        cut(&mut disagreement.audit_id, TEXT_MAX_BYTES);
    }
    event
}

/// The short form of an event that a log refuses as too large: the step, the decision and the object.
pub fn stub(event: DecisionEvent) -> DecisionEvent {
    let DecisionEvent { position, event_time, decision_id, phase, cause, kind, target, .. } = event;
    let DecisionEvent { attempt, executor, term, propagation_policy, owner_count, reason_count, .. } = event;
    bounded(DecisionEvent {
        position,
        event_time,
        decision_id,
        phase,
        cause,
        kind,
        target,
        attempt,
        executor,
        term,
        propagation_policy,
        owner_count,
        reason_count,
        truncated: true,
        ..Default::default()
    })
}

fn cut_system(system: &mut SystemEvent) {
    let SystemEvent { name, reason, actor, collection, targets, parity, .. } = system;
    [name, actor, collection].into_iter().for_each(|text| cut(text, TEXT_MAX_BYTES));
    cut(reason, MESSAGE_MAX_BYTES);
    targets.truncate(SCOPE_TOLD_MAX);
    targets.iter_mut().for_each(cut_filter);
    parity.iter_mut().for_each(cut_parity);
}

fn cut_parity(parity: &mut GetParityResponse) {
    parity.collections.truncate(COMPARED_TOLD_MAX);
    let collections = parity.collections.iter_mut().filter_map(|count| count.group_resource.as_mut());
    let texts = collections.flat_map(|wire::GroupResource { group, resource }| [group, resource]);
    texts.for_each(|text| cut(text, TEXT_MAX_BYTES));
}

fn cut_filter(filter: &mut wire::ObjectFilter) {
    let wire::ObjectFilter { resources, namespaces, uids, cel, names, label_selector, namespace_selector, owner } =
        filter;
    resources.truncate(SCOPE_TOLD_MAX);
    let resources = resources.iter_mut().flat_map(|wire::GroupResource { group, resource }| [group, resource]);
    resources.for_each(|text| cut(text, TEXT_MAX_BYTES));
    for texts in [namespaces, uids, names] {
        cut_texts(texts);
    }
    cut(cel, MESSAGE_MAX_BYTES);
    for wire::LabelSelector { match_labels, match_expressions } in
        [label_selector, namespace_selector].into_iter().flatten()
    {
        match_labels.retain(|key, value| key.len() <= LABEL_KEY_MAX_BYTES && value.len() <= LABEL_VALUE_MAX_BYTES);
        while match_labels.len() > SELECTOR_TOLD_MAX {
            match_labels.pop_last();
        }
        match_expressions.truncate(SELECTOR_TOLD_MAX);
        for wire::LabelRequirement { key, operator, values } in match_expressions {
            cut(key, LABEL_KEY_MAX_BYTES);
            values.truncate(SELECTOR_TOLD_MAX);
            values.iter_mut().chain([operator]).for_each(|text| cut(text, LABEL_VALUE_MAX_BYTES));
        }
    }
    if let Some(wire::OwnerScope { group, resource, namespace, name, uid }) = owner {
        [group, resource, namespace, name, uid].into_iter().for_each(|text| cut(text, TEXT_MAX_BYTES));
    }
}

fn cut_texts(texts: &mut Vec<String>) {
    texts.truncate(SCOPE_TOLD_MAX);
    texts.iter_mut().for_each(|text| cut(text, TEXT_MAX_BYTES));
}

fn cut_reason(reason: &mut graph::Reason) {
    cut(&mut reason.detail, TEXT_MAX_BYTES);
    // One related object is enough, because a cause names one owner.
    reason.related.truncate(1);
    reason.related.iter_mut().for_each(cut_object);
}
