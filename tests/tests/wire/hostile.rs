//! Peers that flood, never read, send garbage or send nothing: a named limit stops each of them, and other clients are
//! not affected.

use super::{ensure_deleted_once, garbage, led_by_a, reason, until_gone};
use anyhow::{Context, ensure};
use engine::work::ToLeader;
use futures::StreamExt;
use http::uri::PathAndQuery;
use std::time::Duration;
use tests::wire::frames::{CONTINUATION, Frame, HEADERS, PREFACE, SETTINGS};
use tests::wire::network::Pipe;
use tests::wire::puppet::{self, Puppet, hello};
use tests::wire::raw::Raw;
use tests::wire::world::{World, address};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::Instant;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};
use tonic_types::StatusExt;

const OBJECTS: usize = 40;
/// The number of messages in a flood, which exceeds all bounds together.
const FLOOD: u64 = 40_000;
/// The maximum number of waiting messages from one executor to the leader, and from the leader to one executor.
const TO_LEADER_MAX: &str = "256";
const TO_EXECUTOR_MAX: &str = "1024";

/// Checks the other clients during an attack: a new executor gets work, and does it as fast as before.
async fn ensure_unaffected(world: &mut World, meanwhile: &str) -> anyhow::Result<()> {
    let began = Instant::now();
    world.executor("good", 4, &["a"]);
    garbage(world, "a", OBJECTS).await?;
    until_gone(world, Duration::from_secs(60)).await?;
    let took = began.elapsed();
    ensure!(took < Duration::from_secs(3), "{meanwhile}: {took:?}");
    ensure_deleted_once(&world.api, OBJECTS as u64)
}

fn ensure_limited(status: &Status, limit: &str) -> anyhow::Result<()> {
    ensure!((status.code(), reason(status)) == (Code::ResourceExhausted, "LIMIT_EXCEEDED".into()), "{status:?}");
    let details = status.get_error_details();
    let said = details.error_info().and_then(|info| info.metadata.get("limit")).context("the limit")?;
    ensure!(said == limit, "{status:?}");
    Ok(())
}

fn heartbeat(sequence: u64) -> proto::work::v1beta1::StreamWorkRequest {
    ToLeader::Heartbeat { sequence, started: 0, buffered: 0 }.into()
}

#[tokio::test(start_paused = true)]
async fn a_writer_that_floods_loses_its_stream() -> anyhow::Result<()> {
    let mut world = led_by_a().await?;
    let (channel, _) = puppet::channel(&world.network, "flood", &address("a")).await?;
    let hello = ToLeader::Hello(hello("flood", "1", &world.cluster_uid, 4)).into();
    // The peer sends all messages at once, so that one frame has thousands of them.
    let flood = futures::stream::iter(std::iter::once(hello).chain((1..=FLOOD).map(heartbeat)));
    let mut client = proto::work::v1beta1::work_service_client::WorkServiceClient::new(channel);
    let mut replies = client.stream_work(flood.chain(futures::stream::pending())).await?.into_inner();
    let mut heard = 0;
    let status = loop {
        match replies.message().await {
            Ok(Some(_)) => heard += 1,
            Ok(None) => anyhow::bail!("ended well after {heard} messages"),
            Err(status) => break status,
        }
    };
    ensure_limited(&status, TO_LEADER_MAX)?;
    ensure!(heard < FLOOD, "{heard} messages were answered");
    ensure_unaffected(&mut world, "after a flood").await
}

/// A peer with many more open questions than it may have waiting answers. It has read nothing, and its HTTP/2 window is
/// small.
async fn deaf(world: &World) -> anyhow::Result<Puppet> {
    let channel = puppet::channel_with_window(&world.network, "deaf", &address("a"), 16 * 1024).await?;
    let deaf = Puppet::over(channel).await?;
    deaf.say(ToLeader::Hello(hello("deaf", "1", &world.cluster_uid, 1024))).await;
    for sequence in 1..=4_000 {
        deaf.requests.send(heartbeat(sequence)).await?;
        tokio::task::yield_now().await;
    }
    Ok(deaf)
}

