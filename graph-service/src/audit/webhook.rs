//! Receives audit events from the webhook backend of the API server: an EventList for each request, by POST to any
//! path, over HTTP/1.1. Each connection carries one request.
//!
//! The API server sends a request again after an error, up to five times in two minutes. Then its events are lost. A
//! replica that does not lead answers with an error, because its events would count nowhere. A further attempt may
//! reach the leader.

use super::event::{self, EVENTS_MAX, Items};
use super::{AuditWebhook, Batch, Inlet, NoRoom};
use crate::messages::Leadership;
use bytes::Bytes;
use http::header::{ALLOW, AUTHORIZATION, CONTENT_TYPE, HeaderName, RETRY_AFTER, WWW_AUTHENTICATE};
use http::request::Parts;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body::Body;
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::service::service_fn;
use kube_api::media::JSON;
use ring::digest::{SHA256, digest};
use runtime::listen::{answer_all, answer_one};
use runtime::seldom::Seldom;
use runtime::tls::{Protocol, ServerTls, TokenFile};
use std::convert::Infallible;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;

/// The server in log lines.
const NAME: &str = "audit webhook";
const CONNECTIONS_MAX: usize = 64;
/// Maximum number of bodies in memory.
const BODIES_MAX: usize = 4;
const BODY_MAX_BYTES: usize = 16 << 20;
/// Maximum time to read the rest of a refused request.
const DRAIN_WITHIN: Duration = Duration::from_secs(5);
/// When the API server may send a refused request again, in seconds.
const AGAIN_AFTER: HeaderValue = HeaderValue::from_static("1");

type Answer = Response<Full<Bytes>>;

/// Serves the listener until it is aborted.
pub(super) async fn serve(
    webhook: AuditWebhook,
    tls: Option<Arc<ServerTls>>,
    inlet: Inlet,
    leadership: watch::Receiver<Leadership>,
) -> anyhow::Result<()> {
    let AuditWebhook { listener, token } = webhook;
    let receiver = Arc::new(Receiver::new(token, inlet, leadership));
    answer_all(listener, NAME, CONNECTIONS_MAX, move |stream, from| {
        let (receiver, tls) = (Arc::clone(&receiver), tls.clone());
        async move {
            match tls {
                None => receiver.answer(stream).await,
                Some(tls) => {
                    if let Some((stream, _)) = tls.handshake(stream, Some(from), Protocol::Http1).await {
                        receiver.answer(stream).await;
                    }
                }
            }
        }
    })
    .await
}

/// Why a request is refused, with a sentence for the sender.
#[derive(Debug)]
struct Refusal {
    status: StatusCode,
    why: String,
    header: Option<(HeaderName, HeaderValue)>,
    /// Nothing is wrong.
    is_usual: bool,
}

impl Refusal {
    fn new(status: StatusCode, why: impl Into<String>) -> Refusal {
        Refusal { status, why: why.into(), header: None, is_usual: false }
    }

    fn with(self, name: HeaderName, value: HeaderValue) -> Refusal {
        Refusal { header: Some((name, value)), ..self }
    }
}

#[derive(Debug)]
struct Receiver {
    token: Option<TokenFile>,
    inlet: Inlet,
    leadership: watch::Receiver<Leadership>,
    bodies: Semaphore,
    /// Refusals in the log, by status.
    said: Seldom<StatusCode>,
}

impl Receiver {
    fn new(token: Option<TokenFile>, inlet: Inlet, leadership: watch::Receiver<Leadership>) -> Receiver {
        Receiver { token, inlet, leadership, bodies: Semaphore::new(BODIES_MAX), said: Seldom::default() }
    }

    /// Answers the one request of a connection.
    async fn answer(&self, stream: impl AsyncRead + AsyncWrite + Send + Unpin) {
        let service = service_fn(|request: Request<hyper::body::Incoming>| async {
            Ok::<Answer, Infallible>(self.receive(request).await)
        });
        answer_one(stream, NAME, service).await;
    }

