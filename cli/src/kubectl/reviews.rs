//! The reviews of the API server about the caller: identity and rights.

use super::ending::Problem;
use super::naming::refusal;
use super::requests::date;
use super::session::Session;
use anyhow::Context as _;
use http::{Method, Request, StatusCode};
use kube_api::{Answer, call, media, request};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::time::Duration;

const WHO_AM_I: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
const MAY_I: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
const ANSWER_MAX_BYTES: usize = 1 << 20;

/// The user that the API server sees.
#[derive(Clone, Debug)]
pub(super) struct Caller {
    /// Empty if the API server does not say so.
    pub(super) user: String,
    /// The time of the API server since 1970, or of this machine if the answer has none.
    pub(super) at: Duration,
}

/// The request that the caller wants to make.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Attributes {
    pub(super) verb: String,
    pub(super) group: String,
    pub(super) resource: String,
    /// Empty for all namespaces, and for cluster scope.
    pub(super) namespace: String,
    /// Empty for all objects.
    pub(super) name: String,
}

/// The user of these credentials.
pub(super) async fn caller(session: &Session) -> Result<Caller, Problem> {
    let review = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview" });
    let answer = send(session, WHO_AM_I, &review).await?;
    let at = date(&answer);
    // API servers before 1.28 do not know this review, a snapshot takes no POST, and an administrator can take the
    // right to ask.
    if matches!(answer.status, StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED | StatusCode::FORBIDDEN) {
        return Ok(Caller { user: String::new(), at });
    }
    let status =
        status(&answer).map_err(|why| Problem::sentence(format!("the API server does not say who you are: {why}")))?;
    Ok(Caller { user: status["userInfo"]["username"].as_str().unwrap_or_default().to_owned(), at })
}

/// The name of the user. Empty if the API server does not say so.
pub(super) async fn user(session: &Session) -> String {
    caller(session).await.map(|caller| caller.user).unwrap_or_default()
}

/// Whether the caller may do it, and the reason that the API server gives.
pub(super) async fn may(session: &Session, asked: &Attributes) -> Result<(bool, String), Problem> {
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": { "resourceAttributes": asked },
    });
    let answer = send(session, MAY_I, &review).await?;
    let status = status(&answer)
        .map_err(|why| Problem::sentence(format!("the API server does not say what you may do: {why}")))?;
    let text = |field: &str| status[field].as_str().filter(|text| !text.is_empty());
    let reason = text("reason").or(text("evaluationError")).unwrap_or_default().to_owned();
    Ok((status["allowed"].as_bool().unwrap_or_default(), reason))
}

async fn send(session: &Session, uri: &str, review: &Value) -> Result<Answer, Problem> {
    let request = request(Method::POST, uri, media::JSON, review).context("the path of the review is not valid")?;
    authenticated(session, request, ANSWER_MAX_BYTES).await
}

/// Sends a request to the API server.
///
/// # Errors
/// [`Unauthenticated`] if the API server does not accept the credentials.
pub(super) async fn authenticated(
    session: &Session,
    request: Request<Vec<u8>>,
    max_bytes: usize,
) -> Result<Answer, Problem> {
    let answer = call(&session.cluster.client, request, max_bytes, session.connection.request_timeout).await;
    let answer = answer.with_context(|| format!("{} cannot be reached", session.cluster.url))?;
    if answer.status == StatusCode::UNAUTHORIZED {
        return Err(Problem::Other(Unauthenticated(refusal(&answer)).into()));
    }
    Ok(answer)
}

/// The API server does not accept the credentials.
#[derive(Debug, thiserror::Error)]
#[error("the API server does not accept these credentials: {0}")]
pub(super) struct Unauthenticated(String);

/// The status of a review, or why there is none.
fn status(answer: &Answer) -> Result<Value, String> {
    if !answer.status.is_success() {
        return Err(refusal(answer));
    }
    let mut review: Value =
        serde_json::from_slice(&answer.body).map_err(|error| format!("the answer is not a review: {error}"))?;
    Ok(review["status"].take())
}
