//! Measures one foreground deletion on an API server that delays every request.

use crate::bench::{self, Figure, Rounds, Samples};
use crate::contender::{Cascade, Collector, Contender};
use crate::controlplane::{Binaries, ControlPlane};
use crate::load::{self, configmaps, delete, families, get};
use crate::proxy::Proxy;
use crate::service::Programs;
use serde_json::{Value, json};
use std::fmt;
use std::time::Duration;
use tokio::time::{Instant, interval};

const NAMESPACE: &str = "slow";
pub const DEPENDENTS: usize = 40;
/// The default number of workers of kube-controller-manager.
pub const UPSTREAM_WORKERS: u32 = 20;
/// The time limit. A longer deletion counts as endless.
pub const ENDS_WITHIN: Duration = Duration::from_secs(180);
const LOOKS_EVERY: Duration = Duration::from_millis(50);

/// The result of one run.
#[derive(Clone, Debug)]
pub struct Run {
    pub contender: Contender,
    /// The added delay of every request of the contender.
    pub delay: Duration,
    /// The time from the deletion of the owner to its end, or [`ENDS_WITHIN`].
    pub seconds: f64,
    pub ended: bool,
}

/// Deletes one owner in foreground, with [`DEPENDENTS`] that block its deletion.
pub async fn run(
    binaries: &Binaries,
    programs: &Programs,
    contender: Contender,
    delay: Duration,
) -> anyhow::Result<Run> {
    let plane = ControlPlane::start(binaries).await?;
    let client = plane.client().await?;
    load::namespace(&client, NAMESPACE).await?;
    let owners = families(&client, NAMESPACE, "o", 1, DEPENDENTS).await?;
    let proxy = Proxy::start(plane.client().await?, plane.directory()).await?;
    let cascade = Cascade { namespace: NAMESPACE, policy: "Foreground", objects: DEPENDENTS };
    let _collector = Collector::start(programs, &plane, proxy.kubeconfig(), contender, &cascade).await?;
    proxy.slow_requests(delay);
    let owner = format!("{}/{}", configmaps(NAMESPACE), owners[0]);
    let begun = Instant::now();
    delete(&client, &owner, "Foreground").await?;
    let mut looks = interval(LOOKS_EVERY);
    let ended = loop {
        looks.tick().await;
        if get(&client, owner.as_str()).await?.is_none() {
            break true;
        }
        if begun.elapsed() >= ENDS_WITHIN {
            break false;
        }
    };
    let took = if ended { begun.elapsed() } else { ENDS_WITHIN };
    Ok(Run { contender, delay, seconds: took.as_secs_f64(), ended })
}

/// Returns the seconds of one contender's runs with this delay.
fn seconds(rounds: &Rounds<Run>, contender: Contender, delay: Duration) -> Samples {
    rounds.of((contender, delay)).map(|run| run.seconds).collect()
}

impl bench::Run for Run {
    type Who = (Contender, Duration);

    fn who(&self) -> (Contender, Duration) {
        (self.contender, self.delay)
    }

    fn json(&self) -> Value {
        let contender = format!("{}, {} s a request", self.contender, self.delay.as_secs_f64());
        json!({ "contender": contender, "seconds": self.seconds, "ended": self.ended })
    }

    /// Compares ours with upstream and its default number of workers, for each delay with a budget.
    fn figures(rounds: &Rounds<Run>) -> Vec<Figure> {
        let upstream = |(contender, _): &(Contender, Duration)| *contender == Contender::Upstream(UPSTREAM_WORKERS);
        let all = rounds.everybody().into_iter().filter(upstream).filter_map(|(upstream, delay)| {
            let id = match delay.as_millis() {
                100 => "foreground-slow-100",
                1_100 => "foreground-slow-1100",
                2_000 => "foreground-slow-2000",
                5_000 => "foreground-slow-5000",
                _ => return None,
            };
            let ours = seconds(rounds, Contender::Adaptive, delay);
            Some(Figure::new(id, ours.over(&seconds(rounds, upstream, delay))))
        });
        all.collect()
    }

    fn table(rounds: &Rounds<Run>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "\nforeground deletion of {DEPENDENTS} dependents, s\n{:<24} {:>12} {:>20}",
            "", "a request", "took"
        )?;
        for (contender, delay) in rounds.everybody() {
            let took = seconds(rounds, contender, delay).to_string();
            let ended = rounds.of((contender, delay)).all(|run| run.ended);
            let note = if ended { "" } else { "  did not end" };
            writeln!(f, "{:<24} {:>12.1} {took:>20}{note}", contender.to_string(), delay.as_secs_f64())?;
        }
        Ok(())
    }
}
