//! Our collector in mode observe beside upstream's collector, on a real API server: they make the same decisions, and
//! each difference has a reason.
//!
//! `MINUTES=n` keeps both busy for this time, and restarts ours after two thirds of it. `FIRST_SEED=n` sets the first
//! world, and `WORLDS=n` how many run at a time. `RECORD=DIR` records the inputs of our collector.

use anyhow::{Context as _, ensure};
use futures::future::try_join_all;
use http::Method;
use http::request::Parts;
use kube::Client;
use serde_json::json;
use std::io::{self, Write as _};
use std::time::Duration;
use tests::controlplane::require;
use tests::differential::{Audit, Beside, Compared, Source};
use tests::load::{configmap, configmaps, create, delete, families, get, reference_to, send, until};
use tests::proxy::Lie;
use tests::service::Programs;
use tokio::time::Instant;

/// Worlds at a time, unless WORLDS says otherwise.
const BATCH: u64 = 20;
/// The least number of comparisons of each world.
const COMPARED_EACH: u64 = 20;
const SOON: Duration = Duration::from_secs(60);
/// A wrong decision that the other collector does not follow is reported after half of this time.
const DISAGREES_WITHIN: Duration = Duration::from_secs(60);
/// The API server keeps events for the webhook for 30 s, and sends them again 10 s after a failure.
const LOG_READ_WITHIN: Duration = Duration::from_secs(90);
/// The least share of agreed decisions, in percent.
const AGREED_LEAST: f64 = 99.9;
/// The number of disagreements about the time of facts that any run may have.
const TIMING_FEW: f64 = 4.0;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

fn worlds() -> u64 {
    number("WORLDS").unwrap_or(BATCH)
}

#[tokio::test(flavor = "multi_thread")]
async fn both_collectors_decide_the_same() -> anyhow::Result<()> {
    let Some(binaries) = require() else { return Ok(()) };
    let programs = Programs::build()?;
    let record = std::env::var("RECORD").map(|directory| ["--record".to_owned(), directory]);
    let flags = record.map_or(Vec::new(), Vec::from);
    let mut beside = Beside::start(&binaries, &programs, &Audit::exact(), &[], &flags).await?;
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
    // A recording ends with its process.
    beside.stop_ours().await
}

/// Keeps both collectors busy for this time, at least with one batch of worlds. Every fifth batch has a spike of load.
async fn churn(beside: &Beside<'_>, seed: &mut u64, lasts: Duration) -> anyhow::Result<()> {
    let until = Instant::now() + lasts;
    loop {
        let worlds = worlds();
        beside.churn(*seed..*seed + worlds, (*seed / worlds).is_multiple_of(5)).await?;
        *seed += worlds;
        if Instant::now() >= until {
            return Ok(());
        }
    }
}

async fn assess(beside: &Beside<'_>) -> anyhow::Result<()> {
    let compared = beside.settled().await?;
    write!(io::stderr(), "{compared}")?;
    ensure!(compared.numbers.comparable > worlds() * COMPARED_EACH, "too little to compare");
    compared.ensure_explained()?;
    // In a short run, a few changes that the collectors saw at different times weigh more than one in a thousand.
    let least = AGREED_LEAST.min(100.0 - 100.0 * TIMING_FEW / compared.numbers.comparable as f64);
    ensure!(compared.agreed() >= least, "{:.3} % agreed, of at least {least:.3} %", compared.agreed());
    Ok(())
}

/// Scenes that show what a bug of the verdict or of the evidence does. Without a bug, nothing disagrees. A build with
/// planted bugs has the name of one in PLANTED (`tests/planted/beside.sh`), and must disagree within a minute after the
/// first object that a bug may decide on.
#[tokio::test(flavor = "multi_thread")]
async fn planted_bugs_disagree() -> anyhow::Result<()> {
    let Some(binaries) = require() else { return Ok(()) };
    let programs = Programs::build()?;
    let planted = std::env::var("PLANTED").unwrap_or_default();
    let mut beside = Beside::start(&binaries, &programs, &Audit::exact(), &[], &[]).await?;
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
    let begun = Instant::now();
    create(&client, &maps, &configmap("owned-by-hidden", &[reference_to(&hidden)])).await?;

    // One of two owners goes, and an owner orphans its dependent.
    let [first, second, orphaning] = ["first", "second", "orphaning"].map(|name| configmap(name, &[]));
    let first = create(&client, &maps, &first).await?;
    let second = create(&client, &maps, &second).await?;
    let orphaning = create(&client, &maps, &orphaning).await?;
    create(&client, &maps, &configmap("of-two", &[reference_to(&first), reference_to(&second)])).await?;
    create(&client, &maps, &configmap("orphaned", &[reference_to(&orphaning)])).await?;
    // Its own dependents are orphaned when it goes with its owner.
    let mut orphans = configmap("orphans", &[reference_to(&first)]);
    orphans["metadata"]["finalizers"] = json!(["orphan"]);
    create(&client, &maps, &orphans).await?;
    // The consequences of a bug show once they are decided.
    beside.suspend_upstream()?;
    delete(&client, &format!("{maps}/first"), "Background").await?;
    delete(&client, &format!("{maps}/orphaning"), "Orphan").await?;
    // This object is younger than the end of one of its owners.
    create(&client, &maps, &configmap("late", &[reference_to(&first), reference_to(&second)])).await?;
    let decided = |compared: &Compared| compared.numbers.open >= 4;
    until("all objects are decided on", SOON, || beside.compared(), decided).await?;
    beside.resume_upstream()?;

    if planted.is_empty() {
        let compared = || beside.compared();
        // A reference of each of three objects, a deletion, and the finalizers of two.
        let agreed = |compared: &Compared| compared.numbers.agreed + compared.numbers.theirs_first >= 6;
        until("the scenes are played", SOON, compared, agreed).await?;
        let compared = beside.compared().await?;
        return compared.ensure_explained();
    }
    let unknown = |compared: &Compared| !compared.unknown().is_empty();
    let left = DISAGREES_WITHIN.saturating_sub(begun.elapsed());
    let compared = until("the bug disagrees", left, || beside.compared(), unknown).await?;
    writeln!(io::stderr(), "planted: {:.1} s, {}", begun.elapsed().as_secs_f64(), compared.disagreements.len())?;
    write!(io::stderr(), "{compared}")?;
    Ok(())
}

