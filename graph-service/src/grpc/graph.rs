//! Reads of the graph, on every replica.
//!
//! No read holds the graph for long: what looks at many objects does so in steps of [`STEP`] and lets decisions go on in between.

use super::connection::Link;
use super::filter::{Filter, Sieve};
use super::followers::Followers;
use super::freshness::About;
use super::pages::{Answers, Page, Paging};
use super::{Shared, status, wire_clock};
use engine::leader::{CycleSearch, Direction, Leader, Planning, Scan, Walk, WalkOptions, Walked};
use engine::object::{GroupResource, Uid};
use engine::plan::PlanOptions;
use engine::view::{CycleView, Explanation, NodeView, PresenceView, Tombstone};
use futures::stream::BoxStream;
use lookup::Known;
use proto::convert;
use proto::graph::v1alpha1::find_stuck_objects_response::Stuck;
use proto::graph::v1alpha1::graph_service_server::GraphService;
use proto::graph::v1alpha1::*;
use proto::r#type::v1alpha1::{Consistency, ObjectRef, PropagationPolicy, ResponseMeta};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tonic::{Request, Response, Status};
use watch::kept::Kept;

mod export;
mod lookup;
#[cfg(test)]
mod tests;
mod watch;

/// Objects that are looked at under one hold of the graph: about a millisecond.
const STEP: usize = 500;
/// Places that are looked at under one hold of the graph where little is done with each.
const SCAN_STEP: usize = 10_000;
/// Deepest walk.
const DEPTH_MAX: u32 = 64;
/// Most objects of a walk or a plan.
const WALK_MAX: usize = 200_000;
/// Most references of one BatchGetObjects.
const BATCH_MAX: usize = 500;
/// Most targets of a preview, and most objects assumed gone.
const TARGETS_MAX: usize = 100;
/// Most stuck objects and cycles that are kept of one search.
const FOUND_MAX: usize = 10_000;
/// Objects that filters look at between two turns of others on this thread,
const SIFT_STEP: usize = 256;
/// and how long they may look in all.
const SIFT_WITHIN: Duration = Duration::from_secs(5);
/// What counts as stuck where nothing else is said.
const STUCK_AGE: Duration = Duration::from_secs(300);

#[derive(Debug)]
pub(super) struct Graph {
    shared: Arc<Shared>,
    answers: Answers,
    followers: Followers,
    watched: Arc<Kept>,
}

impl Graph {
    pub(super) fn new(shared: Arc<Shared>, followers: Followers) -> Graph {
        Graph { shared, answers: Answers::default(), followers, watched: Arc::default() }
    }

    async fn walk(&self, start: Uid, options: WalkOptions) -> Result<Walked, Status> {
        let _turn = self.shared.long_read().await?;
        let mut walk = Walk::new(start, options);
        while !self.shared.reader.with(|leader| walk.step(leader, STEP)) {
            tokio::task::yield_now().await;
        }
        let walked = apart(move || walk.finish()).await?;
        if walked.cut { Err(status::traversal_limit(WALK_MAX)) } else { Ok(walked) }
    }

    /// Runs a scan to its end.
    async fn scan<T>(&self, mut step: impl FnMut(&Leader, usize) -> Option<T>, each: usize) -> Result<Vec<T>, Status> {
        let _turn = self.shared.long_read().await?;
        let mut all = Vec::new();
        while let Some(found) = self.shared.reader.with(|leader| step(leader, each)) {
            all.push(found);
            tokio::task::yield_now().await;
        }
        Ok(all)
    }

