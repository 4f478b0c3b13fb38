//! The status of an object by kstatus, for its card.

use crate::kubectl::conditions;
use crate::kubectl::ending::Problem;
use crate::kubectl::naming::refusal;
use crate::kubectl::reviews;
use crate::kubectl::session::Session;
use anyhow::Context as _;
use engine::object::{GroupResource, clip};
use http::{Method, StatusCode};
use kube_api::path::object_path;
use kube_api::{NotFound, classify_not_found, media, request};
use serde::Deserialize;
use serde_json::{Value, json};

const ANSWER_MAX_BYTES: usize = 4 << 20;
/// Maximum number of bytes of a message that the card shows.
const MESSAGE_MAX_BYTES: usize = 512;

/// An object as the page names it.
#[derive(Deserialize)]
pub(super) struct Coordinates {
    /// Empty for the core group.
    pub(super) group: String,
    pub(super) version: String,
    pub(super) resource: String,
    /// Empty for cluster scope.
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) uid: String,
}

impl Coordinates {
    /// `None` if no object can have these.
    pub(super) fn path(&self) -> Option<String> {
        let Coordinates { group, version, resource, namespace, name, uid } = self;
        object_path(group, version, resource, namespace, name).filter(|_| !uid.is_empty())
    }
}

/// The status of the object at its path, and why it has this status. What the caller may not read is `Unknown`.
///
/// # Errors
/// The API server does not answer, or refuses for another reason.
pub(super) async fn of(session: &Session, wanted: &Coordinates, path: &str) -> Result<Value, Problem> {
    let Coordinates { group, resource, namespace, name, uid, .. } = wanted;
    let told = |status: &str, message: &str| {
        let shown = clip(message, MESSAGE_MAX_BYTES);
        let cut = if shown.len() < message.len() { "…" } else { "" };
        Ok(json!({ "status": status, "message": format!("{shown}{cut}") }))
    };
    if session.is_file() {
        return told("Unknown", "a snapshot has no status of objects");
    }
    // The status of a Secret does not depend on its data, so the data stays where it is.
    let is_secret = (group.as_str(), resource.as_str()) == ("", "secrets");
    let accept = if is_secret { media::METADATA } else { media::JSON };
    let request = request(Method::GET, path, accept, &Value::Null).context("the path of the object is not valid")?;
    let answer = reviews::authenticated(session, request, ANSWER_MAX_BYTES).await?;
    match answer.status {
        StatusCode::OK => {}
        StatusCode::FORBIDDEN => {
            let of = GroupResource { group: group.as_str().into(), resource: resource.as_str().into() };
            let place = if namespace.is_empty() { String::new() } else { format!(" in namespace {namespace}") };
            return told("Unknown", &format!("you lack the right to get {of}{place}"));
        }
        _ if classify_not_found(&answer, group, resource, name) == Some(NotFound::ThisObject) => {
            return told("NotFound", "the API server has no object of this name");
        }
        _ => return Err(Problem::sentence(format!("the status cannot be read: {}", refusal(&answer)))),
    }
    let object: Value = serde_json::from_slice(&answer.body).context("the API server's answer is not an object")?;
    match object["metadata"]["uid"].as_str() {
        Some(now) if now == uid => {
            let (status, why) = conditions::status(group, resource, &object);
            told(status, &why)
        }
        now => {
            told("NotFound", &format!("another object has this name now: its uid is {}", now.unwrap_or("not given")))
        }
    }
}
