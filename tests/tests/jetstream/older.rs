//! A stream with more events than a replica keeps in memory.

use super::on_jetstream;
use anyhow::{Context, ensure};
use async_nats::jetstream;
use async_nats::jetstream::message::PublishMessage;
use futures::TryStreamExt as _;
use prost::Message as _;
use proto::decision::v1beta1::{DecisionEvent, ListDecisionsRequest};
use proto::r#type::v1beta1::Term;
use tests::load::until;
use tests::subscriber::{Subscriber, connect};

/// The number of events that a replica keeps, and some more.
const EVENTS: u64 = 65_536 + 3_000;
/// The number of messages in flight.
const AT_ONCE: u64 = 1_000;

/// Writes events as a leader does.
async fn write(url: &str, events: u64) -> anyhow::Result<()> {
    let jetstream = jetstream::new(async_nats::connect(url).await?);
    // The leader creates the stream, and may be ready before the stream exists.
    let first = || async { Ok(jetstream.stream_names().try_next().await?) };
    let name = until("the stream is there", super::SOON, first, Option::is_some).await?.context("it is there")?;
    let subject = name.replacen("ownergraph-decisions-", "ownergraph.decisions.", 1);
    let term = Some(Term { number: 1, ..Term::default() });
    let event_time = Some(prost_types::Timestamp { seconds: 1, nanos: 0 });
    for first in (0..events).step_by(AT_ONCE as usize) {
        let mut receipts = Vec::new();
        for number in first..events.min(first + AT_ONCE) {
            let event = DecisionEvent {
                decision_id: number.to_string(),
                term: term.clone(),
                event_time,
                ..DecisionEvent::default()
            };
            let message =
                PublishMessage::build().header("Ownergraph-Record", "event").payload(event.encode_to_vec().into());
            receipts.push(jetstream.send_publish(subject.clone(), message).await?);
        }
        for receipt in receipts {
            receipt.await?;
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_no_replica_has_in_memory_is_read_from_the_stream() -> anyhow::Result<()> {
    let Some(world) = on_jetstream(&[]).await? else { return Ok(()) };
    let nats = world.nats.as_ref().context("there is a server")?;
    write(&nats.url(), EVENTS).await?;
    let head = nats.last_sequence().await?;
    until("the other has read it", super::SOON, || world.newest(1), |newest| *newest == head).await?;
    let mut subscriber = Subscriber::default();
    world.read(&mut subscriber, 1, head).await?;
    subscriber.check_all()?;

    let mut client = connect(&world.server(1)).await?;
    let (mut request, mut next) = (ListDecisionsRequest { page_size: 1000, ..ListDecisionsRequest::default() }, head);
    loop {
        let page = client.list_decisions(request.clone()).await?.into_inner();
        for event in page.events {
            let at = event.position.context("a step has a position")?.sequence;
            ensure!(at == next, "{at} instead of {next}");
            next -= 1;
        }
        if page.next_page_token.is_empty() {
            break;
        }
        request.page_token = page.next_page_token;
    }
    ensure!(next == 0, "the list ends with {next}");
    Ok(())
}
