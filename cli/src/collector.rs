//! A graph service and its executors in one process.

use crate::pipe;
use anyhow::{Context as _, bail};
use engine::jitter::Backoff;
use engine::work::Protocols;
use executor_service::{Concurrency, Exit};
use futures::StreamExt as _;
use graph_service::{Election, Observer};
use kube_api::Cluster;
use prometheus_client::registry::Registry;
use runtime::metrics::Book;
use runtime::shutdown::Shutdown;
use runtime::tls::{Caller, ServerTls};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::time::Instant;

/// The minimum delay before an executor that the leader refused is restarted.
const AGAIN_MIN: Duration = Duration::from_millis(500);
const AGAIN_MAX: Duration = Duration::from_secs(30);

/// The parts to run.
#[derive(Debug)]
pub(crate) struct Setup {
    pub(crate) cluster: Cluster,
    pub(crate) graph: graph_service::Config,
    pub(crate) election: Election,
    pub(crate) admin: Option<TcpListener>,
    /// The listener of the gRPC API for other processes. `None`: only this process uses the API.
    pub(crate) listener: Option<TcpListener>,
    /// The certificates that `admin` and `listener` are served with; `None` for plaintext.
    pub(crate) tls: Option<Arc<ServerTls>>,
    /// How callers at `listener` and `admin` are authenticated.
    pub(crate) access: graph_service::Access,
    /// The audit log of the API server.
    pub(crate) audit: graph_service::AuditSources,
    pub(crate) executors: Executors,
}

/// The executors of the process.
#[derive(Debug)]
pub(crate) struct Executors {
    pub(crate) count: u32,
    /// The concurrency of each executor.
    pub(crate) concurrency: Concurrency,
    /// The prefix of the executors' names; a number follows.
    pub(crate) prefix: String,
    /// Whether connections may go to a leader on another machine, because they use TLS or plaintext is allowed.
    pub(crate) far: bool,
    /// The credentials for a leader in another process.
    pub(crate) caller: Caller,
}

/// Runs both services until `shutdown` is requested. Then the executors finish or return their leases, and after the
/// last of them the graph service stops. If one executor fails, the others are stopped in the same way.
pub(crate) async fn run(setup: Setup, observer: Option<Observer>, shutdown: Shutdown) -> anyhow::Result<()> {
    let home = match &setup.listener {
        Some(listener) => listener.local_addr().context("the gRPC socket has no address")?.to_string(),
        None => "this process".to_owned(),
    };
    let (pipes, connector) = pipe::pipes(home.clone(), setup.executors.caller);
    let grpc = match setup.listener {
        Some(listener) => {
            let outside = match &setup.tls {
                Some(tls) => graph_service::accept_tls(listener, Arc::clone(tls)),
                None => graph_service::accept(listener),
            };
            futures::stream::select(outside, pipes).boxed()
        }
        None => pipes,
    };
    let mut registry = Registry::default();
    let counting = executor_service::Metrics::register(&mut Book::new(&mut registry));
    let edges = graph_service::Edges {
        grpc,
        admin: setup.admin,
        tls: setup.tls,
        registry,
        cluster: setup.cluster.clone(),
        election: setup.election,
        // With an observer, the observer reports progress.
        progress: observer.is_none(),
        access: setup.access,
        readers: graph_service::ReaderThreads::of_machine(),
        audit: setup.audit,
        observer,
    };
    let graph_stop = Shutdown::new();
    let traces = setup.graph.traces.clone();
    let graph = async {
        let ended = graph_service::serve(setup.graph, edges, graph_stop.clone()).await;
        shutdown.request();
        ended.context("the graph service failed")
    };
    let executors = (1..=setup.executors.count).map(|number| {
        let shutdown = shutdown.clone();
        let config = executor_service::Config {
            name: format!("{}-{number}", setup.executors.prefix),
            graph: vec![home.clone()],
            concurrency: setup.executors.concurrency,
            far: setup.executors.far,
            protocols: Protocols::OURS,
            traces: traces.clone(),
        };
        let (cluster, graph, counting) = (setup.cluster.clone(), connector.clone(), counting.clone());
        let edges = move || executor_service::Edges {
            cluster: cluster.clone(),
            graph: graph.clone(),
            resolver: executor_service::Resolver::system(),
            admin: None,
            tls: None,
            metrics: Some(counting.clone()),
        };
        executor(config, edges, u64::from(number), shutdown)
    });
    let executors = async {
        let ended = futures::future::join_all(executors).await;
        graph_stop.request();
        ended.into_iter().collect::<anyhow::Result<()>>()
    };
    let (graph, executors) = tokio::join!(graph, executors);
    graph.and(executors)
}

/// Runs one executor. If the leader refuses the executor, the executor is restarted, and the rest of the process
/// continues. Any other end is an error.
async fn executor(
    config: executor_service::Config,
    edges: impl Fn() -> executor_service::Edges,
    seed: u64,
    shutdown: Shutdown,
) -> anyhow::Result<()> {
    let mut backoff = Backoff::new(AGAIN_MIN, AGAIN_MAX, seed);
    loop {
        let began = Instant::now();
        let ended = executor_service::serve(config.clone(), edges(), shutdown.clone()).await;
        let stopped = shutdown.is_requested();
        let sent_away = match &ended {
            Ok(Exit::Superseded | Exit::Drained | Exit::DrainTimedOut { .. }) => !stopped,
            Ok(Exit::OtherCluster { .. } | Exit::ProtocolUnsupported { .. }) | Err(_) => false,
        };
        if !sent_away {
            shutdown.request();
            return in_words(&config.name, ended.with_context(|| format!("{} failed", config.name))?);
        }
        if began.elapsed() > AGAIN_MAX {
            backoff.reset();
        }
        let wait = backoff.next_delay();
        let (executor, again_in_ms) = (&config.name, wait.as_millis());
        tracing::warn!(executor, again_in_ms, "a leader refused an executor of this process; restarting the executor");
        tokio::select! {
            () = shutdown.requested() => return Ok(()),
            () = tokio::time::sleep(wait) => {}
        }
    }
}

fn in_words(name: &str, exit: Exit) -> anyhow::Result<()> {
    match exit {
        Exit::Drained | Exit::DrainTimedOut { .. } | Exit::Superseded => Ok(()),
        Exit::OtherCluster { ours, theirs } => {
            bail!(
                "the leader that executor {name} connected to belongs to cluster {theirs}, but the credentials belong to cluster {ours}"
            )
        }
        Exit::ProtocolUnsupported { min, max } => {
            let ours = Protocols::OURS;
            bail!(
                "the leader that executor {name} connected to supports protocol versions {min} to {max}, this executor {ours}; upgrade the older one"
            )
        }
    }
}
