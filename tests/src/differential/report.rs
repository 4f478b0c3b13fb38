//! The result of a batch, and its text form.

use super::differences::DIFFERENCES;
use super::end::{Change, End};
use super::execute::Course;
use super::judge::{Judgement, judge};
use super::world::{Program, Slot};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write as _};

/// The runs of one seed, and their comparison.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub program: Program,
    pub ours: Course,
    pub upstream: Vec<Course>,
    pub judgement: Judgement,
}

/// The result of a batch.
#[derive(Clone, Debug, Default)]
pub struct Report {
    pub outcomes: Vec<Outcome>,
}

impl Report {
    pub fn failures(&self) -> impl Iterator<Item = &Outcome> {
        self.outcomes.iter().filter(|outcome| !outcome.judgement.is_good())
    }

    fn sum(&self, of: impl Fn(&Judgement) -> usize) -> usize {
        self.outcomes.iter().map(|outcome| of(&outcome.judgement)).sum()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let racy = self.sum(|judgement| usize::from(judgement.racy));
        let is_late = |outcome: &&Outcome| outcome.upstream.iter().any(|course| course.before_restart.is_some());
        writeln!(
            formatter,
            "differential: {} seeds, {} objects compared; {racy} racy; in {} upstream ended only after a restart; {} failed",
            self.outcomes.len(),
            self.sum(|judgement| judgement.objects),
            self.outcomes.iter().filter(is_late).count(),
            self.failures().count(),
        )?;
        writeln!(
            formatter,
            "  against the rules: {} objects, with upstream {} in {} runs",
            self.sum(|judgement| judgement.breaches.len()),
            self.sum(|judgement| judgement.breaches_upstream),
            self.outcomes.iter().map(|outcome| outcome.upstream.len()).sum::<usize>(),
        )?;
        let has_raced = self.outcomes.iter().filter(|outcome| !outcome.judgement.raced.is_empty());
        writeln!(
            formatter,
            "  by the rules, but unlike all of upstream's runs, which raced or put objects off: {} objects, in seeds {:?}",
            self.sum(|judgement| judgement.raced.len()),
            has_raced.map(|outcome| outcome.program.seed).collect::<Vec<u64>>(),
        )?;
        for difference in DIFFERENCES {
            let (name, paragraph) = (difference.name, difference.paragraph);
            let objects =
                self.sum(|judgement| judgement.on_purpose.values().filter(|purpose| **purpose == name).count());
            writeln!(formatter, "  on purpose: {objects:>4} objects, {name} ({paragraph})")?;
        }
        Ok(())
    }
}

impl Outcome {
    pub(super) fn new(program: Program, ours: Course, upstream: Vec<Course>) -> Outcome {
        let judgement = judge(&program, &ours, &upstream);
        Outcome { program, ours, upstream, judgement }
    }

    /// Adds runs of upstream, and judges again.
    pub(super) fn add(&mut self, upstream: Vec<Course>) {
        self.upstream.extend(upstream);
        self.judgement = judge(&self.program, &self.ours, &self.upstream);
    }

    /// Returns the program, and the course and the end of each object with a finding in each run.
    pub fn explain(&self) -> String {
        let mut text = self.program.to_string();
        // Writing to a String cannot fail.
        let _ = self.write_ends(&mut text);
        let _ = self.write_changes(&mut text);
        let _ = self.write_operations(&mut text);
        text
    }

    /// Returns the seed, and the end of each object with a finding in each run.
    pub fn summary(&self) -> String {
        let mut text = format!("seed {}\n", self.program.seed);
        // Writing to a String cannot fail.
        let _ = self.write_ends(&mut text);
        text
    }

    fn write_ends(&self, text: &mut String) -> fmt::Result {
        for (slot, why) in self.findings() {
            writeln!(text, "  [{slot}] {}: {}", self.program.objects[slot], why.join("; "))?;
            let mut line = |who: &str, end: &End| match end.get(&slot) {
                Some(state) => writeln!(text, "    {who:<24} {state}"),
                None => writeln!(text, "    {who:<24} gone"),
            };
            line("ours", self.ours.end())?;
            for (number, course) in self.upstream.iter().enumerate() {
                if let Some(before) = &course.before_restart {
                    line(&format!("upstream {number}, not restarted"), before)?;
                }
                line(&format!("upstream {number}"), course.end())?;
            }
        }
        Ok(())
    }

    /// Returns the findings about each object.
    fn findings(&self) -> BTreeMap<Slot, Vec<String>> {
        let Judgement { different, raced, on_purpose, unfinished, breaches, .. } = &self.judgement;
        let mut findings: BTreeMap<Slot, Vec<String>> = BTreeMap::new();
        let mut add = |slot: &Slot, what: String| findings.entry(*slot).or_default().push(what);
        different.iter().for_each(|slot| add(slot, "differs".to_owned()));
        raced.iter().for_each(|slot| add(slot, "differs by the rules, and upstream raced or put it off".to_owned()));
        on_purpose.iter().for_each(|(slot, name)| add(slot, format!("on purpose: {name}")));
        unfinished.iter().for_each(|(slot, what)| add(slot, format!("unfinished: {what}")));
        breaches.iter().for_each(|(slot, what)| add(slot, format!("against the rules: {what}")));
        findings
    }

    /// Writes the changes of these objects and of their owners, in our run and in the first of upstream's.
    fn write_changes(&self, text: &mut String) -> fmt::Result {
        let mut shown: BTreeSet<Slot> = self.findings().into_keys().collect();
        if shown.is_empty() {
            return Ok(());
        }
        let owners = |slot: &Slot| self.program.references_of(*slot).map(|reference| reference.owner);
        let owners: Vec<Slot> = shown.iter().flat_map(owners).collect();
        shown.extend(owners);
        for (who, course) in self.courses().take(2) {
            writeln!(text, "  changes, {who}")?;
            for Change { revision, slot, state } in course.changes.iter().filter(|change| shown.contains(&change.slot))
            {
                match state {
                    Some(state) => writeln!(text, "    {revision} [{slot}] {state}")?,
                    None => writeln!(text, "    {revision} [{slot}] gone")?,
                }
            }
        }
        Ok(())
    }

    fn write_operations(&self, text: &mut String) -> fmt::Result {
        let mut shown: Option<&[String]> = None;
        for (who, course) in self.courses() {
            if shown.is_some_and(|shown| shown == course.outcomes) {
                continue;
            }
            shown = Some(&course.outcomes);
            writeln!(text, "  operations that were not done, {who}")?;
            for outcome in course.outcomes.iter().filter(|outcome| !outcome.ends_with(": done")) {
                writeln!(text, "    {outcome}")?;
            }
        }
        Ok(())
    }

    fn courses(&self) -> impl Iterator<Item = (String, &Course)> {
        let upstream = self.upstream.iter().enumerate().map(|(number, course)| (format!("upstream {number}"), course));
        std::iter::once(("ours".to_owned(), &self.ours)).chain(upstream)
    }
}
