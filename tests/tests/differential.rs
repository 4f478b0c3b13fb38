//! Runs the same worlds under our collector and under upstream's, on real API servers.
//!
//! `SEED=n` (or `n,n,…`) runs and explains these seeds. `SEEDS=n` runs this many in batches. `FIRST_SEED=n` sets the
//! first of them.

use anyhow::{Context as _, ensure};
use std::io::{self, Write as _};
use tests::controlplane::require;
use tests::differential::compare;
use tests::service::Programs;

const SEEDS: u64 = 30;
/// Seeds that failed once run every time. The judge's own tests explain them: two deletions of an owner whose first one
/// orphaned (38, 118), an unblocking by upstream without effect (47), two owners that go at once (185, 258), a user who
/// takes an owner away at that moment (88, 403).
const ONCE_FAILED: [u64; 7] = [38, 47, 88, 118, 185, 258, 403];
/// The number of seeds on one control plane.
const BATCH: usize = 37;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

fn named_seeds() -> anyhow::Result<Option<Vec<u64>>> {
    let Ok(text) = std::env::var("SEED") else { return Ok(None) };
    let seeds = text.split(',').map(|seed| seed.trim().parse::<u64>());
    Ok(Some(seeds.collect::<Result<_, _>>().with_context(|| format!("SEED={text}"))?))
}

fn seeds_of_this_run() -> Vec<u64> {
    let (first, count) = (number("FIRST_SEED"), number("SEEDS"));
    let begin = first.unwrap_or(0);
    let mut seeds: Vec<u64> = (begin..begin + count.unwrap_or(SEEDS)).collect();
    if first.is_none() && count.is_none() {
        seeds.extend(ONCE_FAILED);
    }
    seeds
}

#[tokio::test(flavor = "multi_thread")]
async fn every_object_ends_as_under_upstream() -> anyhow::Result<()> {
    let Some(binaries) = require() else { return Ok(()) };
    let programs = Programs::build()?;
    let named = named_seeds()?;
    let all = named.clone().unwrap_or_else(seeds_of_this_run);
    let mut failed = Vec::new();
    let begun = tokio::time::Instant::now();
    for batch in all.chunks(BATCH) {
        let report = compare(&binaries, &programs, batch.iter().copied()).await?;
        let mut out = io::stderr();
        write!(out, "{report}")?;
        for outcome in report.failures() {
            writeln!(out, "\nFAILED {}", outcome.explain())?;
            failed.push(outcome.summary());
        }
        if named.is_some() {
            for outcome in &report.outcomes {
                writeln!(out, "{}", outcome.explain())?;
            }
        }
        writeln!(out, "{} s so far", begun.elapsed().as_secs())?;
    }
    ensure!(failed.is_empty(), "seeds that end otherwise; replay one with SEED=n\n{}", failed.concat());
    Ok(())
}
