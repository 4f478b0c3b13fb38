//! Measures one executor, then eight, then one again, in a cascade on an API server with slow writes.

use crate::controlplane::{Binaries, ControlPlane};
use crate::load::{self, configmaps, count, delete, families, longest_stall, until};
use crate::proxy::Proxy;
use crate::replicas::Replicas;
use crate::service::Programs;
use anyhow::{Context, ensure};
use kube::Client;
use std::fmt;
use std::time::Duration;
use tokio::time::Instant;

const EXECUTORS: usize = 8;
const CONCURRENCY: &str = "4";
/// The added delay of every write.
const SLOW: Duration = Duration::from_millis(50);
const OWNERS: usize = 20;
const CASCADE_WITHIN: Duration = Duration::from_secs(600);
const SOON: Duration = Duration::from_secs(60);
/// The parts of all objects that one executor collects before the others start, and that are left when they stop.
const ALONE: usize = 10;
const LEFT: usize = 5;

/// The measurement.
#[derive(Clone, Debug)]
pub struct Figures {
    pub objects: usize,
    /// Objects per second.
    pub alone: f64,
    pub together: f64,
    /// The rate after the other executors stopped.
    pub alone_again: f64,
    /// The maximum number of writes in flight.
    pub writes_alone: usize,
    pub writes_together: usize,
    /// The attempts of each executor, in the order of their starts.
    pub attempts: Vec<f64>,
    /// The time from SIGTERM to the end of the last stopped executor.
    pub gone_after: Duration,
    /// The longest time without progress after that.
    pub longest_stall: Duration,
}

/// Runs a cascade of about this many objects.
pub async fn run(binaries: &Binaries, programs: &Programs, objects: usize) -> anyhow::Result<Figures> {
    let plane = ControlPlane::start(binaries).await?;
    let client = plane.client().await?;
    let mut replicas = Replicas::new(programs, 1).await?;
    let proxy = Proxy::start(plane.client().await?, replicas.directory()).await?;
    replicas.add_graph(plane.kubeconfig(), &[])?;
    replicas.add_executor(proxy.kubeconfig(), &["--concurrency", CONCURRENCY])?;
    replicas.ready().await?;

    load::namespace(&client, "cascade").await?;
    let maps = configmaps("cascade");
    let owners = families(&client, "cascade", "o", OWNERS, objects / OWNERS).await?;
    let objects = OWNERS * (objects / OWNERS);
    let known = || replicas.graphs[0].metric("ownergraph_graph_nodes ");
    until("the graph has everything", SOON, known, |nodes| *nodes >= objects as f64).await?;
    proxy.slow_writes(SLOW);
    for owner in &owners {
        delete(&client, &format!("{maps}/{owner}"), "Background").await?;
    }
    let alone = rate(&client, &maps, objects - 1, objects - objects * ALONE / 100).await?;
    let writes_alone = proxy.most_writes();

    for _ in 1..EXECUTORS {
        replicas.add_executor(proxy.kubeconfig(), &["--concurrency", CONCURRENCY])?;
    }
    replicas.ready().await?;
    let left = count(&client, &maps).await?;
    let together = rate(&client, &maps, left, objects * LEFT / 100).await?;
    let writes_together = proxy.most_writes();
    let mut attempts = Vec::new();
    for executor in &replicas.executors {
        attempts.push(executor.service()?.total("ownergraph_executor_attempts_total").await?);
    }

    let begun = Instant::now();
    let leaving = replicas.executors.split_off(1);
    for executor in &leaving {
        executor.service()?.process.terminate()?;
    }
    let ends = async {
        for mut executor in leaving {
            let process = &mut executor.service_mut()?.process;
            ensure!(process.ended(SOON).await? == 0, "a drained executor exits 0; {}", process.log_tail());
        }
        Ok(begun.elapsed())
    };
    let rest = async {
        let left = count(&client, &maps).await?;
        let stall = longest_stall(&client, &maps, 0, CASCADE_WITHIN).await?;
        anyhow::Ok((left as f64 / begun.elapsed().as_secs_f64(), stall))
    };
    let (gone_after, (alone_again, longest_stall)) = tokio::try_join!(ends, rest)?;
    Ok(Figures {
        objects,
        alone,
        together,
        alone_again,
        writes_alone,
        writes_together,
        attempts,
        gone_after,
        longest_stall,
    })
}

/// Returns the objects per second between two numbers of objects that are left.
async fn rate(client: &Client, maps: &str, from: usize, to: usize) -> anyhow::Result<f64> {
    let from = until("it has begun", CASCADE_WITHIN, || count(client, maps), |left| *left <= from).await?;
    let begun = Instant::now();
    let to = until("it goes on", CASCADE_WITHIN, || count(client, maps), |left| *left <= to).await?;
    let done = from.checked_sub(to).context("nothing comes back")?;
    Ok(done as f64 / begun.elapsed().as_secs_f64())
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Figures { objects, alone, together, alone_again, writes_alone, writes_together, attempts, .. } = self;
        writeln!(
            f,
            "{objects} objects, writes slowed by {SLOW:?}, executors of --concurrency {CONCURRENCY}\n  \
             1 executor:  {alone:>6.0}/s, {writes_alone:>2} writes at a time\n  \
             {EXECUTORS} executors: {together:>6.0}/s, {writes_together:>2} writes at a time, {:.1} times as many; attempts of each {attempts:?}\n  \
             1 again:     {alone_again:>6.0}/s; the others were gone {:.2?} after SIGTERM, and nothing stood still for longer than {:.2?}",
            together / alone,
            self.gone_after,
            self.longest_stall,
        )
    }
}
