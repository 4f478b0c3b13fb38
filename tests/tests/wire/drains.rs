//! Executors that get the request to stop at every point of their work.

use super::{ensure_deleted_once, garbage, led_by_a_behind_relay, reason, slow_deletes, until_gone};
use anyhow::{Context, ensure};
use engine::work::{ToExecutor, ToLeader};
use executor_service::Exit;
use std::time::Duration;
use tests::load::until;
use tests::wire::puppet::{Puppet, hello};
use tests::wire::relay::{Line, Order, Relay, Said};
use tests::wire::world::{World, address};
use tonic::Code;

const OBJECTS: usize = 40;
/// The time for which a message stays in flight, so that the other side's message crosses it.
const UNDER_WAY: Duration = Duration::from_millis(300);

/// The point at which an executor gets the request to stop, and the fault at that point.
struct Case {
    name: &'static str,
    /// The request comes as soon as such a message is at the relay.
    when: fn(&Said) -> bool,
    order: fn(&Said) -> Order,
}

const fn nothing_else(_: &Said) -> Order {
    Order::Pass
}

const CASES: [Case; 8] = [
    Case { name: "before any work", when: |said| matches!(said, Said::Up(ToLeader::Hello(_))), order: nothing_else },
    Case { name: "a grant is under way", when: is_grant, order: |said| delay_if(is_grant(said)) },
    Case { name: "attempts are under way", when: has_started, order: nothing_else },
    Case { name: "a report is under way", when: is_report, order: |said| delay_if(is_report(said)) },
    Case { name: "its own drain is lost", when: has_started, order: |said| cut_if(is_drain(said)) },
    Case { name: "the answer to the drain is lost", when: has_started, order: |said| cut_if(is_ack(said)) },
    Case { name: "the last answer is lost", when: has_started, order: |said| cut_if(is_last_ack(said)) },
    Case { name: "its last report is lost", when: is_report, order: |said| cut_if(is_report(said)) },
];

fn is_grant(said: &Said) -> bool {
    matches!(said, Said::Down(ToExecutor::Grant { .. }))
}

fn has_started(said: &Said) -> bool {
    matches!(said, Said::Up(ToLeader::Started { .. }))
}

fn is_report(said: &Said) -> bool {
    matches!(said, Said::Up(ToLeader::Reports { .. }))
}

fn is_drain(said: &Said) -> bool {
    matches!(said, Said::Up(ToLeader::Drain { .. }))
}

fn is_ack(said: &Said) -> bool {
    matches!(said, Said::Down(ToExecutor::DrainAck { .. }))
}

fn is_last_ack(said: &Said) -> bool {
    matches!(said, Said::Down(ToExecutor::DrainAck { outstanding: 0 }))
}

fn delay_if(is_it: bool) -> Order {
    if is_it { Order::Delay(UNDER_WAY) } else { Order::Pass }
}

fn cut_if(is_it: bool) -> Order {
    if is_it { Order::CutBefore } else { Order::Pass }
}

/// Causes the fault of the case once for `e1`, and asks it to stop at the point of the case.
async fn stop_at(case: &Case, world: &World, relay: &Relay) -> anyhow::Result<()> {
    let (when, order) = (case.when, case.order);
    let mut done = false;
    relay.rule(move |line| {
        let order = if done || line.executor != "e1" { Order::Pass } else { order(&line.said) };
        done |= order != Order::Pass;
        order
    });
    let come = || async { Ok(relay.lines().iter().any(|line| line.executor == "e1" && when(&line.said))) };
    tokio::try_join!(garbage(world, "a", OBJECTS), async {
        until("the moment to stop", Duration::from_secs(20), come, |come| *come).await?;
        world.ask_to_stop("e1");
        Ok(())
    })?;
    Ok(())
}

/// Returns what the relay saw of the drain: the acknowledged numbers. No grant followed the first of them.
fn ensure_counted_down(lines: &[Line]) -> anyhow::Result<Vec<u32>> {
    let mut counted = Vec::new();
    for line in lines.iter().filter(|line| line.executor == "e1") {
        match &line.said {
            Said::Down(ToExecutor::DrainAck { outstanding }) => counted.push(*outstanding),
            said @ (Said::Up(_) | Said::Down(_) | Said::Refused(_)) => {
                ensure!(counted.is_empty() || !is_grant(said), "a grant after the drain was acknowledged");
            }
        }
    }
    ensure!(counted.is_sorted_by(|one, next| one >= next), "{counted:?}");
    ensure!(counted.last() == Some(&0), "{counted:?}");
    Ok(counted)
}

async fn drained(case: &Case) -> anyhow::Result<String> {
    let (mut world, relay) = led_by_a_behind_relay().await?;
    slow_deletes(&world.api, Duration::from_millis(500));
    world.executor("e1", 4, &["a"]);
    world.executor("e2", 4, &["a"]);
    stop_at(case, &world, &relay).await?;
    let took = until_gone(&world, Duration::from_secs(60)).await?;
    ensure!(took < Duration::from_secs(8), "something waited for an expiry: {took:?}");
    let exit = world.exit("e1").await?;
    ensure!(exit == Exit::Drained, "{exit:?}");
    ensure_deleted_once(&world.api, OBJECTS as u64)?;
    let counted = ensure_counted_down(&relay.lines())?;

    let incarnation = relay.said(|line| match &line.said {
        Said::Up(ToLeader::Hello(hello)) if line.executor == "e1" => Some(hello.incarnation.clone()),
        Said::Up(_) | Said::Down(_) | Said::Refused(_) => None,
    });
    let incarnation = incarnation.first().context("it said hello")?;
    let mut again = Puppet::call(&world.network, "e1", &address("a")).await?;
    again.say(ToLeader::Hello(hello("e1", incarnation, &world.cluster_uid, 4))).await;
    let refusal = again.hear().await.err().context("an incarnation that was drained is let in")?;
    ensure!((refusal.code(), reason(&refusal)) == (Code::FailedPrecondition, "SESSION_DRAINED".into()), "{refusal:?}");
    Ok(format!("the rest took {took:.2?}, outstanding {counted:?}"))
}

#[tokio::test(start_paused = true)]
async fn a_drain_at_any_moment_delays_nothing() -> anyhow::Result<()> {
    for case in &CASES {
        let told = drained(case).await.with_context(|| format!("asked to stop when {}", case.name))?;
        eprintln!("asked to stop when {}: {told}", case.name);
    }
    Ok(())
}
