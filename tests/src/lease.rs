//! Measures how fast work goes from the graph service to executors and back, without the latency of an API server.
//!
//! The graph service is the real one, a process of its own, and so is its gRPC on loopback. Its API server is in memory
//! and idle during the measurement. The executors report each lease as done at once.

use crate::bench::{self, Figure, Rounds, Samples};
use crate::embedded::Api;
use crate::load::{configmaps, delete, families, until};
use crate::process::{Directory, free_port};
use crate::service::{Programs, Service, start_graph};
use crate::wire::puppet::{Puppet, hello};
use anyhow::{Context, bail, ensure};
use engine::work::{Hello, Outcome, ToExecutor, ToLeader, WorkLease, WorkReport};
use kube_api::cluster_uid;
use serde_json::{Value, json};
use std::fmt;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, interval};
use tonic::transport::Channel;

const NAMESPACE: &str = "default";
const EXECUTORS: usize = 4;
/// The maximum number of leases that an executor may hold.
const WINDOW: u32 = 1024;
/// The number of single leases.
const LIGHT: usize = 2_000;
const OWNERS: usize = 20;
const HEARTBEAT: Duration = Duration::from_secs(2);
/// The time of single leases, in place of a clock.
const HEARTBEAT_AFTER: usize = 100;
/// The number of acknowledged results, from the executors.
const ACKNOWLEDGEMENTS_MAX: usize = 1024;
const SOON: Duration = Duration::from_secs(300);

/// The result of one run.
#[derive(Clone, Debug)]
pub struct Run {
    pub leases: usize,
    /// The seconds until the last acknowledgement.
    pub seconds: f64,
    /// The time from a result to the next grant, in ms.
    pub light: Samples,
}

impl Run {
    /// Leases per second.
    pub fn rate(&self) -> f64 {
        self.leases as f64 / self.seconds
    }
}

/// Measures single leases first, and then this many leases at full speed.
pub async fn run(programs: &Programs, leases: usize) -> anyhow::Result<Run> {
    let directory = Directory::create()?;
    let api = Api::start(directory.path()).await?;
    families(&api.client, NAMESPACE, "light", 1, LIGHT).await?;
    families(&api.client, NAMESPACE, "o", OWNERS, leases / OWNERS).await?;
    let leases = OWNERS * (leases / OWNERS);
    let grpc = format!("127.0.0.1:{}", free_port()?);
    let mut graph = start_graph(programs, &api.kubeconfig, directory.path(), &grpc, 0)?;
    graph.ready().await?;
    let cluster = cluster_uid(&api.client).await?;

    delete(&api.client, &format!("{}/light-0", configmaps(NAMESPACE)), "Background").await?;
    until_queued(&graph, LIGHT).await?;
    let light = one_by_one(&grpc, &cluster).await?;

    for owner in 0..OWNERS {
        delete(&api.client, &format!("{}/o-{owner}", configmaps(NAMESPACE)), "Background").await?;
    }
    until_queued(&graph, leases).await?;
    let (told, mut acknowledged) = mpsc::channel(ACKNOWLEDGEMENTS_MAX);
    let mut executors = JoinSet::new();
    let mut channels = Vec::new();
    for _ in 0..EXECUTORS {
        channels.push(connect(&grpc).await?);
    }
    let begun = Instant::now();
    for (number, channel) in channels.into_iter().enumerate() {
        let hello = hello(&format!("executor-{number}"), "1", &cluster, WINDOW);
        executors.spawn(work(channel, hello, told.clone()));
    }
    drop(told);
    let mut done = 0;
    while done < leases {
        tokio::select! {
            Some(count) = acknowledged.recv() => done += count,
            Some(ended) = executors.join_next() => ended??,
            _late = tokio::time::sleep(SOON) => bail!("{done} of {leases} leases were acknowledged, and then none in {SOON:?}"),
        }
    }
    Ok(Run { leases: done, seconds: begun.elapsed().as_secs_f64(), light })
}

async fn until_queued(graph: &Service, items: usize) -> anyhow::Result<()> {
    let ready = || graph.metric("ownergraph_queue_items{state=\"ready\"}");
    let all = |count: &Option<f64>| count.is_some_and(|count| count >= items as f64);
    until("everything is decided", SOON, ready, all).await.map(|_| ())
}

