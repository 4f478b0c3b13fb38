//! A collector that has stopped without an error reports this itself. A collector without work does not.

use super::{garbage, led_by_a, until_gone};
use anyhow::ensure;
use std::time::Duration;
use tests::wire::world::World;

/// Returns the time for which ready work has waited without an executor.
async fn stalled(world: &World) -> anyhow::Result<i64> {
    let status = world.status("a").await?;
    ensure!(status.loop_idle.is_some_and(|idle| idle.seconds <= 5), "the loop turns: {status:?}");
    Ok(status.stalled_for.unwrap_or_default().seconds)
}

#[tokio::test(start_paused = true)]
async fn work_without_an_executor_shows_as_a_stall_until_one_connects() -> anyhow::Result<()> {
    let mut world = led_by_a().await?;
    tokio::time::sleep(Duration::from_secs(3600)).await;
    ensure!(stalled(&world).await? == 0, "a quiet cluster is no standstill");
    garbage(&world, "a", 20).await?;
    tokio::time::sleep(Duration::from_secs(90)).await;
    let for_seconds = stalled(&world).await?;
    ensure!((85..=91).contains(&for_seconds), "{for_seconds}");
    let status = world.status("a").await?;
    ensure!(
        status.oldest_queued_age.is_some_and(|age| age.seconds >= 85) && status.oldest_held_age.is_none(),
        "{status:?}"
    );
    world.executor("e", 8, &["a"]);
    world.until_sessions("a", 1).await?;
    until_gone(&world, Duration::from_secs(60)).await?;
    ensure!(stalled(&world).await? == 0, "work went on");
    Ok(())
}