    async fn receive<B>(&self, request: Request<B>) -> Answer
    where
        B: Body + Unpin,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let (head, mut body) = request.into_parts();
        let Err(refusal) = self.take(&head, &mut body).await else { return Answer::default() };
        drain(&mut body).await;
        let Refusal { status, why, header, is_usual } = refusal;
        if is_usual {
            tracing::debug!(status = status.as_u16(), why, "refused a request to the audit webhook");
        } else if let Some(unsaid) = self.said.unsaid(status) {
            tracing::warn!(status = status.as_u16(), why, unsaid, "refused a request to the audit webhook");
        }
        let mut answer = Answer::new(Full::from(format!("{why}\n")));
        *answer.status_mut() = status;
        answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        answer.headers_mut().extend(header);
        answer
    }

    async fn take<B>(&self, head: &Parts, body: &mut B) -> Result<(), Refusal>
    where
        B: Body + Unpin,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        if head.method != Method::POST {
            let refusal = Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "only POST is supported");
            return Err(refusal.with(ALLOW, HeaderValue::from_static("POST")));
        }
        self.admit(head.headers.get(AUTHORIZATION)).await?;
        // A web page cannot send this type to another origin without asking first.
        let kind = head.headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        if kind.split(';').next().map(str::trim) != Some(JSON) {
            return Err(Refusal::new(StatusCode::BAD_REQUEST, format!("the content type is not {JSON}")));
        }
        if !self.leadership.borrow().leading {
            let why = "this replica does not lead, and only the leader uses audit events; send the events again";
            let refusal = Refusal::new(StatusCode::SERVICE_UNAVAILABLE, why).with(RETRY_AFTER, AGAIN_AFTER);
            return Err(Refusal { is_usual: true, ..refusal });
        }
        let Ok(_place) = self.bodies.try_acquire() else {
            let why = format!("{BODIES_MAX} other requests are being read");
            return Err(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, why).with(RETRY_AFTER, AGAIN_AFTER));
        };
        let body = whole(body).await?;
        // A large body takes longer than the thread of the collector may be held.
        let batch = tokio::task::spawn_blocking(move || batch(&body)).await;
        let batch = batch.map_err(|_| Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "reading the body failed"))??;
        self.inlet.offer(batch).map_err(|no_room| match no_room {
            NoRoom::Full => Refusal::new(StatusCode::TOO_MANY_REQUESTS, "the collector has no room for more events")
                .with(RETRY_AFTER, AGAIN_AFTER),
            NoRoom::Closed => Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "the service is stopping"),
        })
    }

    async fn admit(&self, shown: Option<&HeaderValue>) -> Result<(), Refusal> {
        let Some(token) = &self.token else { return Ok(()) };
        let wanted = token.header().await;
        // The time that it takes to compare digests says nothing about the token.
        let digest = |header: &HeaderValue| digest(&SHA256, header.as_bytes());
        if shown.is_some_and(|shown| digest(shown).as_ref() == digest(&wanted).as_ref()) {
            return Ok(());
        }
        let why = "the bearer token is not the one in --audit-webhook-token-file; set it in the kubeconfig of --audit-webhook-config-file";
        let refusal = Refusal::new(StatusCode::UNAUTHORIZED, why);
        Err(refusal.with(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer")))
    }
}

/// Reads what the sender of a refused request still sends, within bounds. If the connection closed before, the sender
/// would see its end and no answer.
async fn drain<B>(body: &mut B)
where
    B: Body + Unpin,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let mut rest = Limited::new(body, BODY_MAX_BYTES);
    let reading = async { while let Some(Ok(_)) = rest.frame().await {} };
    // A slower sender sees the end of the connection.
    let _too_slow = timeout(DRAIN_WITHIN, reading).await;
}

async fn whole<B>(body: &mut B) -> Result<Bytes, Refusal>
where
    B: Body + Unpin,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let read = Limited::new(body, BODY_MAX_BYTES).collect().await;
    let read = read.map_err(|error| match error.is::<LengthLimitError>() {
        true => Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, format!("the body has more than {BODY_MAX_BYTES} bytes")),
        false => Refusal::new(StatusCode::BAD_REQUEST, format!("the body broke off: {error}")),
    })?;
    Ok(read.to_bytes())
}

fn batch(body: &[u8]) -> Result<Batch, Refusal> {
    let Items { kept, more } = event::list(body).map_err(|why| Refusal::new(StatusCode::BAD_REQUEST, why))?;
    if more > 0 {
        let why = format!(
            "the list has {} events; at most {EVENTS_MAX} are allowed: lower --audit-webhook-batch-max-size",
            kept.len() + more
        );
        return Err(Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, why));
    }
    let mut batch = Batch::default();
    kept.into_iter().for_each(|event| batch.take(event::item(event)));
    Ok(batch)
}

#[cfg(test)]
mod tests;
