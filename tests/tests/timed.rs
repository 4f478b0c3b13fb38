//! The tests whose outcome depends on time: promises with a deadline, elections with short leases, and worlds that need
//! most of a machine. Only a few of them run at a time, however many threads there are.

mod chaos;
mod console;
mod deposed;
mod e2e;
mod isolation;
mod jetstream;
mod lies;
mod pause;
mod scaling;
mod slow;
mod takeover;
#[path = "tls/main.rs"]
mod tls;

use anyhow::Context as _;
use tokio::sync::{Semaphore, SemaphorePermit};

/// The number of tests at a time. Tests with a lot of work are late on two cores where more of them run.
const AT_A_TIME: usize = 2;

static TURNS: Semaphore = Semaphore::const_new(AT_A_TIME);

/// Waits for a turn. The test runs as long as the value exists.
async fn turn() -> anyhow::Result<SemaphorePermit<'static>> {
    TURNS.acquire().await.context("the semaphore is never closed")
}

/// Waits for all turns, for a test that takes the whole machine.
async fn every_turn() -> anyhow::Result<SemaphorePermit<'static>> {
    TURNS.acquire_many(AT_A_TIME as u32).await.context("the semaphore is never closed")
}
