//! Wrong reports, counted for each process of an executor.

use crate::object::Name;
use crate::time::Time;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::time::Duration;

/// The leader refuses a process of an executor after this number of wrong reports.
pub(crate) const LIES_MAX: u32 = 10;
/// The leader does not admit the process again for this time after its last wrong report.
pub(crate) const REFUSED_FOR: Duration = Duration::from_secs(600);
/// Maximum number of remembered processes. If there are more, the process with the oldest last report is forgotten.
const REMEMBERED_MAX: usize = 4096;

/// Maximum number of processes in the status.
const NAMED_MAX: usize = 20;

/// The origin of an executor's connection, as the transport knows it. It is not on the wire.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Origin {
    /// From the leader's own process.
    Process,
    /// As this user or certificate; empty if callers are not authenticated.
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
    /// Who connects. Another caller with the same names is another process.
    pub(crate) origin: Origin,
}

/// A process of an executor that sent wrong reports: impossible ones, or ones that the API server contradicts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UntrueView {
    pub executor: Name,
    pub incarnation: Name,
    pub reports: u32,
    /// The remaining time for which it is refused.
    pub refused_for: Option<Duration>,
}

/// The record of one process.
#[derive(Debug)]
struct Record {
    count: u32,
    last: Time,
    /// The wrong fields.
    fields: BTreeSet<&'static str>,
}

/// Processes with wrong reports.
#[derive(Debug, Default)]
pub(crate) struct Lies {
    by: BTreeMap<Process, Record>,
}

impl Lies {
    /// Counts a wrong report. Returns the number so far, and whether this field is wrong for the first time.
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

    /// The number of wrong reports of a process.
    pub(crate) fn count(&self, process: &Process) -> u32 {
        self.by.get(process).map_or(0, |record| record.count)
    }

    /// The processes with the most wrong reports, first.
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

    /// The remaining time for which a process is refused. After that its record is cleared.
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
