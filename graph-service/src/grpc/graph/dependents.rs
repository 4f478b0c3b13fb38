//! Pages of dependents. Each page continues the walk of the previous one, so a page costs only its own content.

use super::{SIFT_STEP, SIFT_WITHIN, STEP, WALK_MAX, namespaces};
use crate::grpc::access::{Visibility, redact};
use crate::grpc::filter::Sieve;
use crate::grpc::pages::{self, Source};
use crate::grpc::{Shared, status};
use engine::leader::{DependentsWalk, Found};
use prost::Message as _;
use proto::graph::v1beta1::ListDependentsResponse;
use proto::graph::v1beta1::list_dependents_response::Dependent;
use proto::r#type::v1beta1::ResponseMeta;
use std::collections::VecDeque;
use std::sync::Arc;
use tokio::time::Instant;
use tonic::Status;

/// A walk in progress, and the results that are not on a page yet.
#[derive(Debug)]
pub(super) struct Dependents {
    shared: Arc<Shared>,
    visibility: Visibility,
    sieve: Sieve,
    meta: ResponseMeta,
    walk: DependentsWalk,
    has_walked: bool,
    /// Not filtered yet.
    found: VecDeque<Found>,
    admitted: VecDeque<Found>,
    filtered: u32,
    redacted: u32,
}

impl Dependents {
    pub(super) fn new(
        shared: Arc<Shared>,
        visibility: Visibility,
        sieve: Sieve,
        meta: ResponseMeta,
        walk: DependentsWalk,
    ) -> Dependents {
        Dependents {
            shared,
            visibility,
            sieve,
            meta,
            walk,
            has_walked: false,
            found: VecDeque::new(),
            admitted: VecDeque::new(),
            filtered: 0,
            redacted: 0,
        }
    }

    /// Moves the visible and admitted results to `admitted`. Redaction comes before filters, which could otherwise
    /// probe hidden objects.
    async fn sift(&mut self) -> Result<(), Status> {
        self.visibility.learn(namespaces(self.found.iter().map(|found| &found.node))).await?;
        let mut looked_at = 0;
        while let Some(found) = self.found.pop_front() {
            looked_at += 1;
            if !self.visibility.sees(&found.node.object.namespace) {
                self.redacted = self.redacted.saturating_add(1);
            } else if self.sieve.admits(&found.node) {
                self.admitted.push_back(found);
            } else {
                self.filtered = self.filtered.saturating_add(1);
            }
            if looked_at % SIFT_STEP == 0 {
                tokio::task::yield_now().await;
            }
        }
        Ok(())
    }
}

impl Source for Dependents {
    type Page = ListDependentsResponse;

    async fn next(&mut self, size: usize) -> Result<ListDependentsResponse, Status> {
        // A filter that rarely admits objects makes short pages instead of long calls.
        let until = Instant::now() + SIFT_WITHIN;
        let shared = Arc::clone(&self.shared);
        let mut turn = None;
        // Handles results of a call that was dropped while it waited.
        self.sift().await?;
        while self.admitted.len() < size && !self.has_walked && Instant::now() < until {
            let wanted = size.saturating_sub(self.admitted.len());
            match shared.reader.with(|leader| self.walk.step(leader, STEP, wanted)) {
                Some(found) => self.found.extend(found),
                None => self.has_walked = true,
            }
            if self.walk.is_cut() {
                return Err(status::traversal_limit(WALK_MAX));
            }
            self.sift().await?;
            // A page of more than one step takes a permit for long reads.
            if turn.is_none() && self.admitted.len() < size && !self.has_walked {
                turn = Some(shared.long_read().await?);
            }
            tokio::task::yield_now().await;
        }
        self.admitted.make_contiguous().sort_by(|a, b| a.order().cmp(&b.order()));
        let mut answer = ListDependentsResponse {
            depth_limited: self.walk.is_depth_limited(),
            filtered_count: self.filtered,
            redacted_count: self.redacted,
            meta: Some(self.meta.clone()),
            ..Default::default()
        };
        let mut left = pages::BYTES_MAX;
        while answer.dependents.len() < size
            && let Some(found) = self.admitted.front()
        {
            let mut dependent = Dependent::from(found.clone());
            redact::edges(&self.visibility, &mut dependent.edges);
            let bytes = dependent.encoded_len() + pages::ENTRY_BYTES;
            if bytes > left && !answer.dependents.is_empty() {
                break;
            }
            left = left.saturating_sub(bytes);
            answer.dependents.push(dependent);
            self.admitted.pop_front();
        }
        Ok(answer)
    }

    fn has_ended(&self) -> bool {
        self.has_walked && self.found.is_empty() && self.admitted.is_empty()
    }

    fn bytes(&self) -> usize {
        // An object of the walk takes about as much memory as in an answer. The other part is at most one page.
        self.walk.bytes() + if self.admitted.is_empty() { 0 } else { pages::BYTES_MAX }
    }
}
