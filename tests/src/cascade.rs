//! The same cascade under the floor, under upstream's collector and under ours, in turns, each on a control plane of its own.

use crate::bench::{Figure, Samples};
use crate::contender::{Cascade, Collector, Contender};
use crate::controlplane::{Binaries, ControlPlane};
use crate::load::{self, configmaps, delete, families};
use crate::proxy::Proxy;
use crate::service::Programs;
use crate::usage::{cpu_seconds, most_memory_mib};
use anyhow::Context;
use serde_json::{Value, json};
use std::fmt;
use std::time::Duration;
use tokio::time::Instant;

/// Owners of a cascade.
pub const OWNERS: usize = 20;
const NAMESPACE: &str = "cascade";

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

/// What is measured.
#[derive(Clone, Copy, Debug)]
pub struct Task {
    pub policy: &'static str,
    /// About so many.
    pub objects: usize,
    /// What every request of the contender takes longer.
    pub slow: Duration,
}

/// One cascade.
pub async fn run(binaries: &Binaries, programs: &Programs, contender: Contender, task: Task) -> anyhow::Result<Run> {
    let plane = ControlPlane::start(binaries).await?;
    let client = plane.client().await?;
    load::namespace(&client, NAMESPACE).await?;
    let owners = families(&client, NAMESPACE, "o", OWNERS, task.objects / OWNERS).await?;
    let objects = OWNERS * (task.objects / OWNERS);
    let cascade = Cascade { namespace: NAMESPACE, policy: task.policy, objects };
    let proxy = match task.slow {
        Duration::ZERO => None,
        _ => Some(Proxy::start(plane.client().await?, plane.directory()).await?),
    };
    let kubeconfig = proxy.as_ref().map_or(plane.kubeconfig(), Proxy::kubeconfig);
    let mut collector = Collector::start(programs, &plane, kubeconfig, contender, &cascade).await?;
    if let Some(proxy) = &proxy {
        proxy.slow_requests(task.slow);
    }
    let (cpu, server) = (collector.taken()?.0, plane.apiserver().context("the API server runs")?.pid());
    let (server_cpu, before) = (cpu_seconds(server)?, plane.server_metrics().await?);
    let begun = Instant::now();
    let maps = configmaps(NAMESPACE);
    for owner in &owners {
        let policy = if matches!(contender, Contender::Floor(_)) { "Background" } else { task.policy };
        delete(&client, &format!("{maps}/{owner}"), policy).await?;
    }
    let asked = collector.finish(&client, &cascade, &owners).await?;
    let seconds = begun.elapsed().as_secs_f64();
    let (taken, memory) = collector.taken()?;
    let (cpu, server_cpu) = (taken - cpu, cpu_seconds(server)? - server_cpu);
    let made = plane.server_metrics().await?.since(&before).total(|request| {
        request.resource == "configmaps" && ["DELETE", "PATCH", "GET"].contains(&request.verb.as_str())
    });
    let server_memory = most_memory_mib(server)?;
    let requests = made - owners.len() as u64 - asked;
    Ok(Run { contender, policy: task.policy, objects, seconds, requests, cpu, server_cpu, memory, server_memory })
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

    /// The best median rate among those that `counts`, and whose it is.
    fn best(&self, policy: &str, counts: impl Fn(Contender) -> bool) -> Option<(Contender, f64)> {
        let contenders = self.0.iter().filter(|run| run.policy == policy && counts(run.contender));
        let rates = contenders.map(|run| (run.contender, median(&self.of(policy, run.contender), Run::rate)));
        rates.max_by(|(_, one), (_, other)| one.total_cmp(other))
    }

    fn samples(&self, policy: &str, contender: Contender, figure: impl Fn(&Run) -> f64) -> Samples {
        self.of(policy, contender).into_iter().map(figure).collect()
    }

    /// Our best against upstream's best and against the floor of as many in flight, where the budgets speak of it.
    pub fn figures(&self, slow: bool) -> Vec<Figure> {
        let mut figures = Vec::new();
        let names = [
            ("Background", "requests-background", "rate-upstream"),
            ("Foreground", "requests-foreground", "rate-upstream-foreground"),
            ("Orphan", "requests-orphan", "rate-upstream-orphan"),
        ];
        let upstreams = |contender| matches!(contender, Contender::Upstream(_));
        for (policy, requests, rate) in names {
            let ours = self.best(policy, Contender::is_ours);
            let (Some((ours, _)), Some((upstream, _))) = (ours, self.best(policy, upstreams)) else { continue };
            let faster = self.samples(policy, ours, Run::rate).over(&self.samples(policy, upstream, Run::rate));
            if slow {
                figures.extend((policy == "Background").then(|| Figure::new("slow-upstream", faster)));
                continue;
            }
            figures.push(Figure::new(rate, faster));
            figures.push(Figure::new(requests, self.samples(policy, ours, Run::requests_per_object)));
            if policy == "Background" {
                let cpu = self.samples(policy, ours, Run::cpu_per_object);
                let theirs = self.samples(policy, upstream, Run::cpu_per_object);
                figures.push(Figure::new("cpu-upstream", cpu.over(&theirs)));
                figures.extend(self.against_floor(policy, ours));
            }
        }
        let memory = |policy| {
            let (ours, _) = self.best(policy, Contender::is_ours)?;
            Some(self.samples(policy, ours, |run| run.server_memory))
        };
        if let (Some(orphan), Some(background), false) = (memory("Orphan"), memory("Background"), slow) {
            figures.push(Figure::new("orphan-server-memory", orphan.over(&background)));
        }
        figures
    }

    fn against_floor(&self, policy: &str, ours: Contender) -> Option<Figure> {
        let Contender::Ours(in_flight) = ours else { return None };
        let floor = self.samples(policy, Contender::Floor(in_flight), Run::rate);
        let ratio = self.samples(policy, ours, Run::rate).over(&floor);
        (!ratio.is_empty()).then(|| Figure::new("rate-floor", ratio))
    }
}

fn median(runs: &[&Run], figure: impl Fn(&Run) -> f64) -> f64 {
    runs.iter().map(|run| figure(run)).collect::<Samples>().median()
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
            let rates = self.samples(run.policy, run.contender, Run::rate);
            let (rate, slowest, fastest) = (rates.median(), rates.least(), rates.most());
            let to = |best: Option<(Contender, f64)>| {
                best.map_or_else(|| "-".into(), |(_, other)| format!("{:.2}", rate / other))
            };
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
