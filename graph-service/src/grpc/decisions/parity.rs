//! Serves the comparison with another collector. Only the leader in mode observe compares.

use super::filter::{Filter, known};
use super::looked::Looked;
use super::place::Place;
use super::{DECODED_MAX, Decisions, require_named};
use crate::clock::wire;
use crate::grpc::access::{Visibility, redact};
use crate::grpc::pages::{self, fitting, page_size};
use crate::grpc::status;
use prost::Message as _;
use proto::convert;
use proto::decision::v1beta1::*;
use std::time::Duration;
use tonic::Status;

/// The longest window of numbers: seven days.
const WINDOW_MAX: Duration = Duration::from_secs(7 * 24 * 3600);

impl Decisions {
    pub(super) fn parity(&self, request: GetParityRequest) -> Result<GetParityResponse, Status> {
        let window = request.window.map(|window| status::duration("window", window)).transpose()?;
        if window.is_some_and(|window| window > WINDOW_MAX) {
            return Err(status::bad_field("window", "is longer than 7 days"));
        }
        let view = self.shared.reader.with(|queries| queries.parity(window)).ok_or_else(|| self.compares_nothing())?;
        Ok(GetParityResponse { meta: Some(self.shared.meta()), ..convert::parity(view, wire(self.shared.clock)) })
    }

    pub(super) async fn disagreements(
        &self,
        request: ListDisagreementsRequest,
        visibility: Visibility,
    ) -> Result<ListDisagreementsResponse, Status> {
        require_named(&visibility, &request.include).await?;
        let include = Filter::of("include", &request.include)?;
        known::<disagreement::Outcome>("outcomes", &request.outcomes)?;
        known::<disagreement::Class>("classes", &request.classes)?;
        let question = ListDisagreementsRequest { page_size: 0, page_token: String::new(), ..request.clone() };
        let size = page_size(request.page_size)?;
        let term = self.shared.reader.with(|queries| queries.compared_term().cloned());
        let term = term.ok_or_else(|| self.compares_nothing())?;
        let history = format!("{}/{}", term.election, term.number);
        let place = Place::of(&question, &request.page_token, &history, u64::MAX - 1)?;
        let is_wanted = |event: &DecisionEvent| {
            event.disagreement.as_ref().is_some_and(|found| {
                (request.outcomes.is_empty() || request.outcomes.contains(&found.outcome))
                    && (request.classes.is_empty() || request.classes.contains(&found.class))
            })
        };
        let clock = self.dates.wire(self.shared.clock);
        let _turn = self.shared.long_read().await?;
        let mut before = place.before;
        let (mut found, mut bytes): (Vec<DecisionEvent>, usize) = (Vec::new(), 0);
        // One event more than the page shows whether there is a next page.
        while found.len() <= size && bytes <= pages::BYTES_MAX {
            let some = self.shared.reader.with(|queries| {
                // Each term numbers its disagreements from 1, and other tasks run between two looks.
                if queries.compared_term() != Some(&term) {
                    return Err(status::page_token_expired());
                }
                let kept = queries.disagreements(Some(before)).take(DECODED_MAX);
                Ok(kept.map(|kept| convert::bounded(convert::disagreed(kept, &term, clock))).collect::<Vec<_>>())
            })?;
            let Some(last) = some.last().and_then(|event| event.disagreement.as_ref()) else { break };
            before = last.number;
            let wanted = some.into_iter().filter(is_wanted).collect();
            let looked = redact::events(&visibility, wanted).await?.into_iter().map(Looked::of);
            let admitted = looked.filter(|looked| include.as_ref().is_none_or(|filter| filter.admits(looked)));
            for event in admitted.map(Looked::into_event) {
                bytes += event.encoded_len();
                found.push(event);
            }
            tokio::task::yield_now().await;
        }
        let count = fitting(found.iter().map(|event| event.encoded_len()), size);
        let last = found[..count].last().and_then(|event| event.disagreement.as_ref());
        let next_page_token = match last {
            Some(last) if found.len() > count => place.token(last.number),
            Some(_) | None => String::new(),
        };
        found.truncate(count);
        Ok(ListDisagreementsResponse { events: found, next_page_token, meta: Some(self.shared.meta()) })
    }

    /// Why this replica has no numbers.
    fn compares_nothing(&self) -> Status {
        if self.shared.reader.with(|queries| queries.observes()) {
            return status::not_leader(&self.shared.leadership());
        }
        status::not_observing()
    }
}
