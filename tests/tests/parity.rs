//! Our collector in mode observe beside upstream's collector, on a real API server: they make the same decisions, and
//! each difference has a reason.
//!
//! `MINUTES=n` keeps both busy for this time, and restarts ours after two thirds of it. `FIRST_SEED=n` sets the first world. `RECORD=DIR` records the inputs of our
//! collector.

use anyhow::ensure;
use http::request::Parts;
use serde_json::json;
use std::io::{self, Write as _};
use std::time::Duration;
use tests::controlplane::{Options, require};
use tests::differential::{Beside, Compared};
use tests::load::{configmap, configmaps, create, delete, reference_to, until};
use tests::proxy::Lie;
use tests::service::Programs;
use tokio::time::Instant;

/// Worlds at a time.
const BATCH: u64 = 20;
const SOON: Duration = Duration::from_secs(30);

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

#[tokio::test(flavor = "multi_thread")]
async fn both_collectors_decide_the_same() -> anyhow::Result<()> {
    let Some(binaries) = require() else { return Ok(()) };
    let programs = Programs::build()?;
    let record = std::env::var("RECORD").map(|directory| ["--record".to_owned(), directory]);
    let flags = record.map_or(Vec::new(), Vec::from);
    let mut beside = Beside::start(&binaries, &programs, Options::default(), &flags).await?;
    let part = Duration::from_secs(number("MINUTES").unwrap_or(0) * 60 / 3);
    let mut seed = number("FIRST_SEED").unwrap_or(0);
    churn(&beside, &mut seed, part).await?;
    // Upstream finds the work that it left, and our collector the decisions that wait for it.
    beside.restart_upstream().await?;
    if !part.is_zero() {
        churn(&beside, &mut seed, part).await?;
    }
    assess(&beside).await?;
    if !part.is_zero() {
        beside.restart_ours().await?;
        churn(&beside, &mut seed, part).await?;
        assess(&beside).await?;
    }
    Ok(())
}

/// Keeps both collectors busy for this time, at least with one batch of worlds. Every fifth batch has a spike of load.
async fn churn(beside: &Beside<'_>, seed: &mut u64, lasts: Duration) -> anyhow::Result<()> {
    let until = Instant::now() + lasts;
    loop {
        beside.churn(*seed..*seed + BATCH, (*seed / BATCH).is_multiple_of(5)).await?;
        *seed += BATCH;
        if Instant::now() >= until {
            return Ok(());
        }
    }
}

async fn assess(beside: &Beside<'_>) -> anyhow::Result<()> {
    let compared = beside.settled().await?;
    write!(io::stderr(), "{compared}")?;
    ensure!(compared.numbers.comparable > 400, "too little to compare");
    ensure!(compared.unknown().is_empty(), "no known difference explains {} disagreements", compared.unknown().len());
    ensure!(compared.agreed() >= 99.9, "{:.3} % agreed", compared.agreed());
    Ok(())
}

/// Scenes that show what a bug of the verdict or of the evidence does. Without a bug, nothing disagrees. A build with
/// planted bugs has the name of one in PLANTED (`tests/planted/beside.sh`), and must disagree within a minute.
#[tokio::test(flavor = "multi_thread")]
async fn planted_bugs_disagree() -> anyhow::Result<()> {
    let Some(binaries) = require() else { return Ok(()) };
    let programs = Programs::build()?;
    let planted = std::env::var("PLANTED").unwrap_or_default();
    let mut beside = Beside::start(&binaries, &programs, Options::default(), &[]).await?;
    let client = beside.client().clone();
    let maps = configmaps("default");

    // Our collector alone cannot read a kind whose object is an owner.
    let widgets = "/apis/example.com/v1/namespaces/default/widgets";
    let hidden = json!({ "apiVersion": "example.com/v1", "kind": "Widget", "metadata": { "name": "hidden" } });
    let hidden = create(&client, widgets, &hidden).await?;
    beside
        .restart_ours_behind(|parts: &Parts| {
            let body = "404 page not found".to_owned();
            let answer = Lie::Answer { status: 404, content_type: "text/plain", retry_after: None, body };
            Some(answer).filter(|_| parts.uri.path().contains("/widgets"))
        })
        .await?;
    create(&client, &maps, &configmap("owned-by-hidden", &[reference_to(&hidden)])).await?;

    // One of two owners goes, and an owner orphans its dependent.
    let [first, second, orphaning] = ["first", "second", "orphaning"].map(|name| configmap(name, &[]));
    let first = create(&client, &maps, &first).await?;
    let second = create(&client, &maps, &second).await?;
    let orphaning = create(&client, &maps, &orphaning).await?;
    create(&client, &maps, &configmap("of-two", &[reference_to(&first), reference_to(&second)])).await?;
    create(&client, &maps, &configmap("orphaned", &[reference_to(&orphaning)])).await?;
    delete(&client, &format!("{maps}/first"), "Background").await?;
    delete(&client, &format!("{maps}/orphaning"), "Orphan").await?;

    let begun = Instant::now();
    if planted.is_empty() {
        let compared = || beside.compared();
        // A reference of each of two objects, and the finalizer.
        let agreed = |compared: &Compared| compared.numbers.agreed + compared.numbers.theirs_first >= 3;
        until("the scenes are played", SOON, compared, agreed).await?;
        let compared = beside.compared().await?;
        ensure!(compared.unknown().is_empty(), "{compared}");
        return Ok(());
    }
    let unknown = |compared: &Compared| !compared.unknown().is_empty();
    let compared = until("the bug disagrees", Duration::from_secs(60), || beside.compared(), unknown).await?;
    writeln!(io::stderr(), "planted: {:.1} s, {}", begun.elapsed().as_secs_f64(), compared.disagreements.len())?;
    write!(io::stderr(), "{compared}")?;
    Ok(())
}
