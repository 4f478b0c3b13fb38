//! Tests of the whole service with a scripted leader and API server, over pipes, on a virtual clock.

use super::*;
use crate::scripted::{Api, Reply, broken, reply};
use engine::object::{Facts, ObjectRef, ResourceVersion, Uid};
use engine::session::Concurrency;
use engine::work::Protocols;
use engine::work::{
    Action, Hello, LeaseId, Outcome, Preconditions, PropagationPolicy, ReportResult, ReturnCause, Term, ToExecutor,
    ToLeader, Welcome, WorkItem, WorkLease, WorkReport, WorkReturn,
};
use futures::FutureExt;
use proto::convert::received_from_executor;
use proto::error_reason::DOMAIN;
use proto::work::v1beta1::work_service_server::{WorkService, WorkServiceServer};
use proto::work::v1beta1::{StreamWorkRequest, StreamWorkResponse, stream_work_response};
use runtime::tasks::{JobEnd, Jobs};
use runtime::traces;
use serde_json::json;
use std::collections::HashMap;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Server as Front;
use tonic::{Code, Request, Response, Status, Streaming};
use tonic_types::{ErrorDetails, StatusExt};

/// One call of an executor, as seen by its leader.
struct Call {
    address: String,
    requests: Streaming<StreamWorkRequest>,
    responses: mpsc::Sender<Result<StreamWorkResponse, Status>>,
}

/// A graph service whose calls the test answers.
struct Leader {
    address: String,
    calls: mpsc::Sender<Call>,
}

#[tonic::async_trait]
impl WorkService for Leader {
    type StreamWorkStream = ReceiverStream<Result<StreamWorkResponse, Status>>;

    async fn stream_work(
        &self,
        request: Request<Streaming<StreamWorkRequest>>,
    ) -> Result<Response<Self::StreamWorkStream>, Status> {
        let (responses, answers) = mpsc::channel(64);
        let call = Call { address: self.address.clone(), requests: request.into_inner(), responses };
        self.calls.send(call).await.map_err(|_| Status::unavailable("the test is over"))?;
        Ok(Response::new(ReceiverStream::new(answers)))
    }
}

impl Call {
    async fn next(&mut self) -> Option<ToLeader> {
        let message = self.requests.message().await.ok()??;
        received_from_executor(message).unwrap()
    }

    /// The next message other than a heartbeat.
    async fn hear(&mut self) -> ToLeader {
        loop {
            let message = self.next().await.expect("the executor goes on");
            if !matches!(message, ToLeader::Heartbeat { .. }) {
                return message;
            }
        }
    }

    async fn hello(&mut self) -> Hello {
        let message = self.hear().await;
        let ToLeader::Hello(hello) = message else { panic!("{message:?}") };
        hello
    }

    async fn say(&self, message: ToExecutor) {
        for response in proto::batch::responses(message) {
            self.responses.send(Ok(response)).await.unwrap();
        }
    }

    async fn welcome(&self) {
        let welcome = Welcome {
            session: 1,
            term: term(),
            protocol: 1,
            session_ttl: Duration::from_secs(15),
            heartbeat_interval: Duration::from_secs(5),
            adopted: vec![],
            dropped: vec![],
            max_window: 100,
        };
        self.say(ToExecutor::Welcome(welcome)).await;
    }

    async fn refuse(&self, reason: &str, metadata: &[(&str, &str)]) {
        let metadata: HashMap<String, String> =
            metadata.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let details = ErrorDetails::with_error_info(reason, DOMAIN, metadata);
        self.responses.send(Err(Status::with_error_details(Code::Unavailable, "no", details))).await.unwrap();
    }

    /// The reports and returns of the next message with any.
    async fn reports(&mut self) -> (Vec<WorkReport>, Vec<WorkReturn>) {
        loop {
            if let ToLeader::Reports { reports, returns } = self.hear().await {
                return (reports, returns);
            }
        }
    }
}

