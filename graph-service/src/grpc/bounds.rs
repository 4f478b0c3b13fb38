//! Bounds the reads of each service: the number of concurrent calls, and the time to an answer or to the beginning of a
//! stream. Further calls are refused with a time to retry. Calls that pause, resume or bypass have no bound, because a
//! user must be able to do so when all other calls are refused.

use super::status;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::{Request, Response};
use std::convert::Infallible;
use std::task::{Context, Poll};
use std::time::Duration;
use tonic::body::Body;
use tonic::server::NamedService;
use tower::limit::ConcurrencyLimit;
use tower::load_shed::LoadShed;
use tower::load_shed::error::Overloaded;
use tower::timeout::Timeout;
use tower::{BoxError, Service, ServiceBuilder, ServiceExt as _};

/// Maximum number of concurrent calls of one service.
pub(super) const READS_MAX: usize = 256;
/// Maximum time to an answer. It is longer than the waits within a call: for freshness, for filters, for a permit.
pub(super) const READ_WITHIN: Duration = Duration::from_secs(30);
/// Methods without bounds.
const BRAKES: [&str; 3] = [
    "/ownergraph.admin.v1beta1.AdminService/BypassGate",
    "/ownergraph.admin.v1beta1.AdminService/PauseCollection",
    "/ownergraph.admin.v1beta1.AdminService/ResumeCollection",
];

/// A service with bounds.
#[derive(Clone, Debug)]
pub(super) struct Bounded<S> {
    pauses: S,
    reads: LoadShed<ConcurrencyLimit<Timeout<S>>>,
}

impl<S: Clone> Bounded<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
{
    pub(super) fn new(service: S) -> Bounded<S> {
        let reads = ServiceBuilder::new()
            .load_shed()
            .concurrency_limit(READS_MAX)
            .timeout(READ_WITHIN)
            .service(service.clone());
        Bounded { pauses: service, reads }
    }
}

impl<S: NamedService> NamedService for Bounded<S> {
    const NAME: &'static str = S::NAME;
}

impl<S> Service<Request<Body>> for Bounded<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        // The call itself finds out whether there is room, and is refused if there is none.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        if BRAKES.contains(&request.uri().path()) {
            return self.pauses.clone().oneshot(request).boxed();
        }
        let refused = |error: BoxError| {
            let status = match error.is::<Overloaded>() {
                true => status::limit_exceeded("calls at a time", READS_MAX),
                false => status::too_slow(READ_WITHIN),
            };
            status.into_http()
        };
        self.reads.clone().oneshot(request).map(move |answer| Ok(answer.unwrap_or_else(refused))).boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grpc::small_world::reason;
    use std::pin::pin;
    use std::sync::Arc;
    use tokio::sync::Semaphore;
    use tokio::task::JoinSet;
    use tokio::time::Instant;
    use tonic::{Code, Status};

    #[derive(Clone)]
    struct Slow(Arc<Semaphore>);

    impl Service<Request<Body>> for Slow {
        type Response = Response<Body>;
        type Error = Infallible;
        type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

        fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, _request: Request<Body>) -> Self::Future {
            let turns = Arc::clone(&self.0);
            Box::pin(async move {
                turns.acquire().await.expect("never closed").forget();
                Ok(Response::new(Body::empty()))
            })
        }
    }

    fn call(path: &str) -> Request<Body> {
        Request::builder().uri(path).body(Body::empty()).unwrap()
    }

    fn refusal(answer: Response<Body>) -> (Code, String) {
        let status = Status::from_header_map(answer.headers()).unwrap();
        (status.code(), reason(&status))
    }

    #[tokio::test(start_paused = true)]
    async fn calls_beyond_the_bound_are_refused_at_once_and_slow_ones_in_time_but_for_pauses() {
        let turns = Arc::new(Semaphore::new(0));
        let mut service = Bounded::new(Slow(Arc::clone(&turns)));
        let mut answers = JoinSet::new();
        for _ in 0..READS_MAX {
            answers.spawn(service.call(call("/a/B")));
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
        let answer = service.call(call("/a/B")).await.unwrap();
        assert_eq!(refusal(answer), (Code::ResourceExhausted, "LIMIT_EXCEEDED".to_owned()));
        turns.add_permits(1);
        let began = Instant::now();
        let answer = answers.join_next().await.unwrap().unwrap().unwrap();
        assert!(answer.headers().is_empty() && began.elapsed() < Duration::from_secs(1));
        // Its place is free.
        answers.spawn(service.call(call("/a/B")));
        let mut pause = pin!(service.call(call(BRAKES[0])));
        assert!(tokio::time::timeout(2 * READ_WITHIN, pause.as_mut()).await.is_err(), "a pause is waited for");
        assert_eq!(answers.len(), READS_MAX);
        while let Some(answer) = answers.join_next().await {
            let answer = answer.unwrap().unwrap();
            assert_eq!(refusal(answer), (Code::ResourceExhausted, "LIMIT_EXCEEDED".to_owned()));
        }
        turns.add_permits(1);
        assert!(pause.await.unwrap().headers().is_empty());
    }
}
