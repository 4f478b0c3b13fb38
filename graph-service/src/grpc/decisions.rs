//! Serves the decision log to queries and subscribers. The log belongs to the leader, or all replicas share it.

use super::access::{Visibility, redact};
use super::connection::Link;
use super::followers::Followers;
use super::pages::{self, fitting, page_size};
use super::stream::Encoded;
use super::{Shared, status};
use crate::clock::Dates;
use crate::decisions::{Extent, Missing, Reached};
use filter::{Filter, Within};
use follow::{Follow, Start};
use futures::stream::{BoxStream, StreamExt as _};
use looked::{Looked, Recent};
use place::Place;
use prost::Message as _;
use proto::decision::v1beta1::decision_service_server::DecisionService;
use proto::decision::v1beta1::*;
use std::sync::Arc;
use std::time::Duration;
use tonic::{Request, Response, Status};

mod encode;
mod event;
pub(super) mod filter;
mod follow;
pub(super) mod looked;
mod parity;
pub(super) mod place;
#[cfg(test)]
mod tests;
pub(super) mod watching;

/// Maximum number of positions to read from memory at once.
const STEP: u64 = 1024;
/// Maximum number of positions to read from the stream at once. All of them are in memory together.
const STEP_IN_STREAM: u64 = 64;
/// Maximum number of decoded events at once.
const DECODED_MAX: usize = 32;
/// Maximum number of events that one page of a list reads.
const LOOKED_AT_MAX: u64 = 65_536;
/// Maximum number of positions of the stream to search for one decision that is not in memory.
const IN_STREAM_MAX: u64 = 16_384;
/// Maximum number of phases of one decision in an answer.
const PHASES_MAX: usize = 1000;
/// The earliest protobuf timestamp, in seconds.
const YEAR_1: i64 = -62_135_596_800;
const YEAR_10_000: i64 = 253_402_300_800;
/// Events of one message: default and maximum.
const BATCH_DEFAULT: usize = 64;
const BATCH_MAX: usize = 256;
/// Interval of bookmarks on a quiet stream: default, minimum and maximum.
const BOOKMARK_DEFAULT: Duration = Duration::from_secs(5);
const BOOKMARK_MIN: Duration = Duration::from_secs(1);
const BOOKMARK_MAX: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(super) struct Decisions {
    shared: Arc<Shared>,
    followers: Followers,
    recent: Arc<Recent>,
    /// The dates of disagreements.
    dates: Dates,
}

impl Decisions {
    pub(super) fn new(shared: Arc<Shared>, followers: Followers) -> Decisions {
        Decisions { shared, followers, recent: Arc::default(), dates: Dates::default() }
    }

    /// Follows the log. Messages are already encoded, and compressed on request.
    async fn watch(
        &self,
        request: Request<WatchDecisionsRequest>,
        gzip: bool,
    ) -> Result<BoxStream<'static, Result<Encoded, Status>>, Status> {
        let connection = Link::cut_of(request.extensions());
        let visibility = self.shared.visibility(request.extensions())?;
        let request = request.into_inner();
        require_named(&visibility, &request.include).await?;
        let include = Filter::of("include", &request.include)?;
        let exclude = Filter::of("exclude", &request.exclude)?;
        let batch_max = match usize::try_from(request.max_batch).unwrap_or(usize::MAX) {
            0 => BATCH_DEFAULT,
            wanted => wanted.min(BATCH_MAX),
        };
        let encoding = EventEncoding::try_from(request.encoding)
            .map_err(|_| status::bad_field("encoding", "is unknown to this version"))?;
        let wanted = match &request.start {
            Some(watch_decisions_request::Start::After(position)) => Some(position),
            Some(
                watch_decisions_request::Start::Oldest(_)
                | watch_decisions_request::Start::Now(_)
                | watch_decisions_request::Start::OpenThenFollow(_)
                | watch_decisions_request::Start::StartTime(_),
            )
            | None => None,
        };
        let extent = self.extent_with(wanted).await?;
        let start = match request.start {
            Some(watch_decisions_request::Start::StartTime(time)) => self.start_at(&time, &extent).await?,
            other => Start::of(other, &extent, request.accept_gaps)?,
        };
        if start.needs_leader() && !self.shared.leadership().leading {
            return Err(status::not_leader(&self.shared.leadership()));
        }
        let follow = Follow {
            shared: Arc::clone(&self.shared),
            recent: Arc::clone(&self.recent),
            visibility: visibility.clone(),
            include,
            exclude,
            batch_max,
            bookmark_interval: bookmark_interval(request.bookmark_interval)?,
            encoding,
            view: view(request.view)?,
            gzip,
            accept_gaps: request.accept_gaps,
        };
        self.followers.open(connection, &visibility, |reader| follow.run(start, reader))
    }

    fn extent(&self) -> Result<Extent, Status> {
        self.shared.decisions.extent().ok_or_else(|| no_log(&self.shared))
    }

    async fn start_at(&self, time: &prost_types::Timestamp, extent: &Extent) -> Result<Start, Status> {
        if !(YEAR_1..YEAR_10_000).contains(&time.seconds) || !(0..1_000_000_000).contains(&time.nanos) {
            return Err(status::bad_field("start_time", "is not a valid timestamp"));
        }
        let _turn = self.shared.long_read().await?;
        match self.shared.decisions.before(time, extent).await {
            Ok(at) => Ok(Start::after(at)),
            Err(Missing::Unreadable(why)) => Err(unreadable(&why)),
            Err(Missing::Replaced | Missing::Compacted(_)) => Err(no_log(&self.shared)),
        }
    }

    /// The extent of this replica's log. If another replica has returned the position `wanted`, waits until the log
    /// reaches it.
    async fn extent_with(&self, wanted: Option<&Position>) -> Result<Extent, Status> {
        let extent = self.extent()?;
        let ahead = |position: &&Position| position.log_id == extent.log_id && position.sequence > extent.newest;
        let Some(position) = wanted.filter(ahead).filter(|_| self.shared.decisions.is_shared()) else {
            return Ok(extent);
        };
        match self.shared.decisions.reach(position).await {
            Reached::Yes | Reached::Never => self.extent(),
            Reached::NotYet => {
                Err(status::log_unavailable("this replica has not read the decision log up to this position yet"))
            }
        }
    }
}

