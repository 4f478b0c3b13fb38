//! Kills, pauses, stops and disconnects every process while cascades of all policies run. An oracle knows the result of
//! each cascade.

mod faults;
mod oracle;
mod schedule;
mod users;
mod watching;

pub use schedule::Kind;

use crate::controlplane::{Binaries, ControlPlane};
use crate::load::{self, configmaps, families, list, until};
use crate::random::Random;
use crate::replicas::{Replicas, held, wire_to};
use crate::service::Programs;
use anyhow::{Context, bail, ensure};
use faults::{Deployment, Done, carry_out};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Client;
use schedule::Shape;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, interval};
use users::{NAMESPACES, Remains, Shared, User};

const GRAPHS: usize = 3;
const EXECUTORS: usize = 4;
const USERS: usize = 3;
/// The maximum time from the last fault to the end of all work. The figures say how long it took.
const SETTLED_WITHIN: Duration = Duration::from_secs(240);
/// The time limit of other waits, long enough for a busy machine.
const AT_LAST: Duration = Duration::from_secs(60);
/// The number of journal lines that a failure shows.
const JOURNAL_TAIL: usize = 40;

/// The durations of the election.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leases {
    pub lease_duration: Duration,
    pub renew_deadline: Duration,
    pub retry_period: Duration,
}

impl Leases {
    /// Short durations, so that many elections happen.
    pub const SHORT: Leases = Leases {
        lease_duration: Duration::from_secs(6),
        renew_deadline: Duration::from_secs(4),
        retry_period: Duration::from_secs(1),
    };
    /// The default durations of the service.
    pub const DEFAULT: Leases = Leases {
        lease_duration: Duration::from_secs(18),
        renew_deadline: Duration::from_secs(12),
        retry_period: Duration::from_secs(2),
    };

    /// The durations as flags of the graph service.
    pub fn flags(self) -> Vec<String> {
        let flag = |name: &str, value: Duration| [format!("--{name}"), format!("{}ms", value.as_millis())];
        [
            flag("lease-duration", self.lease_duration),
            flag("renew-deadline", self.renew_deadline),
            flag("retry-period", self.retry_period),
        ]
        .concat()
    }
}

/// The parameters of one run.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    pub seed: u64,
    /// The duration of the phase with faults.
    pub lasts: Duration,
    pub leases: Leases,
}

/// The result of a run.
#[derive(Clone, Debug)]
pub struct Figures {
    pub options: Options,
    pub faults: BTreeMap<Kind, usize>,
    pub skipped: usize,
    /// The objects that were deleted or lost a reference, by the policy of their owner's deletion.
    pub collected: BTreeMap<String, u64>,
    /// The number of acquisitions of the Lease.
    pub terms: u64,
    /// The longest time with open work and without progress.
    pub longest_stall: Duration,
    /// The time from the end of the last fault to the last object.
    pub settled_after: Duration,
}

/// Starts a deployment on its own control plane, disturbs it, and compares the result with the expected one.
pub async fn run(binaries: &Binaries, programs: &Programs, options: Options) -> anyhow::Result<Figures> {
    let plane = ControlPlane::start(binaries).await?;
    let client = plane.client().await?;
    for namespace in NAMESPACES.into_iter().chain(["bystanders"]) {
        load::namespace(&client, namespace).await?;
    }
    let before = bystanders(&client).await?;
    let mut deployment = deploy(&plane, programs, options).await?;
    let shared = Shared::default();
    let mut tasks = Tasks::start(&plane, &shared, options.seed).await?;

    let mut done = Done::default();
    let shape = Shape { graphs: GRAPHS, executors: EXECUTORS, lease_duration: options.leases.lease_duration };
    let schedule = schedule::draw(options.seed, shape, options.lasts);
    let disturbed = tokio::select! {
        disturbed = carry_out(&mut deployment, &schedule, &mut done) => disturbed,
        Err(error) = tasks.watch(&shared) => Err(error),
    };
    let ended = Instant::now();
    let settled = match disturbed {
        Ok(()) => settle(&mut tasks, &shared).await,
        Err(error) => Err(error),
    };
    let settled_after = ended.elapsed();
    let judged = match settled {
        Ok(remains) => judge(&client, &shared, &deployment, &before, &remains).await,
        Err(error) => Err(error),
    };
    judged.with_context(|| told(options, &deployment, &done))?;
    let terms = held(&client).await?.term;
    stop(&mut deployment).await.with_context(|| told(options, &deployment, &done))?;
    let oracle = shared.oracle();
    Ok(Figures {
        options,
        faults: done.by_kind,
        skipped: done.skipped,
        collected: oracle.collected().iter().map(|(policy, count)| (policy.to_string(), *count)).collect(),
        terms,
        longest_stall: oracle.longest_stall(),
        settled_after,
    })
}