/// The dependents of one owner in the script of the audit log.
const DEPENDENTS: usize = 4;
/// The owners that the script deletes, and as many that it leaves.
const FAMILIES: usize = 25;

#[tokio::test(flavor = "multi_thread")]
async fn the_audit_log_tells_a_collector_a_person_and_a_controller_apart() -> anyhow::Result<()> {
    tells_actors_apart(&Audit::exact()).await
}

/// Users install this policy. Its events have no version, so the request that is nearest in time counts.
#[tokio::test(flavor = "multi_thread")]
async fn the_audit_webhook_tells_them_apart_with_the_policy_of_the_page() -> anyhow::Result<()> {
    tells_actors_apart(&Audit::documented(Source::Webhook)?).await
}

async fn tells_actors_apart(audit: &Audit) -> anyhow::Result<()> {
    const COLLECTOR: &str = "system:serviceaccount:kube-system:generic-garbage-collector";
    const PERSON: &str = "alice";
    const CONTROLLER: &str = "system:serviceaccount:shop:controller";
    let Some(binaries) = require() else { return Ok(()) };
    let programs = Programs::build()?;
    let mut beside = Beside::start(&binaries, &programs, audit, &[COLLECTOR, PERSON, CONTROLLER], &[]).await?;
    // The script plays the collector.
    beside.stop_upstream();
    let client = beside.client().clone();
    let [collector, person, controller] = {
        let plane = beside.plane();
        [plane.client_of(COLLECTOR).await?, plane.client_of(PERSON).await?, plane.client_of(CONTROLLER).await?]
    };
    let maps = configmaps("default");
    let at = |name: String| format!("{maps}/{name}");
    // Before the first request of the log, the collector does not know that there is one.
    create(&client, &maps, &configmap("first", &[])).await?;
    delete(&client, &at("first".to_owned()), "Background").await?;
    let is_read = |compared: &Compared| compared.numbers.audited;
    until("the log is read", LOG_READ_WITHIN, || beside.compared(), is_read).await?;
    let dead = families(&client, "default", "dead", FAMILIES, DEPENDENTS).await?;
    let alive = families(&client, "default", "alive", FAMILIES, DEPENDENTS).await?;
    for owner in &dead {
        delete(&client, &at(owner.clone()), "Background").await?;
    }
    // The collector and a person delete what is garbage, and all three delete what is not, at the same time.
    let by = |client: &Client, owners: &[String], dependent: usize| {
        let paths: Vec<String> = owners.iter().map(|owner| at(format!("{owner}-{dependent}"))).collect();
        let client = client.clone();
        async move { try_join_all(paths.iter().map(|path| delete(&client, path, "Background"))).await }
    };
    tokio::try_join!(
        by(&collector, &dead, 0),
        by(&person, &dead, 1),
        by(&collector, &dead, 2),
        by(&person, &dead, 3),
        by(&collector, &alive, 0),
        by(&person, &alive, 1),
        by(&controller, &alive, 2),
    )?;
    // The controller releases an object, whose owner lives.
    let released = at(format!("{}-3", alive[0]));
    let mut object = get(&client, released.as_str()).await?.context("an object with an owner")?;
    object["metadata"]["ownerReferences"] = json!([]);
    send(&controller, Method::PUT, &released, Some(&object)).await?;

    let n = FAMILIES as u64;
    let all = |compared: &Compared| {
        let numbers = &compared.numbers;
        let theirs_only: u64 = numbers.classes.iter().map(|of| of.theirs_only).sum();
        numbers.agreed + numbers.theirs_first + numbers.unattributed + theirs_only > 7 * n
    };
    let compared = until("every change is judged", Duration::from_secs(200), || beside.compared(), all).await?;
    let numbers = &compared.numbers;
    ensure!(numbers.without_request == 0, "each change has its request: {compared}");
    ensure!(numbers.agreed + numbers.theirs_first == 2 * n, "what the collector deletes of the garbage: {compared}");
    ensure!(numbers.unattributed == 4 * n + 1, "what others do: {compared}");
    let unknown = compared.unknown();
    ensure!(unknown.len() as u64 == n, "what the collector must not delete: {compared}");
    for event in unknown {
        let user = event.disagreement.clone().unwrap_or_default().user;
        let name = event.target.clone().unwrap_or_default().name;
        ensure!(user == COLLECTOR && name.starts_with("alive-") && name.ends_with("-0"), "{name} by {user}");
    }
    Ok(())
}
