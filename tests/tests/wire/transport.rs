//! The HTTP/2 settings of both sides: windows, streams and keepalives.

use super::led_by_a;
use anyhow::{Context, ensure};
use std::time::Duration;
use tests::wire::frames::{ACK, Frame, GOAWAY, Opening, PING, PREFACE, SETTINGS, opening};
use tests::wire::network::{Network, Pipe};
use tests::wire::world::address;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::Instant;

const STREAM_WINDOW: u32 = 1024 * 1024;
const CONNECTION_WINDOW: u32 = 16 * 1024 * 1024;
const PING_AFTER: Duration = Duration::from_secs(20);
const GIVEN_UP_AFTER: Duration = Duration::from_secs(30);
/// The granularity of timers.
const GRAIN: Duration = Duration::from_millis(50);

/// Opens a connection to `a` whose peer has sent its mandatory frames.
async fn greeted(network: &Network) -> anyhow::Result<Pipe> {
    let (mut pipe, _) = network.dial("peer", &address("a")).await?;
    pipe.write_all(PREFACE).await?;
    Frame::new(SETTINGS, 0, 0, []).write(&mut pipe).await?;
    Frame::new(SETTINGS, ACK, 0, []).write(&mut pipe).await?;
    Ok(pipe)
}

/// Returns the times of the ping and of the end, for a peer that reads and sends nothing more. It answers `answers`
/// pings before that.
async fn keepalive(pipe: &mut Pipe, mut answers: usize) -> anyhow::Result<(Vec<Duration>, Duration)> {
    let began = Instant::now();
    let mut pings = Vec::new();
    while let Ok(Some(frame)) = Frame::read(pipe).await {
        if frame.kind == GOAWAY {
            break;
        }
        if frame.kind == PING && frame.flags & ACK == 0 {
            pings.push(began.elapsed());
            if answers > 0 {
                answers -= 1;
                Frame::new(PING, ACK, 0, frame.payload).write(pipe).await?;
            }
        }
    }
    Ok((pings, began.elapsed()))
}

fn about(time: Duration, wanted: Duration) -> bool {
    // The test read the opening for a second.
    time.abs_diff(wanted) <= GRAIN + Duration::from_secs(1)
}

#[tokio::test(start_paused = true)]
async fn the_server_has_its_windows_and_looks_after_its_connections() -> anyhow::Result<()> {
    let world = led_by_a().await?;
    let mut pipe = greeted(&world.network).await?;
    let said = opening(&mut pipe).await?;
    let wanted = Opening {
        stream_window: STREAM_WINDOW,
        connection_window: CONNECTION_WINDOW,
        max_concurrent_streams: Some(256),
    };
    ensure!(said == wanted, "{said:?}");
    let (pings, end) = keepalive(&mut pipe, 0).await?;
    ensure!(pings.len() == 1 && about(pings[0], PING_AFTER) && about(end, GIVEN_UP_AFTER), "{pings:?} {end:?}");
    // The server pings a peer again after each answer.
    let mut pipe = greeted(&world.network).await?;
    let (pings, end) = keepalive(&mut pipe, 2).await?;
    ensure!(pings.len() == 3 && about(end, 2 * PING_AFTER + GIVEN_UP_AFTER), "{pings:?} {end:?}");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn an_executor_has_its_windows_and_looks_after_its_connection() -> anyhow::Result<()> {
    let network = Network::default();
    let mut connections = network.listen("peer:7450");
    let (near, _) = network.dial("e", "peer:7450").await?;
    let _channel = executor_service::connect_over("peer:7450", near).await.map_err(anyhow::Error::msg)?;
    let mut pipe = connections.recv().await.context("the connection")?.pipe;
    let mut preface = [0; PREFACE.len()];
    pipe.read_exact(&mut preface).await?;
    ensure!(preface == PREFACE, "{preface:?}");
    Frame::new(SETTINGS, 0, 0, []).write(&mut pipe).await?;
    let said = opening(&mut pipe).await?;
    let windows = (said.stream_window, said.connection_window);
    ensure!(windows == (STREAM_WINDOW, CONNECTION_WINDOW), "{said:?}");
    let (pings, end) = keepalive(&mut pipe, 0).await?;
    ensure!(pings.len() == 1 && about(pings[0], PING_AFTER) && about(end, GIVEN_UP_AFTER), "{pings:?} {end:?}");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn an_executor_has_one_connection_and_nothing_but_work_on_it() -> anyhow::Result<()> {
    let mut world = led_by_a().await?;
    world.executor("e", 4, &["a"]);
    world.until_sessions("a", 1).await?;
    tokio::time::sleep(Duration::from_secs(120)).await;
    let dials = world.network.dials();
    let of_e = dials.iter().filter(|dial| dial.from == "e" && dial.to == address("a")).count();
    ensure!(of_e == 1, "{of_e} connections");
    Ok(())
}
