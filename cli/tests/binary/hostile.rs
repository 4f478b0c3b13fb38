//! Users choose the text in a cluster. No command writes this text in a form that controls a terminal or adds lines.

use crate::collect::Cluster;
use crate::process::{Http, Running, output, ownergraph, plugin, until};
use bytes::Bytes;
use futures::stream;
use http::{Method, Request, Response, StatusCode};
use http_body_util::StreamBody;
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message as _;
use prost_reflect::{DescriptorPool, DynamicMessage, FieldDescriptor, Kind, MessageDescriptor, Value};
use serde_json::json;
use std::collections::HashMap;
use std::convert::Infallible;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// Escape sequences of two kinds, a bell, a new line, a tab, DEL, C1, an override of direction, and a space without
/// width.
const HOSTILE: &str =
    "n\u{1b}[31m\u{1b}]0;t\u{7}\r\nFORGED \u{8}\t\u{7f}\u{9b}2J\u{85}\u{202e}\u{2066}\u{200b}\u{feff}系";
/// The fields without text. With text in them, the conversation would not begin or not end.
const EMPTY: [&str; 4] = ["next_page_token", "cluster_uid", "leader_endpoint", "reconnect_after"];
/// The number of elements of each list. Each element has another value of an enumeration.
const ELEMENTS: i32 = 40;
/// The maximum depth of nested messages.
const DEPTH_MAX: u32 = 6;

/// A graph service that sends hostile text in every field.
struct Hostile {
    address: String,
    _served: JoinSet<()>,
}

impl Hostile {
    async fn start() -> Hostile {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let pool = DescriptorPool::decode(proto::FILE_DESCRIPTOR_SET).unwrap();
        let mut served = JoinSet::new();
        served.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let pool = pool.clone();
                let answer = service_fn(move |request| {
                    let answer = answer(&pool, &request);
                    async move { Ok::<_, Infallible>(answer) }
                });
                let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                connections.spawn(async move {
                    // The client may disconnect in the middle.
                    let _left = builder.serve_connection(TokioIo::new(stream), answer).await;
                });
            }
        });
        Hostile { address, _served: served }
    }
}

type Answer = Response<StreamBody<stream::Iter<std::vec::IntoIter<Result<Frame<Bytes>, Infallible>>>>>;

fn answer(pool: &DescriptorPool, request: &Request<Incoming>) -> Answer {
    let (service, method) = request.uri().path().trim_start_matches('/').rsplit_once('/').unwrap();
    let service = pool.get_service_by_name(service).unwrap();
    let method = service.methods().find(|known| known.name() == method).unwrap();
    let output = method.output();
    let messages: Vec<DynamicMessage> = if method.is_server_streaming() {
        let oneof = output.oneofs().next().unwrap();
        let wanted = |name: &str| oneof.fields().find(|field| field.name() == name);
        ["header", "chunk", "footer", "reset", "gap", "batch", "bookmark"]
            .into_iter()
            .filter_map(wanted)
            .map(|field| {
                let mut message = filled(&output, 0, 0);
                oneof.fields().for_each(|other| message.clear_field(&other));
                message.set_field(&field, value(&field, 0, 0));
                message
            })
            .collect()
    } else {
        vec![filled(&output, 0, 0)]
    };
    let mut frames: Vec<Result<Frame<Bytes>, Infallible>> = messages
        .iter()
        .map(|message| {
            let bytes = message.encode_to_vec();
            let mut frame = vec![0];
            frame.extend(u32::try_from(bytes.len()).unwrap().to_be_bytes());
            frame.extend(bytes);
            Ok(Frame::data(Bytes::from(frame)))
        })
        .collect();
    let mut trailers = http::HeaderMap::new();
    trailers.insert("grpc-status", "0".parse().unwrap());
    frames.push(Ok(Frame::trailers(trailers)));
    let mut answer = Response::new(StreamBody::new(stream::iter(frames)));
    answer.headers_mut().insert("content-type", "application/grpc".parse().unwrap());
    answer
}

/// A message with something in every field.
fn filled(of: &MessageDescriptor, number: i32, depth: u32) -> DynamicMessage {
    let mut message = DynamicMessage::new(of.clone());
    if depth > DEPTH_MAX {
        return message;
    }
    for field in of.fields().filter(|field| !EMPTY.contains(&field.name())) {
        let value = if field.is_list() {
            // Long lists only where a row each is made of them.
            let elements = if depth == 0 { ELEMENTS } else { 2 };
            Value::List((0..elements).map(|element| value(&field, element, depth)).collect())
        } else if field.is_map() {
            let Kind::Message(entry) = field.kind() else { panic!("a map has entries: {field:?}") };
            let one = value(&entry.map_entry_value_field(), number, depth);
            Value::Map(HashMap::from([(prost_reflect::MapKey::String(HOSTILE.to_owned()), one)]))
        } else {
            value(&field, number, depth)
        };
        message.set_field(&field, value);
    }
    message
}

