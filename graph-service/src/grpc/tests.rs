//! The whole service over pipes in memory, with a gRPC client and a small API server.

use crate::{Access, Config, Connection, Edges, Election, Incoming, ReaderThreads, serve};
use engine::leader::Mode;
use engine::work::{ActionKind, Hello, Origin, PROTOCOL, Term, ToExecutor, ToLeader};
use futures::StreamExt as _;
use http::{Request as HttpRequest, Response as HttpResponse, StatusCode};
use hyper_util::rt::TokioIo;
use kube::Client;
use kube::client::Body;
use kube_api::Cluster;
use proto::admin::v1beta1::GetStatusRequest;
use proto::admin::v1beta1::admin_service_client::AdminServiceClient;
use proto::convert::received_from_leader;
use proto::decision::v1beta1::decision_service_client::DecisionServiceClient;
use proto::decision::v1beta1::watch_decisions_request::Start;
use proto::decision::v1beta1::watch_decisions_response::Event;
use proto::decision::v1beta1::{ListDecisionsRequest, Position, WatchDecisionsRequest};
use proto::graph::v1beta1::graph_service_client::GraphServiceClient;
use proto::graph::v1beta1::{GetObjectRequest, ListCoverageRequest};
use proto::r#type::v1beta1::{ObjectRef, ReplicaRole};
use proto::work::v1beta1::StreamWorkRequest;
use proto::work::v1beta1::work_service_client::WorkServiceClient;
use runtime::shutdown::Shutdown;
use runtime::tls::Peer;
use std::time::Duration;
use tokio::sync::mpsc;
use tonic::codec::CompressionEncoding;
use tonic::metadata::MetadataMap;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status, Streaming};
use tonic_health::pb::health_client::HealthClient;
use tonic_health::pb::{HealthCheckRequest, health_check_response::ServingStatus};
use tonic_types::StatusExt as _;

mod strangers;
mod web;

pub(super) const CLUSTER: &str = "7e5cf8a6-0000-4000-8000-000000000001";
const PIPE_BYTES: usize = 64 * 1024;

