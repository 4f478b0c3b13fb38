//! The same cascade under the floor, under upstream's collector and under ours, in turns, each on a control plane of its own.

use crate::controlplane::{Binaries, CollectorOptions, ControlPlane, UpstreamCollector};
use crate::load::{self, configmaps, count, delete, families, get, until};
use crate::process::Process;
use crate::service::{Fleet, Programs};
use anyhow::{Context, bail, ensure};
use kube::Client;
use serde_json::{Value, json};
use std::fmt;
use std::fs;
use std::time::Duration;
use tokio::time::Instant;

const OWNERS: usize = 20;
const SOON: Duration = Duration::from_secs(120);
const WITHIN: Duration = Duration::from_secs(1200);
/// Client limits of upstream: lifted.
const UNLIMITED: u32 = 100_000;
/// Of a second in /proc/PID/stat.
const TICKS: f64 = 100.0;

/// Who deletes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contender {
    /// One request per object and nothing else, so many in flight.
    Floor(u32),
    /// Upstream's collector with so many workers and without limits of its client.
    Upstream(u32),
    /// One graph service and one executor with so many requests in flight.
    Ours(u32),
}

impl fmt::Display for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Contender::Floor(in_flight) => write!(f, "floor, {in_flight} in flight"),
            Contender::Upstream(workers) => write!(f, "upstream, {workers} workers"),
            Contender::Ours(in_flight) => write!(f, "ours, {in_flight} in flight"),
        }
    }
}

/// What one run came to.
#[derive(Clone, Debug)]
pub struct Run {
    pub contender: Contender,
    pub policy: &'static str,
    pub objects: usize,
    pub seconds: f64,
    /// DELETE, PATCH and GET that the API server counted, without those of the benchmark.
    pub requests: u64,
    /// Processor seconds of all processes of the contender, and of the API server.
    pub cpu: f64,
    pub server_cpu: f64,
    /// The most memory held by the contender's largest process and by the API server, in MiB.
    pub memory: f64,
    pub server_memory: f64,
}

impl Run {
    /// Objects per second.
    pub fn rate(&self) -> f64 {
        self.objects as f64 / self.seconds
    }

    /// By the server's own count.
    pub fn requests_per_object(&self) -> f64 {
        self.requests as f64 / self.objects as f64
    }

    /// Milliseconds, of all its processes.
    pub fn cpu_per_object(&self) -> f64 {
        self.cpu * 1e3 / self.objects as f64
    }
}

/// One cascade of about so many objects.
pub async fn run(
    binaries: &Binaries,
    programs: &Programs,
    contender: Contender,
    policy: &'static str,
    objects: usize,
) -> anyhow::Result<Run> {
    let plane = ControlPlane::start(binaries).await?;
    let client = plane.client().await?;
    load::namespace(&client, "cascade").await?;
    let owners = families(&client, "cascade", "o", OWNERS, objects / OWNERS).await?;
    let objects = OWNERS * (objects / OWNERS);
    let mut collector = Collector::start(programs, &plane, contender, policy, objects).await?;
    let (cpu, server) = (collector.taken()?.0, plane.apiserver().context("the API server runs")?.pid());
    let (server_cpu, before) = (cpu_seconds(server)?, plane.server_metrics().await?);
    let begun = Instant::now();
    let maps = configmaps("cascade");
    for owner in &owners {
        let policy = if matches!(contender, Contender::Floor(_)) { "Background" } else { policy };
        delete(&client, &format!("{maps}/{owner}"), policy).await?;
    }
    let asked = collector.finish(&client, policy, &owners).await?;
    let seconds = begun.elapsed().as_secs_f64();
    let (taken, memory) = collector.taken()?;
    let (cpu, server_cpu) = (taken - cpu, cpu_seconds(server)? - server_cpu);
    let made = plane.server_metrics().await?.since(&before).total(|request| {
        request.resource == "configmaps" && ["DELETE", "PATCH", "GET"].contains(&request.verb.as_str())
    });
    let server_memory = memory_mib(server)?;
    let requests = made - owners.len() as u64 - asked;
    Ok(Run { contender, policy, objects, seconds, requests, cpu, server_cpu, memory, server_memory })
}

