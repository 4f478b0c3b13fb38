//! A graph service behind a single name. Its replicas come and go.

use super::{ensure_deleted_once, garbage, slow_deletes, until_gone};
use executor_service::Resolver;
use futures::FutureExt;
use proto::r#type::v1beta1::ReplicaRole;
use std::net::IpAddr;
use std::time::Duration;
use tests::wire::world::World;
use tokio::sync::watch;

const OBJECTS: usize = 40;

/// The addresses of the name. The test sets them.
#[derive(Clone)]
struct Records(watch::Sender<Vec<IpAddr>>);

impl Records {
    fn of(replicas: &[&str]) -> anyhow::Result<Records> {
        let records = Records(watch::Sender::new(Vec::new()));
        records.set(replicas)?;
        Ok(records)
    }

    fn set(&self, replicas: &[&str]) -> anyhow::Result<()> {
        let addresses: Result<Vec<IpAddr>, _> = replicas.iter().map(|replica| replica.parse()).collect();
        self.0.send_replace(addresses?);
        Ok(())
    }

    fn resolver(&self) -> Resolver {
        let records = self.clone();
        Resolver::through(move |_, _| std::future::ready(Ok(records.0.borrow().clone())).boxed())
    }
}

#[tokio::test(start_paused = true)]
async fn the_leader_is_found_by_name_wherever_its_replicas_have_gone() -> anyhow::Result<()> {
    let (first, second, third) = ("10.0.0.1", "10.0.0.2", "10.0.0.3");
    let mut world = World::new().await?;
    slow_deletes(&world.api, Duration::from_millis(500));
    world.replica(second);
    world.until_role(second, ReplicaRole::Leader).await?;
    // No process answers at the first address.
    let records = Records::of(&[first, second])?;
    world.resolving_executor("e", 4, records.resolver());
    world.until_sessions(second, 1).await?;
    garbage(&world, second, OBJECTS).await?;
    // A rolling update replaces every address in the middle of the cascade.
    world.stop_replica(second).await?;
    world.replica(third);
    records.set(&[third])?;
    world.until_role(third, ReplicaRole::Leader).await?;
    world.until_sessions(third, 1).await?;
    until_gone(&world, Duration::from_secs(60)).await?;
    ensure_deleted_once(&world.api, OBJECTS as u64)
}
