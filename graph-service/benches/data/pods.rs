//! Pods of a busy cluster.

use super::generate::Draw;
use serde_json::{Map, Value, json};

/// A pod of a ReplicaSet with labels, annotations and managed fields: about two kilobytes.
pub(crate) fn pod(draw: &mut Draw, number: usize, owner_uid: &str, version: usize) -> Value {
    let set = format!("web-{:x}", number / 10);
    let mut metadata = json!({
        "name": format!("{set}-{:05x}", number), "generateName": format!("{set}-"), "namespace": format!("team-{}", number / 10 % 200),
        "uid": draw.uid(), "resourceVersion": version.to_string(), "generation": 1, "creationTimestamp": "2026-01-01T00:00:00Z",
        "labels": { "app": "web", "pod-template-hash": set, "tier": "front", "example.com/team": "shop" },
        "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": set, "uid": owner_uid, "controller": true,
            "blockOwnerDeletion": true }],
        "managedFields": [managed(draw, "kube-controller-manager", 600), managed(draw, "kubelet", 700)],
    });
    for extra in 0..draw.below(5) {
        metadata["annotations"][format!("example.com/annotation-{extra}")] = json!("some value of usual length");
    }
    if draw.percent(5) {
        metadata["finalizers"] = json!(["example.com/protect"]);
    }
    if draw.percent(1) {
        metadata["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    }
    json!({ "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata })
}

fn managed(draw: &mut Draw, manager: &str, length: usize) -> Value {
    let mut fields = Map::new();
    while fields.len() * 25 < length {
        fields.insert(format!("f:field-{:08x}", draw.number() as u32), json!({}));
    }
    json!({ "manager": manager, "operation": "Update", "apiVersion": "v1", "time": "2026-01-01T00:00:00Z", "fieldsType": "FieldsV1",
        "fieldsV1": { "f:metadata": fields } })
}
