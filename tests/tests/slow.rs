//! The promises of the collector if the API server, or the connection to it, is slow.

use anyhow::{Context, ensure};
use std::process::Command;
use std::time::Duration;
use tests::contender::Contender;
use tests::link::Link;
use tests::load::{configmaps, count, delete, families, until};
use tests::process::{Directory, free_port};
use tests::service::{Service, start_graph};
use tests::slow::{DEPENDENTS, run};
use tests::stage::{Stage, install_guards};
use tokio::time::{Instant, sleep_until};

const OWNERS: usize = 20;
const OBJECTS: usize = 4_000;
const SOON: Duration = Duration::from_secs(60);
const WITHIN: Duration = Duration::from_secs(400);
/// The delay of a new connection. A client gives up after ten seconds.
const CONNECTS_IN: Duration = Duration::from_secs(8);
/// The maximum time after the start of the pause at which a write may still leave.
const PROMISED: Duration = Duration::from_secs(1);

/// Checks that the collector acts on a read of the waiting owner that took longer than a second.
#[tokio::test(flavor = "multi_thread")]
async fn foreground_ends_where_every_request_takes_longer_than_a_second() -> anyhow::Result<()> {
    let _turn = crate::turn().await?;
    let Some(Stage { binaries, programs, .. }) = Stage::start().await? else { return Ok(()) };
    for delay in [Duration::from_millis(1_100), Duration::from_secs(2), Duration::from_secs(5)] {
        let run = run(&binaries, &programs, Contender::Adaptive, delay).await?;
        eprintln!("foreground of {DEPENDENTS} dependents, {delay:?} a request: {:.1} s", run.seconds);
        ensure!(run.ended, "with {delay:?} a request it does not end");
    }
    Ok(())
}

/// Pauses while the executors wait for their connections. No write leaves after the connections are there.
#[tokio::test(flavor = "multi_thread")]
async fn a_pause_holds_what_waits_for_a_connection() -> anyhow::Result<()> {
    let _turn = crate::turn().await?;
    let Some(Stage { programs, plane, client, .. }) = Stage::start().await? else { return Ok(()) };
    let directory = Directory::create()?;
    let link = Link::to(plane.address()).await?;
    let kubeconfig = directory.path().join("link.kubeconfig");
    plane.kubeconfig_by(link.address(), &kubeconfig)?;
    let grpc = format!("127.0.0.1:{}", free_port()?);
    let mut graph = start_graph(&programs, plane.kubeconfig(), directory.path(), &grpc, 0)?;
    graph.ready().await?;
    let kubeconfig = kubeconfig.display().to_string();
    let flags = ["--kubeconfig", &kubeconfig, "--graph", &grpc, "--concurrency", "16"];
    let mut executor = Service::start(&programs, "executor-service", "executor", directory.path(), &flags)?;
    executor.ready().await?;
    let ownergraph = |arguments: &[&str]| {
        let output =
            Command::new(programs.path("ownergraph")).args(arguments).output().context("running ownergraph")?;
        ensure!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    };
    install_guards(&programs, plane.kubectl(), &client).await?;

    let maps = configmaps("default");
    let owners = families(&client, "default", "o", OWNERS, OBJECTS / OWNERS).await?;
    let all = count(&client, &maps).await?;
    for owner in &owners {
        delete(&client, &format!("{maps}/{owner}"), "Background").await?;
    }
    let left = || count(&client, &maps);
    until("the cascade is under way", SOON, left, |left| *left < all - OWNERS - 100).await?;
    link.reconnect_slowly(CONNECTS_IN);
    let broken = Instant::now();
    ownergraph(&["pause", "--all", "--for", "10m", "--reason", "the way is slow", "--server", &grpc])?;
    let pressed = Instant::now();
    ensure!(pressed < broken + CONNECTS_IN, "the connections were there before the pause was");
    sleep_until(pressed + PROMISED).await;
    let then = count(&client, &maps).await?;
    // This time is longer than the delay of any connection that was requested before.
    sleep_until(pressed + PROMISED + 2 * CONNECTS_IN).await;
    let now = count(&client, &maps).await?;
    eprintln!("{then} left {PROMISED:?} after the pause, {now} left {:?} later", 2 * CONNECTS_IN);
    ensure!(then > 0, "the cascade was over before the pause: take more objects");
    ensure!(then == now, "{} writes left after the pause", then - now);

    let said =
        plane.kubectl().args(["delete", "pauses.ownergraph.dev", "--all"]).output().context("running kubectl")?;
    ensure!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    until("the cascade finishes", WITHIN, left, |left| *left <= all - OBJECTS - OWNERS).await?;
    Ok(())
}