fn value(field: &FieldDescriptor, number: i32, depth: u32) -> Value {
    match field.kind() {
        Kind::String => Value::String(format!("{HOSTILE}{number}")),
        Kind::Bytes => Value::Bytes(Bytes::new()),
        // Some answers leave out expired guards.
        Kind::Bool if field.name() == "expired" => Value::Bool(number % 2 == 0),
        Kind::Bool => Value::Bool(true),
        Kind::Message(of) if of.full_name().starts_with("google.protobuf.") => {
            let mut time = DynamicMessage::new(of.clone());
            if let Some(seconds) = of.get_field_by_name("seconds") {
                time.set_field(&seconds, Value::I64(1));
            }
            Value::Message(time)
        }
        Kind::Message(of) => Value::Message(filled(&of, number, depth + 1)),
        // A role of 1 leads, and every other value is met along a list.
        Kind::Enum(_) if field.name() == "role" => Value::EnumNumber(1),
        Kind::Enum(of) => Value::EnumNumber(number.rem_euclid(i32::try_from(of.values().len()).unwrap())),
        Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => Value::I32(1),
        Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => Value::I64(1),
        Kind::Uint32 | Kind::Fixed32 => Value::U32(1),
        Kind::Uint64 | Kind::Fixed64 => Value::U64(1),
        Kind::Float => Value::F32(1.0),
        Kind::Double => Value::F64(1.0),
    }
}

/// Checks what a command wrote. `colours` are wanted.
fn check(what: &str, bytes: &[u8], colours: bool) {
    let mut text = String::from_utf8(bytes.to_vec()).unwrap_or_else(|_| panic!("{what} writes what is no UTF-8"));
    if colours {
        assert!(!text.contains("\u{1b}[31mFORGED") && !text.contains("n\u{1b}[31m"), "{what}: {text:?}");
        text = anstream::adapter::strip_str(&text).to_string();
    }
    let acts = |character: &char| *character != '\n' && !runtime::visible::is_harmless(*character);
    if let Some(character) = text.chars().find(acts) {
        panic!("{what} writes {character:?}: {text:?}");
    }
    assert!(!text.lines().any(|line| line.trim_start().starts_with("FORGED")), "{what} lets a line be forged: {text}");
}

#[tokio::test]
async fn no_command_writes_what_acts_on_a_terminal() {
    let cluster = Cluster::start().await;
    cluster.api.create("root", &[]).await;
    cluster.api.create("leaf", &[]).await;
    let service = Hostile::start().await;
    let questions: [&[&str]; 39] = [
        &["tree", "cm/root"],
        &["tree", "cm/root", "--both", "--no-fold"],
        &["tree", "cm/root", "-o", "wide"],
        &["tree", "cm/root", "-o", "table"],
        &["tree", "cm/root", "-o", "name"],
        &["tree", "cm/root", "-o", "dot"],
        &["tree", "cm/root", "-o", "mermaid"],
        &["tree", "cm/root", "-o", "ndjson"],
        &["tree", "cm/root", "-o", "json"],
        &["tree", "cm/root", "-o", "yaml"],
        &["tree", "cm/root", "-o", "jsonpath={.root.ref.name}"],
        &["owners", "cm/root"],
        &["path", "cm/root", "cm/leaf"],
        &["why", "cm/root"],
        &["why", "cm/root", "-o", "yaml"],
        &["plan", "delete", "cm/root"],
        &["plan", "delete", "cm/root", "-o", "name"],
        &["plan", "delete", "cm/root", "-o", "json"],
        &["delete", "cm/root", "--confirm", "x"],
        &["stuck"],
        &["check"],
        &["cycles"],
        &["orphans"],
        &["orphans", "--dangling"],
        &["decisions"],
        &["decisions", "-o", "wide", "--oldest"],
        &["parity"],
        &["parity", "-o", "html"],
        &["parity", "-o", "yaml"],
        &["queue", "--by", "root"],
        &["queue", "--by", "namespace"],
        &["status"],
        &["status", "-o", "json"],
        &["gates"],
        &["gates", "-o", "wide"],
        &["gates", "-o", "yaml"],
        &["approve"],
        &["approve", "-o", "name"],
        &["version"],
    ];
    let pausing: [&[&str]; 5] = [
        &["pause", "--all", "--for", "1m", "--reason", "r"],
        &["pause", "--all", "--for", "1m", "--reason", "r", "-o", "json"],
        &["pause", "--all", "--for", "1m", "--reason", "r", "-o", "name"],
        &["resume", "--all"],
        &["resume", "x"],
    ];
    for arguments in questions.iter().chain(&pausing) {
        let way = ["--kubeconfig", &cluster.kubeconfig, "--server", &service.address, "--request-timeout", "20s"];
        let all = [arguments, &way[..]].concat();
        let said = output(&mut plugin(&all)).await;
        let what = format!("{arguments:?}, to stdout,");
        check(&what, &said.stdout, false);
        check(&format!("{arguments:?}, to stderr,"), &said.stderr, false);
        let seen = [&said.stdout[..], &said.stderr[..]].concat();
        let seen = String::from_utf8_lossy(&seen).into_owned();
        assert!(!matches!(said.status.code(), None | Some(101)), "{arguments:?}: {seen}");
        let shows = seen.contains('系') || arguments[0] == "resume";
        assert!(shows, "{arguments:?} shows nothing of it: {seen}");
        if arguments[0] != "resume" {
            let coloured = output(&mut plugin(&[&all[..], &["--color", "always"]].concat())).await;
            check(&what, &coloured.stdout, true);
        }
    }
    let way = ["--kubeconfig", &cluster.kubeconfig, "--server", &service.address];
    for format in ["tree", "ndjson"] {
        let mut tree = Running::of(plugin(&[&["tree", "cm/root", "--watch", "-o", format], &way[..]].concat()));
        for _ in 0..4 {
            check("tree --watch", tree.said("系").await.as_bytes(), false);
        }
    }
    for format in ["table", "ndjson", "json"] {
        let all = [&["progress", "cm/root", "--timeout", "1s", "-o", format], &way[..]].concat();
        let said = output(&mut plugin(&all)).await;
        let seen = [&said.stdout[..], &said.stderr[..]].concat();
        check(&format!("{all:?}"), &seen, false);
        assert!(String::from_utf8_lossy(&seen).contains('系'), "{all:?}: {}", String::from_utf8_lossy(&seen));
    }
}

