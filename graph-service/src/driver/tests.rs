use super::{Driver, HEARTBEAT, Heartbeat, PendingDecisions, Queues};
use crate::decisions::{DecisionLog, Writer};
use crate::election::Validity;
use crate::grpc::small_world::config;
use crate::messages::{Control, Ending, OUTBOX_MAX, Outbox, SessionInput};
use crate::metrics::Metrics;
use crate::readiness::Health;
use crate::recorder;
use crate::render::Render;
use engine::leader::{Input, Leader, Mode, StreamId};
use engine::work::{ActionKind, Hello, Origin, PROTOCOL, Refusal, Term, ToExecutor, ToLeader};
use prometheus_client::registry::Registry;
use recording::{Call, Reader};
use runtime::admin::Probe as _;
use runtime::clock::Clock;
use runtime::metrics::Book;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;
use tokio::sync::{Semaphore, mpsc, oneshot};

struct Harness {
    control: mpsc::Sender<Control>,
    sessions: mpsc::Sender<SessionInput>,
    events: Arc<Mutex<Vec<String>>>,
    validity: Validity,
    clock: Clock,
    heartbeat: Heartbeat,
    driver: Option<Driver>,
}

impl Harness {
    fn new() -> Harness {
        let config = config(Mode::Enforce);
        let (control, control_queue) = mpsc::channel(8);
        let (sessions, session_queue) = mpsc::channel(64);
        let (_facts, fact_queue) = mpsc::channel(8);
        let events = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&events);
        let observer = Box::new(move |event: &engine::leader::Event| seen.lock().unwrap().push(format!("{event:?}")));
        let (validity, clock, heartbeat) = (Validity::endless(), Clock::start(), Heartbeat::default());
        let metrics = Metrics::register(&mut Book::new(&mut Registry::default()));
        let writer = Writer::new(&DecisionLog::in_memory());
        let render = Render::new(metrics, Some(observer), mpsc::channel(1).0, writer, clock);
        let driver = Driver::new(
            Leader::new(config, 1),
            Queues { control: control_queue, sessions: session_queue, facts: fact_queue },
            Box::new(|_ask| {}),
            (render, PendingDecisions::new(None)),
            clock,
            heartbeat.clone(),
            validity.clone(),
        );
        Harness { control, sessions, events, validity, clock, heartbeat, driver: Some(driver) }
    }

    fn open(&self, stream: u64, capacity: usize) -> (mpsc::Receiver<ToExecutor>, Arc<OnceLock<Ending>>) {
        let (sender, receiver) = mpsc::channel(capacity);
        let ending = Arc::new(OnceLock::new());
        let outbox = Outbox { sender, ending: Arc::clone(&ending), _open: oneshot::channel().0 };
        self.sessions.try_send(SessionInput::Opened { stream: StreamId(stream), outbox }).unwrap();
        (receiver, ending)
    }

    fn say(&self, stream: u64, message: ToLeader) {
        let permit = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
        self.sessions.try_send(SessionInput::Message { stream: StreamId(stream), message, permit }).unwrap();
    }

    fn lead(&self) {
        let term = Term { election: "election".into(), number: 1 };
        self.control.try_send(Control::Input(Input::TermGained(term))).unwrap();
    }

    /// Runs the driver beside `story`, and to its end after it.
    async fn run<T>(&mut self, story: impl Future<Output = T>) -> T {
        let driver = self.driver.take().expect("one run");
        let control = self.control.clone();
        let story = async move {
            let told = story.await;
            let (done, stopped) = oneshot::channel();
            control.send(Control::Stop(done)).await.unwrap();
            stopped.await.unwrap();
            told
        };
        let (ended, told) = tokio::join!(driver.run(), story);
        ended.unwrap();
        told
    }
}

fn hello(executor: &str) -> ToLeader {
    ToLeader::Hello(Hello {
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
        cluster_uid: "cluster".into(),
        origin: Origin::default(),
    })
}

#[tokio::test(start_paused = true)]
async fn rounds_without_a_term_end_none() {
    let directory = tempfile::tempdir().unwrap();
    let mut harness = Harness::new();
    let recorder = recorder::tests::begin(directory.path(), 1 << 30).unwrap();
    harness.driver = harness.driver.take().map(|driver| driver.recorded(Some(recorder)));
    harness.validity.set(None, harness.clock);
    harness.lead();
    harness.run(tokio::time::sleep(3 * HEARTBEAT)).await;
    let mut reader = Reader::open(directory.path()).unwrap();
    let calls: Vec<_> = std::iter::from_fn(|| reader.round()).flat_map(|round| round.calls).collect();
    let ends = |call: &&Call| matches!(call, Call::Input(Input::TermLost { .. }));
    assert_eq!(calls.iter().filter(ends).count(), 1, "{calls:?}");
}

