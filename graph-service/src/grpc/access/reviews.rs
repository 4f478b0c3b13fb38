//! TokenReview and SubjectAccessReview: requests, and the meaning of the answers.

use super::caller::Caller;
use crate::grpc::rights::GROUP;
use engine::object::clip;
use futures::future::BoxFuture;
use http::{Method, StatusCode};
use k8s_openapi::Resource;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, TokenReviewStatus};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube_api::path::collection_path;
use kube_api::{Answer, call, media, request};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio_util::context::TokioContext;

/// Maximum size of a review. A review with all groups of its user is far smaller.
const ANSWER_MAX_BYTES: usize = 1024 * 1024;
/// Maximum number of bytes of the API server's message in an error.
const WORDS_MAX_BYTES: usize = 300;
/// Timeout of a review. It is longer than any caller waits.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// The subject of an access review.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Asked {
    /// A verb on a virtual resource of Ownergraph. Without a namespace, for all namespaces.
    Resource { verb: &'static str, resource: &'static str, namespace: String },
    /// A verb on one virtual object of Ownergraph.
    Named { verb: &'static str, resource: &'static str, name: String },
    /// The verb get on an object of the API server.
    Object { group: String, resource: String, namespace: String, name: String },
    /// The verb get on a non-resource path.
    Path(String),
}

/// Whether a user has a right.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Question {
    pub(super) caller: Arc<Caller>,
    pub(super) asked: Asked,
}

/// The answer to a token review.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TokenAnswer {
    Accepted(Caller),
    /// The reason, as the API server states it.
    Refused(String),
}

/// The API server did not answer, or its answer was not usable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unanswered {
    pub(super) why: String,
}

impl Unanswered {
    pub(super) fn of(why: &str) -> Unanswered {
        Unanswered { why: clip(why, WORDS_MAX_BYTES) }
    }
}

/// Answers reviews.
pub(super) trait Reviews: Send + Sync {
    /// Without an audience, for the API server's own.
    fn token(&self, token: String, audience: Option<String>) -> BoxFuture<'static, Result<TokenAnswer, Unanswered>>;
    fn access(&self, question: Arc<Question>) -> BoxFuture<'static, Result<bool, Unanswered>>;
}

/// The API server, asked with the service's own credentials.
pub(crate) struct ApiServer {
    client: kube::Client,
    /// The runtime of the service. Readers' threads may send requests, but the connection must not depend on those
    /// threads.
    runtime: Handle,
}

impl ApiServer {
    /// Uses the runtime of the caller.
    pub(crate) fn new(client: kube::Client) -> ApiServer {
        ApiServer { client, runtime: Handle::current() }
    }
}

impl std::fmt::Debug for ApiServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ApiServer")
    }
}

impl Reviews for ApiServer {
    fn token(&self, token: String, audience: Option<String>) -> BoxFuture<'static, Result<TokenAnswer, Unanswered>> {
        let spec = TokenReviewSpec { token, audiences: audience.clone().map(|one| vec![one]) };
        let review = TokenReview { spec, ..TokenReview::default() };
        let client = self.client.clone();
        let asked = async move { token_answer(&ask(&client, &review).await?, audience.as_deref()) };
        Box::pin(TokioContext::new(asked, self.runtime.clone()))
    }

    fn access(&self, question: Arc<Question>) -> BoxFuture<'static, Result<bool, Unanswered>> {
        let client = self.client.clone();
        let asked = async move { is_allowed(&ask(&client, &access_review(&question)).await?) };
        Box::pin(TokioContext::new(asked, self.runtime.clone()))
    }
}

