//! The connections of a console. One to the graph service serves all calls. It is made again when the service behind it
//! is gone, or is not the one to ask any more. A console that began with a graph service stays with one, and a console
//! that lists the cluster itself lists it once.
//!
//! A console for other users has no credentials. Its connections carry no token, and each request brings the one of its
//! user: nothing that a user may see is kept for another one.

use super::bearer::Bearer;
use super::door::Caller;
use crate::kubectl::ending::Problem;
use crate::kubectl::service::{Need, Service, leader};
use crate::kubectl::session::Session;
use crate::remote::{reason, said};
use http::{Request, Response};
use proto::r#type::v1beta1::ErrorReason;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, PoisonError};
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::Instant;
use tonic::body::Body;
use tonic::{Code, Status};
use tower::{Service as _, ServiceExt as _};

/// Minimum time from one attempt to connect to the next. The calls between them get the result of the first.
pub(super) const AGAIN_AFTER: Duration = Duration::from_secs(5);

/// The errors of a replica after which another one is searched. All other errors are answers.
const ELSEWHERE: [ErrorReason; 3] = [ErrorReason::NotLeader, ErrorReason::NoLeader, ErrorReason::Stopping];

/// The values that a request uses. The session has the credentials of its user.
pub(super) struct Backend {
    pub(super) session: Session,
    /// Whether the console was started to change anything.
    pub(super) writes: bool,
    /// The token of the request. `None`: the credentials are those of the command line.
    bearer: Option<Bearer>,
    link: Arc<Link>,
}

/// The state that all requests share.
#[derive(Default)]
struct Link {
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
    /// The address of the leader, if an answer named it.
    hint: Arc<std::sync::Mutex<Option<String>>>,
    /// Whether the attempt was made because of such an address.
    by_hint: bool,
}

impl Held {
    fn is_good(&self) -> bool {
        let is_there = |service: &Service| service.is_direct() || !self.gone.load(Ordering::Relaxed);
        let waits = self.since.elapsed() < AGAIN_AFTER && (self.by_hint || self.leader().is_none());
        self.service.as_ref().is_ok_and(is_there) || waits
    }

    fn leader(&self) -> Option<String> {
        self.hint.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Backend {
    pub(super) fn new(session: Session, writes: bool) -> Backend {
        Backend { session, writes, bearer: None, link: Arc::default() }
    }

    /// The same connections for a request of this caller.
    pub(super) fn of(&self, caller: Caller) -> Backend {
        let mut session = self.session.clone();
        let bearer = match caller {
            Caller::Own => None,
            Caller::With(bearer) => {
                session.cluster = bearer.on(&session.cluster);
                Some(bearer)
            }
        };
        Backend { session, writes: self.writes, bearer, link: Arc::clone(&self.link) }
    }

    /// Whether the credentials are those of the request.
    pub(super) fn is_for_others(&self) -> bool {
        self.bearer.is_some()
    }

    /// The graph service, with the credentials of the request.
    pub(super) async fn service(&self) -> Result<Service, Problem> {
        self.authorized(self.held().await.service).map_err(Problem::sentence)
    }

    fn authorized(&self, service: Result<Service, String>) -> Result<Service, String> {
        service.map(|service| match &self.bearer {
            Some(bearer) => service.authorized(bearer.header()),
            None => service,
        })
    }

    async fn held(&self) -> Held {
        let mut held = self.link.held.lock().await;
        if let Some(held) = held.as_ref().filter(|held| held.is_good()) {
            return held.clone();
        }
        let hint = held.as_ref().and_then(Held::leader);
        let connected = match self.bearer {
            // The rights of one user must not decide about the connections of others.
            Some(_) => Box::pin(Service::named(&self.session, hint.as_deref())).await,
            None => {
                let need = if self.link.served.get().is_some() { Need::Replica } else { Need::Verdict };
                Box::pin(Service::connect(&mut self.session.clone(), need)).await
            }
        };
        let service = connected.map_err(|problem| problem.to_string());
        if service.as_ref().is_ok_and(|service| !service.is_direct()) {
            let _set_before = self.link.served.set(());
        }
        let (gone, by_hint) = (Arc::default(), hint.is_some());
        held.insert(Held { service, since: Instant::now(), gone, hint: Arc::default(), by_hint }).clone()
    }

    /// Makes a call of gRPC with the credentials of the request.
    pub(super) async fn call(&self, request: Request<Body>) -> Result<Response<Body>, Status> {
        let held = self.held().await;
        let service = self.authorized(held.service).map_err(Status::unavailable)?;
        let mut channel = service.channel.clone();
        let called = async { channel.ready().await?.call(request).await };
        let answer = called.await.map_err(|error| {
            let status = Status::from_error(error);
            if status.code() == Code::Cancelled {
                // The limit is the caller's own, and says nothing about the connection, which all users share.
                return Status::deadline_exceeded("the time limit of the call has passed");
            }
            held.gone.store(true, Ordering::Relaxed);
            Status::unavailable(format!("the graph service at {} does not answer: {}", service.address, said(&status)))
        })?;
        if let Some(status) = Status::from_header_map(answer.headers())
            && reason(&status).is_some_and(|reason| ELSEWHERE.contains(&reason))
        {
            held.gone.store(true, Ordering::Relaxed);
            if self.is_for_others() {
                let leader = leader(&status).filter(|endpoint| !endpoint.is_empty());
                *held.hint.lock().unwrap_or_else(PoisonError::into_inner) = leader;
            }
        }
        Ok(answer)
    }
}