/// Creates objects that must stay: unowned objects, and objects with living owners.
async fn bystanders(client: &Client) -> anyhow::Result<Vec<Value>> {
    families(client, "bystanders", "alive", 10, 40).await?;
    let unowned = (0..390).map(|number| load::configmap(&format!("unowned-{number}"), &[])).collect();
    load::create_all(client, &configmaps("bystanders"), unowned).await?;
    list(client, configmaps("bystanders")).await
}

async fn deploy(plane: &ControlPlane, programs: &Programs, options: Options) -> anyhow::Result<Deployment> {
    let mut replicas = Replicas::new(programs, GRAPHS).await?;
    let (mut graph_wires, mut executor_wires) = (Vec::new(), Vec::new());
    let flags = options.leases.flags();
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    for graph in 0..GRAPHS {
        let (wire, kubeconfig) = wire_to(plane, replicas.directory(), &format!("graph-{graph}")).await?;
        replicas.add_graph(&kubeconfig, &flags)?;
        graph_wires.push(wire);
    }
    for executor in 0..EXECUTORS {
        let (wire, kubeconfig) = wire_to(plane, replicas.directory(), &format!("executor-{executor}")).await?;
        replicas.add_executor(&kubeconfig, &["--concurrency", "8"])?;
        executor_wires.push(wire);
    }
    replicas.ready().await?;
    Ok(Deployment { replicas, graph_wires, executor_wires, client: plane.client().await? })
}

/// Starts the users and the watches.
struct Tasks {
    users: JoinSet<anyhow::Result<Vec<Remains>>>,
    watches: JoinSet<anyhow::Result<()>>,
    stop: watch::Sender<bool>,
}

impl Tasks {
    async fn start(plane: &ControlPlane, shared: &Shared, seed: u64) -> anyhow::Result<Tasks> {
        let mut watches = JoinSet::new();
        watches.spawn(watching::follow::<ConfigMap>(plane.client().await?, shared.clone()));
        watches.spawn(watching::follow::<Secret>(plane.client().await?, shared.clone()));
        let (stop, stopped) = watch::channel(false);
        let mut users = JoinSet::new();
        for user in 0..USERS {
            let draw = Random::new(seed.wrapping_mul(1_000).wrapping_add(user as u64), 0);
            let user = User { client: plane.client().await?, shared: shared.clone(), draw, first: user, step: USERS };
            users.spawn(user.run(stopped.clone()));
        }
        Ok(Tasks { users, watches, stop })
    }

    /// Ends only after an error.
    async fn watch(&mut self, shared: &Shared) -> anyhow::Result<()> {
        let mut looks = interval(Duration::from_millis(250));
        loop {
            tokio::select! {
                _ = looks.tick() => if let Some(first) = shared.oracle().violations().first() {
                    bail!("{first}");
                },
                Some(ended) = self.watches.join_next() => return ended?.and_then(|()| bail!("a watch has ended")),
                Some(ended) = self.users.join_next() => return ended?.and_then(|_| bail!("a user has ended")),
            }
        }
    }
}