enum Collector {
    /// With the beginning of the names of the files by which it is told and tells.
    Floor(Process, String),
    Upstream(UpstreamCollector),
    Ours(Box<Fleet>),
}

impl Collector {
    async fn start(
        programs: &Programs,
        plane: &ControlPlane,
        contender: Contender,
        policy: &str,
        objects: usize,
    ) -> anyhow::Result<Collector> {
        Ok(match contender {
            Contender::Floor(in_flight) => {
                let (kubeconfig, in_flight) = (plane.kubeconfig().display().to_string(), in_flight.to_string());
                let files = plane.directory().join("floor").display().to_string();
                let arguments = [&kubeconfig, "cascade", &in_flight, policy, &files].map(str::to_owned);
                let process = Process::spawn("floor", plane.directory(), &programs.path("floor"), &arguments)?;
                let ready = format!("{files}.ready");
                until("the floor is ready", SOON, || async { Ok(fs::exists(&ready)?) }, |ready| *ready).await?;
                Collector::Floor(process, files)
            }
            Contender::Upstream(workers) => {
                let options = CollectorOptions {
                    requests_per_second: Some(UNLIMITED),
                    workers: Some(workers),
                    ..CollectorOptions::default()
                };
                Collector::Upstream(plane.start_upstream_collector(&options).await?)
            }
            Contender::Ours(in_flight) => {
                let mut fleet = Fleet::start(programs, plane.kubeconfig(), 0).await?;
                fleet.add_executor_with("executor", &["--concurrency", &in_flight.to_string()])?;
                fleet.executors[0].ready().await?;
                let known = || fleet.graph.metric("ownergraph_graph_nodes ");
                let all = |nodes: &Option<f64>| nodes.is_some_and(|nodes| nodes >= objects as f64);
                until("the graph has everything", SOON, known, all).await?;
                Collector::Ours(Box::new(fleet))
            }
        })
    }

    fn pids(&self) -> Vec<u32> {
        match self {
            Collector::Floor(..) => Vec::new(),
            Collector::Upstream(upstream) => vec![upstream.process().pid()],
            Collector::Ours(fleet) => {
                let executors = fleet.executors.iter().map(|executor| executor.process.pid());
                std::iter::once(fleet.graph.process.pid()).chain(executors).collect()
            }
        }
    }

    /// Processor seconds so far, and the memory of the largest process.
    fn taken(&self) -> anyhow::Result<(f64, f64)> {
        if let Collector::Floor(_, files) = self {
            let Ok(text) = fs::read_to_string(format!("{files}.done")) else { return Ok((0.0, 0.0)) };
            let (cpu, memory) = text.split_once(' ').context("two figures")?;
            return Ok((cpu.parse()?, memory.parse()?));
        }
        let (mut cpu, mut memory) = (0.0, 0.0_f64);
        for pid in self.pids() {
            cpu += cpu_seconds(pid)?;
            memory = memory.max(memory_mib(pid)?);
        }
        Ok((cpu, memory))
    }

    /// Waits for the end; how many GETs that took.
    async fn finish(&mut self, client: &Client, policy: &str, owners: &[String]) -> anyhow::Result<u64> {
        let maps = configmaps("cascade");
        if let Collector::Floor(process, files) = self {
            fs::write(format!("{files}.go"), "")?;
            let code = process.ended(WITHIN).await?;
            ensure!(code == 0, "the floor failed: {}", process.output());
            return Ok(0);
        }
        if policy != "Orphan" {
            until("everything is gone", WITHIN, || count(client, &maps), |left| *left == 0).await?;
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

/// Processor time that a process has taken.
///
/// # Errors
/// There is no such process.
pub fn cpu_seconds(pid: u32) -> anyhow::Result<f64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).with_context(|| format!("process {pid}"))?;
    // The name, in brackets, may hold anything; the 14th and 15th field are user's and system's time.
    let rest = text.rsplit_once(") ").context("a process has a name")?.1;
    let fields: Vec<&str> = rest.split(' ').collect();
    let [user, system] = fields.get(11..13).context("a process has times")? else { bail!("two times are asked for") };
    Ok((user.parse::<f64>()? + system.parse::<f64>()?) / TICKS)
}

/// The most memory that a process has held.
///
/// # Errors
/// There is no such process.
pub fn memory_mib(pid: u32) -> anyhow::Result<f64> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).with_context(|| format!("process {pid}"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("a process has a VmHWM")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<f64>()? / 1024.0)
}

