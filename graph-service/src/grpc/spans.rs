//! Spans of calls, as children of the caller's `traceparent`.
//!
//! Only calls that pass the guard get here. A sampled `traceparent` makes the call sampled; an unsampled one does not.
//! Calls without the header are sampled at the rate of cascades. Executor streams have no span, because they last for
//! an hour and their leases have spans. Probes and reflection have no spans either.

use super::rights;
use futures::FutureExt as _;
use futures::future::{BoxFuture, Either};
use http::{HeaderMap, Request, Response};
use http_body_util::BodyExt as _;
use runtime::traces::{Context, Incoming, Kind, Recorder, Span, SpanId, TraceId};
use std::task::Poll;
use tokio::time::Instant;
use tonic::body::Body;
use tonic::{Code, Status};
use tower::{Layer, Service};
use tracing::Instrument as _;

const TRACEPARENT: &str = "traceparent";
/// Services without spans.
const UNTRACED: [&str; 2] = ["grpc.", "ownergraph.work."];
/// Span name of an unknown method. The path of a call may be any text, but a span name may not.
const UNKNOWN: &str = "unknown";

/// The layer.
#[derive(Clone, Debug)]
pub(super) struct Calls {
    recorder: Option<Recorder>,
}

impl Calls {
    /// Without a recorder the layer does nothing.
    pub(super) fn new(recorder: Option<Recorder>) -> Calls {
        Calls { recorder }
    }
}

impl<S> Layer<S> for Calls {
    type Service = Traced<S>;

    fn layer(&self, inner: S) -> Traced<S> {
        Traced { inner, recorder: self.recorder.clone() }
    }
}

/// A service whose calls have spans.
#[derive(Clone, Debug)]
pub(super) struct Traced<S> {
    inner: S,
    recorder: Option<Recorder>,
}

impl<S, B> Service<Request<B>> for Traced<S>
where
    S: Service<Request<B>, Response = Response<Body>>,
    S::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = Either<S::Future, BoxFuture<'static, Result<Response<Body>, S::Error>>>;

    fn poll_ready(&mut self, context: &mut std::task::Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let call = self.recorder.as_ref().and_then(|recorder| Call::begin(recorder, &request));
        // Log lines before the answer belong to the span of the call.
        let logged = call.as_ref().map_or_else(tracing::Span::none, |call| call.context.entered());
        let answering = logged.in_scope(|| self.inner.call(request));
        match call {
            None => Either::Left(answering),
            Some(call) => {
                let answering = answering.instrument(logged);
                Either::Right(answering.map(|answer| answer.map(|answer| call.follow(answer))).boxed())
            }
        }
    }
}

/// A call in progress. Its span is recorded on drop: after the last message, or when the caller is gone.
struct Call {
    recorder: Recorder,
    context: Context,
    parent: Option<SpanId>,
    /// Service and method.
    rpc: &'static str,
    start: Instant,
    /// `None` until the answer has a status.
    ended: Option<Status>,
}

impl Call {
    /// `None` if the call is not recorded.
    fn begin<B>(recorder: &Recorder, request: &Request<B>) -> Option<Call> {
        let rpc = rights::of_path(request.uri().path()).map_or(UNKNOWN, |row| row.rpc);
        if UNTRACED.iter().any(|service| rpc.starts_with(service)) {
            return None;
        }
        let (trace, parent) = belongs(recorder, request.headers())?;
        Some(Call {
            context: Context { trace, span: recorder.span_id() },
            recorder: recorder.clone(),
            parent,
            rpc,
            start: Instant::now(),
            ended: None,
        })
    }

    fn answered(&mut self, headers: &HeaderMap) {
        self.ended = Status::from_header_map(headers);
    }

    fn follow(mut self, answer: Response<Body>) -> Response<Body> {
        self.answered(answer.headers());
        let (head, body) = answer.into_parts();
        let body = body.map_frame(move |frame| {
            if let Some(trailers) = frame.trailers_ref() {
                self.answered(trailers);
            }
            frame
        });
        Response::from_parts(head, Body::new(body))
    }
}

