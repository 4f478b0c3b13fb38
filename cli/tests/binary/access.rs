//! Who may see what, and the way to the graph service through the API server: a sandbox behind a door that asks for
//! tokens and forwards ports.

use crate::process::{Http, Running, output, plugin, until};
use crate::questions::Said;
use axum::body::Body;
use axum::extract::Request;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::{Json, Router, middleware};
use futures::{SinkExt as _, StreamExt as _};
use http::{Method, StatusCode, header};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use std::net::{SocketAddr, TcpListener as Std};
use std::path::Path;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::Role;

/// The token of an administrator, who may read everything.
const ADMIN: &str = "admin-token";
/// A user without the right to read Secrets.
const VIEWER: &str = "viewer-token";
/// May see nothing of Pods, and so not find the graph service either.
const STRANGER: &str = "stranger-token";
/// May see one namespace only, and nothing that has none.
const TENANT: &str = "tenant-token";

/// A cluster with an authenticating proxy.
struct Door {
    address: SocketAddr,
    directory: TempDir,
    api: Http,
    _served: JoinSet<()>,
}

impl Door {
    async fn open() -> Door {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        // Tests set things up without a door.
        let inner = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let api = Http::at(&inner.local_addr().unwrap().to_string());
        let server = sandbox::Server::new(1);
        let guarded = Router::new().fallback_service(server.router()).layer(middleware::from_fn(guard));
        let mut served = JoinSet::new();
        served.spawn(async move { axum::serve(listener, guarded).await.unwrap() });
        served.spawn(async move { axum::serve(inner, server.router()).await.unwrap() });
        Door { address, directory: tempfile::tempdir().unwrap(), api, _served: served }
    }

    /// A kubeconfig whose user gets this token from a program, as those of cloud providers do.
    fn kubeconfig(&self, token: &str) -> String {
        let path = self.directory.path().join(token);
        let credential = json!({
            "apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": { "token": token },
        });
        let exec = json!({
            "apiVersion": "client.authentication.k8s.io/v1", "command": "/bin/sh", "interactiveMode": "Never",
            "args": ["-c", format!("echo '{credential}'")],
        });
        self.write(&path, json!({ "exec": exec }))
    }

    fn write(&self, path: &Path, user: Value) -> String {
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "prod",
            "clusters": [{ "name": "prod", "cluster": { "server": format!("http://{}", self.address) } }],
            "users": [{ "name": "me", "user": user }],
            "contexts": [{ "name": "prod", "context": { "cluster": "prod", "user": "me", "namespace": "default" } }],
        });
        std::fs::write(path, config.to_string()).unwrap();
        path.to_str().unwrap().to_owned()
    }

    async fn ask(&self, token: &str, arguments: &[&str]) -> Said {
        let kubeconfig = self.kubeconfig(token);
        let output = output(&mut plugin(&[arguments, &["--kubeconfig", &kubeconfig]].concat())).await;
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Said { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
    }

    async fn create(&self, path: &str, object: Value) -> Value {
        let answer = self.api.send(Method::POST, path, Some(object)).await;
        assert_eq!(answer.status, StatusCode::CREATED, "{answer:?}");
        serde_json::from_slice(&answer.body).unwrap()
    }

    /// A collector, and its simulated Pod.
    async fn collector(&self) -> Running {
        let free = Std::bind("127.0.0.1:0").unwrap();
        let listen = free.local_addr().unwrap();
        drop(free);
        let (kubeconfig, address) = (self.kubeconfig(ADMIN), listen.to_string());
        let flags = ["collect", "--kubeconfig", &kubeconfig, "--admin-listen", "127.0.0.1:0", "--listen", &address];
        let mut collector = Running::start(&[&flags[..], &["--mode", "observe", "--log-format", "json"]].concat());
        let line: Value = serde_json::from_str(&collector.logged("\"collecting\"").await).unwrap();
        let admin = Http::at(line["admin"].as_str().unwrap());
        until("the collector is ready", async || admin.text("/readyz").await.0 == StatusCode::OK).await;
        let labels = json!({ "app.kubernetes.io/name": "ownergraph", "app.kubernetes.io/component": "graph-service" });
        let ports = json!([{ "name": "grpc", "containerPort": listen.port() }]);
        let mut pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "graph-0", "labels": labels },
            "spec": { "containers": [{ "name": "graph", "image": "graph", "ports": ports }] },
        });
        const PODS: &str = "/api/v1/namespaces/kube-system/pods";
        let created = self.create(PODS, pod.clone()).await;
        pod["metadata"]["resourceVersion"] = created["metadata"]["resourceVersion"].clone();
        pod["status"] = json!({ "podIP": "127.0.0.1", "conditions": [{ "type": "Ready", "status": "True" }] });
        let answer = self.api.send(Method::PUT, &format!("{PODS}/graph-0/status"), Some(pod)).await;
        assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
        collector
    }
}

