//! Executors that do not do their work. Other executors do it in time.

use super::{ensure_deleted_once, garbage, led_by_a, until_gone};
use anyhow::ensure;
use engine::work::ToLeader;
use std::time::Duration;
use tests::wire::puppet::{Puppet, hello};
use tests::wire::world::address;
use tokio::time::Instant;

const OBJECTS: usize = 12;
/// The time from the grant to the end, as the test sees it.
const ONE_DELETION: Duration = Duration::from_millis(200);
const BEAT: Duration = Duration::from_secs(5);

/// The fault of an executor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Failing {
    /// Its stream stays open.
    FallsSilent,
    /// Its stream breaks, and it does not reconnect.
    Dies,
    /// The executor continues sending heartbeats.
    NeverStarts,
    /// The executor reports a start, and continues sending heartbeats.
    Hangs,
}

async fn done_by_others(how: Failing, window: u32) -> anyhow::Result<Duration> {
    let mut world = led_by_a().await?;
    let mut failing = Puppet::call(&world.network, "failing", &address("a")).await?;
    failing.greet(hello("failing", "1", &world.cluster_uid, window)).await?;
    garbage(&world, "a", OBJECTS).await?;
    let mut leases = failing.leases().await?;
    while leases.len() < OBJECTS {
        leases.extend(failing.leases().await?);
    }
    let given = Instant::now();
    world.executor("healthy", 4, &["a"]);
    if how == Failing::Hangs {
        failing.say(ToLeader::Started { leases: leases.iter().map(|lease| lease.id).collect() }).await;
    }
    match how {
        Failing::FallsSilent => {
            until_gone(&world, Duration::from_secs(120)).await?;
        }
        Failing::Dies => {
            failing.link.cut();
            until_gone(&world, Duration::from_secs(120)).await?;
        }
        Failing::NeverStarts | Failing::Hangs => tokio::select! {
            ended = failing.beat(BEAT) => anyhow::bail!("it is still there: {ended:?}"),
            gone = until_gone(&world, Duration::from_secs(120)) => drop(gone?),
        },
    }
    ensure_deleted_once(&world.api, OBJECTS as u64)?;
    Ok(given.elapsed())
}

#[tokio::test(start_paused = true)]
async fn what_a_failing_executor_holds_is_done_by_others() -> anyhow::Result<()> {
    // The execution limit is 30 s.
    for (how, limit) in
        [(Failing::FallsSilent, 22), (Failing::Dies, 22), (Failing::NeverStarts, 22), (Failing::Hangs, 30 + 5)]
    {
        // One executor has a full window, and the other has room for the same items again.
        for window in [12, 64] {
            let took = done_by_others(how, window).await?;
            eprintln!("{how:?} with a window of {window}: done by others after {took:.2?}");
            ensure!(took <= Duration::from_secs(limit) + ONE_DELETION, "{how:?}, window {window}: {took:?}");
        }
    }
    Ok(())
}