/// The trace of a call, and the span of its caller.
fn belongs(recorder: &Recorder, headers: &HeaderMap) -> Option<(TraceId, Option<SpanId>)> {
    let text = headers.get(TRACEPARENT).and_then(|value| value.to_str().ok());
    match text.and_then(Incoming::parse) {
        Some(incoming) => incoming.sampled.then_some((incoming.context.trace, Some(incoming.context.span))),
        None => {
            let trace = recorder.trace_id();
            recorder.covers(&trace).then_some((trace, None))
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        let gone = || Status::cancelled("the caller went away");
        let status = self.ended.take().unwrap_or_else(gone);
        self.context.entered().in_scope(|| tracing::debug!(rpc = self.rpc, code = ?status.code(), "call ended"));
        let (service, method) = self.rpc.split_once('/').unwrap_or((UNKNOWN, UNKNOWN));
        let attributes = vec![
            ("rpc.system", "grpc".into()),
            ("rpc.service", service.into()),
            ("rpc.method", method.into()),
            ("rpc.grpc.status_code", (status.code() as u32).into()),
        ];
        // Codes of server errors, by the conventions of OpenTelemetry.
        let is_fault = matches!(
            status.code(),
            Code::Unknown
                | Code::DeadlineExceeded
                | Code::Unimplemented
                | Code::Internal
                | Code::Unavailable
                | Code::DataLoss
        );
        self.recorder.record(Span {
            context: self.context,
            parent: self.parent,
            name: self.rpc.into(),
            kind: Kind::Server,
            start: self.start,
            end: Instant::now(),
            attributes,
            failure: is_fault.then(|| status.message().to_owned()),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use runtime::traces::{Ratio, Value};
    use std::convert::Infallible;
    use tokio::sync::mpsc::Receiver;
    use tower::{ServiceExt as _, service_fn};

    const CALLER: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7";
    const PATH: &str = "/ownergraph.graph.v1beta1.GraphService/GetObject";

    /// Calls a service that answers with this status. Reads the answer to its end if `read` is set.
    async fn call(ratio: &str, path: &str, traceparent: Option<&str>, status: Status, read: bool) -> Receiver<Span> {
        let (recorder, open, spans) = Recorder::to_memory(ratio.parse::<Ratio>().unwrap());
        let answer = move |_request: Request<Body>| {
            let mut trailers = HeaderMap::new();
            status.add_header(&mut trailers).unwrap();
            let body = http_body_util::Empty::new().with_trailers(async move { Some(Ok(trailers)) });
            std::future::ready(Ok::<_, Infallible>(Response::new(Body::new(body))))
        };
        let mut request = Request::post(path).body(Body::empty()).unwrap();
        if let Some(text) = traceparent {
            request.headers_mut().insert(TRACEPARENT, text.parse().unwrap());
        }
        let answer = Calls::new(Some(recorder)).layer(service_fn(answer)).oneshot(request).await.unwrap();
        if read {
            answer.into_body().collect().await.unwrap();
        } else {
            drop(answer);
        }
        drop(open);
        spans
    }

    fn code(span: &Span) -> Option<&Value> {
        span.attributes.iter().find(|(name, _)| *name == "rpc.grpc.status_code").map(|(_, value)| value)
    }

    #[tokio::test]
    async fn a_call_is_recorded_where_its_caller_records_and_else_by_the_ratio() {
        let ok = || Status::ok("");
        let sampled = format!("{CALLER}-01");
        let unsampled = format!("{CALLER}-00");
        let span = call("0", PATH, Some(&sampled), ok(), true).await.try_recv().unwrap();
        assert_eq!(span.context.trace.to_string(), CALLER[3..35]);
        assert_eq!(span.parent.unwrap().to_string(), CALLER[36..]);
        assert_eq!((span.name.as_ref(), code(&span)), (&PATH[1..], Some(&Value::Number(0))));
        assert!(call("1", PATH, Some(&unsampled), ok(), true).await.try_recv().is_err());
        assert!(call("0", PATH, None, ok(), true).await.try_recv().is_err());
        assert!(call("1", PATH, None, ok(), true).await.try_recv().unwrap().parent.is_none());
        assert!(call("1", PATH, Some("nonsense"), ok(), true).await.try_recv().unwrap().parent.is_none());
        let unknown = call("1", "/chosen/by-a-stranger", None, ok(), true).await.try_recv().unwrap();
        assert_eq!(unknown.name, UNKNOWN);
        assert!(!format!("{unknown:?}").contains("by-a-stranger"), "{unknown:?}");
        for path in ["/grpc.health.v1.Health/Check", "/ownergraph.work.v1beta1.WorkService/StreamWork"] {
            assert!(call("1", path, Some(&sampled), ok(), true).await.try_recv().is_err(), "{path}");
        }
    }

    #[tokio::test]
    async fn a_call_ends_with_its_status_or_with_its_caller() {
        let fault = call("1", PATH, None, Status::internal("broken"), true).await.try_recv().unwrap();
        assert_eq!((fault.failure.as_deref(), code(&fault)), (Some("broken"), Some(&Value::Number(13))));
        let refused = call("1", PATH, None, Status::not_found("no such"), true).await.try_recv().unwrap();
        assert_eq!((refused.failure.as_deref(), code(&refused)), (None, Some(&Value::Number(5))));
        let left = call("1", PATH, None, Status::ok(""), false).await.try_recv().unwrap();
        assert_eq!((left.failure.as_deref(), code(&left)), (None, Some(&Value::Number(1))));
    }
}
