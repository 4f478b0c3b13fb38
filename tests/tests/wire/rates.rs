//! The write rate of the executors, however many there are.

use super::{ensure_deleted_once, garbage, requests, until_gone};
use anyhow::ensure;
use proto::r#type::v1beta1::ReplicaRole;
use std::time::Duration;
use tests::wire::world::World;

const ALLOWED: u32 = 50;
const OBJECTS: usize = 400;

/// The writes beyond the rate: one saved write of each executor.
fn most_in(time: Duration, executors: u32) -> u64 {
    u64::from((time.as_secs_f64() * f64::from(ALLOWED)).ceil() as u32 + executors)
}

#[tokio::test(start_paused = true)]
async fn all_executors_together_write_what_is_allowed_and_no_more() -> anyhow::Result<()> {
    for executors in [1, 4, 8] {
        let mut world = World::new().await?;
        world.capped_replica("a", ALLOWED);
        world.until_role("a", ReplicaRole::Leader).await?;
        for number in 0..executors {
            world.executor(&format!("e{number}"), 8, &["a"]);
        }
        world.until_sessions("a", executors).await?;
        garbage(&world, "a", OBJECTS).await?;
        let took = until_gone(&world, Duration::from_secs(60)).await?;
        ensure_deleted_once(&world.api, OBJECTS as u64)?;
        let told = format!("{executors} executors: {took:?}");
        ensure!(OBJECTS as u64 <= most_in(took, executors) && took < Duration::from_secs(10), told);
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn no_executor_writes_faster_while_leaders_change() -> anyhow::Result<()> {
    let mut world = World::new().await?;
    world.capped_replica("a", ALLOWED);
    world.until_role("a", ReplicaRole::Leader).await?;
    world.capped_replica("b", ALLOWED);
    world.until_role("b", ReplicaRole::Standby).await?;
    for number in 0..4 {
        world.executor(&format!("e{number}"), 8, &["a", "b"]);
    }
    world.until_sessions("a", 4).await?;
    garbage(&world, "a", OBJECTS).await?;
    let began = tokio::time::Instant::now();
    tokio::time::sleep(Duration::from_secs(2)).await;
    world.stop_replica("a").await?;
    let before = requests(&world.api, "DELETE", 200) - 1;
    ensure!(before <= most_in(began.elapsed(), 4), "{before} before");
    world.until_role("b", ReplicaRole::Leader).await?;
    until_gone(&world, Duration::from_secs(60)).await?;
    let took = began.elapsed();
    ensure_deleted_once(&world.api, OBJECTS as u64)?;
    ensure!(OBJECTS as u64 <= most_in(took, 4) && took < Duration::from_secs(20), "{took:?}");
    Ok(())
}
