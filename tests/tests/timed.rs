//! The tests whose outcome depends on time: promises with a deadline, elections with short leases, and worlds that need most of a machine.
//! A few run at a time, however many threads there are.

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

/// Most of a test is waiting. Two cores carry so many without haste.
const AT_A_TIME: usize = 3;

/// Waits until one more test may run; the test runs while this is kept.
async fn turn() -> anyhow::Result<SemaphorePermit<'static>> {
    static TURNS: Semaphore = Semaphore::const_new(AT_A_TIME);
    TURNS.acquire().await.context("the semaphore is never closed")
}
