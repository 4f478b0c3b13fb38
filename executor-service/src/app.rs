//! Runs an executor, from its configuration to the end of the session.

use crate::attempt::Attempts;
use crate::dial::Connector;
use crate::driver::Driver;
use crate::health::Health;
use crate::metrics::Metrics;
use crate::options::{BadOptions, Config, Options};
use crate::peers::{Peers, Resolver};
use crate::server::Server;
use crate::traces::Traces;
use anyhow::Context;
use engine::jitter::Backoff;
use engine::object::Name;
use engine::session::{self, Session};
use engine::work::ActionKind;
use futures::future::BoxFuture;
use kube_api::{AccessError, Cluster, REQUESTS_PER_CONNECTION, await_cluster_uid, connect};
use prometheus_client::registry::Registry;
use runtime::admin::{Guard, Probe};
use runtime::clock::Clock;
use runtime::listen::{ListenError, bind};
use runtime::metrics::Book;
use runtime::service::Service;
use runtime::shutdown::Shutdown;
use runtime::telemetry::TelemetryError;
use runtime::tls::{BadTls, ServerTls};
use runtime::version::{VERSION, user_agent};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use uuid::Uuid;

pub use engine::session::Exit;

#[cfg(test)]
mod tests;

/// Bounds of the jittered wait between two attempts to reach the API server or the graph service.
const RETRY_MIN: Duration = Duration::from_millis(200);
const RETRY_MAX: Duration = Duration::from_secs(5);
/// Maximum time from the request to stop to the end of the process. The driver ends its drain well before.
const STOP_WITHIN: Duration = Duration::from_secs(40);

/// The connections of an executor.
#[derive(Debug)]
pub struct Edges {
    /// The API server to write to.
    pub cluster: Cluster,
    /// The connection to the graph service.
    pub graph: Connector,
    /// Resolves names of the graph service.
    pub resolver: Resolver,
    /// Listener for probes and metrics. `None` if another component of the process serves them.
    pub admin: Option<TcpListener>,
    /// The certificates of `admin`. `None`: plaintext.
    pub tls: Option<Arc<ServerTls>>,
    /// Shared metrics of several executors of one process. `None`: metrics of its own.
    pub metrics: Option<Metrics>,
}

