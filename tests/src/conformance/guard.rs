//! A guard between the collector and the sandbox. It records each write of the collector that could meet another
//! object, or another state of the object, than the decision assumed. Such a write usually ends well. Its missing
//! preconditions matter only after a restore, behind an aggregated server, or in a rare race.

use anyhow::ensure;
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use http::{Method, StatusCode};
use serde_json::Value;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const BODY_MAX_BYTES: usize = 4 << 20;
/// The maximum number of listed writes without a guard.
const TOLD_MAX: usize = 20;

/// The observations so far.
#[derive(Debug, Clone, Default)]
pub struct Guard(Arc<Mutex<Seen>>);

/// The number of writes with all preconditions.
#[derive(Debug, Clone, Default)]
pub struct Seen {
    /// The number of writes to objects that are not the collector's own.
    pub writes: u64,
    /// The first writes with too few preconditions.
    pub unguarded: Vec<String>,
}

impl Seen {
    /// Returns an error that names every write without a guard.
    pub fn check(&self) -> anyhow::Result<()> {
        let Seen { writes, unguarded } = self;
        ensure!(unguarded.is_empty(), "of {writes} writes, some without a guard:\n{}", unguarded.join("\n"));
        Ok(())
    }
}

impl Guard {
    /// Returns the same server behind the guard.
    pub(super) fn before(&self, server: Router) -> Router {
        server.layer(from_fn_with_state(self.clone(), pass))
    }

    pub(super) fn seen(&self) -> Seen {
        self.lock().clone()
    }

    fn note(&self, method: &Method, path: &str, body: &[u8]) {
        if is_its_own(path) {
            return;
        }
        let missing = missing(method, body);
        let mut seen = self.lock();
        seen.writes += 1;
        if let Some(missing) = missing
            && seen.unguarded.len() < TOLD_MAX
        {
            seen.unguarded.push(format!("{method} {path} lacks {missing}: {}", String::from_utf8_lossy(body)));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn pass(State(guard): State<Guard>, request: Request, next: Next) -> Response {
    if !matches!(*request.method(), Method::DELETE | Method::PATCH | Method::PUT) {
        return next.run(request).await;
    }
    let (head, body) = request.into_parts();
    let Ok(body) = to_bytes(body, BODY_MAX_BYTES).await else {
        let mut refused = Response::new(Body::empty());
        *refused.status_mut() = StatusCode::PAYLOAD_TOO_LARGE;
        return refused;
    };
    guard.note(&head.method, head.uri.path(), &body);
    next.run(Request::from_parts(head, Body::from(body))).await
}

/// Returns whether the object is the collector's Lease, event or pause. No decision about garbage concerns these.
fn is_its_own(path: &str) -> bool {
    path.starts_with("/apis/ownergraph.dev/") || path.contains("/leases/") || path.contains("/events/")
}

/// Returns the preconditions that the write lacks.
fn missing(method: &Method, body: &[u8]) -> Option<&'static str> {
    let Ok(body) = serde_json::from_slice::<Value>(body) else { return Some("a body in JSON") };
    let is_text = |value: &Value| value.as_str().is_some_and(|text| !text.is_empty());
    let (uid, version) = match (method, &body) {
        (&Method::DELETE, body) => {
            let preconditions = &body["preconditions"];
            (is_text(&preconditions["uid"]), is_text(&preconditions["resourceVersion"]))
        }
        (_, Value::Array(operations)) => {
            let tests = |path: &str| {
                operations.iter().any(|step| step["op"] == "test" && step["path"] == path && is_text(&step["value"]))
            };
            (tests("/metadata/uid"), tests("/metadata/resourceVersion"))
        }
        (_, body) => {
            let metadata = &body["metadata"];
            // A patch that only removes entries by uid is right in any state of the object.
            let entries = metadata["ownerReferences"].as_array();
            let only_removes = entries.is_some_and(|all| all.iter().all(|entry| entry["$patch"] == "delete"));
            (is_text(&metadata["uid"]), only_removes || is_text(&metadata["resourceVersion"]))
        }
    };
    match (uid, version) {
        (true, true) => None,
        (false, true) => Some("the uid"),
        (true, false) => Some("the resourceVersion"),
        (false, false) => Some("uid and resourceVersion"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn lacks(method: &Method, body: &Value) -> Option<&'static str> {
        missing(method, body.to_string().as_bytes())
    }

    #[test]
    fn a_deletion_names_uid_and_version() {
        let delete = |preconditions: Value| lacks(&Method::DELETE, &json!({ "preconditions": preconditions }));
        assert_eq!(delete(json!({ "uid": "u", "resourceVersion": "1" })), None);
        assert_eq!(delete(json!({ "uid": "", "resourceVersion": "1" })), Some("the uid"));
        assert_eq!(delete(json!({ "resourceVersion": "1" })), Some("the uid"));
        assert_eq!(delete(json!({ "uid": "u" })), Some("the resourceVersion"));
        assert_eq!(delete(Value::Null), Some("uid and resourceVersion"));
        assert_eq!(missing(&Method::DELETE, b""), Some("a body in JSON"));
    }

    #[test]
    fn a_patch_names_the_uid_and_the_version_unless_it_only_removes() {
        let patch = |body: Value| lacks(&Method::PATCH, &body);
        let removed = json!([{ "$patch": "delete", "uid": "o" }]);
        let unblocked = json!([{ "uid": "o", "blockOwnerDeletion": false }]);
        assert_eq!(patch(json!({ "metadata": { "uid": "u", "ownerReferences": removed } })), None);
        assert_eq!(patch(json!({ "metadata": { "ownerReferences": removed } })), Some("the uid"));
        let unguarded = json!({ "metadata": { "uid": "u", "ownerReferences": unblocked } });
        assert_eq!(patch(unguarded), Some("the resourceVersion"));
        assert_eq!(patch(json!({ "metadata": { "uid": "u", "finalizers": null } })), Some("the resourceVersion"));
        assert_eq!(patch(json!({ "metadata": { "uid": "u", "resourceVersion": "1", "finalizers": null } })), None);
    }

    #[test]
    fn a_json_patch_tests_both() {
        let test = |field: &str| json!({ "op": "test", "path": format!("/metadata/{field}"), "value": "1" });
        let remove = || json!({ "op": "remove", "path": "/metadata/ownerReferences/0" });
        assert_eq!(lacks(&Method::PATCH, &json!([test("uid"), test("resourceVersion"), remove()])), None);
        assert_eq!(lacks(&Method::PATCH, &json!([test("uid"), remove()])), Some("the resourceVersion"));
        assert_eq!(lacks(&Method::PATCH, &json!([remove()])), Some("uid and resourceVersion"));
    }
}
