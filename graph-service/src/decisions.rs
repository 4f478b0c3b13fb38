//! The decision log: each step that the leader takes, in order.
//!
//! Positions have no holes. In memory, a log begins and ends with a term. On JetStream, the log is one stream that each
//! replica mirrors into memory. A reader whose position belongs to another log gets an error, or a gap event.
//!
//! The log keeps events encoded, because most are never read and the others go to many readers. Each reader reads at
//! its own pace. A reader that falls behind the oldest kept event gets an explicit gap event.

use archive::Archive;
pub(crate) use connection::Connection;
pub(crate) use kept::Extent;
use kept::{Kept, Record};
pub(crate) use open::hand_over;
use prost::Message as _;
use prost::bytes::Bytes;
use proto::decision::v1beta1::watch_decisions_response::Gap;
use proto::decision::v1beta1::{DecisionEvent, Position};
pub(crate) use queue::{Progress, Queue, Standing};
use runtime::tasks::Tasks;
pub use server::{JetStream, Server};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};
pub(crate) use writer::Writer;

mod archive;
mod connection;
mod entry;
pub(crate) mod fuzzing;
mod kept;
mod mirror;
mod open;
mod publisher;
mod queue;
mod server;
#[cfg(test)]
pub(crate) mod tests;
mod writer;

/// Maximum number of events that are kept in memory.
const EVENTS_MAX: usize = 65_536;
/// Bytes of a message besides the kept event: its position, and the attributes of a CloudEvent.
pub(crate) const FRAME_BYTES: usize = 768;
/// [`Gap::reason`] of events that were never written to the log.
const NOT_WRITTEN: &str = "NOT_WRITTEN";

/// Maximum wait for a position that another replica has returned to a client and this replica has not read yet.
const CATCH_UP_WITHIN: Duration = Duration::from_secs(5);

/// The decision log. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct DecisionLog {
    kept: Arc<Mutex<Kept>>,
    changed: watch::Sender<()>,
    events_max: usize,
    /// `Some` if this log mirrors the stream that all replicas share.
    stream: Option<Stream>,
}

/// The stream behind a mirror.
#[derive(Clone, Debug)]
struct Stream {
    archive: Arc<dyn Archive>,
    queue: Arc<Queue>,
}

/// The limits of one read. A read returns at least one event, however large it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Most {
    pub(crate) events: usize,
    /// Bytes of the events as they are kept, with [`FRAME_BYTES`] for each.
    pub(crate) bytes: usize,
}

impl Most {
    /// Returns a function that says whether the next record still fits. Call it for each record in order.
    fn bytes_left(self) -> impl FnMut(&&Record) -> bool {
        let mut bytes = 0_usize;
        move |record| {
            let is_first = bytes == 0;
            bytes = bytes.saturating_add(record.len() + FRAME_BYTES);
            is_first || bytes <= self.bytes
        }
    }
}

/// The log after a position.
#[derive(Debug)]
pub(crate) enum Tail {
    /// Events in order, without a hole. Empty: nothing new.
    Events(Vec<Logged>),
    /// The next position stands for events that were never written.
    Lost(Gap),
}

/// An event as the log keeps it.
#[derive(Clone, Debug)]
pub(crate) struct Logged {
    pub(crate) sequence: u64,
    /// The encoded event, without its position.
    pub(crate) bytes: Bytes,
}

impl Logged {
    /// The event with its position.
    pub(crate) fn decode(&self, log_id: &str) -> DecisionEvent {
        let event = DecisionEvent::decode(self.bytes.clone());
        let event = event.expect("every kept event was decoded or encoded here");
        DecisionEvent { position: Some(Position { log_id: log_id.to_owned(), sequence: self.sequence }), ..event }
    }
}

/// Why the log cannot return the events after a position.
#[derive(Debug)]
pub(crate) enum Missing {
    /// The log no longer keeps some of them.
    Compacted(Extent),
    /// The position belongs to another log, or this log has ended.
    Replaced,
    /// Only the stream keeps them, and the stream does not answer.
    Unreadable(String),
}

/// The size of the kept log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    pub(crate) events: usize,
    pub(crate) bytes: usize,
    /// Number of events of the shared log that this replica has not read yet.
    pub(crate) behind: u64,
}

/// Whether this replica has read as far as a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reached {
    Yes,
    /// The replica has not read it yet, or the stream does not answer.
    NotYet,
    /// The log ends before it.
    Never,
}

impl DecisionLog {
    /// A log in the memory of the leader.
    pub(crate) fn in_memory() -> DecisionLog {
        DecisionLog { kept: Arc::default(), changed: watch::Sender::new(()), events_max: EVENTS_MAX, stream: None }
    }

