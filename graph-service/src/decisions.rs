//! The log of decisions: every step that the leader takes, in order, for whoever follows.
//!
//! Positions are dense. In memory the log begins with the term and ends with it; on JetStream it is a stream that all replicas mirror into
//! what is kept here. A reader that comes with a position of another log is told so.
//! Events are kept encoded, because most are never read, and those that are go to many. Whoever reads does so at its own pace from the one
//! log: a slow reader costs nothing but the work it asks for, and what it missed is a loss that it is told of, never a jump.

pub(crate) use connection::Connection;
pub use connection::{JetStream, Server};
use engine::leader::Event;
use engine::work::Term;
use prost::Message as _;
use prost::bytes::Bytes;
use proto::convert::{self, decision_event};
use proto::decision::v1alpha1::watch_decisions_response::Gap;
use proto::decision::v1alpha1::{DecisionEvent, Position};
pub(crate) use queue::{Progress, Queue, Standing};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

mod connection;
mod entry;
mod mirror;
mod publisher;
mod queue;
#[cfg(test)]
mod tests;

/// Events that are kept, at most,
const EVENTS_MAX: usize = 65_536;
/// and bytes of all of them.
const BYTES_MAX: usize = 64 * 1024 * 1024;
/// [`Gap::reason`] of what never got into the log.
const NOT_WRITTEN: &str = "NOT_WRITTEN";

/// How long a reader waits for a position that another replica has given out and this one has not read yet.
const CATCH_UP_WITHIN: Duration = Duration::from_secs(5);

/// The log. Cloning shares it.
#[derive(Clone, Debug)]
pub(crate) struct DecisionLog {
    kept: Arc<Mutex<Kept>>,
    changed: watch::Sender<()>,
    events_max: usize,
    /// It is a mirror of what all replicas share, and not this leader's own.
    is_shared: bool,
}

#[derive(Debug, Default)]
struct Kept {
    /// Empty where there is no log: this replica does not lead, or has not read the stream yet.
    log_id: String,
    /// Sequence of the oldest record that is kept, or of the next to come.
    oldest: u64,
    records: VecDeque<Record>,
    bytes: usize,
    /// Readers see nothing before the mirror has come this far.
    shown_from: u64,
    /// Where the stream ended when it was asked last, and when that was.
    end: Option<(Instant, u64)>,
    /// How much of the stream is still to be read, as far as is known, and why it cannot be read.
    behind: u64,
    problem: Option<String>,
}

/// What stands at one position, encoded.
#[derive(Clone, Debug)]
enum Record {
    Event(Bytes),
    /// A [`Gap`] without positions: what should be here was never written.
    Loss(Bytes),
}

impl Record {
    fn len(&self) -> usize {
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
    /// The newest; 0 where there never was one.
    pub(crate) newest: u64,
}

/// What comes after a position.
#[derive(Debug)]
pub(crate) enum Tail {
    /// In order, without a hole; none where nothing new has come.
    Events(Vec<DecisionEvent>),
    /// The next position stands for what was never written.
    Lost(Gap),
    /// Some of it is not kept any more.
    Compacted(Extent),
    /// The position is of another log, or this one has ended.
    Replaced,
}

/// How much is kept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    pub(crate) events: usize,
    pub(crate) bytes: usize,
    /// Events of the shared log that this replica has not read yet.
    pub(crate) behind: u64,
}

/// Whether this replica has read as far as a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reached {
    Yes,
    /// It is on its way, or the stream cannot be asked.
    NotYet,
    /// The log ends before it.
    Never,
}

impl DecisionLog {
    /// The leader's own.
    pub(crate) fn in_memory() -> DecisionLog {
        DecisionLog { kept: Arc::default(), changed: watch::Sender::new(()), events_max: EVENTS_MAX, is_shared: false }
    }

    /// To be filled from the log that all replicas share.
    pub(crate) fn mirror() -> DecisionLog {
        DecisionLog { is_shared: true, ..DecisionLog::in_memory() }
    }

