//! A console for other users, over a socket: each request has the rights of its token, and of no other one.

use super::*;
use crate::kubectl::console::door::Door;
use crate::kubectl::console::others::without_credentials;
use crate::kubectl::console::server;
use crate::kubectl::flags::PublicUrl;
use axum::Json;
use axum::response::IntoResponse as _;
use axum::routing::{get, post};
use http::Uri;
use http::header::{ACCEPT, AUTHORIZATION, WWW_AUTHENTICATE};
use kube_api::{Access, Answer, Overrides, call};
use std::sync::Mutex;
use std::time::Duration;

const PAGE: &str = "https://console.example";
const REVIEW: &str = "/console/session";

/// The `authorization` headers that reached a server.
type Seen = Arc<Mutex<Vec<Option<String>>>>;

/// A console for other users, an API server and a graph service that know `tenant-a` and `tenant-b`.
struct Shared {
    http: Client,
    api: Seen,
    graph: Seen,
    /// Connections to the graph service.
    connections: Arc<AtomicUsize>,
    /// Whether the replica at the address of the console leads.
    leads: Arc<AtomicUsize>,
    _served: JoinSet<()>,
}

fn tenant(headers: &HeaderMap, seen: &Seen) -> Option<String> {
    let header = headers.get(AUTHORIZATION).map(|header| header.to_str().unwrap().to_owned());
    seen.lock().unwrap().push(header.clone());
    header.and_then(|header| header.strip_prefix("Bearer tenant-").map(str::to_owned))
}

/// More Events than a card shows, the oldest first. The newest one has all fields.
fn happened() -> Value {
    let event = |at: usize| json!({ "metadata": {}, "involvedObject": {}, "message": at.to_string(), "lastTimestamp": format!("2026-11-01T00:00:{at:02}Z") });
    let newest = json!({
        "metadata": {}, "involvedObject": {}, "type": "Warning", "reason": "CollectionHeld", "message": "held by protections/bank",
        "eventTime": "2026-11-01T00:00:30.000001Z", "reportingComponent": "ownergraph",
        "series": { "count": 4, "lastObservedTime": "2026-11-01T00:01:00.000001Z" },
    });
    (0..25).map(event).chain([newest]).collect()
}

/// A deployment that makes no progress, and says so at length.
fn deployment() -> Value {
    let condition = json!({ "type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded",
        "message": "é".repeat(300) });
    json!({ "metadata": { "uid": "u" }, "spec": { "replicas": 2 }, "status": { "conditions": [condition] } })
}

