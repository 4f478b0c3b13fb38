//! Disturbs three graph services and four executors on a real API server all the time.
//!
//! `SEED=n` replays a schedule of faults. `CHAOS_SECONDS=n` sets the duration. `CHAOS_LEASES=default` uses the
//! services' own durations.

use anyhow::ensure;
use std::io::{self, Write as _};
use std::time::Duration;
use tests::chaos::{Leases, Options, run};
use tests::controlplane::require;
use tests::service::Programs;

const SECONDS: u64 = 60;
const START_SEED: u64 = 1;
/// The faults per minute and the objects per second that the slowest machine achieves.
const FAULTS_PER_MINUTE_MIN: u64 = 8;
const OBJECTS_PER_SECOND_MIN: u64 = 5;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_and_no_other_object_is_touched_while_everything_breaks() -> anyhow::Result<()> {
    let _turn = crate::turn().await?;
    let Some(binaries) = require() else { return Ok(()) };
    let programs = Programs::build()?;
    let leases = match std::env::var("CHAOS_LEASES").as_deref() {
        Ok("default") => Leases::DEFAULT,
        Ok(_) | Err(_) => Leases::SHORT,
    };
    let seconds = number("CHAOS_SECONDS").unwrap_or(SECONDS);
    let seed = number("SEED").unwrap_or(START_SEED);
    let figures = run(&binaries, &programs, Options { seed, lasts: Duration::from_secs(seconds), leases }).await?;
    writeln!(io::stderr(), "{figures}")?;
    ensure!(figures.faults() as u64 >= FAULTS_PER_MINUTE_MIN * seconds / 60, "too little was broken: {figures}");
    ensure!(figures.objects() >= OBJECTS_PER_SECOND_MIN * seconds, "too little was collected: {figures}");
    Ok(())
}