/// Which fields of an event the caller requests.
fn view(wanted: i32) -> Result<EventView, Status> {
    EventView::try_from(wanted).map_err(|_| status::bad_field("view", "is unknown to this version"))
}

/// Why this replica has no log.
fn no_log(shared: &Shared) -> Status {
    if !shared.decisions.is_shared() {
        return status::not_leader(&shared.leadership());
    }
    let why = shared.decisions.problem().unwrap_or_else(|| "the first read is in progress".to_owned());
    status::log_unavailable(&format!("this replica has not read the decision log yet: {why}"))
}

/// The error for events that only the stream has, while the stream cannot be read.
fn unreadable(why: &str) -> Status {
    status::log_unavailable(&format!("events that are no longer in memory cannot be read: {why}"))
}

#[tonic::async_trait]
impl DecisionService for Decisions {
    type WatchDecisionsStream = BoxStream<'static, Result<WatchDecisionsResponse, Status>>;

    /// The decoded form, for tests. The server sends encoded messages; see [`watching`].
    async fn watch_decisions(
        &self,
        request: Request<WatchDecisionsRequest>,
    ) -> Result<Response<Self::WatchDecisionsStream>, Status> {
        let messages = self.watch(request, false).await?;
        Ok(Response::new(messages.map(|message| message.and_then(|message| message.decode())).boxed()))
    }

    async fn list_decisions(
        &self,
        request: Request<ListDecisionsRequest>,
    ) -> Result<Response<ListDecisionsResponse>, Status> {
        let visibility = self.shared.visibility(request.extensions())?;
        let request = request.into_inner();
        require_named(&visibility, &request.include).await?;
        let include = Filter::of("include", &request.include)?;
        let within = Within::of(request.start_time, request.end_time)?;
        let view = view(request.view)?;
        let question = ListDecisionsRequest { page_size: 0, page_token: String::new(), ..request.clone() };
        let size = page_size(request.page_size)?;
        let mut extent = self.extent()?;
        let place = Place::of(&question, &request.page_token, &extent.log_id, extent.newest)?;
        let is_wanted = |looked: &Looked| {
            within.admits(looked.event()) && include.as_ref().is_none_or(|filter| filter.admits(looked))
        };
        let _turn = self.shared.long_read().await?;
        let mut before = place.before;
        let mut found: Vec<DecisionEvent> = Vec::new();
        // Reads one event more than the page, to know whether there is a next page.
        let until = before.saturating_sub(LOOKED_AT_MAX);
        let mut bytes = 0;
        while found.len() <= size && bytes <= pages::BYTES_MAX && before > extent.oldest.max(until) {
            let from = step_back(before, &extent);
            let at = Position { log_id: extent.log_id.clone(), sequence: from - 1 };
            match self.shared.decisions.among(&at, usize::try_from(before - from).unwrap_or(0)).await {
                Ok(events) => {
                    let mut events = events.rev();
                    while found.len() <= size && bytes <= pages::BYTES_MAX {
                        let some: Vec<_> = events.by_ref().take(DECODED_MAX).collect();
                        if some.is_empty() {
                            break;
                        }
                        let known = found.len();
                        let looked = redact::events(&visibility, some).await?.into_iter().map(Looked::of);
                        found.extend(looked.filter(is_wanted).map(Looked::into_event));
                        found[known..].iter_mut().for_each(|event| encode::shown(event, view));
                        bytes += found[known..].iter().map(prost::Message::encoded_len).sum::<usize>();
                    }
                    before = from;
                }
                // Events that were dropped in the meantime are no longer listed.
                Err(Missing::Compacted(now)) => extent = now,
                Err(Missing::Replaced) => return Err(no_log(&self.shared)),
                Err(Missing::Unreadable(why)) => return Err(unreadable(&why)),
            }
            tokio::task::yield_now().await;
        }
        let count = fitting(found.iter().map(|event| event.encoded_len()), size);
        let next = if found.len() > count {
            found[..count].last().and_then(|event| event.position.as_ref()).map(|last| last.sequence)
        } else {
            Some(before).filter(|before| *before > extent.oldest)
        };
        let next_page_token = next.map_or_else(String::new, |before| place.token(before));
        found.truncate(count);
        Ok(Response::new(ListDecisionsResponse { events: found, next_page_token, meta: Some(self.shared.meta()) }))
    }

