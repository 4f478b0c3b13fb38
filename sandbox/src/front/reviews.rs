//! Reviews: requests that create an object and get an answer in its status.

use axum::http::{Method, StatusCode, header, request::Parts};
use axum::response::Response;
use serde_json::json;

use super::answer::json_value;
use super::query;
use super::route::Route;
use super::server::Server;
use crate::model::ApiError;

/// The kind of review.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Review {
    Token,
    Access,
    Myself,
    MyAccess,
}

/// The kind of review that a request asks for.
pub(crate) fn of(parts: &Parts, route: &Route) -> Option<Review> {
    let place = (route.group.as_str(), route.version.as_str(), route.resource.as_str());
    let review = match place {
        ("authentication.k8s.io", "v1", "tokenreviews") => Review::Token,
        ("authorization.k8s.io", "v1", "subjectaccessreviews") => Review::Access,
        ("authentication.k8s.io", "v1", "selfsubjectreviews") => Review::Myself,
        ("authorization.k8s.io", "v1", "selfsubjectaccessreviews") => Review::MyAccess,
        _ => return None,
    };
    let asks = parts.method == Method::POST && route.namespace.is_empty() && route.name.is_empty();
    asks.then_some(review)
}

/// The review with its status.
pub(crate) fn answer(server: &Server, review: Review, parts: &Parts, body: &[u8]) -> Result<Response, ApiError> {
    let content_type =
        parts.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let asked = query::body_value(content_type, body)?;
    let spec = &asked["spec"];
    let (api_version, kind, status) = match review {
        Review::Token => {
            let status = server.read(|model| model.callers().review_token(spec))?;
            ("authentication.k8s.io/v1", "TokenReview", status)
        }
        Review::Access => {
            let status = server.read(|model| model.callers().review_access(spec));
            ("authorization.k8s.io/v1", "SubjectAccessReview", status)
        }
        // The server authenticates no client, and refuses none.
        Review::Myself => {
            let user = json!({"username": "system:anonymous", "groups": ["system:unauthenticated"]});
            ("authentication.k8s.io/v1", "SelfSubjectReview", json!({"userInfo": user}))
        }
        Review::MyAccess => ("authorization.k8s.io/v1", "SelfSubjectAccessReview", json!({"allowed": true})),
    };
    let answer = json!({"apiVersion": api_version, "kind": kind, "metadata": {}, "spec": spec, "status": status});
    Ok(json_value(StatusCode::CREATED, &answer))
}
