//! Measures how fast work goes from the graph service to executors and back, without the latency of an API server.
//!
//! The graph service is the real one, a process of its own, and so is its gRPC on loopback. Its API server is in memory
//! and idle during the measurement. The executors report each lease as done at once. With a gate, a policy engine on a
//! stream answers a question about each object, in this process.

use crate::bench::{self, Figure, Rounds, Samples};
use crate::contender;
use crate::embedded::Api;
use crate::load::{self, configmaps, delete, families, until};
use crate::process::{Directory, free_port};
use crate::service::{Programs, Service, start_graph};
use crate::wire::puppet::{Puppet, hello};
use anyhow::{Context, bail, ensure};
use engine::work::{Hello, Outcome, ToExecutor, ToLeader, WorkLease, WorkReport};
use kube::Client;
use kube_api::cluster_uid;
use proto::decision::v1beta1::gate_service_client::GateServiceClient;
use proto::decision::v1beta1::stream_verdicts_request::{self as said, Hello as EngineHello, Verdict, Verdicts};
use proto::decision::v1beta1::stream_verdicts_response::Message as Asked;
use proto::decision::v1beta1::{GateVerdict, StreamVerdictsRequest};
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

/// The namespace whose engine never answers.
const SLOW: &str = "slow";
const SLOW_OBJECTS: usize = 2_000;
/// The number of questions that an engine may have, and of its messages under way.
const QUESTIONS: u32 = 1000;

/// The gates of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gated {
    Free,
    /// An engine allows each object.
    EachObject,
    /// An engine has the questions about another namespace, and answers none.
    Elsewhere,
}

impl Gated {
    pub const ALL: [Gated; 3] = [Gated::Free, Gated::EachObject, Gated::Elsewhere];
}

impl fmt::Display for Gated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Gated::Free => "no gate",
            Gated::EachObject => "a gate about each object",
            Gated::Elsewhere => "a gate elsewhere without answers",
        })
    }
}

/// The result of one run.
#[derive(Clone, Debug)]
pub struct Run {
    pub gated: Gated,
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
pub async fn run(programs: &Programs, gated: Gated, leases: usize) -> anyhow::Result<Run> {
    let directory = Directory::create()?;
    let api = Api::start(directory.path()).await?;
    families(&api.client, NAMESPACE, "light", 1, LIGHT).await?;
    families(&api.client, NAMESPACE, "o", OWNERS, leases / OWNERS).await?;
    let leases = OWNERS * (leases / OWNERS);
    let grpc = format!("127.0.0.1:{}", free_port()?);
    let mut graph = start_graph(programs, &api.kubeconfig, directory.path(), &grpc, 0)?;
    graph.ready().await?;
    let cluster = cluster_uid(&api.client).await?;
    let _engine = match gated {
        Gated::Free => None,
        Gated::EachObject => Some(gate(&api.client, &graph, &grpc, NAMESPACE, true).await?),
        Gated::Elsewhere => {
            load::namespace(&api.client, SLOW).await?;
            families(&api.client, SLOW, "o", 1, SLOW_OBJECTS).await?;
            let engine = gate(&api.client, &graph, &grpc, SLOW, false).await?;
            delete(&api.client, &format!("{}/o-0", configmaps(SLOW)), "Background").await?;
            until_queued(&graph, SLOW_OBJECTS).await?;
            Some(engine)
        }
    };

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
    Ok(Run { gated, leases: done, seconds: begun.elapsed().as_secs_f64(), light })
}

async fn until_queued(graph: &Service, items: usize) -> anyhow::Result<()> {
    let ready = || graph.metric("ownergraph_queue_items{state=\"ready\"}");
    let all = |count: &Option<f64>| count.is_some_and(|count| count >= items as f64);
    until("everything is decided", SOON, ready, all).await.map(|_| ())
}

/// Creates a gate about the objects of a namespace, and connects an engine that allows all, or never answers.
async fn gate(
    client: &Client,
    graph: &Service,
    grpc: &str,
    namespace: &str,
    answers: bool,
) -> anyhow::Result<JoinSet<anyhow::Result<()>>> {
    contender::gate(client, graph, namespace, &json!({ "stream": {} })).await?;
    let (say, said) = mpsc::channel(QUESTIONS as usize);
    let hello = EngineHello {
        gate: namespace.to_owned(),
        min_protocol: 1,
        max_protocol: 1,
        max_inflight: QUESTIONS,
        ..EngineHello::default()
    };
    say.send(StreamVerdictsRequest { message: Some(said::Message::Hello(hello)) }).await?;
    let mut client = GateServiceClient::new(connect(grpc).await?);
    let said = tokio_stream::wrappers::ReceiverStream::new(said);
    let mut asked = client.stream_verdicts(said).await?.into_inner();
    let mut engine = JoinSet::new();
    engine.spawn(async move {
        while let Some(message) = asked.message().await? {
            let Some(Asked::Requests(asked)) = message.message.filter(|_| answers) else { continue };
            let allow = |request_id| Verdict { request_id, verdict: GateVerdict::Allow.into(), ..Verdict::default() };
            let verdicts = asked.requests.iter().map(|request| allow(request.request_id)).collect();
            say.send(StreamVerdictsRequest { message: Some(said::Message::Verdicts(Verdicts { verdicts })) }).await?;
        }
        Ok(())
    });
    Ok(engine)
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

fn light(rounds: &Rounds<Run>, gated: Gated, percent: usize) -> Samples {
    rounds.samples(gated, |run| run.light.percentile(percent))
}

/// The test's own executors are the only ones.
impl bench::Run for Run {
    type Who = Gated;

    fn who(&self) -> Gated {
        self.gated
    }

    fn json(&self) -> Value {
        json!({
            "gates": self.gated.to_string(), "leases": self.leases, "seconds": self.seconds,
            "leasesPerSecond": self.rate(),
            "lightMillis": { "p50": self.light.median(), "p99": self.light.percentile(99), "most": self.light.most() },
        })
    }

    fn figures(rounds: &Rounds<Run>) -> Vec<Figure> {
        let rates = |gated| rounds.samples(gated, Run::rate);
        let mut figures = vec![
            Figure::new("lease-rate", rates(Gated::Free)),
            Figure::new("lease-latency", light(rounds, Gated::Free, 99)),
        ];
        if rounds.of(Gated::EachObject).count() > 0 {
            figures.push(Figure::new("verdicts", rates(Gated::EachObject)));
        }
        if rounds.of(Gated::Elsewhere).count() > 0 {
            figures.push(Figure::new("gate-elsewhere", rates(Gated::Elsewhere).over(&rates(Gated::Free))));
        }
        figures
    }

    fn table(rounds: &Rounds<Run>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let leases = rounds.all().first().map_or(0, |run| run.leases);
        writeln!(f, "\n{leases} leases, {EXECUTORS} executors of {WINDOW}")?;
        for gated in rounds.everybody() {
            let rates = rounds.samples(gated, Run::rate);
            let (p50, p99) = (light(rounds, gated, 50), light(rounds, gated, 99));
            writeln!(f, "{:<36} {rates:.0}/s; one at a time, ms: p50 {p50}, p99 {p99}", gated.to_string())?;
        }
        Ok(())
    }
}
