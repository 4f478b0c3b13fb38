//! The calls of the graph service, with all pages of their answers.

use super::ending::Problem;
use super::service::Service;
use super::snapshot::Exported;
use crate::name::command;
use crate::remote::{self, PAGE_SIZE, PAGES_MAX, endless};
use proto::decision::v1beta1::{DecisionEvent, GetParityRequest, GetParityResponse, ListDisagreementsRequest};
use proto::error_reason::FIELD;
use proto::graph::v1beta1::export_graph_response::Part;
use proto::graph::v1beta1::*;
use proto::r#type::v1beta1::{ErrorReason, GroupResource, ObjectFilter, ObjectRef, ResponseMeta};
use runtime::version::VERSION;
use std::error::Error as _;
use std::future::Future;
use std::time::Duration;
use tonic::{Code, Response, Status};
use tonic_types::StatusExt as _;

/// An object of a walk, its distance, and its references within the walk.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Found {
    pub(super) node: Node,
    pub(super) depth: u32,
    pub(super) edges: Vec<Edge>,
}

/// The result of a walk.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Walked {
    pub(super) found: Vec<Found>,
    pub(super) depth_limited: bool,
    /// The number of objects found, then removed by a filter of the command.
    pub(super) hidden: usize,
    pub(super) unsynced: Vec<GroupResource>,
    /// The number of objects that the service left out because the caller may not see them.
    pub(super) redacted: u32,
}

