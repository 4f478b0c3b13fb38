//! Calls of clients that are no executors, no gRPC clients, or use a false identity.

use super::*;
use crate::grpc::access::Reviewed;
use http::HeaderMap;
use http_body_util::BodyExt as _;
use tower::ServiceExt as _;

const PAUSE: &str = "/ownergraph.admin.v1beta1.AdminService/PauseCollection";
const CHECK: &str = "/grpc.health.v1.Health/Check";
const REFLECT: &str = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
const CALL: [(&str, &str); 2] = [("content-type", "application/grpc"), ("te", "trailers")];

/// Sends an empty message to this path over HTTP/2. Returns the head and the trailers of the answer.
async fn raw(dial: &Dial, path: &str, headers: &[(&str, &str)]) -> (StatusCode, Option<Status>) {
    let mut request = HttpRequest::builder().method("POST").uri(format!("http://graph{path}"));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let body = tonic::body::Body::new(http_body_util::Full::from(vec![0; 5]));
    let answer = dial.channel().await.oneshot(request.body(body).unwrap()).await.unwrap();
    let (head, body) = answer.into_parts();
    let trailers = body.collect().await.unwrap().trailers().cloned().unwrap_or_default();
    let of = |headers: &HeaderMap| Status::from_header_map(headers);
    (head.status, of(&head.headers).or_else(|| of(&trailers)))
}

#[tokio::test(start_paused = true)]
async fn what_is_no_call_is_refused_before_anything_looks_at_it() {
    with_service(async |dial| {
        for path in [PAUSE, CHECK, REFLECT, "/nothing"] {
            for kind in ["text/plain", "application/json", "application/grpc-web", "application/x-www-form-urlencoded"]
            {
                let (code, status) = raw(&dial, path, &[("content-type", kind), ("te", "trailers")]).await;
                assert_eq!((code, status.is_none()), (StatusCode::UNSUPPORTED_MEDIA_TYPE, true), "{path} {kind}");
            }
            let (code, _) = raw(&dial, path, &[("te", "trailers")]).await;
            assert_eq!(code, StatusCode::UNSUPPORTED_MEDIA_TYPE, "{path}");
            for from in [("origin", "https://evil.example"), ("sec-fetch-site", "cross-site")] {
                let (code, _) = raw(&dial, path, &[CALL[0], CALL[1], from]).await;
                assert_eq!(code, StatusCode::FORBIDDEN, "{path} {from:?}");
            }
            let (code, status) = raw(&dial, path, &CALL[..1]).await;
            let status = status.unwrap();
            assert_eq!(
                (code, status.code(), reason(&status).as_str()),
                (StatusCode::OK, Code::InvalidArgument, "NOT_GRPC")
            );
        }
        for kind in ["application/grpc", "application/grpc+proto", "application/grpc;x=y"] {
            let (code, status) = raw(&dial, CHECK, &[("content-type", kind), CALL[1]]).await;
            assert_eq!((code, status.unwrap().code()), (StatusCode::OK, Code::Ok), "{kind}");
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn to_watch_an_unknown_service_is_no_error() {
    with_service(async |dial| {
        let mut health = HealthClient::new(dial.channel().await);
        let request = || HealthCheckRequest { service: "nobody".to_owned() };
        let mut watch = health.watch(request()).await.unwrap().into_inner();
        assert_eq!(watch.message().await.unwrap().unwrap().status(), ServingStatus::ServiceUnknown);
        let more = tokio::time::timeout(Duration::from_secs(60), watch.message()).await;
        assert!(more.is_err(), "the stream stays: {more:?}");
        assert_eq!(health.check(request()).await.unwrap_err().code(), Code::NotFound);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_stream_ends_when_the_time_of_its_call_is_over() {
    with_service(async |dial| {
        let mut health = HealthClient::new(dial.channel().await);
        let mut request = tonic::Request::new(HealthCheckRequest { service: String::new() });
        request.metadata_mut().insert("grpc-timeout", "30S".parse().unwrap());
        let began = tokio::time::Instant::now();
        let mut watch = health.watch(request).await.unwrap().into_inner();
        let status = loop {
            if let Err(status) = watch.message().await {
                break status;
            }
        };
        assert_eq!((status.code(), reason(&status).as_str()), (Code::DeadlineExceeded, "CALL_FAILED"));
        assert_eq!(began.elapsed().as_secs(), 30);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn no_outside_executor_supersedes_one_of_this_process() {
    with_service(async |dial| {
        let within = Dial { within: true, ..dial.clone() };
        let (inside, mut replies) = within.stream().await;
        inside.send(ToLeader::Hello(hello("a")).into()).await.unwrap();
        assert!(matches!(next(&mut replies).await, Some(ToExecutor::Welcome(_))));
        for incarnation in ["first", "second"] {
            let (outside, mut answer) = dial.stream().await;
            let hello = Hello { incarnation: incarnation.into(), ..hello("a") };
            outside.send(ToLeader::Hello(hello).into()).await.unwrap();
            let status = answer.message().await.expect_err("the name is taken");
            assert_eq!((status.code(), reason(&status).as_str()), (Code::PermissionDenied, "EXECUTOR_NAME_TAKEN"));
        }
        inside.send(ToLeader::Heartbeat { sequence: 9, started: 0, buffered: 0 }.into()).await.unwrap();
        assert!(matches!(next(&mut replies).await, Some(ToExecutor::HeartbeatAck { sequence: 9, .. })));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn names_that_are_none_are_refused_and_get_into_no_log() {
    with_service(async |dial| {
        let odd = ["evil\nFAKE", "a b", "Upper", "under_score", "-a", "a.", "\u{1b}[2J", "ö", &"a".repeat(254)];
        for name in odd {
            let (requests, mut replies) = dial.stream().await;
            requests.send(ToLeader::Hello(hello(name)).into()).await.unwrap();
            let status = replies.message().await.expect_err("no name");
            assert_eq!(reason(&status), "STREAM_PROTOCOL_VIOLATION", "{name:?}");
            assert!(status.message().contains("hello.identity.executor"), "{status:?}");
            assert!(!status.message().contains(char::is_control), "{status:?}");
        }
        for incarnation in ["evil\nFAKE", "a b", "\u{202e}"] {
            let (requests, mut replies) = dial.stream().await;
            let hello = Hello { incarnation: incarnation.into(), ..hello("a") };
            requests.send(ToLeader::Hello(hello).into()).await.unwrap();
            assert_eq!(reason(&replies.message().await.expect_err("none")), "STREAM_PROTOCOL_VIOLATION");
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_token_that_is_too_long_is_refused_with_a_reason() {
    let access = Access::Reviewed(Reviewed { audience: "ownergraph".to_owned(), ..Reviewed::default() });
    with_service_at(cluster(), access, async |dial| {
        let token = format!("Bearer {}", "x".repeat(20 * 1024));
        let (code, status) =
            raw(&dial.by(Peer::Tls(None)), PAUSE, &[CALL[0], CALL[1], ("authorization", &token)]).await;
        let status = status.unwrap();
        assert_eq!((code, status.code()), (StatusCode::OK, Code::Unauthenticated), "{status:?}");
        assert_eq!(reason(&status), "CREDENTIALS_INVALID");
        assert!(status.message().contains("too long"), "{status:?}");
    })
    .await;
}
