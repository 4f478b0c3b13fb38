//! A proxy on loopback in front of an API server. It can answer in place of the server, and delay requests.

use anyhow::Context;
use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use futures::future::BoxFuture;
use http::request::Parts;
use http::{Method, StatusCode, header};
use kube::Client;
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// The maximum size of a request that the proxy forwards.
const BODY_MAX_BYTES: usize = 4 << 20;

/// The answer in place of the API server's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lie {
    Answer {
        status: u16,
        content_type: &'static str,
        retry_after: Option<u32>,
        body: String,
    },
    /// The answer begins, and the connection breaks.
    Reset,
}

/// The function that selects the requests with a false answer. `None` forwards a request.
type Choice = Box<dyn FnMut(&Parts) -> Option<Lie> + Send>;

/// The function that answers a request itself, or forwards a changed request with the client. `None` forwards the
/// request unchanged.
pub type Responder = Arc<dyn Fn(Parts, Client) -> BoxFuture<'static, Option<Response>> + Send + Sync>;

struct Shared {
    upstream: Client,
    choice: Mutex<Option<Choice>>,
    responder: Mutex<Option<Responder>>,
    slow: Mutex<Slow>,
    writes: Writes,
}

/// The added delay of requests.
#[derive(Clone, Copy, Debug, Default)]
struct Slow {
    by: Duration,
    /// The delay concerns all requests, and not only writes.
    reads: bool,
}

/// The writes in flight, and their maximum.
#[derive(Debug, Default)]
struct Writes {
    now: AtomicUsize,
    most: AtomicUsize,
}

/// A write in flight.
struct Write<'a>(&'a Writes);

impl Writes {
    fn begin(&self) -> Write<'_> {
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        Write(self)
    }
}

impl Drop for Write<'_> {
    fn drop(&mut self) {
        self.0.now.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A proxy that serves as long as this value exists. It speaks plain HTTP, and adds the credentials of its own client.
pub struct Proxy {
    shared: Arc<Shared>,
    kubeconfig: PathBuf,
    _task: JoinSet<()>,
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Proxy").field("kubeconfig", &self.kubeconfig).finish_non_exhaustive()
    }
}

impl Proxy {
    /// Starts a proxy in front of the server of `upstream`, and writes a kubeconfig for the proxy into `directory`.
    pub async fn start(upstream: Client, directory: &Path) -> anyhow::Result<Proxy> {
        let listener = TcpListener::bind("127.0.0.1:0").await.context("a free port on loopback")?;
        let address: SocketAddr = listener.local_addr()?;
        let kubeconfig = directory.join("proxy.kubeconfig");
        sandbox::write_kubeconfig(&kubeconfig, address)?;
        let shared = Arc::new(Shared {
            upstream,
            choice: Mutex::new(None),
            responder: Mutex::new(None),
            slow: Mutex::default(),
            writes: Writes::default(),
        });
        let router = Router::new().fallback(pass).with_state(Arc::clone(&shared));
        let mut task = JoinSet::new();
        task.spawn(async move {
            // The task ends with the test. If it fails, requests stay unanswered.
            let _ended = axum::serve(listener, router).await;
        });
        Ok(Proxy { shared, kubeconfig, _task: task })
    }

    /// Returns the kubeconfig for clients of the proxy.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Gives false answers from now on, where `choice` selects a request.
    pub fn lie(&self, choice: impl FnMut(&Parts) -> Option<Lie> + Send + 'static) {
        *self.shared.choice.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(choice));
    }

    /// Passes every request to the responder from now on.
    pub fn respond(&self, responder: Responder) {
        *self.shared.responder.lock().unwrap_or_else(PoisonError::into_inner) = Some(responder);
    }

    /// Delays every write from now on.
    pub fn slow_writes(&self, by: Duration) {
        *self.shared.slow.lock().unwrap_or_else(PoisonError::into_inner) = Slow { by, reads: false };
    }

    /// Delays every request from now on. A watch has the delay only before its beginning.
    pub fn slow_requests(&self, by: Duration) {
        *self.shared.slow.lock().unwrap_or_else(PoisonError::into_inner) = Slow { by, reads: true };
    }

    /// Returns the maximum number of writes in flight since the last call.
    pub fn most_writes(&self) -> usize {
        let now = self.shared.writes.now.load(Ordering::SeqCst);
        self.shared.writes.most.swap(now, Ordering::SeqCst)
    }

    /// Forwards all requests unchanged from now on.
    pub fn behave(&self) {
        *self.shared.choice.lock().unwrap_or_else(PoisonError::into_inner) = None;
        *self.shared.responder.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

async fn pass(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    let (mut parts, body) = request.into_parts();
    let lie = {
        let mut choice = shared.choice.lock().unwrap_or_else(PoisonError::into_inner);
        choice.as_mut().and_then(|choice| choice(&parts))
    };
    if let Some(lie) = lie {
        return tell(lie);
    }
    parts.headers.remove(header::HOST);
    let responder = shared.responder.lock().unwrap_or_else(PoisonError::into_inner).clone();
    if let Some(responder) = responder
        && let Some(response) = responder(parts.clone(), shared.upstream.clone()).await
    {
        return response;
    }
    let Ok(body) = axum::body::to_bytes(body, BODY_MAX_BYTES).await else {
        return tell(Lie::Answer { status: 413, content_type: "text/plain", retry_after: None, body: String::new() });
    };
    let write = (parts.method != Method::GET).then(|| shared.writes.begin());
    let slow = *shared.slow.lock().unwrap_or_else(PoisonError::into_inner);
    if (write.is_some() || slow.reads) && !slow.by.is_zero() {
        tokio::time::sleep(slow.by).await;
    }
    let request = http::Request::from_parts(parts, kube::client::Body::from(body.to_vec()));
    match shared.upstream.send(request).await {
        Ok(response) => response.map(Body::new),
        Err(error) => {
            tell(Lie::Answer { status: 502, content_type: "text/plain", retry_after: None, body: error.to_string() })
        }
    }
}

fn tell(lie: Lie) -> Response {
    let mut response = Response::new(Body::empty());
    match lie {
        Lie::Answer { status, content_type, retry_after, body } => {
            *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            response.headers_mut().insert(header::CONTENT_TYPE, http::HeaderValue::from_static(content_type));
            if let Some(seconds) = retry_after {
                response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
            }
            *response.body_mut() = Body::from(body);
        }
        Lie::Reset => {
            let broken = futures::stream::iter([Ok("{"), Err(std::io::Error::other("the connection breaks"))]);
            *response.body_mut() = Body::from_stream(broken);
        }
    }
    response
}
