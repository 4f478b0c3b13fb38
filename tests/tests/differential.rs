//! The same worlds under our collector and under upstream's, on real API servers.
//!
//! `SEED=n` runs one seed, `SEEDS=n` as many, in batches, `FIRST_SEED=n` from there on.

use anyhow::ensure;
use std::io::{self, Write as _};
use tests::controlplane::require;
use tests::differential::compare;
use tests::service::Programs;

const SEEDS: u64 = 30;
/// Seeds that share a control plane.
const BATCH: u64 = 30;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

#[tokio::test(flavor = "multi_thread")]
async fn every_object_ends_as_under_upstream() -> anyhow::Result<()> {
    let Some(binaries) = require() else { return Ok(()) };
    let programs = Programs::build()?;
    let (first, count) = match number("SEED") {
        Some(seed) => (seed, 1),
        None => (number("FIRST_SEED").unwrap_or(0), number("SEEDS").unwrap_or(SEEDS)),
    };
    let all: Vec<u64> = (first..first + count).collect();
    let mut failed = Vec::new();
    let begun = tokio::time::Instant::now();
    for batch in all.chunks(usize::try_from(BATCH)?) {
        let report = compare(&binaries, &programs, batch.iter().copied()).await?;
        let mut out = io::stderr();
        write!(out, "{report}")?;
        for outcome in report.failures() {
            writeln!(out, "\nFAILED {}", outcome.explain())?;
            failed.push(outcome.program.seed);
        }
        if number("SEED").is_some() {
            for outcome in &report.outcomes {
                writeln!(out, "{}", outcome.explain())?;
            }
        }
        writeln!(out, "{} s so far", begun.elapsed().as_secs())?;
    }
    ensure!(failed.is_empty(), "seeds that end otherwise: {failed:?}; replay one with SEED=n");
    Ok(())
}
