//! Measures how long another client waits for its answers during a cascade. All clients are admins, which bypass the
//! API server's fair queues: the result shows the remaining capacity of the machine and the store, not the division by
//! the queues.

use crate::bench::{self, Figure, Rounds, Samples};
use crate::cascade::OWNERS;
use crate::contender::{Cascade, Collector, Contender};
use crate::controlplane::{Binaries, ControlPlane};
use crate::load::{self, configmap, configmaps, create, delete, families, get};
use crate::service::Programs;
use anyhow::ensure;
use kube::Client;
use serde_json::{Value, json};
use std::fmt;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval};

const NAMESPACE: &str = "cascade";
const NEIGHBOUR: &str = "neighbour";
/// The time between two requests of the neighbour. Every second request is a GET.
const EVERY: Duration = Duration::from_millis(10);
/// The maximum number of the neighbour's requests in flight. Further requests wait, and the wait counts as latency.
const UNDER_WAY_MAX: usize = 256;

/// The result of one run. Times are in ms.
#[derive(Clone, Debug)]
pub struct Run {
    pub contender: Contender,
    /// Objects deleted per second.
    pub rate: f64,
    pub idle: Times,
    pub beside: Times,
}

/// The latency of the neighbour, in ms.
#[derive(Clone, Debug, Default)]
pub struct Times {
    get: Samples,
    create: Samples,
}

/// The requests that the latency is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Of {
    Get,
    Create,
}

impl Times {
    fn of(&self, of: Of) -> &Samples {
        match of {
            Of::Get => &self.get,
            Of::Create => &self.create,
        }
    }

    fn take(&mut self, (of, took): (Of, f64)) {
        match of {
            Of::Get => self.get.push(took),
            Of::Create => self.create.push(took),
        }
    }
}

/// Runs one cascade of about this many objects. The neighbour first measures the same collector at rest, for the given
/// time.
pub async fn run(
    binaries: &Binaries,
    programs: &Programs,
    contender: Contender,
    objects: usize,
    idle_for: Duration,
) -> anyhow::Result<Run> {
    let plane = ControlPlane::start(binaries).await?;
    let client = plane.client().await?;
    for name in [NAMESPACE, NEIGHBOUR] {
        load::namespace(&client, name).await?;
    }
    let owners = families(&client, NAMESPACE, "o", OWNERS, objects / OWNERS).await?;
    let cascade = Cascade { namespace: NAMESPACE, policy: "Background", objects: OWNERS * (objects / OWNERS) };
    create(&client, &configmaps(NEIGHBOUR), &configmap("asked", &[])).await?;
    let mut collector = Collector::start(programs, &plane, plane.kubeconfig(), contender, &cascade).await?;

    let idle = Neighbour::start(&plane, "idle").await?;
    tokio::time::sleep(idle_for).await;
    let idle = idle.stop().await?;

    let beside = Neighbour::start(&plane, "beside").await?;
    let begun = Instant::now();
    for owner in &owners {
        delete(&client, &format!("{}/{owner}", configmaps(NAMESPACE)), "Background").await?;
    }
    collector.finish(&client, &cascade, &owners).await?;
    let rate = cascade.objects as f64 / begun.elapsed().as_secs_f64();
    Ok(Run { contender, rate, idle, beside: beside.stop().await? })
}

/// A client with its own connection. It does not wait for an answer before the next request. The latency counts from
/// the planned time of a request, so a server that stops for a second delays every request of that second.
struct Neighbour {
    stop: oneshot::Sender<()>,
    task: JoinSet<anyhow::Result<Times>>,
}

impl Neighbour {
    async fn start(plane: &ControlPlane, prefix: &'static str) -> anyhow::Result<Neighbour> {
        let client = plane.client().await?;
        let (stop, stopped) = oneshot::channel();
        let mut task = JoinSet::new();
        task.spawn(ask(client, prefix, stopped));
        Ok(Neighbour { stop, task })
    }

    async fn stop(mut self) -> anyhow::Result<Times> {
        // If the task ended early, its result has the reason.
        let _ended = self.stop.send(());
        match self.task.join_next().await {
            Some(times) => times?,
            None => anyhow::bail!("the neighbour was never there"),
        }
    }
}

async fn ask(client: Client, prefix: &'static str, mut stopped: oneshot::Receiver<()>) -> anyhow::Result<Times> {
    let (mut times, mut under_way) = (Times::default(), JoinSet::new());
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut number = 0_usize;
    loop {
        tokio::select! {
            meant = ticks.tick(), if under_way.len() < UNDER_WAY_MAX => {
                number += 1;
                under_way.spawn(one(client.clone(), prefix, number, meant));
            }
            Some(done) = under_way.join_next() => times.take(done??),
            _stop = &mut stopped => break,
        }
    }
    // The last requests count too. Without them, a server that no longer answers would look fast.
    while let Some(done) = under_way.join_next().await {
        times.take(done??);
    }
    Ok(times)
}

