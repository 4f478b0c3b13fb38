//! The part of the log that is kept in memory.

use super::Logged;
use prost::bytes::Bytes;
use prost_types::Timestamp;
use std::collections::VecDeque;
use times::Former;
use tokio::time::Instant;

mod times;

/// Maximum number of bytes of all kept events.
const BYTES_MAX: usize = 64 * 1024 * 1024;

#[derive(Debug, Default)]
pub(super) struct Kept {
    /// Empty if there is no log: this replica does not lead, or it has not read the stream yet.
    pub(super) log_id: String,
    /// Sequence of the oldest kept record. Without records, the next sequence.
    pub(super) oldest: u64,
    pub(super) records: VecDeque<Record>,
    pub(super) bytes: usize,
    /// The oldest sequence in the stream, if this log is a mirror of a stream.
    pub(super) first: Option<u64>,
    /// Readers see nothing before the mirror has reached this sequence.
    pub(super) shown_from: u64,
    /// The end of the stream at the last check, and the time of that check.
    pub(super) end: Option<(Instant, u64)>,
    /// How many events of the stream are still unread, if known.
    pub(super) behind: u64,
    pub(super) problem: Option<String>,
    /// The time at which this log began. Only for a log in the memory of this leader.
    pub(super) begun: Option<Timestamp>,
    /// How the previous log of this process ended.
    pub(super) former: Option<Former>,
}

/// The record at one position, encoded.
#[derive(Clone, Debug)]
pub(super) enum Record {
    Event(Bytes),
    /// An encoded `Gap` without positions: the events here were never written.
    Loss(Bytes),
}

impl Record {
    /// The event at a position; `None` for a gap.
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

/// The bounds of the kept log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) log_id: String,
    /// The oldest kept sequence. One more than `newest` if nothing is kept.
    pub(crate) oldest: u64,
    /// The oldest sequence in memory. Older ones are read from the stream.
    pub(crate) in_memory: u64,
    /// The newest sequence; 0 if the log never had an event.
    pub(crate) newest: u64,
}

/// The beginning of the kept log.
#[derive(Clone, Copy, Debug)]
pub(super) struct Begin {
    /// The next sequence.
    pub(super) oldest: u64,
    /// [`Kept::first`].
    pub(super) first: Option<u64>,
    /// [`Kept::shown_from`].
    pub(super) shown_from: u64,
}

impl Default for Begin {
    /// The beginning of a log in the memory of this leader.
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

    /// The index of a sequence that is not before the oldest.
    pub(super) fn index(&self, sequence: u64) -> usize {
        usize::try_from(sequence - self.oldest).unwrap_or(usize::MAX)
    }

    pub(super) fn begin(&mut self, log_id: String, begin: Begin) {
        let Begin { oldest, first, shown_from } = begin;
        let former = Former::of(self).or_else(|| self.former.take());
        *self = Kept { log_id, oldest, first, shown_from, former, ..Kept::default() };
    }

    /// Ends the log.
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