    /// Those that are admitted. Expressions take their time, so this is done in steps, and not for ever.
    async fn sift<T>(&self, items: Vec<T>, admits: impl Fn(&T) -> bool) -> Result<Vec<T>, Status> {
        let until = tokio::time::Instant::now() + SIFT_WITHIN;
        let mut admitted = Vec::new();
        for (at, item) in items.into_iter().enumerate() {
            if at % SIFT_STEP == SIFT_STEP - 1 {
                if tokio::time::Instant::now() > until {
                    return Err(status::limit_exceeded(
                        "seconds for the filters to look at it all",
                        SIFT_WITHIN.as_secs() as usize,
                    ));
                }
                tokio::task::yield_now().await;
            }
            if admits(&item) {
                admitted.push(item);
            }
        }
        Ok(admitted)
    }

    /// Once the graph is as fresh as is asked for: what the answer is to say of itself.
    async fn fresh(&self, wanted: Option<Consistency>, about: &About) -> Result<ResponseMeta, Status> {
        self.shared.freshness.wait(wanted, about).await?;
        Ok(self.shared.meta_about(about))
    }

    /// The collections of objects, where they are known or can only be there.
    fn about(&self, objects: &[ObjectRef]) -> About {
        let collection = |object: &ObjectRef, leader: &Leader| {
            let uid = Uid::parse(&object.uid);
            let node = uid.as_ref().and_then(|uid| best_known(leader.nodes(uid))).map(|node| node.object);
            let gone = || uid.as_ref().and_then(|uid| leader.tombstone(uid)).map(|tombstone| tombstone.object.clone());
            let known = node.or_else(gone).map(|object| object.group_resource());
            let named =
                || GroupResource { group: object.group.as_str().into(), resource: object.resource.as_str().into() };
            let found = known.unwrap_or_else(named);
            leader.reached(&found).is_some().then_some(found)
        };
        let all =
            |leader: &Leader| objects.iter().map(|object| collection(object, leader)).collect::<Option<BTreeSet<_>>>();
        self.shared.reader.with(all).map_or(About::Everything, About::Collections)
    }

    /// The uid that a reference of a request means.
    fn resolve(&self, object: Option<ObjectRef>) -> Result<Known, Status> {
        lookup::resolve(self, object.unwrap_or_default())
    }
}

