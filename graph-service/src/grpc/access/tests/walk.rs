//! Calls every RPC anonymously, as a tenant, as an executor and as an administrator, over the whole service. A new RPC
//! without a row fails the test.

use super::*;
use crate::Access;
use crate::grpc::rights::{Needs, TABLE};
use crate::grpc::small_world::reason;
use crate::grpc::tests::{CLUSTER, Dial, hello, with_service_at};
use bytes::{Buf as _, BufMut as _, Bytes};
use engine::work::ToLeader;
use http_body_util::BodyExt as _;
use kube::client::Body;
use kube_api::Cluster;
use prost::Message;
use proto::admin::v1beta1::{BypassGateRequest, GetPauseRequest, PauseCollectionRequest, ResumeCollectionRequest};
use proto::decision::v1beta1::stream_verdicts_request::{Hello, Message as FromEngine};
use proto::decision::v1beta1::{
    DecisionFilter, GetDecisionRequest, ListDecisionsRequest, ListDisagreementsRequest, StreamVerdictsRequest,
    WatchDecisionsRequest,
};
use proto::graph::v1beta1::*;
use proto::r#type::v1beta1::{ObjectFilter, ObjectRef};
use proto::work::v1beta1::StreamWorkRequest;
use runtime::tls::{Peer, PeerCertificate};
use serde_json::{Value, json};
use std::fmt::Write as _;
use tonic::client::Grpc;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::{Code, Request};

/// The only namespace that the tenant may see.
const OWN: &str = "shop";
const FOREIGN: &str = "bank";

/// Undecoded messages.
#[derive(Clone, Copy, Default)]
struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Raw;
    type Decoder = Raw;

    fn encoder(&mut self) -> Raw {
        Raw
    }

    fn decoder(&mut self) -> Raw {
        Raw
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put(item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(buffer.copy_to_bytes(buffer.remaining())))
    }
}

/// A caller.
struct Caller {
    dial: Dial,
    token: Option<&'static str>,
}

impl Caller {
    /// The beginning of a call: a message or a regular end, or an error. On a stream, only the first message is sent.
    async fn call(&self, rpc: &str, message: &[u8]) -> Result<(), Status> {
        let mut client = Grpc::new(self.dial.channel().await);
        client.ready().await.unwrap();
        // The request stream stays open, like that of an executor.
        let messages = futures::StreamExt::chain(
            futures::stream::iter([Bytes::copy_from_slice(message)]),
            futures::stream::pending(),
        );
        let is_bidi = ["StreamWork", "StreamVerdicts", "ServerReflectionInfo"].iter().any(|bidi| rpc.ends_with(bidi));
        let limited = futures::StreamExt::take(messages, if is_bidi { 2 } else { 1 });
        let mut request = Request::new(limited);
        if let Some(token) = self.token {
            request.metadata_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
        }
        let path = http::uri::PathAndQuery::try_from(format!("/{rpc}")).unwrap();
        let mut answers = client.streaming(request, path, Raw).await?.into_inner();
        answers.message().await.map(|_first| ())
    }
}

/// Messages of a call about the tenant's namespace and about another one, and the expected code.
struct Sample {
    own: Vec<u8>,
    foreign: Vec<u8>,
    tenant: Code,
    executor: Code,
    admin: Code,
}

/// A sample about objects or decisions in a namespace.
fn placed<M: Message>(found: Code, message: impl Fn(&str) -> M) -> Sample {
    let [own, foreign] = [OWN, FOREIGN].map(|namespace| message(namespace).encode_to_vec());
    Sample { own, foreign, tenant: found, executor: Code::PermissionDenied, admin: found }
}

/// A sample for administrators.
fn whole(found: Code, message: &impl Message) -> Sample {
    let own = message.encode_to_vec();
    let foreign = own.clone();
    Sample { own, foreign, tenant: Code::PermissionDenied, executor: Code::PermissionDenied, admin: found }
}