/// Says who the caller is, and that each tenant may do everything in the namespace of its name.
fn api(seen: Seen) -> axum::Router {
    let [who, may, events, deployments, secrets] = std::array::from_fn(|_| Arc::clone(&seen));
    let review = |status: Value| Json(json!({ "status": status })).into_response();
    let refused = || (StatusCode::UNAUTHORIZED, Json(json!({ "message": "Unauthorized" }))).into_response();
    let failed = |status: StatusCode, reason: &str, message: &str, details: Value| {
        let status_of = json!({
            "apiVersion": "v1", "kind": "Status", "reason": reason, "message": message, "details": details,
        });
        (status, Json(status_of)).into_response()
    };
    axum::Router::new()
        .route(
            "/apis/authentication.k8s.io/v1/selfsubjectreviews",
            post(async move |headers: HeaderMap| match tenant(&headers, &who) {
                Some(name) => review(json!({ "userInfo": { "username": name } })),
                None => refused(),
            }),
        )
        .route(
            "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
            post(async move |headers: HeaderMap, Json(asked): Json<Value>| match tenant(&headers, &may) {
                Some(name) => review(json!({ "allowed": asked["spec"]["resourceAttributes"]["namespace"] == name })),
                None => refused(),
            }),
        )
        .route(
            "/api/v1/namespaces/{namespace}/events",
            get(async move |headers: HeaderMap, uri: Uri| match tenant(&headers, &events) {
                Some(name) if uri.path().starts_with(&format!("/api/v1/namespaces/{name}/")) => {
                    let query = uri.query().unwrap();
                    assert!(query.starts_with("fieldSelector=involvedObject.uid%3Da%20b%26c&limit="), "{query}");
                    Json(json!({ "apiVersion": "v1", "kind": "EventList", "metadata": {}, "items": happened() }))
                        .into_response()
                }
                Some(_) => failed(StatusCode::FORBIDDEN, "Forbidden", "events is forbidden", Value::Null),
                None => refused(),
            }),
        )
        .route(
            "/apis/apps/v1/namespaces/{namespace}/deployments/{name}",
            get(async move |headers: HeaderMap, uri: Uri| {
                let Some(name) = tenant(&headers, &deployments) else { return refused() };
                match uri.path().strip_prefix(&format!("/apis/apps/v1/namespaces/{name}/deployments/")) {
                    Some("web") => Json(deployment()).into_response(),
                    Some("busy") => failed(StatusCode::SERVICE_UNAVAILABLE, "", "etcd is away", Value::Null),
                    Some(absent) => {
                        let details = json!({ "group": "apps", "kind": "deployments", "name": absent });
                        failed(StatusCode::NOT_FOUND, "NotFound", "not found", details)
                    }
                    None => failed(StatusCode::FORBIDDEN, "Forbidden", "deployments is forbidden", Value::Null),
                }
            }),
        )
        .route(
            "/api/v1/namespaces/a/secrets/key",
            get(async move |headers: HeaderMap| {
                assert_eq!(tenant(&headers, &secrets).as_deref(), Some("a"));
                assert!(headers[ACCEPT].to_str().unwrap().contains("PartialObjectMetadata"), "{headers:?}");
                Json(json!({ "metadata": { "uid": "u" } }))
            }),
        )
        .route("/version", get(async || "{}"))
}

