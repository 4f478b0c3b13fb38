//! The decision log on JetStream with real processes. The tests kill and stop leaders and servers in the middle of
//! cascades, and a subscriber misses nothing. They also show what this subscriber sees of a log in memory.
//!
//! `SUBSCRIBER_OBJECTS` is the size of the cascades with a killed subscriber. `JETSTREAM_CONTROLPLANE=1` uses a real
//! control plane in place of the sandbox.

mod access;
mod audited;
mod compared;
mod large;
mod older;
mod world;

use anyhow::{Context, ensure};
use proto::admin::v1beta1::GetStatusRequest;
use proto::admin::v1beta1::admin_service_client::AdminServiceClient;
use proto::admin::v1beta1::decision_log_status::State;
use proto::decision::v1beta1::watch_decisions_response::Gap;
use proto::decision::v1beta1::{DecisionEvent, Phase, Position};
use proto::error_reason;
use proto::graph::v1beta1::graph_service_client::GraphServiceClient;
use proto::graph::v1beta1::{ExplainObjectRequest, reason};
use proto::r#type::v1beta1::ObjectRef;
use proto::work::v1beta1::Outcome;
use std::collections::BTreeSet;
use std::time::Instant;
use tests::load::until;
use tests::nats::{self, Nats};
use tests::replicas::{Held, held, restore_lease};
use tests::subscriber::Subscriber;
use tonic::{Code, Status};
use tonic_types::StatusExt as _;
use world::{SOON, World};

/// The number of times that the test kills the subscriber.
const LIVES: usize = 50;
const SECOND: Held = Held { holder: Some(1), term: 2 };

fn subscriber_objects() -> usize {
    std::env::var("SUBSCRIBER_OBJECTS").ok().and_then(|text| text.parse().ok()).unwrap_or(2000)
}

/// Starts a world with a log on JetStream. Returns `None` if there is no NATS server.
async fn on_jetstream(flags: &[&str]) -> anyhow::Result<Option<World>> {
    let Some(program) = nats::require() else { return Ok(None) };
    let nats = Nats::start(&program, &[]).await?;
    World::start(Some(nats), flags).await.map(Some)
}

