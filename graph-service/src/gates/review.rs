//! The bodies of webhook requests and answers: a GateReview, in the manner of an AdmissionReview, for many questions.

use super::{Reply, Unmatched};
use engine::guard::{Answer, Question};
use engine::object::ObjectRef;
use engine::work::ActionKind;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

const API_VERSION: &str = "ownergraph.dev/v1alpha1";
const KIND: &str = "GateReview";

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Review<'a> {
    api_version: &'static str,
    kind: &'static str,
    requests: Vec<Request<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Request<'a> {
    uid: String,
    gate: &'a str,
    operation: String,
    object: Object<'a>,
    resource_version: String,
    /// From the owner to the root.
    chain: Vec<Object<'a>>,
    root: Option<Object<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cascade: Option<Cascade>,
    /// The answer is reported, and nothing waits for it.
    dry_run: bool,
    time_left_seconds: f64,
}

#[derive(Serialize)]
struct Object<'a> {
    group: &'a str,
    version: &'a str,
    resource: &'a str,
    kind: &'a str,
    namespace: &'a str,
    name: &'a str,
    uid: String,
}

#[derive(Serialize)]
struct Cascade {
    objects: u64,
    /// By `RESOURCE.GROUP`.
    totals: BTreeMap<String, u64>,
    complete: bool,
}

/// The operation of a request.
pub(super) fn operation(action: ActionKind) -> String {
    action.as_str().to_uppercase()
}

/// The body of a request with these questions, and the time that is left for each.
pub(super) fn body(questions: &[Arc<Question>], left: Duration) -> Result<Vec<u8>, String> {
    let requests = questions.iter().map(|question| request(question, left)).collect();
    let review = Review { api_version: API_VERSION, kind: KIND, requests };
    serde_json::to_vec(&review).map_err(|error| format!("the request cannot be written: {error}"))
}

fn request(question: &Question, left: Duration) -> Request<'_> {
    let root = question.cascade.as_ref().map(|cascade| &cascade.root).or(question.chain.last());
    Request {
        uid: question.number.to_string(),
        gate: &question.gate,
        operation: operation(question.action),
        object: object(&question.target),
        resource_version: question.resource_version.to_string(),
        chain: question.chain.iter().map(object).collect(),
        root: root.map(object),
        cascade: question.cascade.as_ref().map(|cascade| Cascade {
            objects: cascade.objects,
            totals: cascade.totals.iter().map(|(collection, count)| (collection.to_string(), *count)).collect(),
            complete: cascade.complete,
        }),
        dry_run: question.observe_only,
        time_left_seconds: left.as_secs_f64(),
    }
}

fn object(object: &ObjectRef) -> Object<'_> {
    Object {
        group: &object.group,
        version: &object.version,
        resource: &object.resource,
        kind: &object.kind,
        namespace: &object.namespace,
        name: &object.name,
        uid: object.uid.to_string(),
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Answers {
    api_version: String,
    kind: String,
    #[serde(default)]
    responses: Vec<Response>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Response {
    uid: String,
    allowed: Option<bool>,
    hold: Option<Hold>,
    #[serde(default)]
    status: Words,
    #[serde(default)]
    policy: String,
    #[serde(default)]
    valid_for_seconds: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Hold {
    again_after_seconds: u64,
}

#[derive(Default, Deserialize)]
struct Words {
    #[serde(default)]
    message: String,
}

/// The answers of a body to these questions, and the responses that match none of them.
pub(super) fn answers(body: &[u8], asked: &BTreeSet<u64>) -> Result<(Vec<Reply>, Vec<Unmatched>), String> {
    let read: Answers =
        serde_json::from_slice(body).map_err(|error| format!("the answer is not a GateReview: {error}"))?;
    if (read.api_version.as_str(), read.kind.as_str()) != (API_VERSION, KIND) {
        return Err(format!(
            "the answer is a {:?} of {:?}, and not a {KIND} of {API_VERSION}",
            read.kind, read.api_version
        ));
    }
    let (mut replies, mut unmatched) = (Vec::new(), Vec::new());
    let mut open = asked.clone();
    for response in read.responses {
        match response.uid.parse() {
            Ok(number) if open.remove(&number) => replies.push(reply(number, &response)),
            Ok(number) if asked.contains(&number) => unmatched.push(Unmatched::Twice),
            Ok(_) | Err(_) => unmatched.push(Unmatched::Unknown),
        }
    }
    Ok((replies, unmatched))
}

fn reply(number: u64, response: &Response) -> Reply {
    let answer = match (response.allowed, &response.hold) {
        (None | Some(false), Some(hold)) => Answer::Hold { again_after: Duration::from_secs(hold.again_after_seconds) },
        (Some(true), None) => Answer::Allow,
        (Some(false), None) => Answer::Deny,
        (Some(true), Some(_)) => return Reply::failed(number, "the response both allows and holds"),
        (None, None) => return Reply::failed(number, "the response has neither allowed nor hold"),
    };
    let valid_for = Duration::from_secs(response.valid_for_seconds);
    Reply::new(number, answer, &response.policy, &response.status.message, valid_for)
}