async fn connect(grpc: &str) -> anyhow::Result<Channel> {
    let endpoint = executor_service::endpoint(grpc).map_err(anyhow::Error::msg)?;
    endpoint.connect().await.with_context(|| format!("connecting to {grpc}"))
}

/// Returns the time from each result to the next grant, in ms.
async fn one_by_one(grpc: &str, cluster: &str) -> anyhow::Result<Samples> {
    let mut puppet = Puppet::over((connect(grpc).await?, ())).await?;
    puppet.greet(hello("light", "1", cluster, 1)).await?;
    let mut samples = Samples::default();
    let mut leases = puppet.leases().await?;
    for number in 1..LIGHT {
        if number.is_multiple_of(HEARTBEAT_AFTER) {
            puppet.say(heartbeat((number / HEARTBEAT_AFTER) as u64)).await;
        }
        ensure!(leases.len() == 1, "{} leases where one was asked for", leases.len());
        let begun = Instant::now();
        answer(&puppet, leases).await;
        leases = puppet.leases().await?;
        samples.push(begun.elapsed().as_secs_f64() * 1e3);
    }
    answer(&puppet, leases).await;
    // The stream may end after the leader has the last result.
    let acknowledged = |message| matches!(message, ToExecutor::ReportAck { .. }).then_some(());
    puppet.await_that(acknowledged).await?;
    Ok(samples)
}

/// Works until the receiver of the count is dropped.
async fn work(channel: Channel, hello: Hello, told: mpsc::Sender<usize>) -> anyhow::Result<()> {
    let mut puppet = Puppet::over((channel, ())).await?;
    puppet.greet(hello).await?;
    let mut beats = interval(HEARTBEAT);
    let mut sequence = 0;
    loop {
        tokio::select! {
            message = puppet.hear() => match message?.context("the leader has finished")? {
                ToExecutor::Grant { leases } => answer(&puppet, leases).await,
                ToExecutor::ReportAck { results } => told.send(results.len()).await?,
                ToExecutor::Welcome(_)
                | ToExecutor::HeartbeatAck { .. }
                | ToExecutor::Revoke { .. }
                | ToExecutor::Throttle { .. }
                | ToExecutor::DrainAck { .. }
                | ToExecutor::GoAway { .. } => {}
            },
            _ = beats.tick() => {
                sequence += 1;
                puppet.say(heartbeat(sequence)).await;
            }
        }
    }
}

fn heartbeat(sequence: u64) -> ToLeader {
    ToLeader::Heartbeat { sequence, started: 0, buffered: 0 }
}

/// Reports the start and the end of each lease.
async fn answer(puppet: &Puppet<()>, leases: Vec<WorkLease>) {
    puppet.say(ToLeader::Started { leases: leases.iter().map(|lease| lease.id).collect() }).await;
    let reports = leases.iter().map(|lease| WorkReport::new(lease, Outcome::Done, 200)).collect();
    puppet.say(ToLeader::Reports { reports, returns: Vec::new() }).await;
}

fn light(rounds: &Rounds<Run>, percent: usize) -> Samples {
    rounds.samples((), |run| run.light.percentile(percent))
}

/// The test's own executors are the only ones.
impl bench::Run for Run {
    type Who = ();

    fn who(&self) {}

    fn json(&self) -> Value {
        json!({
            "leases": self.leases, "seconds": self.seconds, "leasesPerSecond": self.rate(),
            "lightMillis": { "p50": self.light.median(), "p99": self.light.percentile(99), "most": self.light.most() },
        })
    }

    fn figures(rounds: &Rounds<Run>) -> Vec<Figure> {
        vec![Figure::new("lease-rate", rounds.samples((), Run::rate)), Figure::new("lease-latency", light(rounds, 99))]
    }

    fn table(rounds: &Rounds<Run>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let leases = rounds.all().first().map_or(0, |run| run.leases);
        let rates = rounds.samples((), Run::rate);
        writeln!(f, "\n{leases} leases, {EXECUTORS} executors of {WINDOW}: {rates:.0}/s")?;
        writeln!(f, "one at a time, ms: p50 {}, p99 {}", light(rounds, 50), light(rounds, 99))
    }
}
