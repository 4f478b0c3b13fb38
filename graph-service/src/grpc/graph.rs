//! Reads of the graph, on each replica.
//!
//! No read holds the graph for long. A read of many objects takes steps of [`STEP`] objects, and lets decisions
//! continue in between.

use super::access::{Visibility, redact};
use super::connection::Link;
use super::filter::{Filter, Sieve};
use super::followers::Followers;
use super::freshness::About;
use super::names::Cursor;
use super::pages::{self, Answers, Listed, Paging};
use super::{Shared, apart, status};
use crate::clock::wire;
use crate::ingest::questions::Texts;
use dependents::Dependents;
use engine::evidence::Presence;
use engine::leader::{DependentsOptions, DependentsWalk, Found, OwnersWalk, Planning, Queries};
use engine::object::{GroupResource, Uid};
use engine::view::{LISTED_MAX, NodeView};
use export::Export;
use futures::stream::BoxStream;
use lookup::Known;
use mask::Mask;
use prost::Message as _;
use proto::convert;
use proto::graph::v1beta1::graph_service_server::GraphService;
use proto::graph::v1beta1::*;
use proto::r#type::v1beta1::{Consistency, ObjectFilter, ObjectRef, ResponseMeta};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use targets::plan_options;
use tonic::{Request, Response, Status};
use watch::kept::Kept;

mod dependents;
mod export;
mod lookup;
mod mask;
mod searches;
mod targets;
#[cfg(test)]
mod tests;
pub(super) mod watch;

/// Objects to read under one lock of the graph: about a millisecond.
const STEP: usize = 500;
/// Maximum depth of a walk.
const DEPTH_MAX: u32 = 64;
/// Maximum number of objects of a walk or a plan.
const WALK_MAX: usize = 200_000;
/// Maximum number of references of one BatchGetObjects.
const BATCH_MAX: usize = 500;
/// Maximum size of these references, because the answer repeats the missing ones.
const BATCH_BYTES_MAX: usize = 512 * 1024;
/// Maximum length of a uid in a request. The answer may repeat it.
const UID_MAX_BYTES: usize = 1024;
/// Maximum number of targets of a preview, and of objects that it assumes to be gone.
const TARGETS_MAX: usize = 100;
/// Objects to filter before other tasks get a turn.
const SIFT_STEP: usize = 256;
/// Maximum time to filter one answer.
const SIFT_WITHIN: Duration = Duration::from_secs(5);

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

    /// Walks to the owners of an object.
    async fn owners(&self, start: Uid, max_depth: u32) -> Result<Vec<Found>, Status> {
        let _turn = self.shared.long_read().await?;
        let mut walk = OwnersWalk::new(start, max_depth, WALK_MAX);
        while !self.shared.reader.with(|queries| walk.step(queries, STEP)) {
            tokio::task::yield_now().await;
        }
        let walked = apart(move || walk.finish()).await?;
        if walked.cut { Err(status::traversal_limit(WALK_MAX)) } else { Ok(walked.found) }
    }

    /// The admitted items. Filtering takes steps, and has a time limit.
    async fn sift<T>(&self, items: Vec<T>, admits: impl Fn(&T) -> bool) -> Result<Vec<T>, Status> {
        let until = tokio::time::Instant::now() + SIFT_WITHIN;
        let mut admitted = Vec::new();
        for (at, item) in items.into_iter().enumerate() {
            if at % SIFT_STEP == SIFT_STEP - 1 {
                if tokio::time::Instant::now() > until {
                    return Err(status::limit_exceeded("seconds to filter the answer", SIFT_WITHIN.as_secs() as usize));
                }
                tokio::task::yield_now().await;
            }
            if admits(&item) {
                admitted.push(item);
            }
        }
        Ok(admitted)
    }

    /// Waits for the requested freshness. Returns the metadata of the answer.
    async fn fresh(&self, wanted: Option<Consistency>, about: &About) -> Result<ResponseMeta, Status> {
        self.shared.freshness.wait(wanted, about).await?;
        Ok(self.shared.meta_about(about))
    }

    /// The collections of the objects. For a caller that does not see everything the result is all collections, so that
    /// a hidden object looks like an absent one.
    fn about(&self, objects: &[ObjectRef], visibility: &Visibility) -> About {
        if !visibility.sees_everything() {
            return About::Everything;
        }
        let collection = |object: &ObjectRef, queries: &Queries<'_>| {
            let uid = Uid::parse(&object.uid);
            let node = uid.as_ref().and_then(|uid| best_known(queries.nodes(uid), visibility)).map(|node| node.object);
            let gone = || uid.as_ref().and_then(|uid| queries.tombstone(uid)).map(|tombstone| tombstone.object.clone());
            let known = node.or_else(gone).map(|object| object.group_resource());
            let named =
                || GroupResource { group: object.group.as_str().into(), resource: object.resource.as_str().into() };
            let found = known.unwrap_or_else(named);
            queries.reached(&found).is_some().then_some(found)
        };
        let all = |queries: &Queries<'_>| {
            objects.iter().map(|object| collection(object, queries)).collect::<Option<BTreeSet<_>>>()
        };
        self.shared.reader.with(all).map_or(About::Everything, About::Collections)
    }

    /// The uid that a reference of a request names.
    async fn resolve(&self, object: Option<ObjectRef>, visibility: &Visibility) -> Result<Known, Status> {
        lookup::resolve(self, object.unwrap_or_default(), visibility).await
    }

    /// The best-known visible state of an object.
    fn best_known(&self, uid: &Uid, visibility: &Visibility) -> Option<NodeView> {
        best_known(self.shared.reader.with(|queries| queries.nodes(uid)), visibility)
    }

    /// The visible objects of a walk, and the number of hidden ones. Call this before any filter, because a filter
    /// could reveal hidden objects.
    async fn seen(&self, found: Vec<Found>, visibility: &Visibility) -> Result<(Vec<Found>, u32), Status> {
        if visibility.sees_everything() {
            return Ok((found, 0));
        }
        visibility.learn(namespaces(found.iter().map(|found| &found.node))).await?;
        let all = found.len();
        let seen: Vec<Found> =
            found.into_iter().filter(|found| visibility.sees(&found.node.object.namespace)).collect();
        let hidden = u32::try_from(all - seen.len()).unwrap_or(u32::MAX);
        Ok((seen, hidden))
    }
}

