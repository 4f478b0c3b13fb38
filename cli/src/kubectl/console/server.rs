//! Connections, and what answers each path.

use super::answers::{Answer, bytes, json, refusal, secured};
use super::backend::Backend;
use super::door::Door;
use super::{actions, calls, files};
use crate::kubectl::ending::note;
use bytes::Bytes;
use http::header::{ALLOW, WWW_AUTHENTICATE};
use http::{HeaderValue, Method, Request, StatusCode};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use runtime::listen::answer_all;
use runtime::tls::{Protocol, ServerTls};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tonic::body::Body;

/// A browser opens six connections for one origin. Further connections wait in the kernel's queue.
const CONNECTIONS_MAX: usize = 64;
/// The same for other users.
const PUBLIC_CONNECTIONS_MAX: usize = 1024;
/// Maximum number of calls of gRPC-Web at a time, with those whose answer is a stream.
pub(super) const CALLS_MAX: usize = 32;
/// The same for other users.
const PUBLIC_CALLS_MAX: usize = 512;
/// The path where a page gets the token for its address.
const OPEN: &str = "/console/open";
/// The path for the probes of a container. It says nothing.
const LIVE: &str = "/livez";
/// Maximum size of the body of a request. The largest is a plan with a hundred targets.
pub(super) const BODY_MAX_BYTES: usize = 1 << 20;
const HEAD_MAX_BYTES: usize = 64 << 10;
/// Maximum time for the head of a request. A connection without a request is closed after it.
const HEAD_WITHIN: Duration = Duration::from_secs(60);
const BODY_WITHIN: Duration = Duration::from_secs(10);

/// The state that all connections share.
pub(super) struct Site {
    pub(super) door: Door,
    backend: Backend,
    calls: Arc<Semaphore>,
    calls_max: usize,
}

impl Site {
    pub(super) fn new(door: Door, backend: Backend) -> Site {
        let calls_max = if door.is_public() { PUBLIC_CALLS_MAX } else { CALLS_MAX };
        Site { door, backend, calls: Arc::new(Semaphore::new(calls_max)), calls_max }
    }

    /// The address of the next page, in the namespace of the flags.
    pub(super) fn link(&self) -> String {
        let session = &self.backend.session;
        self.door.link(session.namespace_is_given().then(|| session.namespace()))
    }
}

/// Serves until it is aborted.
pub(super) async fn serve(listener: TcpListener, site: Site, tls: Option<Arc<ServerTls>>) -> anyhow::Result<()> {
    let max = if site.door.is_public() { PUBLIC_CONNECTIONS_MAX } else { CONNECTIONS_MAX };
    let site = Arc::new(site);
    answer_all(listener, "console", max, move |stream, from| {
        let (site, tls) = (Arc::clone(&site), tls.clone());
        async move {
            match tls {
                None => connection(stream, site).await,
                Some(tls) => {
                    if let Some((stream, _)) = tls.handshake(stream, Some(from), Protocol::Http1).await {
                        connection(stream, site).await;
                    }
                }
            }
        }
    })
    .await
}

