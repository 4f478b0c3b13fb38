//! The API server for attempts: one call at a time, bounded, timed and counted.

use crate::metrics::{Metrics, Verb};
use crate::traces::Follow;
use http::header::ACCEPT;
use http::{HeaderValue, Request, StatusCode, Uri};
use kube_api::path::KUBE_SYSTEM;
use kube_api::{Answer, CallError, Gate, call, media};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::time::Instant;
use tracing::{Instrument as _, Span};

/// Maximum time for an answer. Slow admission webhooks take up to thirty seconds.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);
/// Maximum size of an answer. Answers contain metadata only. A server that ignores the Accept header sends the whole
/// object, which etcd limits to 1.5 MiB.
const ANSWER_MAX_BYTES: usize = 4 * 1024 * 1024;

/// A client that counts requests.
#[derive(Clone)]
pub(crate) struct Server {
    /// The clients take turns.
    clients: Arc<[kube::Client]>,
    turn: Arc<AtomicUsize>,
    /// The clients check the gate of a request after the connection is open.
    asks_gates: bool,
    metrics: Metrics,
    /// The trace span of requests, if recorded.
    follow: Option<Follow>,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").finish_non_exhaustive()
    }
}

impl Server {
    /// Requests take turns on the clients, of which there is at least one. If the clients do not check gates, the gate
    /// is checked before the request is given to them.
    pub(crate) fn new(clients: Vec<kube::Client>, asks_gates: bool, metrics: Metrics) -> Server {
        assert!(!clients.is_empty(), "without a client nothing can be called");
        Server { clients: clients.into(), turn: Arc::default(), asks_gates, metrics, follow: None }
    }

    /// Returns a clone whose requests are under this span.
    pub(crate) fn followed(&self, follow: Option<Follow>) -> Server {
        Server { follow, ..self.clone() }
    }

    /// Sends one request once, and only if its gate allows it.
    pub(crate) async fn call(
        &self,
        verb: Verb,
        mut request: Request<Vec<u8>>,
        gate: Option<Gate>,
    ) -> Result<Answer, CallError> {
        let sent = Instant::now();
        if let Some(gate) = &gate {
            if !self.asks_gates {
                gate.pass().map_err(|withheld| CallError::NotSent { cause: withheld.to_string() })?;
            }
            request.extensions_mut().insert(gate.clone());
        }
        let recorded = self.follow.as_ref().map(|follow| follow.send(&mut request));
        let client = &self.clients[self.turn.fetch_add(1, Ordering::Relaxed) % self.clients.len()];
        let logged = recorded.as_ref().map_or_else(Span::none, |sent| sent.entered());
        let answer = call(client, request, ANSWER_MAX_BYTES, ANSWER_WITHIN).instrument(logged).await;
        if gate.is_some_and(|gate| gate.has_refused()) {
            return answer;
        }
        if let Some(recorded) = recorded {
            recorded.answered(answer.as_ref());
        }
        self.metrics.called(verb, answer.as_ref().map(|answer| answer.status.as_u16()), sent.elapsed());
        answer
    }

    /// Whether the API server accepts the credentials. The error is the reason, or says why that is unknown.
    pub(crate) async fn accepts_credentials(&self) -> Result<(), String> {
        let mut request = Request::new(Vec::new());
        // This is the cheapest request that shows whether the API server accepts the credentials. Its authorization
        // does not matter.
        *request.uri_mut() = Uri::from_static(KUBE_SYSTEM);
        request.headers_mut().insert(ACCEPT, HeaderValue::from_static(media::METADATA));
        match self.call(Verb::Get, request, None).await {
            Ok(answer) if answer.status == StatusCode::UNAUTHORIZED => {
                Err(format!("the API server answers 401 {:?}", answer.message()))
            }
            Ok(answer) if answer.status.is_server_error() => {
                Err(format!("the API server answers {}", answer.status.as_u16()))
            }
            Ok(_) => Ok(()),
            Err(error) => Err(error.to_string()),
        }
    }
}
