//! Executors that a replica sends away. They wait as long as the replica says, and find the leader.

use super::{ensure_deleted_once, garbage, led_by_a_behind_relay, until_gone};
use anyhow::{Context, ensure};
use engine::work::{GoAwayCause, ToExecutor, ToLeader};
use proto::r#type::v1beta1::ReplicaRole;
use std::collections::BTreeMap;
use std::time::Duration;
use tests::wire::network::{API, Network, Road};
use tests::wire::relay::{Relay, Said};
use tests::wire::world::World;
use tokio::time::Instant;

const OBJECTS: usize = 40;
const EXECUTORS: usize = 12;
/// Executors that leave together return at different times.
const A_MOMENT_EACH: Duration = Duration::from_millis(5);

/// A farewell as an executor got it.
#[derive(Clone, Debug)]
struct Farewell {
    at: Instant,
    cause: GoAwayCause,
    reconnect_after: Duration,
}

fn farewells(relay: &Relay) -> BTreeMap<String, Vec<Farewell>> {
    let mut by_executor = BTreeMap::<String, Vec<Farewell>>::new();
    for line in relay.lines() {
        if let Said::Down(ToExecutor::GoAway { cause, reconnect_after, .. }) = line.said {
            let farewell = Farewell { at: line.at, cause, reconnect_after };
            by_executor.entry(line.executor).or_default().push(farewell);
        }
    }
    by_executor
}

/// Checks that each executor was sent away once for this reason, and did not dial before the given delay. Returns the
/// delay between the farewell and the dial.
fn ensure_kept(network: &Network, relay: &Relay, cause: GoAwayCause) -> anyhow::Result<Vec<Duration>> {
    let farewells = farewells(relay);
    ensure!(farewells.len() == EXECUTORS, "{farewells:?}");
    let dials = network.dials();
    let mut after = Vec::new();
    for (executor, farewells) in farewells {
        let [farewell] = farewells.as_slice() else {
            anyhow::bail!("{executor} was sent away so often: {farewells:?}")
        };
        ensure!(farewell.cause == cause, "{executor}: {farewell:?}");
        let next = dials.iter().find(|dial| dial.from == executor && dial.to != API && dial.at > farewell.at);
        let waited = next.with_context(|| format!("{executor} did not come back"))?.at - farewell.at;
        ensure!(waited >= farewell.reconnect_after, "{executor} was told {farewell:?}, and came after {waited:?}");
        after.push(waited);
    }
    after.sort_unstable();
    Ok(after)
}

/// Starts a world in which `a` leads and `b` stands by. Both are behind relays, and the executors know both.
async fn two_replicas() -> anyhow::Result<(World, Relay, Relay)> {
    let (mut world, a) = led_by_a_behind_relay().await?;
    let b = world.replica_behind_relay("b");
    world.until_role("b", ReplicaRole::Standby).await?;
    for number in 1..=EXECUTORS {
        world.executor(&format!("e{number}"), 2, &["a", "b"]);
    }
    world.until_sessions("a", u32::try_from(EXECUTORS)?).await?;
    Ok((world, a, b))
}

