//! Searches of the whole graph: stuck objects, and cycles.

use super::{Graph, STEP, named};
use crate::clock::wire;
use crate::grpc::access::{Visibility, redact};
use crate::grpc::filter::Filter;
use crate::grpc::freshness::About;
use crate::grpc::pages::{Listed, Paging};
use crate::grpc::{apart, status};
use engine::leader::{ContentsLook, CycleSearch, Queries, Scan};
use engine::object::Uid;
use engine::view::{CycleView, Explanation, RELATED_MAX, ReasonCode};
use proto::convert;
use proto::graph::v1beta1::find_cycles_response::Cycle;
use proto::graph::v1beta1::find_stuck_objects_response::Stuck;
use proto::graph::v1beta1::*;
use std::time::{Duration, SystemTime};
use tonic::Status;

/// Maximum number of stuck objects and cycles of one search: the oldest objects, and the first cycles.
pub(super) const FOUND_MAX: usize = 10_000;
/// Default age at which an object counts as stuck.
const STUCK_AGE: Duration = Duration::from_secs(300);
/// Positions to scan under one lock of the graph if each costs little.
const SCAN_STEP: usize = 10_000;

impl Graph {
    /// Runs a scan to its end.
    async fn scan<T>(
        &self,
        mut step: impl FnMut(&Queries<'_>, usize) -> Option<T>,
        each: usize,
    ) -> Result<Vec<T>, Status> {
        let _turn = self.shared.long_read().await?;
        let mut all = Vec::new();
        while let Some(found) = self.shared.reader.with(|queries| step(queries, each)) {
            all.push(found);
            tokio::task::yield_now().await;
        }
        Ok(all)
    }

    /// Finds the contents of those objects that are namespaces or definitions and marked for deletion.
    pub(super) async fn look_inside(&self, explained: &mut [Explanation]) -> Result<(), Status> {
        let remain = |of: &Explanation| of.reasons.iter().position(|reason| reason.code == ReasonCode::ContentsRemain);
        let uids: Vec<Uid> =
            explained.iter().filter(|of| remain(of).is_some()).map(|of| of.object.object.uid.clone()).collect();
        if uids.is_empty() {
            return Ok(());
        }
        let mut look = self.shared.reader.with(|queries| ContentsLook::of(queries, uids));
        self.scan(|queries, each| (!look.step(queries, each)).then_some(()), SCAN_STEP).await?;
        let found = look.finish();
        for of in explained {
            if let (Some(at), Some(reason)) = (remain(of), found.get(&of.object.object.uid)) {
                of.reasons[at] = reason.clone();
            }
        }
        Ok(())
    }

    pub(super) async fn stuck(
        &self,
        request: FindStuckObjectsRequest,
        visibility: Visibility,
    ) -> Result<FindStuckObjectsResponse, Status> {
        visibility.require_named(named(&request.include)).await?;
        let include = Filter::of("include", &request.include)?;
        let min_age = match request.min_age {
            None => STUCK_AGE,
            Some(age) => status::duration("min_age", age)?,
        };
        let question =
            FindStuckObjectsRequest { page_size: 0, page_token: String::new(), consistency: None, ..request.clone() };
        let paging = Paging::of(&question, request.page_size, &request.page_token, &visibility)?;
        let codes: Vec<reason::Code> = request.codes().collect();
        let first = async || {
            let meta = self.fresh(request.consistency.clone(), &About::Everything).await?;
            let mut scan = Scan::default();
            let found = self.scan(|queries, each| scan.stuck(queries, each), STEP).await?;
            let clock = wire(self.shared.clock);
            let latest = clock.calendar.checked_sub(min_age).unwrap_or(SystemTime::UNIX_EPOCH).into();
            let coded = |explanation: &Explanation| {
                let has = |code| explanation.reasons.iter().any(|reason| reason::Code::from(reason.code) == code);
                codes.is_empty() || codes.iter().any(|&code| has(code))
            };
            let old = |explanation: &Explanation| since(explanation, clock).is_none_or(|since| before(&since, &latest));
            let admits = |explanation: &Explanation| {
                visibility.sees(&explanation.object.object.namespace)
                    && coded(explanation)
                    && old(explanation)
                    && include.as_ref().is_none_or(|filter| filter.admits(&explanation.object))
            };
            let mut admitted = self.sift(found.into_iter().flatten().collect(), admits).await?;
            let moment =
                |explanation: &Explanation| since(explanation, clock).map(|since| (since.seconds, since.nanos));
            admitted.sort_by_cached_key(|explanation| (moment(explanation).is_none(), moment(explanation)));
            admitted.truncate(FOUND_MAX);
            self.look_inside(&mut admitted).await?;
            let stuck = |explanation| self.as_stuck(explanation, clock);
            let mut objects: Vec<Stuck> = admitted.into_iter().map(stuck).collect();
            for stuck in &mut objects {
                redact::stuck(&visibility, stuck).await?;
            }
            let rest = FindStuckObjectsResponse { meta: Some(meta), ..Default::default() };
            apart(move || Listed::new(objects, rest)).await
        };
        let ((items, rest), next_page_token) = self.answers.page(paging, first).await?;
        Ok(FindStuckObjectsResponse { objects: items, next_page_token, ..rest })
    }

    fn as_stuck(&self, explanation: Explanation, clock: convert::Clock) -> Stuck {
        let since = since(&explanation, clock);
        let mut root_blockers =
            self.shared.reader.with(|queries| queries.root_blockers(&explanation.object.object.uid));
        let inside = explanation.reasons.iter().find(|reason| reason.code == ReasonCode::ContentsRemain);
        root_blockers.extend(inside.iter().flat_map(|reason| reason.related.clone()));
        root_blockers.truncate(RELATED_MAX);
        Stuck {
            node: Some(explanation.object.into()),
            verdict: Verdict::from(explanation.verdict).into(),
            reasons: explanation.reasons.into_iter().map(|of| convert::reason(of, clock)).collect(),
            root_blockers: root_blockers.into_iter().map(Into::into).collect(),
            since,
            redacted_count: 0,
        }
    }

    pub(super) async fn cycles(
        &self,
        request: FindCyclesRequest,
        visibility: Visibility,
    ) -> Result<FindCyclesResponse, Status> {
        visibility.require_named(named(&request.include)).await?;
        let include = Filter::of("include", &request.include)?;
        let question =
            FindCyclesRequest { page_size: 0, page_token: String::new(), consistency: None, ..request.clone() };
        let paging = Paging::of(&question, request.page_size, &request.page_token, &visibility)?;
        let first = async || {
            let meta = self.fresh(request.consistency.clone(), &About::Everything).await?;
            let mut search = CycleSearch::new(request.blocking_only);
            self.scan(|queries, each| (!search.step(queries, each)).then_some(()), SCAN_STEP).await?;
            let admits = |cycle: &CycleView| {
                let mut seen = cycle.members.iter().filter(|member| visibility.sees(&member.object.namespace));
                seen.any(|member| include.as_ref().is_none_or(|filter| filter.admits(member)))
            };
            let mut cycles = Vec::new();
            for components in apart(move || search.components()).await?.chunks(FOUND_MAX) {
                let mut found = Vec::new();
                for members in components {
                    found.extend(self.shared.reader.with(|queries| queries.cycle(members)));
                    tokio::task::yield_now().await;
                }
                cycles.extend(self.sift(found, admits).await?);
                if cycles.len() >= FOUND_MAX {
                    break;
                }
            }
            cycles.truncate(FOUND_MAX);
            let mut cycles: Vec<Cycle> = cycles.into_iter().map(Into::into).collect();
            for cycle in &mut cycles {
                redact::cycle(&visibility, cycle).await?;
            }
            cycles.sort_by_key(|cycle| !cycle.deadlocked);
            let rest = FindCyclesResponse { meta: Some(meta), ..Default::default() };
            apart(move || Listed::new(cycles, rest)).await
        };
        let ((items, rest), next_page_token) = self.answers.page(paging, first).await?;
        Ok(FindCyclesResponse { cycles: items, next_page_token, ..rest })
    }
}

/// The time of the deletion, or of the decision.
fn since(explanation: &Explanation, clock: convert::Clock) -> Option<prost_types::Timestamp> {
    let decided = explanation.item.as_ref().map(|item| clock.timestamp(item.decided));
    convert::delete_time(&explanation.object.facts).or(decided)
}

fn before(a: &prost_types::Timestamp, b: &prost_types::Timestamp) -> bool {
    (a.seconds, a.nanos) <= (b.seconds, b.nanos)
}
