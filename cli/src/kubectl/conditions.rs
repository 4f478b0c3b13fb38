//! The state of the shown objects, from the API server: readiness, status, labels and age. It is read with the caller's
//! rights, a bounded number of objects at a time. A state that cannot be read is a dash, and is reported.

use super::columns::now;
use super::session::Session;
use engine::object::GroupResource;
use futures::{StreamExt as _, stream};
use http::{Request, StatusCode};
use kube_api::call;
use kube_api::path::collection_path;
use proto::graph::v1beta1::{Node, NodeState};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

mod kstatus;

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
            conditions.insert(uid.to_owned(), condition(group, resource, object, now()));
        }
    };
    let of = GroupResource { group: group.as_str().into(), resource: resource.as_str().into() };
    let unread = |why: String| format!("the state of {of} in {namespace:?} cannot be read: {why}");
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

/// An object or a list, read with the caller's rights. `None` if it does not exist. The error is a sentence.
pub(super) async fn get(session: &Session, path: &str) -> Result<Option<Value>, String> {
    let request = Request::get(path).body(Vec::new()).map_err(|error| error.to_string())?;
    let answer = call(&session.cluster.client, request, ANSWER_MAX_BYTES, session.connection.request_timeout).await;
    let answer = answer.map_err(|error| error.to_string())?;
    match answer.status {
        StatusCode::OK => serde_json::from_slice(&answer.body).map(Some).map_err(|error| error.to_string()),
        StatusCode::NOT_FOUND => Ok(None),
        status => Err(status.to_string()),
    }
}

/// The word of kstatus for an object that was just read, and why it is not current, if the object says so.
pub(super) fn status(group: &str, resource: &str, object: &Value) -> (&'static str, String) {
    kstatus::explained(group, resource, object, created(object).map(|at| now() - at))
}

/// In seconds of the Unix epoch.
fn created(object: &Value) -> Option<i64> {
    let at: Option<prost_types::Timestamp> = object["metadata"]["creationTimestamp"].as_str()?.parse().ok();
    at.map(|at| at.seconds)
}

/// `group` and `resource` are the type of the object: the items of a list do not name it. `now` is in seconds of the
/// Unix epoch.
fn condition(group: &str, resource: &str, object: &Value, now: i64) -> Condition {
    let status = &object["status"];
    let conditions = status["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let of = |kind: &str| conditions.iter().find(|condition| condition["type"] == kind);
    let shown = ["Ready", "Available", "Established", "Complete"].iter().find_map(|kind| of(kind));
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let created = created(object);
    Condition {
        ready: shown.map(|condition| text(&condition["status"])).unwrap_or_default(),
        reason: shown.map(|condition| text(&condition["reason"])).unwrap_or_else(|| text(&status["reason"])),
        status: kstatus::status(group, resource, object, created.map(|at| now - at)).to_owned(),
        created,
        labels: object["metadata"]["labels"]
            .as_object()
            .map(|labels| labels.iter().map(|(key, value)| (key.clone(), text(value))).collect())
            .unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    #[test]
    fn readiness_comes_with_its_reason() {
        let condition = json!({ "type": "Ready", "status": "False", "reason": "Because" });
        let object = json!({ "status": { "phase": "Running", "conditions": [condition] } });
        let ready = super::condition("", "pods", &object, 0);
        assert_eq!([ready.ready, ready.reason, ready.status], ["False", "Because", "InProgress"]);
    }
}
