//! Two processes with the name of one executor. The newer one counts.

use super::{ensure_deleted_once, garbage, led_by_a, slow_deletes, until_gone};
use anyhow::ensure;
use executor_service::Exit;
use proto::r#type::v1beta1::ReplicaRole;
use std::time::Duration;
use tests::wire::network::Road;
use tests::wire::world::World;

const OBJECTS: usize = 40;

/// The state of the older connection when the newer process comes.
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

#[tokio::test(start_paused = true)]
async fn a_leader_that_never_met_the_older_one_refuses_it_too() -> anyhow::Result<()> {
    let mut world = led_by_a().await?;
    slow_deletes(&world.api, Duration::from_millis(500));
    world.replica("b");
    world.until_role("b", ReplicaRole::Standby).await?;
    world.named_executor("older", "e", 4, &["a", "b"]);
    world.until_sessions("a", 1).await?;
    for replica in ["a", "b"] {
        world.network.set_road("older", replica, Road::Closed);
    }
    world.named_executor("newer", "e", 4, &["a", "b"]);
    tokio::time::sleep(Duration::from_secs(1)).await;
    world.until_sessions("a", 1).await?;
    world.kill_replica("a");
    world.until_role("b", ReplicaRole::Leader).await?;
    world.until_sessions("b", 1).await?;
    garbage(&world, "b", OBJECTS).await?;
    world.network.set_road("older", "b", Road::Open);
    let exit = tokio::time::timeout(Duration::from_secs(20), world.exit("older")).await??;
    ensure!(exit == Exit::Superseded, "{exit:?}");
    until_gone(&world, Duration::from_secs(60)).await?;
    ensure_deleted_once(&world.api, OBJECTS as u64)?;
    world.until_sessions("b", 1).await
}