/// Sends one request, and returns its latency.
async fn one(client: Client, prefix: &str, number: usize, meant: Instant) -> anyhow::Result<(Of, f64)> {
    let maps = configmaps(NEIGHBOUR);
    let is_get = number.is_multiple_of(2);
    if is_get {
        ensure!(get(&client, format!("{maps}/asked")).await?.is_some(), "the neighbour's object is gone");
    } else {
        create(&client, &maps, &configmap(&format!("{prefix}-{number}"), &[])).await?;
    }
    Ok((if is_get { Of::Get } else { Of::Create }, meant.elapsed().as_secs_f64() * 1e3))
}

fn p99(rounds: &Rounds<Run>, contender: Contender, of: Of) -> Samples {
    rounds.samples(contender, |run| run.beside.of(of).percentile(99))
}

/// Returns the ratio to the latency beside the same collector at rest.
fn over_idle(rounds: &Rounds<Run>, contender: Contender, of: Of) -> Samples {
    rounds.samples(contender, |run| run.beside.of(of).percentile(99) / run.idle.of(of).percentile(99))
}

impl bench::Run for Run {
    type Who = Contender;

    fn who(&self) -> Contender {
        self.contender
    }

    fn json(&self) -> Value {
        let times = |times: &Times| {
            let both = [Of::Get, Of::Create].map(|of| {
                let samples = times.of(of);
                json!({ "requests": samples.len(), "p50": samples.median(), "p99": samples.percentile(99), "most": samples.most() })
            });
            json!({ "getMillis": both[0], "createMillis": both[1] })
        };
        json!({
            "contender": self.contender.to_string(), "objectsPerSecond": self.rate,
            "idle": times(&self.idle), "beside": times(&self.beside),
        })
    }

    /// Compares ours at full speed with the floor, and ours at a limited rate with rest and with the floor at the same
    /// rate.
    fn figures(rounds: &Rounds<Run>) -> Vec<Figure> {
        let first = |is: fn(&Contender) -> bool| rounds.all().iter().map(|run| run.contender).find(is);
        let floor = first(|contender| matches!(contender, Contender::Floor(_)));
        let floor_held = first(|contender| matches!(contender, Contender::FloorHeld(_)));
        let held = first(|contender| matches!(contender, Contender::Held(_)));
        let mut figures = Vec::new();
        if let Some(floor) = floor {
            let ratio = |of| p99(rounds, Contender::Adaptive, of).over(&p99(rounds, floor, of));
            figures.push(Figure::new("neighbour-get-saturated", ratio(Of::Get)));
            figures.push(Figure::new("neighbour-create-saturated", ratio(Of::Create)));
        }
        if let Some(held) = held {
            figures.push(Figure::new("neighbour-get-held", over_idle(rounds, held, Of::Get)));
            figures.push(Figure::new("neighbour-create-held", over_idle(rounds, held, Of::Create)));
        }
        if let (Some(held), Some(floor)) = (held, floor_held) {
            let ratio = |of| p99(rounds, held, of).over(&p99(rounds, floor, of));
            figures.push(Figure::new("neighbour-get-paced", ratio(Of::Get)));
            figures.push(Figure::new("neighbour-create-paced", ratio(Of::Create)));
        }
        figures
    }

    fn table(rounds: &Rounds<Run>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\nanother client's requests, ms; in brackets the p99 of the best and of the worst round")?;
        let head = ["", "objects/s", "GET p50", "GET p99", "x idle", "CREATE p50", "CREATE p99", "x idle"];
        let [name, rate, get50, get99, get_idle, create50, create99, create_idle] = head;
        writeln!(
            f,
            "{name:<24} {rate:>9} {get50:>8} {get99:>20} {get_idle:>7} {create50:>11} {create99:>20} {create_idle:>7}"
        )?;
        for contender in rounds.everybody() {
            let rate = rounds.samples(contender, |run| run.rate).median();
            write!(f, "{:<24} {rate:>9.0}", contender.to_string())?;
            for (of, width) in [(Of::Get, 8), (Of::Create, 11)] {
                let p50 = rounds.samples(contender, |run| run.beside.of(of).median()).median();
                let (p99, idle) = (p99(rounds, contender, of).to_string(), over_idle(rounds, contender, of).median());
                write!(f, " {p50:>width$.2} {p99:>20} {idle:>7.2}")?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}
