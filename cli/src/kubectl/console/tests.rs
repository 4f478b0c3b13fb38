use super::backend::Backend;
use super::calls::refusal;
use super::door::Door;
use super::files::answer_of;
use super::server::{BODY_MAX_BYTES, CALLS_MAX, Site, answer};
use crate::kubectl::document::Schema;
use crate::kubectl::flags::{Asking, Connection, Format, Output};
use crate::kubectl::printer::Printer;
use crate::kubectl::session::Session;
use bytes::Bytes;
use futures::StreamExt as _;
use http::header::{
    ACCESS_CONTROL_ALLOW_ORIGIN, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST, ORIGIN, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderName, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Empty, Full, StreamBody};
use hyper::server::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use kube::Client;
use kube_api::Cluster;
use proto::error_reason::{DOMAIN, text};
use proto::r#type::v1beta1::ErrorReason;
use serde_json::{Value, json};
use std::collections::{BTreeSet, HashMap};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tonic::Code;
use tonic::body::Body;
use tonic_types::{ErrorDetails, StatusExt as _};

mod again;
mod guards;
mod others;

const HOSTS: [&str; 2] = ["127.0.0.1:8080", "localhost:8080"];
const CALL: &str = "/ownergraph.admin.v1beta1.AdminService/GetStatus";
const STREAM: &str = "/ownergraph.admin.v1beta1.AdminService/WatchStatus";
/// The scripted service says that it is not the one to ask.
const ELSEWHERE: &str = "/ownergraph.admin.v1beta1.AdminService/ListExecutors";
/// The scripted service says that its graph is not as fresh as requested.
const BEHIND: &str = "/ownergraph.graph.v1beta1.GraphService/GetObject";
/// The scripted service never answers.
const SILENT: &str = "/ownergraph.graph.v1beta1.GraphService/WaitForFreshness";
/// The scripted service is in mode observe.
const OBSERVES: &str = "/ownergraph.admin.v1beta1.AdminService/PauseCollection";
/// Headers that a proxy before the graph service may add. None of them reaches the page.
const FOREIGN: [(&str, &str); 5] = [
    ("content-security-policy", "default-src *"),
    ("cache-control", "public"),
    ("set-cookie", "a=b"),
    ("access-control-allow-origin", "*"),
    ("location", "http://evil.example/"),
];

/// A console in front of a graph service that is scripted, and of an API server that refuses everything.
struct Bench {
    site: Site,
    token: String,
    address: SocketAddr,
    /// Pieces of the answers of streams.
    pieces: mpsc::Sender<Bytes>,
    /// Calls that reached the graph service.
    seen: Arc<AtomicUsize>,
    /// Their paths.
    calls: Calls,
    connections: Arc<AtomicUsize>,
    _served: JoinSet<()>,
}

type Calls = Arc<std::sync::Mutex<Vec<String>>>;

impl Bench {
    async fn new(writes: bool) -> Bench {
        // Some administrators take the right to ask who one is from those that are not known.
        let refusing = tower::service_fn(async |request: Request<kube::client::Body>| {
            let status = if request.uri().path().ends_with("/selfsubjectreviews") { 403 } else { 404 };
            Ok::<_, Infallible>(Response::builder().status(status).body(kube::client::Body::empty()).unwrap())
        });
        Bench::on(Client::new(refusing, "default"), writes).await
    }

    /// The same in front of another API server.
    async fn on(api: Client, writes: bool) -> Bench {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (seen, connections, mut served) =
            (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default(), JoinSet::new());
        let (pieces, script) = mpsc::channel(8);
        let calls = Calls::default();
        served.spawn(graph(listener, Arc::clone(&seen), Arc::clone(&calls), Arc::clone(&connections), script));
        let cluster = Cluster::of_client(api, "test");
        let backend = Backend::new(session(cluster, Connection::to(address)), writes);
        let door = Door::new(8080).unwrap();
        let token = door.open(&opening(&door)).unwrap();
        Bench { site: Site::new(door, backend), token, address, pieces, seen, calls, connections, _served: served }
    }