/// Why an executor could not start: one sentence that names the flag, the file or the address.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Options(#[from] BadOptions),
    #[error(transparent)]
    Telemetry(#[from] TelemetryError),
    #[error(transparent)]
    Access(#[from] AccessError),
    #[error(transparent)]
    Tls(#[from] BadTls),
    #[error(transparent)]
    Listen(#[from] ListenError),
}

impl Edges {
    /// Opens the edges that the flags name. Sends nothing yet.
    pub async fn open(options: &Options) -> Result<Edges, StartError> {
        let caller = options.caller().await?;
        let tls = ServerTls::open(&options.serving()).await?;
        let cluster = connect(&options.access.access(user_agent("executor-service"))).await?;
        let admin = bind("--admin-listen", &options.admin_listen.to_string()).await?;
        let graph = Connector::network(caller);
        Ok(Edges { cluster, graph, resolver: Resolver::system(), admin: Some(admin), tls, metrics: None })
    }
}

/// Runs one executor until its session ends: `shutdown` drains it, or the graph service refuses it.
///
/// The executor retries unreachable peers without a limit. An error is a bug in the executor.
///
/// The future is boxed, so that this crate compiles it once, and not each crate that awaits it.
pub fn serve(config: Config, edges: Edges, shutdown: Shutdown) -> BoxFuture<'static, anyhow::Result<Exit>> {
    Box::pin(run(config, edges, shutdown))
}

async fn run(config: Config, edges: Edges, shutdown: Shutdown) -> anyhow::Result<Exit> {
    let knows_callers = edges.tls.as_ref().is_some_and(|tls| tls.knows_callers());
    let mut service = Service::new("executor-service", &config.name, edges.tls, shutdown.clone());
    let (metrics, registry) = match edges.metrics {
        Some(metrics) => (metrics, None),
        None => {
            let mut registry = Registry::default();
            let mut book = Book::new(&mut registry);
            let metrics = Metrics::register(&mut book);
            service.register(&mut book);
            (metrics, Some(registry))
        }
    };
    let health = Health::new(service.clock, metrics.clone(), registry);
    let recorded = service.record(config.traces.as_ref(), &metrics.traces)?;
    let guard = Guard::certificate(match knows_callers {
        true => "show a client certificate that an authority in --client-ca has signed",
        false => "this executor accepts no client certificates; start it with --client-ca",
    });
    service.serve_admin(edges.admin, Arc::clone(&health) as Arc<dyn Probe>, guard);
    let (ended, exit) = oneshot::channel();
    let stop = shutdown.clone();
    let connections = config.concurrency.most().div_ceil(REQUESTS_PER_CONNECTION);
    let clients = (0..connections).map(|_| edges.cluster.sharing_client()).collect::<Result<Vec<_>, _>>()?;
    let core = Core {
        config,
        clock: service.clock,
        clients,
        asks_gates: edges.cluster.asks_gates,
        graph: edges.graph,
        resolver: edges.resolver,
        url: edges.cluster.url,
        metrics,
        health,
        traces: recorded.map(|(recorder, open)| Traces::new(recorder, open)),
    };
    service.tasks.spawn("session", async move {
        // If the receiver is gone, the process is being torn down.
        let _unheard = ended.send(core.run(stop).await);
        Ok(())
    });
    service.tasks.run(&shutdown, STOP_WITHIN).await?;
    let exit = exit.await.context("the task of the session ended without a result")?;
    match &exit {
        Exit::Drained => tracing::info!("executor stopped after all leases ended"),
        Exit::DrainTimedOut { outstanding } => {
            tracing::warn!(outstanding, "executor stopped; the leader waits for these items until their leases expire");
        }
        Exit::Superseded | Exit::OtherCluster { .. } | Exit::ProtocolUnsupported { .. } => {}
    }
    Ok(exit)
}

struct Core {
    config: Config,
    clock: Clock,
    /// At least one.
    clients: Vec<kube::Client>,
    /// The clients check the gate of a request after the connection is open.
    asks_gates: bool,
    graph: Connector,
    resolver: Resolver,
    url: String,
    metrics: Metrics,
    health: Arc<Health>,
    traces: Option<Traces>,
}

impl Core {
    async fn run(self, shutdown: Shutdown) -> Exit {
        let identity = Uuid::new_v4();
        let seed = identity.as_u64_pair().0;
        let cluster_uid = tokio::select! {
            uid = self.know_the_cluster(seed) => uid,
            () = shutdown.requested() => return Exit::Drained,
        };
        self.health.started(&cluster_uid);
        tracing::info!(
            name = self.config.name,
            cluster = cluster_uid,
            api_server = self.url,
            graph = self.config.graph.join(","),
            concurrency = %self.config.concurrency,
            "executor started"
        );
        let session = session::Config {
            executor: Name::from(self.config.name),
            incarnation: Name::from(identity.to_string()),
            version: VERSION.to_owned(),
            cluster_uid: Name::from(cluster_uid),
            concurrency: self.config.concurrency,
            kinds: ActionKind::ALL.to_vec(),
            protocols: self.config.protocols,
            reconnect_min: RETRY_MIN,
            reconnect_max: RETRY_MAX,
        };
        let session = Session::new(session, seed);
        let server = Server::new(self.clients, self.asks_gates, self.metrics.clone());
        let attempts = Attempts::new(server, self.clock, self.config.concurrency.most());
        let peers = Peers::new(self.graph, self.resolver, self.config.graph, self.config.far);
        let driver = Driver::new(self.clock, session, attempts, peers, self.health, self.metrics);
        driver.traced(self.traces).run(shutdown).await
    }

    /// Reads the identity of the cluster, with retries. An executor must not lease work before it knows its cluster.
    async fn know_the_cluster(&self, seed: u64) -> String {
        let waiting = |why: &str| {
            self.metrics.start_failures.inc();
            self.health.starting(why.to_owned());
        };
        let backoff = Backoff::new(RETRY_MIN, RETRY_MAX, seed);
        await_cluster_uid(&self.clients[0], &self.url, backoff, waiting).await
    }
}
