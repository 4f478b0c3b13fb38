//! Upstream's catalogue of tests, on the sandbox and on a real API server.

use anyhow::ensure;
use http::Method;
use serde_json::json;
use std::io::{Write as _, stdout};
use std::sync::Arc;
use tests::conformance::requests::{Ask, Row, ask, delete};
use tests::conformance::step::{CONFIGMAP, Expect, Step, case, object, to};
use tests::conformance::world::World;
use tests::conformance::{cases, requests, runner};
use tokio::time::Instant;

/// Runs the requests first, without a collector, and then the cases.
async fn run(world: World) -> anyhow::Result<()> {
    let world = Arc::new(world);
    let begun = Instant::now();
    let answered = requests::run(&world, &requests::all()).await?;
    let asked = begun.elapsed();
    let mut chosen = cases::all();
    // A variable selects a single case.
    let one = std::env::var("CASE").ok();
    if let Some(name) = &one {
        chosen.retain(|case| case.name.contains(name));
    }
    let ended = runner::run(&world, chosen).await?;
    writeln!(
        stdout(),
        "conformance on {}: {} of {} rows of requests in {asked:.1?}, {} of {} runs of cases in {:.1?}",
        world.name,
        answered.passed.len(),
        answered.passed.len() + answered.failed.len(),
        ended.passed.len(),
        ended.passed.len() + ended.failed.len(),
        begun.elapsed() - asked,
    )?;
    let guarded = world.writes().map_or(Ok(()), |seen| {
        ensure!(seen.writes > 0 || one.is_some(), "the collector wrote nothing where its writes are looked at");
        seen.check()
    });
    let found = [answered.check(), ended.check(), guarded];
    let failed: Vec<String> = found.into_iter().filter_map(|one| one.err()).map(|error| format!("{error:#}")).collect();
    ensure!(failed.is_empty(), "{}", failed.join("\n\n"));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sandbox_conforms() -> anyhow::Result<()> {
    run(World::sandbox().await?).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sandbox_conforms_in_json() -> anyhow::Result<()> {
    run(World::sandbox_in_json().await?).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_real_api_server_conforms() -> anyhow::Result<()> {
    // A variable selects upstream's collector. A failure is then an intended difference, or a case that demands too
    // much.
    let upstream = std::env::var("COLLECTOR").is_ok_and(|collector| collector == "upstream");
    match World::real(upstream).await? {
        Some(world) => run(world).await,
        None => Ok(()),
    }
}

/// A condition that is always true proves nothing.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_otherwise_than_it_should_be_is_noticed() -> anyhow::Result<()> {
    let world = Arc::new(World::sandbox().await?);
    let row =
        |ask: Ask| Row { id: "none", about: String::new(), kind: CONFIGMAP, object: Some(json!({})), asks: vec![ask] };
    let rows = [
        row(delete(json!({}))),
        row(delete(json!({})).left(&[])),
        row(delete(json!({ "propagationPolicy": "Orphan" })).left(&["foregroundDeletion"])),
        row(delete(json!({ "propagationPolicy": "Orphan" })).gone()),
        row(delete(json!({})).fails(404, "NotFound")),
        row(delete(json!({})).answers("ConfigMap")),
        row(ask(Method::PUT, json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "other" } }))),
    ];
    let answered = requests::run(&world, &rows).await?;
    ensure!(answered.passed.len() == 1 && answered.failed.len() == 6, "{answered:?}");

    let setup = || [object(CONFIGMAP, "owner"), object(CONFIGMAP, "child").owned(to("owner"))];
    let wrong = [
        Expect::Absent("owner"),
        Expect::Terminating("child"),
        Expect::Owners("child", vec![]),
        Expect::Owners("owner", vec!["child"]),
        Expect::Finalizers("child", vec!["orphan"]),
        Expect::Event("child", "OwnerRefInvalidNamespace"),
        Expect::Readiness("no such message"),
        Expect::Component(vec!["owner"], vec!["owner"]),
        Expect::Forgotten("owner"),
    ];
    let names = ["w0", "w1", "w2", "w3", "w4", "w5", "w6", "w7", "w8"];
    let graph_has_both = || Step::Until(vec![Expect::Component(vec!["owner"], vec!["owner", "child"])]);
    let cases = names.into_iter().zip(wrong);
    let cases = cases.map(|(name, wrong)| case(&[], name, setup(), [graph_has_both(), Step::Now(vec![wrong])]).live());
    let ended = runner::run(&world, cases.collect()).await?;
    ensure!(ended.passed.is_empty() && ended.failed.len() == names.len(), "{ended:?}");
    ensure!(ended.failed.iter().all(|(_, why)| why.contains("step 2")), "{ended:?}");
    Ok(())
}
