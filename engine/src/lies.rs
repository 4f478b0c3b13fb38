//! Reports that are not true, counted for each process of an executor.

use crate::object::Name;
use crate::time::Time;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::time::Duration;

/// After so many untrue reports a process of an executor is sent away,
pub(crate) const LIES_MAX: u32 = 10;
/// and not admitted again for so long after the last one.
pub(crate) const REFUSED_FOR: Duration = Duration::from_secs(600);
/// Processes that are remembered. Of more, the one is forgotten whose last untrue report is the oldest.
const REMEMBERED_MAX: usize = 4096;

/// Processes that status names.
const NAMED_MAX: usize = 20;

/// Where an executor calls from, as the transport knows it. It is not on the wire.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// From the leader's own process.
    Process,
    /// As this user or certificate; empty where callers are not told apart.
    Caller(Name),
}

impl Default for Origin {
    fn default() -> Origin {
        Origin::Caller(Name::from(""))
    }
}

/// A process of an executor.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Process {
    pub(crate) executor: Name,
    pub(crate) incarnation: Name,
    /// Another caller that says the same of itself is another process.
    pub(crate) origin: Origin,
}

/// A process of an executor whose reports cannot be true, or are contradicted by the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UntrueView {
    pub executor: Name,
    pub incarnation: Name,
    pub reports: u32,
    /// It is not admitted for so much longer, because there are too many.
    pub refused_for: Option<Duration>,
}

/// What is remembered of one process.
#[derive(Debug)]
struct Record {
    count: u32,
    last: Time,
    /// Fields that were untrue.
    fields: BTreeSet<&'static str>,
}

/// Processes whose reports were not true.
#[derive(Debug, Default)]
pub(crate) struct Lies {
    by: BTreeMap<Process, Record>,
}

impl Lies {
    /// Counts one more. Gives how many there are by now, and whether this field is untrue for the first time.
    pub(crate) fn note(&mut self, now: Time, process: &Process, field: &'static str) -> (u32, bool) {
        if self.by.len() == REMEMBERED_MAX && !self.by.contains_key(process) {
            let oldest = self.by.iter().min_by_key(|(_, record)| record.last).map(|(process, _)| process.clone());
            oldest.map(|oldest| self.by.remove(&oldest));
        }
        let new = || Record { count: 0, last: now, fields: BTreeSet::new() };
        let record = self.by.entry(process.clone()).or_insert_with(new);
        record.count = record.count.saturating_add(1);
        record.last = now;
        (record.count, record.fields.insert(field))
    }

    /// How many there are of a process.
    pub(crate) fn count(&self, process: &Process) -> u32 {
        self.by.get(process).map_or(0, |record| record.count)
    }

    /// Those with the most, first.
    pub(crate) fn views(&self, now: Time) -> Vec<UntrueView> {
        let left = |record: &Record| {
            let left = REFUSED_FOR.saturating_sub(now.since(record.last));
            Some(left).filter(|left| record.count >= LIES_MAX && !left.is_zero())
        };
        let view = |(process, record): (&Process, &Record)| UntrueView {
            executor: process.executor.clone(),
            incarnation: process.incarnation.clone(),
            reports: record.count,
            refused_for: left(record),
        };
        let mut views: Vec<UntrueView> = self.by.iter().map(view).collect();
        views.sort_by_key(|view| core::cmp::Reverse(view.reports));
        views.truncate(NAMED_MAX);
        views
    }

    /// How much longer a process is refused. Nothing is held against it after that.
    pub(crate) fn refused_for(&mut self, now: Time, process: &Process) -> Option<Duration> {
        let record = self.by.get(process).filter(|record| record.count >= LIES_MAX)?;
        let left = REFUSED_FOR.saturating_sub(now.since(record.last));
        if left.is_zero() {
            self.by.remove(process);
            return None;
        }
        Some(left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    #[test]
    fn memory_of_liars_is_bounded_and_the_oldest_goes_first() {
        let mut lies = Lies::default();
        let process =
            |at: usize| Process { executor: format!("e{at}").into(), incarnation: "i".into(), origin: Origin::Process };
        for at in 0..=REMEMBERED_MAX {
            lies.note(Time::ZERO + Duration::from_secs(at as u64), &process(at), "outcome");
        }
        assert_eq!(lies.by.len(), REMEMBERED_MAX);
        assert_eq!((lies.count(&process(0)), lies.count(&process(1))), (0, 1));
    }

    #[test]
    fn a_process_is_refused_for_a_while_after_its_last_lie() {
        let mut lies = Lies::default();
        let process = Process { executor: "e".into(), incarnation: "i".into(), origin: Origin::Process };
        for count in 1..=LIES_MAX {
            assert_eq!(lies.refused_for(Time::ZERO, &process), None);
            assert_eq!(lies.note(Time::ZERO, &process, "outcome"), (count, count == 1));
        }
        assert_eq!(lies.refused_for(Time::ZERO + Duration::from_secs(1), &process), Some(Duration::from_secs(599)));
        assert_eq!(lies.refused_for(Time::ZERO + REFUSED_FOR, &process), None);
        assert_eq!(lies.count(&process), 0);
    }
}