    /// Whether every replica has it.
    pub(crate) fn is_shared(&self) -> bool {
        self.is_shared
    }

    /// Tells of everything new, and of beginnings and ends.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// `None` where this replica has no log: it does not lead, or has not read the shared one yet.
    pub(crate) fn extent(&self) -> Option<Extent> {
        self.kept().extent()
    }

    pub(crate) fn size(&self) -> Size {
        let kept = self.kept();
        Size { events: kept.records.len(), bytes: kept.bytes, behind: kept.behind }
    }

    /// Why the shared log cannot be read.
    pub(crate) fn problem(&self) -> Option<String> {
        self.kept().problem.clone()
    }

    /// At most `max` events after this position.
    pub(crate) fn after(&self, position: &Position, max: usize) -> Tail {
        let kept = self.kept();
        let Some(extent) = kept.extent().filter(|extent| extent.log_id == position.log_id) else {
            return Tail::Replaced;
        };
        if position.sequence > extent.newest {
            // A position that is yet to come was never given out by a log of this replica's own; another replica may have read further.
            return if self.is_shared { Tail::Events(Vec::new()) } else { Tail::Replaced };
        }
        if position.sequence + 1 < extent.oldest {
            return Tail::Compacted(extent);
        }
        let mut records = Vec::new();
        for record in kept.records.range(kept.index(position.sequence + 1)..).take(max) {
            match record {
                Record::Event(bytes) => records.push(bytes.clone()),
                Record::Loss(bytes) if records.is_empty() => {
                    return Tail::Lost(lost(bytes, &extent, position.sequence + 1));
                }
                Record::Loss(_) => break,
            }
        }
        drop(kept);
        Tail::Events(decode((position.sequence + 1..).zip(records), &extent.log_id))
    }

    /// The events among the `max` positions after this one; losses are passed over.
    pub(crate) fn among(&self, position: &Position, max: usize) -> Tail {
        let kept = self.kept();
        let Some(extent) = kept.extent().filter(|extent| extent.log_id == position.log_id) else {
            return Tail::Replaced;
        };
        if position.sequence + 1 < extent.oldest {
            return Tail::Compacted(extent);
        }
        let first = kept.index(position.sequence + 1).min(kept.records.len());
        let records = (position.sequence + 1..).zip(kept.records.range(first..).take(max));
        let events = records.filter_map(|(sequence, record)| match record {
            Record::Event(bytes) => Some((sequence, bytes.clone())),
            Record::Loss(_) => None,
        });
        let events: Vec<(u64, Bytes)> = events.collect();
        drop(kept);
        Tail::Events(decode(events.into_iter(), &extent.log_id))
    }

    /// Waits until a position of the shared log is there that this replica has not read yet.
    pub(crate) async fn reach(&self, position: &Position) -> Reached {
        let begun = Instant::now();
        let mut changes = self.changes();
        loop {
            changes.mark_unchanged();
            {
                let kept = self.kept();
                let extent = kept.extent();
                let here = extent.filter(|extent| extent.log_id == position.log_id);
                match (here, kept.end) {
                    (Some(extent), _) if position.sequence <= extent.newest => return Reached::Yes,
                    (None, _) => return Reached::Never,
                    (Some(_), Some((asked, end))) if asked > begun && end < position.sequence => return Reached::Never,
                    (Some(_), Some(_) | None) => {}
                }
            }
            if timeout_at(begun + CATCH_UP_WITHIN, changes.changed()).await.is_err() {
                return Reached::NotYet;
            }
        }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        // Whoever panicked under this lock has ended the process.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes what is kept, and tells the readers.
    fn change<T>(&self, change: impl FnOnce(&mut Kept) -> T) -> T {
        let changed = change(&mut self.kept());
        self.changed.send_replace(());
        changed
    }
}

/// Puts a position on each event.
fn decode(events: impl Iterator<Item = (u64, Bytes)>, log_id: &str) -> Vec<DecisionEvent> {
    let decode = |(sequence, bytes): (u64, Bytes)| {
        let event = DecisionEvent::decode(bytes).expect("nothing is kept that was not decoded or encoded here");
        DecisionEvent { position: Some(Position { log_id: log_id.to_owned(), sequence }), ..event }
    };
    events.map(decode).collect()
}

fn lost(bytes: &Bytes, extent: &Extent, sequence: u64) -> Gap {
    let at = |sequence: u64| Some(Position { log_id: extent.log_id.clone(), sequence });
    let gap = Gap::decode(bytes.clone()).expect("nothing is kept that was not decoded here");
    Gap { first_missing: at(sequence), next: at(sequence + 1), reason: NOT_WRITTEN.to_owned(), ..gap }
}

impl Kept {
    fn extent(&self) -> Option<Extent> {
        let is_shown = !self.log_id.is_empty() && self.newest() >= self.shown_from;
        is_shown.then(|| Extent { log_id: self.log_id.clone(), oldest: self.oldest, newest: self.newest() })
    }

