//! Only admitted calls have spans.

use super::*;
use crate::grpc::before_services;
use crate::grpc::web::Origins;
use http::{Request, Response, Version};
use runtime::traces::{Ratio, Recorder};
use std::convert::Infallible;
use tonic::body::Body;
use tower::{Layer as _, ServiceExt as _};

const STATUS: &str = "/ownergraph.admin.v1beta1.AdminService/GetStatus";
const SAMPLED: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// The names of the spans of a call whose caller samples, on a server that samples everything.
async fn spans(authenticator: &Arc<Authenticator>, path: &str, token: Option<&str>) -> Vec<String> {
    let mut names = Vec::new();
    for (ratio, traceparent) in [("0", Some(SAMPLED)), ("1", None)] {
        let (recorder, open, mut spans) = Recorder::to_memory(ratio.parse::<Ratio>().unwrap());
        let answer = |_request: Request<Body>| std::future::ready(Ok::<_, Infallible>(Response::new(Body::empty())));
        let origins = Origins::new(Vec::new());
        let before = before_services(Some(Arc::clone(authenticator)), Some(recorder), origins);
        let service = before.layer(tower::service_fn(answer));
        let mut request = Request::post(path).version(Version::HTTP_2).body(Body::empty()).unwrap();
        let token = token.map(|token| format!("Bearer {token}"));
        let call = [("content-type", Some("application/grpc")), ("te", Some("trailers"))];
        let more = [("traceparent", traceparent), ("authorization", token.as_deref())];
        for (name, value) in call.into_iter().chain(more) {
            if let Some(value) = value {
                request.headers_mut().insert(name, value.parse().unwrap());
            }
        }
        drop(service.oneshot(request).await.unwrap());
        drop(open);
        names.extend(std::iter::from_fn(|| spans.try_recv().ok()).map(|span| span.name.into_owned()));
    }
    names
}

#[tokio::test(start_paused = true)]
async fn calls_that_are_refused_leave_no_spans_whatever_they_bring() {
    let authenticator =
        Oracle::default().knows("eve").knows("admin").allows("admin", "get", "status", "").authenticator();
    assert_eq!(spans(&authenticator, STATUS, Some("admin")).await, [&STATUS[1..]; 2]);
    for token in [None, Some("stranger"), Some("eve")] {
        assert!(spans(&authenticator, STATUS, token).await.is_empty(), "{token:?}");
    }
    for token in [None, Some("admin")] {
        assert!(spans(&authenticator, "/chosen/by-a-stranger", token).await.is_empty(), "{token:?}");
    }
}
