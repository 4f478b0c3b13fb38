//! Who is compared: a bare client, upstream's collector, and ours.

use crate::controlplane::{CollectorOptions, ControlPlane, UpstreamCollector};
use crate::load::{configmaps, get, until, until_left};
use crate::otlp;
use crate::process::Process;
use crate::service::{Fleet, Programs, Scraping};
use crate::usage::{cpu_seconds, most_memory_mib};
use anyhow::{Context, ensure};
use kube::Client;
use std::fmt;
use std::fs;
use std::path::Path;
use std::time::Duration;

const SOON: Duration = Duration::from_secs(120);
const WITHIN: Duration = Duration::from_secs(1200);
/// Client limits of upstream: lifted.
const UNLIMITED: u32 = 100_000;
/// Of a bare client that is held to a rate.
const HELD_IN_FLIGHT: u32 = 64;

/// The ratio of traced cascades, if tracing is on. It is ten times the default, because a benchmark has few cascades
/// and should trace some of them.
const SAMPLED: &str = "0.1";

/// The client that deletes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contender {
    /// One request per object and nothing else, so many in flight.
    Floor(u32),
    /// The same, with this many requests a second, and at most `HELD_IN_FLIGHT` of them in flight.
    FloorHeld(u32),
    /// Upstream's collector with so many workers and without limits of its client.
    Upstream(u32),
    /// One graph service and one executor with this many requests in flight.
    Ours(u32),
    /// The same, without a flag: with as many in flight as the API server takes well.
    Adaptive,
    /// The same, where the graph service allows so many writes a second.
    Held(u32),
    /// As `Ours`, watched as in production: every process is scraped each second, and `SAMPLED` of all cascades are traced.
    Observed(u32),
}

impl Contender {
    /// Whether it is ours.
    pub fn is_ours(self) -> bool {
        matches!(self, Contender::Ours(_) | Contender::Adaptive | Contender::Held(_))
    }

    /// Upstream's flags.
    pub fn upstream(workers: u32, kubeconfig: Option<&Path>) -> CollectorOptions {
        CollectorOptions {
            requests_per_second: Some(UNLIMITED),
            workers: Some(workers),
            kubeconfig: kubeconfig.map(Path::to_owned),
            ..CollectorOptions::default()
        }
    }
}

impl fmt::Display for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Contender::Floor(in_flight) => write!(f, "floor, {in_flight} in flight"),
            Contender::FloorHeld(rate) => write!(f, "floor, {rate} writes/s"),
            Contender::Upstream(workers) => write!(f, "upstream, {workers} workers"),
            Contender::Ours(in_flight) => write!(f, "ours, {in_flight} in flight"),
            Contender::Adaptive => write!(f, "ours"),
            Contender::Held(rate) => write!(f, "ours, {rate} writes/s"),
            Contender::Observed(in_flight) => write!(f, "ours observed, {in_flight} in flight"),
        }
    }
}

/// The objects to collect.
#[derive(Clone, Copy, Debug)]
pub struct Cascade<'a> {
    /// ConfigMaps in this namespace.
    pub namespace: &'a str,
    pub policy: &'a str,
    /// That are there before it begins.
    pub objects: usize,
}

/// A contender that runs and has seen everything.
#[derive(Debug)]
pub enum Collector {
    /// With the beginning of the names of the files by which it is told and tells.
    Floor(Process, String),
    Upstream(UpstreamCollector),
    Ours(Box<Fleet>),
    /// With readers.
    Observed(Box<Fleet>, otlp::Collector, Scraping),
}

