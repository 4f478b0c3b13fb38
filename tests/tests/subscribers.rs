//! The examples of subscribers to the decision log, in the form in which a user runs a copy. The test kills each of
//! them repeatedly in the middle of a cascade, and each sees every decision. Subscribers in Python and Go with the
//! default limits of their libraries also read the decision about an object of the maximum size.

use anyhow::{Context, ensure};
use proto::decision::v1beta1::ListDecisionsRequest;
use proto::decision::v1beta1::decision_service_client::DecisionServiceClient;
use std::collections::BTreeSet;
use std::time::Duration;
use tests::controlplane::{ControlPlane, require};
use tests::embedded::Api;
use tests::examples::{Example, fetched};
use tests::load::{configmap, configmaps, count, create, create_all, delete, families, reference_to, until};
use tests::process::{Directory, Process};
use tests::service::{Fleet, Programs};
use tests::usage::{forget_most_memory, memory_mib, most_memory_mib};

const DEPENDENTS: usize = 1000;
const KILLS: usize = 10;
const SOON: Duration = Duration::from_secs(180);

#[tokio::test(flavor = "multi_thread")]
async fn the_one_in_rust_goes_on_where_it_was_killed() -> anyhow::Result<()> {
    let programs = Programs::build()?;
    survives_restarts(&programs, &Example::in_rust(&programs)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_one_in_python_goes_on_where_it_was_killed() -> anyhow::Result<()> {
    let directory = Directory::create()?;
    let Some(example) = fetched(Example::in_python(directory.path()))? else { return Ok(()) };
    survives_restarts(&Programs::build()?, &example).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_one_in_go_goes_on_where_it_was_killed() -> anyhow::Result<()> {
    let directory = Directory::create()?;
    let Some(example) = fetched(Example::in_go(directory.path()))? else { return Ok(()) };
    survives_restarts(&Programs::build()?, &example).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_one_in_typescript_goes_on_where_it_was_killed() -> anyhow::Result<()> {
    let directory = Directory::create()?;
    let Some(example) = fetched(Example::in_typescript(directory.path()))? else { return Ok(()) };
    survives_restarts(&Programs::build()?, &example).await
}

/// The references of one object. This is just below the number from which the collector ignores all of them.
const OWNERS: usize = 4400;
const NAME_BYTES: usize = 64;
const OBJECT_BYTES: usize = 1_400_000;
/// The dependents for each language.
const SUBSCRIBERS: usize = 5;
const MEMORY_MAX_MIB: f64 = 50.0;

#[tokio::test(flavor = "multi_thread")]
async fn an_object_as_large_as_the_api_server_takes_stops_no_subscriber_and_costs_little() -> anyhow::Result<()> {
    let Some(binaries) = require() else { return Ok(()) };
    let programs = Programs::build()?;
    let directory = Directory::create()?;
    let Some(python) = fetched(Example::in_python(directory.path()))? else { return Ok(()) };
    let Some(go) = fetched(Example::in_go(directory.path()))? else { return Ok(()) };
    let plane = ControlPlane::start(&binaries).await?;
    let client = plane.client().await?;
    let fleet = Fleet::start(&programs, plane.kubeconfig(), 1).await?;
    let maps = configmaps("default");
    let name = |number: usize| format!("{number:0NAME_BYTES$}");
    let owners = create_all(&client, &maps, (0..OWNERS).map(|number| configmap(&name(number), &[])).collect()).await?;
    let references: Vec<_> = owners.iter().map(reference_to).collect();
    let mut heavy = configmap("heavy", &references);
    heavy["data"] = serde_json::json!({ "rest": "x".repeat(OBJECT_BYTES - heavy.to_string().len()) });
    create(&client, &maps, &heavy).await?;
    fleet.until_known(OWNERS + 1).await?;

    let mut subscribers = Vec::new();
    for number in 0..SUBSCRIBERS {
        for (language, example) in [("python", &python), ("go", &go)] {
            let name = format!("{language}-{number}");
            let position = directory.path().join(format!("position-{name}")).display().to_string();
            let arguments = example.with(&["--server", fleet.grpc(), "--position", &position]);
            subscribers.push(Process::spawn(&name, directory.path(), &example.program, &arguments)?);
        }
    }
    let first = families(&client, "default", "first", 1, 1).await?;
    delete(&client, &format!("{maps}/{}", first[0]), "Background").await?;
    for subscriber in &subscribers {
        let look = || async { Ok(has_gone(&subscriber.output(), "first-0-0")) };
        until("a subscriber reads", SOON, look, |seen| *seen).await?;
    }
    let graph = fleet.graph.process.pid();
    let before = memory_mib(graph)?;
    forget_most_memory(graph)?;
    for number in 0..OWNERS {
        delete(&client, &format!("{maps}/{}", name(number)), "Background").await?;
    }
    until("all of it is gone", SOON, || count(&client, &maps), |left| *left == 0).await?;
    // All subscribers see one more cascade to its end.
    let last = families(&client, "default", "last", 1, 10).await?;
    delete(&client, &format!("{maps}/{}", last[0]), "Background").await?;
    for subscriber in &subscribers {
        let look = || async { Ok(["heavy", "last-0-9"].map(|target| has_gone(&subscriber.output(), target))) };
        until("a subscriber sees the large object go, and what comes after", SOON, look, |seen| *seen == [true; 2])
            .await?;
        let output = subscriber.output();
        let seen = positions(&output)?;
        ensure!(
            seen.first() == Some(&1) && seen.last() == Some(&(seen.len() as u64)),
            "{} events, not all",
            seen.len()
        );
    }
    let grown = most_memory_mib(graph)? - before;
    eprintln!("{OWNERS} references: the graph service held {grown:.1} MiB more than before");
    ensure!(grown < MEMORY_MAX_MIB, "{grown:.1} MiB");
    Ok(())
}

/// Returns whether a subscriber got each step of the deletion of an object.
fn has_gone(output: &str, target: &str) -> bool {
    let target = format!(" default/{target}");
    let of = |phase: &&str| output.lines().any(|line| line.contains(*phase) && line.ends_with(&target));
    ["PHASE_PROPOSED", "PHASE_LEASED", "PHASE_SUCCEEDED", "PHASE_CONFIRMED"].iter().all(of)
}

async fn survives_restarts(programs: &Programs, example: &Example) -> anyhow::Result<()> {
    let directory = Directory::create()?;
    let api = Api::start(directory.path()).await?;
    let fleet = Fleet::start(programs, &api.kubeconfig, 1).await?;
    let owners = families(&api.client, "default", "o", 1, DEPENDENTS).await?;
    let arguments = example.with(&["--server", fleet.grpc()]);
    let start = || Process::spawn("subscriber", directory.path(), &example.program, &arguments);
    let mut subscriber = start()?;
    let maps = configmaps("default");
    delete(&api.client, &format!("{maps}/{}", owners[0]), "Background").await?;
    for kill in 0..KILLS {
        let seen = (kill + 1) * DEPENDENTS / KILLS;
        let wait = || async { Ok(positions(&subscriber.output())?.len()) };
        until("the subscriber sees more", SOON, wait, |count| *count >= seen).await?;
        subscriber.kill()?;
        subscriber.ended(SOON).await?;
        subscriber = start()?;
    }
    until("the cascade ends", SOON, || count(&api.client, &maps), |left| *left == 0).await?;
    let head = || async { Ok((positions(&subscriber.output())?, head(&fleet).await?)) };
    let all = |(seen, head): &(BTreeSet<u64>, u64)| seen.last() == Some(head);
    let (seen, head) = until("the subscriber has come to the end of the log", SOON, head, all).await?;
    ensure!(head >= 3 * DEPENDENTS as u64, "proposed, leased and succeeded for each: {head}");
    let missing: Vec<u64> = (1..=head).filter(|position| !seen.contains(position)).take(10).collect();
    ensure!(missing.is_empty(), "of {head} events it missed {missing:?}");
    Ok(())
}

/// Returns the newest position of the log.
pub(crate) async fn head(fleet: &Fleet) -> anyhow::Result<u64> {
    let mut client = DecisionServiceClient::connect(format!("http://{}", fleet.grpc())).await?;
    let listed = client.list_decisions(ListDecisionsRequest::default()).await?.into_inner();
    let newest = listed.events.first().and_then(|event| event.position.clone());
    Ok(newest.context("nothing was decided")?.sequence)
}

/// Returns the positions in the subscriber's lines `LOG/POSITION PHASE KIND TARGET`. A gap is an error.
fn positions(output: &str) -> anyhow::Result<BTreeSet<u64>> {
    ensure!(!output.lines().any(|line| line.starts_with("gap ")), "there was a gap");
    let position = |line: &str| line.split_once(" PHASE_")?.0.rsplit_once('/')?.1.parse().ok();
    Ok(output.lines().filter_map(position).collect())
}