    /// A request as the page makes it.
    fn request(&self, method: Method, path: &str) -> http::request::Builder {
        let request = Request::builder().method(method).uri(path).header(HOST, HOSTS[0]);
        request.header("x-ownergraph-token", &self.token)
    }

    async fn send(&self, request: http::request::Builder, body: impl Into<Bytes>) -> Response<Body> {
        answer(&self.site, request.body(Full::new(body.into())).unwrap()).await
    }

    fn call(&self, path: &str) -> http::request::Builder {
        self.request(Method::POST, path).header(CONTENT_TYPE, "application/grpc-web+proto")
    }
}

/// The request with which a page exchanges the ticket of its address.
fn opening(door: &Door) -> Request<String> {
    let ticket = door.link(None).rsplit_once('=').unwrap().1.to_owned();
    let request = Request::post("/console/open").header(HOST, HOSTS[0]).header("x-ownergraph-token", ticket);
    request.body(String::new()).unwrap()
}

fn session(cluster: Cluster, connection: Connection) -> Session {
    let asking = Asking { namespace: None, all_namespaces: false, connection, output: Output::default() };
    Session::over(cluster, asking, Printer::of(Output::default(), &[Format::Json]).unwrap())
}

/// An error of the graph service with its reason.
fn unavailable(reason: ErrorReason) -> tonic::Status {
    let details = ErrorDetails::with_error_info(text(reason), DOMAIN, HashMap::new());
    tonic::Status::with_error_details(Code::Unavailable, "not now", details)
}

