//! The log of decisions: every step that this replica takes as leader, in order, for whoever follows.
//!
//! Positions are dense. The log begins with the term and ends with it; a reader that comes with a position of another log is told so.
//! Events are kept encoded, because most are never read, and those that are go to many. Whoever reads does so at its own pace from the one
//! log: a slow reader costs nothing but the work it asks for, and what it missed is a loss that it is told of, never a jump.

use engine::leader::Event;
use engine::work::Term;
use prost::Message as _;
use prost::bytes::Bytes;
use proto::convert::{self, decision_event};
use proto::decision::v1alpha1::{DecisionEvent, Position};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

#[cfg(test)]
mod tests;

/// Events that are kept, at most,
const EVENTS_MAX: usize = 65_536;
/// and bytes of all of them.
const BYTES_MAX: usize = 64 * 1024 * 1024;

/// The log. Cloning shares it.
#[derive(Clone, Debug)]
pub(crate) struct DecisionLog {
    kept: Arc<Mutex<Kept>>,
    changed: watch::Sender<()>,
    events_max: usize,
}

#[derive(Debug, Default)]
struct Kept {
    /// Empty where this replica does not lead.
    log_id: String,
    /// Sequence of the oldest event that is kept, or of the next to come.
    oldest: u64,
    events: VecDeque<Bytes>,
    bytes: usize,
}

/// What is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) log_id: String,
    /// The oldest that is kept; one more than `newest` where nothing is.
    pub(crate) oldest: u64,
    /// The newest; 0 where there never was one.
    pub(crate) newest: u64,
}

/// What comes after a position.
#[derive(Debug)]
pub(crate) enum Tail {
    /// In order, without a hole; none where nothing new has come.
    Events(Vec<DecisionEvent>),
    /// Some of it is not kept any more.
    Compacted(Extent),
    /// The position is of another log, or this one has ended.
    Replaced,
}

impl DecisionLog {
    pub(crate) fn new() -> DecisionLog {
        DecisionLog { kept: Arc::default(), changed: watch::Sender::new(()), events_max: EVENTS_MAX }
    }

    /// Tells of everything new, and of beginnings and ends.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// `None` where this replica does not lead.
    pub(crate) fn extent(&self) -> Option<Extent> {
        self.kept().extent()
    }

    /// At most `max` events after this position.
    pub(crate) fn after(&self, position: &Position, max: usize) -> Tail {
        let kept = self.kept();
        let Some(extent) = kept.extent().filter(|extent| extent.log_id == position.log_id) else {
            return Tail::Replaced;
        };
        // A position that is yet to come was never given out by this log.
        if position.sequence > extent.newest {
            return Tail::Replaced;
        }
        if position.sequence + 1 < extent.oldest {
            return Tail::Compacted(extent);
        }
        let known = usize::try_from(position.sequence + 1 - extent.oldest).expect("not more than are kept");
        let events: Vec<Bytes> = kept.events.range(known..).take(max).cloned().collect();
        drop(kept);
        Tail::Events(decode(events, &extent.log_id, position.sequence + 1))
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        // Whoever panicked under this lock has ended the process.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Puts a position on each event.
fn decode(events: Vec<Bytes>, log_id: &str, first: u64) -> Vec<DecisionEvent> {
    let decode = |(sequence, bytes): (u64, Bytes)| {
        let event = DecisionEvent::decode(bytes).expect("the log holds what it encoded itself");
        DecisionEvent { position: Some(Position { log_id: log_id.to_owned(), sequence }), ..event }
    };
    (first..).zip(events).map(decode).collect()
}

impl Kept {
    fn extent(&self) -> Option<Extent> {
        // The first sequence is 1.
        let newest = || self.oldest + self.events.len() as u64 - 1;
        (!self.log_id.is_empty()).then(|| Extent { log_id: self.log_id.clone(), oldest: self.oldest, newest: newest() })
    }

    fn begin(&mut self, log_id: String) {
        *self = Kept { log_id, oldest: 1, ..Kept::default() };
    }

    fn push(&mut self, event: Bytes, events_max: usize) {
        self.bytes += event.len();
        self.events.push_back(event);
        while (self.events.len() > events_max || self.bytes > BYTES_MAX)
            && let Some(oldest) = self.events.pop_front()
        {
            self.bytes -= oldest.len();
            self.oldest += 1;
        }
    }
}

/// The one end that writes. It belongs to the collector's task.
#[derive(Debug)]
pub(crate) struct Writer {
    log: DecisionLog,
    term: Option<Term>,
    /// Of this round; all of them become visible at its end, with one word to the readers.
    round: Vec<Entry>,
}

#[derive(Debug)]
enum Entry {
    Begin(String),
    End,
    Event(Bytes),
}

impl Writer {
    pub(crate) fn new(log: DecisionLog) -> Writer {
        Writer { log, term: None, round: Vec::new() }
    }

    /// Takes note of what happened.
    pub(crate) fn note(&mut self, event: &Event, clock: convert::Clock) {
        if let Event::TermGained(term) = event {
            self.round.push(Entry::Begin(log_id(term)));
            self.term = Some(term.clone());
        }
        if matches!(event, Event::TermLost) {
            self.round.push(Entry::End);
            self.term = None;
        }
        let Some(term) = &self.term else { return };
        if let Some(event) = decision_event(event, term, clock) {
            self.round.push(Entry::Event(event.encode_to_vec().into()));
        }
    }

    /// Shows what was noted.
    pub(crate) fn publish(&mut self) {
        if self.round.is_empty() {
            return;
        }
        let mut kept = self.log.kept();
        for entry in self.round.drain(..) {
            match entry {
                Entry::Begin(log_id) => kept.begin(log_id),
                Entry::End => *kept = Kept::default(),
                Entry::Event(event) => kept.push(event, self.log.events_max),
            }
        }
        drop(kept);
        self.log.changed.send_replace(());
    }
}

/// One log for each term: the next leader does not know what this one told.
fn log_id(term: &Term) -> String {
    format!("{}.{}", term.election, term.number)
}