fn access_review(question: &Question) -> SubjectAccessReview {
    let Caller { user, uid, groups, extra } = &*question.caller;
    let mut spec = SubjectAccessReviewSpec {
        user: Some(user.clone()),
        uid: Some(uid.clone()).filter(|uid| !uid.is_empty()),
        groups: Some(groups.clone()),
        extra: Some(extra.clone()),
        ..SubjectAccessReviewSpec::default()
    };
    match &question.asked {
        Asked::Resource { verb, resource, namespace } => {
            spec.resource_attributes = Some(ResourceAttributes {
                group: Some(GROUP.to_owned()),
                resource: Some((*resource).to_owned()),
                verb: Some((*verb).to_owned()),
                namespace: Some(namespace.clone()),
                ..ResourceAttributes::default()
            });
        }
        Asked::Named { verb, resource, name } => {
            spec.resource_attributes = Some(ResourceAttributes {
                group: Some(GROUP.to_owned()),
                resource: Some((*resource).to_owned()),
                verb: Some((*verb).to_owned()),
                name: Some(name.clone()),
                ..ResourceAttributes::default()
            });
        }
        Asked::Object { group, resource, namespace, name } => {
            spec.resource_attributes = Some(ResourceAttributes {
                group: Some(group.clone()),
                resource: Some(resource.clone()),
                verb: Some("get".to_owned()),
                namespace: Some(namespace.clone()),
                name: Some(name.clone()),
                ..ResourceAttributes::default()
            });
        }
        Asked::Path(path) => {
            spec.non_resource_attributes =
                Some(NonResourceAttributes { path: Some(path.clone()), verb: Some("get".to_owned()) });
        }
    }
    SubjectAccessReview { spec, ..SubjectAccessReview::default() }
}

/// A missing field means that the right is denied.
fn is_allowed(answer: &Answer) -> Result<bool, Unanswered> {
    let status = read::<SubjectAccessReview>(answer)?.status.ok_or_else(without_status)?;
    Ok(status.allowed && !status.denied.unwrap_or_default())
}

fn without_status() -> Unanswered {
    Unanswered::of("the API server's review has no status")
}

/// A server that does not report audiences may accept a token that was issued for another service. So an answer without
/// audiences refuses the token. Every server checks its own audience, for which none is asked.
fn token_answer(answer: &Answer, audience: Option<&str>) -> Result<TokenAnswer, Unanswered> {
    let status = read::<TokenReview>(answer)?.status.ok_or_else(without_status)?;
    let TokenReviewStatus { authenticated, user, audiences, error } = status;
    if !authenticated.unwrap_or_default() {
        let why = error.filter(|why| !why.is_empty());
        let why = why.as_deref().unwrap_or("the API server refuses the token");
        return Ok(TokenAnswer::Refused(clip(why, WORDS_MAX_BYTES)));
    }
    if audience.is_some_and(|audience| !audiences.iter().flatten().any(|one| one == audience)) {
        let why = "the API server did not check the audience of the token";
        return Ok(TokenAnswer::Refused(why.to_owned()));
    }
    let user = user.unwrap_or_default();
    let Some(name) = user.username.filter(|name| !name.is_empty()) else {
        return Ok(TokenAnswer::Refused("the token has no user".to_owned()));
    };
    Ok(TokenAnswer::Accepted(Caller {
        user: name,
        uid: user.uid.unwrap_or_default(),
        groups: user.groups.unwrap_or_default(),
        extra: user.extra.unwrap_or_default(),
    }))
}

async fn ask<T: Resource + Serialize>(client: &kube::Client, review: &T) -> Result<Answer, Unanswered> {
    let body = serde_json::to_value(review).map_err(|error| Unanswered::of(&error.to_string()))?;
    let request =
        request(Method::POST, &collection_path(T::GROUP, T::VERSION, T::URL_PATH_SEGMENT, ""), media::JSON, &body)
            .expect("the path is a constant");
    let answer = call(client, request, ANSWER_MAX_BYTES, ANSWER_WITHIN).await;
    answer.map_err(|error| Unanswered::of(&error.to_string()))
}

