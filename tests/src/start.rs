//! Measures the time from an empty process to the whole graph, for ours, upstream's collector and a bare reader on the
//! same API server.

use crate::bench::{self, Figure, Rounds, Samples};
use crate::contender::Contender;
use crate::controlplane::{Binaries, ControlPlane};
use crate::load::{self, configmap, configmaps, count, create, families, get, reference_to, until_soon};
use crate::process::{Directory, Process, free_port};
use crate::reader::{Read, Way};
use crate::service::{Programs, Service, start_graph};
use crate::usage::{memory_mib, most_memory_mib};
use anyhow::{Context, ensure};
use kube::Client;
use serde_json::{Value, json};
use std::fmt;
use std::fs;
use std::time::Duration;
use tokio::time::Instant;

const NAMESPACE: &str = "world";
/// The dependents of each owner.
const FAMILY: usize = 100;
const WITHIN: Duration = Duration::from_secs(600);
/// The number of objects for which the budget of memory holds.
const BUDGET_OBJECTS: usize = 100_000;

/// The contender that starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Starter {
    /// A client that only reads.
    Reader(Way),
    /// kube-controller-manager with only its collector, this many workers, and without limits of its client.
    Upstream(u32),
    /// One graph service and one executor.
    Ours,
}

impl fmt::Display for Starter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Starter::Reader(way) => write!(f, "bare reader, {}", way.word()),
            Starter::Upstream(_) => write!(f, "upstream"),
            Starter::Ours => write!(f, "ours"),
        }
    }
}

/// The result of one start.
#[derive(Clone, Debug)]
pub struct Run {
    pub starter: Starter,
    /// The number of objects in the world.
    pub objects: usize,
    /// The seconds until the contender says that it has everything.
    pub everything: f64,
    /// The seconds until an object is gone whose owner was gone before the start. The reader collects nothing.
    pub collects: Option<f64>,
    /// The memory of the process with the graph, in MiB: at that time, and its maximum.
    pub memory: f64,
    pub most_memory: f64,
}

/// A world of this many objects. The contenders start in it one after another.
#[allow(missing_debug_implementations, reason = "a client shows nothing")]
pub struct World {
    plane: ControlPlane,
    client: Client,
    programs: Programs,
    /// The number of objects in a graph.
    pub objects: usize,
    canaries: usize,
}

impl World {
    /// Builds the world, and runs a reader once, so that the API server finishes all work that it does only once.
    pub async fn create(binaries: &Binaries, programs: &Programs, objects: usize) -> anyhow::Result<World> {
        let plane = ControlPlane::start(binaries).await?;
        let client = plane.client().await?;
        load::namespace(&client, NAMESPACE).await?;
        families(&client, NAMESPACE, "o", objects.div_ceil(FAMILY + 1), FAMILY).await?;
        let objects = count(&client, &configmaps(NAMESPACE)).await?;
        let mut world = World { plane, client, programs: programs.clone(), objects, canaries: 0 };
        for way in Way::ALL {
            world.run(Starter::Reader(way)).await?;
        }
        Ok(world)
    }

    /// Measures one start.
    pub async fn run(&mut self, starter: Starter) -> anyhow::Result<Run> {
        match starter {
            Starter::Reader(way) => self.reader(way).await,
            Starter::Upstream(workers) => self.upstream(workers).await,
            Starter::Ours => self.ours().await,
        }
    }

    async fn reader(&self, way: Way) -> anyhow::Result<Run> {
        let directory = Directory::create()?;
        let file = directory.path().join("read").display().to_string();
        let arguments = [self.plane.kubeconfig().display().to_string(), way.word().to_owned(), file.clone()];
        let begun = Instant::now();
        let mut process = Process::spawn("reader", directory.path(), &self.programs.client("reader"), &arguments)?;
        let code = process.ended(WITHIN).await?;
        ensure!(code == 0, "the reader failed: {}", process.output());
        let everything = begun.elapsed().as_secs_f64();
        let told = fs::read_to_string(&file)?;
        let (collections, pages) = told.split_once(' ').context("two numbers")?;
        let read = Read { collections: collections.parse()?, pages: pages.parse()? };
        ensure!(read.can_hold(self.objects, way), "{read:?} cannot be all of {} objects", self.objects);
        let objects = self.objects;
        Ok(Run { starter: Starter::Reader(way), objects, everything, collects: None, memory: 0.0, most_memory: 0.0 })
    }

    async fn upstream(&mut self, workers: u32) -> anyhow::Result<Run> {
        let canary = self.canary().await?;
        let begun = Instant::now();
        let collector = self.plane.start_upstream_collector(&Contender::upstream(workers, None)).await?;
        let everything = begun.elapsed().as_secs_f64();
        self.until_gone(&canary).await?;
        let collects = Some(begun.elapsed().as_secs_f64());
        let pid = collector.process().pid();
        let (memory, most_memory) = (memory_mib(pid)?, most_memory_mib(pid)?);
        let (starter, objects) = (Starter::Upstream(workers), self.objects);
        Ok(Run { starter, objects, everything, collects, memory, most_memory })
    }

