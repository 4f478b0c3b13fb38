//! Subscribers to the decision log. A subscriber that never reads costs the others nothing, and the service little.

use super::{garbage, led_by_a, reason, until_gone};
use anyhow::{Context, bail, ensure};
use proto::decision::v1beta1::decision_service_client::DecisionServiceClient;
use proto::decision::v1beta1::watch_decisions_request::Start;
use proto::decision::v1beta1::watch_decisions_response::Event;
use proto::decision::v1beta1::{Position, WatchDecisionsRequest, WatchDecisionsResponse};
use std::time::Duration;
use tests::wire::puppet;
use tests::wire::world::{World, address};
use tokio::task::JoinSet;
use tonic::transport::Channel;
use tonic::{Code, Streaming};
use tonic_types::StatusExt;

const READERS: usize = 50;
const OBJECTS: usize = 1000;
/// The events of each object: proposed, leased and succeeded.
const EVENTS: u64 = 3 * OBJECTS as u64;
/// The maximum time for which a stream may leave a message unread, and a little more.
const UNREAD: Duration = Duration::from_secs(61);
/// The HTTP/2 bytes that wait for the subscriber that does not read.
const WINDOW: u32 = 16 * 1024;

async fn watch(channel: Channel, start: Start) -> anyhow::Result<Streaming<WatchDecisionsResponse>> {
    let request = WatchDecisionsRequest { start: Some(start), ..WatchDecisionsRequest::default() };
    Ok(DecisionServiceClient::new(channel).watch_decisions(request).await?.into_inner())
}

/// Reads everything after this position until it has all events. Returns the last position. The log has no holes.
async fn read(mut stream: Streaming<WatchDecisionsResponse>, mut seen: u64) -> anyhow::Result<u64> {
    while let Some(answer) = stream.message().await? {
        seen = after(seen, answer)?;
        if seen >= EVENTS {
            return Ok(seen);
        }
    }
    bail!("the stream ended well at {seen}")
}

fn after(mut seen: u64, answer: WatchDecisionsResponse) -> anyhow::Result<u64> {
    let Some(Event::Batch(batch)) = answer.event else { return Ok(seen) };
    for event in batch.events {
        let at = event.position.context("an event of the log has a position")?.sequence;
        ensure!(at == seen + 1, "{at} came after {seen}");
        seen = at;
    }
    Ok(seen)
}

async fn dial(world: &World) -> anyhow::Result<Channel> {
    Ok(puppet::channel(&world.network, "reader", &address("a")).await?.0)
}

#[tokio::test(start_paused = true)]
async fn one_that_never_reads_is_told_where_it_was_and_fifty_others_see_everything() -> anyhow::Result<()> {
    let mut world = led_by_a().await?;
    let (narrow, _link) = puppet::channel_with_window(&world.network, "lazy", &address("a"), WINDOW).await?;
    let mut lazy = watch(narrow, Start::Oldest(true)).await?;
    let mut readers = JoinSet::new();
    for _ in 0..READERS {
        readers.spawn(read(watch(dial(&world).await?, Start::Oldest(true)).await?, 0));
    }
    world.executor("good", 16, &["a"]);
    garbage(&world, "a", OBJECTS).await?;
    until_gone(&world, Duration::from_secs(60)).await?;
    while let Some(seen) = readers.join_next().await {
        ensure!(seen?? >= EVENTS);
    }
    tokio::time::sleep(UNREAD).await;
    // The data that waited for it come first. They are few.
    let mut seen = 0;
    let told = loop {
        match lazy.message().await {
            Ok(Some(answer)) => seen = after(seen, answer)?,
            Ok(None) => bail!("the stream ended well at {seen}"),
            Err(status) => break status,
        }
    };
    ensure!((told.code(), reason(&told).as_str()) == (Code::ResourceExhausted, "SLOW_CONSUMER"), "{told:?}");
    let details = told.get_error_details();
    let metadata = &details.error_info().context("an error has a reason")?.metadata;
    let (log_id, last) = metadata.get("logId").zip(metadata.get("lastSequence")).context("its last position")?;
    ensure!(*last == seen.to_string(), "it saw events up to {seen}, and is told of {last}");
    eprintln!("for the one that never read, {seen} of {EVENTS} events were kept");
    ensure!(seen < EVENTS / 2, "{seen} of {EVENTS} events were kept for it");
    // The subscriber may continue at its position.
    let after = Start::After(Position { log_id: log_id.clone(), sequence: seen });
    ensure!(read(watch(dial(&world).await?, after).await?, seen).await? >= EVENTS);
    Ok(())
}
