//! Events that exceed the limit of the server.

use super::world::{SOON, World};
use anyhow::{Context, ensure};
use proto::decision::v1beta1::Phase;
use std::collections::BTreeSet;
use tests::load::{configmap, create, create_all, delete, reference_to, until};
use tests::nats::{self, Nats};
use tests::process::Directory;
use tests::subscriber::Subscriber;

/// A limit with room for an event with one owner, and for the shortened form of any event.
const MAX_PAYLOAD: usize = 4 * 1024;

#[tokio::test(flavor = "multi_thread")]
async fn what_is_deleted_is_told_of_although_the_server_does_not_take_the_event() -> anyhow::Result<()> {
    let Some(program) = nats::require() else { return Ok(()) };
    let directory = Directory::create()?;
    let config = directory.path().join("nats.conf");
    std::fs::write(&config, format!("max_payload: {MAX_PAYLOAD}\n"))?;
    let config = config.display().to_string();
    let server = Nats::start(&program, &["--config", &config]).await?;
    let world = World::start(Some(server), &["--decision-log-required"]).await?;

    let maps = tests::load::configmaps("default");
    let name = |number: usize| format!("{}-{number}", "o".repeat(200));
    let owners = (0..100).map(|number| configmap(&name(number), &[])).collect();
    let owners = create_all(&world.client, &maps, owners).await?;
    let references: Vec<_> = owners.iter().map(reference_to).collect();
    let heavy = create(&world.client, &maps, &configmap("heavy", &references)).await?;
    let heavy = heavy["metadata"]["uid"].as_str().context("its uid")?.to_owned();
    let reference = reference_to(&owners[0]);
    let light = (0..10).map(|number| configmap(&format!("light-{number}"), std::slice::from_ref(&reference)));
    let light = create_all(&world.client, &maps, light.collect()).await?;
    let light: BTreeSet<String> =
        light.iter().filter_map(|of| Some(of["metadata"]["uid"].as_str()?.to_owned())).collect();
    ensure!(light.len() == 10, "{light:?}");
    for owner in &owners {
        let name = owner["metadata"]["name"].as_str().context("its name")?;
        delete(&world.client, &format!("{maps}/{name}"), "Background").await?;
    }
    until("all of it is gone", SOON, || world.left(), |left| *left == 0).await?;

    let head = world.head(0).await?;
    let mut subscriber = Subscriber::default();
    world.read(&mut subscriber, 1, head).await?;
    subscriber.check_all()?;
    for phase in [Phase::Proposed, Phase::Leased, Phase::Succeeded] {
        ensure!(subscriber.targets(phase).contains(&heavy), "{phase:?} of the heavy one");
        ensure!(light.is_subset(&subscriber.targets(phase)), "{phase:?} of the others");
    }
    let of = |event: &&proto::decision::v1beta1::DecisionEvent| {
        event.target.as_ref().is_some_and(|target| target.uid == heavy)
    };
    let (cut, whole): (Vec<_>, Vec<_>) = subscriber.events().partition(|event| event.truncated);
    ensure!(!cut.is_empty() && cut.iter().all(of), "only its events are cut");
    ensure!(cut[0].owner_count == 100 && cut.iter().all(|event| !event.decision_id.is_empty()), "{cut:?}");
    ensure!(whole.len() >= 3 * light.len(), "{} events are whole", whole.len());
    Ok(())
}
