//! `status`: the state of the collector in a few lines.

use super::document::{Document, Kind, Schema};
use super::ending::{Answered, Ending, Problem};
use super::flags::{Format, Status};
use super::printer::Printer;
use super::service::{Way, note_once};
use super::{guards, way};
use crate::failure::Failure;
use crate::remote::{self, Admin, PAGE_SIZE, PAGES_MAX};
use executor_service::Channel;
use proto::admin::v1beta1::watch_status_response::Event;
use proto::admin::v1beta1::{GetStatusRequest, GetStatusResponse, Guard, WatchStatusRequest};
use proto::decision::v1beta1::decision_service_client::DecisionServiceClient;
use proto::decision::v1beta1::{GetParityRequest, GetParityResponse};
use proto::graph::v1beta1::FindStuckObjectsRequest;
use proto::graph::v1beta1::graph_service_client::GraphServiceClient;
use proto::graph::v1beta1::list_coverage_response::{Collection, State};
use proto::graph::v1beta1::reason::Code;
use proto::r#type::v1beta1::ReplicaRole;
use std::time::Duration;
use words::{lines, of_progress};

#[cfg(test)]
mod tests;
mod words;

/// Minimum and maximum delay before a stream that ended without an error is opened again.
const RECONNECT_AFTER: Duration = Duration::from_millis(200);
const RECONNECT_WITHIN: Duration = Duration::from_secs(5);

const FORMATS: [Format; 3] = [Format::Table, Format::Json, Format::Yaml];

/// Prints the status of the leader if it can be reached, else that of the replica that answers.
pub(super) async fn run(flags: Status) -> Answered {
    let printer = Printer::of(flags.output, &FORMATS)?;
    let way = way(flags.connection).await?;
    if flags.watch {
        return follow(&way, &printer).await;
    }
    let (replica, status) = ask(&way).await?;
    let searched = Searched::of(&replica).await;
    show(replica, &status, searched, &printer).await
}

/// The replica that [`run`] asks, its status, and the document that it prints.
pub(super) async fn report(way: &Way) -> Result<(Channel, GetStatusResponse, Result<Document, Problem>), Problem> {
    let (replica, status) = ask(way).await?;
    let searched = Searched::of(&replica).await;
    let about = about(replica.clone()).await;
    let told = about.and_then(|(collections, guards)| document(&status, guards.as_deref(), &collections, searched));
    Ok((replica, status, told))
}

/// The collections and the guards.
async fn about(replica: Channel) -> Result<(Vec<Collection>, Option<Vec<Guard>>), Problem> {
    let collections = remote::within(remote::collections(&mut GraphServiceClient::new(replica.clone()))).await?;
    // An older graph service has pauses only.
    Ok((collections, guards::known(&mut Admin::new(replica)).await.ok()))
}

/// Numbers of objects that a search of the whole graph finds. `None` without a search, or if the caller may not read
/// all namespaces.
#[derive(Clone, Debug, Default)]
struct Searched {
    /// Objects that the annotation holds.
    annotated: Option<usize>,
    /// Objects that mode observe keeps, at least.
    observed: Option<usize>,
    /// The comparison with another collector, if the service compares.
    parity: Option<GetParityResponse>,
}

impl Searched {
    async fn of(replica: &Channel) -> Searched {
        let mut graph = GraphServiceClient::new(replica.clone());
        Searched {
            annotated: count(&mut graph, Code::HoldAnnotation, usize::MAX).await,
            observed: count(&mut graph, Code::ObserveOnly, 1).await,
            parity: compared(replica.clone()).await,
        }
    }
}

/// Prints the status again after each change, until the command is interrupted, without [`Searched`].
async fn follow(way: &Way, printer: &Printer) -> Answered {
    let (mut was_shown, mut pause) = (false, RECONNECT_AFTER);
    loop {
        match watch(way, printer, &mut was_shown).await {
            Ok(wanted) => pause = wanted.unwrap_or(RECONNECT_AFTER).clamp(RECONNECT_AFTER, RECONNECT_WITHIN),
            Err(problem) if !was_shown || problem.is_unwritten() => return Err(problem),
            Err(problem) => {
                note_once(format!("{problem}; connecting again"));
                pause = (pause * 2).min(RECONNECT_WITHIN);
            }
        }
        tokio::time::sleep(pause).await;
    }
}

