//! The graph service as one call: start, run, stop.

use crate::audit::{self, AuditSources};
use crate::decisions::{Connection, DecisionLog, JetStream, Queue, Writer, hand_over};
use crate::driver::{Driver, Heartbeat, PendingDecisions, Queues};
use crate::election::{Election as Elections, LeaseOptions, Validity, follow_changes};
use crate::flags::Flags;
use crate::gates::Router;
use crate::grpc::access::{Access, Authenticator};
use crate::grpc::freshness::Freshness;
use crate::grpc::web::{Origin, Origins};
use crate::grpc::{self, SESSION_QUEUE_MAX, Shared};
use crate::guards::keeper;
use crate::guards::orders;
use crate::guards::press::Press;
use crate::ingest::{self, Outlets};
use crate::messages::{Ask, CONTROL_QUEUE_MAX, Control, FACT_QUEUE_MAX, Leadership, WANTED_PAUSES_MAX, WantedPause};
use crate::metrics::Metrics;
use crate::readiness::{Health, Running, progress};
use crate::recorder::{self, Recorder};
use crate::render::{Observer, Render};
use crate::threads::ReaderThreads;
use crate::traces::Traces;
use anyhow::Context as _;
use engine::jitter::Backoff;
use engine::leader::{self, Input, Leader};
use engine::object::GroupResource;
use engine::work::{Protocols, Term};
use futures::future::BoxFuture;
use kube_api::{Cluster, await_cluster_uid};
use prometheus_client::registry::Registry;
use runtime::admin::{Guard, Probe};
use runtime::clock::Clock;
use runtime::metrics::Book;
use runtime::service::Service;
use runtime::shutdown::Shutdown;
use runtime::tasks::{TaskError, Tasks};
use runtime::tls::ServerTls;
use runtime::traces;
use std::io::IsTerminal as _;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::{Notify, mpsc, oneshot, watch};

/// A session ends after this time without a heartbeat.
const SESSION_TTL: Duration = Duration::from_secs(15);
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(5);
/// Maximum time of one attempt, from its start to its report. Slow webhooks take this long.
const EXECUTION_LIMIT: Duration = Duration::from_secs(30);
/// A collection whose watch is lost for longer than this is stale.
const STALE_AFTER: Duration = Duration::from_secs(30);
/// Maximum time from the request to stop to the end of the process.
const STOP_WITHIN: Duration = Duration::from_secs(10);
/// Bounds of the wait between attempts to read the identity of the cluster.
const START_RETRY_MIN: Duration = Duration::from_millis(500);
const START_RETRY_MAX: Duration = Duration::from_secs(10);
/// Maximum wait, while the service stops, for the decision log to accept the last events.
const LOG_WITHIN: Duration = Duration::from_secs(2);

const _: () =
    assert!(HEARTBEAT_INTERVAL.as_secs() * 3 <= SESSION_TTL.as_secs(), "the session must survive two lost heartbeats");

/// The configuration of the service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    pub mode: leader::Mode,
    /// Name of this replica, in answers and in the election.
    pub replica: String,
    /// Address of this replica's gRPC API. Other replicas give it to clients as the leader's address. Empty: other
    /// replicas give no address.
    pub advertise: String,
    /// Resources that are not watched.
    pub ignore: Vec<GroupResource>,
    pub policy: leader::Policy,
    /// The storage of the decision log. `None`: the memory of the leader.
    pub decision_log: Option<JetStream>,
    /// Versions of the executor protocol that the service accepts.
    pub protocols: Protocols,
    /// The origins of web pages that may call by gRPC-Web. Empty: no web page may call.
    pub web_origins: Vec<Origin>,
    /// The receiver of spans. `None`: spans are not exported.
    pub traces: Option<traces::Settings>,
    /// Where the inputs of the leader are recorded. `None`: they are not.
    pub record: Option<recorder::Settings>,
    /// The flags of the process, for bug reports.
    pub flags: Flags,
}

/// How the service gets its term.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Election {
    /// With a Lease at the API server. One of several replicas leads.
    Lease(LeaseOptions),
    /// The service leads from its start, alone, under this term.
    Fixed(Term),
    /// The service never leads: it answers reads and writes nothing.
    Never,
}

/// The listeners and other resources that the caller of [`serve`] provides.
pub struct Edges {
    /// Connections of executors and clients: [`crate::accept`] or [`crate::accept_tls`] for a socket.
    pub grpc: crate::Incoming,
    /// `/livez`, `/readyz`, `/metrics`, `/debug/graph`.
    pub admin: Option<TcpListener>,
    /// The certificates of `grpc` and `admin`. `None`: plaintext.
    pub tls: Option<Arc<ServerTls>>,
    /// Metrics that `/metrics` shows besides the service's own.
    pub registry: Registry,
    pub cluster: Cluster,
    pub election: Election,
    /// Whether the gRPC API authenticates and authorizes callers.
    pub access: Access,
    /// The threads that write the streams of readers.
    pub readers: ReaderThreads,
    /// The audit log of the API server. Only mode `observe` uses its events.
    pub audit: AuditSources,
    /// Receives each event of the engine after it is logged and counted.
    pub observer: Option<Observer>,
    /// Prints the progress of the start on stderr, if that is a terminal.
    pub progress: bool,
}

