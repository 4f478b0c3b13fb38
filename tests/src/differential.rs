//! Compares our collector with upstream's on a real API server: the same worlds, the same users, the same ends.
//!
//! A seed gives a world and a program of user operations. All seeds of a run are on one control plane, side by side.
//! They run once with our collector and twice with upstream's, and more often where the ends differ. When all writes
//! have stopped, the test compares every object. Its end must be the end of one of upstream's runs. If upstream's runs
//! differ among themselves, our end may be a different one, as long as the rules allow every write of our collector. In
//! any case, each of our writes must obey the rules, and our end must leave no work undone.

mod audit;
mod beside;
mod differences;
mod end;
mod execute;
mod generate;
mod judge;
mod law;
mod record;
mod report;
mod standing;
mod user;
mod world;

#[cfg(test)]
mod tests;

pub use audit::{Audit, Source};
pub use beside::{Beside, Compared};
pub use differences::{DIFFERENCES, Difference};
pub use end::{Change, End, State, Writes};
pub use execute::{Collector, Course, Pace};
pub use generate::generate;
pub use judge::Judgement;
pub use report::{Outcome, Report};
pub use world::{Program, Slot};

use crate::controlplane::Binaries;
use crate::service::Programs;
use anyhow::Context;
use execute::execute;
use futures::future::try_join_all;
use std::collections::BTreeMap;

/// The number of upstream's runs with every seed, side by side. These runs mostly wait until all writes have stopped.
const UPSTREAM_RUNS: &[Pace] = &[Pace::Free, Pace::Free];
/// The maximum number of further runs for seeds whose ends differ. Two runs of the same speed can agree although the
/// seed has a race.
const UPSTREAM_RUNS_MORE: [&[Pace]; 2] = [
    &[Pace::OneWorker, Pace::UsersFirst, Pace::UsersFirstOneWorker, Pace::CollectorFirst],
    &[Pace::Free, Pace::OneWorker, Pace::UsersFirst, Pace::CollectorFirst],
];

/// Runs the seeds once with our collector and at least twice with upstream's, and compares the ends.
pub async fn compare(
    binaries: &Binaries,
    programs: &Programs,
    seeds: impl IntoIterator<Item = u64>,
) -> anyhow::Result<Report> {
    let worlds: Vec<Program> = seeds.into_iter().map(generate).collect();
    let mut ours = execute(binaries, Collector::Ours(programs), &worlds).await.context("the run with ours")?;
    let mut upstream = run_upstream(binaries, UPSTREAM_RUNS, &worlds).await?;
    let mut outcomes = Vec::new();
    for program in worlds {
        let ours = ours.remove(&program.seed).context("every seed has run")?;
        let upstream = upstream.remove(&program.seed).unwrap_or_default();
        outcomes.push(Outcome::new(program, ours, upstream));
    }
    for paces in UPSTREAM_RUNS_MORE {
        let open: Vec<Program> = outcomes
            .iter()
            .filter(|outcome| !outcome.judgement.different.is_empty() || !outcome.judgement.raced.is_empty())
            .map(|outcome| outcome.program.clone())
            .collect();
        if open.is_empty() {
            break;
        }
        let mut more = run_upstream(binaries, paces, &open).await?;
        for outcome in &mut outcomes {
            let courses = more.remove(&outcome.program.seed).unwrap_or_default();
            outcome.add(courses);
        }
    }
    Ok(Report { outcomes })
}

/// Runs upstream's collector several times, side by side. Returns the end of each seed in each run.
async fn run_upstream(
    binaries: &Binaries,
    paces: &[Pace],
    worlds: &[Program],
) -> anyhow::Result<BTreeMap<u64, Vec<Course>>> {
    let runs = paces.iter().map(|&pace| execute(binaries, Collector::Upstream(pace), worlds));
    let mut by_seed: BTreeMap<u64, Vec<Course>> = BTreeMap::new();
    for run in try_join_all(runs).await.context("a run with upstream's collector")? {
        for (seed, course) in run {
            by_seed.entry(seed).or_default().push(course);
        }
    }
    Ok(by_seed)
}