/// Stops the users, and waits until all their work is done.
async fn settle(tasks: &mut Tasks, shared: &Shared) -> anyhow::Result<Vec<Remains>> {
    tasks.stop.send_replace(true);
    let mut remains = Vec::new();
    while let Some(ended) = tasks.users.join_next().await {
        remains.extend(ended??);
    }
    let pending = || async { Ok(shared.oracle().pending()) };
    let settled = until("everything is settled", SETTLED_WITHIN, pending, |pending| *pending == 0).await;
    settled.with_context(|| format!("not settled: {:?}", shared.oracle().pending_names(10)))?;
    Ok(remains)
}

async fn judge(
    client: &Client,
    shared: &Shared,
    deployment: &Deployment,
    before: &[Value],
    remains: &[Remains],
) -> anyhow::Result<()> {
    for family in remains {
        family.check(client, shared).await?;
    }
    if let Some(first) = shared.oracle().violations().first() {
        bail!("{first}");
    }
    ensure!(list(client, configmaps("bystanders")).await? == before, "the bystanders are as they were, to the byte");
    let ask = || census(deployment);
    until("one leads, and all hold the same graph", AT_LAST, ask, |census| census.agrees()).await?;
    let alarms = deployment.replicas.alarms()?;
    ensure!(alarms.is_empty(), "unexpected lines: {alarms:#?}");
    Ok(())
}

/// Collects the status of each replica, and the session of each executor.
#[derive(Debug, Default)]
struct Census {
    leaders: f64,
    nodes: Vec<f64>,
    edges: Vec<f64>,
    sessions: f64,
}

impl Census {
    fn agrees(&self) -> bool {
        let same = |counts: &[f64]| counts.windows(2).all(|pair| pair[0] == pair[1]);
        self.leaders == 1.0 && same(&self.nodes) && same(&self.edges) && self.sessions == EXECUTORS as f64
    }
}

async fn census(deployment: &Deployment) -> anyhow::Result<Census> {
    let mut census = Census::default();
    for graph in &deployment.replicas.graphs {
        census.leaders += graph.metric("ownergraph_leader ").await?;
        census.nodes.push(graph.metric("ownergraph_graph_nodes ").await?);
        census.edges.push(graph.metric("ownergraph_graph_edges ").await?);
    }
    for executor in &deployment.replicas.executors {
        census.sessions += executor.metric("ownergraph_executor_sessions ").await?;
    }
    Ok(census)
}

/// Asks all processes to stop, and waits until they have stopped.
async fn stop(deployment: &mut Deployment) -> anyhow::Result<()> {
    let Replicas { executors, graphs, .. } = &mut deployment.replicas;
    for member in executors.iter_mut().chain(graphs) {
        let name = member.name().to_owned();
        let process = &mut member.service_mut()?.process;
        process.terminate()?;
        let code = process.ended(AT_LAST).await?;
        ensure!(code == 0, "{name} was asked to stop and ended with {code}; {}", process.log_tail());
    }
    Ok(())
}

/// Collects the facts that explain a failure.
fn told(options: Options, deployment: &Deployment, done: &Done) -> String {
    let tail = &done.journal[done.journal.len().saturating_sub(JOURNAL_TAIL)..];
    let alarms = deployment.replicas.alarms().unwrap_or_default();
    format!("SEED={} {:?}\n{}\nalarms: {alarms:#?}", options.seed, options.lasts, tail.join("\n"))
}

impl Figures {
    /// Checks that the run had objects of all policies.
    pub fn objects(&self) -> u64 {
        self.collected.values().sum()
    }

    /// Checks that the run had faults of all kinds.
    pub fn faults(&self) -> usize {
        self.faults.values().sum()
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Figures { options, skipped, terms, longest_stall, settled_after, .. } = self;
        write!(f, "seed {}, {} s: {} faults (", options.seed, options.lasts.as_secs(), self.faults())?;
        for (kind, count) in &self.faults {
            write!(f, "{kind} {count}, ")?;
        }
        write!(f, "{skipped} skipped), {} objects (", self.objects())?;
        for (number, (policy, count)) in self.collected.iter().enumerate() {
            write!(f, "{}{policy} {count}", if number > 0 { ", " } else { "" })?;
        }
        write!(
            f,
            "), {terms} terms, longest stall {longest_stall:.1?}, settled {settled_after:.1?} after the last fault"
        )
    }
}
