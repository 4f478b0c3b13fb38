//! Bypasses of a gate, with an API server in memory that has one gate.

use super::*;
use bytes::Bytes;
use http::{Method, StatusCode};
use http_body_util::BodyExt as _;
use kube::client::Body;
use serde_json::{Value, json};
use std::collections::VecDeque;

const PATH: &str = "/apis/ownergraph.dev/v1alpha1/gates/production";
/// 2026-01-01T12:00:00Z.
const NOON: &str = "Thu, 01 Jan 2026 12:00:00 GMT";

/// The gate, what was written, and the answers to the next patches if they are not the usual one.
#[derive(Debug, Default)]
struct Server {
    gate: Value,
    written: Vec<Value>,
    unusual: VecDeque<StatusCode>,
    is_dateless: bool,
}

impl Server {
    fn answer(&mut self, method: &Method, path: &str, body: &[u8]) -> (StatusCode, Value) {
        if path != PATH || self.gate.is_null() {
            return (StatusCode::NOT_FOUND, json!({ "kind": "Status", "reason": "NotFound" }));
        }
        if *method != Method::PATCH {
            return (StatusCode::OK, self.gate.clone());
        }
        let patch: Value = serde_json::from_slice(body).unwrap();
        self.written.push(patch.clone());
        if let Some(unusual) = self.unusual.pop_front() {
            // Another client has replaced the gate.
            self.gate["metadata"]["uid"] = "uid-2".into();
            let message = "gates.ownergraph.dev \"production\" is forbidden: cannot patch";
            return (unusual, json!({ "kind": "Status", "apiVersion": "v1", "message": message }));
        }
        if patch["metadata"]["uid"] != self.gate["metadata"]["uid"] {
            return (StatusCode::CONFLICT, json!({ "kind": "Status", "message": "the uid differs" }));
        }
        self.gate["spec"]["bypass"] = patch["spec"]["bypass"].clone();
        self.gate["spec"]["bypass"].as_object_mut().unwrap().retain(|_, value| !value.is_null());
        (StatusCode::OK, self.gate.clone())
    }
}

struct Bypassing {
    service: Admin,
    server: Arc<Mutex<Server>>,
    _tasks: Tasks,
    _leadership: watch::Sender<Leadership>,
}

fn started() -> Bypassing {
    let gate = json!({
        "apiVersion": "ownergraph.dev/v1alpha1", "kind": "Gate",
        "metadata": { "name": "production", "uid": "uid-1", "resourceVersion": "7" },
        "spec": { "reason": "ask first", "stream": {}, "failurePolicy": "Deny", "maxHoldSeconds": 60, "afterMaxHold": "Deny" },
    });
    let server = Arc::new(Mutex::new(Server { gate, ..Server::default() }));
    let there = Arc::clone(&server);
    let api = tower::service_fn(move |request: http::Request<Body>| {
        let there = Arc::clone(&there);
        async move {
            let (head, body) = request.into_parts();
            let body: Bytes = body.collect().await.unwrap().to_bytes();
            let mut there = there.lock().unwrap();
            let (code, answer) = there.answer(&head.method, head.uri.path(), &body);
            let mut response = http::Response::builder().status(code).header("content-type", "application/json");
            if !there.is_dateless {
                response = response.header("date", NOON);
            }
            Ok::<_, std::io::Error>(response.body(Body::from(answer.to_string().into_bytes())).unwrap())
        }
    });
    let (leadership, known) = watch::channel(Leadership::default());
    let shared = shared(Leader::new(config(Mode::Observe), 7), DecisionLog::in_memory(), known);
    let (control, mut orders) = mpsc::channel(8);
    let mut tasks = Tasks::new();
    let reader = shared.reader.clone();
    tasks.spawn_until_end("driver", async move {
        while let Some(order) = orders.recv().await {
            match order {
                Control::Input(input) => reader.alter(|leader| leader.handle(Time::ZERO, input)),
                Control::Mark(handled) => handled.send(()).unwrap(),
                other => panic!("{other:?}"),
            }
        }
        Ok(())
    });
    let client = kube::Client::new(api, "default");
    let press = Press { mode: Mode::Enforce, client, control, reader: shared.reader.clone() };
    let (writers, followers) = Followers::new();
    tasks.spawn_until_end("stream writers", writers.run());
    Bypassing { service: Admin::new(shared, press, followers), server, _tasks: tasks, _leadership: leadership }
}