/// One stream, to its end. Returns the pause that the service asks for.
async fn watch(way: &Way, printer: &Printer, was_shown: &mut bool) -> Result<Option<Duration>, Problem> {
    let (replica, _) = ask(way).await?;
    let mut stream = remote::within(Admin::new(replica.clone()).watch_status(WatchStatusRequest::default())).await?;
    loop {
        match stream.message().await.map_err(Failure::from)?.and_then(|message| message.event) {
            Some(Event::Status(status)) => {
                show(replica.clone(), &status, Searched::default(), printer).await?;
                *was_shown = true;
            }
            Some(Event::GoingAway(away)) => {
                return Ok(away.reconnect_after.and_then(|pause| Duration::try_from(pause).ok()));
            }
            None => return Ok(None),
        }
    }
}

/// The leader's status if it can be reached, else the status of the replica that answers.
async fn ask(way: &Way) -> Result<(Channel, GetStatusResponse), Failure> {
    let mut replica = way.any().await?;
    let mut status = way.first(remote::within(Admin::new(replica.clone()).get_status(GetStatusRequest {})).await)?;
    let meta = status.meta.clone().unwrap_or_default();
    if meta.role() != ReplicaRole::Leader
        && let Some(leader) = way.at(&meta.leader_endpoint).await
        && let Ok(known) = remote::within(Admin::new(leader.clone()).get_status(GetStatusRequest {})).await
    {
        (replica, status) = (leader, known);
    }
    Ok((replica, status))
}

async fn show(replica: Channel, status: &GetStatusResponse, searched: Searched, printer: &Printer) -> Answered {
    let (collections, guards) = about(replica).await?;
    let guards = guards.as_deref();
    if matches!(printer.format, Format::Json | Format::Yaml) {
        printer.print_document(document(status, guards, &collections, searched)?, &[])?;
    } else {
        printer.print(&lines(status, guards, &collections, searched))?;
    }
    Ok(if is_broken(status, &collections) { Ending::Findings } else { Ending::Fine })
}

/// Whether something keeps the collector from its work that a person has to look at. A pause, mode observe, a start and
/// a replica that stands by are intended.
fn is_broken(status: &GetStatusResponse, collections: &[Collection]) -> bool {
    let leads = status.meta.as_ref().is_some_and(|meta| meta.role() == ReplicaRole::Leader);
    of_progress(status).is_err()
        || (leads && !status.grants_stopped.is_empty())
        || !status.pauses_unknown.is_empty()
        || !status.inconsistent_reads.is_empty()
        || !status.untrue_reports.is_empty()
        || collections.iter().any(|collection| collection.state() == State::Failed)
}

fn document(
    status: &GetStatusResponse,
    guards: Option<&[Guard]>,
    collections: &[Collection],
    searched: Searched,
) -> Result<Document, Problem> {
    let schema = Schema::load()?;
    let fields = schema.message("ownergraph.admin.v1beta1.GetStatusResponse", status)?;
    let document = Document::new(Kind::CollectorStatus).with_fields(fields);
    let told = |guard| schema.message("ownergraph.admin.v1beta1.Guard", guard);
    let guards = guards.map(|guards| guards.iter().map(told).collect::<Result<Vec<_>, _>>()).transpose()?;
    let document = document.with("guards", guards.into());
    let collections = schema.values("ListCoverageResponse.Collection", collections)?;
    let document = document.with("collections", collections).with("annotatedObjects", searched.annotated.into());
    let parity =
        searched.parity.map(|numbers| schema.message("ownergraph.decision.v1beta1.GetParityResponse", &numbers));
    let document = document.with("observes", searched.observed.map(|count| count > 0).into());
    Ok(document.with("parity", parity.transpose()?.into()))
}

/// The number of objects that are not deleted for this reason; `enough` ends the count. `None` if the caller may not
/// read all namespaces, or the pages do not end.
async fn count(graph: &mut GraphServiceClient<Channel>, code: Code, enough: usize) -> Option<usize> {
    let mut request = FindStuckObjectsRequest {
        min_age: Some(prost_types::Duration::default()),
        codes: vec![code.into()],
        page_size: PAGE_SIZE,
        ..Default::default()
    };
    let mut count = 0;
    for _ in 0..PAGES_MAX {
        let page = remote::within(graph.find_stuck_objects(request.clone())).await.ok()?;
        count += page.objects.len();
        if page.next_page_token.is_empty() || count >= enough {
            return Some(count);
        }
        request.page_token = page.next_page_token;
    }
    None
}

/// The comparison of mode observe. `None` from an older service, in mode enforce, and if the caller may not read it.
async fn compared(replica: Channel) -> Option<GetParityResponse> {
    let mut decisions = DecisionServiceClient::new(replica);
    remote::within(decisions.get_parity(GetParityRequest::default())).await.ok()
}
