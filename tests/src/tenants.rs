//! Measures the effect on other tenants of one tenant whose objects have very many references.

use crate::bench::{self, Figure, Rounds, Samples};
use crate::contender::{Cascade, Collector, Contender};
use crate::controlplane::{Binaries, ControlPlane};
use crate::load::{self, configmap, configmaps, create, delete, families, get, reference_to};
use crate::service::Programs;
use kube::Client;
use serde_json::{Value, json};
use std::fmt;
use std::time::Duration;
use tokio::time::{Instant, interval};

const TENANT: &str = "tenant";
const OTHERS: &str = "others";
/// The tenant's objects, and the references of each, which fill the 1.5 MiB that etcd accepts.
pub const OBJECTS: usize = 10;
pub const REFERENCES: usize = 20_000;
/// The dependents of each owner of the other tenants.
const DEPENDENTS: usize = 3;
/// The time limit. A longer cascade counts as endless, and ends the run.
const ENDS_WITHIN: Duration = Duration::from_secs(60);
const LOOKS_EVERY: Duration = Duration::from_millis(10);
/// Of the collector's loop.
const ROUNDS: &str = "ownergraph_round_duration_seconds_bucket{le=\"";

/// The result of one run.
#[derive(Clone, Debug)]
pub struct Run {
    pub contender: Contender,
    /// True if the tenant's objects exist.
    pub tenant: bool,
    /// The time from the deletion of an owner until its dependents are gone, in ms.
    pub cascades: Samples,
    /// The last cascade did not end.
    pub stuck: bool,
    /// The upper bound of the longest round of the collector's loop, in ms. Upstream does not report it.
    pub longest_round: Option<f64>,
    /// The growth of the contender's largest process, in MiB, at its maximum.
    pub memory: f64,
}

/// Runs this many cascades, one after another. With `tenant`, creates the tenant's objects just before the first one.
pub async fn run(
    binaries: &Binaries,
    programs: &Programs,
    contender: Contender,
    tenant: bool,
    cascades: usize,
) -> anyhow::Result<Run> {
    let plane = ControlPlane::start(binaries).await?;
    let client = plane.client().await?;
    for namespace in [TENANT, OTHERS] {
        load::namespace(&client, namespace).await?;
    }
    let owners = families(&client, OTHERS, "o", cascades, DEPENDENTS).await?;
    let there = Cascade { namespace: OTHERS, policy: "Background", objects: cascades * (1 + DEPENDENTS) };
    let collector = Collector::start(programs, &plane, plane.kubeconfig(), contender, &there).await?;
    let (_, memory) = collector.taken()?;
    if tenant {
        plant(&client).await?;
    }
    let (mut took, mut stuck) = (Samples::default(), false);
    for owner in &owners {
        let begun = Instant::now();
        delete(&client, &format!("{}/{owner}", configmaps(OTHERS)), "Background").await?;
        stuck = !gone(&client, owner, begun).await?;
        took.push(begun.elapsed().as_secs_f64() * 1e3);
        if stuck {
            break;
        }
    }
    let longest_round = match &collector {
        Collector::Ours(fleet) => longest_round(&fleet.graph.get("/metrics").await?.1),
        Collector::Floor(..) | Collector::Upstream(_) | Collector::Observed(..) => None,
    };
    let memory = collector.taken()?.1 - memory;
    Ok(Run { contender, tenant, cascades: took, stuck, longest_round, memory })
}

/// Creates the tenant's objects. Each has one owner that exists, and references to uids that never existed.
async fn plant(client: &Client) -> anyhow::Result<()> {
    let maps = configmaps(TENANT);
    let owner = create(client, &maps, &configmap("owner", &[])).await?;
    for object in 0..OBJECTS {
        let absent = (0..REFERENCES).map(|number| {
            json!({ "apiVersion": "v1", "kind": "ConfigMap", "name": "n", "uid": format!("{object}-{number}") })
        });
        let references: Vec<Value> = std::iter::once(reference_to(&owner)).chain(absent).collect();
        create(client, &maps, &configmap(&format!("object-{object}"), &references)).await?;
    }
    Ok(())
}