/// The service under test, with its peers.
struct World {
    api: Api,
    calls: mpsc::Receiver<Call>,
    shutdown: Shutdown,
    service: Jobs<(), anyhow::Result<Exit>>,
    _fronts: Arc<std::sync::Mutex<Jobs<(), ()>>>,
}

impl World {
    fn start(replies: impl IntoIterator<Item = Reply>) -> World {
        World::start_with(replies, vec!["127.0.0.1:1".to_owned()])
    }

    fn start_with(replies: impl IntoIterator<Item = Reply>, graph: Vec<String>) -> World {
        World::start_traced(replies, graph, None)
    }

    fn start_traced(
        replies: impl IntoIterator<Item = Reply>,
        graph: Vec<String>,
        traces: Option<traces::Settings>,
    ) -> World {
        let kube_system = reply(200, json!({"metadata": {"uid": "cluster"}}));
        let api = Api::new(std::iter::once(kube_system).chain(replies));
        let (sender, calls) = mpsc::channel(16);
        let fronts = Arc::new(std::sync::Mutex::new(Jobs::new(64)));
        let running = Arc::clone(&fronts);
        let connector = Connector::through(move |address| {
            let (near, far) = tokio::io::duplex(1 << 20);
            let leader = WorkServiceServer::new(Leader { address: address.clone(), calls: sender.clone() });
            let front = Front::builder()
                .add_service(leader)
                .serve_with_incoming(tokio_stream::iter([Ok::<_, std::io::Error>(far)]).chain(tokio_stream::pending()));
            running.lock().unwrap().spawn((), front.map(|_end| ()));
            async move { crate::connect_over(&address, near).await }.boxed()
        });
        let shutdown = Shutdown::new();
        let config = Config {
            name: "e".to_owned(),
            graph,
            concurrency: Concurrency::Fixed(2),
            far: false,
            protocols: Protocols::OURS,
            traces,
        };
        let edges = Edges {
            cluster: Cluster::of_client(api.client(), "scripted"),
            graph: connector,
            resolver: Resolver::system(),
            admin: None,
            tls: None,
            metrics: None,
        };
        let mut service = Jobs::new(1);
        service.spawn((), serve(config, edges, shutdown.clone()));
        World { api, calls, shutdown, service, _fronts: fronts }
    }

    async fn call(&mut self) -> Call {
        self.calls.recv().await.unwrap()
    }

    async fn exit(&mut self) -> Exit {
        let ((), end) = self.service.next().await;
        let JobEnd::Done(exit) = end else { panic!("{end:?}") };
        exit.unwrap()
    }

    /// Requests to the API server after the first read.
    fn asked(&self) -> Vec<String> {
        self.api.asked().into_iter().filter(|line| !line.contains("kube-system")).collect()
    }
}

use futures::StreamExt;

fn term() -> Term {
    Term { election: Name::from("election"), number: 3 }
}

fn lease(number: u64) -> WorkLease {
    let target = ObjectRef {
        group: Name::from(""),
        version: Name::from("v1"),
        resource: Name::from("configmaps"),
        kind: Name::from("ConfigMap"),
        namespace: Name::from("default"),
        name: Name::from(format!("c{number}")),
        uid: Uid::parse(&format!("uid{number}")).unwrap(),
    };
    WorkLease {
        id: LeaseId { term: 3, number },
        term: term(),
        item: WorkItem {
            id: number,
            target,
            preconditions: Preconditions {
                resource_version: ResourceVersion::parse("5"),
                facts_digest: Facts::default().digest(),
                must_be_terminating: false,
            },
            action: Action::Delete { propagation_policy: PropagationPolicy::Background, owner_checks: vec![] },
            read_first: false,
            generation: 1,
        },
        attempt: 1,
        execution_limit: Duration::from_secs(60),
        previous_attempt_ambiguous: false,
        traceparent: None,
    }
}

