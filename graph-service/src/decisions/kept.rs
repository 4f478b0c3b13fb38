//! What is kept of the log in memory.

use super::Logged;
use prost::bytes::Bytes;
use prost_types::Timestamp;
use std::collections::VecDeque;
use times::Former;
use tokio::time::Instant;

mod times;

/// Bytes of all events that are kept, at most.
const BYTES_MAX: usize = 64 * 1024 * 1024;

#[derive(Debug, Default)]
pub(super) struct Kept {
    /// Empty where there is no log: this replica does not lead, or has not read the stream yet.
    pub(super) log_id: String,
    /// Sequence of the oldest record that is kept, or of the next to come.
    pub(super) oldest: u64,
    pub(super) records: VecDeque<Record>,
    pub(super) bytes: usize,
    /// The oldest that the stream has, where there is one behind this.
    pub(super) first: Option<u64>,
    /// Readers see nothing before the mirror has come this far.
    pub(super) shown_from: u64,
    /// Where the stream ended when it was asked last, and when that was.
    pub(super) end: Option<(Instant, u64)>,
    /// How much of the stream is still to be read, as far as is known, and why it cannot be read.
    pub(super) behind: u64,
    pub(super) problem: Option<String>,
    /// When this log began, where it is this leader's own,
    pub(super) begun: Option<Timestamp>,
    /// and how the one before it ended.
    pub(super) former: Option<Former>,
}

/// What stands at one position, encoded.
#[derive(Clone, Debug)]
pub(super) enum Record {
    Event(Bytes),
    /// An encoded `Gap` without positions: what should be here was never written.
    Loss(Bytes),
}

impl Record {
    /// Of what stands at a position: the event.
    pub(super) fn event((sequence, record): (u64, Record)) -> Option<Logged> {
        match record {
            Record::Event(bytes) => Some(Logged { sequence, bytes }),
            Record::Loss(_) => None,
        }
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Record::Event(bytes) | Record::Loss(bytes) => bytes.len(),
        }
    }
}

/// What is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) log_id: String,
    /// The oldest that is kept; one more than `newest` where nothing is.
    pub(crate) oldest: u64,
    /// The oldest that is kept in memory; what is before is read from the stream.
    pub(crate) in_memory: u64,
    /// The newest; 0 where there never was one.
    pub(crate) newest: u64,
}

/// Where what is kept of a log begins.
#[derive(Clone, Copy, Debug)]
pub(super) struct Begin {
    /// The sequence of what comes next.
    pub(super) oldest: u64,
    /// [`Kept::first`].
    pub(super) first: Option<u64>,
    /// [`Kept::shown_from`].
    pub(super) shown_from: u64,
}

impl Default for Begin {
    /// A log that is this leader's own.
    fn default() -> Begin {
        Begin { oldest: 1, first: None, shown_from: 0 }
    }
}

impl Kept {
    pub(super) fn extent(&self) -> Option<Extent> {
        let is_shown = !self.log_id.is_empty() && self.newest() >= self.shown_from;
        let oldest = self.first.map_or(self.oldest, |first| first.min(self.oldest));
        is_shown.then(|| Extent { log_id: self.log_id.clone(), oldest, in_memory: self.oldest, newest: self.newest() })
    }

    /// The first sequence is 1.
    pub(super) fn newest(&self) -> u64 {
        (self.oldest + self.records.len() as u64).saturating_sub(1)
    }

    /// Of a sequence that is not before the oldest.
    pub(super) fn index(&self, sequence: u64) -> usize {
        usize::try_from(sequence - self.oldest).unwrap_or(usize::MAX)
    }

    pub(super) fn begin(&mut self, log_id: String, begin: Begin) {
        let Begin { oldest, first, shown_from } = begin;
        let former = Former::of(self).or_else(|| self.former.take());
        *self = Kept { log_id, oldest, first, shown_from, former, ..Kept::default() };
    }

    /// There is no log any more.
    pub(super) fn end(&mut self) {
        let former = Former::of(self).or_else(|| self.former.take());
        *self = Kept { former, ..Kept::default() };
    }

    pub(super) fn push(&mut self, record: Record, events_max: usize) {
        self.bytes += record.len();
        self.records.push_back(record);
        while (self.records.len() > events_max || self.bytes > BYTES_MAX)
            && let Some(oldest) = self.records.pop_front()
        {
            self.bytes -= oldest.len();
            self.oldest += 1;
        }
    }
}