    /// The first sequence is 1.
    fn newest(&self) -> u64 {
        (self.oldest + self.records.len() as u64).saturating_sub(1)
    }

    /// Of a sequence that is not before the oldest.
    fn index(&self, sequence: u64) -> usize {
        usize::try_from(sequence - self.oldest).unwrap_or(usize::MAX)
    }

    fn begin(&mut self, log_id: String, oldest: u64, shown_from: u64) {
        *self = Kept { log_id, oldest, shown_from, ..Kept::default() };
    }

    fn push(&mut self, record: Record, events_max: usize) {
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

/// The one end that writes. It belongs to the collector's task, and never waits.
#[derive(Debug)]
pub(crate) struct Writer {
    sink: Sink,
    term: Option<Term>,
    /// Of this round; all of them become visible at its end, with one word to the readers.
    round: Vec<Step>,
}

#[derive(Debug)]
enum Sink {
    Memory(DecisionLog),
    /// On the way to the log that all replicas share.
    Queue(Arc<Queue>),
}

#[derive(Debug)]
enum Step {
    Begin(Term),
    End,
    Event(Noted),
}

/// An event on its way into the log.
#[derive(Clone, Debug)]
struct Noted {
    event: Bytes,
    time: Option<prost_types::Timestamp>,
}

impl Writer {
    /// `queue` leads to the shared log, where there is one; otherwise events go into `log` itself.
    pub(crate) fn new(log: DecisionLog, queue: Option<Arc<Queue>>) -> Writer {
        let sink = queue.map_or(Sink::Memory(log), Sink::Queue);
        Writer { sink, term: None, round: Vec::new() }
    }

    /// Takes note of what happened.
    pub(crate) fn note(&mut self, event: &Event, clock: convert::Clock) {
        if let Event::TermGained(term) = event {
            self.round.push(Step::Begin(term.clone()));
            self.term = Some(term.clone());
        }
        if matches!(event, Event::TermLost) {
            self.round.push(Step::End);
            self.term = None;
        }
        let Some(term) = &self.term else { return };
        if let Some(event) = decision_event(event, term, clock) {
            self.round.push(Step::Event(Noted { event: event.encode_to_vec().into(), time: event.event_time }));
        }
    }

    /// Shows what was noted, or sends it on its way.
    pub(crate) fn publish(&mut self) {
        if self.round.is_empty() {
            return;
        }
        match &self.sink {
            Sink::Memory(log) => log.change(|kept| {
                for step in self.round.drain(..) {
                    match step {
                        Step::Begin(term) => kept.begin(log_id(&term), 1, 0),
                        Step::End => *kept = Kept::default(),
                        Step::Event(noted) => kept.push(Record::Event(noted.event), log.events_max),
                    }
                }
            }),
            Sink::Queue(queue) => queue.take(self.round.drain(..)),
        }
    }
}

/// One log for each term: the next leader does not know what this one told.
fn log_id(term: &Term) -> String {
    format!("{}.{}", term.election, term.number)
}
