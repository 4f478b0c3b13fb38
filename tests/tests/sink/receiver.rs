//! A receiver of CloudEvents over HTTPS that fails in every way that a sink must survive.

use anyhow::Context;
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, RETRY_AFTER};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use runtime::tls::{Protocol, ServerFlags, ServerTls};
use serde_json::Value;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use tests::certificates::Authority;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// The bearer token of the sink.
const TOKEN: &str = "for-the-receiver";
/// One request in this many gets each answer. These are primes, so that all answers meet all objects.
const UNAVAILABLE_EVERY: usize = 37;
const BROKEN_EVERY: usize = 83;
const BUSY_EVERY: usize = 997;

/// The requests that a receiver has seen.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) requests: usize,
    /// The answers other than 2xx, with broken connections.
    pub(crate) unavailable: usize,
    pub(crate) busy: usize,
    pub(crate) broken: usize,
    pub(crate) refused: usize,
    /// Requests of the wrong form.
    pub(crate) wrong: Vec<String>,
    pub(crate) events: Vec<Value>,
}

/// The receiver. It answers as long as this value exists.
pub(crate) struct Receiver {
    pub(crate) url: String,
    pub(crate) ca: PathBuf,
    pub(crate) token: PathBuf,
    seen: Arc<Mutex<Seen>>,
    _served: JoinSet<()>,
}

impl Receiver {
    /// Starts a receiver whose files are in `directory`. It fails now and then if `fails`, and refuses each event whose
    /// subject ends with `refused`.
    pub(crate) async fn start(directory: &Path, fails: bool, refused: &'static str) -> anyhow::Result<Receiver> {
        let authority = Authority::new("receivers")?;
        let signed = authority.sign("receiver", &["localhost"])?;
        let write = |name: &str, text: &str| {
            let file = directory.join(name);
            fs::write(&file, text).map(|()| file)
        };
        let flags = ServerFlags {
            tls_cert: Some(write("receiver.crt", &signed.certificate)?),
            tls_key: Some(write("receiver.key", &signed.key)?),
            client_ca: None,
        };
        let (ca, token) = (write("receiver-ca.crt", &authority.pem())?, write("receiver.token", TOKEN)?);
        let tls = ServerTls::open(&flags).await?.context("the flags ask for TLS")?;
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("https://localhost:{}/events", listener.local_addr()?.port());
        let seen = Arc::<Mutex<Seen>>::default();
        let (mut served, shared) = (JoinSet::new(), Arc::clone(&seen));
        served.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (tls, seen) = (Arc::clone(&tls), Arc::clone(&shared));
                connections.spawn(async move {
                    let Some((stream, _)) = tls.handshake(stream, None, Protocol::Http1).await else { return };
                    let answer = service_fn(move |request| answer(request, Arc::clone(&seen), fails, refused));
                    // An error is a connection that breaks, which the sink sees.
                    let _broken = http1::Builder::new().serve_connection(TokioIo::new(stream), answer).await;
                });
            }
        });
        Ok(Receiver { url, ca, token, seen, _served: served })
    }

    pub(crate) fn seen(&self) -> Seen {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// An error ends the connection without an answer.
async fn answer(
    request: Request<Incoming>,
    seen: Arc<Mutex<Seen>>,
    fails: bool,
    refused: &str,
) -> io::Result<Response<Full<Bytes>>> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
    let said = |status: StatusCode| {
        let mut answer = Response::new(Full::default());
        *answer.status_mut() = status;
        answer
    };
    let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
    seen.requests += 1;
    let header = |name| head.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let form = (head.method.as_str(), head.uri.path(), header(CONTENT_TYPE), header(AUTHORIZATION));
    let due = ("POST", "/events", "application/cloudevents+json; charset=utf-8", &*format!("Bearer {TOKEN}"));
    let event = match serde_json::from_slice::<Value>(&body) {
        Ok(event) if form == due && event["specversion"] == "1.0" => event,
        other => {
            seen.wrong.push(format!("{form:?}: {other:?}"));
            return Ok(said(StatusCode::BAD_REQUEST));
        }
    };
    let number = seen.requests;
    if fails && number.is_multiple_of(BUSY_EVERY) {
        seen.busy += 1;
        let mut busy = said(StatusCode::TOO_MANY_REQUESTS);
        busy.headers_mut().insert(RETRY_AFTER, http::HeaderValue::from_static("1"));
        return Ok(busy);
    }
    if fails && number.is_multiple_of(UNAVAILABLE_EVERY) {
        seen.unavailable += 1;
        return Ok(said(StatusCode::SERVICE_UNAVAILABLE));
    }
    if event["subject"].as_str().is_some_and(|subject| subject.ends_with(refused)) {
        seen.refused += 1;
        return Ok(said(StatusCode::BAD_REQUEST));
    }
    let is_broken = fails && number.is_multiple_of(BROKEN_EVERY);
    // Each second time the event is lost, each other time only the answer.
    if !is_broken || seen.broken.is_multiple_of(2) {
        seen.events.push(event);
    }
    if is_broken {
        seen.broken += 1;
        return Err(io::Error::other("the connection breaks"));
    }
    Ok(said(StatusCode::ACCEPTED))
}
