//! Bounds of texts in answers and events. The API server sets no limit on the texts of a reference.

use crate::graph::v1beta1 as graph;
use crate::r#type::v1beta1 as wire;
use engine::object::{ResourceVersion, clip};

/// Maximum length of a name, uid or version. The longest in Kubernetes itself is a group with a version.
pub(super) const TEXT_MAX_BYTES: usize = 320;
/// Maximum length of a sentence, such as an answer of the API server.
pub(super) const MESSAGE_MAX_BYTES: usize = 1024;

pub(super) fn cut_node(node: &mut graph::Node) {
    node.r#ref.iter_mut().for_each(cut_object);
    node.owner_references.iter_mut().for_each(cut_reference);
    node.finalizers.iter_mut().chain([&mut node.resource_version]).for_each(|text| cut(text, TEXT_MAX_BYTES));
    node.evidence.iter_mut().for_each(cut_evidence);
}

pub(super) fn cut_edge(edge: &mut graph::Edge) {
    cut(&mut edge.owner_uid, TEXT_MAX_BYTES);
    cut(&mut edge.dependent_uid, TEXT_MAX_BYTES);
    edge.reference.iter_mut().for_each(cut_reference);
    edge.evidence.iter_mut().for_each(cut_evidence);
    edge.owner.iter_mut().for_each(cut_object);
}

fn cut_reference(reference: &mut wire::OwnerReference) {
    let wire::OwnerReference { api_version, kind, name, uid, .. } = reference;
    [api_version, kind, name, uid].into_iter().for_each(|text| cut(text, TEXT_MAX_BYTES));
}

fn cut_evidence(evidence: &mut wire::Evidence) {
    cut(&mut evidence.resource_version, TEXT_MAX_BYTES);
    if let Some(wire::GroupResource { group, resource }) = &mut evidence.group_resource {
        [group, resource].into_iter().for_each(|text| cut(text, TEXT_MAX_BYTES));
    }
}

pub(super) fn cut_object(object: &mut wire::ObjectRef) {
    let wire::ObjectRef { group, version, resource, kind, namespace, name, uid } = object;
    [group, version, resource, kind, namespace, name, uid].into_iter().for_each(|text| cut(text, TEXT_MAX_BYTES));
}

pub(super) fn cut(text: &mut String, max_bytes: usize) {
    if text.len() > max_bytes {
        *text = clip(text, max_bytes);
    }
}

pub(super) fn text(version: Option<&ResourceVersion>) -> String {
    version.map(ResourceVersion::to_string).unwrap_or_default()
}