/// Returns whether the dependents of an owner go in time.
async fn gone(client: &Client, owner: &str, begun: Instant) -> anyhow::Result<bool> {
    let mut looks = interval(LOOKS_EVERY);
    for number in 0..DEPENDENTS {
        let path = format!("{}/{owner}-{number}", configmaps(OTHERS));
        while get(client, path.as_str()).await?.is_some() {
            if begun.elapsed() >= ENDS_WITHIN {
                return Ok(false);
            }
            looks.tick().await;
        }
    }
    Ok(true)
}

/// Returns the bound of the first bucket that holds every round, in ms.
fn longest_round(metrics: &str) -> Option<f64> {
    let buckets = metrics.lines().filter_map(|line| {
        let (bound, count) = line.strip_prefix(ROUNDS)?.split_once("\"}")?;
        Some((bound.replace("+Inf", "inf").parse::<f64>().ok()?, count.split_whitespace().next()?.parse::<u64>().ok()?))
    });
    let buckets: Vec<(f64, u64)> = buckets.collect();
    let all = buckets.iter().map(|(_, count)| *count).max()?;
    buckets.iter().find(|(_, count)| *count == all).map(|(bound, _)| bound * 1e3)
}

fn most(rounds: &Rounds<Run>, contender: Contender, tenant: bool) -> Samples {
    rounds.of((contender, tenant)).map(|run| run.cascades.most()).collect()
}

impl bench::Run for Run {
    type Who = (Contender, bool);

    fn who(&self) -> (Contender, bool) {
        (self.contender, self.tenant)
    }

    fn json(&self) -> Value {
        let beside = if self.tenant { "beside the tenant" } else { "alone" };
        json!({
            "contender": format!("{}, {beside}", self.contender),
            "cascadeMillis": {
                "cascades": self.cascades.len(), "p50": self.cascades.median(), "most": self.cascades.most(),
            },
            "stuck": self.stuck, "longestRoundMillis": self.longest_round, "memoryGrowthMiB": self.memory,
        })
    }

    fn figures(rounds: &Rounds<Run>) -> Vec<Figure> {
        let ours = Contender::Adaptive;
        let without = most(rounds, ours, false).median();
        let delay = rounds.of((ours, true)).map(|run| run.cascades.most() - without).collect();
        let round = rounds.of((ours, true)).filter_map(|run| run.longest_round).collect();
        let memory = rounds.of((ours, true)).map(|run| run.memory).collect();
        vec![
            Figure::new("tenants-delay", delay),
            Figure::new("tenants-round", round),
            Figure::new("tenants-memory", memory),
        ]
    }

    fn table(rounds: &Rounds<Run>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\ncascades of {DEPENDENTS} dependents beside {OBJECTS} objects of {REFERENCES} references")?;
        let head = ["", "p50, ms", "most, ms", "longest round, ms", "memory, MiB"];
        writeln!(f, "{:<36} {:>10} {:>20} {:>18} {:>14}", head[0], head[1], head[2], head[3], head[4])?;
        for who in rounds.everybody() {
            let (contender, tenant) = who;
            let name = format!("{contender}{}", if tenant { ", beside the tenant" } else { "" });
            let p50 = rounds.samples(who, |run| run.cascades.median()).median();
            let most = rounds.samples(who, |run| run.cascades.most()).to_string();
            let round = rounds.samples(who, |run| run.longest_round.unwrap_or(f64::NAN)).median();
            let memory = rounds.samples(who, |run| run.memory).to_string();
            let note = if rounds.of(who).any(|run| run.stuck) { "  did not end" } else { "" };
            writeln!(f, "{name:<36} {p50:>10.1} {most:>20} {round:>18.2} {memory:>14}{note}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::longest_round;

    #[test]
    fn the_longest_round_is_in_the_first_bucket_that_holds_all() {
        let bucket =
            |bound: &str, count: u32| format!("ownergraph_round_duration_seconds_bucket{{le=\"{bound}\"}} {count}\n");
        let metrics = [bucket("0.01", 3), bucket("0.02", 7), bucket("0.04", 7), bucket("+Inf", 7)].concat();
        assert_eq!(longest_round(&metrics), Some(20.0));
        assert_eq!(longest_round(""), None);
    }
}
