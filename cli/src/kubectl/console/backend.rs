//! The connections of a console. One to the graph service serves all calls. It is made anew when the service behind it is
//! gone, or is not the one to ask any more. A console that began with a graph service stays with one, and a console that
//! lists the cluster itself lists it once.

use crate::kubectl::ending::Problem;
use crate::kubectl::service::{Need, Service};
use crate::kubectl::session::Session;
use crate::remote::{reason, said};
use http::{Request, Response};
use proto::r#type::v1beta1::ErrorReason;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::Instant;
use tonic::Status;
use tonic::body::Body;
use tower::{Service as _, ServiceExt as _};

/// Minimum time from one attempt to connect to the next. The calls between them get the result of the first.
pub(super) const AGAIN_AFTER: Duration = Duration::from_secs(5);

/// The errors of a replica after which another one is searched. All other errors are answers.
const ELSEWHERE: [ErrorReason; 3] = [ErrorReason::NotLeader, ErrorReason::NoLeader, ErrorReason::Stopping];

pub(super) struct Backend {
    pub(super) session: Session,
    /// Whether the console was started to change anything.
    pub(super) writes: bool,
    held: Mutex<Option<Held>>,
    /// Set once a graph service has answered that is not one of this process.
    served: OnceLock<()>,
}

/// The result of an attempt to connect.
#[derive(Clone)]
struct Held {
    service: Result<Service, String>,
    since: Instant,
    /// Set when a call finds no service behind the connection, or one that is not the one to ask.
    gone: Arc<AtomicBool>,
}

impl Held {
    fn is_good(&self) -> bool {
        let is_there = |service: &Service| service.is_direct() || !self.gone.load(Ordering::Relaxed);
        self.service.as_ref().is_ok_and(is_there) || self.since.elapsed() < AGAIN_AFTER
    }
}

impl Backend {
    pub(super) fn new(session: Session, writes: bool) -> Backend {
        Backend { session, writes, held: Mutex::default(), served: OnceLock::new() }
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
        let need = if self.served.get().is_some() { Need::Replica } else { Need::Verdict };
        let connected = Box::pin(Service::connect(&mut session, need)).await;
        let service = connected.map_err(|problem| problem.to_string());
        if service.as_ref().is_ok_and(|service| !service.is_direct()) {
            let _set_before = self.served.set(());
        }
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
        let refused = Status::from_header_map(answer.headers()).and_then(|status| reason(&status));
        if refused.is_some_and(|reason| ELSEWHERE.contains(&reason)) {
            held.gone.store(true, Ordering::Relaxed);
        }
        Ok(answer)
    }
}
