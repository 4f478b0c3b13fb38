//! The admin HTTP server of a service: probes, metrics, and the graph for debugging. HTTP/1.1, plain text, read-only.
//!
//! With TLS, liveness and readiness are open to all, because probes have no identity. All other paths need the
//! admission of a [`Guard`].

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Query, State};
use axum::response::IntoResponse;
use axum::routing::get;
use http::header::{ACCEPT, ALLOW, CONTENT_TYPE, HeaderName, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use hyper::body::Body as _;
use hyper_util::service::TowerToHyperService;
use prometheus_client::registry::Registry;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tower::ServiceExt;

use crate::listen::{answer_all, answer_one};
use crate::metrics::as_prometheus_text;
use crate::tls::{Protocol, ServerTls};
use crate::visible;
use guard::Doorman;

pub use guard::{Guard, Refusal, Visitor};

mod guard;

const TEXT: &str = "text/plain; charset=utf-8";
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// The content type of the default format.
const PROMETHEUS_TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";
const GRAPHVIZ: &str = "text/vnd.graphviz";

/// The server in log lines.
const NAME: &str = "admin";
const CONNECTIONS_MAX: usize = 64;
const UIDS_MAX: usize = 100;

/// The state that a service shows. It is called for every request, so each method must be fast. [`Probe::debug_graph`]
/// may be slow, because it runs on its own thread.
pub trait Probe: Send + Sync + 'static {
    /// Whether the service makes progress. The error says in one sentence what has stopped.
    fn livez(&self) -> Result<(), String>;
    fn readyz(&self) -> Readiness;
    /// Updates the gauges, and returns all metrics as OpenMetrics text (see [`encode`]).
    fn metrics(&self) -> String;
    /// The graph, or the part around these uids, as DOT. `None` if the service has no graph. An error is the sentence
    /// for the client.
    fn debug_graph(&self, uids: Vec<String>) -> Option<Result<String, String>>;
}

/// The readiness of a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Readiness {
    pub ready: bool,
    /// One line for each condition, shown with `?verbose` and while not ready.
    pub lines: Vec<String>,
}

/// Serves `listener` until it is aborted. The server must outlive the drain, so that probes see the drain. Spawn it
/// with [`crate::tasks::Tasks::spawn_until_end`].
pub async fn serve(listener: TcpListener, probe: Arc<dyn Probe>) -> anyhow::Result<()> {
    let router = router(probe);
    answer_all(listener, NAME, CONNECTIONS_MAX, move |stream, _| answer(stream, router.clone(), None)).await
}

/// The same server with TLS.
pub async fn serve_tls(
    listener: TcpListener,
    probe: Arc<dyn Probe>,
    tls: Arc<ServerTls>,
    guard: Guard,
) -> anyhow::Result<()> {
    let router = router(probe);
    let secured = move |stream, from| {
        let (router, tls, guard) = (router.clone(), Arc::clone(&tls), guard.clone());
        async move {
            if let Some((stream, peer)) = tls.handshake(stream, Some(from), Protocol::Http1).await {
                answer(stream, router, Some(Doorman { guard, peer })).await;
            }
        }
    };
    answer_all(listener, NAME, CONNECTIONS_MAX, secured).await
}

/// The routes, for callers with a listener of their own.
pub fn router(probe: Arc<dyn Probe>) -> Router {
    Router::new()
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .route("/debug/graph", get(debug_graph))
        .method_not_allowed_fallback(async || {
            (StatusCode::METHOD_NOT_ALLOWED, [(ALLOW, "GET,HEAD")], plain("only GET is supported"))
        })
        .fallback(async || {
            (StatusCode::NOT_FOUND, plain("not found; the paths are /livez, /readyz, /metrics and /debug/graph"))
        })
        .with_state(probe)
}

/// All metrics of a registry as OpenMetrics text.
pub fn encode(registry: &Registry) -> String {
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, registry)
        .expect("writing to a String fails only if a metric's encoder fails, and no encoder of this program does");
    text
}

type Pairs = Query<Vec<(String, String)>>;

