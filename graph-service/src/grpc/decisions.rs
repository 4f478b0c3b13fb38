//! The log of decisions, for whoever asks and whoever follows. The leader has it, or every replica does.

use super::access::{Sight, redact};
use super::connection::Link;
use super::followers::Followers;
use super::pages::{fitting, page_size};
use super::stream::Encoded;
use super::{Shared, status};
use crate::decisions::{Extent, Missing, Reached};
use filter::{Filter, Within};
use follow::{Follow, Start};
use futures::stream::{BoxStream, StreamExt as _};
use looked::{Looked, Recent};
use place::Place;
use proto::decision::v1beta1::decision_service_server::DecisionService;
use proto::decision::v1beta1::*;
use std::sync::Arc;
use std::time::Duration;
use tonic::{Request, Response, Status};

mod encode;
pub(super) mod filter;
mod follow;
pub(super) mod looked;
pub(super) mod place;
#[cfg(test)]
mod tests;
pub(super) mod watching;

/// Events that are looked at under one hold of the log.
const STEP: usize = 1024;
/// Events that one page of a list looks at.
const LOOKED_AT_MAX: u64 = 65_536;
/// Phases of one decision that are told: the oldest.
const PHASES_MAX: usize = 1000;
/// Events of one message where nothing is said, and at most.
const BATCH_DEFAULT: usize = 64;
const BATCH_MAX: usize = 256;
/// Between two bookmarks of a quiet stream where nothing is said, at least and at most.
const BOOKMARK_DEFAULT: Duration = Duration::from_secs(5);
const BOOKMARK_MIN: Duration = Duration::from_secs(1);
const BOOKMARK_MAX: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(super) struct Decisions {
    shared: Arc<Shared>,
    followers: Followers,
    recent: Arc<Recent>,
}

impl Decisions {
    pub(super) fn new(shared: Arc<Shared>, followers: Followers) -> Decisions {
        Decisions { shared, followers, recent: Arc::default() }
    }

    /// Follows the log. Messages are encoded already, and compressed where that is wanted.
    async fn watch(
        &self,
        request: Request<WatchDecisionsRequest>,
        gzip: bool,
    ) -> Result<BoxStream<'static, Result<Encoded, Status>>, Status> {
        let connection = request.extensions().get::<Link>().map(|link| link.cut.clone());
        let sight = self.shared.sight(request.extensions())?;
        let request = request.into_inner();
        require_named(&sight, &request.include).await?;
        let include = Filter::of("include", &request.include)?;
        let exclude = Filter::of("exclude", &request.exclude)?;
        let batch_max = match usize::try_from(request.max_batch).unwrap_or(usize::MAX) {
            0 => BATCH_DEFAULT,
            wanted => wanted.min(BATCH_MAX),
        };
        let encoding = EventEncoding::try_from(request.encoding)
            .map_err(|_| status::bad_field("encoding", "is none that this version knows"))?;
        let wanted = match &request.start {
            Some(watch_decisions_request::Start::After(position)) => Some(position),
            Some(
                watch_decisions_request::Start::Oldest(_)
                | watch_decisions_request::Start::Now(_)
                | watch_decisions_request::Start::OpenThenFollow(_),
            )
            | None => None,
        };
        let extent = self.extent_with(wanted).await?;
        let start = Start::of(request.start, &extent, request.accept_gaps)?;
        if start.needs_leader() && !self.shared.leadership().leading {
            return Err(status::not_leader(&self.shared.leadership()));
        }
        let follow = Follow {
            shared: Arc::clone(&self.shared),
            recent: Arc::clone(&self.recent),
            sight: sight.clone(),
            include,
            exclude,
            batch_max,
            bookmark_interval: bookmark_interval(request.bookmark_interval)?,
            encoding,
            gzip,
            accept_gaps: request.accept_gaps,
        };
        self.followers.open(connection, &sight, |reader| follow.run(start, reader))
    }

    fn extent(&self) -> Result<Extent, Status> {
        self.shared.decisions.extent().ok_or_else(|| no_log(&self.shared))
    }

    /// Where this replica's log reaches, once it reaches this position, if another replica has given that out.
    async fn extent_with(&self, wanted: Option<&Position>) -> Result<Extent, Status> {
        let extent = self.extent()?;
        let ahead = |position: &&Position| position.log_id == extent.log_id && position.sequence > extent.newest;
        let Some(position) = wanted.filter(ahead).filter(|_| self.shared.decisions.is_shared()) else {
            return Ok(extent);
        };
        match self.shared.decisions.reach(position).await {
            Reached::Yes | Reached::Never => self.extent(),
            Reached::NotYet => {
                Err(status::log_unavailable("this replica has not read the log of decisions so far yet"))
            }
        }
    }
}

/// Why this replica has no log to read from.
fn no_log(shared: &Shared) -> Status {
    if !shared.decisions.is_shared() {
        return status::not_leader(&shared.leadership());
    }
    let why = shared.decisions.problem().unwrap_or_else(|| "it is being read".to_owned());
    status::log_unavailable(&format!("this replica has not read the log of decisions yet: {why}"))
}

