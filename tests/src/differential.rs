//! Our collector beside upstream's on a real API server: the same worlds, the same users, the same ends.
//!
//! A seed stands for a world and a program of user operations. All seeds of a run live side by side on one control plane. They run
//! once with our collector and twice with upstream's; when nothing is written any more, every object is compared. A seed on which
//! upstream's runs disagree is racy: there our end is held to what any of upstream's runs came to. Whatever upstream did, our end
//! must leave nothing to do by the rules themselves.

mod differences;
mod end;
mod execute;
mod generate;
mod judge;
mod user;
mod world;

#[cfg(test)]
mod tests;

pub use differences::{DIFFERENCES, Difference};
pub use end::{End, State};
pub use execute::{Collector, Course, Pace};
pub use generate::generate;
pub use judge::Judgement;
pub use world::Program;

use crate::controlplane::Binaries;
use crate::service::Programs;
use anyhow::Context;
use execute::execute;
use futures::future::try_join_all;
use judge::judge;
use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

/// Runs of upstream's collector with every seed, side by side: most of their time they wait for quiet.
const UPSTREAM_RUNS: [Pace; 2] = [Pace::Free, Pace::Free];
/// More of them for the seeds that differ, until none does: two that agree at one speed do not make a seed free of races.
const UPSTREAM_RUNS_MORE: [[Pace; 2]; 2] = [[Pace::CollectorFirst, Pace::UsersFirst], [Pace::Free, Pace::UsersFirst]];

/// Everything known of one seed.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub program: Program,
    pub ours: Course,
    pub upstream: Vec<Course>,
    pub judgement: Judgement,
}

/// What a batch came to.
#[derive(Clone, Debug, Default)]
pub struct Report {
    pub outcomes: Vec<Outcome>,
}

impl Report {
    pub fn failures(&self) -> impl Iterator<Item = &Outcome> {
        self.outcomes.iter().filter(|outcome| !outcome.judgement.is_good())
    }
}

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
        let differ = |outcome: &&Outcome| !outcome.judgement.different.is_empty();
        let open: Vec<Program> = outcomes.iter().filter(differ).map(|outcome| outcome.program.clone()).collect();
        if open.is_empty() {
            break;
        }
        let mut more = run_upstream(binaries, paces, &open).await?;
        for outcome in &mut outcomes {
            let courses = more.remove(&outcome.program.seed).unwrap_or_default();
            outcome.upstream.extend(courses);
            outcome.judge();
        }
    }
    Ok(Report { outcomes })
}

/// Runs of upstream's collector side by side; how each seed went in each.
async fn run_upstream(
    binaries: &Binaries,
    paces: [Pace; 2],
    worlds: &[Program],
) -> anyhow::Result<BTreeMap<u64, Vec<Course>>> {
    let runs = paces.map(|pace| execute(binaries, Collector::Upstream(pace), worlds));
    let mut by_seed: BTreeMap<u64, Vec<Course>> = BTreeMap::new();
    for run in try_join_all(runs).await.context("a run with upstream's collector")? {
        for (seed, course) in run {
            by_seed.entry(seed).or_default().push(course);
        }
    }
    Ok(by_seed)
}

impl Outcome {
    fn new(program: Program, ours: Course, upstream: Vec<Course>) -> Outcome {
        let judgement = judge(&program, &ours.end, &ends(&upstream));
        Outcome { program, ours, upstream, judgement }
    }

    /// Again, with more of upstream's runs.
    fn judge(&mut self) {
        self.judgement = judge(&self.program, &self.ours.end, &ends(&self.upstream));
    }

    /// The world, the program, and how each object that matters ended in each run.
    pub fn explain(&self) -> String {
        let mut text = self.program.to_string();
        // Writing to a String cannot fail.
        let _ = self.write_ends(&mut text);
        text
    }

    fn write_ends(&self, text: &mut String) -> fmt::Result {
        let judgement = &self.judgement;
        let mut slots: Vec<usize> = judgement.different.clone();
        slots.extend(judgement.unfinished.keys().chain(judgement.on_purpose.keys()));
        slots.sort_unstable();
        slots.dedup();
        for slot in slots {
            let object = &self.program.objects[slot];
            let why = match (judgement.unfinished.get(&slot), judgement.on_purpose.get(&slot)) {
                (Some(what), _) => format!("unfinished: {what}"),
                (None, Some(name)) => format!("on purpose: {name}"),
                (None, None) => "differs".to_owned(),
            };
            writeln!(text, "  [{slot}] {object}: {why}")?;
            let mut line = |who: &str, end: &End| match end.get(&slot) {
                Some(state) => writeln!(text, "    {who:<24} {state}"),
                None => writeln!(text, "    {who:<24} gone"),
            };
            line("ours", &self.ours.end)?;
            for (number, course) in self.upstream.iter().enumerate() {
                if let Some(before) = &course.before_restart {
                    line(&format!("upstream {number}, not restarted"), before)?;
                }
                line(&format!("upstream {number}"), &course.end)?;
            }
        }
        let courses = std::iter::once(("ours".to_owned(), &self.ours))
            .chain(self.upstream.iter().enumerate().map(|(at, course)| (format!("upstream {at}"), course)));
        let mut shown: Option<&[String]> = None;
        for (who, course) in courses {
            if shown.is_some_and(|shown| shown == course.outcomes) {
                continue;
            }
            shown = Some(&course.outcomes);
            writeln!(text, "  what the operations came to where it was not what they wanted, {who}")?;
            for outcome in course.outcomes.iter().filter(|outcome| !outcome.ends_with(": done")) {
                writeln!(text, "    {outcome}")?;
            }
        }
        Ok(())
    }
}

fn ends(courses: &[Course]) -> Vec<&End> {
    courses.iter().map(|course| &course.end).collect()
}

impl fmt::Display for Report {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let outcomes = &self.outcomes;
        let count = |wanted: fn(&Outcome) -> bool| outcomes.iter().filter(|outcome| wanted(outcome)).count();
        let objects: usize = outcomes.iter().map(|outcome| outcome.judgement.objects).sum();
        let racy = count(|outcome| outcome.judgement.racy);
        let late = count(|outcome| outcome.upstream.iter().any(|course| course.before_restart.is_some()));
        writeln!(
            formatter,
            "differential: {} seeds, {objects} objects compared; {racy} racy; in {late} upstream ended only after a restart; {} failed",
            outcomes.len(),
            self.failures().count(),
        )?;
        for difference in DIFFERENCES {
            let of = |outcome: &Outcome| {
                outcome.judgement.on_purpose.values().filter(|name| **name == difference.name).count()
            };
            let objects: usize = outcomes.iter().map(of).sum();
            writeln!(formatter, "  on purpose: {objects:>4} objects, {} ({})", difference.name, difference.paragraph)?;
        }
        Ok(())
    }
}
