//! Attempts against a scripted API server: each test compares requests and report.

use super::*;
use crate::metrics::Metrics;
use crate::scripted::{Api, Reply, broken, reply};
use engine::object::{Facts, Name, ObjectRef, OwnerReference, ResourceVersion, Uid};
use engine::work::{Action, Outcome, Preconditions, PropagationPolicy, Term, WorkItem};
use prometheus_client::registry::Registry;
use runtime::metrics::Book;
use serde_json::json;
use std::time::Duration;

mod connections;
mod deletes;
mod patches;

/// A scripted API server and the attempts that talk to it.
struct Script {
    attempts: Attempts,
    clock: Clock,
    api: Api,
    leases: u64,
}

impl Script {
    fn new(replies: impl IntoIterator<Item = Reply>) -> Script {
        let api = Api::new(replies);
        let metrics = Metrics::register(&mut Book::new(&mut Registry::default()));
        let server = Server::new(vec![api.client()], true, metrics);
        let clock = Clock::start();
        let mut attempts = Attempts::new(server, clock, 64);
        attempts.set_writes_end(Time::from_origin(Duration::from_secs(3600)));
        Script { attempts, clock, api, leases: 0 }
    }

    /// Starts a lease under an id of its own.
    fn start(&mut self, lease: WorkLease) -> LeaseId {
        self.leases += 1;
        let id = LeaseId { number: self.leases, ..lease.id };
        self.attempts.start(WorkLease { id, ..lease }, None);
        id
    }

    async fn run(&mut self, lease: WorkLease) -> WorkReport {
        self.start(lease);
        self.attempts.next().await.report
    }

    /// Requests since the last call.
    fn asked(&self) -> Vec<String> {
        self.api.asked()
    }
}

/// Runs one lease through a script, and checks that the whole script was used.
async fn play(replies: impl IntoIterator<Item = Reply>, lease: WorkLease) -> (WorkReport, Vec<String>) {
    let mut script = Script::new(replies);
    let report = script.run(lease).await;
    assert_eq!(script.api.left(), 0, "the script was not played to its end: {report:?}");
    let asked = script.asked();
    assert_eq!(report.api_calls as usize, asked.len(), "{asked:?}");
    (report, asked)
}

const UID: &str = "5f4522a0-1d50-46d8-a74d-5fa3e09244bf";
const PATH: &str = "/api/v1/namespaces/default/configmaps/c";
const OWNER_PATH: &str = "/apis/apps/v1/namespaces/default/deployments/o";

fn target() -> ObjectRef {
    ObjectRef {
        group: Name::from(""),
        version: Name::from("v1"),
        resource: Name::from("configmaps"),
        kind: Name::from("ConfigMap"),
        namespace: Name::from("default"),
        name: Name::from("c"),
        uid: Uid::parse(UID).unwrap(),
    }
}

fn owner() -> ObjectRef {
    ObjectRef {
        group: Name::from("apps"),
        version: Name::from("v1"),
        resource: Name::from("deployments"),
        kind: Name::from("Deployment"),
        namespace: Name::from("default"),
        name: Name::from("o"),
        uid: Uid::parse("owner").unwrap(),
    }
}

fn entry(uid: &str, block: Option<bool>) -> OwnerReference {
    OwnerReference {
        api_version: Name::from("apps/v1"),
        kind: Name::from("Deployment"),
        name: Name::from("o"),
        uid: Uid::parse(uid).unwrap(),
        controller: None,
        block_owner_deletion: block,
    }
}

fn written(uid: &str, block: Option<bool>) -> Value {
    let mut written = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "o", "uid": uid});
    if let Some(block) = block {
        written["blockOwnerDeletion"] = json!(block);
    }
    written
}

/// An object of the API server: by default the target with one owner.
fn object(version: &str, more: Value) -> Value {
    let mut metadata = json!({"name": "c", "namespace": "default", "uid": UID, "resourceVersion": version});
    for (key, value) in more.as_object().unwrap() {
        metadata[key] = value.clone();
    }
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata})
}

fn with_owner(version: &str) -> Value {
    object(version, json!({"ownerReferences": [written("owner", None)]}))
}

fn owner_object(uid: &str, finalizers: Value, terminating: bool) -> Value {
    let deletion = if terminating { json!("2026-11-21T09:17:20Z") } else { Value::Null };
    let metadata = json!({"name": "o", "uid": uid, "resourceVersion": "9", "finalizers": finalizers, "deletionTimestamp": deletion});
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata})
}

fn status(code: u16, reason: &str, details: Value) -> Reply {
    reply(
        code,
        json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "message": format!("said {reason}"), "details": details, "code": code}),
    )
}

fn gone() -> Reply {
    status(404, "NotFound", json!({"name": "c", "kind": "configmaps"}))
}

fn conflict() -> Reply {
    status(409, "Conflict", json!({"name": "c", "kind": "configmaps"}))
}

fn deleted() -> Reply {
    reply(
        200,
        json!({"kind": "Status", "apiVersion": "v1", "status": "Success", "details": {"name": "c", "kind": "configmaps", "uid": UID}}),
    )
}

/// A lease whose decision depends on the owner reference of [`with_owner`], at version 5.
fn lease(action: Action) -> WorkLease {
    let facts = Facts { owners: Box::new([entry("owner", None)]), ..Facts::default() };
    lease_on(action, &facts)
}

fn lease_on(action: Action, facts: &Facts) -> WorkLease {
    let term = Term { election: Name::from("lease"), number: 3 };
    WorkLease {
        id: LeaseId { term: 3, number: 1 },
        term,
        item: WorkItem {
            id: 7,
            target: target(),
            preconditions: Preconditions {
                resource_version: ResourceVersion::parse("5"),
                facts_digest: facts.digest(),
                must_be_terminating: false,
            },
            action,
            read_first: false,
            generation: 1,
        },
        attempt: 1,
        execution_limit: Duration::from_secs(60),
        previous_attempt_ambiguous: false,
        traceparent: None,
    }
}

fn delete(owner_checks: Vec<ObjectRef>) -> WorkLease {
    lease(Action::Delete { propagation_policy: PropagationPolicy::Background, owner_checks })
}

/// The DELETE at this version, as the server sees it.
fn delete_at(version: &str) -> String {
    let preconditions = format!(r#"{{"resourceVersion":"{version}","uid":"{UID}"}}"#);
    format!(
        r#"DELETE {PATH} json {{"apiVersion":"v1","kind":"DeleteOptions","preconditions":{preconditions},"propagationPolicy":"Background"}}"#
    )
}

fn get_line() -> String {
    format!("GET {PATH}")
}

fn observed_version(report: &WorkReport) -> Option<String> {
    report.observed.as_ref().map(|seen| seen.resource_version.to_string())
}
