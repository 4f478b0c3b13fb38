//! Instances over a pipe in memory.

use super::*;
use crate::decisions::DecisionLog;
use crate::gates::Router;
use crate::gates::inbox::{Event, Inbox};
use crate::gates::tests::{answers, configured, question};
use crate::grpc::small_world::{config, reason, shared};
use crate::metrics::gates::GateMetrics;
use engine::leader::{Leader, Mode};
use engine::scope::Objects;
use hyper_util::rt::TokioIo;
use proto::decision::v1beta1::gate_service_client::GateServiceClient;
use proto::decision::v1beta1::gate_service_server::GateServiceServer;
use proto::decision::v1beta1::stream_verdicts_request::{Drain, Invalidate};
use proto::r#type::v1beta1::{GroupResource, ObjectFilter};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tonic::Code;
use tonic::transport::{Endpoint, Server};

/// The service with one gate, and a client.
struct World {
    router: Router,
    inbox: Inbox,
    leadership: watch::Sender<Leadership>,
    shared: Arc<Shared>,
    client: GateServiceClient<tonic::transport::Channel>,
    _server: JoinSet<()>,
}

/// An instance of the engine.
struct Instance {
    sender: mpsc::Sender<StreamVerdictsRequest>,
    replies: Streaming<StreamVerdictsResponse>,
}

fn leading(leading: bool) -> Leadership {
    Leadership { leading, holder: Some("replica-b".to_owned()), ..Leadership::default() }
}

impl World {
    async fn start() -> World {
        let (leadership, known) = watch::channel(leading(true));
        let mut shared = shared(Leader::new(config(Mode::Enforce), 1), DecisionLog::in_memory(), known);
        let (router, inbox) = Router::new(GateMetrics::default());
        router.configure(configured(&json!({"stream": {}})));
        Arc::get_mut(&mut shared).unwrap().gates = router.clone();
        let service = GateServiceServer::new(Gates::new(Arc::clone(&shared)));
        let (near, far) = tokio::io::duplex(1024 * 1024);
        let mut tasks = JoinSet::new();
        let incoming = futures::stream::iter([Ok::<_, std::io::Error>(far)]).chain(futures::stream::pending());
        tasks.spawn(async move {
            Server::builder().add_service(service).serve_with_incoming(incoming).await.unwrap();
        });
        let mut near = Some(near);
        let connector = tower::service_fn(move |_: http::Uri| {
            let near = near.take().map(TokioIo::new);
            async move { near.ok_or_else(|| std::io::Error::other("the test has one connection")) }
        });
        let channel = Endpoint::from_static("http://graph").connect_with_connector(connector).await.unwrap();
        World { router, inbox, leadership, shared, client: GateServiceClient::new(channel), _server: tasks }
    }

    async fn open(&self) -> Instance {
        let (sender, receiver) = mpsc::channel(64);
        let requests = tokio_stream::wrappers::ReceiverStream::new(receiver);
        let replies = self.client.clone().stream_verdicts(requests).await.unwrap().into_inner();
        Instance { sender, replies }
    }

    async fn welcomed(&self) -> Instance {
        let mut instance = self.open().await;
        instance.send(FromEngine::Hello(hello("production"))).await;
        let welcome = instance.next().await.unwrap();
        let Some(ToEngine::Welcome(welcome)) = welcome else { panic!("{welcome:?}") };
        assert_eq!(welcome.failure_policy(), wire::FailurePolicy::Hold);
        assert_eq!(welcome.timeout, Some(prost_types::Duration { seconds: 2, nanos: 0 }));
        instance
    }
}

impl Instance {
    async fn send(&self, message: FromEngine) {
        self.sender.send(StreamVerdictsRequest { message: Some(message) }).await.unwrap();
    }

    /// The next message; `None` at the end.
    async fn next(&mut self) -> Result<Option<ToEngine>, Status> {
        Ok(self.replies.message().await?.and_then(|reply| reply.message))
    }

    async fn requests(&mut self) -> Vec<wire::Request> {
        let message = self.next().await.unwrap();
        let Some(ToEngine::Requests(wire::Requests { requests })) = message else { panic!("{message:?}") };
        requests
    }

    async fn verdicts(&self, ids: impl IntoIterator<Item = u64>) {
        let verdict = |request_id| Verdict { request_id, verdict: GateVerdict::Allow.into(), ..Verdict::default() };
        let verdicts = ids.into_iter().map(verdict).collect();
        self.send(FromEngine::Verdicts(Verdicts { verdicts })).await;
    }

    /// The error at the end of the stream.
    async fn refused(&mut self) -> (Code, String) {
        loop {
            match self.next().await {
                Ok(Some(_)) => {}
                Ok(None) => panic!("the stream ended without an error"),
                Err(status) => return (status.code(), reason(&status)),
            }
        }
    }

    async fn go_away(&mut self) -> wire::GoAway {
        let message = self.next().await.unwrap();
        let Some(ToEngine::GoAway(go_away)) = message else { panic!("{message:?}") };
        go_away
    }
}

