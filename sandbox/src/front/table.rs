//! Tables, as `kubectl get` requests them.

use serde_json::{Value, json};

use super::style::{IncludeObject, Shown, Style};
use crate::model::{self, Now, Object};

/// A column between name and age: its title, and a function for its cells.
type Column = (&'static str, fn(&Object) -> String);

const PODS: &[Column] =
    &[("Ready", pod_ready), ("Status", pod_status), ("Restarts", |object| count(object, "/none").to_string())];
const DEPLOYMENTS: &[Column] = &[
    ("Ready", |object| ready_of(object, "/status/readyReplicas")),
    ("Up-to-date", |object| count(object, "/status/updatedReplicas").to_string()),
    ("Available", |object| count(object, "/status/availableReplicas").to_string()),
];
const REPLICA_SETS: &[Column] = &[
    ("Desired", |object| count(object, "/spec/replicas").to_string()),
    ("Current", |object| count(object, "/status/replicas").to_string()),
    ("Ready", |object| count(object, "/status/readyReplicas").to_string()),
];
const CONFIG_MAPS: &[Column] = &[("Data", |object| entries(object, "/data").to_string())];
const NAMESPACES: &[Column] = &[("Status", |object| at(object, "/status/phase"))];
const DEFINITIONS: &[Column] = &[("Created At", |object| at(object, "/metadata/creationTimestamp"))];
const LEASES: &[Column] = &[("Holder", |object| at(object, "/spec/holderIdentity"))];
const EVENTS: &[Column] = &[
    ("Type", |object| at(object, "/type")),
    ("Reason", |object| at(object, "/reason")),
    ("Message", |object| at(object, "/message")),
];

fn columns(group: &str, resource: &str) -> &'static [Column] {
    match (group, resource) {
        ("", "pods") => PODS,
        ("apps", "deployments") => DEPLOYMENTS,
        ("apps", "replicasets") | ("", "replicationcontrollers") => REPLICA_SETS,
        ("", "configmaps" | "secrets") => CONFIG_MAPS,
        ("", "namespaces") => NAMESPACES,
        ("", "events") => EVENTS,
        ("coordination.k8s.io", "leases") => LEASES,
        ("apiextensions.k8s.io", "customresourcedefinitions") => DEFINITIONS,
        _ => &[],
    }
}

/// The table of some objects.
pub(crate) fn render(style: &Style, objects: &[&Object], metadata: Value, now: Now) -> Value {
    let between = columns(&style.of.group, &style.of.plural);
    let definition = |name: &str, format: &str| json!({ "name": name, "type": "string", "format": format, "description": "", "priority": 0 });
    let mut definitions = vec![definition("Name", "name")];
    definitions.extend(between.iter().map(|(title, _)| definition(title, "")));
    definitions.push(definition("Age", ""));
    let rows: Vec<Value> = objects
        .iter()
        .map(|object| {
            let mut cells = vec![Value::from(model::name(object))];
            cells.extend(between.iter().map(|(_, cell)| Value::from(cell(object))));
            cells.push(Value::from(age(object, now)));
            let shown = match style.include_object {
                IncludeObject::None => Value::Null,
                IncludeObject::Metadata => to_value(&Shown::metadata(object)),
                IncludeObject::Object => to_value(&Shown::full(object, &style.api_version)),
            };
            json!({ "cells": cells, "object": shown })
        })
        .collect();
    json!({
        "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
        "columnDefinitions": definitions, "rows": rows,
    })
}

fn to_value(shown: &Shown<'_>) -> Value {
    serde_json::to_value(shown).expect("an object made of JSON is JSON")
}

fn find<'a>(object: &'a Object, path: &str) -> Option<&'a Value> {
    let (first, rest) = path.strip_prefix('/')?.split_once('/').unwrap_or((path.strip_prefix('/')?, ""));
    let value = object.get(first)?;
    if rest.is_empty() { Some(value) } else { value.pointer(&format!("/{rest}")) }
}

fn at(object: &Object, path: &str) -> String {
    find(object, path).and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn count(object: &Object, path: &str) -> i64 {
    find(object, path).and_then(Value::as_i64).unwrap_or(0)
}

fn entries(object: &Object, path: &str) -> usize {
    find(object, path).and_then(Value::as_object).map_or(0, serde_json::Map::len)
}

fn ready_of(object: &Object, ready: &str) -> String {
    let wanted = find(object, "/spec/replicas").and_then(Value::as_i64).unwrap_or(1);
    format!("{}/{wanted}", count(object, ready))
}

fn pod_ready(object: &Object) -> String {
    let containers = find(object, "/spec/containers").and_then(Value::as_array).map_or(0, Vec::len);
    let statuses = find(object, "/status/containerStatuses").and_then(Value::as_array);
    let ready = statuses.map_or(0, |list| list.iter().filter(|status| status["ready"] == true).count());
    format!("{ready}/{containers}")
}

fn pod_status(object: &Object) -> String {
    if model::is_terminating(object) { "Terminating".to_owned() } else { at(object, "/status/phase") }
}

/// The age of an object in at most two units.
fn age(object: &Object, now: Now) -> String {
    let Some(created) = model::parse_timestamp(model::text(object, "creationTimestamp")) else {
        return "<unknown>".to_owned();
    };
    let seconds = now.seconds().saturating_sub(created).max(0);
    match seconds {
        0..120 => format!("{seconds}s"),
        120..600 if seconds % 60 != 0 => format!("{}m{}s", seconds / 60, seconds % 60),
        120..10_800 => format!("{}m", seconds / 60),
        10_800..172_800 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}