    async fn get_parity(&self, request: Request<GetParityRequest>) -> Result<Response<GetParityResponse>, Status> {
        self.parity(request.into_inner()).map(Response::new)
    }

    async fn list_disagreements(
        &self,
        request: Request<ListDisagreementsRequest>,
    ) -> Result<Response<ListDisagreementsResponse>, Status> {
        let visibility = self.shared.visibility(request.extensions())?;
        self.disagreements(request.into_inner(), visibility).await.map(Response::new)
    }

    async fn get_decision(
        &self,
        request: Request<GetDecisionRequest>,
    ) -> Result<Response<GetDecisionResponse>, Status> {
        let visibility = self.shared.visibility(request.extensions())?;
        let GetDecisionRequest { decision_id: wanted, before } = request.into_inner();
        visibility.learn([""; 0]).await?;
        let mut extent = self.extent_with(before.as_ref()).await?;
        let end = extent.newest + 1;
        let mut before = match before {
            Some(position) if position.log_id == extent.log_id => position.sequence.min(end),
            Some(_) => return Err(status::position_compacted(&extent)),
            None => end,
        };
        let _turn = self.shared.long_read().await?;
        let mut in_stream = IN_STREAM_MAX;
        let (mut found, mut is_whole, mut bytes) = (Vec::new(), false, 0);
        while before > extent.oldest && !is_whole && in_stream > 0 {
            let from = step_back(before, &extent);
            if from < extent.in_memory {
                // The first phase of the decision is in memory.
                if found.last().is_some_and(|event: &DecisionEvent| event.phase() == Phase::Proposed) {
                    break;
                }
                in_stream = in_stream.saturating_sub(before - from);
            }
            let at = Position { log_id: extent.log_id.clone(), sequence: from - 1 };
            let step = match self.shared.decisions.among(&at, usize::try_from(before - from).unwrap_or(0)).await {
                Ok(step) => step.rev().filter(|event| event.decision_id == wanted),
                Err(Missing::Compacted(now)) => {
                    extent = now;
                    continue;
                }
                Err(Missing::Replaced) => return Err(no_log(&self.shared)),
                Err(Missing::Unreadable(why)) => return Err(unreadable(&why)),
            };
            before = from;
            for event in step {
                let namespace = event.target.as_ref().map(|target| target.namespace.clone());
                visibility.learn(namespace.as_slice()).await?;
                for event in redact::events(&visibility, vec![event]).await? {
                    bytes += event.encoded_len();
                    is_whole = is_whole || found.len() == PHASES_MAX || bytes > pages::BYTES_MAX;
                    if !is_whole {
                        found.push(event);
                    }
                }
            }
            tokio::task::yield_now().await;
        }
        if is_whole {
            before = found.last().and_then(|event| event.position.as_ref()).map_or(before, |last| last.sequence);
        }
        let searched_from =
            Some(Position { log_id: extent.log_id, sequence: before }).filter(|_| before > extent.oldest);
        if found.is_empty() && searched_from.is_none() {
            return Err(visibility.hidden(|| status::decision_not_found(&wanted)));
        }
        found.reverse();
        Ok(Response::new(GetDecisionResponse { events: found, meta: Some(self.shared.meta()), searched_from }))
    }
}

/// The beginning of the positions to read next, before this one.
fn step_back(before: u64, extent: &Extent) -> u64 {
    if before > extent.in_memory {
        before.saturating_sub(STEP).max(extent.in_memory)
    } else {
        before.saturating_sub(STEP_IN_STREAM).max(extent.oldest)
    }
}

/// Returns an error unless the caller may see everything, or each filter names the namespaces of its targets.
async fn require_named(visibility: &Visibility, filters: &[DecisionFilter]) -> Result<(), Status> {
    const NONE: &[String] = &[];
    let mut named = Vec::new();
    for filter in filters {
        named.extend(filter.targets.iter().map(|target| target.namespaces.as_slice()));
        if filter.targets.is_empty() {
            named.push(NONE);
        }
    }
    visibility.require_named(named).await
}

fn bookmark_interval(wanted: Option<prost_types::Duration>) -> Result<Duration, Status> {
    let Some(wanted) = wanted else { return Ok(BOOKMARK_DEFAULT) };
    Ok(status::duration("bookmark_interval", wanted)?.clamp(BOOKMARK_MIN, BOOKMARK_MAX))
}
