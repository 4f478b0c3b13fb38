//! Follows the log across the end of a stream, of a connection and of a term.

use super::record::{Record, gap_words, lost_words};
use crate::failure::sentence;
use crate::kubectl::ending::Problem;
use crate::kubectl::questions::answered;
use crate::kubectl::service::{Need, Service};
use crate::kubectl::session::Session;
use anyhow::Context as _;
use prost::Message as _;
use proto::cloudevents::v1::CloudEvent;
use proto::decision::v1beta1::watch_decisions_request::Start;
use proto::decision::v1beta1::watch_decisions_response::Event;
use proto::decision::v1beta1::{
    DecisionFilter, EventEncoding, Position, WatchDecisionsRequest, WatchDecisionsResponse,
};
use std::time::Duration;
use tokio::time::{sleep, timeout};
use tonic::{Code, Streaming};

/// Interval of bookmarks. It is the minimum that the service allows, because a bookmark marks the end of past events.
const BOOKMARK_EVERY: Duration = Duration::from_secs(1);
/// Without an event or a bookmark for this time, the connection counts as dead.
pub(super) const QUIET_MAX: Duration = Duration::from_secs(30);
const BATCH_MAX: u32 = 256;
/// The delay before a broken stream is opened again. It doubles with each failure, until a message arrives.
const AGAIN_AFTER_MIN: Duration = Duration::from_millis(500);
const AGAIN_AFTER_MAX: Duration = Duration::from_secs(10);

/// A message of a stream.
#[derive(Debug)]
pub(in crate::kubectl) enum Next {
    Records(Vec<Record>),
    /// No new event.
    Quiet,
}

/// One reader.
#[derive(Debug)]
pub(in crate::kubectl) struct Follow {
    service: Service,
    start: Start,
    filters: Vec<DecisionFilter>,
    encoding: EventEncoding,
    stream: Option<Streaming<WatchDecisionsResponse>>,
    position: Option<Position>,
    head: u64,
    /// The snapshot of open decisions is complete, or was not requested.
    complete: bool,
    /// After a gap, the reader wants what the log still has, and not the open decisions.
    wants_all: bool,
    /// A stream was open before, so a failure may pass.
    opened: bool,
    again_after: Duration,
}

/// The reasons of gaps whose log has events after the lost ones that the stream leaves out.
const RESUMABLE: [&str; 2] = ["COMPACTED", "LOG_REPLACED"];

impl Follow {
    pub(in crate::kubectl) fn new(
        service: Service,
        start: Start,
        filters: Vec<DecisionFilter>,
        encoding: EventEncoding,
    ) -> Follow {
        let complete = !matches!(start, Start::OpenThenFollow(_));
        let (stream, position, head, again_after) = (None, None, 0, AGAIN_AFTER_MIN);
        let (wants_all, opened) = (false, false);
        Follow { service, start, filters, encoding, stream, position, head, complete, wants_all, opened, again_after }
    }

    /// Continues after a gap with the oldest kept event, for a reader that is to miss as little as possible.
    pub(in crate::kubectl) fn wanting_all(self) -> Follow {
        Follow { wants_all: true, ..self }
    }

    /// All events up to this position have arrived.
    pub(in crate::kubectl) fn position(&self) -> Option<Position> {
        self.position.clone()
    }

    /// The number of the newest event of the log, when the last message was sent.
    pub(in crate::kubectl) fn head(&self) -> u64 {
        self.head
    }

    /// The snapshot of open decisions is complete.
    pub(in crate::kubectl) fn is_complete(&self) -> bool {
        self.complete
    }

    /// The stream had reached the end of the log when the last message was sent.
    pub(in crate::kubectl) fn caught_up(&self) -> bool {
        self.complete && self.position.as_ref().is_some_and(|at| at.sequence >= self.head)
    }

    /// Waits for the next message. With `--follow`, a broken stream is opened again at the last position.
    pub(in crate::kubectl) async fn next(&mut self, session: &mut Session, forever: bool) -> Result<Next, Problem> {
        loop {
            match self.message().await {
                Ok(message) => {
                    self.again_after = AGAIN_AFTER_MIN;
                    if let Some(next) = self.take(session, message).await? {
                        return Ok(next);
                    }
                }
                Err(Broken::For(problem)) => return Err(problem),
                Err(Broken::Meanwhile(problem)) if !forever => return Err(problem),
                Err(Broken::Meanwhile(problem)) => {
                    if let Problem::Other(error) = problem {
                        session.note(&format!("{}; connecting again", sentence(&error)));
                    }
                    self.reconnect(session).await;
                }
            }
        }
    }

