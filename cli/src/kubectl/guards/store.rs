//! Guards at the API server, with the credentials of the caller.

use crate::kubectl::ending::Problem;
use crate::kubectl::naming::refusal;
use crate::kubectl::requests::date;
use crate::kubectl::reviews;
use crate::kubectl::session::Session;
use crate::name::{kubectl, program};
use anyhow::Context as _;
use engine::guard::{GuardId, GuardKind};
use engine::object::Uid;
use http::{Method, StatusCode};
use kube_api::path::{collection_path, object_path};
use kube_api::{Answer, NotFound, classify_not_found, media, request};
use serde_json::{Value, json};
use std::time::Duration;

pub(crate) const GROUP: &str = "ownergraph.dev";
pub(crate) const API_VERSION: &str = "ownergraph.dev/v1alpha1";
const VERSION: &str = "v1alpha1";
const ANSWER_MAX_BYTES: usize = 4 << 20;
/// Maximum number of guards that a list returns.
const LIST_MAX: u32 = 1000;
const MANAGER: &str = "fieldManager=kubectl-ownergraph";

/// A guard as it was read.
pub(crate) struct Read {
    pub(crate) object: Value,
    pub(crate) uid: Uid,
    /// The time of the API server since 1970, or of this machine if the answer has none.
    pub(crate) now: Duration,
}

/// The result of a patch.
pub(crate) enum Patched {
    Done,
    /// A precondition was not met: the guard has changed.
    Changed(String),
}

async fn send(session: &Session, method: Method, uri: &str, body: &Value) -> Result<Answer, Problem> {
    let request = request(method, uri, media::JSON, body).context("the name is not valid in a path")?;
    reviews::authenticated(session, request, ANSWER_MAX_BYTES).await
}

fn path(id: &GuardId) -> Result<String, Problem> {
    object_path(GROUP, VERSION, id.kind.plural(), "", &id.name)
        .ok_or_else(|| Problem::sentence(format!("{:?} is not a valid name of a {}", &*id.name, id.kind.as_str())))
}

fn collection(kind: GuardKind) -> String {
    collection_path(GROUP, VERSION, kind.plural(), "")
}

/// Why the API server refuses, with the next step where it is known.
fn refused(what: &str, kind: GuardKind, name: &str, answer: &Answer) -> Problem {
    let message = refusal(answer);
    let next = match classify_not_found(answer, GROUP, kind.plural(), name) {
        None | Some(NotFound::ThisObject) => String::new(),
        Some(NotFound::Group | NotFound::Resource | NotFound::Other) => format!(
            "; if the API server does not know {}.{GROUP}, install the definitions: {} crds | {} apply -f -",
            kind.plural(),
            program(),
            kubectl()
        ),
    };
    Problem::sentence(format!("{what}: {message}{next}"))
}

/// Creates a guard, and returns its object. `options` are further parameters of the request, as `&dryRun=All`.
pub(crate) async fn create(
    session: &Session,
    kind: GuardKind,
    object: &Value,
    options: &str,
) -> Result<Value, Problem> {
    let answer = send(session, Method::POST, &format!("{}?{MANAGER}{options}", collection(kind)), object).await?;
    if !answer.status.is_success() {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        return Err(refused(&format!("{}/{name} was not created", kind.as_str()), kind, name, &answer));
    }
    Ok(serde_json::from_slice(&answer.body).context("the API server's answer is not an object")?)
}

/// Reads a guard.
pub(crate) async fn read(session: &Session, id: &GuardId) -> Result<Read, Problem> {
    let answer = send(session, Method::GET, &path(id)?, &Value::Null).await?;
    if answer.status != StatusCode::OK {
        return Err(refused(&format!("{id} cannot be read"), id.kind, &id.name, &answer));
    }
    let object: Value = serde_json::from_slice(&answer.body).context("the API server's answer is not an object")?;
    let uid = object["metadata"]["uid"].as_str().and_then(Uid::parse);
    let uid = uid.with_context(|| format!("the API server's answer about {id} has no uid"))?;
    Ok(Read { object, uid, now: date(&answer) })
}

/// The names and objects of all guards of a kind.
pub(crate) async fn list(session: &Session, kind: GuardKind) -> Result<Vec<(String, Value)>, Problem> {
    let answer = send(session, Method::GET, &format!("{}?limit={LIST_MAX}", collection(kind)), &Value::Null).await?;
    if answer.status != StatusCode::OK {
        return Err(refused(&format!("{} cannot be listed", kind.plural()), kind, "", &answer));
    }
    let mut list: Value = serde_json::from_slice(&answer.body).context("the API server's answer is not a list")?;
    let Value::Array(items) = list["items"].take() else { return Ok(Vec::new()) };
    let name = |object: &Value| object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    Ok(items.into_iter().map(|object| (name(&object), object)).collect())
}

/// Patches a guard with the preconditions in the patch.
pub(crate) async fn patch(session: &Session, id: &GuardId, patch: &Value) -> Result<Patched, Problem> {
    let answer = send(session, Method::PATCH, &format!("{}?{MANAGER}", path(id)?), patch).await?;
    match answer.status {
        status if status.is_success() => Ok(Patched::Done),
        StatusCode::CONFLICT => Ok(Patched::Changed(refusal(&answer))),
        _ => Err(refused(&format!("{id} was not changed"), id.kind, &id.name, &answer)),
    }
}

/// Deletes exactly the guard that was read.
pub(crate) async fn delete(session: &Session, id: &GuardId, uid: &Uid) -> Result<(), Problem> {
    let options = json!({
        "kind": "DeleteOptions", "apiVersion": "v1", "preconditions": { "uid": uid.to_string() },
    });
    let answer = send(session, Method::DELETE, &path(id)?, &options).await?;
    // An absent guard holds nothing.
    if answer.status.is_success() || answer.status == StatusCode::NOT_FOUND {
        return Ok(());
    }
    Err(refused(&format!("{id} was not deleted"), id.kind, &id.name, &answer))
}
