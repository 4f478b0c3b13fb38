//! Runs the same cascade under the floor, under upstream's collector and under ours, in turns. Each run has its own
//! control plane.

use crate::bench::{self, Figure, Rounds};
use crate::contender::{Cascade, Collector, Contender, Recorded};
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

/// The number of owners in a cascade.
pub const OWNERS: usize = 20;
const NAMESPACE: &str = "cascade";

/// A deletion policy, and the contender that carries it out.
type Who = (&'static str, Contender);

/// The result of one run.
#[derive(Clone, Debug)]
pub struct Run {
    pub contender: Contender,
    pub policy: &'static str,
    pub objects: usize,
    /// The run added a delay to requests.
    pub slow: bool,
    pub seconds: f64,
    /// The DELETE, PATCH and GET requests that the API server counted, without those of the benchmark.
    pub requests: u64,
    /// The processor seconds of all processes of the contender, and of the API server.
    pub cpu: f64,
    pub server_cpu: f64,
    /// The maximum memory of the contender's largest process, and of the API server, in MiB.
    pub memory: f64,
    pub server_memory: f64,
    /// The number of spans at the end, if tracing is on.
    pub spans: usize,
    /// The recording, if the contender records.
    pub recorded: Option<Recorded>,
}

impl Run {
    /// Objects per second.
    pub fn rate(&self) -> f64 {
        self.objects as f64 / self.seconds
    }

    /// Objects per second, times the processor time of the API server for an object. The speed of the machine, which
    /// differs between two runs by more than a recording costs, changes both factors, and not the product. The product
    /// does not show work that a contender gives the API server besides its requests.
    pub fn paced_rate(&self) -> f64 {
        self.rate() * self.server_cpu_per_object()
    }

    /// Requests per object, by the count of the API server.
    pub fn requests_per_object(&self) -> f64 {
        self.requests as f64 / self.objects as f64
    }

    /// Processor time of the API server per object, in milliseconds.
    pub fn server_cpu_per_object(&self) -> f64 {
        self.server_cpu * 1e3 / self.objects as f64
    }

    /// Processor time of all processes of the contender per object, in milliseconds.
    pub fn cpu_per_object(&self) -> f64 {
        self.cpu * 1e3 / self.objects as f64
    }
}

/// The contender of the run.
#[derive(Clone, Copy, Debug)]
pub struct Task {
    pub policy: &'static str,
    /// The approximate number of objects.
    pub objects: usize,
    /// The added delay of every request of the contender.
    pub slow: Duration,
}

/// Runs one cascade.
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
    let (policy, slow, spans) = (task.policy, !task.slow.is_zero(), collector.spans());
    let recorded = if matches!(contender, Contender::Recorded(_)) {
        Some(collector.replay(programs, &plane).await?)
    } else {
        None
    };
    Ok(Run {
        contender,
        policy,
        objects,
        slow,
        seconds,
        requests,
        cpu,
        server_cpu,
        memory,
        server_memory,
        spans,
        recorded,
    })
}

/// Returns the best median rate among the contenders for which `counts` is true, and that contender.
fn best(rounds: &Rounds<Run>, policy: &str, counts: impl Fn(Contender) -> bool) -> Option<(Who, f64)> {
    let everybody = rounds.everybody().into_iter().filter(|(of, contender)| *of == policy && counts(*contender));
    let rates = everybody.map(|who| (who, rounds.samples(who, Run::rate).median()));
    rates.max_by(|(_, one), (_, other)| one.total_cmp(other))
}

/// Returns whether the contender is ours with a fixed number of requests in flight.
fn is_fixed(contender: Contender) -> bool {
    matches!(contender, Contender::Ours(_))
}

fn is_upstream(contender: Contender) -> bool {
    matches!(contender, Contender::Upstream(_))
}

/// Compares one policy: our best against upstream's best, and against the floor with as many requests in flight.
fn figures_of(rounds: &Rounds<Run>, policy: &'static str, requests: &'static str, rate: &'static str) -> Vec<Figure> {
    let ours = best(rounds, policy, is_fixed);
    let (Some((ours, _)), Some((upstream, _))) = (ours, best(rounds, policy, is_upstream)) else { return Vec::new() };
    let faster = rounds.samples(ours, Run::rate).over(&rounds.samples(upstream, Run::rate));
    if rounds.of(ours).any(|run| run.slow) {
        return if policy == "Background" { vec![Figure::new("slow-upstream", faster)] } else { Vec::new() };
    }
    let mut figures =
        vec![Figure::new(rate, faster), Figure::new(requests, rounds.samples(ours, Run::requests_per_object))];
    if policy == "Background" {
        let cpu = rounds.samples(ours, Run::cpu_per_object);
        figures.push(Figure::new("cpu-upstream", cpu.over(&rounds.samples(upstream, Run::cpu_per_object))));
        if let (_, Contender::Ours(in_flight)) = ours {
            let floor = rounds.samples((policy, Contender::Floor(in_flight)), Run::rate);
            let ratio = rounds.samples(ours, Run::rate).over(&floor);
            figures.extend((!ratio.is_empty()).then(|| Figure::new("rate-floor", ratio)));
        }
        let learned = rounds.samples((policy, Contender::Adaptive), Run::rate).over(&rounds.samples(ours, Run::rate));
        figures.extend((!learned.is_empty()).then(|| Figure::new("rate-learned", learned)));
    }
    figures
}

