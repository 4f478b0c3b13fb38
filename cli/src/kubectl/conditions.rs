//! The state of the shown objects, from the API server: readiness, status, labels and age. It is read with the caller's
//! rights, a bounded number of objects at a time. A state that cannot be read is a dash, and is reported.

use super::session::Session;
use futures::{StreamExt as _, stream};
use http::{Request, StatusCode};
use kube_api::call;
use kube_api::path::collection_path;
use proto::graph::v1beta1::{Node, NodeState};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of objects whose state is read. Further rows show dashes.
const ROWS_MAX: usize = 5_000;
/// Maximum number of objects of one collection and namespace that are read one by one. More are listed.
const SINGLE_MAX: usize = 8;
const UNDER_WAY_MAX: usize = 8;
const PAGE_SIZE: usize = 500;
const PAGES_MAX: usize = 40;
const ANSWER_MAX_BYTES: usize = 64 << 20;

/// One object's state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Condition {
    pub(super) ready: String,
    pub(super) reason: String,
    pub(super) status: String,
    /// Seconds of the Unix epoch.
    pub(super) created: Option<i64>,
    pub(super) labels: BTreeMap<String, String>,
}

/// Conditions by uid.
pub(super) type Conditions = BTreeMap<String, Condition>;

/// One collection in one namespace: group, version, resource, namespace.
type Place = (String, String, String, String);

pub(super) async fn read(session: &mut Session, nodes: &[&Node]) -> Conditions {
    if session.is_file() {
        session.missed("a snapshot has no states, labels and ages".to_owned());
        return Conditions::new();
    }
    let mut wanted: BTreeMap<Place, Vec<(String, String)>> = BTreeMap::new();
    let there = nodes.iter().filter(|node| matches!(node.state(), NodeState::Live | NodeState::Terminating));
    for object in there.filter_map(|node| node.r#ref.clone()).take(ROWS_MAX) {
        let place = (object.group, object.version, object.resource, object.namespace);
        wanted.entry(place).or_default().push((object.uid, object.name));
    }
    let answers: Vec<(Conditions, Option<String>)> = stream::iter(&wanted)
        .map(|(place, objects)| read_place(session, place, objects))
        .buffer_unordered(UNDER_WAY_MAX)
        .collect()
        .await;
    let mut conditions = Conditions::new();
    for (read, missed) in answers {
        conditions.extend(read);
        if let Some(missed) = missed {
            session.missed(missed);
        }
    }
    if nodes.len() > ROWS_MAX {
        session
            .missed(format!("the state of {} objects is not read; --no-status turns this off", nodes.len() - ROWS_MAX));
    }
    conditions
}

async fn read_place(session: &Session, place: &Place, objects: &[(String, String)]) -> (Conditions, Option<String>) {
    let (group, version, resource, namespace) = place;
    let path = collection_path(group, version, resource, namespace);
    let uids: BTreeSet<&str> = objects.iter().map(|(uid, _)| uid.as_str()).collect();
    let mut conditions = Conditions::new();
    let mut missed = None;
    let mut take = |object: &Value| {
        let uid = object["metadata"]["uid"].as_str().unwrap_or_default();
        if uids.contains(uid) {
            conditions.insert(uid.to_owned(), condition(object));
        }
    };
    let dot = if group.is_empty() { "" } else { "." };
    let unread = |why: String| format!("the state of {resource}{dot}{group} in {namespace:?} cannot be read: {why}");
    if objects.len() <= SINGLE_MAX {
        for (_, name) in objects {
            match get(session, &format!("{path}/{name}")).await {
                Ok(Some(object)) => take(&object),
                // The object was deleted in the meantime.
                Ok(None) => {}
                Err(why) => missed = Some(unread(why)),
            }
        }
        return (conditions, missed);
    }
    let mut token = String::new();
    for _ in 0..PAGES_MAX {
        let page = match get(session, &format!("{path}?limit={PAGE_SIZE}&continue={token}")).await {
            Ok(page) => page.unwrap_or_default(),
            Err(why) => return (conditions, Some(unread(why))),
        };
        page["items"].as_array().into_iter().flatten().for_each(&mut take);
        page["metadata"]["continue"].as_str().unwrap_or_default().clone_into(&mut token);
        if token.is_empty() {
            break;
        }
    }
    (conditions, missed)
}

