//! The connections of a console. One to the graph service serves all calls. It is made anew when it is gone.

use crate::kubectl::ending::Problem;
use crate::kubectl::service::{Need, Service};
use crate::kubectl::session::Session;
use crate::remote::said;
use http::{Request, Response};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::Instant;
use tonic::body::Body;
use tonic::{Code, Status};
use tower::{Service as _, ServiceExt as _};

/// Minimum time from one attempt to connect to the next. The calls between them get the result of the first.
pub(super) const AGAIN_AFTER: Duration = Duration::from_secs(5);

pub(super) struct Backend {
    pub(super) session: Session,
    /// Whether the console was started to change anything.
    pub(super) writes: bool,
    held: Mutex<Option<Held>>,
}

/// The result of an attempt to connect.
#[derive(Clone)]
struct Held {
    service: Result<Service, String>,
    since: Instant,
    /// Set when a call finds no service behind the connection, or one that does not lead any more.
    gone: Arc<AtomicBool>,
}

impl Held {
    fn is_good(&self) -> bool {
        (self.service.is_ok() && !self.gone.load(Ordering::Relaxed)) || self.since.elapsed() < AGAIN_AFTER
    }
}

impl Backend {
    pub(super) fn new(session: Session, writes: bool) -> Backend {
        Backend { session, writes, held: Mutex::default() }
    }

    /// The graph service.
    pub(super) async fn service(&self) -> Result<Service, Problem> {
        self.held().await.service.map_err(Problem::sentence)
    }

    async fn held(&self) -> Held {
        let mut held = self.held.lock().await;
        if let Some(held) = held.as_ref().filter(|held| held.is_good()) {
            return held.clone();
        }
        let mut session = self.session.clone();
        let connected = Box::pin(Service::connect(&mut session, Need::Verdict)).await;
        let service = connected.map_err(|problem| problem.to_string());
        held.insert(Held { service, since: Instant::now(), gone: Arc::default() }).clone()
    }

    /// Makes a call of gRPC with the credentials of the command line.
    pub(super) async fn call(&self, request: Request<Body>) -> Result<Response<Body>, Status> {
        let held = self.held().await;
        let service = held.service.map_err(Status::unavailable)?;
        let mut channel = service.channel.clone();
        let called = async { channel.ready().await?.call(request).await };
        let answer = called.await.map_err(|error| {
            held.gone.store(true, Ordering::Relaxed);
            let status = Status::from_error(error);
            Status::unavailable(format!("the graph service at {} does not answer: {}", service.address, said(&status)))
        })?;
        let code = Status::from_header_map(answer.headers()).map(|status| status.code());
        if code == Some(Code::Unavailable) {
            held.gone.store(true, Ordering::Relaxed);
        }
        Ok(answer)
    }
}