    /// A mirror of the log that all replicas share, still empty.
    fn mirror(archive: Arc<dyn Archive>, queue: Arc<Queue>) -> DecisionLog {
        DecisionLog { stream: Some(Stream { archive, queue }), ..DecisionLog::in_memory() }
    }

    /// The log on the stream behind this connection. Starts the tasks that mirror and write it. `is_required` means
    /// that the leader grants nothing while the stream is unreachable.
    pub(crate) fn on(connection: Connection, is_required: bool, tasks: &mut Tasks) -> DecisionLog {
        let queue = Arc::new(Queue::new(is_required));
        let log = DecisionLog::mirror(Arc::new(connection.clone()), Arc::clone(&queue));
        tasks.spawn_until_end("mirror of the decision log", mirror::run(connection.clone(), log.clone()));
        tasks.spawn_until_end("decision log", publisher::run(connection, queue));
        log
    }

    /// Whether all replicas share this log.
    pub(crate) fn is_shared(&self) -> bool {
        self.stream.is_some()
    }

    /// The queue of entries to write to the shared log, if there is one.
    pub(crate) fn queue(&self) -> Option<&Arc<Queue>> {
        self.stream.as_ref().map(|stream| &stream.queue)
    }

    /// Notifies of new events, and of the beginning and end of a log.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// `None` if this replica has no log: it does not lead, or it has not read the shared log yet.
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

    /// At most `max` events after `position`.
    pub(crate) async fn after(&self, position: &Position, max: Most) -> Result<Tail, Missing> {
        let records = self.records(position, max).await?;
        if let Some(Record::Loss(bytes)) = records.first() {
            return Ok(Tail::Lost(lost(bytes, position)));
        }
        let events = (position.sequence + 1..).zip(records).map_while(Record::event);
        Ok(Tail::Events(events.collect()))
    }

    /// The events at the `max` positions after this one. Each is decoded when the caller takes it. Gaps are left out.
    pub(crate) async fn among(
        &self,
        position: &Position,
        max: usize,
    ) -> Result<impl DoubleEndedIterator<Item = DecisionEvent> + use<>, Missing> {
        let records = self.records(position, Most { events: max, bytes: usize::MAX }).await?;
        let events: Vec<_> = (position.sequence + 1..).zip(records).filter_map(Record::event).collect();
        let log_id = position.log_id.clone();
        Ok(events.into_iter().map(move |logged| logged.decode(&log_id)))
    }

    /// The records at the positions after this one.
    async fn records(&self, position: &Position, max: Most) -> Result<Vec<Record>, Missing> {
        let from = position.sequence.saturating_add(1);
        let (extent, archive) = {
            let kept = self.kept();
            let extent = kept.extent().filter(|extent| extent.log_id == position.log_id).ok_or(Missing::Replaced)?;
            if position.sequence > extent.newest {
                // Only another replica can have returned a position that this replica has not reached.
                return if self.is_shared() { Ok(Vec::new()) } else { Err(Missing::Replaced) };
            }
            if from >= extent.in_memory {
                let records = kept.records.range(kept.index(from)..).take(max.events);
                return Ok(records.take_while(max.bytes_left()).cloned().collect());
            }
            match &self.stream {
                Some(stream) if from >= extent.oldest => (extent, Arc::clone(&stream.archive)),
                Some(_) | None => return Err(Missing::Compacted(extent)),
            }
        };
        let events = max.events.min(usize::try_from(extent.newest - position.sequence).unwrap_or(max.events));
        let max = Most { events, ..max };
        let read = archive.read(&extent.log_id, from, max).await.map_err(Missing::Unreadable)?;
        let mut kept = self.kept();
        let now = kept.extent().filter(|now| now.log_id == extent.log_id).ok_or(Missing::Replaced)?;
        if from < read.first {
            kept.first = Some(read.first);
            return Err(Missing::Compacted(Extent { oldest: read.first.min(now.in_memory), ..now }));
        }
        Ok(read.records)
    }

    /// Waits until this replica has read the shared log up to a position.
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
        // A panic under this lock ends the process.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the kept log, and notifies the readers.
    fn change<T>(&self, change: impl FnOnce(&mut Kept) -> T) -> T {
        let changed = change(&mut self.kept());
        self.changed.send_replace(());
        changed
    }
}

/// The gap after a position.
fn lost(bytes: &Bytes, position: &Position) -> Gap {
    let at = |sequence: u64| Some(Position { sequence, ..position.clone() });
    let gap = Gap::decode(bytes.clone()).expect("every kept event was decoded here");
    let (first_missing, next) = (at(position.sequence + 1), at(position.sequence + 2));
    Gap { first_missing, next, reason: NOT_WRITTEN.to_owned(), ..gap }
}