/// Lets in who may come in, and forwards ports.
async fn guard(request: Request, next: Next) -> Response {
    let token = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let token = token.and_then(|value| value.strip_prefix("Bearer ")).unwrap_or_default().to_owned();
    let path = request.uri().path().to_owned();
    let of = |resource: &str| path.split('/').any(|part| part == resource);
    match token.as_str() {
        ADMIN => {}
        VIEWER if !of("secrets") => {}
        STRANGER if !of("pods") => {}
        TENANT if path.contains("/namespaces/default/") || matches!(&*path, "/api" | "/apis") => {}
        VIEWER | STRANGER | TENANT => return refusal(StatusCode::FORBIDDEN, "forbidden: ask another user"),
        _ => return refusal(StatusCode::UNAUTHORIZED, "Unauthorized"),
    }
    if path.ends_with("/portforward") { forward(request) } else { next.run(request).await }
}

fn refusal(code: StatusCode, message: &str) -> Response {
    let reason = code.canonical_reason().unwrap_or_default().replace(' ', "");
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "reason": reason,
        "code": code.as_u16(),
    });
    (code, Json(status)).into_response()
}

/// The kubelet's part: a WebSocket with a channel for the bytes and one for errors, each with the port first.
fn forward(mut request: Request) -> Response {
    let query = request.uri().query().unwrap_or_default();
    let port: u16 = query.split('&').find_map(|pair| pair.strip_prefix("ports=")).unwrap().parse().unwrap();
    let accept = derive_accept_key(request.headers()["sec-websocket-key"].as_bytes());
    let upgrade = hyper::upgrade::on(&mut request);
    let relay = async move {
        let socket = TokioIo::new(upgrade.await.unwrap());
        let (mut out, mut from) = WebSocketStream::from_raw_socket(socket, Role::Server, None).await.split();
        let [low, high] = port.to_le_bytes();
        for channel in [0, 1] {
            out.send(Message::binary(vec![channel, low, high])).await.unwrap();
        }
        let (mut read, mut write) = TcpStream::connect(("127.0.0.1", port)).await.unwrap().into_split();
        let down = async {
            let mut buffer = vec![0; 16 << 10];
            while let Ok(count @ 1..) = read.read(&mut buffer).await {
                if out.send(Message::binary([&[0], &buffer[..count]].concat())).await.is_err() {
                    break;
                }
            }
        };
        let up = async {
            while let Some(Ok(Message::Binary(bytes))) = from.next().await {
                if bytes[0] == 0 && write.write_all(&bytes[1..]).await.is_err() {
                    break;
                }
            }
        };
        tokio::join!(down, up);
    };
    // The relay ends with the connection that carries it.
    #[expect(clippy::disallowed_methods, reason = "the door may outlive its test")]
    tokio::spawn(relay);
    let response = Response::builder().status(StatusCode::SWITCHING_PROTOCOLS);
    let response = response.header(header::CONNECTION, "Upgrade").header(header::UPGRADE, "websocket");
    let response =
        response.header("sec-websocket-accept", accept).header("sec-websocket-protocol", "v4.channel.k8s.io");
    response.body(Body::empty()).unwrap()
}

/// The note if the graph service publishes nothing.
const PLAINTEXT: &str = "note: ConfigMap kube-public/ownergraph does not exist; pod kube-system/graph-0 is asked in plaintext through the API server, without credentials\n";

const SECRETS: &str = "/api/v1/namespaces/default/secrets";