#[tokio::test(start_paused = true)]
async fn a_hello_is_welcomed_and_a_stop_sends_away() {
    let mut harness = Harness::new();
    harness.lead();
    let (mut receiver, ending) = harness.open(1, OUTBOX_MAX);
    harness.say(1, hello("a"));
    let welcome = harness.run(async { receiver.recv().await }).await;
    assert!(matches!(welcome, Some(ToExecutor::Welcome(_))), "{welcome:?}");
    let farewell = receiver.recv().await;
    assert!(matches!(farewell, Some(ToExecutor::GoAway { .. })), "{farewell:?}");
    assert_eq!(ending.get(), None);
    let events = harness.events.lock().unwrap();
    assert!(events.iter().any(|event| event.contains("SessionOpened")), "{events:?}");
}

#[tokio::test(start_paused = true)]
async fn a_term_that_is_over_counts_no_longer_before_its_end_is_announced() {
    let mut harness = Harness::new();
    harness.lead();
    harness.validity.set(Some(engine::time::Time::ZERO), harness.clock);
    let (mut receiver, ending) = harness.open(1, OUTBOX_MAX);
    harness.say(1, hello("a"));
    let nothing = harness.run(async { receiver.recv().await }).await;
    assert_eq!((nothing, ending.get()), (None, Some(&Ending::Refused(Refusal::NotLeader))));
}

#[tokio::test(start_paused = true)]
async fn a_term_lasts_to_the_very_end_that_the_elector_gives_it() {
    let mut harness = Harness::new();
    harness.lead();
    let micros = |micros| engine::time::Time::from_origin(Duration::from_micros(micros));
    harness.validity.set(Some(micros(10_000_700)), harness.clock);
    tokio::time::advance(Duration::from_micros(10_000_200)).await;
    assert!(harness.clock.now() < micros(10_000_700));
    let (mut receiver, ending) = harness.open(1, OUTBOX_MAX);
    harness.say(1, hello("a"));
    let welcome = harness.run(async { receiver.recv().await }).await;
    assert!(matches!(welcome, Some(ToExecutor::Welcome(_))), "{welcome:?}, {:?}", ending.get());
}

#[tokio::test(start_paused = true)]
async fn a_standby_refuses() {
    let mut harness = Harness::new();
    let (mut receiver, ending) = harness.open(1, OUTBOX_MAX);
    harness.say(1, hello("a"));
    let nothing = harness.run(async { receiver.recv().await }).await;
    assert_eq!(nothing, None);
    assert_eq!(ending.get(), Some(&Ending::Refused(Refusal::NotLeader)));
}

#[tokio::test(start_paused = true)]
async fn an_executor_that_does_not_read_is_disconnected_alone() {
    let mut harness = Harness::new();
    harness.lead();
    let (mut slow, slow_ending) = harness.open(1, 1);
    let (mut quick, quick_ending) = harness.open(2, OUTBOX_MAX);
    harness.say(1, hello("slow"));
    harness.say(2, hello("quick"));
    for sequence in 1..=3 {
        harness.say(1, ToLeader::Heartbeat { sequence, started: 0, buffered: 0 });
    }
    harness.say(2, ToLeader::Heartbeat { sequence: 1, started: 0, buffered: 0 });
    harness
        .run(async {
            assert!(matches!(quick.recv().await, Some(ToExecutor::Welcome(_))));
            assert!(matches!(quick.recv().await, Some(ToExecutor::HeartbeatAck { sequence: 1, .. })));
            assert!(matches!(slow.recv().await, Some(ToExecutor::Welcome(_))));
            assert_eq!(slow.recv().await, None);
        })
        .await;
    assert!(matches!(slow_ending.get(), Some(Ending::LimitExceeded { .. })), "{slow_ending:?}");
    assert_eq!(quick_ending.get(), None);
}

#[tokio::test(start_paused = true)]
async fn it_shows_life_without_input() {
    let mut harness = Harness::new();
    let driver = harness.driver.as_ref().expect("not run yet");
    let (heartbeat, clock) = (driver.heartbeat.clone(), driver.clock);
    harness
        .run(async {
            for _ in 0..10 {
                tokio::time::sleep(Duration::from_secs(6)).await;
                assert!(heartbeat.age(clock) <= Duration::from_secs(6), "{:?}", heartbeat.age(clock));
            }
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_quiet_hour_is_no_stop_and_a_loop_that_turns_no_more_is_not_alive() {
    let mut harness = Harness::new();
    let (clock, mut registry) = (harness.clock, Registry::default());
    let metrics = Metrics::register(&mut Book::new(&mut registry));
    let health = Health::new(clock, harness.heartbeat.clone(), registry, metrics);
    harness
        .run(async {
            for _ in 0..60 {
                tokio::time::sleep(Duration::from_secs(60)).await;
                assert_eq!(health.livez(), Ok(()));
                assert!(health.loop_idle() < HEARTBEAT * 2, "{:?}", health.loop_idle());
            }
        })
        .await;
    tokio::time::advance(Duration::from_secs(31)).await;
    let why = health.livez().unwrap_err();
    assert!(why.starts_with("the collector has not finished a round for 3"), "{why}");
    let shown = health.metrics().lines().find_map(|line| {
        let value = line.strip_prefix("ownergraph_loop_idle_seconds ")?;
        value.parse::<f64>().ok()
    });
    assert!(shown.is_some_and(|seconds| seconds >= 31.0), "{shown:?}");
}
