//! The log of decisions on JetStream, with real processes: leaders and servers that are killed and stopped in mid-cascade, and a subscriber
//! that misses nothing.
//!
//! `JETSTREAM_OBJECTS` is the size of the cascade with the subscriber that is killed.

use anyhow::{Context, ensure};
use kube::Client;
use proto::decision::v1alpha1::{ListDecisionsRequest, Phase, Position};
use proto::error_reason;
use std::collections::BTreeSet;
use std::time::Duration;
use tests::embedded::Api;
use tests::load::{configmaps, count, delete, families, list, until};
use tests::nats::{self, Nats};
use tests::process::Directory;
use tests::replicas::{Held, Replicas, held};
use tests::service::Programs;
use tests::subscriber::{Subscriber, connect, patiently};
use tokio::sync::{Mutex, MutexGuard};
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

/// The machine may be small.
static ONE_AT_A_TIME: Mutex<()> = Mutex::const_new(());

const SOON: Duration = Duration::from_secs(60);
const CASCADE_WITHIN: Duration = Duration::from_secs(300);
const LEASES: [&str; 6] = ["--lease-duration", "4s", "--renew-deadline", "3s", "--retry-period", "1s"];
const OWNERS: usize = 10;

struct World {
    api: Api,
    nats: Nats,
    replicas: Replicas,
    maps: String,
    _directory: Directory,
    _turn: MutexGuard<'static, ()>,
}

impl World {
    /// Two graph services, of which the first leads, and two executors.
    async fn start(flags: &[&str]) -> anyhow::Result<Option<World>> {
        let Some(program) = nats::require() else { return Ok(None) };
        let turn = ONE_AT_A_TIME.lock().await;
        let programs = Programs::build()?;
        let directory = Directory::create()?;
        let (api, nats) = (Api::start(directory.path()).await?, Nats::start(&program).await?);
        let mut replicas = Replicas::new(&programs, 2).await?;
        let url = nats.url();
        let flags = [&LEASES, flags, &["--decision-log", &url]].concat();
        for graph in 0..2 {
            replicas.add_graph(&api.kubeconfig, &flags)?;
            if graph == 0 {
                replicas.ready().await?;
                until("the first leads", SOON, || held(&api.client), |held| held.holder == Some(0)).await?;
            }
        }
        for _ in 0..2 {
            replicas.add_executor(&api.kubeconfig, &[])?;
        }
        replicas.ready().await?;
        let maps = configmaps("default");
        Ok(Some(World { api, nats, replicas, maps, _directory: directory, _turn: turn }))
    }

    fn client(&self) -> &Client {
        &self.api.client
    }

    fn server(&self, graph: usize) -> String {
        self.replicas.grpc(graph).to_owned()
    }

    /// Deletes owners with so many dependents. Gives the dependents' uids.
    async fn cascade(&self, prefix: &str, dependents: usize) -> anyhow::Result<BTreeSet<String>> {
        let owners = families(self.client(), "default", prefix, OWNERS, dependents / OWNERS).await?;
        let uid = |object: &serde_json::Value| {
            let is_dependent = object["metadata"]["ownerReferences"].is_array();
            object["metadata"]["uid"].as_str().filter(|_| is_dependent).map(str::to_owned)
        };
        let uids = list(self.client(), self.maps.as_str()).await?.iter().filter_map(uid).collect();
        for owner in owners {
            delete(self.client(), &format!("{}/{owner}", self.maps), "Background").await?;
        }
        Ok(uids)
    }

    async fn left(&self) -> anyhow::Result<usize> {
        count(self.client(), &self.maps).await
    }

    async fn all_gone(&self) -> anyhow::Result<()> {
        until("the cascade ends", CASCADE_WITHIN, || self.left(), |left| *left == 0).await.map(|_| ())
    }

    async fn kill(&mut self, graph: usize) -> anyhow::Result<()> {
        let process = &mut self.replicas.graphs[graph].service_mut()?.process;
        process.kill()?;
        process.ended(SOON).await.map(|_| ())
    }

    /// The newest position by this replica.
    async fn head(&self, graph: usize) -> anyhow::Result<Position> {
        let ask =
            || async { connect(&self.server(graph)).await?.list_decisions(ListDecisionsRequest::default()).await };
        let listed = patiently(ask).await?.into_inner();
        listed.events.first().and_then(|event| event.position.clone()).context("nothing was decided")
    }

    /// Lets a subscriber read until it has come as far as nothing is left to be decided, asking this replica.
    async fn read_all(&self, subscriber: &mut Subscriber, graph: usize) -> anyhow::Result<u64> {
        let written = || async { self.head(graph).await };
        let head = settled(&written).await?.sequence;
        while subscriber.sequence() < head {
            subscriber.live(&self.server(graph), 1, true).await?;
        }
        Ok(head)
    }

    async fn readyz(&self, graph: usize) -> anyhow::Result<String> {
        Ok(self.replicas.graphs[graph].service()?.get("/readyz?verbose").await?.1)
    }