#[tokio::test]
async fn a_port_is_forwarded_to_the_graph_service_where_there_is_one() {
    let door = Door::open().await;
    let root = door.api.create("root", &[]).await;
    door.api.create("first", &[&root]).await;
    let here = door.ask(ADMIN, &["tree", "cm/root", "--no-status", "-o", "name"]).await;
    assert_eq!(here.stdout, "configmap/root\nconfigmap/first\n", "{}", here.stderr);
    assert!(here.stderr.starts_with("note: no ownergraph service in context \"prod\"; listing "), "{}", here.stderr);
    let unset = door.ask(ADMIN, &["decisions"]).await;
    assert!(unset.code == Some(1) && unset.stderr.contains("set --server"), "{}", unset.stderr);

    let collector = door.collector().await;
    until("the graph has seen both", async || {
        door.ask(ADMIN, &["tree", "cm/root", "--no-status", "-o", "name"]).await.stdout.lines().count() == 2
    })
    .await;
    let questions: [&[&str]; 5] =
        [&["why", "cm/first"], &["tree", "cm/root"], &["status"], &["queue", "-A"], &["version"]];
    for question in questions {
        let said = door.ask(ADMIN, question).await;
        let rest = said.stderr.strip_prefix(PLAINTEXT).unwrap_or_else(|| panic!("{question:?}: {}", said.stderr));
        assert!(
            said.code == Some(0) && ["", "note: nothing waits in any namespace\n"].contains(&rest),
            "{question:?}: {rest}"
        );
    }
    let elsewhere = door.ask(ADMIN, &["why", "cm/first", "--port-forward-namespace", "default"]).await;
    assert!(elsewhere.stderr.contains("no ownergraph service"), "{}", elsewhere.stderr);
    let stranger = door.ask(STRANGER, &["why", "cm/first"]).await;
    assert!(stranger.code == Some(0) && stranger.stdout.contains("ConfigMap default/root owns it"));
    assert!(stranger.stderr.contains("the graph service's pods cannot be listed"), "{}", stranger.stderr);
    assert_eq!(collector.terminate().await.code(), Some(0));
}

#[tokio::test]
async fn rights_in_one_namespace_are_enough_for_answers_about_it() {
    let door = Door::open().await;
    let root = door.api.create("root", &[]).await;
    let first = door.api.create("first", &[&root]).await;
    door.api.create("second", &[&first]).await;
    let cases: [(&[&str], i32, &str); 4] = [
        (&["tree", "cm/root", "-o", "name"], 0, "configmap/root\nconfigmap/first\nconfigmap/second\n"),
        (&["tree", "cm/root"], 0, "└─ConfigMap/second"),
        (&["why", "cm/first"], 0, "ConfigMap default/root owns it"),
        (&["plan", "delete", "cm/root"], 3, "delete     3  ConfigMap 3"),
    ];
    for (question, code, part) in cases {
        let said = door.ask(TENANT, question).await;
        assert_eq!(said.code, Some(code), "{question:?}: {}", said.stderr);
        assert!(said.stdout.contains(part), "{question:?}: {}", said.stdout);
        assert!(said.stderr.contains("are listed in namespace default only"), "{}", said.stderr);
        assert!(said.stderr.lines().all(|line| line.len() < 2_000 && !line.contains("Status {")), "{}", said.stderr);
    }
}

#[tokio::test]
async fn what_may_not_be_seen_is_said_and_makes_a_plan_uncertain() {
    let door = Door::open().await;
    let root = door.api.create("root", &[]).await;
    let metadata = json!({ "name": "hidden", "ownerReferences": [root] });
    door.create(SECRETS, json!({ "apiVersion": "v1", "kind": "Secret", "metadata": metadata })).await;
    for question in [&["tree", "cm/root"][..], &["check", "-A"], &["why", "cm/root"], &["export"]] {
        let said = door.ask(VIEWER, &[question, &["-o", "json"]].concat()).await;
        assert!(said.stderr.contains("secrets cannot be listed"), "{question:?}: {}", said.stderr);
        let document: Value = serde_json::from_str(&said.stdout).unwrap();
        let incomplete = document["status"]["incomplete"].as_array().unwrap();
        assert!(incomplete.iter().any(|what| what.as_str().unwrap().contains("secrets")), "{question:?}: {document}");
    }
    let plan = door.ask(VIEWER, &["plan", "delete", "cm/root"]).await;
    assert_eq!(plan.code, Some(3), "{}", plan.stderr);
    let certain = door.ask(ADMIN, &["plan", "delete", "cm/root"]).await;
    assert!(certain.code == Some(0) && certain.stdout.contains("Secret 1"), "{} {}", certain.stdout, certain.stderr);

    let collector = door.collector().await;
    until("the graph has seen the Secret", async || door.ask(ADMIN, &["why", "secret/hidden"]).await.code == Some(0))
        .await;
    let unread = door.ask(VIEWER, &["why", "secret/hidden", "-o", "json"]).await;
    assert!(
        unread.stderr.contains("Secret default/hidden cannot be read with these credentials (forbidden"),
        "{}",
        unread.stderr
    );
    assert!(unread.stdout.contains("VERDICT_KEPT") && unread.stdout.contains("cannot be read"), "{}", unread.stdout);
    let refused = door.ask("no-token", &["why", "cm/root"]).await;
    assert!(refused.code == Some(1) && refused.stderr.contains("Unauthorized"), "{}", refused.stderr);
    assert_eq!(collector.terminate().await.code(), Some(0));
}
