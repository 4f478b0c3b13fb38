//! Measures the time from the end of an owner to the end of the last of its hundred dependents, without other work.

use crate::bench::{self, Figure, Rounds, Samples};
use crate::contender::{Cascade, Collector, Contender};
use crate::controlplane::{Binaries, ControlPlane};
use crate::load::{self, configmap, configmaps, create, delete, families};
use crate::service::Programs;
use anyhow::{Context, bail};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ListParams, WatchEvent, WatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use std::fmt;
use std::time::Duration;
use tokio::time::{Instant, timeout};

const NAMESPACE: &str = "idle";
const FAMILY: usize = 100;
/// The objects that are deleted one after another to measure a single DELETE.
const LONE: usize = 50;
/// The time in ms that a contender may need in addition to its requests.
const ALLOWED_MILLIS: f64 = 50.0;
/// The delay between the creation of a family and its deletion. It is enough for every watcher to process the creation.
const SETTLED: Duration = Duration::from_millis(500);
const WITHIN: Duration = Duration::from_secs(120);

/// The result of one contender, in ms.
#[derive(Clone, Debug)]
pub struct Run {
    pub contender: Contender,
    /// The number of requests in flight.
    pub in_flight: u32,
    /// The duration of one DELETE by a client that does nothing else.
    pub round_trip: f64,
    /// The time from the event of the owner's end to the event of the last dependent's end.
    pub last: Samples,
}

impl Run {
    /// Returns the limit: twice the time of the requests, and a little.
    pub fn allowed(&self) -> f64 {
        2.0 * self.round_trip * (FAMILY as f64 / f64::from(self.in_flight)) + ALLOWED_MILLIS
    }
}

/// Measures this many families, one after another.
pub async fn run(
    binaries: &Binaries,
    programs: &Programs,
    contender: Contender,
    families: usize,
) -> anyhow::Result<Run> {
    let in_flight = match contender {
        Contender::Upstream(in_flight) | Contender::Ours(in_flight) | Contender::Floor(in_flight) => in_flight,
        Contender::FloorHeld(_)
        | Contender::Adaptive
        | Contender::Held(_)
        | Contender::Observed(_)
        | Contender::Gated(_)
        | Contender::Recorded(_) => {
            bail!("{contender}: it has no fixed number of requests under way")
        }
    };
    let plane = ControlPlane::start(binaries).await?;
    let client = plane.client().await?;
    load::namespace(&client, NAMESPACE).await?;
    let bare = matches!(contender, Contender::Floor(_)).then_some(in_flight as usize);
    let _collector = match bare {
        Some(_) => None,
        None => {
            let cascade = Cascade { namespace: NAMESPACE, policy: "Background", objects: 0 };
            Some(Collector::start(programs, &plane, plane.kubeconfig(), contender, &cascade).await?)
        }
    };
    let round_trip = round_trip(&client).await?;
    let mut last = Samples::default();
    for number in 0..families {
        last.push(one(&client, number, bare).await?.as_secs_f64() * 1e3);
    }
    Ok(Run { contender, in_flight, round_trip, last })
}

async fn round_trip(client: &Client) -> anyhow::Result<f64> {
    let maps = configmaps(NAMESPACE);
    let mut samples = Samples::default();
    for number in 0..LONE {
        let name = format!("lone-{number}");
        create(client, &maps, &configmap(&name, &[])).await?;
        let begun = Instant::now();
        delete(client, &format!("{maps}/{name}"), "Background").await?;
        samples.push(begun.elapsed().as_secs_f64() * 1e3);
    }
    Ok(samples.median())
}

/// Measures the end of one family. The bare client knows the dependents, and deletes this many at once.
async fn one(client: &Client, number: usize, bare: Option<usize>) -> anyhow::Result<Duration> {
    let owner = families(client, NAMESPACE, &format!("o{number}"), 1, FAMILY).await?.remove(0);
    tokio::time::sleep(SETTLED).await;
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
    let version = api.list_metadata(&ListParams::default().limit(1)).await?.metadata.resource_version;
    let version = version.context("a list has a version")?;
    let mut events = api.watch_metadata(&WatchParams::default(), &version).await?.boxed();
    let path = format!("{}/{owner}", configmaps(NAMESPACE));
    delete(client, &path, "Background").await?;
    let deleted = async {
        match bare {
            Some(in_flight) => delete_dependents(client, &path, in_flight).await,
            None => Ok(()),
        }
    };
    let watched = async {
        let (mut begun, mut left) = (None, FAMILY);
        while left > 0 {
            match events.try_next().await?.context("the watch has ended")? {
                WatchEvent::Deleted(object) if object.metadata.name.as_ref() == Some(&owner) => {
                    begun = Some(Instant::now());
                }
                WatchEvent::Deleted(_) => left -= 1,
                WatchEvent::Added(_) | WatchEvent::Modified(_) | WatchEvent::Bookmark(_) => {}
                WatchEvent::Error(error) => bail!("watching: {error}"),
            }
        }
        Ok(begun.context("the owner goes first")?.elapsed())
    };
    let both = async { tokio::try_join!(watched, deleted) };
    let ended =
        timeout(WITHIN, both).await.with_context(|| format!("the dependents of {owner} are not gone in {WITHIN:?}"))?;
    ended.map(|(took, ())| took)
}

async fn delete_dependents(client: &Client, owner: &str, in_flight: usize) -> anyhow::Result<()> {
    let paths = stream::iter((0..FAMILY).map(|number| format!("{owner}-{number}")));
    let under_way = paths.map(async |path| delete(client, &path, "Background").await);
    under_way.buffer_unordered(in_flight).try_collect().await
}

impl bench::Run for Run {
    type Who = Contender;

    fn who(&self) -> Contender {
        self.contender
    }

    fn json(&self) -> Value {
        json!({
            "contender": self.contender.to_string(), "deleteMillis": self.round_trip, "families": self.last.len(),
            "p50Millis": self.last.median(), "p99Millis": self.last.percentile(99), "mostMillis": self.last.most(),
            "allowedMillis": self.allowed(),
        })
    }

    fn figures(rounds: &Rounds<Run>) -> Vec<Figure> {
        let ours = rounds.all().iter().filter(|run| run.contender.is_ours());
        let ratios: Samples = ours.map(|run| run.last.percentile(99) / run.allowed()).collect();
        vec![Figure::new("latency", ratios)]
    }

    fn table(rounds: &Rounds<Run>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head = ["owner gone to last of 100 gone, ms", "p50", "p99", "allowed", "one DELETE"];
        writeln!(f, "\n{:<36} {:>24} {:>24} {:>9} {:>11}", head[0], head[1], head[2], head[3], head[4])?;
        for contender in rounds.everybody() {
            let p50 = rounds.samples(contender, |run| run.last.median()).to_string();
            let p99 = rounds.samples(contender, |run| run.last.percentile(99)).to_string();
            let allowed = rounds.samples(contender, Run::allowed).median();
            let round_trip = rounds.samples(contender, |run| run.round_trip).median();
            writeln!(f, "{:<36} {p50:>24} {p99:>24} {allowed:>9.1} {round_trip:>11.2}", contender.to_string())?;
        }
        Ok(())
    }
}
