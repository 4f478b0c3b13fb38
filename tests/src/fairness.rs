//! Measures how long the deletion of ten objects takes in the middle of another tenant's cascade.

use crate::bench::{self, Figure, Rounds};
use crate::cascade::OWNERS;
use crate::contender::{Cascade, Collector, Contender};
use crate::controlplane::{Binaries, ControlPlane};
use crate::load::{self, configmaps, count, delete, families, get, until_left, until_soon};
use crate::service::Programs;
use anyhow::ensure;
use kube::Client;
use serde_json::{Value, json};
use std::fmt;
use std::time::Duration;
use tokio::time::Instant;

const CROWDED: &str = "crowded";
const QUIET: &str = "quiet";
const TEN: usize = 10;
const WITHIN: Duration = Duration::from_secs(1800);

/// The result of one run.
#[derive(Clone, Debug)]
pub struct Run {
    pub contender: Contender,
    /// The number of objects of the cascade that were gone when the ten objects were deleted.
    pub left: usize,
    /// The seconds until the ten objects of another namespace were gone, and those of another owner in the same
    /// namespace.
    pub other_namespace: f64,
    pub same_namespace: f64,
}

/// Runs one cascade of about this many objects. At half of it, deletes two owners of ten objects each.
pub async fn run(
    binaries: &Binaries,
    programs: &Programs,
    contender: Contender,
    objects: usize,
) -> anyhow::Result<Run> {
    let plane = ControlPlane::start(binaries).await?;
    let client = plane.client().await?;
    for name in [CROWDED, QUIET] {
        load::namespace(&client, name).await?;
        families(&client, name, "ten", 1, TEN).await?;
    }
    let owners = families(&client, CROWDED, "o", OWNERS, objects / OWNERS).await?;
    let cascade = Cascade { namespace: CROWDED, policy: "Background", objects };
    // The control plane is dropped last, because the other values use it.
    let _collector = Collector::start(programs, &plane, plane.kubeconfig(), contender, &cascade).await?;
    let maps = configmaps(CROWDED);
    for owner in &owners {
        delete(&client, &format!("{maps}/{owner}"), "Background").await?;
    }
    until_left(&client, &maps, objects / 2, WITHIN).await?;
    let begun = Instant::now();
    for namespace in [QUIET, CROWDED] {
        delete(&client, &format!("{}/ten-0", configmaps(namespace)), "Background").await?;
    }
    let left = count(&client, &maps).await?;
    ensure!(left > 2 * TEN, "the cascade was over before the ten were deleted: take more objects");
    let (other_namespace, same_namespace) =
        tokio::try_join!(ten_gone(&client, QUIET, begun), ten_gone(&client, CROWDED, begun))?;
    Ok(Run { contender, left, other_namespace, same_namespace })
}

async fn ten_gone(client: &Client, namespace: &str, begun: Instant) -> anyhow::Result<f64> {
    for number in 0..TEN {
        let path = format!("{}/ten-0-{number}", configmaps(namespace));
        until_soon("it is gone", WITHIN, || get(client, path.clone()), Option::is_none).await?;
    }
    Ok(begun.elapsed().as_secs_f64())
}

impl bench::Run for Run {
    type Who = Contender;

    fn who(&self) -> Contender {
        self.contender
    }

    fn json(&self) -> Value {
        json!({
            "contender": self.contender.to_string(), "left": self.left, "otherNamespaceSeconds": self.other_namespace,
            "sameNamespaceSeconds": self.same_namespace,
        })
    }

    fn figures(rounds: &Rounds<Run>) -> Vec<Figure> {
        vec![
            Figure::new("fairness-namespace", rounds.samples(Contender::Adaptive, |run| run.other_namespace)),
            Figure::new("fairness-root", rounds.samples(Contender::Adaptive, |run| run.same_namespace)),
        ]
    }

    fn table(rounds: &Rounds<Run>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head = ["", "objects left", "ten elsewhere, s", "ten beside them, s"];
        writeln!(f, "\n{:<24} {:>12} {:>24} {:>24}", head[0], head[1], head[2], head[3])?;
        for contender in rounds.everybody() {
            let left = rounds.samples(contender, |run| run.left as f64).median();
            let elsewhere = rounds.samples(contender, |run| run.other_namespace).to_string();
            let beside = rounds.samples(contender, |run| run.same_namespace).to_string();
            writeln!(f, "{:<24} {left:>12.0} {elsewhere:>24} {beside:>24}", contender.to_string())?;
        }
        Ok(())
    }
}