async fn ensure_work_goes_on(world: &World, what: &str) -> anyhow::Result<()> {
    let took = until_gone(world, Duration::from_secs(60)).await?;
    ensure_deleted_once(&world.api, OBJECTS as u64)?;
    ensure!(took < Duration::from_secs(10), "{what}: {took:?}");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_stops_sends_its_executors_to_the_next_one() -> anyhow::Result<()> {
    let (mut world, a, _b) = two_replicas().await?;
    garbage(&world, "a", OBJECTS).await?;
    let stopped = Instant::now();
    world.stop_replica("a").await?;
    world.until_role("b", ReplicaRole::Leader).await?;
    let led = stopped.elapsed();
    world.until_sessions("b", u32::try_from(EXECUTORS)?).await?;
    let sessions = stopped.elapsed();
    let after = ensure_kept(&world.network, &a, GoAwayCause::ShuttingDown)?;
    let spread = after[EXECUTORS - 1] - after[0];
    eprintln!(
        "stop: the next leads after {led:.2?}, {EXECUTORS} sessions after {sessions:.2?}, spread over {spread:.2?}"
    );
    ensure!(sessions < led + Duration::from_secs(10), "{sessions:?}");
    ensure!(spread > A_MOMENT_EACH * u32::try_from(EXECUTORS)?, "{after:?}");
    ensure_work_goes_on(&world, "after a stop").await
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_cannot_renew_steps_down_and_its_executors_find_the_next_one() -> anyhow::Result<()> {
    let (world, a, _b) = two_replicas().await?;
    world.network.set_road("a", API, Road::Frozen);
    let cut = Instant::now();
    world.until_role("b", ReplicaRole::Leader).await?;
    let led = cut.elapsed();
    world.until_sessions("b", u32::try_from(EXECUTORS)?).await?;
    let sessions = cut.elapsed();
    let after = ensure_kept(&world.network, &a, GoAwayCause::LeaderChanged)?;
    let gave_up = farewells(&a)["e1"][0].at - cut;
    eprintln!(
        "partition: gave up after {gave_up:.2?}, the next leads after {led:.2?}, {EXECUTORS} sessions after {sessions:.2?}"
    );
    ensure!(gave_up < led, "the old leader gave up after the new one led");
    let spread = after[EXECUTORS - 1] - after[0];
    ensure!(spread > A_MOMENT_EACH * u32::try_from(EXECUTORS)?, "{after:?}");
    ensure!(sessions < led + Duration::from_secs(10), "{sessions:?}");
    world.network.set_road("a", API, Road::Open);
    world.until_role("a", ReplicaRole::Standby).await?;
    garbage(&world, "b", OBJECTS).await?;
    ensure_work_goes_on(&world, "after a partition").await
}

#[tokio::test(start_paused = true)]
async fn an_executor_that_knows_only_a_standby_is_led_to_the_leader() -> anyhow::Result<()> {
    let (mut world, a) = led_by_a_behind_relay().await?;
    let b = world.replica_behind_relay("b");
    world.until_role("b", ReplicaRole::Standby).await?;
    let began = Instant::now();
    world.executor("e", 2, &["b"]);
    world.until_sessions("a", 1).await?;
    let took = began.elapsed();
    let refused = b.said(|line| matches!(line.said, Said::Refused(_)).then_some(line.at));
    let welcomed = a.said(|line| matches!(line.said, Said::Down(ToExecutor::Welcome(_))).then_some(line.at));
    ensure!((refused.len(), welcomed.len()) == (1, 1), "{refused:?} {welcomed:?}");
    ensure!(took < Duration::from_secs(1), "{took:?}");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_stream_is_renewed_after_an_hour_and_its_session_goes_on() -> anyhow::Result<()> {
    let (mut world, relay) = led_by_a_behind_relay().await?;
    world.executor("e", 2, &["a"]);
    world.until_sessions("a", 1).await?;
    tokio::time::sleep(Duration::from_secs(67 * 60)).await;
    let farewells = farewells(&relay);
    let [farewell] = farewells["e"].as_slice() else { anyhow::bail!("{farewells:?}") };
    ensure!(farewell.cause == GoAwayCause::SessionAge, "{farewell:?}");
    let hellos = relay.said(|line| match &line.said {
        Said::Up(ToLeader::Hello(hello)) => Some((line.at, hello.incarnation.clone())),
        Said::Up(_) | Said::Down(_) | Said::Refused(_) => None,
    });
    let [(_, first), (at, again)] = hellos.as_slice() else { anyhow::bail!("{hellos:?}") };
    ensure!(first == again && *at - farewell.at < Duration::from_secs(1), "{hellos:?} {farewell:?}");
    garbage(&world, "a", OBJECTS).await?;
    ensure_work_goes_on(&world, "on a renewed stream").await
}
