//! The comparison with another collector counts on after a rolling update.

use super::on_jetstream;
use super::world::{SOON, World};
use proto::decision::v1beta1::{GetParityRequest, GetParityResponse};
use tests::load::{configmaps, delete_all, until};
use tests::replicas::Held;
use tests::subscriber::{connect, patiently};

const OBJECTS: u64 = 50;
const OWNERS: u64 = 10;

async fn numbers(world: &World, graph: usize) -> anyhow::Result<GetParityResponse> {
    let ask = || async { connect(&world.server(graph)).await?.get_parity(GetParityRequest::default()).await };
    Ok(patiently(ask).await?.into_inner())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_is_asked_to_stop_leaves_its_numbers_to_the_next_one() -> anyhow::Result<()> {
    let Some(mut world) = on_jetstream(&["--mode", "observe"]).await? else { return Ok(()) };
    let (owners, _) = world.families("o", OBJECTS as usize).await?;
    world.delete(&owners).await?;
    until("all is decided", SOON, || numbers(&world, 0), |numbers| numbers.open == OBJECTS).await?;
    // The test is the other collector.
    let of = |owner: &String| (0..OBJECTS / OWNERS).map(|number| format!("{owner}-{number}")).collect::<Vec<_>>();
    delete_all(&world.client, &configmaps("default"), owners.iter().flat_map(of).collect()).await?;
    until("all is compared", SOON, || numbers(&world, 0), |numbers| numbers.agreed == OBJECTS).await?;

    let process = &mut world.replicas.graphs[0].service_mut()?.process;
    process.terminate()?;
    process.ended(SOON).await?;
    world.leads(Held { holder: Some(1), term: 2 }).await?;
    until("the next one counts on", SOON, || numbers(&world, 1), |numbers| numbers.agreed == OBJECTS).await?;
    Ok(())
}