#[tonic::async_trait]
impl GraphService for Graph {
    async fn get_object(&self, request: Request<GetObjectRequest>) -> Result<Response<GetObjectResponse>, Status> {
        let GetObjectRequest { r#ref, consistency } = request.into_inner();
        let meta = self.fresh(consistency, &self.about(r#ref.as_slice())).await?;
        let known = self.resolve(r#ref)?;
        let uid = known.uid();
        let node = match self.shared.reader.with(|leader| best_known(leader.nodes(uid))) {
            Some(node) => node.into(),
            None => gone(known.tombstone().ok_or_else(|| status::object_not_found(&uid.to_string()))?),
        };
        Ok(Response::new(GetObjectResponse { node: Some(node), meta: Some(meta) }))
    }

    async fn batch_get_objects(
        &self,
        request: Request<BatchGetObjectsRequest>,
    ) -> Result<Response<BatchGetObjectsResponse>, Status> {
        let BatchGetObjectsRequest { refs, consistency } = request.into_inner();
        if refs.len() > BATCH_MAX {
            return Err(status::bad_field("refs", &format!("has {} entries; at most {BATCH_MAX}", refs.len())));
        }
        let uids = refs.iter().map(|object| uid(&object.uid, "refs.uid")).collect::<Result<Vec<Uid>, Status>>()?;
        let meta = self.fresh(consistency, &self.about(&refs)).await?;
        let found = self
            .shared
            .reader
            .with(|leader| uids.iter().map(|uid| best_known(leader.nodes(uid))).collect::<Vec<Option<NodeView>>>());
        let mut answer = BatchGetObjectsResponse { meta: Some(meta), ..Default::default() };
        for (object, node) in refs.into_iter().zip(found) {
            match node {
                Some(node) => answer.nodes.push(node.into()),
                None => answer.missing.push(object),
            }
        }
        Ok(Response::new(answer))
    }

    async fn list_dependents(
        &self,
        request: Request<ListDependentsRequest>,
    ) -> Result<Response<ListDependentsResponse>, Status> {
        let request = request.into_inner();
        let depth = depth(request.max_depth)?;
        let sieve = Sieve::of(&request.include, &request.exclude)?;
        let question =
            ListDependentsRequest { page_size: 0, page_token: String::new(), consistency: None, ..request.clone() };
        let paging = Paging::of(&question, request.page_size, &request.page_token)?;
        let first = async || {
            let meta = self.fresh(request.consistency.clone(), &About::Everything).await?;
            let start = self.resolve(request.r#ref.clone())?.present(self)?;
            let options = WalkOptions {
                direction: Direction::Dependents,
                max_depth: depth,
                blocking_only: request.blocking_only,
                max_objects: WALK_MAX,
            };
            let walked = self.walk(start, options).await?;
            let all = walked.found.len();
            let found = self.sift(walked.found, |found| sieve.admits(&found.node)).await?;
            let found: Vec<list_dependents_response::Dependent> = found.into_iter().map(Into::into).collect();
            let filtered_count = u32::try_from(all - found.len()).unwrap_or(u32::MAX);
            let rest = ListDependentsResponse {
                depth_limited: walked.depth_limited,
                filtered_count,
                meta: Some(meta),
                ..Default::default()
            };
            Ok((found, rest))
        };
        let Page { items, next_page_token, rest } = self.answers.page(paging, first).await?;
        Ok(Response::new(ListDependentsResponse { dependents: items, next_page_token, ..rest }))
    }

    async fn list_owners(&self, request: Request<ListOwnersRequest>) -> Result<Response<ListOwnersResponse>, Status> {
        let request = request.into_inner();
        let depth = depth(request.max_depth)?;
        let sieve = Sieve::of(&request.include, &request.exclude)?;
        let question =
            ListOwnersRequest { page_size: 0, page_token: String::new(), consistency: None, ..request.clone() };
        let paging = Paging::of(&question, request.page_size, &request.page_token)?;
        let first = async || {
            let meta = self.fresh(request.consistency.clone(), &About::Everything).await?;
            let start = self.resolve(request.r#ref.clone())?.present(self)?;
            let options = WalkOptions {
                direction: Direction::Owners,
                max_depth: depth,
                blocking_only: false,
                max_objects: WALK_MAX,
            };
            let found = self.walk(start, options).await?.found;
            let all = found.len();
            let found = self.sift(found, |found| sieve.admits(&found.node)).await?;
            let filtered_count = u32::try_from(all - found.len()).unwrap_or(u32::MAX);
            let found: Vec<list_owners_response::Owner> = found.into_iter().map(Into::into).collect();
            Ok((found, ListOwnersResponse { filtered_count, meta: Some(meta), ..Default::default() }))
        };
        let Page { items, next_page_token, rest } = self.answers.page(paging, first).await?;
        Ok(Response::new(ListOwnersResponse { owners: items, next_page_token, ..rest }))
    }

    type WatchDependentsStream = BoxStream<'static, Result<WatchDependentsResponse, Status>>;

    async fn watch_dependents(
        &self,
        request: Request<WatchDependentsRequest>,
    ) -> Result<Response<Self::WatchDependentsStream>, Status> {
        let connection = request.extensions().get::<Link>().map(|link| link.cut.clone());
        let (watch, from) = watch::Watch::of(self, request.into_inner()).await?;
        Ok(Response::new(self.followers.open(connection, |reader| watch.run(from, reader))?))
    }

    async fn explain_object(
        &self,
        request: Request<ExplainObjectRequest>,
    ) -> Result<Response<ExplainObjectResponse>, Status> {
        let ExplainObjectRequest { r#ref, consistency } = request.into_inner();
        let meta = Some(self.fresh(consistency, &About::Everything).await?);
        let known = self.resolve(r#ref)?;
        let (uid, clock) = (known.uid(), wire_clock(self.shared.clock));
        let departure = known.tombstone().map(|tombstone| convert::departure(tombstone.clone(), clock));
        let answer = match self.shared.reader.with(|leader| leader.explain(uid)) {
            Some(Explanation { object, verdict, reasons, owners, item }) => ExplainObjectResponse {
                node: Some(object.into()),
                verdict: Verdict::from(verdict).into(),
                reasons: reasons.into_iter().map(|reason| convert::reason(reason, clock)).collect(),
                owners: owners.into_iter().map(Into::into).collect(),
                work: item.map(|item| convert::pending_work(item, clock)),
                meta,
                departure: departure.filter(|_| Verdict::from(verdict) == Verdict::Gone),
            },
            None => {
                let tombstone = known.tombstone().ok_or_else(|| status::object_not_found(&uid.to_string()))?;
                ExplainObjectResponse {
                    node: Some(gone(tombstone)),
                    verdict: Verdict::Gone.into(),
                    meta,
                    departure,
                    ..Default::default()
                }
            }
        };
        Ok(Response::new(answer))
    }

    async fn preview_deletion(
        &self,
        request: Request<PreviewDeletionRequest>,
    ) -> Result<Response<PreviewDeletionResponse>, Status> {
        let request = request.into_inner();
        let options = plan_options(&request)?;
        let question =
            PreviewDeletionRequest { page_size: 0, page_token: String::new(), consistency: None, ..request.clone() };
        let paging = Paging::of(&question, request.page_size, &request.page_token)?;
        let (is_first, clock) = (paging.is_first(), wire_clock(self.shared.clock));
        let first = async || {
            let meta = self.fresh(request.consistency.clone(), &About::Everything).await?;
            let _turn = self.shared.long_read().await?;
            let mut planning = Planning::new(options.clone());
            while !self.shared.reader.with(|leader| planning.step(leader, STEP)) {
                tokio::task::yield_now().await;
            }
            let frame = self.shared.reader.with(Leader::frame);
            let (plan, (entries, totals)) = apart(move || {
                let plan = planning.finish(frame);
                let shown = convert::plan(&plan, clock);
                (plan, shown)
            })
            .await?;
            if plan.cut {
                return Err(status::traversal_limit(WALK_MAX));
            }
            let rest = PreviewDeletionResponse {
                totals,
                meta: Some(meta),
                digest: format!("{:016x}", plan.digest),
                missing_uids: plan.missing.iter().map(Uid::to_string).collect(),
                undecided_by: plan.unsynced.into_iter().map(Into::into).collect(),
                ..Default::default()
            };
            Ok((entries, rest))
        };
        let Page { items, next_page_token, mut rest } = self.answers.page(paging, first).await?;
        if !is_first {
            rest.totals.clear();
        }
        Ok(Response::new(PreviewDeletionResponse { entries: items, next_page_token, ..rest }))
    }

    async fn find_stuck_objects(
        &self,
        request: Request<FindStuckObjectsRequest>,
    ) -> Result<Response<FindStuckObjectsResponse>, Status> {
        let request = request.into_inner();
        let include = Filter::of("include", &request.include)?;
        let min_age = match request.min_age {
            None => STUCK_AGE,
            Some(age) => Duration::try_from(age).map_err(|_| status::bad_field("min_age", "is negative"))?,
        };
        let question =
            FindStuckObjectsRequest { page_size: 0, page_token: String::new(), consistency: None, ..request.clone() };
        let paging = Paging::of(&question, request.page_size, &request.page_token)?;
        let codes: Vec<reason::Code> = request.codes().collect();
        let first = async || {
            let meta = self.fresh(request.consistency.clone(), &About::Everything).await?;
            let mut scan = Scan::default();
            let found = self.scan(|leader, each| scan.stuck(leader, each), STEP).await?;
            let clock = wire_clock(self.shared.clock);
            let latest = clock.calendar.checked_sub(min_age).unwrap_or(SystemTime::UNIX_EPOCH).into();
            let coded = |explanation: &Explanation| {
                let has = |code| explanation.reasons.iter().any(|reason| convert::reason_code(reason.code) == code);
                codes.is_empty() || codes.iter().any(|&code| has(code))
            };
            let admits = |explanation: &Explanation| {
                coded(explanation) && include.as_ref().is_none_or(|filter| filter.admits(&explanation.object))
            };
            let admitted = self.sift(found.into_iter().flatten().collect(), admits).await?;
            let stuck = |explanation: Explanation| {
                let decided = explanation.item.as_ref().map(|item| clock.timestamp(item.decided));
                let since = convert::delete_time(&explanation.object.facts).or(decided);
                let root_blockers =
                    self.shared.reader.with(|leader| leader.root_blockers(&explanation.object.object.uid));
                Stuck {
                    node: Some(explanation.object.into()),
                    verdict: Verdict::from(explanation.verdict).into(),
                    reasons: explanation.reasons.into_iter().map(|of| convert::reason(of, clock)).collect(),
                    root_blockers: root_blockers.into_iter().map(Into::into).collect(),
                    since,
                }
            };
            let moment = |stuck: &Stuck| stuck.since.map(|since| (since.seconds, since.nanos));
            let old = |stuck: &Stuck| stuck.since.as_ref().is_none_or(|since| before(since, &latest));
            let mut objects: Vec<Stuck> = admitted.into_iter().take(FOUND_MAX).map(stuck).filter(old).collect();
            objects.sort_by_key(|stuck| (stuck.since.is_none(), moment(stuck)));
            Ok((objects, FindStuckObjectsResponse { meta: Some(meta), ..Default::default() }))
        };
        let Page { items, next_page_token, rest } = self.answers.page(paging, first).await?;
        Ok(Response::new(FindStuckObjectsResponse { objects: items, next_page_token, ..rest }))
    }

    async fn find_cycles(&self, request: Request<FindCyclesRequest>) -> Result<Response<FindCyclesResponse>, Status> {
        let request = request.into_inner();
        let include = Filter::of("include", &request.include)?;
        let question =
            FindCyclesRequest { page_size: 0, page_token: String::new(), consistency: None, ..request.clone() };
        let paging = Paging::of(&question, request.page_size, &request.page_token)?;
        let first = async || {
            let meta = self.fresh(request.consistency.clone(), &About::Everything).await?;
            let mut search = CycleSearch::new(request.blocking_only);
            self.scan(|leader, each| (!search.step(leader, each)).then_some(()), SCAN_STEP).await?;
            let mut cycles = Vec::new();
            for members in apart(move || search.components()).await?.into_iter().take(FOUND_MAX) {
                cycles.extend(self.shared.reader.with(|leader| leader.cycle(&members)));
                tokio::task::yield_now().await;
            }
            let admits = |cycle: &CycleView| {
                include.as_ref().is_none_or(|filter| cycle.members.iter().any(|member| filter.admits(member)))
            };
            let cycles = self.sift(cycles, admits).await?;
            let mut cycles: Vec<find_cycles_response::Cycle> = cycles.into_iter().map(Into::into).collect();
            cycles.sort_by_key(|cycle| !cycle.deadlocked);
            Ok((cycles, FindCyclesResponse { meta: Some(meta), ..Default::default() }))
        };
        let Page { items, next_page_token, rest } = self.answers.page(paging, first).await?;
        Ok(Response::new(FindCyclesResponse { cycles: items, next_page_token, ..rest }))
    }

    type ExportGraphStream = BoxStream<'static, Result<ExportGraphResponse, Status>>;

    async fn export_graph(
        &self,
        request: Request<ExportGraphRequest>,
    ) -> Result<Response<Self::ExportGraphStream>, Status> {
        let ExportGraphRequest { include, consistency } = request.into_inner();
        let include = Filter::of("include", &include)?;
        let meta = self.fresh(consistency, &About::Everything).await?;
        Ok(Response::new(export::stream(Arc::clone(&self.shared), include, meta)))
    }

    async fn wait_for_freshness(
        &self,
        request: Request<WaitForFreshnessRequest>,
    ) -> Result<Response<WaitForFreshnessResponse>, Status> {
        let meta = Some(self.fresh(request.into_inner().consistency, &About::Everything).await?);
        Ok(Response::new(WaitForFreshnessResponse { meta }))
    }

    async fn list_coverage(
        &self,
        _request: Request<ListCoverageRequest>,
    ) -> Result<Response<ListCoverageResponse>, Status> {
        let meta = self.shared.meta();
        let collections = self.shared.reader.with(Leader::collections);
        let clock = wire_clock(self.shared.clock);
        let collections = collections.into_iter().map(|status| convert::collection(status, clock)).collect();
        Ok(Response::new(ListCoverageResponse { collections, meta: Some(meta) }))
    }
}

/// Does what takes its time and needs no graph beside the tasks, which would have to wait for it: the driver is one of them.
async fn apart<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Status> {
    tokio::task::spawn_blocking(work).await.map_err(|error| match error.try_into_panic() {
        Ok(panic) => std::panic::resume_unwind(panic),
        Err(_cancelled) => status::stopping(),
    })
}

/// Where references contradict each other about a uid, the object that was observed counts before those only claimed.
fn best_known(nodes: Vec<NodeView>) -> Option<NodeView> {
    nodes.into_iter().min_by_key(|node| match node.presence {
        PresenceView::Observed => 0,
        PresenceView::Virtual => 1,
        PresenceView::Absent => 2,
    })
}

/// An object that went, as a node.
fn gone(tombstone: &Tombstone) -> Node {
    Node {
        r#ref: Some(tombstone.object.clone().into()),
        state: NodeState::Gone.into(),
        resource_version: tombstone.resource_version.as_ref().map(ToString::to_string).unwrap_or_default(),
        ..Default::default()
    }
}

fn uid(text: &str, field: &str) -> Result<Uid, Status> {
    Uid::parse(text).ok_or_else(|| status::bad_field(field, "is empty"))
}

fn depth(max_depth: u32) -> Result<u32, Status> {
    if max_depth > DEPTH_MAX {
        return Err(status::bad_field("max_depth", &format!("is {max_depth}; at most {DEPTH_MAX}")));
    }
    Ok(max_depth.max(1))
}

fn plan_options(request: &PreviewDeletionRequest) -> Result<PlanOptions, Status> {
    for (field, count) in [("targets", request.targets.len()), ("assume_gone_uids", request.assume_gone_uids.len())] {
        if count > TARGETS_MAX {
            return Err(status::bad_field(field, &format!("has {count} entries; at most {TARGETS_MAX}")));
        }
    }
    if request.targets.is_empty() {
        return Err(status::bad_field("targets", "is empty"));
    }
    let targets = request.targets.iter().map(|target| uid(&target.uid, "targets.uid"));
    let assume_gone = request.assume_gone_uids.iter().map(|text| uid(text, "assume_gone_uids"));
    Ok(PlanOptions {
        targets: targets.collect::<Result<_, Status>>()?,
        propagation_policy: match request.propagation_policy() {
            PropagationPolicy::Unspecified => None,
            PropagationPolicy::Background => Some(engine::work::PropagationPolicy::Background),
            PropagationPolicy::Foreground => Some(engine::work::PropagationPolicy::Foreground),
            PropagationPolicy::Orphan => Some(engine::work::PropagationPolicy::Orphan),
        },
        assume_gone: assume_gone.collect::<Result<_, Status>>()?,
        ignore_holds: request.ignore_holds,
        max_objects: WALK_MAX,
    })
}

fn before(a: &prost_types::Timestamp, b: &prost_types::Timestamp) -> bool {
    (a.seconds, a.nanos) <= (b.seconds, b.nanos)
}