    async fn ours(&mut self) -> anyhow::Result<Run> {
        let canary = self.canary().await?;
        let directory = Directory::create()?;
        let grpc = format!("127.0.0.1:{}", free_port()?);
        let kubeconfig = self.plane.kubeconfig().display().to_string();
        let flags = ["--kubeconfig", &kubeconfig, "--graph", &grpc];
        let begun = Instant::now();
        let mut graph = start_graph(&self.programs, self.plane.kubeconfig(), directory.path(), &grpc, 0)?;
        let executor = Service::start(&self.programs, "executor-service", "executor", directory.path(), &flags)?;
        graph.ready().await?;
        let everything = begun.elapsed().as_secs_f64();
        let nodes = graph.metric("ownergraph_graph_nodes ").await?.unwrap_or(0.0);
        ensure!(nodes >= self.objects as f64, "ready with {nodes} of {} objects", self.objects);
        let pid = graph.process.pid();
        let memory = memory_mib(pid)?;
        self.until_gone(&canary).await?;
        let collects = Some(begun.elapsed().as_secs_f64());
        let most_memory = most_memory_mib(pid)?;
        drop(executor);
        // The process gives the Lease back, so that the next one need not wait for its end.
        graph.process.terminate()?;
        graph.process.ended(WITHIN).await?;
        Ok(Run { starter: Starter::Ours, objects: self.objects, everything, collects, memory, most_memory })
    }

    /// Creates an object whose owner is gone.
    async fn canary(&mut self) -> anyhow::Result<String> {
        let maps = configmaps(NAMESPACE);
        let (owner, canary) = (format!("gone-{}", self.canaries), format!("canary-{}", self.canaries));
        self.canaries += 1;
        let created = create(&self.client, &maps, &configmap(&owner, &[])).await?;
        create(&self.client, &maps, &configmap(&canary, &[reference_to(&created)])).await?;
        load::delete(&self.client, &format!("{maps}/{owner}"), "Background").await?;
        Ok(format!("{maps}/{canary}"))
    }

    async fn until_gone(&self, canary: &str) -> anyhow::Result<()> {
        until_soon("the canary is gone", WITHIN, || get(&self.client, canary), Option::is_none).await.map(|_| ())
    }
}

/// Returns the time of the fastest bare reader. The server cannot be faster.
fn reader(rounds: &Rounds<Run>) -> Samples {
    let ways = Way::ALL.map(|way| rounds.samples(Starter::Reader(way), |run| run.everything));
    ways.into_iter().min_by(|one, other| one.median().total_cmp(&other.median())).unwrap_or_default()
}

impl bench::Run for Run {
    type Who = Starter;

    fn who(&self) -> Starter {
        self.starter
    }

    fn json(&self) -> Value {
        json!({
            "starter": self.starter.to_string(), "objects": self.objects, "secondsToEverything": self.everything,
            "secondsToCollecting": self.collects, "memoryMiB": self.memory, "mostMemoryMiB": self.most_memory,
        })
    }

    /// Compares ours with the fastest reader, and our memory with its budget if the world has the size for which it
    /// holds.
    fn figures(rounds: &Rounds<Run>) -> Vec<Figure> {
        let ours = rounds.samples(Starter::Ours, |run| run.everything);
        let mut figures = vec![Figure::new("start-reader", ours.over(&reader(rounds)))];
        let memory = rounds.samples(Starter::Ours, |run| run.memory);
        let is_of_that_size = rounds.all().iter().all(|run| run.objects.abs_diff(BUDGET_OBJECTS) < 1000);
        figures.extend(is_of_that_size.then(|| Figure::new("memory-100k", memory)));
        figures
    }

    fn table(rounds: &Rounds<Run>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\nstart with {} objects", rounds.all().first().map_or(0, |run| run.objects))?;
        let head = ["", "everything, s", "x reader", "collects, s", "MiB", "most MiB"];
        writeln!(f, "{:<28} {:>18} {:>8} {:>18} {:>7} {:>9}", head[0], head[1], head[2], head[3], head[4], head[5])?;
        let reader = reader(rounds).median();
        for starter in rounds.everybody() {
            let everything = rounds.samples(starter, |run| run.everything);
            let collects = rounds.samples(starter, |run| run.collects.unwrap_or(f64::NAN));
            let memory = rounds.samples(starter, |run| run.memory).median();
            let most = rounds.samples(starter, |run| run.most_memory).median();
            let (name, ratio) = (starter.to_string(), everything.median() / reader);
            let collects = if matches!(starter, Starter::Reader(_)) { "-".to_owned() } else { collects.to_string() };
            let text = [everything.to_string(), collects];
            writeln!(f, "{name:<28} {:>18} {ratio:>8.2} {:>18} {memory:>7.0} {most:>9.0}", text[0], text[1])?;
        }
        Ok(())
    }
}
