//! The counts of a run. A run proves something only if all faults and events occurred in it.

use engine::leader::Event;
use engine::work::{ActionKind, Outcome};
use std::collections::BTreeMap;
use std::fmt;

/// The counts of any number of worlds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub worlds: u64,
    pub steps: u64,
    pub operations: u64,
    /// The virtual seconds of the quiet phases.
    pub calm_s: u64,
    pub faults: BTreeMap<&'static str, u64>,
    /// The false 404s, by the form of the answer.
    pub shapes: BTreeMap<&'static str, u64>,
    /// The writes of the collector that the API server accepted.
    pub writes: BTreeMap<&'static str, u64>,
    pub attempts: BTreeMap<(ActionKind, Outcome), u64>,
    /// The events of the leader, by kind.
    pub events: BTreeMap<&'static str, u64>,
}

impl Tally {
    /// Adds the counts of another run.
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

    /// Returns the number of reports with an outcome, for all actions.
    pub fn outcome(&self, outcome: Outcome) -> u64 {
        self.attempts.iter().filter(|((_, which), _)| *which == outcome).map(|(_, count)| count).sum()
    }

    /// Returns the number of attempts at an action.
    pub fn action(&self, action: ActionKind) -> u64 {
        self.attempts.iter().filter(|((which, _), _)| *which == action).map(|(_, count)| count).sum()
    }

    /// Counts a fault that occurred.
    pub(super) fn fault(&mut self, name: &'static str) {
        *self.faults.entry(name).or_default() += 1;
    }

    /// Counts the writes that only a lost history of a restored store permits.
    pub(super) fn late_writes(&mut self, count: u64) {
        if count > 0 {
            *self.faults.entry("write across a restore").or_default() += count;
        }
    }

    /// Counts an occurrence that is no event of a leader.
    pub(super) fn happened(&mut self, name: &'static str) {
        *self.events.entry(name).or_default() += 1;
    }

    pub(super) fn event(&mut self, event: &Event) {
        if let Event::Attempted { end, .. } = event {
            *self.attempts.entry((end.action, end.outcome)).or_default() += 1;
        }
        *self.events.entry(word(event)).or_default() += 1;
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

/// The key under which an event is counted.
fn word(event: &Event) -> &'static str {
    match event {
        Event::Decided { .. } => "decided",
        Event::Granted { .. } => "granted",
        Event::Withdrawn { .. } => "withdrawn",
        Event::Held { by: Some(_), .. } => "held",
        Event::Held { by: None, .. } => "released",
        Event::Attempted { .. } => "attempted",
        Event::ReportedLate { .. } => "reported late",
        Event::Confirmed { .. } => "confirmed",
        Event::AwaitingFinalizers { .. } => "awaiting finalizers",
        Event::Removed { .. } => "removed",
        Event::Proven { proof, .. } => proof.as_str(),
        Event::Prevented { .. } => "prevented",
        Event::Untrue { .. } => "untrue report",
        Event::Asked { answer: word, .. }
        | Event::SessionEnded { why: word, .. }
        | Event::ExecutorRefused { why: word, .. } => word,
        Event::KeptApart { .. } => "kept apart",
        Event::Inconsistent { .. } => "inconsistent reads",
        Event::Undone { .. } => "undone",
        Event::Collection { .. } => "collection",
        Event::SessionOpened { .. } => "session opened",
        Event::TermGained(_) => "term gained",
        Event::TermLost => "term lost",
        Event::GrantsStopped { .. } => "grants stopped",
        Event::GrantsResumed => "grants resumed",
        Event::Rewound { .. } => "rewound",
        Event::OwnerInOtherNamespace { .. } => "owner in other namespace",
        Event::Readopted { .. } => "readopted",
        Event::OrphaningForgotten { .. } => "orphaning forgotten",
        Event::TooManyReferences { .. } => "too many references",
        Event::Unusable { .. } => "unusable",
        Event::GuardTaken { .. } => "guard taken",
        Event::GuardEffective { .. } => "guard effective",
        Event::GuardEnded { .. } => "guard ended",
        Event::GuardsUnknown { .. } => "guards unknown",
        Event::GuardsKnown { .. } => "guards known",
        Event::BudgetExceeded { .. } => "budget exceeded",
        Event::BreakerOpened { .. } => "breaker opened",
        Event::ApprovalNeeded { .. } => "approval needed",
        Event::Approved { .. } => "approved",
        Event::GateAnswered { .. } => "gate answered",
        Event::GateBypassed { .. } => "gate bypassed",
        Event::Disagreed(_) => "disagreed",
        Event::Compared(_) => "compared",
        Event::Rejected { .. } => "rejected",
    }
}