/// Answers each tenant with its own name, as a message.
async fn graph_of(listener: TcpListener, seen: Seen, connections: Arc<AtomicUsize>, leader: Arc<Mutex<String>>) {
    let address = listener.local_addr().unwrap().to_string();
    let mut served = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        connections.fetch_add(1, Ordering::Relaxed);
        let (seen, leader, address) = (Arc::clone(&seen), Arc::clone(&leader), address.clone());
        let service = hyper::service::service_fn(move |request: Request<hyper::body::Incoming>| {
            let name = tenant(request.headers(), &seen);
            let elsewhere = Some(leader.lock().unwrap().clone()).filter(|leader| *leader != address);
            async move {
                request.into_body().collect().await.unwrap();
                let status = match (&name, elsewhere) {
                    (None, _) => Some(tonic::Status::unauthenticated("no such token")),
                    (Some(_), Some(leader)) => {
                        let metadata = HashMap::from([("leaderEndpoint".to_owned(), leader)]);
                        let details = ErrorDetails::with_error_info(text(ErrorReason::NotLeader), DOMAIN, metadata);
                        Some(tonic::Status::with_error_details(Code::Unavailable, "not now", details))
                    }
                    (Some(_), None) => None,
                };
                if let Some(status) = status {
                    return Ok::<_, Infallible>(status.into_http());
                }
                let fine = HeaderMap::from_iter([(HeaderName::from_static("grpc-status"), "0".parse().unwrap())]);
                let message = [&[0, 0, 0, 0, 1], name.unwrap().as_bytes()].concat();
                let body = Full::new(Bytes::from(message)).with_trailers(std::future::ready(Some(Ok(fine))));
                Ok(Response::builder().header(CONTENT_TYPE, "application/grpc").body(Body::new(body)).unwrap())
            }
        });
        served.spawn(async move {
            let server = http2::Builder::new(TokioExecutor::new());
            let _ended = server.serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

impl Shared {
    async fn start() -> Shared {
        let mut served = JoinSet::new();
        let (seen_api, seen_graph): (Seen, Seen) = Default::default();
        let (api_listener, api_address) = listen().await;
        let router = api(Arc::clone(&seen_api));
        served.spawn(async move { axum::serve(api_listener, router).await.unwrap() });
        let cluster = Cluster::without_credentials(format!("http://{api_address}").parse().unwrap()).unwrap();

        let connections = Arc::<AtomicUsize>::default();
        let (first, address) = listen().await;
        let (second, other) = listen().await;
        let leader = Arc::new(Mutex::new(address.to_string()));
        for listener in [first, second] {
            let seen = Arc::clone(&seen_graph);
            served.spawn(graph_of(listener, seen, Arc::clone(&connections), Arc::clone(&leader)));
        }
        let leads = Arc::new(AtomicUsize::new(1));
        let (watched, moved) = (Arc::clone(&leads), leader);
        served.spawn(async move {
            while watched.load(Ordering::Relaxed) == 1 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            *moved.lock().unwrap() = other.to_string();
        });

        let backend = Backend::new(session(cluster, Connection::to(address)), true);
        let (listener, address) = listen().await;
        let door = Door::public(&[PublicUrl::read(PAGE).unwrap()]);
        served.spawn(async move { server::serve(listener, Site::new(door, backend), None).await.unwrap() });
        let http = Cluster::without_credentials(format!("http://{address}").parse().unwrap()).unwrap().client;
        Shared { http, api: seen_api, graph: seen_graph, connections, leads, _served: served }
    }

    async fn send(&self, request: http::request::Builder, body: &[u8]) -> Answer {
        call(&self.http, request.body(body.to_vec()).unwrap(), 1 << 20, Duration::from_secs(20)).await.unwrap()
    }

    /// A request as the page makes it.
    fn request(method: Method, path: &str, token: &str) -> http::request::Builder {
        let request = Request::builder().method(method).uri(path).header(HOST, "console.example").header(ORIGIN, PAGE);
        if token.is_empty() { request } else { request.header(AUTHORIZATION, format!("Bearer {token}")) }
    }

    async fn call(&self, token: &str) -> Answer {
        let request = Shared::request(Method::POST, CALL, token).header(CONTENT_TYPE, "application/grpc-web+proto");
        self.send(request, &[0; 5]).await
    }

    async fn user(&self, token: &str) -> Value {
        let answer = self.send(Shared::request(Method::GET, REVIEW, token), b"").await;
        assert_eq!(answer.status, StatusCode::OK);
        let session: Value = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!((&session["login"], &session["service"]["mode"]), (&json!(true), &json!("service")));
        session["user"].clone()
    }

    fn reached(&self) -> (usize, usize) {
        (self.api.lock().unwrap().len(), self.graph.lock().unwrap().len())
    }
}

#[tokio::test]
async fn a_request_without_a_token_reaches_nothing() {
    let shared = Shared::start().await;
    assert_eq!(shared.user("tenant-a").await, "a");
    assert_eq!(shared.call("tenant-a").await.body[..6], *b"\0\0\0\0\x01a");
    let before = shared.reached();
    let actions = ["access", "events", "status", "delete", "guards/pause", "guards/create"]
        .map(|path| format!("/console/{path}"));
    for path in [REVIEW, CALL].into_iter().chain(actions.iter().map(String::as_str)) {
        for (name, value) in [
            ("x-none", ""),
            ("authorization", ""),
            ("authorization", "Basic dGVuYW50OmE="),
            ("x-ownergraph-token", "tenant-a"),
            ("cookie", "token=tenant-a"),
        ] {
            let request = Shared::request(Method::POST, path, "").header(name, value);
            let answer = shared.send(request, b"{}").await;
            assert_eq!(answer.status, StatusCode::UNAUTHORIZED, "{path} {name} {value}");
        }
    }
    assert_eq!(shared.reached(), before);
}

#[tokio::test]
async fn a_token_that_the_api_server_refuses_is_no_login() {
    let shared = Shared::start().await;
    let session = shared.send(Shared::request(Method::GET, REVIEW, "stranger"), b"").await;
    assert_eq!(session.status, StatusCode::UNAUTHORIZED);
    let asked = json!({ "verb": "get", "group": "", "resource": "pods", "namespace": "a", "name": "" }).to_string();
    let request = Shared::request(Method::POST, "/console/access", "stranger");
    assert_eq!(shared.send(request, asked.as_bytes()).await.status, StatusCode::UNAUTHORIZED);
    // The console itself has no rights, so a call is refused by the graph service.
    assert!(shared.call("stranger").await.body.is_empty());
    assert_eq!(shared.graph.lock().unwrap().as_slice(), [Some("Bearer stranger".to_owned())]);
}

#[tokio::test]
async fn events_are_those_that_the_caller_may_list_the_newest_first() {
    let shared = Shared::start().await;
    let ask = async |namespace: &str, uid: &str, token: &str| {
        let body = json!({ "namespace": namespace, "uid": uid }).to_string();
        let request = Shared::request(Method::POST, "/console/events", token);
        let answer = shared.send(request, body.as_bytes()).await;
        (answer.status, serde_json::from_slice::<Value>(&answer.body).unwrap())
    };
    let (status, told) = ask("a", "a b&c", "tenant-a").await;
    assert_eq!(status, StatusCode::OK, "{told}");
    let newest = json!({
        "type": "Warning", "reason": "CollectionHeld", "message": "held by protections/bank", "count": 4,
        "by": "ownergraph", "time": "2026-11-01T00:01:00.000001Z",
    });
    assert_eq!((&told["events"][0], &told["events"][1]["message"]), (&newest, &json!("24")));
    assert_eq!((told["events"].as_array().unwrap().len(), &told["more"]), (20, &json!(true)));
    let (status, told) = ask("a", "u", "tenant-b").await;
    assert_eq!(status, StatusCode::BAD_GATEWAY);
    assert!(told["error"].as_str().unwrap().contains("events is forbidden"), "{told}");
    assert_eq!(ask("a", "u", "stranger").await.0, StatusCode::UNAUTHORIZED);
    for (namespace, uid) in [("a/b", "u"), ("..", "u"), ("a", "")] {
        assert_eq!(ask(namespace, uid, "tenant-a").await.0, StatusCode::BAD_REQUEST, "{namespace} {uid}");
    }
}

#[tokio::test]
async fn a_status_is_that_of_the_object_that_was_shown_with_the_rights_of_the_caller() {
    let shared = Shared::start().await;
    let ask = async |object: Value, token: &str| {
        let request = Shared::request(Method::POST, "/console/status", token);
        let answer = shared.send(request, object.to_string().as_bytes()).await;
        (answer.status, serde_json::from_slice::<Value>(&answer.body).unwrap())
    };
    let of = |namespace: &str, name: &str, uid: &str| {
        json!({
            "group": "apps", "version": "v1", "resource": "deployments", "namespace": namespace, "name": name,
            "uid": uid,
        })
    };
    let told = |status: &str, message: &str| (StatusCode::OK, json!({ "status": status, "message": message }));
    let cut = format!("{}…", "é".repeat(256));
    assert_eq!(ask(of("a", "web", "u"), "tenant-a").await, told("Failed", &cut));
    let other = "another object has this name now: its uid is u";
    assert_eq!(ask(of("a", "web", "v"), "tenant-a").await, told("NotFound", other));
    let none = "the API server has no object of this name";
    assert_eq!(ask(of("a", "db", "u"), "tenant-a").await, told("NotFound", none));
    let denied = "you lack the right to get deployments.apps in namespace a";
    assert_eq!(ask(of("a", "web", "u"), "tenant-b").await, told("Unknown", denied));
    assert_eq!(ask(of("a", "web", "u"), "stranger").await.0, StatusCode::UNAUTHORIZED);
    let (status, said) = ask(of("a", "busy", "u"), "tenant-a").await;
    assert_eq!(status, StatusCode::BAD_GATEWAY);
    assert!(said["error"].as_str().unwrap().contains("etcd is away"), "{said}");
    let mut unserved = of("a", "web", "u");
    unserved["version"] = json!("v9");
    assert_eq!(ask(unserved, "tenant-a").await.0, StatusCode::BAD_GATEWAY);
    let secret = json!({
        "group": "", "version": "v1", "resource": "secrets", "namespace": "a", "name": "key", "uid": "u",
    });
    assert_eq!(ask(secret, "tenant-a").await, told("Current", ""));
    let before = shared.reached();
    for (field, value) in
        [("uid", ""), ("name", "web/scale"), ("name", ".."), ("name", ""), ("namespace", "a/b"), ("resource", "")]
    {
        let mut wrong = of("a", "web", "u");
        wrong[field] = json!(value);
        assert_eq!(ask(wrong, "tenant-a").await.0, StatusCode::BAD_REQUEST, "{field} {value}");
    }
    assert_eq!(shared.reached(), before);
}

#[tokio::test]
async fn a_snapshot_has_no_status() {
    let cluster = Cluster::without_credentials("http://127.0.0.1:1".parse().unwrap()).unwrap();
    let connection = Connection { from_file: Some("snapshot".into()), ..Connection::direct() };
    let site =
        Site::new(Door::public(&[PublicUrl::read(PAGE).unwrap()]), Backend::new(session(cluster, connection), true));
    let object = json!({
        "group": "", "version": "v1", "resource": "pods", "namespace": "a", "name": "b", "uid": "u",
    });
    let request = Shared::request(Method::POST, "/console/status", "tenant-a");
    let answer = answer(&site, request.body(Full::new(Bytes::from(object.to_string()))).unwrap()).await;
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    let told: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(told, json!({ "status": "Unknown", "message": "a snapshot has no status of objects" }));
}

#[tokio::test]
async fn each_request_has_the_rights_of_its_own_token() {
    let shared = Arc::new(Shared::start().await);
    let mut callers = JoinSet::new();
    for number in 0..40 {
        let (shared, name) = (Arc::clone(&shared), ["a", "b"][number % 2]);
        callers.spawn(async move {
            let token = format!("tenant-{name}");
            assert_eq!(shared.user(&token).await, name);
            let answer = shared.call(&token).await;
            assert_eq!(answer.body[..6], [&[0, 0, 0, 0, 1], name.as_bytes()].concat(), "{name}");
            for namespace in ["a", "b"] {
                let asked =
                    json!({ "verb": "get", "group": "", "resource": "pods", "namespace": namespace, "name": "" });
                let request = Shared::request(Method::POST, "/console/access", &token);
                let answer = shared.send(request, asked.to_string().as_bytes()).await;
                let told: Value = serde_json::from_slice(&answer.body).unwrap();
                assert_eq!(told["allowed"], json!(namespace == name), "{name} in {namespace}");
            }
        });
    }
    while let Some(done) = callers.join_next().await {
        done.unwrap();
    }
    // The connection is shared, and has no credentials of its own.
    assert_eq!(shared.connections.load(Ordering::Relaxed), 1);
    assert!(shared.api.lock().unwrap().iter().chain(shared.graph.lock().unwrap().iter()).all(Option::is_some));
    let (api, graph) = shared.reached();
    assert_eq!((api, graph), (40 * 3, 40));
}

#[tokio::test]
async fn a_console_for_others_has_its_own_hosts_and_origins() {
    let shared = Shared::start().await;
    let request = |method, host: &str, origin: Option<&str>| {
        let request = Request::builder().method(method).uri(REVIEW).header(HOST, host);
        let request = request.header(AUTHORIZATION, "Bearer tenant-a");
        origin.into_iter().fold(request, |request, origin| request.header(ORIGIN, origin))
    };
    let own = Some(PAGE);
    for (method, host, origin, status) in [
        (Method::GET, "console.example", own, 200),
        (Method::GET, "console.example", None, 200),
        (Method::GET, "localhost", own, 403),
        (Method::GET, "127.0.0.1", None, 403),
        (Method::GET, "console.example:8443", own, 403),
        (Method::GET, "console.example", Some("http://console.example"), 403),
        (Method::GET, "console.example", Some("https://evil.example"), 403),
        (Method::GET, "console.example", Some("null"), 403),
        (Method::POST, "console.example", own, 405),
        // A proxy that adds the token of a user adds it to the requests of other pages too.
        (Method::POST, "console.example", None, 403),
        (Method::POST, "console.example", Some("https://evil.example"), 403),
    ] {
        let answer = shared.send(request(method.clone(), host, origin), b"").await;
        assert_eq!(answer.status.as_u16(), status, "{method} {host} {origin:?}");
    }
    let probe = shared.send(Request::get("/livez").header(HOST, "10.0.0.7:8443"), b"").await;
    assert_eq!((probe.status, &*probe.body), (StatusCode::OK, b"ok\n".as_slice()));
}

#[tokio::test]
async fn a_refusal_asks_for_a_token_as_http_does() {
    let cluster = Cluster::without_credentials("http://127.0.0.1:1".parse().unwrap()).unwrap();
    let backend = Backend::new(session(cluster, Connection::direct()), true);
    let site = Site::new(Door::public(&[PublicUrl::read(PAGE).unwrap()]), backend);
    let request = Shared::request(Method::GET, REVIEW, "").body(Empty::<Bytes>::new()).unwrap();
    let refused = answer(&site, request).await;
    assert_eq!(
        (refused.status(), &refused.headers()[WWW_AUTHENTICATE]),
        (StatusCode::UNAUTHORIZED, &"Bearer".parse().unwrap())
    );
}

#[tokio::test]
async fn the_leader_that_a_replica_names_is_called_with_the_token_of_the_request() {
    let shared = Shared::start().await;
    assert_eq!(shared.call("tenant-a").await.body[..6], *b"\0\0\0\0\x01a");
    shared.leads.store(0, Ordering::Relaxed);
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(shared.call("tenant-a").await.body.is_empty(), "the replica names another one");
    let moved = shared.call("tenant-b").await;
    assert_eq!(moved.body[..6], *b"\0\0\0\0\x01b");
    assert_eq!(shared.connections.load(Ordering::Relaxed), 2);
    let last = shared.graph.lock().unwrap().last().cloned().unwrap();
    assert_eq!(last.as_deref(), Some("Bearer tenant-b"));
}

#[tokio::test]
async fn a_cluster_with_credentials_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let kubeconfig = directory.path().join("config");
    let config = |user: Value| {
        json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{ "name": "c", "cluster": { "server": "http://127.0.0.1:1" } }],
            "contexts": [{ "name": "c", "context": { "cluster": "c", "user": if user.is_null() { "" } else { "u" } } }],
            "users": if user.is_null() { json!([]) } else { json!([{ "name": "u", "user": user }]) },
        })
        .to_string()
    };
    let connection = Connection::direct();
    for (user, refused) in [
        (Value::Null, false),
        (json!({}), false),
        (json!({ "token": "secret" }), true),
        (json!({ "username": "a", "password": "b" }), true),
        (json!({ "as": "root" }), true),
    ] {
        std::fs::write(&kubeconfig, config(user.clone())).unwrap();
        let access = Access {
            kubeconfig: Some(kubeconfig.clone()),
            context: None,
            user_agent: "test".to_owned(),
            overrides: Overrides::default(),
        };
        let cluster = kube_api::connect(&access).await.unwrap();
        let checked = without_credentials(&cluster, &connection).await;
        assert_eq!(checked.is_err(), refused, "{user}: {checked:?}");
    }
}
