//! The log of decisions: every step that the leader takes, in order, for whoever follows.
//!
//! Positions are dense. In memory the log begins with the term and ends with it; on JetStream it is a stream that all replicas mirror into
//! what is kept here. A reader that comes with a position of another log is told so.
//! Events are kept encoded, because most are never read, and those that are go to many. Whoever reads does so at its own pace from the one
//! log: a slow reader costs nothing but the work it asks for, and what it missed is a loss that it is told of, never a jump.

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

/// Events that are kept in memory, at most.
const EVENTS_MAX: usize = 65_536;
/// What a reader is sent with an event, beside the event as it is kept: its position, and what a CloudEvent has beside its data and
/// what is told of the target.
pub(crate) const FRAME_BYTES: usize = 768;
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
    /// Where this is the mirror of what all replicas share, and not this leader's own.
    stream: Option<Stream>,
}

/// What is behind a mirror.
#[derive(Clone, Debug)]
struct Stream {
    archive: Arc<dyn Archive>,
    queue: Arc<Queue>,
}

/// How much is read at once. One event is read, however large it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Most {
    pub(crate) events: usize,
    /// Of the events as they are kept, with [`FRAME_BYTES`] for each.
    pub(crate) bytes: usize,
}

impl Most {
    /// Whether the next record is among what is read. It is asked of each in order.
    fn bytes_left(self) -> impl FnMut(&&Record) -> bool {
        let mut bytes = 0_usize;
        move |record| {
            let is_first = bytes == 0;
            bytes = bytes.saturating_add(record.len() + FRAME_BYTES);
            is_first || bytes <= self.bytes
        }
    }
}

/// What comes after a position.
#[derive(Debug)]
pub(crate) enum Tail {
    /// In order, without a hole; none where nothing new has come.
    Events(Vec<Logged>),
    /// The next position stands for what was never written.
    Lost(Gap),
}

/// An event of the log as it is kept.
#[derive(Clone, Debug)]
pub(crate) struct Logged {
    pub(crate) sequence: u64,
    /// Encoded, without its position.
    pub(crate) bytes: Bytes,
}

impl Logged {
    /// The event with its position.
    pub(crate) fn decode(&self, log_id: &str) -> DecisionEvent {
        let event = DecisionEvent::decode(self.bytes.clone());
        let event = event.expect("nothing is kept that was not decoded or encoded here");
        DecisionEvent { position: Some(Position { log_id: log_id.to_owned(), sequence: self.sequence }), ..event }
    }
}

/// Why nothing can be said of what comes after a position.
#[derive(Debug)]
pub(crate) enum Missing {
    /// Some of it is not kept any more.
    Compacted(Extent),
    /// The position is of another log, or this one has ended.
    Replaced,
    /// It is kept by the stream alone, which does not answer.
    Unreadable(String),
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
        DecisionLog { kept: Arc::default(), changed: watch::Sender::new(()), events_max: EVENTS_MAX, stream: None }
    }

    /// To be filled from the log that all replicas share.
    fn mirror(archive: Arc<dyn Archive>, queue: Arc<Queue>) -> DecisionLog {
        DecisionLog { stream: Some(Stream { archive, queue }), ..DecisionLog::in_memory() }
    }

    /// Of the stream behind this connection, with what comes into its queue written to it. `is_required`: nothing is granted while the
    /// stream is away.
    pub(crate) fn on(connection: Connection, is_required: bool, tasks: &mut Tasks) -> DecisionLog {
        let queue = Arc::new(Queue::new(is_required));
        let log = DecisionLog::mirror(Arc::new(connection.clone()), Arc::clone(&queue));
        tasks.spawn_until_end("mirror of the decision log", mirror::run(connection.clone(), log.clone()));
        tasks.spawn_until_end("decision log", publisher::run(connection, queue));
        log
    }

    /// Whether every replica has it.
    pub(crate) fn is_shared(&self) -> bool {
        self.stream.is_some()
    }

    /// What waits to be written to the shared log, where there is one.
    pub(crate) fn queue(&self) -> Option<&Arc<Queue>> {
        self.stream.as_ref().map(|stream| &stream.queue)
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

    /// At most so many events after this position.
    pub(crate) async fn after(&self, position: &Position, max: Most) -> Result<Tail, Missing> {
        let records = self.records(position, max).await?;
        if let Some(Record::Loss(bytes)) = records.first() {
            return Ok(Tail::Lost(lost(bytes, position)));
        }
        let events = (position.sequence + 1..).zip(records).map_while(Record::event);
        Ok(Tail::Events(events.collect()))
    }

    /// The events among the `max` positions after this one, each decoded when it is taken; losses are passed over.
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

    /// What stands at the positions after this one.
    async fn records(&self, position: &Position, max: Most) -> Result<Vec<Record>, Missing> {
        let from = position.sequence.saturating_add(1);
        let (extent, archive) = {
            let kept = self.kept();
            let extent = kept.extent().filter(|extent| extent.log_id == position.log_id).ok_or(Missing::Replaced)?;
            if position.sequence > extent.newest {
                // A log of this replica's own never gave out a position that is yet to come; another replica may have read further.
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

/// The loss of what comes after a position.
fn lost(bytes: &Bytes, position: &Position) -> Gap {
    let at = |sequence: u64| Some(Position { sequence, ..position.clone() });
    let gap = Gap::decode(bytes.clone()).expect("nothing is kept that was not decoded here");
    let (first_missing, next) = (at(position.sequence + 1), at(position.sequence + 2));
    Gap { first_missing, next, reason: NOT_WRITTEN.to_owned(), ..gap }
}
