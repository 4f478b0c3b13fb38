//! A proxy on loopback in front of an API server, that can answer in its place, and slow requests down.

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

/// Largest request that is passed on.
const BODY_MAX_BYTES: usize = 4 << 20;

/// The answer sent instead of the API server's.
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

/// Which requests are lied about; `None` goes through.
type Choice = Box<dyn FnMut(&Parts) -> Option<Lie> + Send>;

/// Gives its own response to a request, or passes a changed request on by the client. `None` passes the request on as it is.
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
    /// Not writes alone.
    reads: bool,
}

/// Writes in flight, and the most there were at a time.
#[derive(Debug, Default)]
struct Writes {
    now: AtomicUsize,
    most: AtomicUsize,
}

/// One write, while it lives.
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

/// The proxy, while this value lives. It speaks plain HTTP and adds the credentials of its own client.
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
    /// Starts one in front of whatever `upstream` talks to, and writes a kubeconfig for it into `directory`.
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
            // It ends with the test; a failure to serve shows as unanswered requests.
            let _ended = axum::serve(listener, router).await;
        });
        Ok(Proxy { shared, kubeconfig, _task: task })
    }

    /// The kubeconfig of clients of the proxy.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Lies from now on wherever `choice` says so.
    pub fn lie(&self, choice: impl FnMut(&Parts) -> Option<Lie> + Send + 'static) {
        *self.shared.choice.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(choice));
    }

    /// Asks the responder about every request from now on.
    pub fn respond(&self, responder: Responder) {
        *self.shared.responder.lock().unwrap_or_else(PoisonError::into_inner) = Some(responder);
    }

    /// Lets every write take so much longer from now on.
    pub fn slow_writes(&self, by: Duration) {
        *self.shared.slow.lock().unwrap_or_else(PoisonError::into_inner) = Slow { by, reads: false };
    }

    /// Lets every request take so much longer from now on; a watch only until it begins.
    pub fn slow_requests(&self, by: Duration) {
        *self.shared.slow.lock().unwrap_or_else(PoisonError::into_inner) = Slow { by, reads: true };
    }

    /// The most writes that were in flight at a time since this was last asked.
    pub fn most_writes(&self) -> usize {
        let now = self.shared.writes.now.load(Ordering::SeqCst);
        self.shared.writes.most.swap(now, Ordering::SeqCst)
    }

    /// Behaves from now on.
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
