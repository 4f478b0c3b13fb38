//! A cluster in one process: the sandbox, replicas of the graph service, and executors.

use super::network::{API, Network};
use super::puppet;
use super::relay::Relay;
use anyhow::{Context, bail};
use engine::leader::Policy;
use engine::pace::Rate;
use engine::work::Protocols;
use executor_service::{Exit, Resolver};
use futures::StreamExt;
use graph_service::{Connection, Election, LeaseOptions};
use kube_api::{Cluster, cluster_uid};
use prometheus_client::registry::Registry;
use proto::admin::v1beta1::admin_service_client::AdminServiceClient;
use proto::admin::v1beta1::{GetStatusRequest, GetStatusResponse};
use proto::r#type::v1beta1::ReplicaRole;
use runtime::shutdown::Shutdown;
use runtime::tasks::{JobEnd, Jobs};
use sandbox::Server;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_stream::wrappers::ReceiverStream;

/// The host of the client that queries the replicas.
const USER: &str = "user";
/// Replicas read the Lease every two seconds.
const LEADS_WITHIN: Duration = Duration::from_secs(60);

/// All parts of one test. Dropping the value ends all of them.
#[allow(missing_debug_implementations, reason = "a client shows nothing")]
pub struct World {
    pub network: Network,
    pub api: Server,
    /// A user of the cluster.
    pub client: kube::Client,
    pub cluster_uid: String,
    replicas: BTreeMap<String, Running<()>>,
    executors: BTreeMap<String, Running<Exit>>,
    /// The replicas behind a relay.
    relayed: BTreeSet<String>,
    background: JoinSet<()>,
}

/// A running service.
#[derive(Debug)]
struct Running<T> {
    stop: Shutdown,
    task: Jobs<(), anyhow::Result<T>>,
}

impl<T: Send + 'static> Running<T> {
    fn start(stop: Shutdown, service: impl Future<Output = anyhow::Result<T>> + Send + 'static) -> Running<T> {
        let mut task = Jobs::new(1);
        task.spawn((), service);
        Running { stop, task }
    }

    async fn end(&mut self) -> anyhow::Result<T> {
        match self.task.next().await {
            ((), JobEnd::Done(ended)) => ended,
            ((), JobEnd::Aborted) => bail!("aborted"),
            ((), JobEnd::Panicked(why)) => bail!("panicked: {why}"),
        }
    }
}

/// Returns the address of a replica.
pub fn address(replica: &str) -> String {
    format!("{replica}:7450")
}

impl World {
    /// Starts a cluster without a collector.
    pub async fn new() -> anyhow::Result<World> {
        let network = Network::default();
        let api = Server::new(1);
        let mut background = JoinSet::new();
        background.spawn(network.clone().serve_api(api.clone()));
        let client = kube::Client::new(api.router(), "default");
        let cluster_uid = cluster_uid(&client).await?;
        let (replicas, executors, relayed) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
        Ok(World { network, api, client, cluster_uid, replicas, executors, relayed, background })
    }

    /// Starts a replica.
    pub fn replica(&mut self, name: &str) {
        self.start_replica(name, &address(name), None, Policy::default());
    }

    /// Starts a replica whose admin server answers on a socket.
    pub fn replica_with_admin(&mut self, name: &str, admin: TcpListener) {
        self.start_replica(name, &address(name), Some(admin), Policy::default());
    }

    /// Starts a replica that permits this many writes per second, for all executors together.
    pub fn capped_replica(&mut self, name: &str, max_writes_per_second: u32) {
        let policy =
            Policy { max_writes_per_second: Some(Rate::per_second(max_writes_per_second)), ..Policy::default() };
        self.start_replica(name, &address(name), None, policy);
    }

    /// Starts a replica behind a relay.
    pub fn replica_behind_relay(&mut self, name: &str) -> Relay {
        self.relayed.insert(name.to_owned());
        let (inner, relay) = (self.inner_address(name), Relay::default());
        self.start_replica(name, &inner, None, Policy::default());
        self.background.spawn(relay.clone().run(self.network.clone(), address(name), inner));
        relay
    }

    /// Returns the address of the replica itself, behind its relay.
    fn inner_address(&self, replica: &str) -> String {
        let relayed = self.relayed.contains(replica);
        if relayed { format!("{replica}:7451") } else { address(replica) }
    }