impl Bypassing {
    async fn bypass(&self, name: &str, seconds: i64, reason: &str) -> Result<proto::admin::v1beta1::Guard, Status> {
        let ttl = Some(prost_types::Duration { seconds, nanos: 0 });
        let request = BypassGateRequest { name: name.to_owned(), ttl, reason: reason.to_owned() };
        let answer = self.service.bypass_gate(Request::new(request)).await?.into_inner();
        assert!(answer.meta.is_some());
        Ok(answer.gate.unwrap())
    }

    fn server<T>(&self, act: impl FnOnce(&mut Server) -> T) -> T {
        act(&mut self.server.lock().unwrap())
    }
}

#[tokio::test]
async fn a_bypass_is_one_field_of_the_gate_that_was_read() {
    let world = started();
    let gate = world.bypass("gates/production", 600, "the engine\nhangs").await.unwrap();
    let bypass = json!({ "untilTime": "2026-01-01T12:10:00Z", "reason": "the engine\\nhangs", "by": null });
    let patch = json!({ "metadata": { "uid": "uid-1" }, "spec": { "bypass": bypass } });
    assert_eq!(world.server(|server| server.written.clone()), [patch]);
    assert_eq!(
        (gate.name.as_str(), gate.kind(), gate.reason.as_str()),
        ("gates/production", guard::Kind::Gate, "ask first")
    );
    let bypass = gate.gate.unwrap().bypass.unwrap();
    assert_eq!(bypass.expire_time.unwrap().to_string(), "2026-01-01T12:09:50Z", "ten seconds early");
    assert_eq!((bypass.reason.as_str(), bypass.actor.as_str()), ("the engine\\nhangs", ""));
    let known = world.service.shared.reader.with(|queries| queries.guards_of(GuardKind::Gate));
    assert!(matches!(&known[0].rule, Rule::Gate(gate) if gate.bypass == "the engine\\nhangs"), "{known:?}");
}

#[tokio::test]
async fn a_gate_that_was_replaced_is_read_again() {
    let world = started();
    world.server(|server| server.unusual = [StatusCode::CONFLICT].into());
    world.bypass("gates/production", 60, "why").await.unwrap();
    let uids =
        world.server(|server| server.written.iter().map(|patch| patch["metadata"]["uid"].clone()).collect::<Vec<_>>());
    assert_eq!(uids, ["uid-1", "uid-2"]);
    world.server(|server| server.unusual = [StatusCode::CONFLICT; 9].into());
    assert_eq!(reason(&world.bypass("gates/production", 60, "why").await.unwrap_err()), "API_SERVER_REFUSES");
    assert_eq!(world.server(|server| server.written.len()), 5, "attempts are bounded");
}

#[tokio::test]
async fn what_cannot_be_bypassed_is_refused_with_the_reason() {
    let world = started();
    for (name, seconds, why, expected) in [
        ("gates/other", 60, "why", (tonic::Code::NotFound, "GATE_NOT_FOUND")),
        ("production", 60, "why", (tonic::Code::InvalidArgument, "FIELD_INVALID")),
        ("gates/production", 0, "why", (tonic::Code::InvalidArgument, "FIELD_INVALID")),
        ("gates/production", 86_401, "why", (tonic::Code::InvalidArgument, "FIELD_INVALID")),
        ("gates/production", 60, "", (tonic::Code::InvalidArgument, "FIELD_INVALID")),
    ] {
        let refused = world.bypass(name, seconds, why).await.unwrap_err();
        assert_eq!((refused.code(), reason(&refused).as_str()), expected, "{name} {seconds} {why}");
        let violations = tonic_types::StatusExt::get_details_bad_request(&refused);
        assert_eq!(violations.is_some(), expected.1 == "FIELD_INVALID", "{refused:?}");
    }
    world.server(|server| server.is_dateless = true);
    let refused = world.bypass("gates/production", 60, "why").await.unwrap_err();
    assert!(refused.message().contains("has no date"), "{refused:?}");
    world.server(|server| server.is_dateless = false);
    assert_eq!(world.server(|server| server.written.len()), 0);
    world.server(|server| server.unusual = [StatusCode::FORBIDDEN].into());
    let refused = world.bypass("gates/production", 60, "why").await.unwrap_err();
    assert_eq!((refused.code(), reason(&refused).as_str()), (tonic::Code::Unavailable, "API_SERVER_REFUSES"));
    assert!(refused.message().contains("is forbidden: cannot patch"), "{refused:?}");
    world.server(|server| server.gate = Value::Null);
    assert_eq!(reason(&world.bypass("gates/production", 60, "why").await.unwrap_err()), "GATE_NOT_FOUND");
}