    fn deletes(&self) -> u64 {
        let requests = self.api.server.requests();
        requests.into_iter().filter(|(request, _)| request.verb == "DELETE").map(|(_, count)| count).sum()
    }
}

/// The last of a log that grows no more.
async fn settled<F: Future<Output = anyhow::Result<Position>>>(ask: &impl Fn() -> F) -> anyhow::Result<Position> {
    let last = std::sync::Mutex::new(Vec::<Position>::new());
    let ask = || async {
        let now = ask().await?;
        let mut last = last.lock().expect("nobody panicked");
        last.push(now.clone());
        let still = last.len() > 10 && last[last.len() - 10..].iter().all(|position| *position == now);
        Ok((now, still))
    };
    Ok(until("nothing more is written", SOON, ask, |(_, still)| *still).await?.0)
}

fn reason(status: &Status) -> String {
    status.get_error_details().error_info().map(|info| info.reason.clone()).unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subscriber_killed_fifty_times_sees_every_decision_of_two_leaders_once() -> anyhow::Result<()> {
    const LIVES: usize = 50;
    let Some(mut world) = World::start(&[]).await? else { return Ok(()) };
    let objects = std::env::var("JETSTREAM_OBJECTS").ok().and_then(|text| text.parse().ok()).unwrap_or(2000);
    let dependents = world.cascade("o", objects).await?;
    ensure!(dependents.len() == objects);
    let mut subscriber = Subscriber::default();
    for life in 0..LIVES {
        if life == LIVES / 2 {
            ensure!(world.left().await? > 0, "there is something left for the next leader");
            world.kill(0).await?;
            let second = |held: &Held| held.holder == Some(1);
            until("the second leads", SOON, || held(world.client()), second).await?;
            world.replicas.graphs[0].start(false)?;
            world.replicas.ready().await?;
        }
        // At least two steps for each object: what came of the writes under way may go with a leader that is killed.
        let seen = 2 * objects * (life + 1) / LIVES;
        while subscriber.events.len() < seen {
            subscriber.live(&world.server(life % 2), 1, false).await?;
        }
    }
    world.all_gone().await?;
    let head = world.read_all(&mut subscriber, 0).await?;
    ensure!(world.head(1).await?.sequence == head, "both replicas have the same log");
    subscriber.check()?;
    ensure!(subscriber.gaps.is_empty(), "no gap: {:?}", subscriber.gaps);
    for phase in [Phase::Proposed, Phase::Leased] {
        let told = subscriber.targets(phase);
        ensure!(dependents.is_subset(&told), "{phase:?}: {} of {objects}", told.len());
    }
    let succeeded = subscriber.targets(Phase::Succeeded).intersection(&dependents).count();

    // Nobody who was there is there any more, and the log goes on.
    for graph in 0..2 {
        world.kill(graph).await?;
    }
    for graph in 0..2 {
        world.replicas.graphs[graph].start(false)?;
    }
    world.replicas.ready().await?;
    world.cascade("later", 100).await?;
    world.all_gone().await?;
    let last = world.read_all(&mut subscriber, 1).await?;
    subscriber.check()?;
    ensure!(last >= head + 300 && subscriber.gaps.is_empty(), "{head} then {last}, gaps: {:?}", subscriber.gaps);
    let mut from_the_start = Subscriber::default();
    world.read_all(&mut from_the_start, 0).await?;
    ensure!(from_the_start.events == subscriber.events, "all of it is there for whoever begins now");
    eprintln!("{objects} objects, {head} events, {succeeded} with their success, {last} after the restart of both");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_log_that_is_away_for_long_misses_is_one_gap_and_the_cascade_ends_without_it() -> anyhow::Result<()> {
    // More events than the queue holds.
    const OBJECTS: usize = 6500;
    let Some(mut world) = World::start(&[]).await? else { return Ok(()) };
    world.cascade("before", 100).await?;
    world.all_gone().await?;
    let mut strict = Subscriber::default();
    let before = world.read_all(&mut strict, 1).await?;

    let dependents = world.cascade("o", OBJECTS).await?;
    until("it goes on", SOON, || world.left(), |left| *left < OBJECTS).await?;
    world.nats.kill().await?;
    ensure!(world.left().await? > 0, "there is something left to be done without the log");
    let says = |what: &'static str| move |text: &String| text.contains(what);
    until("it is away", SOON, || world.readyz(0), says("decision log: away")).await?;
    world.all_gone().await?;
    ensure!(world.readyz(0).await?.contains("work goes on without it"));
    let of_leader = |name: &'static str| world.replicas.graphs[0].metric(name);
    ensure!(of_leader("ownergraph_decision_log_away ").await? == 1.0);
    let lost = of_leader("ownergraph_decision_log_lost_total ").await?;
    ensure!(lost > 0.0, "{OBJECTS} objects were to be too many for the queue");
    ensure!(world.head(0).await?.sequence >= before, "what was read is still served");

    world.nats.again().await?;
    until("it is back", SOON, || world.readyz(0), says("decision log: written to, 0 events wait")).await?;
    let mut lenient = Subscriber { position: strict.position.clone(), ..Subscriber::default() };
    let head = world.read_all(&mut lenient, 0).await?;
    ensure!(lenient.gaps.len() == 1, "one gap: {:?}", lenient.gaps);
    let gap = &lenient.gaps[0];
    ensure!(gap.reason == "NOT_WRITTEN" && gap.lost as f64 == lost, "{gap:?}, while {lost} were lost");
    ensure!(gap.since.is_some() && gap.until.is_some(), "{gap:?}");
    ensure!(lenient.repeated.is_empty(), "{:?}", lenient.repeated);
    let at = gap.first_missing.as_ref().context("where it is")?.sequence;
    let seen = lenient.events.keys().copied().collect::<BTreeSet<u64>>();
    let expected = (before + 1..=head).filter(|sequence| *sequence != at).collect::<BTreeSet<u64>>();
    ensure!(seen == expected, "all that was written, and nothing else");

    // Whoever accepts no gap is told where to go on, and can.
    let ended = loop {
        match strict.live(&world.server(1), 1, false).await {
            Ok(()) => {}
            Err(status) => break status,
        }
    };
    ensure!((ended.code(), reason(&ended).as_str()) == (Code::OutOfRange, "POSITION_COMPACTED"), "{ended:?}");
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

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_written_while_a_log_that_is_required_is_away() -> anyhow::Result<()> {
    const OBJECTS: usize = 2000;
    let Some(mut world) = World::start(&["--decision-log-required"]).await? else { return Ok(()) };
    let dependents = world.cascade("o", OBJECTS).await?;
    until("half of it is gone", SOON, || world.left(), |left| *left <= OBJECTS / 2).await?;
    world.nats.kill().await?;
    // What was granted before may still end.
    let granted = || world.replicas.graphs[0].metric("ownergraph_leases ");
    until("nothing is under way", SOON, granted, |leases| *leases == 0.0).await?;
    let stopped = |text: &String| text.contains("grants: stopped, the log of decisions is away");
    until("it is said", SOON, || world.readyz(0), stopped).await?;
    let (deletes, left) = (world.deletes(), world.left().await?);
    ensure!(left > 0, "there is something left to be done");
    let for_a_while = |text: &String| text.contains("decision log: away for 10 s");
    until("it is away for a while", SOON, || world.readyz(0), for_a_while).await?;
    ensure!((world.deletes(), world.left().await?) == (deletes, left), "somebody has written meanwhile");

    world.nats.again().await?;
    world.all_gone().await?;
    let mut subscriber = Subscriber::default();
    let head = world.read_all(&mut subscriber, 1).await?;
    subscriber.check()?;
    ensure!(subscriber.gaps.is_empty(), "{:?}", subscriber.gaps);
    for phase in [Phase::Proposed, Phase::Leased, Phase::Succeeded] {
        ensure!(dependents.is_subset(&subscriber.targets(phase)), "{phase:?} of each");
    }
    eprintln!("{OBJECTS} objects, {left} left while it was away, {head} events");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_wakes_under_a_former_term_adds_nothing_behind_the_next() -> anyhow::Result<()> {
    const OBJECTS: usize = 2000;
    let Some(world) = World::start(&[]).await? else { return Ok(()) };
    let dependents = world.cascade("o", OBJECTS).await?;
    until("some of it is gone", SOON, || world.left(), |left| *left < OBJECTS).await?;
    let first = &world.replicas.graphs[0];
    first.service()?.process.pause()?;
    let second = |held: &Held| *held == Held { holder: Some(1), term: 2 };
    until("the second leads", SOON, || held(world.client()), second).await?;
    let left = world.left().await?;
    until("the second goes on with it", SOON, || world.left(), |now| *now < left).await?;
    first.service()?.process.resume()?;
    let leads = || first.metric("ownergraph_leader ");
    until("the first knows that it does not lead", SOON, leads, |leads| *leads == 0.0).await?;
    world.all_gone().await?;
    let mut subscriber = Subscriber::default();
    let head = world.read_all(&mut subscriber, 0).await?;
    subscriber.check()?;
    ensure!(subscriber.gaps.is_empty(), "{:?}", subscriber.gaps);
    ensure!(dependents.is_subset(&subscriber.targets(Phase::Leased)), "nothing was done that the log does not tell of");
    let waiting = first.metric("ownergraph_decision_log_waiting ").await?;
    let lost = first.metric("ownergraph_decision_log_lost_total ").await?;
    ensure!(waiting == 0.0, "{waiting} events of the former term still wait");
    eprintln!("{OBJECTS} objects, {left} left to the second leader, {head} events, {lost} of the first were too late");
    Ok(())
}