/// Rounds of all contenders, in turning order, as a table of medians and as JSON.
#[derive(Clone, Debug, Default)]
pub struct Table(Vec<Run>);

impl Table {
    /// Adds what one run came to.
    pub fn add(&mut self, run: Run) {
        self.0.push(run);
    }

    /// Every run.
    pub fn json(&self) -> Value {
        let run = |run: &Run| {
            json!({
                "contender": run.contender.to_string(), "policy": run.policy, "objects": run.objects, "seconds": run.seconds,
                "objectsPerSecond": run.rate(), "requestsPerObject": run.requests_per_object(),
                "cpuMillisPerObject": run.cpu_per_object(), "serverCpuMillisPerObject": run.server_cpu * 1e3 / run.objects as f64,
                "memoryMiB": run.memory, "serverMemoryMiB": run.server_memory,
            })
        };
        self.0.iter().map(run).collect()
    }

    fn of(&self, policy: &str, contender: Contender) -> Vec<&Run> {
        self.0.iter().filter(|run| run.policy == policy && run.contender == contender).collect()
    }

    /// The best median rate among those that `counts`.
    fn best(&self, policy: &str, counts: impl Fn(Contender) -> bool) -> Option<f64> {
        let contenders = self.0.iter().filter(|run| run.policy == policy && counts(run.contender));
        contenders.map(|run| median(&self.of(policy, run.contender), Run::rate)).reduce(f64::max)
    }
}

fn median(runs: &[&Run], figure: impl Fn(&Run) -> f64) -> f64 {
    let mut figures: Vec<f64> = runs.iter().map(|run| figure(run)).collect();
    figures.sort_unstable_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN)
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown: Vec<(&str, Contender)> = Vec::new();
        for run in &self.0 {
            if shown.contains(&(run.policy, run.contender)) {
                continue;
            }
            if !shown.iter().any(|(policy, _)| *policy == run.policy) {
                writeln!(f, "\n{} of {} objects", run.policy, run.objects)?;
                writeln!(
                    f,
                    "{:<24} {:>9} {:>15} {:>7} {:>10} {:>9} {:>9} {:>11} {:>7} {:>9}",
                    "",
                    "objects/s",
                    "slowest-fastest",
                    "x floor",
                    "x upstream",
                    "requests",
                    "CPU ms",
                    "server CPU",
                    "MiB",
                    "server"
                )?;
            }
            shown.push((run.policy, run.contender));
            let runs = self.of(run.policy, run.contender);
            let rate = median(&runs, Run::rate);
            let rates = runs.iter().map(|run| run.rate());
            let (slowest, fastest) = (rates.clone().fold(f64::MAX, f64::min), rates.fold(0.0, f64::max));
            let to =
                |other: Option<f64>| other.map_or_else(|| String::from("-"), |other| format!("{:.2}", rate / other));
            let floor = to(self.best(run.policy, |contender| matches!(contender, Contender::Floor(_))));
            let upstream = to(self.best(run.policy, |contender| matches!(contender, Contender::Upstream(_))));
            writeln!(
                f,
                "{:<24} {rate:>9.0} {:>15} {floor:>7} {upstream:>10} {:>9.3} {:>9.3} {:>11.3} {:>7.0} {:>9.0}",
                run.contender.to_string(),
                format!("{slowest:.0}-{fastest:.0}"),
                median(&runs, Run::requests_per_object),
                median(&runs, Run::cpu_per_object),
                median(&runs, |run| run.server_cpu * 1e3 / run.objects as f64),
                median(&runs, |run| run.memory),
                median(&runs, |run| run.server_memory),
            )?;
        }
        Ok(())
    }
}
