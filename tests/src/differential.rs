//! Our collector beside upstream's on a real API server: the same worlds, the same users, the same ends.
//!
//! A seed stands for a world and a program of user operations. All seeds of a run live side by side on one control plane. They run
//! once with our collector and twice with upstream's, and oftener where they differ; when nothing is written any more, every object
//! is compared. It has to end as in one of upstream's runs. Where upstream's runs go different ways, it may end in another, as long
//! as the rules allow every single write of our collector. Whatever upstream did, each of our writes must be by the rules, and our
//! end must leave nothing to do by them.

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

/// Runs of upstream's collector with every seed, side by side: most of their time they wait for quiet.
const UPSTREAM_RUNS: &[Pace] = &[Pace::Free, Pace::Free];
/// More of them for the seeds that differ, until none does: two that agree at one speed do not make a seed free of races.
const UPSTREAM_RUNS_MORE: [&[Pace]; 2] = [
    &[Pace::OneWorker, Pace::UsersFirst, Pace::UsersFirstOneWorker, Pace::CollectorFirst],
    &[Pace::Free, Pace::OneWorker, Pace::UsersFirst, Pace::CollectorFirst],
];

/// Runs the seeds once with ours and at least twice with upstream's collector, and compares.
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

/// Runs of upstream's collector side by side; how each seed went in each.
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
