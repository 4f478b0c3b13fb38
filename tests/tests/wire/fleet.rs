//! Many executors lose their leader at once, and find the next one without a stampede.

use super::{ensure_deleted_once, garbage, until_gone};
use anyhow::ensure;
use engine::work::ToExecutor;
use proto::r#type::v1beta1::ReplicaRole;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tests::load::until;
use tests::wire::network::API;
use tests::wire::relay::{Relay, Said};
use tests::wire::world::World;
use tokio::time::Instant;

const OBJECTS: usize = 400;
/// The length of the spans in which the test counts attempts to connect.
const SPAN: Duration = Duration::from_millis(100);

/// The cost of the search of a fleet for its next leader.
#[derive(Debug)]
struct Figures {
    executors: usize,
    /// The time since the loss of the old leader.
    led_after: Duration,
    /// The time since the beginning of the new term.
    sessions_after: Duration,
    /// Connections of the whole fleet to the remaining replica, without a leader and after; and the maximum in one
    /// span.
    dials: usize,
    dials_peak: usize,
    /// The streams and messages in both directions at the new leader, during its term.
    streams: usize,
    messages: usize,
    api_requests: u64,
}

fn api_requests(world: &World) -> u64 {
    world.api.requests().values().sum()
}

/// The executors with a session at the new leader, in order, with the time of each welcome.
fn welcomes(relay: &Relay) -> Vec<(String, Instant)> {
    let is_welcome = |said: &Said| matches!(said, Said::Down(ToExecutor::Welcome(_)));
    relay.said(|line| is_welcome(&line.said).then(|| (line.executor.clone(), line.at)))
}

async fn leader_is_gone(executors: usize, kill: bool) -> anyhow::Result<Figures> {
    let mut world = World::new().await?;
    world.replica("a");
    world.until_role("a", ReplicaRole::Leader).await?;
    let relay = world.replica_behind_relay("b");
    world.until_role("b", ReplicaRole::Standby).await?;
    for number in 1..=executors {
        world.executor(&format!("e{number}"), 2, &["a", "b"]);
    }
    world.until_sessions("a", u32::try_from(executors)?).await?;
    tokio::time::sleep(Duration::from_secs(7)).await;

    let (gone, asked) = (Instant::now(), api_requests(&world));
    if kill {
        world.kill_replica("a");
    } else {
        world.stop_replica("a").await?;
    }
    let welcomed = || async { Ok(welcomes(&relay)) };
    let all = |welcomed: &Vec<(String, Instant)>| {
        welcomed.iter().map(|(executor, _)| executor).collect::<BTreeSet<_>>().len() == executors
    };
    let welcomed = until("all are welcomed", Duration::from_secs(60), welcomed, all).await?;
    let led = welcomed.first().map_or(gone, |(_, at)| *at);
    let (lines, done) = (relay.lines(), Instant::now());
    let asked = api_requests(&world) - asked;

    let mut by_span = BTreeMap::<u128, usize>::new();
    for dial in world.network.dials().iter().filter(|dial| dial.from.starts_with('e') && dial.to != API) {
        if dial.at >= gone && dial.reached {
            *by_span.entry((dial.at - gone).as_millis() / SPAN.as_millis()).or_default() += 1;
        }
    }
    let since: Vec<_> = lines.iter().filter(|line| line.at >= led).collect();
    let figures = Figures {
        executors,
        led_after: led - gone,
        sessions_after: done - led,
        dials: by_span.values().sum(),
        dials_peak: by_span.values().copied().max().unwrap_or_default(),
        streams: since.iter().map(|line| line.stream).collect::<BTreeSet<_>>().len(),
        messages: since.len(),
        api_requests: asked,
    };
    garbage_at_b(&world).await?;
    Ok(figures)
}

/// The fleet works at its full rate under the new leader.
async fn garbage_at_b(world: &World) -> anyhow::Result<()> {
    garbage(world, "b", OBJECTS).await?;
    let took = until_gone(world, Duration::from_secs(60)).await?;
    ensure!(took < Duration::from_secs(5), "{took:?}");
    ensure_deleted_once(&world.api, OBJECTS as u64)
}

fn ensure_calm(small: &Figures, large: &Figures) -> anyhow::Result<()> {
    for figures in [small, large] {
        ensure!(figures.sessions_after <= Duration::from_secs(10), "{figures:?}");
        // An executor sends or receives a hello, a welcome, perhaps a heartbeat with its answer, and makes one failed
        // attempt.
        ensure!(figures.messages <= 6 * figures.executors, "{figures:?}");
        ensure!(figures.led_after <= Duration::from_secs(18), "{figures:?}");
        // Each executor makes two attempts per second until it gets its welcome.
        let seconds = (figures.led_after + figures.sessions_after).as_secs_f64();
        let patient = figures.executors as f64 * (4.0 + 2.0 * seconds);
        ensure!(figures.dials as f64 <= patient, "{figures:?}");
        ensure!(figures.streams <= 2 * figures.executors, "{figures:?}");
    }
    // The load of the API server does not depend on the number of executors.
    ensure!(large.api_requests <= small.api_requests + 10, "{small:?} {large:?}");
    // Without jitter, all of them would be in one span.
    ensure!(large.dials_peak <= large.executors * 3 / 4, "{large:?}");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn two_hundred_executors_find_the_next_leader_after_a_kill() -> anyhow::Result<()> {
    let (small, large) = (leader_is_gone(20, true).await?, leader_is_gone(200, true).await?);
    eprintln!("killed: {small:?}\nkilled: {large:?}");
    ensure_calm(&small, &large)
}

#[tokio::test(start_paused = true)]
async fn two_hundred_executors_find_the_next_leader_after_a_stop() -> anyhow::Result<()> {
    let (small, large) = (leader_is_gone(20, false).await?, leader_is_gone(200, false).await?);
    eprintln!("stopped: {small:?}\nstopped: {large:?}");
    ensure_calm(&small, &large)
}