impl std::fmt::Debug for Edges {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Edges")
            .field("cluster", &self.cluster)
            .field("election", &self.election)
            .finish_non_exhaustive()
    }
}

/// Runs the graph service until `shutdown` is requested. The service then asks executors to leave and releases the
/// election Lease. It ends within ten seconds.
///
/// If the API server is unreachable or refuses, the service retries; `/readyz` shows the reason. It returns an error
/// for a start-up error that no retry can fix, and for a failed task.
///
/// The future is boxed, so that this crate compiles it once, and not each crate that awaits it.
pub fn serve(config: Config, edges: Edges, shutdown: Shutdown) -> BoxFuture<'static, anyhow::Result<()>> {
    Box::pin(run(config, edges, shutdown))
}

async fn run(config: Config, edges: Edges, shutdown: Shutdown) -> anyhow::Result<()> {
    let tls = edges.tls.clone();
    let mut service = Service::new("graph-service", &config.replica, edges.tls, shutdown.clone());
    let (clock, heartbeat) = (service.clock, Heartbeat::default());
    let mut registry = edges.registry;
    let mut book = Book::new(&mut registry);
    let metrics = Metrics::register(&mut book);
    service.register(&mut book);
    let health = Health::new(clock, heartbeat.clone(), registry, metrics.clone());
    // A separate client, because reviews of callers must not queue behind watches.
    let authenticator = Authenticator::of(&edges.access, another(&edges.cluster)?, &metrics);
    let (recorder, traces) = service
        .record(config.traces.as_ref(), &metrics.traces)?
        .map(|(recorder, open)| (recorder.clone(), Traces::new(recorder, open)))
        .unzip();
    let advice = "show a client certificate that an authority in --client-ca has signed";
    let guard = authenticator.as_ref().map_or_else(|| Guard::certificate(advice), Authenticator::guard);
    service.serve_admin(edges.admin, Arc::clone(&health) as Arc<dyn Probe>, guard);
    let mut tasks = service.tasks;
    if edges.progress && std::io::stderr().is_terminal() {
        tasks.spawn_until_end("progress", progress::show(health.clone(), shutdown.clone()));
    }
    let backoff = Backoff::new(START_RETRY_MIN, START_RETRY_MAX, seed()?);
    heartbeat.stamp(clock);
    let waiting = |why: &str| {
        metrics.start_failures.inc();
        health.starting(why);
        heartbeat.stamp(clock);
    };
    let cluster_uid = tokio::select! {
        uid = await_cluster_uid(&edges.cluster.client, &edges.cluster.url, backoff, waiting) => uid,
        () = shutdown.requested() => return Ok(()),
    };
    tracing::info!(
        cluster = edges.cluster.name,
        server = edges.cluster.url,
        uid = cluster_uid,
        "connected to the API server"
    );
    grpc::access::keep(&edges.access, &edges.cluster, tls.as_ref(), &mut tasks);

    let (control, control_queue) = mpsc::channel(CONTROL_QUEUE_MAX);
    let (sessions, session_queue) = mpsc::channel(SESSION_QUEUE_MAX);
    let (facts, fact_queue) = mpsc::channel(FACT_QUEUE_MAX);
    let (pauses, wanted_pauses) = mpsc::channel(WANTED_PAUSES_MAX);
    let counted = |client| crate::metrics::counted(client, &metrics.requests);
    let clients = ingest::Clients {
        lists: counted(edges.cluster.client.clone()),
        watches: counted(another(&edges.cluster)?),
        fresh: counted(another(&edges.cluster)?),
    };
    let questions = ingest::questions(clients.clone());
    let (gates, answers) = Router::new(metrics.gates.clone());
    let (leadership, known_leadership) = watch::channel(Leadership::default());
    audit::start(edges.audit, tls.clone(), &facts, &known_leadership, &metrics.audit, clock, &mut tasks);
    let outlets = Outlets { inputs: facts, control: control.clone(), gates: gates.clone() };
    let ingest = ingest::start(clients, ingest_config(&config)?, outlets, &shutdown, &mut tasks);

    let (warnings, waiting_warnings) = mpsc::channel(crate::warnings::QUEUE_MAX);
    let host = config.replica.clone();
    let poster = (config.mode == leader::Mode::Enforce).then(|| counted(edges.cluster.client.clone()));
    tasks.spawn_until_end("warnings", crate::warnings::post(poster, waiting_warnings, host));

    let validity = match &edges.election {
        Election::Lease(_) | Election::Never => Validity::default(),
        Election::Fixed(_) => Validity::endless(),
    };
    let log = log_of_decisions(config.decision_log.as_ref(), &cluster_uid, &mut tasks).await?;
    let render = Render::new(metrics.clone(), edges.observer, warnings, Writer::new(&log), clock);
    let (engine_config, seed) = (engine_config(&config, &cluster_uid), seed()?);
    let configuration = serde_json::json!({ "flags": config.flags, "engine": engine_config }).to_string();
    let record = config
        .record
        .as_ref()
        .map(|settings| Recorder::start(settings, (&engine_config, seed), clock, metrics.recording.clone()))
        .transpose()?;
    let recorded = record.as_ref().map(Recorder::recorded);
    let driver = Driver::new(
        Leader::new(engine_config, seed),
        Queues { control: control_queue, sessions: session_queue, facts: fact_queue },
        ask(ingest.clone(), gates.clone(), pauses),
        (render, PendingDecisions::new(log.queue().cloned())),
        clock,
        heartbeat,
        validity.clone(),
    )
    .traced(traces)
    .recorded(record);
    let reader = driver.reader();
    health.running(Running {
        cluster_uid: cluster_uid.clone(),
        reader: reader.clone(),
        leadership: known_leadership.clone(),
        ingest,
        decisions: log.clone(),
    });
    tasks.spawn("driver", driver.run());
    if log.is_shared() {
        let handing_over = hand_over(log.clone(), known_leadership.clone(), control.clone(), clock);
        tasks.spawn_until_end("decisions of earlier leaders", handing_over);
    }

    let released = Shutdown::new();
    // Without a shared log, no other process writes it.
    let reached = log.queue().map_or_else(|| watch::channel(None).1, |queue| queue.reached());
    let candidate = Candidate { config: &config, cluster: &edges.cluster, metrics: &metrics, clock, reached };
    candidate.stand(edges.election, &control, (leadership, validity), released.clone(), &mut tasks).await?;
    // A separate client, because requests about pauses must not queue behind lists and watches.
    let presser = counted(another(&edges.cluster)?);
    if config.mode == leader::Mode::Enforce {
        let keeper = keeper::run(presser.clone(), reader.clone(), clock, shutdown.clone());
        tasks.spawn_until_end("guard keeper", keeper);
    }
    tasks.spawn_until_end("policy engines", gates.clone().run());
    tasks.spawn_until_end("answers of policy engines", orders::answers(answers, control.clone()));
    let press = Press { mode: config.mode, client: presser, control: control.clone(), reader: reader.clone() };
    tasks.spawn_until_end("pauses of budgets and breakers", orders::pauses(press.clone(), wanted_pauses));
    let shared = Shared {
        freshness: Freshness::new(reader.clone(), cluster_uid.clone(), questions),
        reader,
        sessions,
        decisions: log.clone(),
        gates,
        shutdown: shutdown.clone(),
        leadership: known_leadership,
        health,
        metrics,
        clock,
        cluster_uid,
        replica: config.replica,
        long_reads: grpc::long_reads(),
        authenticator,
        configuration,
        recorded,
    };
    let origins = Origins::new(config.web_origins);
    grpc::start(edges.grpc, Arc::new(shared), press, recorder, origins, (edges.readers, shutdown.clone()), &mut tasks);
    tasks.spawn("stop", stop(shutdown.clone(), control, log.queue().cloned(), released));

    over(tasks.run(&shutdown, STOP_WITHIN).await)
}

