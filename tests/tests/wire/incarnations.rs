//! Two processes under one executor's name: the newer one counts.

use super::{ensure_deleted_once, garbage, led_by_a, slow_deletes, until_gone};
use anyhow::ensure;
use executor_service::Exit;
use std::time::Duration;
use tests::wire::network::Road;
use tests::wire::world::World;

const OBJECTS: usize = 40;

/// How the older one is connected when the newer comes.
async fn supersede(road: Road) -> anyhow::Result<World> {
    let mut world = led_by_a().await?;
    slow_deletes(&world.api, Duration::from_millis(500));
    world.named_executor("older", "e", 4, &["a"]);
    world.until_sessions("a", 1).await?;
    garbage(&world, "a", OBJECTS).await?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    world.network.set_road("older", "a", road);
    world.named_executor("newer", "e", 4, &["a"]);
    let took = until_gone(&world, Duration::from_secs(60)).await?;
    ensure!(took < Duration::from_secs(8), "something waited for an expiry: {took:?}");
    ensure_deleted_once(&world.api, OBJECTS as u64)?;
    world.network.set_road("older", "a", Road::Open);
    Ok(world)
}

#[tokio::test(start_paused = true)]
async fn a_newer_incarnation_takes_over_and_the_older_one_ends() -> anyhow::Result<()> {
    for road in [Road::Open, Road::Frozen, Road::Closed] {
        let mut world = supersede(road).await?;
        let exit = tokio::time::timeout(Duration::from_secs(20), world.exit("older")).await??;
        ensure!(exit == Exit::Superseded, "{road:?}: {exit:?}");
        let status = world.status("a").await?;
        ensure!(status.executors == 1, "{road:?}: {status:?}");
    }
    Ok(())
}