impl Collector {
    /// Starts one that reaches the API server by this kubeconfig.
    pub async fn start(
        programs: &Programs,
        plane: &ControlPlane,
        kubeconfig: &Path,
        contender: Contender,
        cascade: &Cascade<'_>,
    ) -> anyhow::Result<Collector> {
        let graph = match contender {
            Contender::Held(rate) => vec![format!("--max-writes-per-second={rate}")],
            Contender::Floor(_)
            | Contender::FloorHeld(_)
            | Contender::Upstream(_)
            | Contender::Ours(_)
            | Contender::Adaptive
            | Contender::Observed(_) => Vec::new(),
        };
        let in_flight = match contender {
            Contender::Floor(in_flight) => return floor(programs, plane, kubeconfig, (in_flight, None), cascade).await,
            Contender::FloorHeld(rate) => {
                return floor(programs, plane, kubeconfig, (HELD_IN_FLIGHT, Some(rate)), cascade).await;
            }
            Contender::Upstream(workers) => {
                let options = Contender::upstream(workers, Some(kubeconfig));
                return Ok(Collector::Upstream(plane.start_upstream_collector(&options).await?));
            }
            Contender::Ours(in_flight) | Contender::Observed(in_flight) => {
                vec!["--concurrency".to_owned(), in_flight.to_string()]
            }
            Contender::Adaptive | Contender::Held(_) => Vec::new(),
        };
        let traces = match contender {
            Contender::Observed(_) => Some(otlp::Collector::start().await?),
            Contender::Floor(_)
            | Contender::FloorHeld(_)
            | Contender::Upstream(_)
            | Contender::Ours(_)
            | Contender::Adaptive
            | Contender::Held(_) => None,
        };
        let traced = |traces: &otlp::Collector| {
            ["--otlp-endpoint", &traces.endpoint(), "--trace-sample", SAMPLED].map(str::to_owned)
        };
        let traced: Vec<String> = traces.iter().flat_map(traced).collect();
        let mut fleet = Fleet::start_with(programs, kubeconfig, &texts(&[graph, traced.clone()].concat())).await?;
        fleet.add_executor_with("executor", &texts(&[in_flight, traced].concat()))?;
        fleet.executors[0].ready().await?;
        fleet.until_known(cascade.objects).await?;
        let fleet = Box::new(fleet);
        Ok(match traces {
            None => Collector::Ours(fleet),
            Some(traces) => {
                let scraping = Scraping::start([&fleet.graph, &fleet.executors[0]])?;
                Collector::Observed(fleet, traces, scraping)
            }
        })
    }

    fn pids(&self) -> Vec<u32> {
        match self {
            Collector::Floor(..) => Vec::new(),
            Collector::Upstream(upstream) => vec![upstream.process().pid()],
            Collector::Ours(fleet) | Collector::Observed(fleet, ..) => fleet.pids(),
        }
    }

    /// Spans that have come so far.
    pub fn spans(&self) -> usize {
        match self {
            Collector::Observed(_, traces, _) => traces.spans().len(),
            Collector::Floor(..) | Collector::Upstream(_) | Collector::Ours(_) => 0,
        }
    }

    /// Processor seconds so far, and the most memory of the largest process, in MiB.
    pub fn taken(&self) -> anyhow::Result<(f64, f64)> {
        if let Collector::Floor(_, files) = self {
            let Ok(text) = fs::read_to_string(format!("{files}.done")) else { return Ok((0.0, 0.0)) };
            let (cpu, memory) = text.split_once(' ').context("two figures")?;
            return Ok((cpu.parse()?, memory.parse()?));
        }
        let (mut cpu, mut memory) = (0.0, 0.0_f64);
        for pid in self.pids() {
            cpu += cpu_seconds(pid)?;
            memory = memory.max(most_memory_mib(pid)?);
        }
        Ok((cpu, memory))
    }

    /// Waits for the end; how many GETs that took.
    pub async fn finish(&mut self, client: &Client, cascade: &Cascade<'_>, owners: &[String]) -> anyhow::Result<u64> {
        let maps = configmaps(cascade.namespace);
        if let Collector::Floor(process, files) = self {
            fs::write(format!("{files}.go"), "")?;
            let code = process.ended(WITHIN).await?;
            ensure!(code == 0, "the floor failed: {}", process.output());
            return Ok(0);
        }
        if cascade.policy != "Orphan" {
            until_left(client, &maps, 0, WITHIN).await?;
            return Ok(0);
        }
        // An owner goes once none of its dependents refers to it.
        let mut asked = 0;
        for owner in owners {
            let path = format!("{maps}/{owner}");
            let gone = || {
                asked += 1;
                get(client, path.clone())
            };
            until("the owner is gone", WITHIN, gone, Option::is_none).await?;
        }
        Ok(asked)
    }
}

fn texts(flags: &[String]) -> Vec<&str> {
    flags.iter().map(String::as_str).collect()
}

async fn floor(
    programs: &Programs,
    plane: &ControlPlane,
    kubeconfig: &Path,
    (in_flight, rate): (u32, Option<u32>),
    cascade: &Cascade<'_>,
) -> anyhow::Result<Collector> {
    let (kubeconfig, in_flight) = (kubeconfig.display().to_string(), in_flight.to_string());
    let files = plane.directory().join("floor").display().to_string();
    let mut arguments =
        [&kubeconfig, cascade.namespace, &in_flight, cascade.policy, &files].map(str::to_owned).to_vec();
    arguments.extend(rate.map(|rate| rate.to_string()));
    let process = Process::spawn("floor", plane.directory(), &programs.client("floor"), &arguments)?;
    let ready = format!("{files}.ready");
    until("the floor is ready", SOON, || async { Ok(fs::exists(&ready)?) }, |ready| *ready).await?;
    Ok(Collector::Floor(process, files))
}
