//! Who may see more than whether the service lives and is ready.

use std::fmt;
use std::sync::Arc;

use axum::body::Body;
use axum::response::IntoResponse;
use futures::future::BoxFuture;
use http::header::{AUTHORIZATION, WWW_AUTHENTICATE};
use http::{HeaderValue, Request, Response, StatusCode, Uri};

use super::plain;
use crate::tls::Peer;

/// Somebody who asks for it.
#[derive(Clone, Debug)]
pub struct Visitor {
    pub peer: Peer,
    /// The header of this name, as it came.
    pub authorization: Option<HeaderValue>,
    /// What is asked for, without the query.
    pub path: String,
}

/// Why not. Each with a sentence for the visitor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Nobody knows who that is: 401.
    Unauthenticated(String),
    /// They may not: 403.
    Forbidden(String),
    /// It could not be found out: 503.
    Unavailable(String),
}

/// Decides about visitors. Clones share it.
#[derive(Clone)]
pub struct Guard(Arc<dyn Fn(Visitor) -> BoxFuture<'static, Result<(), Refusal>> + Send + Sync>);

impl Guard {
    pub fn through(
        decide: impl Fn(Visitor) -> BoxFuture<'static, Result<(), Refusal>> + Send + Sync + 'static,
    ) -> Guard {
        Guard(Arc::new(decide))
    }

    /// Lets in whoever shows a client certificate of an authority that the server trusts. `advice` is what everybody else is told.
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

/// The guard at one connection.
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

/// Whether probes ask for it, who have no identity.
pub(super) fn is_for_everybody(uri: &Uri) -> bool {
    uri.path() == "/livez" || (uri.path() == "/readyz" && uri.query().is_none())
}

/// The answer to a probe of the readiness: what is waited for is not for everybody.
pub(super) fn without_details(path: &str, answer: Response<Body>) -> Response<Body> {
    if path != "/readyz" {
        return answer;
    }
    let word = match answer.status().is_success() {
        true => "ok",
        false => "not ready; what is waited for is told to whom the service knows",
    };
    (answer.status(), plain(word)).into_response()
}