/// Each namespace once.
fn namespaces<'a>(nodes: impl Iterator<Item = &'a NodeView>) -> BTreeSet<&'a str> {
    nodes.map(|node| &*node.object.namespace).collect()
}

#[tonic::async_trait]
impl GraphService for Graph {
    async fn get_object(&self, request: Request<GetObjectRequest>) -> Result<Response<GetObjectResponse>, Status> {
        let visibility = self.shared.visibility(request.extensions())?;
        let GetObjectRequest { r#ref, consistency, read_mask } = request.into_inner();
        let mask = Mask::of(read_mask)?;
        lookup::claim(&visibility, r#ref.as_slice()).await?;
        let meta = self.fresh(consistency, &self.about(r#ref.as_slice(), &visibility)).await?;
        let known = self.resolve(r#ref, &visibility).await?;
        let node = match self.best_known(known.uid(), &visibility) {
            Some(node) => {
                let texts = match mask.asks_the_api_server() && node.is_observed() {
                    true => {
                        visibility.require_to_get(&node.object).await?;
                        self.shared.freshness.texts(node.object.clone()).await?
                    }
                    false => Texts::default(),
                };
                Node {
                    labels: texts.labels.into_iter().collect(),
                    annotations: texts.annotations.into_iter().collect(),
                    ..node.into()
                }
            }
            None => known.tombstone().ok_or_else(|| known.not_found(&visibility))?.into(),
        };
        Ok(Response::new(GetObjectResponse { node: Some(mask.apply(node)), meta: Some(meta) }))
    }

    async fn batch_get_objects(
        &self,
        request: Request<BatchGetObjectsRequest>,
    ) -> Result<Response<BatchGetObjectsResponse>, Status> {
        let visibility = self.shared.visibility(request.extensions())?;
        let BatchGetObjectsRequest { refs, consistency } = request.into_inner();
        if refs.is_empty() {
            return Err(status::bad_field("refs", "is empty"));
        }
        if refs.len() > BATCH_MAX {
            return Err(status::bad_field("refs", &format!("has {} entries; at most {BATCH_MAX}", refs.len())));
        }
        let bytes: usize = refs.iter().map(ObjectRef::encoded_len).sum();
        if bytes > BATCH_BYTES_MAX {
            return Err(status::bad_field("refs", &format!("has {bytes} bytes; at most {BATCH_BYTES_MAX}")));
        }
        let uids = refs.iter().map(|object| uid(&object.uid, "refs.uid")).collect::<Result<Vec<Uid>, Status>>()?;
        lookup::claim(&visibility, &refs).await?;
        let meta = self.fresh(consistency, &self.about(&refs, &visibility)).await?;
        let mut answer = BatchGetObjectsResponse { meta: Some(meta), ..Default::default() };
        let mut answered = BTreeSet::new();
        let mut left = pages::BYTES_MAX;
        for (object, uid) in refs.into_iter().zip(uids) {
            if !answered.insert(uid.clone()) {
                continue;
            }
            if left == 0 {
                answer.not_answered.push(object);
                continue;
            }
            let nodes = self.shared.reader.with(|queries| queries.nodes(&uid));
            visibility.learn(namespaces(nodes.iter())).await?;
            match best_known(nodes, &visibility).map(Node::from) {
                Some(node) if node.encoded_len() + pages::ENTRY_BYTES <= left || answer.nodes.is_empty() => {
                    left = left.saturating_sub(node.encoded_len() + pages::ENTRY_BYTES);
                    answer.nodes.push(node);
                }
                Some(_) => {
                    left = 0;
                    answer.not_answered.push(object);
                }
                None if lookup::is_placed(&object) || visibility.sees_everything() => answer.missing.push(object),
                None => return Err(lookup::not_found(&uid, false, &visibility)),
            }
        }
        Ok(Response::new(answer))
    }

    async fn list_dependents(
        &self,
        request: Request<ListDependentsRequest>,
    ) -> Result<Response<ListDependentsResponse>, Status> {
        let visibility = self.shared.visibility(request.extensions())?;
        let request = request.into_inner();
        lookup::claim(&visibility, request.r#ref.as_slice()).await?;
        let depth = depth(request.max_depth)?;
        let sieve = Sieve::of(&request.include, &request.exclude)?;
        let question =
            ListDependentsRequest { page_size: 0, page_token: String::new(), consistency: None, ..request.clone() };
        let paging = Paging::of(&question, request.page_size, &request.page_token, &visibility)?;
        let first = async || {
            let meta = self.fresh(request.consistency.clone(), &About::Everything).await?;
            let start = self.resolve(request.r#ref.clone(), &visibility).await?.present(self, &visibility)?;
            let blocking_only = request.blocking_only;
            let options = DependentsOptions { max_depth: depth, blocking_only, max_objects: WALK_MAX };
            let walk = DependentsWalk::new(start, options);
            Ok(Dependents::new(Arc::clone(&self.shared), visibility.clone(), sieve, meta, walk))
        };
        let (page, next_page_token) = self.answers.page(paging, first).await?;
        Ok(Response::new(ListDependentsResponse { next_page_token, ..page }))
    }

    async fn list_owners(&self, request: Request<ListOwnersRequest>) -> Result<Response<ListOwnersResponse>, Status> {
        let visibility = self.shared.visibility(request.extensions())?;
        let request = request.into_inner();
        lookup::claim(&visibility, request.r#ref.as_slice()).await?;
        let depth = depth(request.max_depth)?;
        let sieve = Sieve::of(&request.include, &request.exclude)?;
        let question =
            ListOwnersRequest { page_size: 0, page_token: String::new(), consistency: None, ..request.clone() };
        let paging = Paging::of(&question, request.page_size, &request.page_token, &visibility)?;
        let first = async || {
            let meta = self.fresh(request.consistency.clone(), &About::Everything).await?;
            let start = self.resolve(request.r#ref.clone(), &visibility).await?.present(self, &visibility)?;
            let found = self.owners(start.clone(), depth).await?;
            let (found, redacted_count) = self.seen(found, &visibility).await?;
            let seen = found.iter().map(|found| found.node.object.uid.to_string()).chain([start.to_string()]);
            let seen: BTreeSet<String> = seen.collect();
            let all = found.len();
            let found = self.sift(found, |found| sieve.admits(&found.node)).await?;
            let filtered_count = u32::try_from(all - found.len()).unwrap_or(u32::MAX);
            let mut found: Vec<list_owners_response::Owner> = found.into_iter().map(Into::into).collect();
            // The references of a hidden object are hidden too.
            found.iter_mut().for_each(|found| found.edges.retain(|edge| seen.contains(&edge.dependent_uid)));
            let rest = ListOwnersResponse { filtered_count, redacted_count, meta: Some(meta), ..Default::default() };
            apart(move || Listed::new(found, rest)).await
        };
        let ((items, rest), next_page_token) = self.answers.page(paging, first).await?;
        Ok(Response::new(ListOwnersResponse { owners: items, next_page_token, ..rest }))
    }

    type WatchDependentsStream = BoxStream<'static, Result<WatchDependentsResponse, Status>>;

    async fn watch_dependents(
        &self,
        request: Request<WatchDependentsRequest>,
    ) -> Result<Response<Self::WatchDependentsStream>, Status> {
        let connection = Link::cut_of(request.extensions());
        let visibility = self.shared.visibility(request.extensions())?;
        let (watch, from) = watch::Watch::of(self, request.into_inner(), visibility.clone()).await?;
        Ok(Response::new(self.followers.open(connection, &visibility, |reader| watch.run(from, reader))?))
    }

    async fn explain_object(
        &self,
        request: Request<ExplainObjectRequest>,
    ) -> Result<Response<ExplainObjectResponse>, Status> {
        let visibility = self.shared.visibility(request.extensions())?;
        let ExplainObjectRequest { r#ref, consistency } = request.into_inner();
        lookup::claim(&visibility, r#ref.as_slice()).await?;
        let meta = Some(self.fresh(consistency, &About::Everything).await?);
        let known = self.resolve(r#ref, &visibility).await?;
        let (uid, clock) = (known.uid(), wire(self.shared.clock));
        let departure = known.tombstone().map(|tombstone| convert::departure(tombstone.clone(), clock));
        let mut explained = self.shared.reader.with(|queries| queries.explain(uid));
        self.look_inside(explained.as_mut_slice()).await?;
        let mut answer = match explained.filter(|of| visibility.sees(&of.object.object.namespace)) {
            Some(of) => {
                let departure = departure.filter(|_| Verdict::from(of.verdict) == Verdict::Gone);
                ExplainObjectResponse { meta, departure, ..convert::explanation(of, clock) }
            }
            None => {
                let tombstone = known.tombstone().ok_or_else(|| known.not_found(&visibility))?;
                ExplainObjectResponse { meta, ..convert::gone(tombstone.clone(), clock) }
            }
        };
        redact::explanation(&visibility, &mut answer).await?;
        Ok(Response::new(answer))
    }

    async fn preview_deletion(
        &self,
        request: Request<PreviewDeletionRequest>,
    ) -> Result<Response<PreviewDeletionResponse>, Status> {
        let visibility = self.shared.visibility(request.extensions())?;
        let request = request.into_inner();
        let mut options = plan_options(&request)?;
        lookup::claim(&visibility, &request.targets).await?;
        let question =
            PreviewDeletionRequest { page_size: 0, page_token: String::new(), consistency: None, ..request.clone() };
        let paging = Paging::of(&question, request.page_size, &request.page_token, &visibility)?;
        let (is_first, clock) = (paging.is_first(), wire(self.shared.clock));
        let first = async || {
            let meta = self.fresh(request.consistency.clone(), &About::Everything).await?;
            let unseen = self.take_unseen(&request.targets, &mut options, &visibility).await?;
            let _turn = self.shared.long_read().await?;
            let mut planning = Planning::new(options);
            while !self.shared.reader.with(|queries| planning.step(queries, STEP)) {
                tokio::task::yield_now().await;
            }
            let frame = self.shared.reader.with(|queries| queries.frame());
            let (plan, (mut entries, mut totals)) = apart(move || {
                let plan = planning.finish(frame);
                let shown = convert::plan(&plan, clock);
                (plan, shown)
            })
            .await?;
            let redacted_count = redact::plan(&visibility, &mut entries, &mut totals).await?;
            if plan.cut {
                return Err(status::traversal_limit(WALK_MAX));
            }
            let omitted_guards = u32::try_from(plan.guards.len().saturating_sub(LISTED_MAX)).unwrap_or(u32::MAX);
            let guards = plan.guards.into_iter().take(LISTED_MAX).map(|guard| convert::plan_guard(guard, clock));
            let mut guards: Vec<_> = guards.collect();
            redact::plan_guards(&visibility, &mut guards).await?;
            let rest = PreviewDeletionResponse {
                totals,
                guards,
                omitted_guards,
                meta: Some(meta),
                digest: format!("{:016x}", plan.digest),
                missing_uids: plan.missing.iter().chain(&unseen).map(Uid::to_string).collect(),
                undecided_by: plan.unsynced.into_iter().take(LISTED_MAX).map(Into::into).collect(),
                redacted_count,
                ..Default::default()
            };
            apart(move || Listed::new(entries, rest)).await
        };
        let ((items, mut rest), next_page_token) = self.answers.page(paging, first).await?;
        if !is_first {
            rest.totals.clear();
            rest.guards.clear();
        }
        Ok(Response::new(PreviewDeletionResponse { entries: items, next_page_token, ..rest }))
    }

    async fn find_stuck_objects(
        &self,
        request: Request<FindStuckObjectsRequest>,
    ) -> Result<Response<FindStuckObjectsResponse>, Status> {
        let visibility = self.shared.visibility(request.extensions())?;
        self.stuck(request.into_inner(), visibility).await.map(Response::new)
    }

    async fn find_cycles(&self, request: Request<FindCyclesRequest>) -> Result<Response<FindCyclesResponse>, Status> {
        let visibility = self.shared.visibility(request.extensions())?;
        self.cycles(request.into_inner(), visibility).await.map(Response::new)
    }

    type ExportGraphStream = BoxStream<'static, Result<ExportGraphResponse, Status>>;

    async fn export_graph(
        &self,
        request: Request<ExportGraphRequest>,
    ) -> Result<Response<Self::ExportGraphStream>, Status> {
        let connection = Link::cut_of(request.extensions());
        let visibility = self.shared.visibility(request.extensions())?;
        let ExportGraphRequest { include, consistency } = request.into_inner();
        visibility.require_named(named(&include)).await?;
        let include = Filter::of("include", &include)?;
        let meta = self.fresh(consistency, &About::Everything).await?;
        let export = Export::of(Arc::clone(&self.shared), include, visibility.clone(), meta);
        Ok(Response::new(self.followers.open(connection, &visibility, |reader| export.run(reader))?))
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
        request: Request<ListCoverageRequest>,
    ) -> Result<Response<ListCoverageResponse>, Status> {
        let ListCoverageRequest { page_size, page_token } = request.into_inner();
        let cursor = Cursor::of("collections", page_size, &page_token)?;
        let meta = self.shared.meta();
        let collections = self.shared.reader.with(|queries| queries.collections());
        let clock = wire(self.shared.clock);
        let collections = collections.into_iter().map(|status| convert::collection(status, clock)).collect();
        let of =
            |collection: &list_coverage_response::Collection| collection.group_resource.clone().unwrap_or_default();
        let key = |collection: &list_coverage_response::Collection| {
            format!("{}\0{}", of(collection).group, of(collection).resource)
        };
        let (collections, next_page_token) = cursor.page(collections, key);
        Ok(Response::new(ListCoverageResponse { collections, next_page_token, meta: Some(meta) }))
    }
}

/// The namespaces that each filter names.
fn named(filters: &[ObjectFilter]) -> impl Iterator<Item = &[String]> {
    filters.iter().map(|filter| filter.namespaces.as_slice())
}

/// If references disagree about a uid, an observed object wins over claimed ones. Only visible objects count.
fn best_known(nodes: Vec<NodeView>, visibility: &Visibility) -> Option<NodeView> {
    let seen = nodes.into_iter().filter(|node| visibility.sees(&node.object.namespace));
    seen.min_by_key(|node| match node.presence {
        Presence::Observed { .. } => 0,
        Presence::Virtual { .. } | Presence::Read { .. } => 1,
        Presence::Absent(_) => 2,
    })
}

fn uid(text: &str, field: &str) -> Result<Uid, Status> {
    if text.len() > UID_MAX_BYTES {
        return Err(status::bad_field(field, &format!("has {} bytes; at most {UID_MAX_BYTES}", text.len())));
    }
    Uid::parse(text).ok_or_else(|| status::bad_field(field, "is empty"))
}

fn depth(max_depth: u32) -> Result<u32, Status> {
    if max_depth > DEPTH_MAX {
        return Err(status::bad_field("max_depth", &format!("is {max_depth}; at most {DEPTH_MAX}")));
    }
    Ok(max_depth.max(1))
}
