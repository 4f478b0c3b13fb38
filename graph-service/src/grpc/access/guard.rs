//! Checks every call before its handler. Checks streams again for as long as they last.

use super::caller::{Credentials, Identity};
use super::reviews::Asked;
use super::{Authenticator, Holder, Visibility};
use crate::grpc::connection::Link;
use crate::grpc::rights::{self, Needs, Right, Row};
use crate::grpc::status;
use bytes::Bytes;
use engine::object::Name;
use engine::work::Origin;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::{HeaderMap, Request, Response};
use http_body::{Frame, SizeHint};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{Instant, sleep_until};
use tonic::body::Body;
use tonic::{Code, Status};
use tower::{Layer, Service};

/// Interval of checks of a stream's caller.
pub(super) const AGAIN_EVERY: Duration = Duration::from_secs(300);
/// Minimum interval of these checks. It applies while the API server does not answer, or while it accepts a token that
/// has expired by this machine's clock.
pub(super) const AGAIN_SOON: Duration = Duration::from_secs(10);
/// Maximum time that a stream continues while the API server does not answer.
pub(super) const SILENT_FOR: Duration = Duration::from_secs(60);

/// Puts [`Guarded`] before the services.
#[derive(Clone, Debug)]
pub(in crate::grpc) struct GuardLayer(pub(in crate::grpc) Option<Arc<Authenticator>>);

impl<S> Layer<S> for GuardLayer {
    type Service = Guarded<S>;

    fn layer(&self, inner: S) -> Guarded<S> {
        Guarded { inner, authenticator: self.0.clone() }
    }
}

/// Admits authorized calls.
#[derive(Clone, Debug)]
pub(in crate::grpc) struct Guarded<S> {
    inner: S,
    authenticator: Option<Arc<Authenticator>>,
}

impl<S> Service<Request<Body>> for Guarded<S>
where
    S: Service<Request<Body>, Response = Response<Body>> + Clone + Send + 'static,
    S::Future: Send,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<Response<Body>, S::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let Some(authenticator) = self.authenticator.clone() else { return Box::pin(self.inner.call(request)) };
        let other = self.inner.clone();
        // This clone is the one that is ready.
        let mut inner = std::mem::replace(&mut self.inner, other);
        Box::pin(async move {
            let Some(row) = rights::of_path(request.uri().path()) else {
                return Ok(status::method_unknown().into_http());
            };
            // Such as an executor in the same process.
            if Link::is_within(request.extensions()) {
                request.extensions_mut().insert(Visibility::default());
                return inner.call(request).await;
            }
            let right = match row.needs {
                Needs::Nothing => return inner.call(request).await,
                Needs::Everywhere(right) | Needs::ByNamespace(right) | Needs::ByName(right) => right,
            };
            let visit = Visit { authenticator, row, right };
            let (request, admitted) = match visit.admit(request).await {
                Ok(admitted) => admitted,
                Err(status) => return Ok(status.into_http()),
            };
            let response = inner.call(request).await?;
            if let Some(status) = response.extensions().get::<Status>() {
                visit.authenticator.refusals.note(row.rpc, &admitted.identity.caller.user, status);
            }
            Ok(response.map(|inner| Body::new(Watched::new(inner, visit, admitted))))
        })
    }
}

/// One call.
struct Visit {
    authenticator: Arc<Authenticator>,
    row: &'static Row,
    right: Right,
}

/// A call that was admitted.
struct Admitted {
    credentials: Credentials,
    identity: Identity,
    visibility: Visibility,
}

impl Visit {
    async fn admit(&self, mut request: Request<Body>) -> Result<(Request<Body>, Admitted), Status> {
        let credentials = Credentials::of(request.headers(), request.extensions());
        let identity = self.authenticator.identify(&credentials).await.inspect_err(|status| self.note("", status))?;
        let user = &identity.caller.user;
        self.check(&identity).await.inspect_err(|status| self.note(user, status))?;
        let visibility = Visibility::of(Arc::clone(&self.authenticator), Arc::clone(&identity.caller), self.right);
        request.extensions_mut().insert(visibility.clone());
        request.extensions_mut().insert::<Holder>(identity.holder.clone());
        request.extensions_mut().insert(Origin::Caller(Name::from(user.as_str())));
        Ok((request, Admitted { credentials, identity, visibility }))
    }