    async fn reconnect(&mut self, session: &mut Session) {
        self.stream = None;
        loop {
            sleep(self.again_after).await;
            self.again_after = (self.again_after * 2).min(AGAIN_AFTER_MAX);
            match Service::connect(session, Need::Leader).await {
                Ok(service) => {
                    self.service = service;
                    return;
                }
                Err(Problem::Other(error)) => session.note(&sentence(&error)),
                Err(Problem::Refused(why) | Problem::TimedOut(why)) => session.note(&why),
            }
        }
    }

    async fn message(&mut self) -> Result<WatchDecisionsResponse, Broken> {
        let stream = match &mut self.stream {
            Some(stream) => stream,
            None => {
                let stream = answered(self.service.within, self.service.decisions.watch_decisions(self.request()));
                let first = !self.opened;
                let stream = stream.await.map_err(|problem| match first && matches!(problem, Problem::Other(_)) {
                    true => Broken::For(problem),
                    false => Broken::Meanwhile(problem),
                })?;
                self.opened = true;
                self.stream.insert(stream)
            }
        };
        match timeout(QUIET_MAX, stream.message()).await {
            Ok(Ok(Some(message))) => Ok(message),
            Ok(Ok(None)) => Err(Broken::Meanwhile(Problem::sentence("the stream of decisions has ended"))),
            Ok(Err(status)) if status.code() == Code::InvalidArgument => Err(Broken::For(status.into())),
            Ok(Err(status)) => Err(Broken::Meanwhile(status.into())),
            Err(_) => {
                Err(Broken::Meanwhile(Problem::TimedOut(format!("no decisions and no bookmark within {QUIET_MAX:?}"))))
            }
        }
    }

    fn request(&self) -> WatchDecisionsRequest {
        let start = self.position.clone().map_or_else(|| self.start.clone(), Start::After);
        WatchDecisionsRequest {
            start: Some(start),
            include: self.filters.clone(),
            bookmark_interval: prost_types::Duration::try_from(BOOKMARK_EVERY).ok(),
            max_batch: BATCH_MAX,
            encoding: self.encoding.into(),
            accept_gaps: true,
            ..Default::default()
        }
    }

    async fn take(&mut self, session: &Session, message: WatchDecisionsResponse) -> Result<Option<Next>, Problem> {
        self.head = message.head.map_or(self.head, |head| head.sequence);
        if let (Some(Event::Gap(gap)), None, false) = (&message.event, &self.position, self.wants_all)
            && let (Start::After(wanted), Some(next)) = (&self.start, &gap.next)
            && (wanted.log_id == next.log_id && wanted.sequence >= next.sequence)
        {
            let Position { log_id, sequence } = wanted;
            return Err(Problem::sentence(format!(
                "--after {log_id}:{sequence} is after the end of the log, whose next event is {}",
                next.sequence
            )));
        }
        self.position = message.position.or(self.position.take());
        match message.event {
            Some(Event::Batch(batch)) => {
                let clouds = batch.cloud_events.iter().map(|bytes| CloudEvent::decode(bytes.as_slice()));
                let clouds = clouds.collect::<Result<Vec<_>, _>>().context("a CloudEvent cannot be read")?;
                let clouds = clouds.into_iter().map(|event| Record::Cloud(Box::new(event)));
                Ok(Some(Next::Records(batch.events.into_iter().map(Record::of).chain(clouds).collect())))
            }
            Some(Event::Gap(gap)) if self.wants_all && RESUMABLE.contains(&gap.reason.as_str()) => {
                session.note(&format!("{}; the oldest kept event follows", lost_words(&gap)));
                (self.stream, self.position, self.start) = (None, None, Start::Oldest(true));
                Ok(Some(Next::Records(vec![Record::Gap(gap)])))
            }
            Some(Event::Gap(gap)) => {
                session.note(&gap_words(&gap));
                self.complete = false;
                Ok(Some(Next::Records(vec![Record::Gap(gap)])))
            }
            Some(Event::Bookmark(bookmark)) => {
                self.complete |= bookmark.snapshot_complete;
                Ok(Some(Next::Quiet))
            }
            Some(Event::GoingAway(going)) => {
                self.stream = None;
                let after = going.reconnect_after.and_then(|after| Duration::try_from(after).ok()).unwrap_or_default();
                sleep(after.min(AGAIN_AFTER_MAX)).await;
                Ok(None)
            }
            None => Ok(None),
        }
    }
}

/// Why there is no message.
enum Broken {
    /// A permanent error.
    For(Problem),
    /// Another connection may succeed.
    Meanwhile(Problem),
}
