//! The contenders of the comparisons: a bare client, upstream's collector, and ours.

use crate::controlplane::{CollectorOptions, ControlPlane, UpstreamCollector};
use crate::load::{configmaps, create, get, list, until, until_left};
use crate::otlp;
use crate::process::Process;
use crate::service::{Fleet, Programs, Scraping, Service};
use crate::usage::{cpu_seconds, most_memory_mib};
use anyhow::{Context, bail, ensure};
use kube::Client;
use serde_json::{Value, json};
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

const SOON: Duration = Duration::from_secs(120);
const WITHIN: Duration = Duration::from_secs(1200);
/// The client limits of upstream, so high that they have no effect.
const UNLIMITED: u32 = 100_000;
/// The requests in flight of a bare client with a limited rate.
const HELD_IN_FLIGHT: u32 = 64;

/// The ratio of traced cascades, if tracing is on. It is ten times the default, because a benchmark has few cascades
/// and should trace some of them.
const SAMPLED: &str = "0.1";

/// The client that deletes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contender {
    /// A client that sends one request per object and nothing else. The number is that of the requests in flight.
    Floor(u32),
    /// Such a client with this many requests per second, and at most `HELD_IN_FLIGHT` of them in flight.
    FloorHeld(u32),
    /// Upstream's collector with this many workers, and without limits of its client.
    Upstream(u32),
    /// One graph service and one executor with this many requests in flight.
    Ours(u32),
    /// One graph service and one executor without a flag. The executor adapts its requests in flight to the API server.
    Adaptive,
    /// One graph service that permits this many writes per second, and one executor.
    Held(u32),
    /// As `Ours`, observed as in production: a scrape of every process each second, and traces of `SAMPLED` of all
    /// cascades.
    Observed(u32),
    /// As `Ours`, with a gate that asks once for each root, and is answered in process.
    Gated(u32),
    /// As `Ours`, while the graph service records its inputs.
    Recorded(u32),
}

impl Contender {
    /// Returns whether the contender is ours.
    pub fn is_ours(self) -> bool {
        matches!(self, Contender::Ours(_) | Contender::Adaptive | Contender::Held(_))
    }

    /// Returns the flags of upstream.
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
            Contender::Gated(in_flight) => write!(f, "ours with a gate, {in_flight} in flight"),
            Contender::Recorded(in_flight) => write!(f, "ours recorded, {in_flight} in flight"),
        }
    }
}

/// A recording of one run.
#[derive(Clone, Copy, Debug)]
pub struct Recorded {
    /// The size of its files.
    pub bytes: u64,
    pub inputs: f64,
    pub replayed_seconds: f64,
}

fn recording_in(plane: &ControlPlane) -> PathBuf {
    plane.directory().join("recording")
}

/// The objects to collect.
#[derive(Clone, Copy, Debug)]
pub struct Cascade<'a> {
    /// The ConfigMaps in this namespace.
    pub namespace: &'a str,
    pub policy: &'a str,
    /// The number of objects before the contender begins.
    pub objects: usize,
}

/// A contender that runs and has seen all objects.
#[derive(Debug)]
pub enum Collector {
    /// The contender, and the common beginning of the names of its files.
    Floor(Process, String),
    Upstream(UpstreamCollector),
    Ours(Box<Fleet>),
    /// The programs, the receiver of their traces, and the scraper of their metrics.
    Observed(Box<Fleet>, otlp::Collector, Scraping),
}