fn deleted() -> Reply {
    reply(200, json!({"kind": "Status", "apiVersion": "v1", "status": "Success"}))
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_started_carried_out_reported_and_the_executor_drained() {
    let mut world = World::start([deleted()]);
    let mut call = world.call().await;
    let hello = call.hello().await;
    assert_eq!((&*hello.executor, &*hello.cluster_uid, hello.window), ("e", "cluster", 4));
    call.welcome().await;
    call.say(ToExecutor::Grant { leases: vec![lease(1)] }).await;
    assert_eq!(call.hear().await, ToLeader::Started { leases: vec![LeaseId { term: 3, number: 1 }] });
    let (reports, _) = call.reports().await;
    assert_eq!((reports.len(), reports[0].outcome, reports[0].api_calls), (1, Outcome::Done, 1));
    assert_eq!(world.asked().len(), 1);
    call.say(ToExecutor::ReportAck { results: vec![(reports[0].lease, ReportResult::Accepted)] }).await;
    world.shutdown.request();
    assert!(matches!(call.hear().await, ToLeader::Drain { .. }));
    call.say(ToExecutor::DrainAck { outstanding: 0 }).await;
    assert_eq!(world.exit().await, Exit::Drained);
}

#[tokio::test(start_paused = true)]
async fn credentials_that_expire_close_the_window_and_are_tried_until_they_are_let_in() {
    let unauthorized = || {
        reply(
            401,
            json!({"kind": "Status", "apiVersion": "v1", "reason": "Unauthorized", "message": "who?", "code": 401}),
        )
    };
    let known = reply(403, json!({"kind": "Status", "apiVersion": "v1", "reason": "Forbidden", "code": 403}));
    let mut world = World::start([unauthorized(), unauthorized().after(500), unauthorized(), known, deleted()]);
    let mut call = world.call().await;
    call.hello().await;
    call.welcome().await;
    call.say(ToExecutor::Grant { leases: (1..=4).map(lease).collect() }).await;
    assert!(matches!(call.hear().await, ToLeader::Started { .. }));
    assert_eq!(call.hear().await, ToLeader::Window { max_outstanding: 0 }, "before anything is reported");
    let (mut ended, mut back) = (Vec::new(), Vec::new());
    while ended.len() < 2 || back.len() < 2 {
        let (reports, returns) = call.reports().await;
        ended.extend(reports.into_iter().map(|report| report.outcome));
        back.extend(returns.into_iter().map(|returned| returned.cause));
    }
    assert_eq!(ended, [Outcome::Unauthenticated; 2]);
    assert_eq!(back, [ReturnCause::NotStarted; 2]);
    // One check is refused; the next one passes.
    assert_eq!(call.hear().await, ToLeader::Window { max_outstanding: 4 });
    assert_eq!(world.asked().len(), 2, "no item was tried meanwhile");
    call.say(ToExecutor::Grant { leases: vec![lease(5)] }).await;
    let (reports, _) = call.reports().await;
    assert_eq!(reports[0].outcome, Outcome::Done);
}

#[tokio::test(start_paused = true)]
async fn a_drain_hands_back_what_was_not_started() {
    let mut world = World::start([deleted().after(2_000), deleted().after(2_000)]);
    let mut call = world.call().await;
    call.hello().await;
    call.welcome().await;
    call.say(ToExecutor::Grant { leases: (1..=4).map(lease).collect() }).await;
    call.hear().await;
    world.shutdown.request();
    let (mut done, mut back) = (Vec::new(), Vec::new());
    while done.len() < 2 || back.len() < 2 {
        let (reports, returns) = call.reports().await;
        done.extend(reports.into_iter().map(|report| (report.lease, ReportResult::Accepted)));
        back.extend(returns);
    }
    assert!(back.iter().all(|returned| returned.cause == ReturnCause::NotStarted), "{back:?}");
    let results = done.into_iter().chain(back.iter().map(|back| (back.lease, ReportResult::Accepted))).collect();
    call.say(ToExecutor::ReportAck { results }).await;
    call.say(ToExecutor::DrainAck { outstanding: 0 }).await;
    assert_eq!(world.exit().await, Exit::Drained);
    assert_eq!(world.asked().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_does_not_lead_names_the_one_that_does() {
    let mut world = World::start_with([], vec!["127.0.0.1:1".to_owned(), "127.0.0.1:2".to_owned()]);
    let call = world.call().await;
    assert_eq!(call.address, "127.0.0.1:1");
    call.refuse("NOT_LEADER", &[("leaderEndpoint", "127.0.0.1:9")]).await;
    let call = world.call().await;
    assert_eq!(call.address, "127.0.0.1:9");
    // A peer's hint must not send plaintext to another machine.
    call.refuse("NOT_LEADER", &[("leaderEndpoint", "192.0.2.1:9")]).await;
    assert_eq!(world.call().await.address, "127.0.0.1:2");
}

#[tokio::test(start_paused = true)]
async fn some_refusals_are_final() {
    for (reason, metadata, exit) in [
        ("SESSION_SUPERSEDED", &[][..], Exit::Superseded),
        (
            "PROTOCOL_UNSUPPORTED",
            &[("minVersion", "2"), ("maxVersion", "3")],
            Exit::ProtocolUnsupported { min: 2, max: 3 },
        ),
        (
            "CLUSTER_MISMATCH",
            &[("ours", "other"), ("theirs", "cluster")],
            Exit::OtherCluster { ours: Name::from("cluster"), theirs: Name::from("other") },
        ),
    ] {
        let mut world = World::start([]);
        let mut call = world.call().await;
        call.hello().await;
        call.refuse(reason, metadata).await;
        assert_eq!(world.exit().await, exit);
    }
}

#[tokio::test(start_paused = true)]
async fn a_session_that_ends_by_itself_does_not_wait_for_a_trace_collector_that_is_away() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let away = traces::Settings::to_loopback(listener.local_addr().unwrap().port(), traces::Ratio::ALL);
    drop(listener);
    let mut world = World::start_traced([deleted()], vec!["127.0.0.1:1".to_owned()], Some(away));
    let mut call = world.call().await;
    call.hello().await;
    call.welcome().await;
    let traceparent = Some("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".to_owned());
    call.say(ToExecutor::Grant { leases: vec![WorkLease { traceparent, ..lease(1) }] }).await;
    let (reports, _) = call.reports().await;
    assert_eq!(reports[0].outcome, Outcome::Done);
    call.refuse("SESSION_SUPERSEDED", &[]).await;
    let exit = tokio::time::timeout(Duration::from_secs(600), world.exit()).await.expect("the executor ends");
    assert_eq!(exit, Exit::Superseded);
    assert!(!world.shutdown.is_requested(), "there was no request to stop");
}

#[tokio::test(start_paused = true)]
async fn a_session_without_acknowledgements_stops_writing() {
    let conflict = json!({"kind": "Status", "apiVersion": "v1", "reason": "Conflict", "message": "moved", "code": 409});
    let fresh =
        json!({"kind": "PartialObjectMetadata", "metadata": {"name": "c1", "uid": "uid1", "resourceVersion": "6"}});
    let mut world = World::start([reply(409, conflict).after(16_000), reply(200, fresh)]);
    let mut call = world.call().await;
    call.hello().await;
    call.welcome().await;
    call.say(ToExecutor::Grant { leases: vec![lease(1)] }).await;
    let mut calls = vec![call];
    // The session lapses, and streams come and go. The last open stream carries the report.
    let report = loop {
        let call = calls.last_mut().unwrap();
        match call.next().await {
            Some(ToLeader::Reports { reports, .. }) if !reports.is_empty() => {
                break reports.into_iter().next().unwrap();
            }
            Some(ToLeader::Hello(_)) => call.welcome().await,
            Some(_) => {}
            None => {
                let next = world.call().await;
                calls.push(next);
            }
        }
    };
    assert_eq!(report.outcome, Outcome::Abandoned);
    let writes = world.asked().into_iter().filter(|line| line.starts_with("DELETE")).count();
    assert_eq!(writes, 1);
}

#[tokio::test(start_paused = true)]
async fn an_action_of_a_newer_leader_is_handed_back() {
    let mut world = World::start([]);
    let mut call = world.call().await;
    call.hello().await;
    call.welcome().await;
    let grant = proto::batch::responses(ToExecutor::Grant { leases: vec![lease(1)] }).pop().unwrap();
    let Some(stream_work_response::Message::Grant(mut grant)) = grant.message else { panic!("a grant is a grant") };
    grant.leases[0].item.as_mut().unwrap().action = None;
    let message = Some(stream_work_response::Message::Grant(grant));
    call.responses.send(Ok(StreamWorkResponse { message })).await.unwrap();
    let (_, returns) = call.reports().await;
    let expected = WorkReturn { lease: LeaseId { term: 3, number: 1 }, cause: ReturnCause::KindUnsupported };
    assert_eq!(returns, [expected]);
}

#[tokio::test(start_paused = true)]
async fn an_executor_that_holds_nothing_stops_at_once_even_without_its_peers() {
    let mut world = World::start([]);
    let call = world.call().await;
    drop(call);
    world.shutdown.request();
    let asked = tokio::time::Instant::now();
    assert_eq!(world.exit().await, Exit::Drained);
    assert!(asked.elapsed() < Duration::from_secs(1), "{:?}", asked.elapsed());
}

#[tokio::test(start_paused = true)]
async fn the_cluster_is_asked_until_it_answers() {
    let api = Api::new([broken(), reply(403, json!({"kind": "Status", "apiVersion": "v1", "message": "no"}))]);
    let clock = Clock::start();
    let metrics = Metrics::register(&mut Book::new(&mut Registry::default()));
    let health = Health::new(clock, metrics.clone(), None);
    let config = Config {
        name: "e".to_owned(),
        graph: vec!["127.0.0.1:1".to_owned()],
        concurrency: Concurrency::Fixed(1),
        far: false,
        protocols: Protocols::OURS,
        traces: None,
    };
    let url = "scripted".to_owned();
    let graph = Connector::network(runtime::tls::Caller::plaintext());
    let (client, resolver) = (api.client(), Resolver::system());
    let core = Core {
        config,
        clock,
        clients: vec![client],
        asks_gates: false,
        graph,
        resolver,
        url,
        metrics,
        health: Arc::clone(&health),
        traces: None,
    };
    let patience = tokio::time::timeout(Duration::from_millis(250), core.know_the_cluster(1));
    assert!(patience.await.is_err());
    let readiness = Probe::readyz(&*health);
    assert!(!readiness.ready);
    assert!(
        readiness.lines[0].starts_with("start: cannot read the identity of the cluster at scripted: "),
        "{readiness:?}"
    );
}

/// The leader stops without closing its connections. The other replica leads `after_ms` after that. Returns how long
/// the executor took to find it.
async fn found_after(after_ms: u64) -> Duration {
    let (frozen, other) = ("127.0.0.1:1", "127.0.0.1:2");
    let mut world = World::start_with([], vec![frozen.to_owned(), other.to_owned()]);
    let mut first = world.call().await;
    first.hello().await;
    first.welcome().await;
    let leads_at = tokio::time::Instant::now() + Duration::from_millis(after_ms);
    let mut silent = vec![first];
    loop {
        let mut call = world.call().await;
        if call.address == frozen {
            silent.push(call);
            continue;
        }
        call.hello().await;
        if tokio::time::Instant::now() < leads_at {
            call.refuse("NOT_LEADER", &[("leaderEndpoint", frozen)]).await;
        } else {
            return leads_at.elapsed();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_new_leader_is_found_within_two_seconds_while_the_old_one_stands_still() {
    for after_ms in (15_500..19_000).step_by(130) {
        let found = found_after(after_ms).await;
        assert!(found <= Duration::from_secs(2), "a leader of {after_ms} ms after was found after {found:?}");
    }
}