    fn start_replica(&mut self, name: &str, listens: &str, admin: Option<TcpListener>, policy: Policy) {
        self.network.restore(name);
        let connections = ReceiverStream::new(self.network.listen(listens));
        let config = graph_service::Config {
            mode: engine::leader::Mode::Enforce,
            replica: name.to_owned(),
            advertise: address(name),
            ignore: Vec::new(),
            policy,
            decision_log: None,
            protocols: Protocols::OURS,
            web_origins: Vec::new(),
            traces: None,
            record: None,
            flags: graph_service::Flags::default(),
        };
        let edges = graph_service::Edges {
            grpc: connections.map(|accepted| Ok(Connection::new(accepted.pipe))).boxed(),
            admin,
            tls: None,
            registry: Registry::default(),
            cluster: Cluster::of_client(self.network.api_client(name), API),
            election: Election::Lease(LeaseOptions::default()),
            access: graph_service::Access::Open,
            readers: graph_service::ReaderThreads::Shared,
            audit: graph_service::AuditSources::default(),
            observer: None,
            progress: false,
        };
        let stop = Shutdown::new();
        let service = graph_service::serve(config, edges, stop.clone());
        self.replicas.insert(name.to_owned(), Running::start(stop, service));
    }

    /// Ends a replica as SIGKILL does: connections break without notice.
    pub fn kill_replica(&mut self, name: &str) {
        self.network.remove(name);
        self.replicas.remove(name);
    }

    /// Stops a replica, and waits until it has stopped.
    pub async fn stop_replica(&mut self, name: &str) -> anyhow::Result<()> {
        let mut running = self.replicas.remove(name).with_context(|| format!("no replica {name}"))?;
        running.stop.request();
        running.end().await?;
        self.network.remove(name);
        Ok(())
    }

    /// Starts an executor that knows these replicas.
    pub fn executor(&mut self, name: &str, concurrency: u32, replicas: &[&str]) {
        self.named_executor(name, name, concurrency, replicas);
    }

    /// Starts an executor with this name on this host.
    pub fn named_executor(&mut self, host: &str, name: &str, concurrency: u32, replicas: &[&str]) {
        let graph = replicas.iter().map(|replica| address(replica)).collect();
        self.start_executor(host, name, concurrency, graph, Resolver::system());
    }

    /// Starts an executor that knows the replicas by the name `graph`. The resolver gives the addresses.
    pub fn resolving_executor(&mut self, name: &str, concurrency: u32, resolver: Resolver) {
        let graph = vec![format!("dns:///{}", address("graph"))];
        self.start_executor(name, name, concurrency, graph, resolver);
    }

    fn start_executor(&mut self, host: &str, name: &str, concurrency: u32, graph: Vec<String>, resolver: Resolver) {
        self.network.restore(host);
        let config = executor_service::Config {
            name: name.to_owned(),
            graph,
            concurrency: executor_service::Concurrency::Fixed(concurrency),
            // The names of hosts are no loopback addresses.
            far: true,
            protocols: Protocols::OURS,
            traces: None,
        };
        let edges = executor_service::Edges {
            cluster: Cluster::of_client(self.network.api_client(host), API),
            graph: self.network.connector(host),
            resolver,
            admin: None,
            tls: None,
            metrics: None,
        };
        let stop = Shutdown::new();
        let service = executor_service::serve(config, edges, stop.clone());
        self.executors.insert(host.to_owned(), Running::start(stop, service));
    }

    /// Asks an executor to stop. [`World::exit`] waits for its end.
    pub fn ask_to_stop(&self, host: &str) {
        if let Some(running) = self.executors.get(host) {
            running.stop.request();
        }
    }

    /// Waits for the end of an executor, and returns its result.
    pub async fn exit(&mut self, host: &str) -> anyhow::Result<Exit> {
        let mut running = self.executors.remove(host).with_context(|| format!("no executor on {host}"))?;
        running.end().await
    }

    /// Ends an executor as SIGKILL does.
    pub fn kill_executor(&mut self, host: &str) {
        self.network.remove(host);
        self.executors.remove(host);
    }

    /// Returns the replica's own status.
    pub async fn status(&self, replica: &str) -> anyhow::Result<GetStatusResponse> {
        let (channel, _) = puppet::channel(&self.network, USER, &self.inner_address(replica)).await?;
        Ok(AdminServiceClient::new(channel).get_status(GetStatusRequest {}).await?.into_inner())
    }

    /// Waits until a replica reports this role.
    pub async fn until_role(&self, replica: &str, role: ReplicaRole) -> anyhow::Result<GetStatusResponse> {
        let ask = || async { Ok(self.status(replica).await.ok()) };
        let is_it = |status: &Option<GetStatusResponse>| {
            let meta = status.as_ref().and_then(|status| status.meta.as_ref());
            meta.is_some_and(|meta| meta.role() == role && meta.unsynced.is_empty())
        };
        let what = format!("{replica} is {role:?}");
        crate::load::until(&what, LEADS_WITHIN, ask, is_it).await?.context("it was there a moment ago")
    }

    /// Waits until the leader has this many sessions with a stream.
    pub async fn until_sessions(&self, replica: &str, wanted: u32) -> anyhow::Result<()> {
        let ask = || async { Ok(self.status(replica).await?.executors) };
        crate::load::until("executors have sessions", LEADS_WITHIN, ask, |count| *count == wanted).await?;
        Ok(())
    }
}