#[tokio::test]
async fn no_command_and_no_log_passes_on_what_stands_in_the_cluster() {
    let cluster = Cluster::start().await;
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let server = free.local_addr().unwrap().to_string();
    drop(free);
    let mut arguments = vec!["collect", "--kubeconfig", &cluster.kubeconfig, "--admin-listen", "127.0.0.1:0"];
    arguments.extend(["--listen", &server, "--log-level", "debug"]);
    let mut collector = Running::of(ownergraph(&arguments));
    let line = collector.logged("collecting").await;
    let admin = line.split("admin=").nth(1).unwrap().split(' ').next().unwrap().to_owned();
    let ((), lines) =
        collector.checked_until(|line| check("the log", line.as_bytes(), false), ask(&cluster, &server, &admin)).await;
    assert!(lines > 0, "the log says nothing");
    assert_eq!(collector.terminate().await.code(), Some(0));
}

/// Puts hostile objects into the cluster, and asks everything about them.
async fn ask(cluster: &Cluster, server: &str, admin: &str) {
    let admin = Http::at(admin);
    until("the collector is ready", async || admin.text("/readyz").await.0 == StatusCode::OK).await;
    let owner =
        |kind: &str, version: &str| json!({ "apiVersion": version, "kind": kind, "name": HOSTILE, "uid": HOSTILE });
    for (name, owner) in [("innocent", owner("ConfigMap", "v1")), ("unserved", owner(HOSTILE, HOSTILE))] {
        let metadata = json!({ "name": name, "ownerReferences": [owner], "finalizers": ["example.com/x"] });
        let body = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata });
        let made = cluster.api.send(Method::POST, "/api/v1/namespaces/default/configmaps", Some(body)).await;
        assert_eq!(made.status, StatusCode::CREATED, "{}", String::from_utf8_lossy(&made.body));
    }
    until("the graph has seen it", async || {
        let way = ["why", "cm/unserved", "--kubeconfig", &cluster.kubeconfig, "--server", server];
        let said = output(&mut plugin(&way)).await;
        String::from_utf8(said.stdout).unwrap().contains('系')
    })
    .await;
    let questions: [&[&str]; 9] = [
        &["check"],
        &["why", "cm/innocent"],
        &["owners", "cm/innocent", "--no-status"],
        &["plan", "delete", "cm/innocent"],
        &["stuck", "--older-than", "1s"],
        &["decisions"],
        &["orphans", "--dangling"],
        &["status"],
        &["export", "-o", "json"],
    ];
    for arguments in questions {
        let way = ["--kubeconfig", &cluster.kubeconfig, "--server", server];
        let said = output(&mut plugin(&[arguments, &way[..]].concat())).await;
        check(&format!("{arguments:?}"), &said.stdout, false);
        check(&format!("{arguments:?}"), &said.stderr, false);
    }
    for page in ["/readyz?verbose", "/debug/graph", "/metrics"] {
        check(page, admin.text(page).await.1.as_bytes(), false);
    }
}