fn sample(rpc: &str) -> Sample {
    let named = |namespace: &str| {
        let (kind, name, namespace) = ("Secret".to_owned(), "one".to_owned(), namespace.to_owned());
        Some(ObjectRef { kind, name, namespace, ..Default::default() })
    };
    let known = |namespace: &str| {
        vec![ObjectRef { uid: "u".to_owned(), namespace: namespace.to_owned(), ..Default::default() }]
    };
    let within = |namespace: &str| vec![ObjectFilter { namespaces: vec![namespace.to_owned()], ..Default::default() }];
    let about = |namespace: &str| vec![DecisionFilter { targets: within(namespace), ..Default::default() }];
    let (_, method) = rpc.split_once('/').unwrap();
    match method {
        "StreamWork" => {
            let hello = StreamWorkRequest::from(ToLeader::Hello(hello("executor-0")));
            Sample { executor: Code::Ok, ..whole(Code::Ok, &hello) }
        }
        "GetObject" => placed(Code::NotFound, |at| GetObjectRequest { r#ref: named(at), ..Default::default() }),
        "BatchGetObjects" => placed(Code::Ok, |at| BatchGetObjectsRequest { refs: known(at), ..Default::default() }),
        "ExplainObject" => placed(Code::NotFound, |at| ExplainObjectRequest { r#ref: named(at), ..Default::default() }),
        "ListDependents" => {
            placed(Code::NotFound, |at| ListDependentsRequest { r#ref: named(at), ..Default::default() })
        }
        "ListOwners" => placed(Code::NotFound, |at| ListOwnersRequest { r#ref: named(at), ..Default::default() }),
        "PreviewDeletion" => placed(Code::Ok, |at| PreviewDeletionRequest { targets: known(at), ..Default::default() }),
        "FindStuckObjects" => {
            placed(Code::Ok, |at| FindStuckObjectsRequest { include: within(at), ..Default::default() })
        }
        "FindCycles" => placed(Code::Ok, |at| FindCyclesRequest { include: within(at), ..Default::default() }),
        "ExportGraph" => placed(Code::Ok, |at| ExportGraphRequest { include: within(at), ..Default::default() }),
        "WatchDependents" => {
            placed(Code::Ok, |at| WatchDependentsRequest { include: within(at), ..Default::default() })
        }
        "ListDecisions" => placed(Code::Ok, |at| ListDecisionsRequest { include: about(at), ..Default::default() }),
        "GetParity" => whole(Code::FailedPrecondition, &()),
        "ListDisagreements" => {
            placed(Code::FailedPrecondition, |at| ListDisagreementsRequest { include: about(at), ..Default::default() })
        }
        "StreamVerdicts" => whole(
            Code::NotFound,
            &StreamVerdictsRequest {
                message: Some(FromEngine::Hello(Hello {
                    gate: "production".to_owned(),
                    min_protocol: 1,
                    max_protocol: 1,
                    ..Default::default()
                })),
            },
        ),
        "WatchDecisions" => placed(Code::Ok, |at| WatchDecisionsRequest { include: about(at), ..Default::default() }),
        "GetDecision" => whole(Code::NotFound, &GetDecisionRequest { decision_id: "d".to_owned(), before: None }),
        "WaitForFreshness" | "ListCoverage" | "GetStatus" | "WatchStatus" | "ListExecutors" | "ListPauses"
        | "ListGuards" | "ExportBundle" => whole(Code::Ok, &()),
        "PauseCollection" => {
            let ttl = Some(prost_types::Duration { seconds: 60, nanos: 0 });
            // The definition of pauses is not installed.
            let press = PauseCollectionRequest { reason: "why".to_owned(), ttl, ..Default::default() };
            whole(Code::FailedPrecondition, &press)
        }
        "BypassGate" => {
            let (name, ttl) = ("gates/production".to_owned(), Some(prost_types::Duration { seconds: 60, nanos: 0 }));
            whole(Code::NotFound, &BypassGateRequest { name, ttl, reason: "why".to_owned() })
        }
        "GetPause" => whole(Code::NotFound, &GetPauseRequest { name: "pauses/x".to_owned() }),
        "ResumeCollection" => whole(Code::FailedPrecondition, &ResumeCollectionRequest { name: "pauses/x".to_owned() }),
        // Reflection answers an empty request with an error message, and the stream continues.
        "Check" | "Watch" | "ServerReflectionInfo" => {
            Sample { tenant: Code::Ok, executor: Code::Ok, ..whole(Code::Ok, &()) }
        }
        other => panic!("{other} has no row here: who may call it, and what comes of that?"),
    }
}

/// Every RPC in the descriptors of reflection, and of the other services.
fn rpcs() -> Vec<String> {
    let sets = [
        proto::FILE_DESCRIPTOR_SET,
        tonic_health::pb::FILE_DESCRIPTOR_SET,
        tonic_reflection::pb::v1::FILE_DESCRIPTOR_SET,
        tonic_reflection::pb::v1alpha::FILE_DESCRIPTOR_SET,
    ];
    let mut all = Vec::new();
    for set in sets {
        for file in prost_types::FileDescriptorSet::decode(set).unwrap().file {
            for service in &file.service {
                let name = |method: &prost_types::MethodDescriptorProto| {
                    format!("{}.{}/{}", file.package(), service.name(), method.name())
                };
                all.extend(service.method.iter().map(name));
            }
        }
    }
    all.sort();
    all
}

/// The API server: tokens and rights.
async fn answer(request: http::Request<Body>) -> (u16, Value) {
    let (head, body) = request.into_parts();
    let body: Value = serde_json::from_slice(&body.collect().await.unwrap().to_bytes()).unwrap_or_default();
    let spec = &body["spec"];
    match head.uri.path() {
        "/api/v1/namespaces/kube-system" => {
            (200, json!({"kind": "Namespace", "apiVersion": "v1", "metadata": {"uid": CLUSTER}}))
        }
        "/apis/authentication.k8s.io/v1/tokenreviews" => {
            let (token, audiences) = (spec["token"].as_str().unwrap(), &spec["audiences"]);
            let pod = json!({"authentication.kubernetes.io/pod-name": ["executor-0"]});
            let user = match token {
                "tenant" => json!({"username": "tenant", "groups": ["system:authenticated"]}),
                "executor" => json!({"username": "executor", "extra": pod}),
                _ => return (201, json!({"status": {"error": "invalid bearer token"}})),
            };
            (201, json!({"status": {"authenticated": true, "user": user, "audiences": audiences}}))
        }
        "/apis/authorization.k8s.io/v1/subjectaccessreviews" => {
            let asked = &spec["resourceAttributes"];
            assert_eq!(asked["group"], "ownergraph.dev");
            let text = |field: &str| asked[field].as_str().unwrap();
            let allowed = match spec["user"].as_str().unwrap() {
                "tenant" => ["graphobjects", "decisions"].contains(&text("resource")) && text("namespace") == OWN,
                "executor" => (text("verb"), text("resource")) == ("lease", "workitems"),
                "admin" => spec["groups"] == json!(["admins", "system:authenticated"]),
                _ => false,
            };
            (201, json!({"status": {"allowed": allowed}}))
        }
        _ => (404, Value::Null),
    }
}

fn cluster() -> Cluster {
    let service = tower::service_fn(|request: http::Request<Body>| async move {
        let (code, body) = answer(request).await;
        let (content_type, body) = if body.is_null() {
            ("text/plain", "404 page not found\n".to_owned())
        } else {
            ("application/json", body.to_string())
        };
        let response = http::Response::builder().status(code).header("content-type", content_type);
        Ok::<_, std::io::Error>(response.body(Body::from(body.into_bytes())).unwrap())
    });
    Cluster::of_client(kube::Client::new(service, "default"), "test")
}

async fn with_callers(story: impl AsyncFnOnce([Caller; 4])) {
    let access = Access::Reviewed(reviewed());
    with_service_at(cluster(), access, async |dial| {
        let not_after = Instant::now() + Duration::from_secs(100_000);
        let certificate = PeerCertificate { user: "admin".to_owned(), groups: vec!["admins".to_owned()], not_after };
        let by_certificate = dial.by(Peer::Tls(Some(Arc::new(certificate))));
        let by = |token| Caller { dial: dial.by(Peer::Tls(None)), token };
        let callers =
            [by(None), by(Some("tenant")), by(Some("executor")), Caller { dial: by_certificate, token: None }];
        story(callers).await;
    })
    .await;
}

fn code(answer: &Result<(), Status>) -> Code {
    answer.as_ref().err().map_or(Code::Ok, Status::code)
}

#[tokio::test(start_paused = true)]
async fn every_rpc_is_for_whom_it_is_for() {
    with_callers(async |[nobody, tenant, executor, admin]| {
        for rpc in rpcs() {
            let Sample { own, foreign, tenant: found, executor: worked, admin: all } = sample(&rpc);
            let row = TABLE.iter().find(|row| row.rpc == rpc).unwrap_or_else(|| panic!("{rpc} has no right"));
            let is_open = row.needs == Needs::Nothing;
            let unknown = if is_open { all } else { Code::Unauthenticated };
            let elsewhere = if is_open { all } else { Code::PermissionDenied };
            for (who, caller, message, expected) in [
                ("nobody", &nobody, &own, unknown),
                ("tenant", &tenant, &own, found),
                ("tenant elsewhere", &tenant, &foreign, elsewhere),
                ("executor", &executor, &own, worked),
                ("admin", &admin, &own, all),
                ("admin elsewhere", &admin, &foreign, all),
            ] {
                if rpc.ends_with("StreamWork") {
                    // The name belongs to another caller until the session of that caller has ended.
                    tokio::time::sleep(Duration::from_secs(30)).await;
                }
                let answer = caller.call(&rpc, message).await;
                assert_eq!(code(&answer), expected, "{rpc} as {who}: {answer:?}");
                if let Err(status) = answer {
                    assert!(!reason(&status).is_empty(), "{rpc} as {who}: {status:?}");
                }
            }
        }
        for caller in [&nobody, &admin] {
            let unknown = caller.call("ownergraph.graph.v1beta1.GraphService/Unheard", &[]).await;
            assert_eq!(code(&unknown), Code::Unimplemented);
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_executor_by_another_name_than_its_pods_is_refused() {
    with_callers(async |[_, _, executor, _]| {
        let hello = StreamWorkRequest::from(ToLeader::Hello(hello("executor-1")));
        let refused =
            executor.call("ownergraph.work.v1beta1.WorkService/StreamWork", &hello.encode_to_vec()).await.unwrap_err();
        assert_eq!((refused.code(), reason(&refused).as_str()), (Code::PermissionDenied, "EXECUTOR_MISMATCH"));
    })
    .await;
}

#[test]
fn the_table_has_every_rpc_once_and_no_other() {
    let mut table: Vec<&str> = TABLE.iter().map(|row| row.rpc).collect();
    table.sort_unstable();
    assert_eq!(table, rpcs());
}

#[test]
fn the_page_about_access_has_the_table() {
    let mut rows = String::from("| Call | Verb | Resource | Where |\n|---|---|---|---|\n");
    for row in TABLE {
        let rpc = row.rpc.rsplit('.').next().unwrap();
        let (verb, resource, place) = match row.needs {
            Needs::Nothing => ("-", "-", "every client"),
            Needs::Everywhere(right) => (right.verb, right.resource, "all namespaces"),
            Needs::ByNamespace(right) => (right.verb, right.resource, "each namespace"),
            Needs::ByName(right) => (right.verb, right.resource, "the named object"),
        };
        writeln!(rows, "| {rpc} | {verb} | {resource} | {place} |").unwrap();
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/access.md");
    let page = std::fs::read_to_string(path).unwrap();
    assert!(page.contains(&rows), "docs/access.md lacks:\n{rows}");
}