/// An API server with the namespace kube-system and nothing else.
fn cluster() -> Cluster {
    let service = tower::service_fn(|request: HttpRequest<Body>| async move {
        let (status, content_type, body) = match request.uri().path() {
            "/api/v1/namespaces/kube-system" => {
                let body = format!(r#"{{"kind":"Namespace","apiVersion":"v1","metadata":{{"uid":"{CLUSTER}"}}}}"#);
                (StatusCode::OK, "application/json", body)
            }
            _ => (StatusCode::NOT_FOUND, "text/plain", "404 page not found\n".to_owned()),
        };
        let response = HttpResponse::builder().status(status).header("content-type", content_type);
        Ok::<_, std::io::Error>(response.body(Body::from(body.into_bytes())).unwrap())
    });
    Cluster::of_client(Client::new(service, "default"), "test")
}

/// New connections to the service under test.
#[derive(Clone)]
pub(super) struct Dial {
    pipes: mpsc::Sender<Connection>,
    peer: Peer,
    stop: Shutdown,
    /// As if the client were in this process.
    within: bool,
}

impl Dial {
    /// Connections of another peer.
    pub(super) fn by(&self, peer: Peer) -> Dial {
        Dial { pipes: self.pipes.clone(), peer, stop: self.stop.clone(), within: false }
    }

    pub(super) async fn channel(&self) -> Channel {
        let Dial { pipes, peer, within, .. } = self.clone();
        let connector = tower::service_fn(move |_: http::Uri| {
            let (pipes, peer) = (pipes.clone(), peer.clone());
            async move {
                let (near, far) = tokio::io::duplex(PIPE_BYTES);
                let connection = if within { Connection::within_process(far) } else { Connection::new(far) };
                pipes.send(connection.with_peer(peer)).await.map_err(std::io::Error::other)?;
                Ok::<_, std::io::Error>(TokioIo::new(near))
            }
        });
        Endpoint::from_static("http://graph").connect_with_connector(connector).await.unwrap()
    }

    async fn stream(&self) -> (mpsc::Sender<StreamWorkRequest>, Streaming<proto::work::v1beta1::StreamWorkResponse>) {
        let (sender, receiver) = mpsc::channel(16);
        let mut client = WorkServiceClient::new(self.channel().await);
        let requests = tokio_stream::wrappers::ReceiverStream::new(receiver);
        let replies = client.stream_work(requests).await.unwrap().into_inner();
        (sender, replies)
    }
}

/// Runs the service beside `story`, and stops it after.
async fn with_service<T>(story: impl AsyncFnOnce(Dial) -> T) -> T {
    with_service_at(cluster(), Access::Open, story).await
}

/// The same, on another API server, with or without authentication.
pub(super) async fn with_service_at<T>(cluster: Cluster, access: Access, story: impl AsyncFnOnce(Dial) -> T) -> T {
    with_service_for(&[], cluster, access, story).await
}

/// The same, with web pages of these origins as callers.
async fn with_service_for<T>(
    origins: &[&str],
    cluster: Cluster,
    access: Access,
    story: impl AsyncFnOnce(Dial) -> T,
) -> T {
    let (pipes, connections) = mpsc::channel::<Connection>(8);
    let grpc: Incoming = tokio_stream::wrappers::ReceiverStream::new(connections).map(Ok).boxed();
    let config = Config {
        mode: Mode::Enforce,
        replica: "replica-a".to_owned(),
        advertise: "127.0.0.1:7450".to_owned(),
        ignore: Vec::new(),
        policy: engine::leader::Policy::default(),
        decision_log: None,
        protocols: engine::work::Protocols::OURS,
        web_origins: origins.iter().map(|origin| origin.parse().unwrap()).collect(),
        traces: None,
        record: None,
        flags: crate::Flags::default(),
    };
    let term = Term { election: "election".into(), number: 1 };
    let edges = Edges {
        grpc,
        admin: None,
        tls: None,
        registry: prometheus_client::registry::Registry::default(),
        cluster,
        election: Election::Fixed(term),
        access,
        readers: ReaderThreads::Shared,
        audit: crate::AuditSources::default(),
        observer: None,
        progress: false,
    };
    let shutdown = Shutdown::new();
    let (served, told) = tokio::join!(serve(config, edges, shutdown.clone()), async {
        let told = story(Dial { pipes, peer: Peer::Plaintext, stop: shutdown.clone(), within: false }).await;
        shutdown.request();
        told
    });
    served.unwrap();
    told
}

pub(super) fn hello(executor: &str) -> Hello {
    Hello {
        executor: executor.into(),
        incarnation: "first".into(),
        min_protocol: PROTOCOL,
        max_protocol: PROTOCOL,
        kinds: ActionKind::ALL.to_vec(),
        window: 4,
        held: Vec::new(),
        known_term: None,
        first_session: None,
        version: "test".to_owned(),
        cluster_uid: CLUSTER.into(),
        origin: Origin::default(),
    }
}

async fn next(replies: &mut Streaming<proto::work::v1beta1::StreamWorkResponse>) -> Option<ToExecutor> {
    let reply = replies.message().await.unwrap()?;
    Some(received_from_leader(reply).unwrap().expect("a known message").message)
}

fn reason(status: &Status) -> String {
    status.get_error_details().error_info().map(|info| info.reason.clone()).unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn an_executor_is_welcomed_kept_and_sent_away() {
    let mut replies = with_service(async |dial| {
        let (requests, mut replies) = dial.stream().await;
        requests.send(ToLeader::Hello(hello("a")).into()).await.unwrap();
        let welcome = next(&mut replies).await;
        let Some(ToExecutor::Welcome(welcome)) = welcome else { panic!("{welcome:?}") };
        assert_eq!((welcome.term.number, welcome.protocol), (1, PROTOCOL));
        let heartbeat = ToLeader::Heartbeat { sequence: 3, started: 0, buffered: 0 };
        requests.send(heartbeat.into()).await.unwrap();
        assert!(matches!(next(&mut replies).await, Some(ToExecutor::HeartbeatAck { sequence: 3, .. })));

        let mut admin = AdminServiceClient::new(dial.channel().await);
        let status = admin.get_status(GetStatusRequest {}).await.unwrap().into_inner();
        assert_eq!((status.cluster_uid.as_str(), status.executors), (CLUSTER, 1));
        let meta = status.meta.unwrap();
        assert_eq!((meta.role(), meta.replica.as_str()), (ReplicaRole::Leader, "replica-a"));
        replies
    })
    .await;
    let farewell = next(&mut replies).await;
    assert!(matches!(farewell, Some(ToExecutor::GoAway { .. })), "{farewell:?}");
    assert_eq!(next(&mut replies).await, None);
}

#[tokio::test(start_paused = true)]
async fn refusals_end_only_their_stream() {
    with_service(async |dial| {
        let (good, mut good_replies) = dial.stream().await;
        good.send(ToLeader::Hello(hello("good")).into()).await.unwrap();
        assert!(matches!(next(&mut good_replies).await, Some(ToExecutor::Welcome(_))));

        let elsewhere = ToLeader::Hello(Hello { cluster_uid: "another".into(), ..hello("b") }).into();
        let too_new = Hello { min_protocol: PROTOCOL + 1, max_protocol: PROTOCOL + 1, ..hello("b") };
        let early = ToLeader::Heartbeat { sequence: 1, started: 0, buffered: 0 }.into();
        let mut nameless = StreamWorkRequest::from(ToLeader::Hello(hello("b")));
        if let Some(proto::work::v1beta1::stream_work_request::Message::Hello(hello)) = &mut nameless.message {
            hello.identity = None;
        }
        for (message, code, why) in [
            (elsewhere, Code::FailedPrecondition, "CLUSTER_MISMATCH"),
            (ToLeader::Hello(too_new).into(), Code::FailedPrecondition, "PROTOCOL_UNSUPPORTED"),
            (early, Code::InvalidArgument, "STREAM_PROTOCOL_VIOLATION"),
            (nameless, Code::InvalidArgument, "STREAM_PROTOCOL_VIOLATION"),
        ] {
            let (bad, mut replies) = dial.stream().await;
            bad.send(message).await.unwrap();
            let status = replies.message().await.expect_err("this hello is refused");
            assert_eq!((status.code(), reason(&status)), (code, why.to_owned()), "{status:?}");
        }
        good.send(ToLeader::Heartbeat { sequence: 1, started: 0, buffered: 0 }.into()).await.unwrap();
        assert!(matches!(next(&mut good_replies).await, Some(ToExecutor::HeartbeatAck { sequence: 1, .. })));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_silent_stream_is_ended() {
    with_service(async |dial| {
        let (_requests, mut replies) = dial.stream().await;
        let status = replies.message().await.expect_err("no hello came");
        assert_eq!(reason(&status), "STREAM_PROTOCOL_VIOLATION");
        assert!(status.message().contains("no hello within 10 s"), "{status:?}");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_old_stream_is_renewed_and_its_session_goes_on() {
    with_service(async |dial| {
        let (requests, mut replies) = dial.stream().await;
        requests.send(ToLeader::Hello(hello("a")).into()).await.unwrap();
        assert!(matches!(next(&mut replies).await, Some(ToExecutor::Welcome(_))));
        let begun = tokio::time::Instant::now();
        let mut heartbeats = tokio::time::interval(Duration::from_secs(5));
        let mut sequence = 0;
        let farewell = loop {
            tokio::select! {
                _ = heartbeats.tick() => {
                    sequence += 1;
                    requests.send(ToLeader::Heartbeat { sequence, started: 0, buffered: 0 }.into()).await.unwrap();
                }
                message = next(&mut replies) => match message {
                    Some(ToExecutor::HeartbeatAck { .. }) => {}
                    other => break other,
                },
            }
        };
        assert!(matches!(farewell, Some(ToExecutor::GoAway { .. })), "{farewell:?}");
        let age = begun.elapsed();
        assert!((Duration::from_secs(3240)..=Duration::from_secs(3961)).contains(&age), "{age:?}");
        while let Some(message) = next(&mut replies).await {
            assert!(matches!(message, ToExecutor::HeartbeatAck { .. }), "{message:?}");
        }
        let (again, mut replies) = dial.stream().await;
        again.send(ToLeader::Hello(hello("a")).into()).await.unwrap();
        assert!(matches!(next(&mut replies).await, Some(ToExecutor::Welcome(_))));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn reads_and_health_answer() {
    with_service(async |dial| {
        let channel = dial.channel().await;
        let mut graph = GraphServiceClient::new(channel.clone());
        let unnamed = graph.get_object(GetObjectRequest::default()).await.expect_err("no uid");
        assert_eq!(unnamed.code(), Code::InvalidArgument);
        let wanted = ObjectRef { uid: "nobody".to_owned(), ..ObjectRef::default() };
        let unknown = graph
            .get_object(GetObjectRequest { r#ref: Some(wanted), ..Default::default() })
            .await
            .expect_err("no such uid");
        assert_eq!((unknown.code(), reason(&unknown)), (Code::NotFound, "OBJECT_NOT_FOUND".to_owned()));
        let coverage = graph.list_coverage(ListCoverageRequest::default()).await.unwrap().into_inner();
        assert_eq!(coverage.meta.unwrap().cluster_uid, CLUSTER);

        let mut health = HealthClient::new(channel);
        let request = HealthCheckRequest { service: "ownergraph.work.v1beta1.WorkService".to_owned() };
        let mut watch = health.watch(request).await.unwrap().into_inner();
        while watch.message().await.unwrap().expect("health is watched for ever").status() != ServingStatus::Serving {}
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn messages_that_are_encoded_once_are_messages_of_the_protocol() {
    with_service(async |dial| {
        let mut client = DecisionServiceClient::new(dial.channel().await);
        let far = WatchDecisionsRequest {
            start: Some(Start::After(Position { log_id: "other".to_owned(), sequence: 1 })),
            ..Default::default()
        };
        let refused = client.watch_decisions(far).await.unwrap_err();
        assert_eq!(refused.code(), Code::OutOfRange);
        assert_eq!(refused.get_error_details().error_info().unwrap().reason, "POSITION_COMPACTED");
        let request = WatchDecisionsRequest { start: Some(Start::OpenThenFollow(true)), ..Default::default() };
        let mut stream = client.watch_decisions(request).await.unwrap().into_inner();
        let first = stream.message().await.unwrap().unwrap();
        assert!(matches!(first.event, Some(Event::Bookmark(bookmark)) if bookmark.snapshot_complete));
        assert_eq!(first.meta.unwrap().replica, "replica-a");
        assert!(first.position.is_some(), "what is open is all there");
        dial.stop.request();
        let last = stream.message().await.unwrap().unwrap();
        assert!(matches!(last.event, Some(Event::GoingAway(_))), "{last:?}");
        assert!(stream.message().await.unwrap().is_none(), "it ends well");
        assert!(stream.trailers().await.is_ok());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn answers_are_compressed_for_those_who_ask_for_it() {
    with_service(async |dial| {
        let gzip = CompressionEncoding::Gzip;
        let plain = DecisionServiceClient::new(dial.channel().await);
        for (client, expected) in
            [(plain.clone(), None), (plain.accept_compressed(gzip).send_compressed(gzip), Some("gzip"))]
        {
            let mut client = client;
            let watched = client.watch_decisions(WatchDecisionsRequest::default()).await.unwrap();
            let told =
                |metadata: &MetadataMap| metadata.get("grpc-encoding").map(|one| one.to_str().unwrap().to_owned());
            assert_eq!(told(watched.metadata()).as_deref(), expected);
            assert!(watched.into_inner().message().await.unwrap().unwrap().meta.is_some());
            let listed = client.list_decisions(ListDecisionsRequest::default()).await.unwrap();
            assert_eq!(told(listed.metadata()).as_deref(), expected);
        }
        let mut graph = GraphServiceClient::new(dial.channel().await).accept_compressed(gzip);
        let covered = graph.list_coverage(ListCoverageRequest::default()).await.unwrap();
        assert_eq!(covered.metadata().get("grpc-encoding").unwrap(), "gzip");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn garbage_on_the_port_does_no_harm() {
    with_service(async |dial| {
        let (mut near, far) = tokio::io::duplex(PIPE_BYTES);
        dial.pipes.send(Connection::new(far)).await.unwrap();
        tokio::io::AsyncWriteExt::write_all(&mut near, b"GET / HTTP/1.0\r\n\r\n\0\xff garbage").await.unwrap();
        let mut end = Vec::new();
        tokio::io::AsyncReadExt::read_to_end(&mut near, &mut end).await.unwrap();
        let (requests, mut replies) = dial.stream().await;
        requests.send(ToLeader::Hello(hello("a")).into()).await.unwrap();
        assert!(matches!(next(&mut replies).await, Some(ToExecutor::Welcome(_))));
    })
    .await;
}
