//! Calls of web pages, by gRPC-Web.

use super::*;
use crate::grpc::access::Reviewed;
use http::HeaderMap;
use http_body_util::BodyExt as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::Instant;
use tower::ServiceExt as _;

const KNOWN: &str = "https://console.example";
const STATUS: &str = "/ownergraph.admin.v1beta1.AdminService/GetStatus";
const WATCH: &str = "/ownergraph.admin.v1beta1.AdminService/WatchStatus";
const CALL: Header<'_> = ("content-type", "application/grpc-web+proto");
const EMPTY: [u8; 5] = [0; 5];
/// hyper's limit for the headers of a request over HTTP/1.1.
const HEADERS_WITHIN: Duration = Duration::from_secs(30);

type Header<'a> = (&'a str, &'a str);

struct Answer {
    code: StatusCode,
    headers: HeaderMap,
    body: String,
}

impl Answer {
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// Whether the call ended with this status: in the last frame of the body, or in the headers.
    fn ended_with(&self, code: Code) -> bool {
        let code = code as i32;
        self.body.contains(&format!("grpc-status:{code}\r\n")) || self.header("grpc-status") == code.to_string()
    }
}

async fn ask(dial: &Dial, method: &str, path: &str, headers: &[Header<'_>], body: &[u8]) -> Answer {
    let mut request = HttpRequest::builder().method(method).uri(format!("http://graph{path}"));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let body = tonic::body::Body::new(http_body_util::Full::from(body.to_vec()));
    let (head, body) = dial.channel().await.oneshot(request.body(body).unwrap()).await.unwrap().into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    Answer { code: head.status, headers: head.headers, body: String::from_utf8_lossy(&body).into_owned() }
}

async fn with_pages<T>(story: impl AsyncFnOnce(Dial) -> T) -> T {
    with_service_for(&[KNOWN, "http://localhost:5173"], cluster(), Access::Open, story).await
}

#[tokio::test(start_paused = true)]
async fn a_page_of_a_known_origin_calls_and_no_other_page_does() {
    with_pages(async |dial| {
        for origin in [KNOWN, "http://localhost:5173"] {
            let answer =
                ask(&dial, "POST", STATUS, &[CALL, ("origin", origin), ("sec-fetch-site", "cross-site")], &EMPTY).await;
            assert_eq!((answer.code, answer.header("content-type")), (StatusCode::OK, CALL.1));
            assert!(answer.ended_with(Code::Ok) && answer.body.contains(CLUSTER), "{}", answer.body);
            assert_eq!(answer.header("access-control-allow-origin"), origin);
            assert!(answer.header("access-control-expose-headers").contains("grpc-status"));
            assert_eq!(answer.header("access-control-allow-credentials"), "");
        }
        let known = ("origin", KNOWN);
        let refused: &[(&str, &str, &[Header<'_>], StatusCode)] = &[
            ("POST", STATUS, &[CALL], StatusCode::FORBIDDEN),
            ("POST", STATUS, &[CALL, ("origin", "https://evil.example")], StatusCode::FORBIDDEN),
            ("POST", STATUS, &[CALL, ("origin", "http://console.example")], StatusCode::FORBIDDEN),
            ("POST", STATUS, &[CALL, ("origin", "https://console.example:8443")], StatusCode::FORBIDDEN),
            ("POST", STATUS, &[CALL, ("origin", "https://console.example.evil.example")], StatusCode::FORBIDDEN),
            ("POST", STATUS, &[CALL, ("origin", "null")], StatusCode::FORBIDDEN),
            ("POST", STATUS, &[CALL, known, ("origin", "https://evil.example")], StatusCode::FORBIDDEN),
            ("POST", "/ownergraph.work.v1beta1.WorkService/StreamWork", &[CALL, known], StatusCode::FORBIDDEN),
            ("POST", "/grpc.health.v1.Health/Check", &[CALL, known], StatusCode::FORBIDDEN),
            (
                "POST",
                "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
                &[CALL, known],
                StatusCode::FORBIDDEN,
            ),
            ("POST", "/", &[CALL, known], StatusCode::FORBIDDEN),
            ("GET", STATUS, &[CALL, known], StatusCode::METHOD_NOT_ALLOWED),
            (
                "POST",
                STATUS,
                &[("content-type", "application/grpc-web+json"), known],
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
            ),
            (
                "POST",
                STATUS,
                &[("content-type", "application/grpc-web;x=y"), known],
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
            ),
            ("POST", STATUS, &[CALL, ("content-type", "text/plain"), known], StatusCode::UNSUPPORTED_MEDIA_TYPE),
            ("POST", STATUS, &[("content-type", "text/plain"), known], StatusCode::UNSUPPORTED_MEDIA_TYPE),
            // A call of gRPC, and not of gRPC-Web.
            ("POST", STATUS, &[("content-type", "application/grpc"), ("te", "trailers"), known], StatusCode::FORBIDDEN),
        ];
        for (method, path, headers, code) in refused {
            let answer = ask(&dial, method, path, headers, &EMPTY).await;
            assert_eq!(answer.code, *code, "{method} {path} {headers:?}: {}", answer.body);
            assert!(!answer.body.contains(CLUSTER) && answer.header("access-control-allow-origin").is_empty());
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_browser_that_asks_first_hears_what_a_page_may_send() {
    with_pages(async |dial| {
        let wanted = ("access-control-request-method", "POST");
        let answer = ask(&dial, "OPTIONS", STATUS, &[("origin", KNOWN), wanted], &[]).await;
        let of = |name| answer.header(name);
        assert_eq!((answer.code, of("access-control-allow-origin")), (StatusCode::OK, KNOWN));
        assert_eq!((of("access-control-allow-methods"), of("access-control-allow-credentials")), ("POST", ""));
        let names = of("access-control-allow-headers");
        assert!(
            ["authorization", "content-type", "grpc-timeout", "x-grpc-web"].iter().all(|name| names.contains(name)),
            "{names}"
        );
        for (path, headers) in [
            (STATUS, &[("origin", "https://evil.example"), wanted][..]),
            (STATUS, &[wanted]),
            ("/ownergraph.work.v1beta1.WorkService/StreamWork", &[("origin", KNOWN), wanted]),
        ] {
            let answer = ask(&dial, "OPTIONS", path, headers, &[]).await;
            assert_eq!((answer.code, answer.header("access-control-allow-origin")), (StatusCode::FORBIDDEN, ""));
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_page_has_the_credentials_bounds_and_deadlines_of_every_caller() {
    let access = Access::Reviewed(Reviewed { audience: "ownergraph".to_owned(), ..Reviewed::default() });
    with_service_for(&[KNOWN], cluster(), access, async |dial| {
        let stranger = dial.by(Peer::Tls(None));
        for stranger in [&stranger, &dial] {
            for path in [STATUS, WATCH, "/ownergraph.admin.v1beta1.AdminService/PauseCollection"] {
                let answer = ask(stranger, "POST", path, &[CALL, ("origin", KNOWN)], &EMPTY).await;
                assert!(answer.ended_with(Code::Unauthenticated), "{path}: {:?} {}", answer.headers, answer.body);
                assert!(!answer.body.contains(CLUSTER));
            }
        }
        let unknown = "/ownergraph.admin.v1beta1.AdminService/Nothing";
        let answer = ask(&stranger, "POST", unknown, &[CALL, ("origin", KNOWN)], &EMPTY).await;
        assert!(answer.ended_with(Code::Unimplemented), "{:?}", answer.headers);
    })
    .await;
    with_pages(async |dial| {
        let five_mebibytes = [0, 0, 0x50, 0, 0];
        let answer = ask(&dial, "POST", STATUS, &[CALL, ("origin", KNOWN)], &five_mebibytes).await;
        assert!(answer.ended_with(Code::OutOfRange), "{:?} {}", answer.headers, answer.body);
        let began = Instant::now();
        let answer = ask(&dial, "POST", WATCH, &[CALL, ("origin", KNOWN), ("grpc-timeout", "5S")], &EMPTY).await;
        assert!(answer.ended_with(Code::DeadlineExceeded) && began.elapsed().as_secs() == 5, "{}", answer.body);
    })
    .await;
}

/// Sends these bytes. Returns the answer until it has this text, or until the connection ends.
async fn over_http1(dial: &Dial, request: &str, until: &str) -> String {
    let (mut near, far) = tokio::io::duplex(PIPE_BYTES);
    dial.pipes.send(Connection::new(far)).await.unwrap();
    near.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let mut more = [0; 4096];
    while let Ok(read @ 1..) = near.read(&mut more).await {
        answer.extend(&more[..read]);
        if String::from_utf8_lossy(&answer).contains(until) {
            break;
        }
    }
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test(start_paused = true)]
async fn http1_serves_pages_and_nothing_else() {
    let request = |kind: &str, origin: &str| {
        format!(
            "POST {STATUS} HTTP/1.1\r\nhost: graph\r\ncontent-type: {kind}\r\nte: trailers\r\n{origin}content-length: 5\r\n\r\n\0\0\0\0\0"
        )
    };
    let from = format!("origin: {KNOWN}\r\n");
    with_pages(async |dial| {
        let answer = over_http1(&dial, &request(CALL.1, &from), "grpc-status").await;
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.contains(CLUSTER), "{answer}");
        let answer = over_http1(&dial, &request(CALL.1, ""), "\n\r\n").await;
        assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
        for origin in ["", &from] {
            let answer = over_http1(&dial, &request("application/grpc", origin), "\n\r\n").await;
            assert!(answer.starts_with("HTTP/1.1 505 "), "{answer}");
        }
        let began = Instant::now();
        let half = request(CALL.1, &from);
        let answer = over_http1(&dial, &half[..half.find("te:").unwrap()], "never").await;
        let within = began.elapsed();
        assert!(!answer.contains("200 OK") && within <= HEADERS_WITHIN + Duration::from_secs(1), "{within:?} {answer}");
    })
    .await;
    with_service(async |dial| {
        let answer = over_http1(&dial, &request(CALL.1, &from), "\n\r\n").await;
        assert!(!answer.contains("HTTP/1.1"), "without origins the service speaks HTTP/2 only: {answer}");
    })
    .await;
}