    async fn check(&self, identity: &Identity) -> Result<(), Status> {
        let Right { verb, resource } = match self.row.needs {
            Needs::Everywhere(right) => right,
            Needs::ByNamespace(_) | Needs::ByName(_) | Needs::Nothing => return Ok(()),
        };
        let asked = Asked::Resource { verb, resource, namespace: String::new() };
        if self.authenticator.may(&identity.caller, asked).await? {
            return Ok(());
        }
        Err(status::access_denied(&identity.caller.user, self.right, ""))
    }

    fn note(&self, user: &str, status: &Status) {
        self.authenticator.refusals.note(self.row.rpc, user, status);
    }

    /// Waits until the call has to end. Returns its status.
    fn over(self, admitted: Admitted) -> BoxFuture<'static, Status> {
        // The interval counts from now, and not from the time when the client reads.
        let next = due(&admitted.identity);
        self.look_again(admitted, next).boxed()
    }

    async fn look_again(self, admitted: Admitted, mut next: Instant) -> Status {
        let Admitted { credentials, mut identity, visibility } = admitted;
        let mut silent_since = None;
        loop {
            sleep_until(next).await;
            let again = async {
                let identity = self.authenticator.identify(&credentials).await?;
                self.check(&identity).await?;
                visibility.ask_again().await?;
                Ok(identity)
            };
            match again.await {
                Ok(now) => {
                    silent_since = None;
                    identity = now;
                    next = due(&identity);
                }
                Err::<_, Status>(status) => {
                    let since = *silent_since.get_or_insert_with(Instant::now);
                    if status.code() != Code::Unavailable || since.elapsed() >= SILENT_FOR {
                        self.note(&identity.caller.user, &status);
                        return status;
                    }
                    next = Instant::now() + AGAIN_SOON;
                }
            }
        }
    }
}

fn due(identity: &Identity) -> Instant {
    let now = Instant::now();
    let end = identity.ends.unwrap_or(now + AGAIN_EVERY);
    end.clamp(now + AGAIN_SOON, now + AGAIN_EVERY)
}

/// An answer that ends when the right of its caller ends.
struct Watched {
    inner: Body,
    over: Option<BoxFuture<'static, Status>>,
    /// Counts refusals that the handler itself sends at the end of a stream.
    authenticator: Arc<Authenticator>,
    rpc: &'static str,
    user: String,
}

impl Watched {
    fn new(inner: Body, visit: Visit, admitted: Admitted) -> Watched {
        let (authenticator, rpc, user) =
            (Arc::clone(&visit.authenticator), visit.row.rpc, admitted.identity.caller.user.clone());
        Watched { inner, over: Some(visit.over(admitted)), authenticator, rpc, user }
    }
}

impl http_body::Body for Watched {
    type Data = Bytes;
    type Error = Status;

    /// A frame has whole messages, so a stream never ends within a message.
    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let Some(over) = &mut self.over else { return Poll::Ready(None) };
        if let Poll::Ready(status) = over.poll_unpin(context) {
            self.over = None;
            // The dropped body notifies the handler that the reader is gone.
            self.inner = Body::empty();
            let mut trailers = HeaderMap::new();
            status.add_header(&mut trailers)?;
            return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
        }
        let frame = ready!(Pin::new(&mut self.inner).poll_frame(context));
        match &frame {
            Some(Ok(frame)) => {
                if let Some(status) = frame.trailers_ref().and_then(Status::from_header_map) {
                    self.authenticator.refusals.note(self.rpc, &self.user, &status);
                }
            }
            Some(Err(_)) | None => self.over = None,
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.over.is_none() || self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