async fn livez(State(probe): State<Arc<dyn Probe>>) -> impl IntoResponse {
    match probe.livez() {
        Ok(()) => (StatusCode::OK, plain("ok")),
        Err(why) => (StatusCode::SERVICE_UNAVAILABLE, plain(&why)),
    }
}

async fn readyz(State(probe): State<Arc<dyn Probe>>, Query(query): Pairs) -> impl IntoResponse {
    let Readiness { ready, mut lines } = probe.readyz();
    let (status, last) = match ready {
        true => (StatusCode::OK, "ok"),
        false => (StatusCode::SERVICE_UNAVAILABLE, "not ready"),
    };
    if ready && !query.iter().any(|(key, _)| key == "verbose") {
        lines.clear();
    }
    lines.push(last.to_owned());
    (status, plain(&lines.iter().map(|of| visible::line(of)).collect::<Vec<_>>().join("\n")))
}

async fn metrics(State(probe): State<Arc<dyn Probe>>, headers: HeaderMap) -> impl IntoResponse {
    let accepts = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let text = probe.metrics();
    match accepts.into_iter().any(|value| value.contains("application/openmetrics-text")) {
        true => typed(OPENMETRICS, text),
        false => typed(PROMETHEUS_TEXT, as_prometheus_text(&text)),
    }
}

async fn debug_graph(State(probe): State<Arc<dyn Probe>>, Query(query): Pairs) -> impl IntoResponse {
    let uids: Vec<String> = query.into_iter().filter(|(key, _)| key == "uid").map(|(_, uid)| uid).collect();
    if uids.len() > UIDS_MAX {
        let text = format!("the request has {} uids; at most {UIDS_MAX} are allowed", uids.len());
        return (StatusCode::BAD_REQUEST, plain(&text));
    }
    match tokio::task::spawn_blocking(move || probe.debug_graph(uids)).await {
        Ok(Some(Ok(graph))) => (StatusCode::OK, typed(GRAPHVIZ, graph)),
        Ok(Some(Err(why))) => (StatusCode::NOT_FOUND, plain(&why)),
        Ok(None) => (StatusCode::NOT_FOUND, plain("this service has no graph; ask the graph service")),
        Err(_) => (StatusCode::INTERNAL_SERVER_ERROR, plain("drawing the graph failed")),
    }
}

type Typed = ([(HeaderName, &'static str); 2], String);

fn plain(text: &str) -> Typed {
    typed(TEXT, format!("{text}\n"))
}

fn typed(content_type: &'static str, text: String) -> Typed {
    // Users choose the names of objects. A browser must not interpret a graph or an error as a page, and no control
    // character may reach a terminal.
    let text = visible::lines(&text).into_owned();
    ([(CONTENT_TYPE, content_type), (X_CONTENT_TYPE_OPTIONS, "nosniff")], text)
}

/// Answers the one request of a connection.
async fn answer<IO>(stream: IO, router: Router, doorman: Option<Doorman>)
where
    IO: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let service = tower::service_fn(move |request: Request<hyper::body::Incoming>| {
        let (router, doorman) = (router.clone(), doorman.clone());
        async move {
            let is_open = doorman.is_none() || guard::is_for_everybody(request.uri());
            if let (false, Some(doorman)) = (is_open, &doorman)
                && let Err(refusal) = doorman.admit(&request).await
            {
                return Ok::<Response<Body>, std::convert::Infallible>(refusal);
            }
            if !request.body().is_end_stream() && request.method() != Method::HEAD {
                let refusal = (StatusCode::PAYLOAD_TOO_LARGE, plain("requests must not have a body"));
                return Ok(refusal.into_response());
            }
            let path = (is_open && doorman.is_some()).then(|| request.uri().path().to_owned());
            let answer = router.oneshot(request.map(Body::new)).await?;
            Ok(match path {
                Some(path) => guard::without_details(&path, answer),
                None => answer,
            })
        }
    });
    answer_one(stream, NAME, TowerToHyperService::new(service)).await;
}

#[cfg(test)]
mod tests;
