//! Measures the cost of readers of decisions for the collector, in a cascade on the sandbox. The comparison is
//! kube-apiserver, whose watch cache does the same work: it has as many watchers, and deletes as many objects. Readers
//! and watchers would run on other machines, so their threads have a low priority.

use crate::bench::{self, Figure, Rounds};
use crate::controlplane::{self, Binaries, ControlPlane};
use crate::embedded::Api;
use crate::load::{self, configmaps, delete, families, until_left};
use crate::process::Directory;
use crate::service::{Fleet, Programs};
use crate::usage::{cpu_seconds, most_memory_mib};
use anyhow::{Context, ensure};
use bytes::Bytes;
use http::{Method, Request};
use http_body_util::BodyExt as _;
use kube::client::Body;
use proto::decision::v1beta1::watch_decisions_request::Start;
use proto::decision::v1beta1::{DecisionFilter, WatchDecisionsRequest};
use serde_json::{Value, json};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tonic::client::Grpc;
use tonic::codec::Streaming;
use tonic::transport::Channel;
use tonic_prost::ProstCodec;

const NAMESPACE: &str = "followed";
/// The lower priority of the clients' threads.
const NICE: i32 = 19;
const OWNERS: usize = 20;
const WITHIN: Duration = Duration::from_secs(600);
/// The events of each object: proposed, leased and succeeded.
const EVENTS_PER_OBJECT: usize = 3;
const WATCH: &str = "/ownergraph.decision.v1beta1.DecisionService/WatchDecisions";

/// The readers of the cascade.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Readers {
    pub count: usize,
    /// The number of expressions of each reader. The last one is true.
    pub expressions: usize,
    /// The readers watch objects on kube-apiserver, and not decisions.
    pub watch_cache: bool,
}

impl fmt::Display for Readers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.expressions {
            0 if self.watch_cache => write!(f, "kube-apiserver, {} watchers", self.count),
            0 => write!(f, "{} readers", self.count),
            expressions => write!(f, "{} readers of {expressions} expressions", self.count),
        }
    }
}

/// The result of one run.
#[derive(Clone, Debug)]
pub struct Run {
    pub readers: Readers,
    pub objects: usize,
    /// The seconds until the last object was gone, and until every reader had every event.
    pub cascade: f64,
    pub told: f64,
    /// The events of all readers together.
    pub events: usize,
    /// The processor seconds of the graph service, and its maximum memory in MiB.
    pub cpu: f64,
    pub memory: f64,
}

