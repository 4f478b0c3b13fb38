//! The tests whose outcome depends on time: promises with a deadline, elections with short leases, and worlds that need
//! most of a machine. Only a few of them run at a time, however many threads there are.

mod chaos;
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

/// The number of tests at a time. A test mostly waits, so two cores have enough time for this many.
const AT_A_TIME: usize = 3;

/// Waits for a turn. The test runs as long as the value exists.
async fn turn() -> anyhow::Result<SemaphorePermit<'static>> {
    static TURNS: Semaphore = Semaphore::const_new(AT_A_TIME);
    TURNS.acquire().await.context("the semaphore is never closed")
}
