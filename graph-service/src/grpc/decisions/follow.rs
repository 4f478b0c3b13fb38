//! One subscriber's stream of the log.
//!
//! The stream begins with open decisions if the subscriber requests them or has missed events, and continues with new
//! events. The subscriber may store the position of each message: all requested events up to it have been sent before.

use super::encode::{BATCH, most, parts};
use super::filter::Filter;
use super::looked::{Looked, Recent};
use crate::clock::wire;
use crate::decisions::{Extent, Logged, Missing, Tail};
use crate::grpc::access::Visibility;
use crate::grpc::access::redact::{self, Shown};
use crate::grpc::followers::{Reader, STREAM_AGE, Stop};
use crate::grpc::stream::Encoded;
use crate::grpc::{Shared, renewal_age, status};
use engine::object::Uid;
use prometheus_client::metrics::gauge::Gauge;
use prost::bytes::{Bytes, BytesMut};
use proto::convert::open_decision;
use proto::decision::v1beta1::watch_decisions_request::Start as Wanted;
use proto::decision::v1beta1::watch_decisions_response::{Bookmark, Event, Gap, GoingAway};
use proto::decision::v1beta1::{EventEncoding, EventView, Position, WatchDecisionsResponse};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};
use tonic::Status;

/// Maximum time for which filters run before other tasks get a turn.
const AT_A_TIME: Duration = Duration::from_millis(5);

/// Gap reason: the reader was too slow, or disconnected for too long.
const COMPACTED: &str = "COMPACTED";
/// Gap reason: a new leader has a new log.
const LOG_REPLACED: &str = "LOG_REPLACED";

/// Where a stream begins.
#[derive(Debug, PartialEq)]
pub(super) struct Start {
    at: Position,
    /// Send the open decisions at that position first.
    open: bool,
    /// Report this gap, after this position, before anything else.
    gap: Option<(Position, Gap)>,
}

impl Start {
    /// The start after a position of the log.
    pub(super) fn after(at: Position) -> Start {
        Start { at, open: false, gap: None }
    }

    /// The start that a request asks for, unless it is a time.
    pub(super) fn of(wanted: Option<Wanted>, extent: &Extent, accept_gaps: bool) -> Result<Start, Status> {
        let at = |sequence: u64| Position { log_id: extent.log_id.clone(), sequence };
        let from = |sequence: u64| Ok(Start::after(at(sequence)));
        let position = match wanted {
            Some(Wanted::Oldest(true)) => return from(extent.oldest - 1),
            None | Some(Wanted::Now(true)) => return from(extent.newest),
            Some(Wanted::OpenThenFollow(true)) => return Ok(Start { at: at(extent.newest), open: true, gap: None }),
            Some(Wanted::Oldest(false) | Wanted::Now(false) | Wanted::OpenThenFollow(false) | Wanted::StartTime(_)) => {
                return Err(status::bad_field("start", "is false; leave out the field instead"));
            }
            Some(Wanted::After(position)) => position,
        };
        if position.log_id.is_empty() {
            return Err(status::bad_field("after.log_id", "is missing"));
        }
        let ours = position.log_id == extent.log_id && position.sequence <= extent.newest;
        if ours && position.sequence + 1 >= extent.oldest {
            return from(position.sequence);
        }
        if !accept_gaps {
            return Err(status::position_compacted(extent));
        }
        let gap = if ours { lost_after(&position, extent, COMPACTED) } else { replaced(extent) };
        Ok(Start { at: at(extent.newest), open: true, gap: Some((position, gap)) })
    }
}

impl Start {
    /// Only the leader knows the open decisions. Any replica can report a gap.
    pub(super) fn needs_leader(&self) -> bool {
        self.open && self.gap.is_none()
    }
}

fn lost_after(position: &Position, extent: &Extent, reason: &str) -> Gap {
    let at = |sequence: u64| Some(Position { log_id: extent.log_id.clone(), sequence });
    let (first_missing, next) = (at(position.sequence + 1), at(extent.newest + 1));
    Gap { first_missing, next, reason: reason.to_owned(), ..Gap::default() }
}

fn replaced(extent: &Extent) -> Gap {
    let next = Some(Position { log_id: extent.log_id.clone(), sequence: extent.newest + 1 });
    Gap { next, reason: LOG_REPLACED.to_owned(), ..Gap::default() }
}

/// The request of a reader.
#[derive(Debug)]
pub(super) struct Follow {
    pub(super) shared: Arc<Shared>,
    pub(super) recent: Arc<Recent>,
    pub(super) visibility: Visibility,
    pub(super) include: Option<Filter>,
    pub(super) exclude: Option<Filter>,
    pub(super) batch_max: usize,
    pub(super) bookmark_interval: Duration,
    pub(super) encoding: EventEncoding,
    pub(super) view: EventView,
    /// Compress messages that are large enough.
    pub(super) gzip: bool,
    pub(super) accept_gaps: bool,
}