fn hello(gate: &str) -> Hello {
    Hello { gate: gate.to_owned(), min_protocol: 1, max_protocol: 2, max_inflight: 1000, ..Hello::default() }
}

#[tokio::test(start_paused = true)]
async fn an_instance_answers_the_questions_of_its_gate() {
    let world = World::start().await;
    let mut instance = world.welcomed().await;
    world.router.ask(question(1));
    let requests = instance.requests().await;
    let request = &requests[0];
    assert_eq!((requests.len(), request.request_id, request.decision_id.as_str()), (1, 1, "0000000000000007"));
    assert_eq!(request.action(), ItemKind::Delete);
    assert_eq!(request.target.as_ref().unwrap().name, "data-1");
    assert_eq!(request.cause_chain[0].kind, "StatefulSet");
    let verdict = Verdict {
        request_id: 1,
        verdict: GateVerdict::Hold.into(),
        policy: "window".to_owned(),
        message: "closed".to_owned(),
        again_after: Some(prost_types::Duration { seconds: 30, nanos: 0 }),
        valid_for: None,
    };
    instance.send(FromEngine::Verdicts(Verdicts { verdicts: vec![verdict] })).await;
    let events = loop {
        let found = answers(world.inbox.next().await);
        if !found.is_empty() {
            break found;
        }
    };
    let found = &events[&1];
    assert_eq!(found.answer, Answer::Hold { again_after: Duration::from_secs(30) });
    assert_eq!((found.by.as_str(), found.message.as_str()), ("window", "closed"));
    instance.send(FromEngine::Invalidate(Invalidate::default())).await;
    let events = world.inbox.next().await;
    assert_eq!(events, [Event::TakenBack { gate: "production".into(), targets: Vec::new() }]);
    instance.send(FromEngine::Drain(Drain {})).await;
    assert_eq!(instance.next().await.unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn an_instance_needs_time_and_takes_answers_back() {
    let world = World::start().await;
    let mut instance = world.welcomed().await;
    world.inbox.take();
    world.router.ask(question(1));
    assert_eq!(instance.requests().await.len(), 1);
    let extra = Some(prost_types::Duration { seconds: 3, nanos: 0 });
    instance.send(FromEngine::NeedTime(NeedTime { request_id: 1, extra })).await;
    let needs = Event::NeedsTime { gate: "production".into(), number: 1, extra: Duration::from_secs(3) };
    assert_eq!(world.inbox.next().await, [needs]);
    let pods = GroupResource { group: String::new(), resource: "pods".to_owned() };
    let filter = ObjectFilter {
        resources: vec![pods],
        namespaces: vec!["shop".to_owned()],
        uids: vec!["u".to_owned()],
        ..ObjectFilter::default()
    };
    let invalidate = Invalidate { policy_revision: String::new(), targets: vec![filter] };
    instance.send(FromEngine::Invalidate(invalidate)).await;
    let meant = Objects {
        resources: [engine::object::GroupResource { group: "".into(), resource: "pods".into() }].into(),
        namespaces: ["shop".into()].into(),
        uids: [engine::object::Uid::parse("u").unwrap()].into(),
    };
    assert_eq!(world.inbox.next().await, [Event::TakenBack { gate: "production".into(), targets: vec![meant] }]);
    let cel = ObjectFilter { cel: "true".to_owned(), ..ObjectFilter::default() };
    let too_many = vec![ObjectFilter::default(); 101];
    for wrong in [
        FromEngine::NeedTime(NeedTime { request_id: 1, extra: None }),
        FromEngine::NeedTime(NeedTime { request_id: 1, extra: Some(prost_types::Duration::default()) }),
        FromEngine::NeedTime(NeedTime { request_id: 1, extra: Some(prost_types::Duration { seconds: -1, nanos: 0 }) }),
        FromEngine::Invalidate(Invalidate { targets: vec![cel], ..Invalidate::default() }),
        FromEngine::Invalidate(Invalidate { targets: too_many, ..Invalidate::default() }),
    ] {
        let mut instance = world.welcomed().await;
        instance.send(wrong.clone()).await;
        assert_eq!(instance.refused().await, (Code::InvalidArgument, "FIELD_INVALID".to_owned()), "{wrong:?}");
    }
    let mut flooding = world.welcomed().await;
    for _ in 0..=STRAYS_MAX {
        flooding.send(FromEngine::NeedTime(NeedTime { request_id: 99, extra })).await;
    }
    assert_eq!(flooding.refused().await, (Code::ResourceExhausted, "LIMIT_EXCEEDED".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn wrong_first_messages_are_refused() {
    let world = World::start().await;
    let wrong = [
        (FromEngine::Drain(Drain {}), (Code::InvalidArgument, "STREAM_PROTOCOL_VIOLATION")),
        (FromEngine::Hello(hello("")), (Code::InvalidArgument, "FIELD_INVALID")),
        (FromEngine::Hello(hello("other")), (Code::NotFound, "GATE_NOT_FOUND")),
        (
            FromEngine::Hello(Hello { min_protocol: 2, ..hello("production") }),
            (Code::FailedPrecondition, "PROTOCOL_UNSUPPORTED"),
        ),
    ];
    for (message, (code, why)) in wrong {
        let mut instance = world.open().await;
        instance.send(message).await;
        assert_eq!(instance.refused().await, (code, why.to_owned()));
    }
    let mut silent = world.open().await;
    assert_eq!(silent.refused().await.1, "STREAM_PROTOCOL_VIOLATION");
    world.router.configure(configured(&json!({"cel": {"expression": "true"}})));
    let mut instance = world.open().await;
    instance.send(FromEngine::Hello(hello("production"))).await;
    assert_eq!(instance.refused().await, (Code::FailedPrecondition, "GATE_NOT_STREAMED".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn wrong_verdicts_and_floods_end_the_stream() {
    let world = World::start().await;
    for (verdict, field) in [
        (Verdict { request_id: 1, ..Verdict::default() }, "verdict"),
        (Verdict { verdict: GateVerdict::Hold.into(), ..Verdict::default() }, "again_after"),
    ] {
        let mut instance = world.welcomed().await;
        instance.send(FromEngine::Verdicts(Verdicts { verdicts: vec![verdict] })).await;
        assert_eq!(instance.refused().await.1, "FIELD_INVALID", "{field}");
    }
    let mut flooding = world.welcomed().await;
    flooding.verdicts(std::iter::repeat_n(99, 600)).await;
    flooding.verdicts(std::iter::repeat_n(99, 600)).await;
    assert_eq!(flooding.refused().await, (Code::ResourceExhausted, "LIMIT_EXCEEDED".to_owned()));
    let mut long = world.welcomed().await;
    long.verdicts(std::iter::repeat_n(99, VERDICTS_MAX + 1)).await;
    assert_eq!(long.refused().await, (Code::ResourceExhausted, "LIMIT_EXCEEDED".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn an_instance_that_is_cut_off_hands_its_questions_over() {
    let world = World::start().await;
    let mut first = world.welcomed().await;
    world.router.ask(question(1));
    assert_eq!(first.requests().await.len(), 1);
    let mut second = world.welcomed().await;
    drop(first);
    assert_eq!(second.requests().await[0].request_id, 1);
    world.router.cancel(&"production".into(), &[1]);
    let cancelled = second.next().await.unwrap();
    assert_eq!(cancelled, Some(ToEngine::Cancel(wire::Cancel { request_ids: vec![1] })));
}

#[tokio::test(start_paused = true)]
async fn instances_are_sent_away_with_the_reason() {
    let world = World::start().await;
    let mut old = world.welcomed().await;
    assert_eq!(old.go_away().await.reason, "STREAM_AGE");
    assert_eq!(old.next().await.unwrap(), None);
    let mut orphan = world.welcomed().await;
    world.router.configure(std::collections::BTreeMap::new());
    assert_eq!(orphan.go_away().await.reason, "GATE_CHANGED");
    world.router.configure(configured(&json!({"stream": {}})));
    let mut deposed = world.welcomed().await;
    let elsewhere = Leadership { endpoint: "127.0.0.1:7450".to_owned(), ..leading(false) };
    world.leadership.send_replace(elsewhere);
    let go_away = deposed.go_away().await;
    assert_eq!((go_away.reason.as_str(), go_away.leader_endpoint.as_str()), ("LEADER_CHANGED", "127.0.0.1:7450"));
    let mut standby = world.open().await;
    assert_eq!(standby.refused().await, (Code::Unavailable, "NOT_LEADER".to_owned()));
    world.leadership.send_replace(leading(true));
    let mut last = world.welcomed().await;
    world.shared.shutdown.request();
    assert_eq!(last.go_away().await.reason, "SHUTDOWN");
}

/// Prints the rate of verdicts through one stream; `--nocapture` shows it.
#[tokio::test]
async fn many_verdicts_go_through_one_stream() {
    const ALL: u64 = 20_000;
    const AT_ONCE: u64 = 1000;
    let world = World::start().await;
    let mut instance = world.welcomed().await;
    let begin = std::time::Instant::now();
    let answering = async {
        loop {
            let ids: Vec<u64> = instance.requests().await.iter().map(|request| request.request_id).collect();
            instance.verdicts(ids).await;
        }
    };
    let asking = async {
        let (mut asked, mut answered) = (0, 0);
        while answered < ALL {
            while asked < ALL && asked < answered + AT_ONCE {
                asked += 1;
                world.router.ask(question(asked));
            }
            let found = answers(world.inbox.next().await);
            assert!(found.values().all(|found| found.answer == Answer::Allow), "{found:?}");
            answered += u64::try_from(found.len()).unwrap();
        }
    };
    tokio::select! {
        () = answering => {}
        () = asking => {}
    }
    let seconds = begin.elapsed().as_secs_f64();
    eprintln!("{ALL} verdicts in {seconds:.2} s: {:.0} verdicts/s", ALL as f64 / seconds);
}
