//! The log of decisions, for whoever asks and whoever follows. The leader has it.

use super::connection::Cut;
use super::followers::Followers;
use super::pages::{Answers, Page, Paging};
use super::{Shared, status};
use crate::decisions::{Extent, Tail};
use filter::{Filter, Within};
use follow::{Follow, Start};
use futures::stream::BoxStream;
use proto::decision::v1alpha1::decision_service_server::DecisionService;
use proto::decision::v1alpha1::*;
use std::sync::Arc;
use std::time::Duration;
use tonic::{Request, Response, Status};

mod encode;
mod filter;
mod follow;
#[cfg(test)]
mod tests;

/// Events that are looked at under one hold of the log.
const STEP: usize = 1024;
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
    answers: Answers,
}

impl Decisions {
    pub(super) fn new(shared: Arc<Shared>, followers: Followers) -> Decisions {
        Decisions { shared, followers, answers: Answers::default() }
    }

    fn extent(&self) -> Result<Extent, Status> {
        self.shared.decisions.extent().ok_or_else(|| status::not_leader(&self.shared.leadership()))
    }

    /// All events that are kept and wanted, the oldest first.
    async fn kept(&self, wanted: impl Fn(&DecisionEvent) -> bool) -> Result<Vec<DecisionEvent>, Status> {
        let Extent { log_id, oldest, newest } = self.extent()?;
        let mut at = Position { log_id, sequence: oldest - 1 };
        let mut found = Vec::new();
        while at.sequence < newest {
            match self.shared.decisions.after(&at, STEP) {
                Tail::Events(events) => {
                    at.sequence += events.len() as u64;
                    found.extend(events.into_iter().filter(&wanted));
                }
                // What was trimmed meanwhile is not kept, and so is not listed.
                Tail::Compacted(extent) => at.sequence = extent.oldest - 1,
                Tail::Replaced => return Err(status::not_leader(&self.shared.leadership())),
            }
            tokio::task::yield_now().await;
        }
        Ok(found)
    }
}

#[tonic::async_trait]
impl DecisionService for Decisions {
    type WatchDecisionsStream = BoxStream<'static, Result<WatchDecisionsResponse, Status>>;

    async fn watch_decisions(
        &self,
        request: Request<WatchDecisionsRequest>,
    ) -> Result<Response<Self::WatchDecisionsStream>, Status> {
        let connection = request.extensions().get::<Cut>().cloned();
        let request = request.into_inner();
        let include = Filter::of("include", &request.include)?;
        let exclude = Filter::of("exclude", &request.exclude)?;
        let batch_max = match usize::try_from(request.max_batch).unwrap_or(usize::MAX) {
            0 => BATCH_DEFAULT,
            wanted => wanted.min(BATCH_MAX),
        };
        let encoding = EventEncoding::try_from(request.encoding)
            .map_err(|_| status::bad_field("encoding", "is none that this version knows"))?;
        let start = Start::of(request.start, &self.extent()?, request.accept_gaps)?;
        let follow = Follow {
            shared: Arc::clone(&self.shared),
            include,
            exclude,
            batch_max,
            bookmark_interval: bookmark_interval(request.bookmark_interval)?,
            encoding,
            accept_gaps: request.accept_gaps,
        };
        Ok(Response::new(self.followers.open(connection, |reader| follow.run(start, reader))?))
    }

    async fn list_decisions(
        &self,
        request: Request<ListDecisionsRequest>,
    ) -> Result<Response<ListDecisionsResponse>, Status> {
        let request = request.into_inner();
        let include = Filter::of("include", &request.include)?;
        let within = Within::of(request.start_time, request.end_time)?;
        let question = ListDecisionsRequest { page_size: 0, page_token: String::new(), ..request.clone() };
        let paging = Paging::of(&question, request.page_size, &request.page_token)?;
        let first = async || {
            let wanted = |event: &DecisionEvent| {
                within.admits(event) && include.as_ref().is_none_or(|filter| filter.admits(event))
            };
            let mut events = self.kept(wanted).await?;
            events.reverse();
            Ok((events, ()))
        };
        let Page { items, next_page_token, rest: () } = self.answers.page(paging, first).await?;
        Ok(Response::new(ListDecisionsResponse { events: items, next_page_token, meta: Some(self.shared.meta()) }))
    }

    async fn get_decision(
        &self,
        request: Request<GetDecisionRequest>,
    ) -> Result<Response<GetDecisionResponse>, Status> {
        let wanted = request.into_inner().decision_id;
        let events = self.kept(|event| event.decision_id == wanted).await?;
        if events.is_empty() {
            return Err(status::decision_not_found(&wanted));
        }
        Ok(Response::new(GetDecisionResponse { events, meta: Some(self.shared.meta()) }))
    }
}

fn bookmark_interval(wanted: Option<prost_types::Duration>) -> Result<Duration, Status> {
    let Some(wanted) = wanted else { return Ok(BOOKMARK_DEFAULT) };
    let wanted = Duration::try_from(wanted).map_err(|_| status::bad_field("bookmark_interval", "is negative"))?;
    Ok(wanted.clamp(BOOKMARK_MIN, BOOKMARK_MAX))
}