/// A message of the stream. The reader counts its events and does not decode them, to save processor time.
#[derive(Clone, PartialEq, prost::Message)]
struct Message {
    #[prost(message, optional, tag = "1")]
    batch: Option<Batch>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Batch {
    #[prost(bytes = "bytes", repeated, tag = "1")]
    events: Vec<Bytes>,
}

/// Runs one cascade of about this many objects with these readers.
///
/// # Errors
/// A program does not start, or a stream fails.
pub async fn run(programs: &Programs, readers: Readers, objects: usize) -> anyhow::Result<Run> {
    let directory = Directory::create()?;
    let api = Api::start(directory.path()).await?;
    load::namespace(&api.client, NAMESPACE).await?;
    let owners = families(&api.client, NAMESPACE, "o", OWNERS, objects / OWNERS).await?;
    let objects = OWNERS * (objects / OWNERS);
    let mut fleet = Fleet::start(programs, &api.kubeconfig, 1).await?;
    fleet.until_known(objects).await?;
    let events = Arc::new(AtomicUsize::new(0));
    let mut following = JoinSet::new();
    let others = Others::start()?;
    for _ in 0..readers.count {
        let (server, events) = (fleet.grpc().to_owned(), Arc::clone(&events));
        let stream = others.0.spawn(async move { open(&server, readers.expressions).await }).await??;
        following.spawn_on(follow(stream, objects * EVENTS_PER_OBJECT, events), &others.0);
    }
    let graph = fleet.graph.process.pid();
    let (cpu, begun) = (cpu_seconds(graph)?, Instant::now());
    let maps = configmaps(NAMESPACE);
    for owner in &owners {
        delete(&api.client, &format!("{maps}/{owner}"), "Background").await?;
    }
    until_left(&api.client, &maps, 0, WITHIN).await?;
    let cascade = begun.elapsed().as_secs_f64();
    while let Some(ended) = timeout(WITHIN, following.join_next()).await.context("the readers have not everything")? {
        ended.context("a reader panicked")??;
    }
    let told = begun.elapsed().as_secs_f64();
    let (cpu, memory) = (cpu_seconds(graph)? - cpu, most_memory_mib(graph)?);
    ensure!(fleet.graph.process.exited()?.is_none(), "the graph service has ended");
    Ok(Run { readers, objects, cascade, told, events: events.load(Ordering::Relaxed), cpu, memory })
}

/// Starts the threads of clients.
struct Others(Handle, Option<Runtime>);

impl Others {
    fn start() -> anyhow::Result<Others> {
        let mut runtime = Builder::new_multi_thread();
        runtime.on_thread_start(|| {
            if let Err(error) = rustix::process::setpriority_process(None, NICE) {
                tracing::warn!(%error, "clients take more of the machine than they should");
            }
        });
        let runtime = runtime.worker_threads(2).enable_all().build()?;
        Ok(Others(runtime.handle().clone(), Some(runtime)))
    }
}

impl Drop for Others {
    fn drop(&mut self) {
        self.1.take().into_iter().for_each(Runtime::shutdown_background);
    }
}

/// Deletes about this many objects on kube-apiserver, one after another, with these watchers.
///
/// # Errors
/// The control plane does not start, or a watch fails.
pub async fn run_watch_cache(binaries: &Binaries, readers: Readers, objects: usize) -> anyhow::Result<Run> {
    let plane = ControlPlane::start(binaries).await?;
    let client = plane.client().await?;
    load::namespace(&client, NAMESPACE).await?;
    let maps = configmaps(NAMESPACE);
    let names: Vec<String> = (0..objects).map(|number| format!("o-{number}")).collect();
    load::create_all(&client, &maps, names.iter().map(|name| load::configmap(name, &[])).collect()).await?;
    let list = load::send(&client, Method::GET, &format!("{maps}?limit=1"), None).await?;
    let from = list["metadata"]["resourceVersion"].as_str().context("a list has a version")?.to_owned();
    let others = Others::start()?;
    let events = Arc::new(AtomicUsize::new(0));
    let mut following = JoinSet::new();
    for _ in 0..readers.count {
        let (kubeconfig, events) = (plane.kubeconfig().to_owned(), Arc::clone(&events));
        let uri = format!("{maps}?watch=true&resourceVersion={from}");
        following.spawn_on(watch(kubeconfig, uri, objects, events), &others.0);
    }
    let server = plane.apiserver().context("it runs")?.pid();
    let (cpu, begun) = (cpu_seconds(server)?, Instant::now());
    load::delete_all(&client, &maps, names).await?;
    let cascade = begun.elapsed().as_secs_f64();
    while let Some(ended) = timeout(WITHIN, following.join_next()).await.context("the watchers have not everything")? {
        ended.context("a watcher panicked")??;
    }
    let told = begun.elapsed().as_secs_f64();
    let (cpu, memory) = (cpu_seconds(server)? - cpu, most_memory_mib(server)?);
    Ok(Run { readers, objects, cascade, told, events: events.load(Ordering::Relaxed), cpu, memory })
}

/// Counts the events of a watch, one per line.
async fn watch(kubeconfig: PathBuf, uri: String, wanted: usize, all: Arc<AtomicUsize>) -> anyhow::Result<()> {
    let client = controlplane::client(&kubeconfig).await?;
    let mut body = client.send(Request::get(uri).body(Body::empty())?).await?.into_body();
    let mut events = 0;
    while events < wanted {
        let frame = body.frame().await.context("the watch ended")??;
        let more = frame.data_ref().map_or(0, |data| data.iter().filter(|byte| **byte == b'\n').count());
        all.fetch_add(more, Ordering::Relaxed);
        events += more;
    }
    Ok(())
}

/// Opens a stream on its own connection.
async fn open(server: &str, expressions: usize) -> anyhow::Result<Streaming<Message>> {
    let channel = Channel::from_shared(format!("http://{server}"))?.connect().await?;
    let cel = |number: usize| match number + 1 == expressions {
        true => "event.attempt >= 0".to_owned(),
        false => format!("event.target.name == 'nobody-{number}' && event.attempt > 7"),
    };
    let include = (0..expressions).map(|number| DecisionFilter { cel: cel(number), ..DecisionFilter::default() });
    let request = WatchDecisionsRequest {
        start: Some(Start::Now(true)),
        include: include.collect(),
        ..WatchDecisionsRequest::default()
    };
    let mut client = Grpc::new(channel);
    client.ready().await?;
    let codec: ProstCodec<WatchDecisionsRequest, Message> = ProstCodec::default();
    let answer = client.server_streaming(tonic::Request::new(request), WATCH.parse()?, codec).await?;
    let mut stream = answer.into_inner();
    // The first message confirms the beginning of the stream.
    stream.message().await?.context("the stream ended at once")?;
    Ok(stream)
}

async fn follow(mut stream: Streaming<Message>, wanted: usize, all: Arc<AtomicUsize>) -> anyhow::Result<()> {
    let mut events = 0;
    while events < wanted {
        let message = stream.message().await?.context("the stream ended")?;
        let more = message.batch.map_or(0, |batch| batch.events.len());
        all.fetch_add(more, Ordering::Relaxed);
        events += more;
    }
    Ok(())
}

impl bench::Run for Run {
    type Who = Readers;

    fn who(&self) -> Readers {
        self.readers
    }

    fn json(&self) -> Value {
        json!({
            "who": self.readers.to_string(), "readers": self.readers.count, "expressions": self.readers.expressions, "objects": self.objects,
            "cascadeSeconds": self.cascade, "toldSeconds": self.told, "events": self.events, "cpuSeconds": self.cpu,
            "memoryMiB": self.memory,
        })
    }

    fn figures(_rounds: &Rounds<Run>) -> Vec<Figure> {
        Vec::new()
    }

    fn table(rounds: &Rounds<Run>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head = ["", "cascade, s", "× no reader", "events/s to all", "service CPU, s", "MiB"];
        writeln!(
            f,
            "\n{:<36} {:>20} {:>20} {:>24} {:>20} {:>20}",
            head[0], head[1], head[2], head[3], head[4], head[5]
        )?;
        for readers in rounds.everybody() {
            let without = Readers { count: 0, expressions: 0, ..readers };
            let alone = rounds.samples(without, |run| run.cascade);
            let cascade = rounds.samples(readers, |run| run.cascade);
            let rate = rounds.samples(readers, |run| run.events as f64 / run.told);
            let cpu = rounds.samples(readers, |run| run.cpu);
            let memory = rounds.samples(readers, |run| run.memory);
            let columns = [cascade.to_string(), cascade.over(&alone).to_string(), rate.to_string()];
            let [cascade, ratio, rate] = columns;
            let (who, cpu, memory) = (readers.to_string(), cpu.to_string(), memory.to_string());
            writeln!(f, "{who:<36} {cascade:>20} {ratio:>20} {rate:>24} {cpu:>20} {memory:>20}")?;
        }
        Ok(())
    }
}