/// The cost of a recording, its size, and the time of its replay against the time of the cascade alone.
fn recordings(rounds: &Rounds<Run>) -> Vec<Figure> {
    let recorded = rounds.everybody().into_iter().find_map(|who| match who {
        (policy, Contender::Recorded(in_flight)) => Some((who, (policy, Contender::Ours(in_flight)))),
        _ => None,
    });
    let Some((who, alone)) = recorded else { return Vec::new() };
    let pace = rounds.samples(who, Run::paced_rate).over(&rounds.samples(alone, Run::paced_rate));
    let of =
        |figure: fn(&Run, Recorded) -> f64| rounds.samples(who, |run| run.recorded.map_or(0.0, |it| figure(run, it)));
    vec![
        Figure::new("pace-recorded", pace),
        Figure::new("recording-bytes", of(|_, recorded| recorded.bytes as f64 / recorded.inputs)),
        Figure::new("recording-replay", of(|run, recorded| run.seconds / recorded.replayed_seconds)),
    ]
}

/// Compares ours with and without readers, a gate or a recording, with the same number of requests in flight.
fn beside(rounds: &Rounds<Run>) -> Option<Figure> {
    let found = rounds.everybody().into_iter().find_map(|who| match who {
        ("Background", Contender::Observed(in_flight)) => Some((who, in_flight, "rate-observed")),
        ("Background", Contender::Gated(in_flight)) => Some((who, in_flight, "cascade-gated")),
        ("Background", Contender::Recorded(in_flight)) => Some((who, in_flight, "rate-recorded")),
        _ => None,
    });
    let (who, in_flight, figure) = found?;
    let alone = rounds.samples(("Background", Contender::Ours(in_flight)), Run::rate);
    let ratio = rounds.samples(who, Run::rate).over(&alone);
    (!ratio.is_empty()).then(|| Figure::new(figure, ratio))
}

impl bench::Run for Run {
    type Who = Who;

    fn who(&self) -> Who {
        (self.policy, self.contender)
    }

    fn json(&self) -> Value {
        json!({
            "contender": self.contender.to_string(), "policy": self.policy, "objects": self.objects, "seconds": self.seconds,
            "objectsPerSecond": self.rate(), "requestsPerObject": self.requests_per_object(),
            "cpuMillisPerObject": self.cpu_per_object(), "serverCpuMillisPerObject": self.server_cpu_per_object(),
            "memoryMiB": self.memory, "serverMemoryMiB": self.server_memory, "spans": self.spans,
            "recordingBytes": self.recorded.map(|recorded| recorded.bytes),
            "recordedInputs": self.recorded.map(|recorded| recorded.inputs),
            "replayedSeconds": self.recorded.map(|recorded| recorded.replayed_seconds),
        })
    }

    fn figures(rounds: &Rounds<Run>) -> Vec<Figure> {
        let names = [
            ("Background", "requests-background", "rate-upstream"),
            ("Foreground", "requests-foreground", "rate-upstream-foreground"),
            ("Orphan", "requests-orphan", "rate-upstream-orphan"),
        ];
        let mut figures: Vec<Figure> =
            names.into_iter().flat_map(|(policy, requests, rate)| figures_of(rounds, policy, requests, rate)).collect();
        figures.extend(beside(rounds));
        figures.extend(recordings(rounds));
        let memory = |policy| {
            let (ours, _) = best(rounds, policy, is_fixed)?;
            Some(rounds.samples(ours, |run| run.server_memory))
        };
        if let (Some(orphan), Some(background)) = (memory("Orphan"), memory("Background"))
            && !rounds.all().iter().any(|run| run.slow)
        {
            figures.push(Figure::new("orphan-server-memory", orphan.over(&background)));
        }
        figures
    }

    fn table(rounds: &Rounds<Run>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut policies: Vec<&str> = Vec::new();
        for who in rounds.everybody() {
            let (policy, contender) = who;
            if !policies.contains(&policy) {
                policies.push(policy);
                writeln!(f, "\n{policy} of {} objects", rounds.of(who).next().map_or(0, |run| run.objects))?;
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
            let rates = rounds.samples(who, Run::rate);
            let to = |best: Option<(Who, f64)>| {
                best.map_or_else(|| "-".into(), |(_, other)| format!("{:.2}", rates.median() / other))
            };
            let floor = to(best(rounds, policy, |contender| matches!(contender, Contender::Floor(_))));
            let upstream = to(best(rounds, policy, is_upstream));
            writeln!(
                f,
                "{:<24} {:>9.0} {:>15} {floor:>7} {upstream:>10} {:>9.3} {:>9.3} {:>11.3} {:>7.0} {:>9.0}",
                contender.to_string(),
                rates.median(),
                format!("{:.0}-{:.0}", rates.least(), rates.most()),
                rounds.samples(who, Run::requests_per_object).median(),
                rounds.samples(who, Run::cpu_per_object).median(),
                rounds.samples(who, Run::server_cpu_per_object).median(),
                rounds.samples(who, |run| run.memory).median(),
                rounds.samples(who, |run| run.server_memory).median(),
            )?;
        }
        Ok(())
    }
}