/// Lets a subscriber live this many times during a cascade from these owners, and kills the leader in the middle. `ask`
/// gives the replica for each life. The test deletes half of the owners just before the kill, so that the cascade is in
/// flight then, however slow the reader is.
async fn lives(
    world: &mut World,
    subscriber: &mut Subscriber,
    owners: &[String],
    ask: fn(usize) -> usize,
) -> anyhow::Result<()> {
    let objects = subscriber_objects();
    let (before, after) = owners.split_at(owners.len() / 2);
    world.delete(before).await?;
    for life in 0..LIVES {
        if life == LIVES / 2 {
            world.delete(after).await?;
            world.change_leader().await?;
        }
        // Each object has at least two steps. The results of writes in flight may be lost with a killed leader.
        let seen = 2 * objects * (life + 1) / LIVES;
        let mut is_first = true;
        while is_first || subscriber.events().count() < seen && world.left().await? > 0 {
            subscriber.live(&world.server(ask(life)), 1, true).await?;
            is_first = false;
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subscriber_killed_fifty_times_sees_every_decision_of_two_leaders_once() -> anyhow::Result<()> {
    let Some(mut world) = on_jetstream(&[]).await? else { return Ok(()) };
    let objects = subscriber_objects();
    let (owners, dependents) = world.families("o", objects).await?;
    let begun = Instant::now();
    let mut subscriber = Subscriber::default();
    lives(&mut world, &mut subscriber, &owners, |life| life % 2).await?;
    world.all_gone().await?;
    let head = world.head(1).await?;
    world.read(&mut subscriber, 0, head).await?;
    subscriber.check_all()?;
    for phase in [Phase::Proposed, Phase::Leased] {
        let told = subscriber.targets(phase);
        ensure!(dependents.is_subset(&told), "{phase:?}: {} of {objects}", told.len());
    }
    let succeeded = subscriber.targets(Phase::Succeeded).intersection(&dependents).count();
    eprintln!("{objects} objects, {head} events, {succeeded} with their success, in {:?}", begun.elapsed());

    // No replica of the start exists any more, and the log continues.
    for graph in 0..2 {
        world.kill(graph).await?;
    }
    for graph in 0..2 {
        world.replicas.graphs[graph].start(false)?;
    }
    world.replicas.ready().await?;
    let later = world.cascade("later", 100).await?;
    world.all_gone().await?;
    let leader = world.leader().await?;
    let last = world.head(leader).await?;
    world.read(&mut subscriber, 1 - leader, last).await?;
    subscriber.check_all()?;
    ensure!(later.is_subset(&subscriber.targets(Phase::Succeeded)), "{head} then {last}");
    let mut from_the_start = Subscriber::default();
    world.read(&mut from_the_start, leader, last).await?;
    ensure!(from_the_start.logs == subscriber.logs, "a new subscriber gets all of it");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_with_the_lease_of_a_backup_takes_a_term_after_those_of_the_log() -> anyhow::Result<()> {
    let Some(mut world) = on_jetstream(&[]).await? else { return Ok(()) };
    let dependents = world.cascade("first", 1000).await?;
    until("it goes on", SOON, || world.left(), |left| *left < dependents.len()).await?;
    world.change_leader().await?;
    world.all_gone().await?;
    for graph in 0..2 {
        world.kill(graph).await?;
    }
    restore_lease(&world.client).await?;
    for graph in 0..2 {
        world.replicas.graphs[graph].start(false)?;
    }
    world.replicas.ready().await?;
    let later = world.cascade("later", 100).await?;
    world.all_gone().await?;
    let held = held(&world.client).await?;
    ensure!(held.term > SECOND.term, "the log has term {}: {held:?}", SECOND.term);
    let (leader, mut subscriber) = (world.leader().await?, Subscriber::default());
    let head = world.head(leader).await?;
    world.read(&mut subscriber, 1 - leader, head).await?;
    subscriber.check_all()?;
    ensure!(later.is_subset(&subscriber.targets(Phase::Succeeded)), "{head}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_log_in_memory_a_killed_subscriber_sees_all_of_two_leaders_but_for_one_gap_with_what_is_open()
-> anyhow::Result<()> {
    let mut world = World::start(None, &[]).await?;
    let objects = subscriber_objects();
    let (owners, _) = world.families("o", objects).await?;
    let mut subscriber = Subscriber::default();
    lives(&mut world, &mut subscriber, &owners, |life| usize::from(life >= LIVES / 2)).await?;
    world.all_gone().await?;
    let head = world.head(1).await?;
    world.read(&mut subscriber, 1, head).await?;
    subscriber.check()?;
    let [Gap { next: Some(next), reason, .. }] = subscriber.gaps.as_slice() else {
        anyhow::bail!("one gap: {:?}", subscriber.gaps);
    };
    ensure!(reason == "LOG_REPLACED", "{reason}");
    let of = |wanted: bool| subscriber.logs.iter().filter(move |(log_id, _)| (**log_id == next.log_id) == wanted);
    let (of_first, of_second): (Vec<_>, Vec<_>) =
        (of(false).flat_map(|(_, log)| log).collect(), of(true).flat_map(|(_, log)| log).collect());
    ensure!(of_first.iter().map(|(at, _)| **at).eq(1..=of_first.len() as u64), "the first log from its beginning");
    ensure!(of_second.first().is_none_or(|(at, _)| **at == next.sequence), "the second from {next:?} on");

    // A decision inside the gap ended before the gap, or is open after it.
    let mut all = Subscriber::default();
    world.read(&mut all, 1, head).await?;
    let told: BTreeSet<&str> = subscriber
        .open
        .iter()
        .chain(of_second.iter().map(|(_, event)| *event))
        .map(|event| event.decision_id.as_str())
        .collect();
    let decisions: BTreeSet<&str> = all.events().map(|event| event.decision_id.as_str()).collect();
    let untold = decisions.difference(&told).copied().collect::<BTreeSet<&str>>();
    let is_over = |phase: Phase| matches!(phase, Phase::Succeeded | Phase::Superseded);
    let over = all.events().filter(|event| is_over(event.phase())).map(|event| event.decision_id.as_str());
    let over = over.collect::<BTreeSet<&str>>();
    ensure!(untold.is_subset(&over), "{:?}", untold.difference(&over).take(10).collect::<Vec<_>>());
    let (of_first, of_second) = (of_first.len(), of_second.len());
    eprintln!("{objects} objects, {of_first} events, a gap with {} open, {of_second} events", subscriber.open.len());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_log_that_is_away_for_long_misses_is_one_gap_and_the_cascade_ends_without_it() -> anyhow::Result<()> {
    // There are more events than the queue holds.
    const OBJECTS: usize = 6500;
    let Some(mut world) = on_jetstream(&[]).await? else { return Ok(()) };
    world.cascade("before", 100).await?;
    world.all_gone().await?;
    let before = world.head(0).await?;
    let mut strict = Subscriber::default();
    world.read(&mut strict, 1, before).await?;

    let dependents = world.cascade("o", OBJECTS).await?;
    until("it goes on", SOON, || world.left(), |left| *left < OBJECTS).await?;
    world.nats_mut()?.kill().await?;
    ensure!(world.left().await? > 0, "there is something left to be done without the log");
    world.says(0, "decision log: unreachable").await?;
    world.all_gone().await?;
    ensure!(world.readyz(0).await?.contains("grants continue"));
    ensure!(world.metric("ownergraph_decision_log_away ").await? == 1.0);
    ensure!(world.newest(0).await? >= before, "what was read is still served");

    world.nats_mut()?.again().await?;
    world.says(0, "decision log: written to, 0 events wait").await?;
    // The leader learns of the last deletions after the API server has none left, so the count is final only now.
    let lost = world.metric("ownergraph_decision_log_lost_total ").await?;
    ensure!(lost > 0.0, "{OBJECTS} objects were to be too many for the queue");
    let head = world.head(0).await?;
    let mut lenient = Subscriber { position: strict.position.clone(), ..Subscriber::default() };
    world.read(&mut lenient, 0, head).await?;
    lenient.check()?;
    let [gap] = lenient.gaps.as_slice() else { anyhow::bail!("one gap: {:?}", lenient.gaps) };
    ensure!(gap.reason == "NOT_WRITTEN" && gap.lost as f64 == lost, "{gap:?}, while {lost} were lost");
    ensure!(gap.since.is_some() && gap.until.is_some(), "{gap:?}");
    let at = gap.first_missing.as_ref().context("where it is")?.sequence;
    let seen = lenient.events().filter_map(|event| Some(event.position.as_ref()?.sequence));
    ensure!(seen.eq((before + 1..=head).filter(|sequence| *sequence != at)), "all that was written, and nothing else");

    // A subscriber that accepts no gap gets a position from which it can continue.
    let ended = loop {
        match strict.live(&world.server(1), 1, false).await {
            Ok(()) => {}
            Err(status) => break status,
        }
    };
    ensure!((ended.code(), reason_of(&ended).as_str()) == (Code::OutOfRange, "POSITION_COMPACTED"), "{ended:?}");
    ensure!(strict.sequence() + 1 == at, "{} is not just before {at}", strict.sequence());
    let details = ended.get_error_details();
    let metadata = &details.error_info().context("a reason")?.metadata;
    ensure!(metadata[error_reason::OLDEST_SEQUENCE] == (at + 1).to_string(), "{metadata:?}");
    strict.position = Some(Position { log_id: metadata[error_reason::LOG_ID].clone(), sequence: at });
    while strict.sequence() < head {
        strict.live(&world.server(1), 1, false).await?;
    }
    let told = lenient.targets(Phase::Proposed).intersection(&dependents).count();
    eprintln!("{OBJECTS} objects, {head} positions, one gap at {at} for {lost} events; {told} proposals are told");
    Ok(())
}

fn reason_of(status: &Status) -> String {
    status.get_error_details().error_info().map(|info| info.reason.clone()).unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_written_while_a_log_that_is_required_is_away() -> anyhow::Result<()> {
    const OBJECTS: usize = 2000;
    let Some(mut world) = on_jetstream(&["--decision-log-required"]).await? else { return Ok(()) };
    let dependents = world.cascade("o", OBJECTS).await?;
    until("half of it is gone", SOON, || world.left(), |left| *left <= OBJECTS / 2).await?;
    world.nats_mut()?.kill().await?;
    // Leases from before may still end.
    until("nothing is under way", SOON, || world.metric("ownergraph_leases "), |leases| *leases == 0.0).await?;
    world.says(0, "grants: stopped, the decision log is unreachable").await?;
    let (deletes, left) = (world.deletes()?, world.left().await?);
    ensure!(left > 0, "there is something left to be done");
    is_reported_to_each_client(&world).await?;
    let away = |body: &String| {
        let seconds = body.split_once("decision log: unreachable for ").and_then(|(_, rest)| rest.split_once(" s"));
        seconds.and_then(|(seconds, _)| seconds.parse().ok()).is_some_and(|seconds: u64| seconds >= 10)
    };
    until("the log is away for 10 s", SOON, || world.readyz(0), away).await?;
    ensure!((world.deletes()?, world.left().await?) == (deletes, left), "another client has written meanwhile");

    world.nats_mut()?.again().await?;
    world.all_gone().await?;
    let mut subscriber = Subscriber::default();
    let head = world.head(0).await?;
    world.read(&mut subscriber, 1, head).await?;
    subscriber.check_all()?;
    for phase in [Phase::Proposed, Phase::Leased, Phase::Confirmed] {
        ensure!(dependents.is_subset(&subscriber.targets(phase)), "{phase:?} of each");
    }
    // A write without an answer has failed from the view of its executor.
    let unanswered =
        |event: &&DecisionEvent| event.report.as_ref().is_some_and(|report| report.outcome() == Outcome::Ambiguous);
    let mut ended = subscriber.targets(Phase::Succeeded);
    ended.extend(subscriber.events().filter(unanswered).filter_map(|event| Some(event.target.as_ref()?.uid.clone())));
    ensure!(dependents.is_subset(&ended), "{} of the writes have no result", dependents.difference(&ended).count());
    eprintln!("{OBJECTS} objects, {left} left while it was away, {head} events");
    Ok(())
}

/// Checks that the status names the missing log, and that this is the reason why an object still exists.
async fn is_reported_to_each_client(world: &World) -> anyhow::Result<()> {
    let address = format!("http://{}", world.server(0));
    let status =
        AdminServiceClient::connect(address.clone()).await?.get_status(GetStatusRequest {}).await?.into_inner();
    ensure!(status.grants_stopped == "the decision log is unreachable", "{}", status.grants_stopped);
    let log = status.decision_log.context("the state of the log")?;
    ensure!(log.state() == State::Away && log.required && !log.problem.is_empty(), "{log:?}");
    ensure!(log.newest.as_ref().is_some_and(|newest| newest.sequence > 0), "what was read is still served: {log:?}");
    let uid = world.dependents().await?.pop_first().context("one that is left")?;
    let request = ExplainObjectRequest { r#ref: Some(ObjectRef { uid, ..ObjectRef::default() }), consistency: None };
    let answer = GraphServiceClient::connect(address).await?.explain_object(request).await?.into_inner();
    let is_named = answer.reasons.iter().any(|reason| reason.code() == reason::Code::GrantsStopped);
    ensure!(is_named, "{:?}", answer.reasons);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_wakes_under_a_former_term_adds_nothing_behind_the_next() -> anyhow::Result<()> {
    const OBJECTS: usize = 2000;
    let Some(world) = on_jetstream(&[]).await? else { return Ok(()) };
    let dependents = world.cascade("o", OBJECTS).await?;
    until("some of it is gone", SOON, || world.left(), |left| *left < OBJECTS).await?;
    let first = &world.replicas.graphs[0];
    first.service()?.process.pause()?;
    world.leads(SECOND).await?;
    let left = world.left().await?;
    until("the second goes on with it", SOON, || world.left(), |now| *now < left).await?;
    first.service()?.process.resume()?;
    until("the first knows that it does not lead", SOON, || world.metric("ownergraph_leader "), |leads| *leads == 0.0)
        .await?;
    world.all_gone().await?;
    let head = world.head(1).await?;
    let mut subscriber = Subscriber::default();
    world.read(&mut subscriber, 0, head).await?;
    subscriber.check_all()?;
    ensure!(dependents.is_subset(&subscriber.targets(Phase::Leased)), "nothing was done that the log does not tell of");
    let waiting = world.metric("ownergraph_decision_log_waiting ").await?;
    let lost = world.metric("ownergraph_decision_log_lost_total ").await?;
    ensure!(waiting == 0.0, "{waiting} events of the former term still wait");
    eprintln!("{OBJECTS} objects, {left} left to the second leader, {head} events, {lost} of the first were too late");
    Ok(())
}