/// A graph service: the head of each call but [`SILENT`] is answered at once. Calls of the stream get the script as
/// their answer.
async fn graph(
    listener: TcpListener,
    seen: Arc<AtomicUsize>,
    calls: Calls,
    connections: Arc<AtomicUsize>,
    script: mpsc::Receiver<Bytes>,
) {
    let script = Arc::new(std::sync::Mutex::new(Some(script)));
    let mut served = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        connections.fetch_add(1, Ordering::Relaxed);
        let (seen, calls, script) = (Arc::clone(&seen), Arc::clone(&calls), Arc::clone(&script));
        let service = hyper::service::service_fn(move |request: Request<hyper::body::Incoming>| {
            let refused = match request.uri().path() {
                ELSEWHERE => Some(unavailable(ErrorReason::NotLeader)),
                BEHIND => Some(unavailable(ErrorReason::ReplicaBehind)),
                OBSERVES => Some(tonic::Status::failed_precondition("mode observe creates and changes no guards")),
                _ => None,
            };
            let for_stream = (request.uri().path() == STREAM).then(|| script.lock().unwrap().take());
            calls.lock().unwrap().push(request.uri().path().to_owned());
            let seen = Arc::clone(&seen);
            async move {
                let foreign = ["x-ownergraph-token", "origin", "cookie", "authorization"];
                assert!(foreign.iter().all(|name| !request.headers().contains_key(*name)), "{request:?}");
                seen.fetch_add(1, Ordering::Relaxed);
                if request.uri().path() == SILENT {
                    std::future::pending::<()>().await;
                }
                if let Some(status) = refused {
                    return Ok::<_, Infallible>(status.into_http());
                }
                let body = match for_stream {
                    Some(Some(script)) => {
                        let pieces = futures::stream::unfold(script, async |mut script| {
                            script
                                .recv()
                                .await
                                .map(|piece| (Ok::<_, Infallible>(http_body::Frame::data(piece)), script))
                        });
                        Body::new(StreamBody::new(Box::pin(pieces)))
                    }
                    Some(None) => Body::new(StreamBody::new(futures::stream::pending::<
                        Result<http_body::Frame<Bytes>, Infallible>,
                    >())),
                    None => {
                        let fine =
                            HeaderMap::from_iter([(HeaderName::from_static("grpc-status"), "0".parse().unwrap())]);
                        let message = Full::new(Bytes::from_static(&[0, 0, 0, 0, 0]));
                        Body::new(message.with_trailers(std::future::ready(Some(Ok(fine)))))
                    }
                };
                let mut answer = Response::builder().header(CONTENT_TYPE, "application/grpc");
                for (name, value) in FOREIGN {
                    answer = answer.header(name, value);
                }
                Ok::<_, Infallible>(answer.body(body).unwrap())
            }
        });
        served.spawn(async move {
            let _ended =
                http2::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn error(answer: Response<Body>) -> String {
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    let value: Value = serde_json::from_slice(&body).unwrap();
    value["error"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_request_for_another_host_is_refused_with_and_without_a_token() {
    let bench = Bench::new(true).await;
    for path in ["/", "/console/session", CALL] {
        for host in ["evil.example:8080", "127.0.0.1", "127.0.0.1:8081", "localhost.:8080", "[::1]:8080", ""] {
            let request = Request::post(path).header(HOST, host).header("x-ownergraph-token", &bench.token);
            assert_eq!(bench.send(request, "").await.status(), StatusCode::FORBIDDEN, "{path} {host}");
        }
        let none = Request::post(path).header("x-ownergraph-token", &bench.token);
        assert_eq!(bench.send(none, "").await.status(), StatusCode::FORBIDDEN);
        let two = bench.request(Method::POST, path).header(HOST, HOSTS[0]);
        assert_eq!(bench.send(two, "").await.status(), StatusCode::FORBIDDEN);
        let absolute = bench.request(Method::POST, &format!("http://evil.example:8080{path}"));
        assert!(error(bench.send(absolute, "").await).await.contains("127.0.0.1:8080 or localhost:8080"));
    }
    for host in HOSTS {
        let page = Request::get("/").header(HOST, host);
        assert_ne!(bench.send(page, "").await.status(), StatusCode::FORBIDDEN, "{host}");
    }
    assert_eq!(bench.seen.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn a_page_of_another_origin_is_refused_even_with_the_token() {
    let bench = Bench::new(true).await;
    for origin in
        ["null", "http://evil.example", "https://127.0.0.1:8080", "http://127.0.0.1:8081", "http://localhost:8080"]
    {
        for path in ["/", "/console/session", CALL] {
            let foreign = bench.call(path).header(ORIGIN, origin);
            let answer = bench.send(foreign, "").await;
            assert_eq!(answer.status(), StatusCode::FORBIDDEN, "{origin} {path}");
            assert!(!answer.headers().contains_key(ACCESS_CONTROL_ALLOW_ORIGIN));
        }
        let question = bench.request(Method::OPTIONS, CALL).header(ORIGIN, origin);
        assert_eq!(bench.send(question, "").await.status(), StatusCode::FORBIDDEN);
    }
    assert_eq!(bench.seen.load(Ordering::Relaxed), 0);
    let own = bench.send(bench.call(CALL).header(ORIGIN, "http://127.0.0.1:8080"), "").await;
    assert_eq!((own.status(), own.headers().get("grpc-status")), (StatusCode::OK, None));
    assert!(bench.seen.load(Ordering::Relaxed) > 0);
}

#[tokio::test]
async fn an_address_opens_one_page() {
    let bench = Bench::new(true).await;
    let open = async |request: Request<String>| answer(&bench.site, request).await;
    let request = opening(&bench.site.door);
    let (mut foreign, mut by_get) = (request.clone(), request.clone());
    foreign.headers_mut().insert(ORIGIN, "http://example.com".parse().unwrap());
    assert_eq!(open(foreign).await.status(), StatusCode::FORBIDDEN);
    *by_get.method_mut() = Method::GET;
    assert_eq!(open(by_get).await.status(), StatusCode::METHOD_NOT_ALLOWED);
    let opened = open(request.clone()).await;
    assert_eq!(opened.status(), StatusCode::OK);
    let body: Value = serde_json::from_slice(&opened.into_body().collect().await.unwrap().to_bytes()).unwrap();
    assert_eq!(body["token"], bench.token.as_str(), "the token of all pages of this console");
    let again = open(request).await;
    assert_eq!(again.status(), StatusCode::UNAUTHORIZED);
    assert!(error(again).await.contains("this address was opened before"));
    assert_eq!(open(opening(&bench.site.door)).await.status(), StatusCode::OK, "the next address");
    let mut by_token = opening(&bench.site.door);
    by_token.headers_mut().insert("x-ownergraph-token", bench.token.parse().unwrap());
    assert_eq!(open(by_token).await.status(), StatusCode::UNAUTHORIZED, "the token is no ticket");
}

#[tokio::test]
async fn all_but_files_needs_the_token() {
    let bench = Bench::new(true).await;
    let guards = ["guards/pause", "guards/create", "guards/release", "guards/approve"];
    let paths = [&["session", "access", "status", "delete", "other"][..], &guards].concat();
    let paths =
        paths.iter().map(|path| format!("/console/{path}")).chain([CALL.to_owned(), "/ownergraph.x".to_owned()]);
    for path in paths {
        for token in ["", "0", &bench.token[1..], &bench.token.to_uppercase(), &format!("{}0", bench.token)] {
            for method in [Method::GET, Method::POST, Method::OPTIONS] {
                let request = Request::builder().method(method).uri(&path).header(HOST, HOSTS[0]);
                let request = request.header("x-ownergraph-token", token);
                assert_eq!(bench.send(request, "").await.status(), StatusCode::UNAUTHORIZED, "{path} {token}");
            }
        }
        let none = Request::post(&path).header(HOST, HOSTS[0]);
        assert!(error(bench.send(none, "").await).await.contains("the newest address that the console printed"));
        let two = bench.request(Method::POST, &path).header("x-ownergraph-token", &bench.token);
        assert_eq!(bench.send(two, "").await.status(), StatusCode::UNAUTHORIZED);
    }
    assert_eq!(bench.seen.load(Ordering::Relaxed), 0);
    let another = Door::new(8080).unwrap().link(None);
    assert_eq!(another.len(), "http://127.0.0.1:8080/#token=".len() + 64);
    let within = Door::new(8080).unwrap().link(Some("a&b"));
    assert!(within.starts_with("http://127.0.0.1:8080/?in=a%26b#token="), "{within}");
    assert!(!another.ends_with(&bench.token), "each console has a token of its own");
}

#[tokio::test]
async fn every_answer_has_the_headers_that_bind_the_page() {
    let bench = Bench::new(true).await;
    let requests = [
        bench.request(Method::GET, "/"),
        bench.request(Method::GET, "/assets/none.js"),
        bench.request(Method::DELETE, "/"),
        bench.request(Method::POST, "/console/none"),
        bench.call(CALL),
        Request::get("/").header(HOST, "evil.example"),
    ];
    for request in requests {
        let answer = bench.send(request, "{}").await;
        let headers = answer.headers();
        let policy = headers[CONTENT_SECURITY_POLICY].to_str().unwrap();
        assert!(policy.starts_with("default-src 'none'; script-src 'self';") && !policy.contains("unsafe"), "{policy}");
        assert!(policy.ends_with("frame-ancestors 'none'"), "{policy}");
        assert_eq!(headers[X_CONTENT_TYPE_OPTIONS], "nosniff");
        assert_eq!(headers[REFERRER_POLICY], "no-referrer");
        assert_eq!(headers["cross-origin-opener-policy"], "same-origin");
        assert_eq!(headers[CACHE_CONTROL], "no-store");
        for name in ["content-security-policy", "cache-control"] {
            assert_eq!(headers.get_all(name).iter().count(), 1, "{headers:?}");
        }
        assert!(!headers.contains_key("set-cookie") && !headers.contains_key("location"), "{headers:?}");
        assert!(!headers.keys().any(|name| name.as_str().starts_with("access-control-")), "{headers:?}");
    }
}

#[tokio::test]
async fn only_calls_for_readers_are_forwarded() {
    let bench = Bench::new(true).await;
    assert_eq!(bench.send(bench.call(CALL), "").await.status(), StatusCode::OK);
    for (path, status) in [
        ("/ownergraph.work.v1beta1.WorkService/StreamWork", 403),
        ("/ownergraph.decision.v1beta1.GateService/StreamVerdicts", 403),
        ("/ownergraph.admin.v1beta1.AdminService/../WorkService/StreamWork", 403),
        ("/ownergraph.admin.v1beta1.AdminService/Get%53tatus", 403),
    ] {
        assert_eq!(bench.send(bench.call(path), "").await.status().as_u16(), status, "{path}");
    }
    let get = bench.request(Method::GET, CALL);
    assert_eq!(bench.send(get, "").await.status(), StatusCode::METHOD_NOT_ALLOWED);
    for wrong in ["application/grpc", "application/json", "text/plain"] {
        let request = bench.request(Method::POST, CALL).header(CONTENT_TYPE, wrong);
        assert_eq!(bench.send(request, "").await.status(), StatusCode::UNSUPPORTED_MEDIA_TYPE, "{wrong}");
    }
    let more = bench.call(CALL).header("cookie", "a=b").header("authorization", "Bearer x");
    let kept = bench.send(more, "").await;
    assert_eq!((kept.status(), kept.headers().get("grpc-status")), (StatusCode::OK, None));
}

/// The test fails for a new call that changes something and is named like one that reads, or the other way round.
#[test]
fn with_read_only_all_calls_that_change_something_are_refused() {
    let schema = Schema::load().unwrap();
    let mut refused = BTreeSet::new();
    for (service, method) in schema.calls() {
        let request = Request::post(format!("/{service}/{method}")).header(CONTENT_TYPE, "application/grpc-web");
        let request = request.body(()).unwrap();
        if refusal(&request, true).is_none() && refusal(&request, false).is_some() {
            refused.insert(method);
        }
    }
    let changes = ["BypassGate", "PauseCollection", "ResumeCollection"];
    assert_eq!(refused, changes.map(str::to_owned).into());
}

#[tokio::test]
async fn with_read_only_no_action_changes_anything() {
    let bench = Bench::new(false).await;
    let deletion = json!({
        "group": "", "version": "v1", "resource": "pods", "namespace": "a", "name": "b", "uid": "u",
        "policy": "Background", "digest": "d",
    });
    let root = json!({ "group": "", "kind": "Pod", "namespace": "a", "name": "b" });
    for (path, body) in [
        ("delete", deletion),
        ("guards/pause", json!({ "namespaces": [], "kinds": [], "reason": "r", "lifetimeSeconds": 60 })),
        ("guards/create", json!({ "manifest": "", "dryRun": true })),
        ("guards/release", json!({ "name": "pauses/a" })),
        ("guards/approve", json!({ "approval": "approvals/a", "root": root, "digest": "d" })),
    ] {
        let answer = bench.send(bench.request(Method::POST, &format!("/console/{path}")), body.to_string()).await;
        assert_eq!(answer.status(), StatusCode::FORBIDDEN, "{path}");
        assert!(error(answer).await.contains("--read-only"));
    }
}

#[tokio::test]
async fn bodies_and_calls_have_bounds() {
    let bench = Bench::new(true).await;
    let large = vec![b' '; BODY_MAX_BYTES + 1];
    for request in [bench.call(CALL), bench.request(Method::POST, "/console/access")] {
        let answer = bench.send(request, large.clone()).await;
        assert_eq!(answer.status(), StatusCode::PAYLOAD_TOO_LARGE);
    }
    for bad in ["", "[]", "{", "{\"verb\":1}"] {
        let answer = bench.send(bench.request(Method::POST, "/console/access"), bad).await;
        assert_eq!(answer.status(), StatusCode::BAD_REQUEST, "{bad}");
    }
    let mut open = Vec::new();
    for _ in 0..CALLS_MAX {
        let answer = bench.send(bench.call(STREAM), "").await;
        assert_eq!(answer.status(), StatusCode::OK);
        open.push(answer);
    }
    let one_more = bench.send(bench.call(STREAM), "").await;
    assert_eq!(one_more.status(), StatusCode::TOO_MANY_REQUESTS);
    assert!(error(one_more).await.contains("close other tabs"));
    open.pop();
    assert_eq!(bench.send(bench.call(CALL), "").await.status(), StatusCode::OK, "a place is free again");
}

#[tokio::test]
async fn a_stream_goes_through_piece_by_piece() {
    let bench = Bench::new(true).await;
    let answer = bench.send(bench.call(STREAM), "").await;
    assert_eq!(answer.headers().get("grpc-status"), None, "{answer:?}");
    assert_eq!(answer.headers()[CONTENT_TYPE], "application/grpc-web+proto");
    let mut pieces = answer.into_body().into_data_stream();
    for number in 1..4_u8 {
        let message = Bytes::copy_from_slice(&[0, 0, 0, 0, 1, number]);
        bench.pieces.send(message.clone()).await.unwrap();
        // The next message does not exist yet, so this one is not held back for it.
        assert_eq!(pieces.next().await.unwrap().unwrap(), message);
    }
}

#[tokio::test]
async fn a_graph_service_that_is_away_is_a_status_of_the_call() {
    let mut bench = Bench::new(true).await;
    bench._served.shutdown().await;
    let answer = bench.send(bench.call(CALL), "").await;
    assert_eq!((answer.status(), &answer.headers()["grpc-status"]), (StatusCode::OK, &"14".parse().unwrap()));
    let session = bench.send(bench.request(Method::GET, "/console/session"), "").await;
    let body = session.into_body().collect().await.unwrap().to_bytes();
    let told: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!((&told["service"]["mode"], &told["context"]), (&json!("unreachable"), &json!("test")));
    assert_eq!(told["user"], "", "the API server does not say who the caller is");
}

#[tokio::test]
async fn methods_of_other_kinds_are_refused() {
    let bench = Bench::new(true).await;
    for (method, path) in
        [(Method::POST, "/"), (Method::PUT, "/a"), (Method::POST, "/console/session"), (Method::GET, "/console/delete")]
    {
        let answer = bench.send(bench.request(method, path), "").await;
        assert_eq!(answer.status(), StatusCode::METHOD_NOT_ALLOWED, "{path}");
    }
    let none =
        answer(&bench.site, bench.request(Method::POST, "/console/none").body(Empty::<Bytes>::new()).unwrap()).await;
    assert_eq!(none.status(), StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn the_page_answers_for_its_own_paths_and_says_how_it_is_built() {
    const FILES: &[(&str, &[u8])] = &[("assets/a.js", b"1"), ("index.html", b"page")];
    for (path, status, kind, body) in [
        ("/", 200, "text/html; charset=utf-8", "page"),
        ("/index.html", 200, "text/html; charset=utf-8", "page"),
        ("/objects/pods", 200, "text/html; charset=utf-8", "page"),
        ("/assets/a.js", 200, "text/javascript; charset=utf-8", "1"),
        ("/assets/b.js", 404, "text/plain; charset=utf-8", "the console has no such file\n"),
        ("/../Cargo.toml", 404, "text/plain; charset=utf-8", "the console has no such file\n"),
    ] {
        let answer = answer_of(FILES, path);
        assert_eq!(
            (answer.status().as_u16(), answer.headers()[CONTENT_TYPE].to_str().unwrap()),
            (status, kind),
            "{path}"
        );
        assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), body, "{path}");
    }
    let missing = answer_of(&[], "/").into_body().collect().await.unwrap().to_bytes();
    assert!(String::from_utf8_lossy(&missing).contains("npm ci &amp;&amp; npm run build"));
}