/// The result of the service, at the latest when the time to stop has passed.
fn over(ended: Result<(), TaskError>) -> anyhow::Result<()> {
    match ended {
        Ok(()) => Ok(()),
        Err(error @ TaskError::TooSlow { .. }) => {
            tracing::warn!(%error, "the process ends although some tasks have not ended");
            Ok(())
        }
        Err(error @ (TaskError::Failed { .. } | TaskError::Panicked { .. })) => Err(error.into()),
    }
}

/// Opens the decision log: in memory, or on JetStream for all replicas.
async fn log_of_decisions(
    shared: Option<&JetStream>,
    cluster_uid: &str,
    tasks: &mut Tasks,
) -> anyhow::Result<DecisionLog> {
    let Some(jetstream) = shared else { return Ok(DecisionLog::in_memory()) };
    // The future is too large for the stack.
    let connection = Box::pin(Connection::open(jetstream, cluster_uid)).await?;
    Ok(DecisionLog::on(connection, jetstream.required, tasks))
}

/// Stops in order: first grants and executors' streams, then the log, then the Lease. So the next leader finds a
/// complete log, and no other replica still grants.
async fn stop(
    shutdown: Shutdown,
    control: mpsc::Sender<Control>,
    queue: Option<Arc<Queue>>,
    release: Shutdown,
) -> anyhow::Result<()> {
    shutdown.requested().await;
    let (done, stopped) = oneshot::channel();
    if control.send(Control::Stop(done)).await.is_ok() {
        // An error means that the driver has failed. The Lease is released nevertheless.
        let _driver_failed = stopped.await;
    }
    if let Some(queue) = queue {
        queue.emptied(LOG_WITHIN).await;
    }
    release.request();
    Ok(())
}