/// Reads the waiting messages of the peer. Returns them with the end of the stream.
async fn listen(deaf: &mut Puppet) -> anyhow::Result<(u64, Status)> {
    let mut heard = 0;
    loop {
        match deaf.hear().await {
            Ok(Some(_)) => heard += 1,
            Ok(None) => anyhow::bail!("ended well after {heard} messages"),
            Err(status) => return Ok((heard, status)),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_does_not_read_loses_its_stream() -> anyhow::Result<()> {
    let mut world = led_by_a().await?;
    let mut late = deaf(&world).await?;
    ensure_unaffected(&mut world, "beside a peer that does not read").await?;
    let (heard, status) = listen(&mut late).await?;
    eprintln!("for a peer that did not read, {heard} of 4000 answers were kept");
    ensure_limited(&status, TO_EXECUTOR_MAX)?;
    ensure!(heard < 1024 + 512, "{heard} answers were kept");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_never_reads_loses_its_connection() -> anyhow::Result<()> {
    let world = led_by_a().await?;
    let mut never = deaf(&world).await?;
    tokio::time::sleep(Duration::from_secs(31)).await;
    let (heard, status) = listen(&mut never).await?;
    ensure!(heard < 512 && reason(&status).is_empty(), "{heard} answers were still to come: {status:?}");
    Ok(())
}

/// Returns the end of a stream whose first message is these bytes.
async fn stream_of(channel: Channel, bytes: Vec<u8>) -> Status {
    let mut client = tonic::client::Grpc::new(channel);
    let path = PathAndQuery::from_static("/ownergraph.work.v1beta1.WorkService/StreamWork");
    let messages = futures::stream::iter([bytes]).chain(futures::stream::pending());
    let called = async {
        client.ready().await.map_err(|error| Status::unknown(error.to_string()))?;
        let mut replies = client.streaming(Request::new(messages), path, Raw).await?.into_inner();
        while replies.message().await?.is_some() {}
        Ok::<(), Status>(())
    };
    called.await.err().unwrap_or_else(|| Status::ok("ended well"))
}

#[tokio::test(start_paused = true)]
async fn rubbish_and_huge_messages_end_only_their_stream() -> anyhow::Result<()> {
    let mut world = led_by_a().await?;
    let (mut good, mut violations) = (Puppet::call(&world.network, "good", &address("a")).await?, Vec::new());
    good.greet(hello("patient", "1", &world.cluster_uid, 0)).await?;
    let huge = [vec![0x0a], vec![0xff; 5 * 1024 * 1024]].concat();
    // One heartbeat has a wrong length, and one text is not UTF-8.
    for rubbish in [vec![0xff; 100], vec![0x12, 0x7f], vec![0x0a, 0x04, 0x0a, 0x02, 0x0a, 0xff], huge] {
        let (channel, _) = puppet::channel(&world.network, "rubbish", &address("a")).await?;
        violations.push(stream_of(channel, rubbish).await);
    }
    for status in violations {
        let told = (status.code(), reason(&status));
        ensure!(told == (Code::InvalidArgument, "STREAM_PROTOCOL_VIOLATION".into()), "{status:?}");
    }
    let (channel, _) = puppet::channel(&world.network, "rubbish", &address("a")).await?;
    for (path, body, code) in [
        ("/ownergraph.graph.v1beta1.GraphService/GetObject", vec![0xff; 100], Code::Internal),
        ("/ownergraph.graph.v1beta1.GraphService/GetObject", vec![0; 5 * 1024 * 1024], Code::OutOfRange),
        ("/ownergraph.graph.v1beta1.GraphService/NoSuchCall", Vec::new(), Code::Unimplemented),
        ("/no.such.Service/Call", Vec::new(), Code::Unimplemented),
    ] {
        let mut client = tonic::client::Grpc::new(channel.clone());
        client.ready().await?;
        let answer = client.unary(Request::new(body), PathAndQuery::from_static(path), Raw).await;
        let status = answer.err().context("rubbish is answered")?;
        ensure!(status.code() == code, "{path}: {status:?}");
    }
    good.say(ToLeader::Heartbeat { sequence: 1, started: 0, buffered: 0 }).await;
    let acknowledged = |message| matches!(message, engine::work::ToExecutor::HeartbeatAck { .. }).then_some(());
    good.await_that(acknowledged).await?;
    ensure_unaffected(&mut world, "after rubbish").await
}

#[tokio::test(start_paused = true)]
async fn a_thousand_silent_streams_leave_room_for_who_has_something_to_say() -> anyhow::Result<()> {
    for connections in [1, 8] {
        let mut world = led_by_a().await?;
        let mut calls = tokio::task::JoinSet::new();
        for _ in 0..connections {
            let (channel, _) = puppet::channel(&world.network, "many", &address("a")).await?;
            for _ in 0..1000 / connections {
                let mut client = proto::work::v1beta1::work_service_client::WorkServiceClient::new(channel.clone());
                calls.spawn(async move {
                    let mut replies = client.stream_work(futures::stream::pending()).await?.into_inner();
                    replies.message().await.map(drop)
                });
            }
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        ensure_unaffected(&mut world, "beside a thousand streams").await?;
        let mut reasons = std::collections::BTreeMap::<String, usize>::new();
        while let Some(ended) = calls.join_next().await {
            let status = ended?.err().context("a silent stream ended well")?;
            *reasons.entry(reason(&status)).or_default() += 1;
        }
        eprintln!("1000 silent streams on {connections} connections ended as {reasons:?}");
        let known = ["LIMIT_EXCEEDED", "STREAM_PROTOCOL_VIOLATION"];
        ensure!(reasons.keys().all(|reason| known.contains(&reason.as_str())), "{reasons:?}");
    }
    Ok(())
}

/// Returns the time until the server closes the connection of a peer that continues reading.
async fn closed_after(pipe: &mut Pipe) -> Duration {
    let began = Instant::now();
    let mut bytes = [0; 4096];
    while pipe.read(&mut bytes).await.is_ok_and(|read| read > 0) {}
    began.elapsed()
}

#[tokio::test(start_paused = true)]
async fn connections_that_never_get_anywhere_are_closed() -> anyhow::Result<()> {
    let mut world = led_by_a().await?;
    // The headers never end.
    let begun = Frame::new(HEADERS, 0, 1, [0x83, 0x86]);
    let mut settled = PREFACE.to_vec();
    Frame::new(SETTINGS, 0, 0, []).write(&mut settled).await?;
    let mut headers = settled.clone();
    begun.write(&mut headers).await?;
    for (what, said, limit) in [
        ("nothing", Vec::new(), 10),
        ("half a preface", PREFACE[..12].to_vec(), 10),
        ("another protocol", b"GET / HTTP/1.1\r\nhost: a\r\n".to_vec(), 0),
        ("a preface alone", PREFACE.to_vec(), 30),
        ("settings alone", settled.clone(), 30),
        ("headers that never end", headers.clone(), 30),
    ] {
        let (mut pipe, _) = world.network.dial("slow", &address("a")).await?;
        pipe.write_all(&said).await?;
        let within = Duration::from_secs(limit + 1);
        let closed = tokio::time::timeout(within, closed_after(&mut pipe)).await;
        eprintln!("a peer that says {what} is closed after {closed:.2?}");
        ensure!(closed.is_ok(), "a peer that says {what} is still there after {within:?}");
    }
    // The continuation of the headers never ends.
    let (mut pipe, _) = world.network.dial("slow", &address("a")).await?;
    pipe.write_all(&headers).await?;
    let more = Frame::new(CONTINUATION, 0, 1, [[0x00, 0x01, b'x', 0x7f, 0x00].to_vec(), vec![b'y'; 127]].concat());
    let mut written = 0;
    while written < 64 * 1024 * 1024 && more.write(&mut pipe).await.is_ok() {
        written += more.payload.len();
    }
    eprintln!("headers without an end were cut after {written} bytes");
    ensure!(written < 1024 * 1024, "{written} bytes of headers were taken");
    ensure_unaffected(&mut world, "after slow peers").await
}