/// Why what is kept by the stream alone cannot be read.
fn unreadable(why: &str) -> Status {
    status::log_unavailable(&format!("what is not in this replica's memory any more cannot be read: {why}"))
}

#[tonic::async_trait]
impl DecisionService for Decisions {
    type WatchDecisionsStream = BoxStream<'static, Result<WatchDecisionsResponse, Status>>;

    /// The same as the wire has, decoded; on the wire, messages go out as they were encoded, see [`watching`].
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
        let sight = self.shared.sight(request.extensions())?;
        let request = request.into_inner();
        require_named(&sight, &request.include).await?;
        let include = Filter::of("include", &request.include)?;
        let within = Within::of(request.start_time, request.end_time)?;
        let question = ListDecisionsRequest { page_size: 0, page_token: String::new(), ..request.clone() };
        let size = page_size(request.page_size)?;
        let mut extent = self.extent()?;
        let place = Place::of(&question, &request.page_token, &extent)?;
        let is_wanted = |looked: &Looked| {
            within.admits(looked.event()) && include.as_ref().is_none_or(|filter| filter.admits(looked))
        };
        let _turn = self.shared.long_read().await?;
        let mut before = place.before;
        let mut found: Vec<DecisionEvent> = Vec::new();
        // One more than the page, to know whether there is a next.
        let until = before.saturating_sub(LOOKED_AT_MAX);
        while found.len() <= size && before > extent.oldest.max(until) {
            let from = before.saturating_sub(STEP as u64).max(extent.oldest);
            let at = Position { log_id: extent.log_id.clone(), sequence: from - 1 };
            match self.shared.decisions.among(&at, usize::try_from(before - from).unwrap_or(STEP)).await {
                Ok(events) => {
                    let looked = redact::events(&sight, events).await?.into_iter().rev().map(Looked::of);
                    found.extend(looked.filter(is_wanted).map(Looked::into_event));
                    before = from;
                }
                // What was trimmed meanwhile is not kept, and so is not listed.
                Err(Missing::Compacted(now)) => extent = now,
                Err(Missing::Replaced) => return Err(no_log(&self.shared)),
                Err(Missing::Unreadable(why)) => return Err(unreadable(&why)),
            }
            tokio::task::yield_now().await;
        }
        let count = fitting(&found, size);
        let next = if found.len() > count {
            found[..count].last().and_then(|event| event.position.as_ref()).map(|last| last.sequence)
        } else {
            Some(before).filter(|before| *before > extent.oldest)
        };
        let next_page_token = next.map_or_else(String::new, |before| place.token(before));
        found.truncate(count);
        Ok(Response::new(ListDecisionsResponse { events: found, next_page_token, meta: Some(self.shared.meta()) }))
    }

    async fn get_decision(
        &self,
        request: Request<GetDecisionRequest>,
    ) -> Result<Response<GetDecisionResponse>, Status> {
        let sight = self.shared.sight(request.extensions())?;
        let wanted = request.into_inner().decision_id;
        sight.learn([""; 0]).await?;
        let Extent { log_id, in_memory, newest, .. } = self.extent()?;
        let _turn = self.shared.long_read().await?;
        let mut at = Position { log_id, sequence: in_memory - 1 };
        let mut events = Vec::new();
        while at.sequence < newest && events.len() < PHASES_MAX {
            match self.shared.decisions.among(&at, STEP).await {
                Ok(step) => {
                    at.sequence += STEP as u64;
                    events.extend(step.into_iter().filter(|event| event.decision_id == wanted));
                }
                Err(Missing::Compacted(extent)) => at.sequence = extent.in_memory - 1,
                Err(Missing::Replaced) => return Err(no_log(&self.shared)),
                Err(Missing::Unreadable(why)) => return Err(unreadable(&why)),
            }
            tokio::task::yield_now().await;
        }
        events.truncate(PHASES_MAX);
        sight.learn(events.iter().filter_map(|event| event.target.as_ref()).map(|target| &target.namespace)).await?;
        let events = redact::events(&sight, events).await?;
        if events.is_empty() {
            return Err(sight.hidden(|| status::decision_not_found(&wanted)));
        }
        Ok(Response::new(GetDecisionResponse { events, meta: Some(self.shared.meta()) }))
    }
}

/// Each filter has to name the namespaces of its targets, unless the caller may see everything.
async fn require_named(sight: &Sight, filters: &[DecisionFilter]) -> Result<(), Status> {
    const NONE: &[String] = &[];
    let mut named = Vec::new();
    for filter in filters {
        named.extend(filter.targets.iter().map(|target| target.namespaces.as_slice()));
        if filter.targets.is_empty() {
            named.push(NONE);
        }
    }
    sight.require_named(named).await
}

fn bookmark_interval(wanted: Option<prost_types::Duration>) -> Result<Duration, Status> {
    let Some(wanted) = wanted else { return Ok(BOOKMARK_DEFAULT) };
    let wanted = Duration::try_from(wanted).map_err(|_| status::bad_field("bookmark_interval", "is negative"))?;
    Ok(wanted.clamp(BOOKMARK_MIN, BOOKMARK_MAX))
}
