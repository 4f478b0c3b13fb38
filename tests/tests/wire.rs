//! Both services, their real clients, pipes in memory, and a simulated clock.

use anyhow::ensure;
use proto::r#type::v1beta1::ReplicaRole;
use sandbox::{Attempt, Fault, FaultAnswer, Server};
use std::time::Duration;
use tests::load::{configmaps, count, delete, families, until};
use tests::wire::relay::Relay;
use tests::wire::world::World;
use tokio::time::Instant;
use tonic::Status;
use tonic_types::StatusExt;

mod calls;
mod drains;
mod expiry;
mod farewells;
mod fleet;
mod followers;
mod hostile;
mod incarnations;
mod names;
mod rates;
mod reconnects;
mod stalls;
mod standby;
mod transport;

const NAMESPACE: &str = "default";

/// Starts a world in which replica `a` leads.
async fn led_by_a() -> anyhow::Result<World> {
    let mut world = World::new().await?;
    world.replica("a");
    world.until_role("a", ReplicaRole::Leader).await?;
    Ok(world)
}

/// Starts such a world with a relay in front of the replica.
async fn led_by_a_behind_relay() -> anyhow::Result<(World, Relay)> {
    let mut world = World::new().await?;
    let relay = world.replica_behind_relay("a");
    world.until_role("a", ReplicaRole::Leader).await?;
    Ok((world, relay))
}

/// Delays the answers to deletions of ConfigMaps by this time after the deletion.
fn slow_deletes(api: &Server, by: Duration) {
    let is_delete = |attempt: &Attempt<'_>| attempt.verb == "DELETE" && attempt.resource == "configmaps";
    api.inject(Fault::new(is_delete, FaultAnswer::Delay(by)));
}

/// Returns the reason of a failed call from its details.
fn reason(status: &Status) -> String {
    status.get_error_details().error_info().map(|info| info.reason.clone()).unwrap_or_default()
}

/// Creates `count` ConfigMaps and deletes their owner. The leading replica knew all of them before.
async fn garbage(world: &World, replica: &str, count: usize) -> anyhow::Result<()> {
    families(&world.client, NAMESPACE, "f", 1, count).await?;
    let edges = || async { Ok(world.status(replica).await?.edge_count) };
    until("all are in the graph", Duration::from_secs(10), edges, |edges| *edges == count as u64).await?;
    delete(&world.client, &format!("{}/f-0", configmaps(NAMESPACE)), "Background").await
}

/// Waits until all ConfigMaps are gone.
async fn until_gone(world: &World, within: Duration) -> anyhow::Result<Duration> {
    let began = Instant::now();
    let maps = configmaps(NAMESPACE);
    until("nothing is left", within, || count(&world.client, &maps), |left| *left == 0).await?;
    Ok(began.elapsed())
}

/// Returns the requests for ConfigMaps with this verb and this status.
fn requests(api: &Server, verb: &str, code: u16) -> u64 {
    let counts = api.requests().into_iter();
    let wanted =
        counts.filter(|(request, _)| request.verb == verb && request.resource == "configmaps" && request.code == code);
    wanted.map(|(_, times)| times).sum()
}

/// Checks that every object was deleted once, and the owner by its user.
fn ensure_deleted_once(api: &Server, objects: u64) -> anyhow::Result<()> {
    let deleted = requests(api, "DELETE", 200);
    ensure!(deleted == objects + 1, "{deleted} deletions of {objects} objects and their owner were accepted");
    Ok(())
}