fn read<T: DeserializeOwned>(answer: &Answer) -> Result<T, Unanswered> {
    if !matches!(answer.status, StatusCode::OK | StatusCode::CREATED) {
        let code = answer.status.as_u16();
        return Err(Unanswered::of(&format!("the API server answers {code} to a review: {}", answer.message())));
    }
    let unread = |error: serde_json::Error| Unanswered::of(&format!("the API server's review cannot be read: {error}"));
    serde_json::from_slice(&answer.body).map_err(unread)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use serde_json::{Value, json};
    use std::collections::BTreeMap;

    fn answer(code: u16, body: &Value) -> Answer {
        Answer {
            status: StatusCode::from_u16(code).unwrap(),
            content_type: "application/json".to_owned(),
            body: Bytes::from(body.to_string()),
            retry_after: None,
            audit_id: None,
            date: None,
        }
    }

    #[test]
    fn only_a_token_whose_audience_was_looked_at_is_accepted() {
        let review = |status: Value| token_answer(&answer(201, &json!({"status": status})), Some("ownergraph"));
        let user = json!({"username": "eve", "uid": "u", "groups": ["a"], "extra": {"k": ["v"]}});
        let accepted = review(json!({"authenticated": true, "user": &user, "audiences": ["ownergraph"]})).unwrap();
        let TokenAnswer::Accepted(caller) = accepted else { panic!("{accepted:?}") };
        assert_eq!((caller.user.as_str(), caller.groups.len(), caller.extra["k"].len()), ("eve", 1, 1));
        for refused in [
            json!({"authenticated": true, "user": &user}),
            json!({"authenticated": true, "user": &user, "audiences": ["other"]}),
            json!({"authenticated": true, "user": {}, "audiences": ["ownergraph"]}),
            json!({"authenticated": false, "error": "expired"}),
            json!({}),
        ] {
            assert!(matches!(review(refused.clone()), Ok(TokenAnswer::Refused(_))), "{refused}");
        }
    }

    #[test]
    fn for_the_api_servers_own_audience_its_word_is_enough() {
        let user = json!({"username": "eve"});
        for (status, is_accepted) in [
            (json!({"authenticated": true, "user": &user}), true),
            (json!({"authenticated": true, "user": &user, "audiences": ["https://kubernetes.default.svc"]}), true),
            (json!({"authenticated": true, "user": {}}), false),
            (json!({"authenticated": false, "user": &user}), false),
        ] {
            let answer = token_answer(&answer(201, &json!({"status": &status})), None).unwrap();
            assert_eq!(matches!(answer, TokenAnswer::Accepted(_)), is_accepted, "{status}");
        }
    }

    #[test]
    fn whatever_is_no_review_is_no_answer() {
        let status = json!({"kind": "Status", "apiVersion": "v1", "message": "tokenreviews is forbidden"});
        let refused = token_answer(&answer(403, &status), Some("ownergraph")).unwrap_err();
        assert!(refused.why.contains("403") && refused.why.contains("tokenreviews is forbidden"), "{}", refused.why);
        for (code, body) in
            [(500, json!({})), (404, json!({})), (200, json!([])), (200, json!({})), (200, json!({"status": 7}))]
        {
            assert!(is_allowed(&answer(code, &body)).is_err(), "{code} {body}");
        }
        for (status, allowed) in [
            (json!({}), false),
            (json!({"allowed": false}), false),
            (json!({"allowed": true, "denied": true}), false),
            (json!({"allowed": true}), true),
        ] {
            assert_eq!(is_allowed(&answer(201, &json!({"status": status}))), Ok(allowed), "{status}");
        }
    }

    #[test]
    fn a_question_says_all_that_is_known_of_the_caller() {
        let caller = Caller {
            user: "eve".to_owned(),
            uid: "u".to_owned(),
            groups: vec!["a".to_owned()],
            extra: BTreeMap::from([("k".to_owned(), vec!["v".to_owned()])]),
        };
        let asked = Asked::Resource { verb: "list", resource: "graphobjects", namespace: "shop".to_owned() };
        let spec =
            serde_json::to_value(access_review(&Question { caller: Arc::new(caller), asked })).unwrap()["spec"].take();
        let attributes =
            json!({"group": "ownergraph.dev", "resource": "graphobjects", "verb": "list", "namespace": "shop"});
        assert_eq!(
            spec,
            json!({"user": "eve", "uid": "u", "groups": ["a"], "extra": {"k": ["v"]}, "resourceAttributes": attributes})
        );
        let path = Question { caller: Arc::default(), asked: Asked::Path("/metrics".to_owned()) };
        let review = serde_json::to_value(access_review(&path)).unwrap();
        assert_eq!(review["spec"]["nonResourceAttributes"], json!({"path": "/metrics", "verb": "get"}));
        assert_eq!(
            (&review["kind"], &review["apiVersion"]),
            (&json!("SubjectAccessReview"), &json!("authorization.k8s.io/v1"))
        );
    }
}