async fn get(session: &Session, path: &str) -> Result<Option<Value>, String> {
    let request = Request::get(path).body(Vec::new()).map_err(|error| error.to_string())?;
    let answer = call(&session.cluster.client, request, ANSWER_MAX_BYTES, session.connection.request_timeout).await;
    let answer = answer.map_err(|error| error.to_string())?;
    match answer.status {
        StatusCode::OK => serde_json::from_slice(&answer.body).map(Some).map_err(|error| error.to_string()),
        StatusCode::NOT_FOUND => Ok(None),
        status => Err(status.to_string()),
    }
}

/// The status of an object, in the terms of kstatus.
fn condition(object: &Value) -> Condition {
    let status = &object["status"];
    let conditions = status["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let of = |kind: &str| conditions.iter().find(|condition| condition["type"] == kind);
    let is = |kind: &str, value: &str| of(kind).is_some_and(|condition| condition["status"] == value);
    let shown = ["Ready", "Available", "Established", "Complete"].iter().find_map(|kind| of(kind));
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let metadata = &object["metadata"];
    let behind = matches!(
        (metadata["generation"].as_i64(), status["observedGeneration"].as_i64()),
        (Some(wanted), Some(seen)) if seen < wanted
    );
    let phase = status["phase"].as_str().unwrap_or_default();
    let unready = shown.is_some_and(|condition| condition["status"] != "True");
    let word = if !metadata["deletionTimestamp"].is_null() {
        "Terminating"
    } else if phase == "Failed" || is("Failed", "True") || is("Stalled", "True") || is("Progressing", "False") {
        "Failed"
    } else if matches!(phase, "Succeeded" | "Bound" | "Active") || is("Complete", "True") {
        "Current"
    } else if behind || phase == "Pending" || is("Reconciling", "True") || is_short(object) || unready {
        "InProgress"
    } else {
        "Current"
    };
    let created: Option<prost_types::Timestamp> = metadata["creationTimestamp"].as_str().and_then(|at| at.parse().ok());
    Condition {
        ready: shown.map(|condition| text(&condition["status"])).unwrap_or_default(),
        reason: shown.map(|condition| text(&condition["reason"])).unwrap_or_else(|| text(&status["reason"])),
        status: word.to_owned(),
        created: created.map(|at| at.seconds),
        labels: metadata["labels"]
            .as_object()
            .map(|labels| labels.iter().map(|(key, value)| (key.clone(), text(value))).collect())
            .unwrap_or_default(),
    }
}

/// Whether a workload has fewer ready replicas than it requests.
fn is_short(object: &Value) -> bool {
    let wanted = object["spec"]["replicas"].as_i64();
    let ready = object["status"]["readyReplicas"].as_i64().unwrap_or(0);
    !object["status"].is_null() && wanted.is_some_and(|wanted| ready < wanted)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    #[test]
    fn states_are_those_of_kstatus() {
        let condition = |kind: &str, status: &str| json!({ "type": kind, "status": status, "reason": "Because" });
        let cases = [
            (json!({ "metadata": {} }), "Current"),
            (json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } }), "Terminating"),
            (json!({ "status": { "phase": "Failed" } }), "Failed"),
            (json!({ "status": { "phase": "Pending" } }), "InProgress"),
            (json!({ "status": { "phase": "Running", "conditions": [condition("Ready", "False")] } }), "InProgress"),
            (json!({ "status": { "phase": "Running", "conditions": [condition("Ready", "True")] } }), "Current"),
            (json!({ "metadata": { "generation": 3 }, "status": { "observedGeneration": 2 } }), "InProgress"),
            (json!({ "spec": { "replicas": 2 }, "status": { "readyReplicas": 1 } }), "InProgress"),
            (json!({ "status": { "conditions": [condition("Progressing", "False")] } }), "Failed"),
            (json!({ "status": { "conditions": [condition("Complete", "True")] } }), "Current"),
        ];
        for (object, expected) in cases {
            assert_eq!(super::condition(&object).status, expected, "{object}");
        }
        let ready = super::condition(&json!({ "status": { "conditions": [condition("Ready", "False")] } }));
        assert_eq!((ready.ready.as_str(), ready.reason.as_str()), ("False", "Because"));
    }
}