impl Service {
    /// `None` if the graph knows no such object.
    pub(super) async fn get(&mut self, object: &ObjectRef) -> Result<Option<Node>, Problem> {
        let request = GetObjectRequest { r#ref: Some(object.clone()), ..Default::default() };
        let answer = answered(self.within, self.graph.get_object(request)).await;
        Ok(unless_unknown(answer)?.and_then(|answer| answer.node))
    }

    /// Whether the object exists, as far as the graph knows.
    pub(super) async fn has(&mut self, object: &ObjectRef) -> Result<bool, Problem> {
        let node = self.get(object).await?;
        Ok(node.is_some_and(|node| matches!(node.state(), NodeState::Live | NodeState::Terminating)))
    }

    pub(super) async fn dependents(&mut self, object: &ObjectRef, depth: u32) -> Result<Option<Walked>, Problem> {
        let mut walked = Walked::default();
        let mut request = ListDependentsRequest {
            r#ref: Some(object.clone()),
            max_depth: depth,
            page_size: PAGE_SIZE,
            ..Default::default()
        };
        for _ in 0..PAGES_MAX {
            let answer = answered(self.within, self.graph.list_dependents(request.clone())).await;
            let Some(page) = unless_unknown(answer)? else { return Ok(None) };
            let found = page.dependents.into_iter();
            walked
                .found
                .extend(found.filter_map(|of| Some(Found { node: of.node?, depth: of.depth, edges: of.edges })));
            walked.depth_limited |= page.depth_limited;
            walked.unsynced = unsynced(page.meta);
            walked.redacted = page.redacted_count;
            if page.next_page_token.is_empty() {
                return Ok(Some(walked));
            }
            request.page_token = page.next_page_token;
        }
        Err(endless().into())
    }

    pub(super) async fn owners(&mut self, object: &ObjectRef, depth: u32) -> Result<Option<Walked>, Problem> {
        let mut walked = Walked::default();
        let mut request = ListOwnersRequest {
            r#ref: Some(object.clone()),
            max_depth: depth,
            page_size: PAGE_SIZE,
            ..Default::default()
        };
        for _ in 0..PAGES_MAX {
            let answer = answered(self.within, self.graph.list_owners(request.clone())).await;
            let Some(page) = unless_unknown(answer)? else { return Ok(None) };
            let found = page.owners.into_iter();
            walked
                .found
                .extend(found.filter_map(|of| Some(Found { node: of.node?, depth: of.depth, edges: of.edges })));
            walked.unsynced = unsynced(page.meta);
            walked.redacted = page.redacted_count;
            if page.next_page_token.is_empty() {
                return Ok(Some(walked));
            }
            request.page_token = page.next_page_token;
        }
        Err(endless().into())
    }

    pub(super) async fn explain(&mut self, object: &ObjectRef) -> Result<Option<ExplainObjectResponse>, Problem> {
        let request = ExplainObjectRequest { r#ref: Some(object.clone()), ..Default::default() };
        unless_unknown(answered(self.within, self.graph.explain_object(request)).await)
    }

    /// The plan with all its entries.
    pub(super) async fn preview(
        &mut self,
        request: PreviewDeletionRequest,
    ) -> Result<PreviewDeletionResponse, Problem> {
        let mut request = PreviewDeletionRequest { page_size: PAGE_SIZE, ..request };
        let mut plan: Option<PreviewDeletionResponse> = None;
        for _ in 0..PAGES_MAX {
            let page = answered(self.within, self.graph.preview_deletion(request.clone())).await?;
            let next = page.next_page_token.clone();
            match &mut plan {
                Some(plan) => plan.entries.extend(page.entries),
                None => plan = Some(page),
            }
            if next.is_empty() {
                return Ok(PreviewDeletionResponse { next_page_token: String::new(), ..plan.unwrap_or_default() });
            }
            request.page_token = next;
        }
        Err(endless().into())
    }

    pub(super) async fn stuck(
        &mut self,
        include: Vec<ObjectFilter>,
        min_age: Duration,
    ) -> Result<(Vec<find_stuck_objects_response::Stuck>, Vec<GroupResource>), Problem> {
        let min_age = prost_types::Duration::try_from(min_age).ok();
        let mut request = FindStuckObjectsRequest { include, min_age, page_size: PAGE_SIZE, ..Default::default() };
        let mut all = Vec::new();
        for _ in 0..PAGES_MAX {
            let page = answered(self.within, self.graph.find_stuck_objects(request.clone())).await?;
            all.extend(page.objects);
            if page.next_page_token.is_empty() {
                return Ok((all, unsynced(page.meta)));
            }
            request.page_token = page.next_page_token;
        }
        Err(endless().into())
    }

    pub(super) async fn cycles(
        &mut self,
        include: Vec<ObjectFilter>,
        blocking_only: bool,
    ) -> Result<(Vec<find_cycles_response::Cycle>, Vec<GroupResource>), Problem> {
        let mut request = FindCyclesRequest { include, blocking_only, page_size: PAGE_SIZE, ..Default::default() };
        let mut all = Vec::new();
        for _ in 0..PAGES_MAX {
            let page = answered(self.within, self.graph.find_cycles(request.clone())).await?;
            all.extend(page.cycles);
            if page.next_page_token.is_empty() {
                return Ok((all, unsynced(page.meta)));
            }
            request.page_token = page.next_page_token;
        }
        Err(endless().into())
    }

    /// The numbers of the comparison with another collector.
    pub(super) async fn parity(&mut self, window: Option<Duration>) -> Result<GetParityResponse, Problem> {
        let window = window.and_then(|window| prost_types::Duration::try_from(window).ok());
        answered(self.within, self.decisions.get_parity(GetParityRequest { window })).await
    }

    /// The disagreements of the comparison, the newest first.
    pub(super) async fn disagreements(
        &mut self,
        request: ListDisagreementsRequest,
    ) -> Result<Vec<DecisionEvent>, Problem> {
        let mut request = ListDisagreementsRequest { page_size: PAGE_SIZE, ..request };
        let mut all = Vec::new();
        for _ in 0..PAGES_MAX {
            let page = answered(self.within, self.decisions.list_disagreements(request.clone())).await?;
            all.extend(page.events);
            if page.next_page_token.is_empty() {
                return Ok(all);
            }
            request.page_token = page.next_page_token;
        }
        Err(endless().into())
    }

    /// Whether the graph leaves the collection of this object out: it is ignored by configuration, or cannot be
    /// watched.
    pub(super) async fn leaves_out(&mut self, object: &ObjectRef) -> Result<bool, Problem> {
        let collections = answered(self.within, remote::collections(&mut self.graph)).await?;
        let is_its = |of: &list_coverage_response::Collection| {
            let key = of.group_resource.as_ref();
            key.is_some_and(|key| key.group == object.group && key.resource == object.resource)
        };
        let ignored = |of: &list_coverage_response::Collection| of.state() == list_coverage_response::State::Ignored;
        Ok(collections.iter().any(|of| is_its(of) && ignored(of)))
    }

    /// Collections that the graph contains completely.
    pub(super) async fn covered(&mut self) -> Result<Vec<GroupResource>, Problem> {
        let collections = answered(self.within, remote::collections(&mut self.graph)).await?;
        let synced = collections.into_iter().filter(|of| of.state() == list_coverage_response::State::Synced);
        Ok(synced.filter_map(|of| of.group_resource).collect())
    }

    /// The time limit applies to each message, not to the whole answer: a million objects take long.
    pub(super) async fn export(&mut self, include: Vec<ObjectFilter>) -> Result<Exported, Problem> {
        let mut parts =
            answered(self.within, self.graph.export_graph(ExportGraphRequest { include, ..Default::default() }))
                .await?;
        let mut all = Exported::default();
        loop {
            let next = tokio::time::timeout(self.within, parts.message()).await.map_err(|_| late(self.within))?;
            match next?.and_then(|message| message.part) {
                Some(Part::Header(header)) => {
                    all.cluster_uid = header.meta.as_ref().map(|meta| meta.cluster_uid.clone()).unwrap_or_default();
                    all.unsynced = unsynced(header.meta);
                }
                Some(Part::Chunk(chunk)) => {
                    all.nodes.extend(chunk.nodes);
                    all.edges.extend(chunk.edges);
                }
                Some(Part::Footer(_)) => return Ok(all),
                None => return Err(Problem::sentence("the export ended too early; try again")),
            }
        }
    }
}

fn unsynced(meta: Option<ResponseMeta>) -> Vec<GroupResource> {
    meta.map(|meta| meta.unsynced).unwrap_or_default()
}

pub(super) async fn answered<T>(
    within: Duration,
    call: impl Future<Output = Result<Response<T>, Status>>,
) -> Result<T, Problem> {
    let answer = tokio::time::timeout(within, call).await.map_err(|_| late(within))?;
    Ok(answer?.into_inner())
}

fn late(within: Duration) -> Problem {
    Problem::TimedOut(format!("the graph service has not answered within {within:?}"))
}

/// The graph does not know the object. This is not an error.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Unknown(String);

impl From<Status> for Problem {
    fn from(status: Status) -> Problem {
        if status.code() == Code::NotFound {
            return Problem::Other(Unknown(status.message().to_owned()).into());
        }
        if status.code() == Code::Unimplemented {
            return Problem::sentence(format!(
                "this graph service does not know the call, because it is older than this program: upgrade it to {VERSION}"
            ));
        }
        let reason = remote::reason(&status);
        if reason == Some(ErrorReason::NotObserving) {
            return Problem::sentence(format!(
                "this collector carries its decisions out, and only one in mode observe compares them with another collector (docs/parity.md); its own decisions: {} decisions -A",
                command()
            ));
        }
        let info = status.get_details_error_info();
        if let Some(info) = info.as_ref().filter(|_| reason == Some(ErrorReason::ExpressionInvalid)) {
            // The message names the flag instead of the request field.
            let field = info.metadata.get(FIELD).map_or("", String::as_str);
            let message = status.message();
            let mistake = message.strip_prefix("field ").and_then(|rest| rest.strip_prefix(field)).unwrap_or(message);
            return Problem::sentence(format!(
                "--cel cannot be used{}{mistake}",
                if mistake == message { ": " } else { "" }
            ));
        }
        let reason = info.map(|info| format!(" ({})", info.reason)).unwrap_or_default();
        let said = remote::said(&status);
        let sentence = match status.source() {
            Some(_broken) => said,
            None => format!("the graph service answered {:?}: {said}{reason}", status.code()),
        };
        if status.code() == Code::DeadlineExceeded { Problem::TimedOut(sentence) } else { Problem::sentence(sentence) }
    }
}

fn unless_unknown<T>(answer: Result<T, Problem>) -> Result<Option<T>, Problem> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(Problem::Other(error)) if error.is::<Unknown>() => Ok(None),
        Err(problem) => Err(problem),
    }
}