async fn connection(stream: impl AsyncRead + AsyncWrite + Unpin, site: Arc<Site>) {
    let answered = service_fn(move |request| {
        let site = Arc::clone(&site);
        async move { Ok::<_, Infallible>(answer(&site, request).await) }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_WITHIN)
        .max_buf_size(HEAD_MAX_BYTES)
        .serve_connection(TokioIo::new(stream), answered);
    if let Err(error) = served.await {
        tracing::debug!(%error, "a connection of the console broke off");
    }
}

/// Answers a request.
pub(super) async fn answer<B>(site: &Site, request: Request<B>) -> Answer
where
    B: http_body::Body<Data = Bytes> + Send,
    B::Error: Into<tower::BoxError>,
{
    let path = request.uri().path();
    let is_open = !path.starts_with("/console/") && !calls::is_call(path);
    let answer = match site.door.host_refusal(&request) {
        // A probe calls the pod by its address.
        _ if path == LIVE && site.door.is_public() => bytes(StatusCode::OK, "text/plain; charset=utf-8", "ok\n"),
        Some((status, sentence)) => refusal(status, &sentence),
        None if is_open => match *request.method() {
            Method::GET | Method::HEAD => files::answer(path),
            _ => other_method("GET,HEAD"),
        },
        None if path == OPEN && *request.method() != Method::POST => other_method("POST"),
        None if path == OPEN => match site.door.open(&request) {
            Ok(token) => {
                note(&format!("the console was opened; the address for another tab is {}", site.link()));
                json(StatusCode::OK, &serde_json::json!({ "token": token }))
            }
            Err((status, sentence)) => refusal(status, &sentence),
        },
        None => match site.door.caller(&request) {
            Err((status, sentence)) => refusal(status, &sentence),
            Ok(caller) => {
                let backend = site.backend.of(caller);
                if calls::is_call(path) { call(site, backend, request).await } else { action(&backend, request).await }
            }
        },
    };
    let mut answer = secured(answer);
    if answer.status() == StatusCode::UNAUTHORIZED && site.door.is_public() {
        answer.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    answer
}

async fn call<B>(site: &Site, backend: Backend, request: Request<B>) -> Answer
where
    B: http_body::Body<Data = Bytes>,
    B::Error: Into<tower::BoxError>,
{
    if let Some((status, sentence)) = calls::refusal(&request, backend.writes) {
        return refusal(status, &sentence);
    }
    let Ok(permit) = Arc::clone(&site.calls).try_acquire_owned() else {
        let max = site.calls_max;
        let sentence = format!("the console makes {max} calls at a time, and all are in use: close other tabs of it");
        return refusal(StatusCode::TOO_MANY_REQUESTS, &sentence);
    };
    let (head, body) = request.into_parts();
    let body = match whole(body).await {
        Ok(body) => body,
        Err(refused) => return refused,
    };
    let answer = calls::forward(Arc::new(backend), head.uri.path(), &head.headers, body).await;
    // The call holds its place until the last piece of its answer is sent or the page closes the connection.
    answer.map(|body| {
        Body::new(body.map_err(move |error| {
            let _held = &permit;
            error
        }))
    })
}

async fn action<B>(backend: &Backend, request: Request<B>) -> Answer
where
    B: http_body::Body<Data = Bytes>,
    B::Error: Into<tower::BoxError>,
{
    let (head, body) = request.into_parts();
    let path = head.uri.path();
    let is_session = path == "/console/session";
    let wanted = if is_session { Method::GET } else { Method::POST };
    if head.method != wanted {
        return other_method(if is_session { "GET" } else { "POST" });
    }
    let done = if is_session {
        actions::session(backend).await
    } else {
        match whole(body).await {
            Ok(body) => actions::act(backend, path, &body).await,
            Err(refused) => return refused,
        }
    };
    match done {
        Ok(value) => json(StatusCode::OK, &value),
        // The token of this console is right. It is the command line whose credentials are refused.
        Err(refused) if refused.status == StatusCode::UNAUTHORIZED && !backend.is_for_others() => {
            json(StatusCode::BAD_GATEWAY, &refused.body)
        }
        Err(refused) => json(refused.status, &refused.body),
    }
}

fn other_method(allowed: &'static str) -> Answer {
    let mut answer = refusal(StatusCode::METHOD_NOT_ALLOWED, &format!("this path takes {allowed} only"));
    answer.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
    answer
}

/// The whole body of a request, or the answer that refuses it.
async fn whole<B>(body: B) -> Result<Bytes, Answer>
where
    B: http_body::Body<Data = Bytes>,
    B::Error: Into<tower::BoxError>,
{
    match timeout(BODY_WITHIN, Box::pin(Limited::new(body, BODY_MAX_BYTES)).collect()).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            let sentence = format!("the body of the request has more than {BODY_MAX_BYTES} bytes");
            Err(refusal(StatusCode::PAYLOAD_TOO_LARGE, &sentence))
        }
        Ok(Err(error)) => Err(refusal(StatusCode::BAD_REQUEST, &format!("the body of the request broke off: {error}"))),
        Err(_) => {
            let sentence = format!("the body of the request did not arrive within {BODY_WITHIN:?}");
            Err(refusal(StatusCode::REQUEST_TIMEOUT, &sentence))
        }
    }
}
