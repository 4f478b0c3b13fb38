//! What a run went through, for the floor below which it has proven nothing.

use engine::leader::Event;
use engine::work::{ActionKind, Outcome};
use std::collections::BTreeMap;
use std::fmt;

/// Counts over any number of worlds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub worlds: u64,
    pub steps: u64,
    pub operations: u64,
    /// Virtual seconds that the quiet phases took.
    pub calm_s: u64,
    pub faults: BTreeMap<&'static str, u64>,
    /// Of the false 404s, how they looked.
    pub shapes: BTreeMap<&'static str, u64>,
    /// Writes of the collector that the API server accepted.
    pub writes: BTreeMap<&'static str, u64>,
    pub attempts: BTreeMap<(ActionKind, Outcome), u64>,
    /// Kinds of events of the leader.
    pub events: BTreeMap<&'static str, u64>,
}

impl Tally {
    /// Adds another run's counts.
    pub fn add(&mut self, other: &Tally) {
        self.worlds += other.worlds;
        self.steps += other.steps;
        self.operations += other.operations;
        self.calm_s += other.calm_s;
        for (&name, count) in &other.faults {
            *self.faults.entry(name).or_default() += count;
        }
        for (&name, count) in &other.shapes {
            *self.shapes.entry(name).or_default() += count;
        }
        for (&name, count) in &other.writes {
            *self.writes.entry(name).or_default() += count;
        }
        for (&key, count) in &other.attempts {
            *self.attempts.entry(key).or_default() += count;
        }
        for (&name, count) in &other.events {
            *self.events.entry(name).or_default() += count;
        }
    }

    /// How often an outcome was reported, for whatever action.
    pub fn outcome(&self, outcome: Outcome) -> u64 {
        self.attempts.iter().filter(|((_, which), _)| *which == outcome).map(|(_, count)| count).sum()
    }

    /// How often an action was done.
    pub fn action(&self, action: ActionKind) -> u64 {
        self.attempts.iter().filter(|((which, _), _)| *which == action).map(|(_, count)| count).sum()
    }

    /// Counts a fault that struck.
    pub(super) fn fault(&mut self, name: &'static str) {
        *self.faults.entry(name).or_default() += 1;
    }

    /// Counts writes that a restored store was sent on decisions of its lost history.
    pub(super) fn late_writes(&mut self, count: u64) {
        if count > 0 {
            *self.faults.entry("write across a restore").or_default() += count;
        }
    }

    /// Counts something worth knowing that is no event of a leader.
    pub(super) fn happened(&mut self, name: &'static str) {
        *self.events.entry(name).or_default() += 1;
    }

    pub(super) fn event(&mut self, event: &Event) {
        if let Event::Attempted { action, outcome, .. } = event {
            *self.attempts.entry((*action, *outcome)).or_default() += 1;
        }
        let name = if let Event::Proven { proof, .. } = event {
            proof.as_str()
        } else if let Event::Asked { answer: word, .. }
        | Event::SessionEnded { why: word, .. }
        | Event::ExecutorRefused { why: word, .. } = event
        {
            word
        } else {
            event.as_str()
        };
        *self.events.entry(name).or_default() += 1;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} worlds, {} steps, {} operations of users, {} faults",
            self.worlds,
            self.steps,
            self.operations,
            self.faults.values().sum::<u64>()
        )?;
        writeln!(f, "accepted: {:?}", self.writes)?;
        writeln!(f, "faults: {:?}", self.faults)?;
        writeln!(f, "false 404s: {:?}", self.shapes)?;
        let attempts: Vec<String> = self
            .attempts
            .iter()
            .map(|((action, outcome), count)| format!("{} {} {count}", action.as_str(), outcome.as_str()))
            .collect();
        writeln!(f, "attempts: {}", attempts.join(", "))?;
        write!(f, "events: {:?}", self.events)
    }
}
