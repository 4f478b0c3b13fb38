//! Streams that break at any message. Nothing waits for an expiry, and nothing is done twice.

use super::{ensure_deleted_once, garbage, led_by_a_behind_relay, slow_deletes, until_gone};
use anyhow::{Context, ensure};
use engine::work::{LeaseId, ToExecutor, ToLeader};
use std::collections::BTreeSet;
use std::time::Duration;
use tests::wire::relay::{Line, Order, Relay, Said};

const OBJECTS: usize = 40;
/// The maximum cost of a broken stream: the time to reconnect. It is far below the 15 s after which the leader recalls
/// a lease.
const THE_WAY_BACK: Duration = Duration::from_secs(2);

type Pick = fn(&Said) -> bool;

/// The message at which the stream breaks, and its number among those of its kind.
struct Cut {
    at: &'static str,
    pick: Pick,
    number: usize,
    order: Order,
}

const PHASES: [(&str, Pick); 10] = [
    ("the hello", |said| matches!(said, Said::Up(ToLeader::Hello(_)))),
    ("the welcome", |said| matches!(said, Said::Down(ToExecutor::Welcome(_)))),
    ("a grant", |said| matches!(said, Said::Down(ToExecutor::Grant { .. }))),
    ("the word that leases have started", |said| matches!(said, Said::Up(ToLeader::Started { .. }))),
    ("a report", |said| matches!(said, Said::Up(ToLeader::Reports { .. }))),
    ("the acknowledgement of a report", |said| matches!(said, Said::Down(ToExecutor::ReportAck { .. }))),
    ("a heartbeat", |said| matches!(said, Said::Up(ToLeader::Heartbeat { .. }))),
    ("the acknowledgement of a heartbeat", |said| matches!(said, Said::Down(ToExecutor::HeartbeatAck { .. }))),
    ("a later grant", |said| matches!(said, Said::Down(ToExecutor::Grant { .. }))),
    ("a later report", |said| matches!(said, Said::Up(ToLeader::Reports { .. }))),
];

fn cuts() -> impl Iterator<Item = Cut> {
    PHASES.into_iter().flat_map(|(at, pick)| {
        let number = if at.starts_with("a later") { 4 } else { 1 };
        [Order::CutBefore, Order::CutAfter].map(|order| Cut { at, pick, number, order })
    })
}

async fn collected(cut: Option<Cut>) -> anyhow::Result<(Duration, Relay)> {
    let (mut world, relay) = led_by_a_behind_relay().await?;
    slow_deletes(&world.api, Duration::from_secs(1));
    if let Some(Cut { pick, number, order, .. }) = cut {
        let mut seen = 0;
        relay.rule(move |line| {
            seen += usize::from(pick(&line.said));
            if seen == number && pick(&line.said) { order } else { Order::Pass }
        });
    }
    world.executor("e", 4, &["a"]);
    garbage(&world, "a", OBJECTS).await?;
    let took = until_gone(&world, Duration::from_secs(60)).await?;
    ensure_deleted_once(&world.api, OBJECTS as u64)?;
    Ok((took, relay))
}

/// An executor that returns keeps its leases, except those whose report the leader already has.
fn ensure_adopted(lines: &[Line]) -> anyhow::Result<usize> {
    let reported: BTreeSet<LeaseId> = lines
        .iter()
        .flat_map(|line| match &line.said {
            Said::Up(ToLeader::Reports { reports, .. }) => reports.iter().map(|report| report.lease).collect(),
            Said::Up(_) | Said::Down(_) | Said::Refused(_) => Vec::new(),
        })
        .collect();
    let mut kept = 0;
    let mut held = Vec::new();
    for line in lines {
        match &line.said {
            Said::Up(ToLeader::Hello(hello)) => held.clone_from(&hello.held),
            Said::Down(ToExecutor::Welcome(welcome)) => {
                for held in held.drain(..) {
                    let lease = held.lease;
                    let adopted = welcome.adopted.contains(&lease);
                    ensure!(adopted || reported.contains(&lease), "{lease} was held, and given to others: {welcome:?}");
                    kept += usize::from(adopted);
                }
            }
            Said::Up(_) | Said::Down(_) | Said::Refused(_) => {}
        }
    }
    Ok(kept)
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_breaks_at_any_message_costs_the_way_back_and_no_more() -> anyhow::Result<()> {
    let (unbroken, _) = collected(None).await?;
    let mut kept = 0;
    for cut in cuts() {
        let what = format!("{:?} {}", cut.order, cut.at);
        let (took, relay) = collected(Some(cut)).await.context(what.clone())?;
        let lines = relay.lines();
        let streams = lines.iter().map(|line| line.stream).max().unwrap_or_default();
        ensure!(streams == 2, "{what}: {streams} streams");
        ensure!(took <= unbroken + THE_WAY_BACK, "{what}: {took:?}, unbroken {unbroken:?}");
        kept += ensure_adopted(&lines).context(what)?;
    }
    ensure!(kept > 20, "leases were kept over broken streams: {kept}");
    eprintln!("{OBJECTS} deletions of 1 s: {unbroken:.2?} unbroken; {kept} leases kept over broken streams");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_breaks_all_the_time_still_carries_work() -> anyhow::Result<()> {
    let (mut world, relay) = led_by_a_behind_relay().await?;
    slow_deletes(&world.api, Duration::from_millis(200));
    let mut messages = 0;
    relay.rule(move |_| {
        messages += 1;
        match messages % 14 {
            0 => Order::CutBefore,
            7 => Order::CutAfter,
            _ => Order::Pass,
        }
    });
    world.executor("e", 4, &["a"]);
    garbage(&world, "a", OBJECTS).await?;
    let took = until_gone(&world, Duration::from_secs(60)).await?;
    ensure_deleted_once(&world.api, OBJECTS as u64)?;
    let streams = relay.lines().iter().map(|line| line.stream).max().unwrap_or_default();
    eprintln!("{OBJECTS} deletions of 200 ms over {streams} streams: {took:.2?}");
    ensure!(streams > 5, "{streams} streams");
    Ok(())
}