/// The arguments of this replica's part in the election.
struct Candidate<'a> {
    config: &'a Config,
    cluster: &'a Cluster,
    metrics: &'a Metrics,
    clock: Clock,
    reached: watch::Receiver<Option<Term>>,
}

impl Candidate<'_> {
    async fn stand(
        &self,
        election: Election,
        control: &mpsc::Sender<Control>,
        (leadership, validity): (watch::Sender<Leadership>, Validity),
        release: Shutdown,
        tasks: &mut Tasks,
    ) -> anyhow::Result<()> {
        // Unique for each start of a process, because two processes must never share a term.
        let identity = format!("{}_{}", self.config.replica, uuid::Uuid::new_v4());
        match election {
            Election::Fixed(term) => {
                leadership.send_replace(Leadership {
                    leading: true,
                    term: Some(term.clone()),
                    holder: Some(identity),
                    endpoint: self.config.advertise.clone(),
                    problem: None,
                });
                control.send(Control::Input(Input::TermGained(term))).await.context("the driver ended at once")
            }
            Election::Never => Ok(()),
            Election::Lease(options) => {
                let changes = Arc::new(Notify::new());
                let counted = |client| crate::metrics::counted(client, &self.metrics.requests);
                let watch = counted(another(self.cluster)?);
                let following = follow_changes(watch, options.clone(), Arc::clone(&changes), seed()?);
                tasks.spawn_until_end("changes of the election Lease", following);
                let candidate = crate::election::Candidate {
                    // A separate client, because renewals must not queue behind lists and watches.
                    client: counted(another(self.cluster)?),
                    identity,
                    endpoint: self.config.advertise.clone(),
                    options,
                    changes,
                    reached: self.reached.clone(),
                };
                let (control, metrics) = (control.clone(), self.metrics.clone());
                let elections = Elections::new(candidate, control, leadership, validity, metrics, self.clock, seed()?)
                    .map_err(anyhow::Error::msg)?;
                tasks.spawn("election", elections.run(release));
                Ok(())
            }
        }
    }
}

fn engine_config(config: &Config, cluster_uid: &str) -> leader::Config {
    leader::Config {
        mode: config.mode,
        cluster_uid: cluster_uid.into(),
        endpoint: config.advertise.clone(),
        session_ttl: SESSION_TTL,
        heartbeat_interval: HEARTBEAT_INTERVAL,
        execution_limit: EXECUTION_LIMIT,
        stale_after: STALE_AFTER,
        policy: config.policy.clone(),
        protocols: config.protocols,
    }
}

fn ingest_config(config: &Config) -> anyhow::Result<ingest::Config> {
    for resource in &config.ignore {
        tracing::info!(
            %resource,
            "ignored by configuration: its objects are not collected and keep the finalizers foregroundDeletion and orphan; delete such objects with propagation policy Background"
        );
    }
    let ignored = config.ignore.iter().cloned().collect();
    Ok(ingest::Config { ignored, seed: seed()? })
}

fn another(cluster: &Cluster) -> anyhow::Result<kube::Client> {
    cluster.another_client().context("cannot build a second client for the API server")
}

fn ask(ingest: ingest::Handle, gates: Router, pauses: mpsc::Sender<WantedPause>) -> Box<dyn FnMut(Ask) + Send> {
    Box::new(move |ask| match ask {
        Ask::Question(question) => gates.ask(*question),
        Ask::Cancel { gate, number } => gates.cancel(&gate, &[number]),
        Ask::CreatePause(wanted) => {
            if let Err(mpsc::error::TrySendError::Full(wanted)) = pauses.try_send(*wanted) {
                tracing::error!(by = wanted.by, "too many pauses wait for their creation; dropped one");
            }
        }
        Ask::Probe(probe) => ingest.probe(probe),
        Ask::Selectors(table) => ingest.select(table),
        Ask::Relist { collection, why } => ingest.relist(collection, why),
        Ask::ReadGuards(read) => ingest.read_guards(read),
    })
}

fn seed() -> anyhow::Result<u64> {
    getrandom::u64().map_err(|error| anyhow::anyhow!("cannot read random bytes from the system: {error}"))
}