/// The progress of the stream.
struct Sent {
    reader: Reader<Encoded>,
    /// The last position that was sent.
    position: Option<Position>,
    is_first: bool,
    at: Instant,
}

/// Counts a follower while it exists.
struct Counted(Gauge);

impl Counted {
    fn new(followers: &Gauge) -> Counted {
        followers.inc();
        Counted(followers.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl Follow {
    pub(super) async fn run(self, start: Start, reader: Reader<Encoded>) -> Result<(), Status> {
        let _counted = Counted::new(&self.shared.metrics.log.followers);
        let sent = Sent { reader, position: None, is_first: true, at: Instant::now() };
        Stop::ended(self.follow(start, sent).await)
    }

    async fn follow(&self, start: Start, mut sent: Sent) -> Result<(), Stop> {
        let ends = Instant::now() + renewal_age(STREAM_AGE);
        let mut changes = self.shared.decisions.changes();
        let mut at = start.at;
        if let Some((from, gap)) = start.gap {
            self.send_gap(self.shared.decisions.known_of(&from, gap), &at, &mut sent).await?;
        }
        if start.open {
            self.send_open(&at, &mut sent).await?;
        }
        loop {
            changes.mark_unchanged();
            // Batches end at multiples of the batch size, so that lagging readers share them.
            let max = self.batch_max - usize::try_from(at.sequence % self.batch_max as u64).unwrap_or_default();
            let events = match self.shared.decisions.after(&at, most(max)).await {
                Ok(Tail::Events(events)) => events,
                Ok(Tail::Lost(gap)) if self.accept_gaps => {
                    at = self.go_on(gap, &mut sent).await?;
                    continue;
                }
                Ok(Tail::Lost(gap)) => return Err(Stop::Failed(status::position_not_written(&gap))),
                Err(Missing::Compacted(extent)) if self.accept_gaps => {
                    let gap = self.shared.decisions.known_of(&at, lost_after(&at, &extent, COMPACTED));
                    at = self.go_on(gap, &mut sent).await?;
                    continue;
                }
                Err(Missing::Compacted(_)) => return Err(Stop::Failed(self.too_slow(&sent))),
                // If this replica is stopping, its log ends for that reason.
                Err(Missing::Replaced) if self.shared.shutdown.is_requested() => {
                    return self.send_away(&at, &mut sent).await;
                }
                Err(Missing::Replaced) => {
                    at = self.go_on_in_another(&at, &mut sent).await?;
                    continue;
                }
                Err(Missing::Unreadable(why)) => return Err(Stop::Failed(super::unreadable(&why))),
            };
            let more = !events.is_empty();
            at.sequence += events.len() as u64;
            let batch = self.batch(&at.log_id, &events).await?;
            if !batch.is_empty() {
                self.send_batch(batch, Some(&at), &mut sent).await?;
            }
            let bookmark_at = sent.at + self.bookmark_interval;
            let now = Instant::now();
            if sent.is_first || now >= bookmark_at {
                self.send(Event::Bookmark(self.bookmark(false)), Some(&at), &mut sent).await?;
            }
            if now >= ends || self.shared.shutdown.is_requested() {
                return self.send_away(&at, &mut sent).await;
            }
            if more {
                tokio::task::yield_now().await;
                continue;
            }
            tokio::select! {
                // The sender lives as long as the service.
                _ = changes.changed() => {}
                () = sleep_until(bookmark_at.min(ends)) => {}
                () = self.shared.shutdown.requested() => {}
                () = sent.reader.gone() => return Err(Stop::Gone),
            }
        }
    }

    /// Encodes the requested part of these events as a batch.
    async fn batch(&self, log_id: &str, events: &[Logged]) -> Result<Bytes, Stop> {
        let wants_all = self.include.is_none() && self.exclude.is_none();
        let as_kept = self.encoding != EventEncoding::Cloudevents && self.view != EventView::Basic;
        if wants_all && as_kept && self.visibility.sees_everything() {
            return Ok(self.recent.batch(log_id, events));
        }
        self.admitted(&self.recent.look(log_id, events)).await
    }

    /// Encodes the admitted part of decoded events. Redaction comes before filters.
    async fn admitted(&self, events: &[Arc<Looked>]) -> Result<Bytes, Stop> {
        let mut batch = BytesMut::new();
        let mut since = Instant::now();
        for whole in events {
            if since.elapsed() >= AT_A_TIME {
                tokio::task::yield_now().await;
                since = Instant::now();
            }
            let part;
            let looked = match redact::event(&self.visibility, whole.event()).await.map_err(Stop::Failed)? {
                Shown::Whole => &**whole,
                Shown::Part(event) => {
                    part = Looked::of(*event);
                    &part
                }
                Shown::Nothing => continue,
            };
            if self.include.as_ref().is_none_or(|filter| filter.admits(looked))
                && !self.exclude.as_ref().is_some_and(|filter| filter.admits(looked))
            {
                batch.extend_from_slice(looked.part(self.encoding, self.view, &self.shared.cluster_uid));
            }
        }
        Ok(batch.freeze())
    }

    /// Continues in a new log: this replica leads again, or another one does.
    async fn go_on_in_another(&self, at: &Position, sent: &mut Sent) -> Result<Position, Stop> {
        match self.shared.decisions.extent() {
            None => Err(Stop::Failed(super::no_log(&self.shared))),
            Some(extent) if self.accept_gaps => {
                self.go_on(self.shared.decisions.known_of(at, replaced(&extent)), sent).await
            }
            Some(extent) => Err(Stop::Failed(status::position_compacted(&extent))),
        }
    }

    /// Sends the gap and the open decisions, then continues.
    async fn go_on(&self, gap: Gap, sent: &mut Sent) -> Result<Position, Stop> {
        let next = gap.next.clone().unwrap_or_default();
        let at = Position { sequence: next.sequence.saturating_sub(1), ..next };
        self.send_gap(gap, &at, sent).await?;
        self.send_open(&at, sent).await?;
        Ok(at)
    }

    /// Sends a gap before the open decisions. Even if sending those fails, the reader continues after the gap.
    async fn send_gap(&self, gap: Gap, at: &Position, sent: &mut Sent) -> Result<(), Stop> {
        let at = Some(at).filter(|_| !self.shared.leadership().leading);
        self.send(Event::Gap(gap), at, sent).await
    }

    /// Sends each decision that is not carried out yet, in its state at that time. Changes in the meantime follow after
    /// `at`.
    async fn send_open(&self, at: &Position, sent: &mut Sent) -> Result<(), Stop> {
        let mut last: Option<Uid> = None;
        loop {
            let Some(term) = self.shared.leadership().term.filter(|_| self.shared.leadership().leading) else {
                return Err(Stop::Failed(status::not_leader(&self.shared.leadership())));
            };
            let open = self.shared.reader.with(|leader| leader.open_decisions(last.as_ref(), self.batch_max));
            let Some(newest) = open.last() else { break };
            last = Some(newest.target.uid.clone());
            let clock = wire(self.shared.clock);
            let events = open.iter().map(|open| open_decision(open, &term, clock)).collect();
            for part in parts(events) {
                let part: Vec<Arc<Looked>> = part.into_iter().map(|event| Arc::new(Looked::of(event))).collect();
                let batch = self.admitted(&part).await?;
                if !batch.is_empty() {
                    self.send_batch(batch, None, sent).await?;
                }
            }
            tokio::task::yield_now().await;
        }
        self.send(Event::Bookmark(self.bookmark(true)), Some(at), sent).await
    }

    fn bookmark(&self, snapshot_complete: bool) -> Bookmark {
        let errors = self.include.iter().chain(&self.exclude).map(Filter::errors);
        Bookmark { snapshot_complete, expression_errors: errors.sum() }
    }

    async fn send_away(&self, at: &Position, sent: &mut Sent) -> Result<(), Stop> {
        let (reason, reconnect_after) = self.shared.going_away();
        self.send(Event::GoingAway(GoingAway { reason, reconnect_after }), Some(at), sent).await
    }

    fn too_slow(&self, sent: &Sent) -> Status {
        self.shared.metrics.log.slow_followers.inc();
        status::slow_consumer(sent.position.as_ref())
    }

    async fn send(&self, event: Event, position: Option<&Position>, sent: &mut Sent) -> Result<(), Stop> {
        let message = WatchDecisionsResponse { event: Some(event), ..self.beside(position, sent) };
        self.hand_over(Encoded::of(&message), position, sent).await
    }

    async fn send_batch(&self, batch: Bytes, position: Option<&Position>, sent: &mut Sent) -> Result<(), Stop> {
        let message = Encoded::with_field(&self.beside(position, sent), BATCH, batch);
        self.hand_over(message, position, sent).await
    }

    /// The message fields besides the events. `position` is absent unless all requested events up to it have been sent.
    fn beside(&self, position: Option<&Position>, sent: &mut Sent) -> WatchDecisionsResponse {
        let meta = std::mem::take(&mut sent.is_first).then(|| self.shared.meta());
        let head = self.shared.decisions.extent();
        let head = head.map(|extent| Position { log_id: extent.log_id, sequence: extent.newest });
        WatchDecisionsResponse { event: None, position: position.cloned(), head, meta }
    }

    async fn hand_over(&self, message: Encoded, position: Option<&Position>, sent: &mut Sent) -> Result<(), Stop> {
        let message = if self.gzip { message.compressed() } else { message };
        sent.reader.send(message).await.map_err(|why| Stop::untaken(why, || self.too_slow(sent)))?;
        if let Some(position) = position {
            sent.position = Some(position.clone());
        }
        sent.at = Instant::now();
        Ok(())
    }
}