impl Collector {
    /// Starts a contender that reaches the API server with this kubeconfig.
    pub async fn start(
        programs: &Programs,
        plane: &ControlPlane,
        kubeconfig: &Path,
        contender: Contender,
        cascade: &Cascade<'_>,
    ) -> anyhow::Result<Collector> {
        let graph = match contender {
            Contender::Held(rate) => vec![format!("--max-writes-per-second={rate}")],
            Contender::Recorded(_) => vec![format!("--record={}", recording_in(plane).display())],
            Contender::Floor(_)
            | Contender::FloorHeld(_)
            | Contender::Upstream(_)
            | Contender::Ours(_)
            | Contender::Adaptive
            | Contender::Observed(_)
            | Contender::Gated(_) => Vec::new(),
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
            Contender::Ours(in_flight)
            | Contender::Observed(in_flight)
            | Contender::Gated(in_flight)
            | Contender::Recorded(in_flight) => {
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
            | Contender::Held(_)
            | Contender::Gated(_)
            | Contender::Recorded(_) => None,
        };
        let traced = |traces: &otlp::Collector| {
            ["--otlp-endpoint", &traces.endpoint(), "--trace-sample", SAMPLED].map(str::to_owned)
        };
        let traced: Vec<String> = traces.iter().flat_map(traced).collect();
        let mut fleet = Fleet::start_with(programs, kubeconfig, &texts(&[graph, traced.clone()].concat())).await?;
        fleet.add_executor_with("executor", &texts(&[in_flight, traced].concat()))?;
        fleet.executors[0].ready().await?;
        fleet.until_known(cascade.objects).await?;
        if matches!(contender, Contender::Gated(_)) {
            let rule = json!({ "cel": { "expression": "cascade.objects > 0" }, "rootsOnly": true });
            gate(&plane.client().await?, &fleet.graph, cascade.namespace, &rule).await?;
        }
        let fleet = Box::new(fleet);
        Ok(match traces {
            None => Collector::Ours(fleet),
            Some(traces) => {
                let scraping = Scraping::start([&fleet.graph, &fleet.executors[0]])?;
                Collector::Observed(fleet, traces, scraping)
            }
        })
    }

    /// Ends the graph service, which ends its recording, and replays the recording.
    pub async fn replay(self, programs: &Programs, plane: &ControlPlane) -> anyhow::Result<Recorded> {
        let Collector::Ours(mut fleet) = self else { bail!("this contender records nothing") };
        fleet.graph.process.terminate()?;
        fleet.graph.process.ended(SOON).await?;
        let files = fs::read_dir(recording_in(plane))?.map(|file| Ok(file?.metadata()?.len()));
        let bytes = files.sum::<io::Result<u64>>()?;
        let mut replay = tokio::process::Command::new(programs.path("ownergraph"));
        let answer = replay.arg("replay").arg(recording_in(plane)).args(["-o", "json"]).output().await?;
        ensure!(answer.status.success(), "the recording is not whole: {}", String::from_utf8_lossy(&answer.stderr));
        let answer: Value = serde_json::from_slice(&answer.stdout).context("reading the answer of the replay")?;
        let number = |key: &str| answer[key].as_f64().with_context(|| format!("no {key} in {answer}"));
        Ok(Recorded { bytes, inputs: number("inputs")?, replayed_seconds: number("replayedSeconds")? })
    }

    fn pids(&self) -> Vec<u32> {
        match self {
            Collector::Floor(..) => Vec::new(),
            Collector::Upstream(upstream) => vec![upstream.process().pid()],
            Collector::Ours(fleet) | Collector::Observed(fleet, ..) => fleet.pids(),
        }
    }

    /// Returns the number of spans so far.
    pub fn spans(&self) -> usize {
        match self {
            Collector::Observed(_, traces, _) => traces.spans().len(),
            Collector::Floor(..) | Collector::Upstream(_) | Collector::Ours(_) => 0,
        }
    }

    /// Returns the processor seconds so far, and the maximum memory of the largest process in MiB.
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

    /// Waits for the end. Returns the number of GET requests that this took.
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
        // An owner goes when no dependent refers to it any more.
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

/// Creates a gate about the objects of a namespace, and waits until the graph service knows it.
///
/// # Errors
/// The API server refuses the definition or the gate.
pub async fn gate(client: &Client, graph: &Service, namespace: &str, rule: &Value) -> anyhow::Result<()> {
    let definition = serde_saphyr::from_str(include_str!("../../deploy/crds/gates.yaml"))?;
    create(client, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition).await?;
    let gates = "/apis/ownergraph.dev/v1alpha1/gates";
    until("gates are served", SOON, || async { Ok(list(client, gates).await.is_ok()) }, |served| *served).await?;
    let mut spec = json!({
        "reason": "a benchmark", "scope": { "targets": [{ "namespaces": [namespace] }] },
        "timeoutSeconds": 10, "failurePolicy": "Hold", "maxHoldSeconds": 3600, "afterMaxHold": "Deny",
    });
    for (field, value) in rule.as_object().into_iter().flatten() {
        spec[field] = value.clone();
    }
    let gate = json!({
        "apiVersion": "ownergraph.dev/v1alpha1", "kind": "Gate", "metadata": { "name": namespace }, "spec": spec,
    });
    create(client, gates, &gate).await?;
    let known = || graph.total_of("ownergraph_guards", "kind=\"gate\"");
    until("the gate is known", SOON, known, |gates| *gates >= 1.0).await?;
    Ok(())
}
