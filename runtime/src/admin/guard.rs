//! Authorizes requests beyond liveness and readiness.

use std::fmt;
use std::sync::Arc;

use axum::body::Body;
use axum::response::IntoResponse;
use futures::future::BoxFuture;
use http::header::{AUTHORIZATION, WWW_AUTHENTICATE};
use http::{HeaderValue, Request, Response, StatusCode, Uri};

use super::plain;
use crate::tls::Peer;

/// The sender of a request.
#[derive(Clone, Debug)]
pub struct Visitor {
    pub peer: Peer,
    /// The `Authorization` header.
    pub authorization: Option<HeaderValue>,
    /// The requested path, without the query.
    pub path: String,
}

/// Why a request is refused, with a sentence for the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The client is unknown: 401.
    Unauthenticated(String),
    /// The client lacks a right: 403.
    Forbidden(String),
    /// The check failed: 503.
    Unavailable(String),
}

/// Decides on requests. Clones share it.
#[derive(Clone)]
pub struct Guard(Arc<dyn Fn(Visitor) -> BoxFuture<'static, Result<(), Refusal>> + Send + Sync>);

impl Guard {
    pub fn through(
        decide: impl Fn(Visitor) -> BoxFuture<'static, Result<(), Refusal>> + Send + Sync + 'static,
    ) -> Guard {
        Guard(Arc::new(decide))
    }

    /// Admits clients with a certificate of a trusted authority. Others get `advice`.
    pub fn certificate(advice: &'static str) -> Guard {
        Guard::through(move |visitor| {
            let known = visitor.peer.certificate().is_some();
            let decided = if known { Ok(()) } else { Err(Refusal::Unauthenticated(advice.to_owned())) };
            Box::pin(std::future::ready(decided))
        })
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Guard")
    }
}

/// The guard of one connection.
#[derive(Clone, Debug)]
pub(super) struct Doorman {
    pub(super) guard: Guard,
    pub(super) peer: Peer,
}

impl Doorman {
    /// The error is the answer to the request.
    pub(super) async fn admit<B>(&self, request: &Request<B>) -> Result<(), Response<Body>> {
        let visitor = Visitor {
            peer: self.peer.clone(),
            authorization: request.headers().get(AUTHORIZATION).cloned(),
            path: request.uri().path().to_owned(),
        };
        (self.guard.0)(visitor).await.map_err(|refusal| match refusal {
            Refusal::Unauthenticated(why) => {
                (StatusCode::UNAUTHORIZED, [(WWW_AUTHENTICATE, "Bearer")], plain(&why)).into_response()
            }
            Refusal::Forbidden(why) => (StatusCode::FORBIDDEN, plain(&why)).into_response(),
            Refusal::Unavailable(why) => (StatusCode::SERVICE_UNAVAILABLE, plain(&why)).into_response(),
        })
    }
}

/// Whether the path is for probes, which have no identity.
pub(super) fn is_for_everybody(uri: &Uri) -> bool {
    uri.path() == "/livez" || (uri.path() == "/readyz" && uri.query().is_none())
}

/// Removes the conditions from a readiness answer: they are only for authorized clients.
pub(super) fn without_details(path: &str, answer: Response<Body>) -> Response<Body> {
    if path != "/readyz" {
        return answer;
    }
    let word = match answer.status().is_success() {
        true => "ok",
        false => "not ready; the conditions are only for authorized clients",
    };
    (answer.status(), plain(word)).into_response()
}
