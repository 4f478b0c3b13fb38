//! `status`: the state of the collector in a few lines.

use super::document::{Document, Kind, Schema};
use super::ending::{Answered, Ending, Problem};
use super::flags::{Format, Status};
use super::printer::Printer;
use super::service::Way;
use super::{guards, parity, pausing, way};
use crate::counted::counted;
use crate::failure::Failure;
use crate::remote::{self, Admin, Reach as _};
use executor_service::Channel;
use proto::admin::v1beta1::decision_log_status::State as LogState;
use proto::admin::v1beta1::watch_status_response::Event;
use proto::admin::v1beta1::{
    DecisionLogStatus, GetStatusRequest, GetStatusResponse, Guard, Obstacle, UntrueReports, WatchStatusRequest,
};
use proto::decision::v1beta1::decision_service_client::DecisionServiceClient;
use proto::decision::v1beta1::{GetParityRequest, GetParityResponse};
use proto::graph::v1beta1::FindStuckObjectsRequest;
use proto::graph::v1beta1::graph_service_client::GraphServiceClient;
use proto::graph::v1beta1::list_coverage_response::{Collection, State};
use proto::graph::v1beta1::reason::Code;
use proto::r#type::v1beta1::{GroupResource, ObjectRef, ReplicaRole};
use runtime::visible;
use std::fmt::Write as _;
use std::time::Duration;

const PAGE_SIZE: i32 = 1000;
/// Minimum and maximum delay before a stream that ended without an error is opened again.
const RECONNECT_AFTER: Duration = Duration::from_millis(200);
const RECONNECT_WITHIN: Duration = Duration::from_secs(5);
/// Time after which the loop counts as stopped. `/livez` has the same limit.
const LOOP_STANDS_STILL_S: i64 = 30;
/// Age from which ready work counts as stalled. An executor with capacity gets work within moments.
const STALLED_S: i64 = 30;

/// Number of attempts from which a decision counts as stalled.
const FAILS_OFTEN: u32 = 5;
/// Maximum length of text from outside in one line.
const WHY_MAX: usize = 300;

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

/// Numbers of objects that a search of the whole graph finds. `None` without a search, or if the caller may not read all
/// namespaces.
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
    loop {
        let (replica, _) = ask(way).await?;
        let mut stream =
            remote::within(Admin::new(replica.clone()).watch_status(WatchStatusRequest::default())).await?;
        let pause = loop {
            match stream.message().await.map_err(remote::failed)?.and_then(|message| message.event) {
                Some(Event::Status(status)) => {
                    show(replica.clone(), &status, Searched::default(), printer).await?;
                }
                Some(Event::GoingAway(away)) => break away.reconnect_after,
                None => break None,
            }
        };
        let pause = pause.and_then(|pause| Duration::try_from(pause).ok()).unwrap_or(RECONNECT_AFTER);
        tokio::time::sleep(pause.clamp(RECONNECT_AFTER, RECONNECT_WITHIN)).await;
    }
}

/// The leader's status if it can be reached, else the status of the replica that answers.
async fn ask(way: &Way) -> Result<(Channel, GetStatusResponse), Failure> {
    let mut replica = way.any().await?;
    let mut status = remote::within(Admin::new(replica.clone()).get_status(GetStatusRequest {})).await?;
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
    match printer.format {
        Format::Json | Format::Yaml => printer.print_document(document(status, guards, &collections, searched)?, &[]),
        Format::Table
        | Format::Wide
        | Format::Tree
        | Format::Name
        | Format::Dot
        | Format::Mermaid
        | Format::Html
        | Format::Ndjson => printer.print(&lines(status, guards, &collections, searched)),
    }?;
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
    Ok(document.with("observes", searched.observed.map(|count| count > 0).into()))
}

/// The number of objects that are not deleted for this reason; `enough` ends the count. `None` if the caller may not
/// read all namespaces.
async fn count(graph: &mut GraphServiceClient<Channel>, code: Code, enough: usize) -> Option<usize> {
    let mut request = FindStuckObjectsRequest {
        min_age: Some(prost_types::Duration::default()),
        codes: vec![code.into()],
        page_size: PAGE_SIZE,
        ..Default::default()
    };
    let mut count = 0;
    loop {
        let page = remote::within(graph.find_stuck_objects(request.clone())).await.ok()?;
        count += page.objects.len();
        if page.next_page_token.is_empty() || count >= enough {
            return Some(count);
        }
        request.page_token = page.next_page_token;
    }
}

/// The comparison of mode observe. `None` from an older service, in mode enforce, and if the caller may not read it.
async fn compared(replica: Channel) -> Option<GetParityResponse> {
    let mut decisions = DecisionServiceClient::new(replica);
    remote::within(decisions.get_parity(GetParityRequest::default())).await.ok()
}

fn role(status: &GetStatusResponse) -> &'static str {
    match status.meta.as_ref().map_or(ReplicaRole::Unspecified, |meta| meta.role()) {
        ReplicaRole::Leader => "leads",
        ReplicaRole::Standby => "stands by",
        ReplicaRole::Syncing => "is syncing",
        ReplicaRole::Unspecified => "is there",
    }
}

fn in_words(state: State) -> &'static str {
    match state {
        State::Synced => "synced",
        State::Listing => "listing",
        State::Stale => "stale",
        State::Failed => "failed",
        State::Ignored => "ignored",
        State::Unspecified => "unknown",
    }
}

fn name(collection: &Collection) -> String {
    in_group(&collection.group_resource.clone().unwrap_or_default())
}

fn in_group(of: &GroupResource) -> String {
    if of.group.is_empty() { of.resource.clone() } else { format!("{}.{}", of.resource, of.group) }
}

/// The number of collections in each state. Collections that are ignored by configuration are left out.
fn counts(collections: &[Collection]) -> String {
    let states = [State::Synced, State::Listing, State::Stale, State::Failed, State::Unspecified];
    let count = |state: State| (state, collections.iter().filter(|collection| collection.state() == state).count());
    let counted: Vec<String> = states
        .into_iter()
        .map(count)
        .filter(|(state, count)| *state == State::Synced || *count > 0)
        .map(|(state, count)| format!("{count} {}", in_words(state)))
        .collect();
    counted.join(", ")
}

/// The storage of the decision log, and its state.
fn of_log(log: &DecisionLogStatus) -> String {
    let mut text = match (log.state(), log.required) {
        (LogState::InMemory, _) => "in the leader's memory".to_owned(),
        (LogState::Connecting, _) => "on JetStream, not connected yet".to_owned(),
        (LogState::Writing, _) => "on JetStream".to_owned(),
        (LogState::CatchingUp, _) => "on JetStream, which is catching up".to_owned(),
        (LogState::Away, true) => "on JetStream, which is unreachable; grants are suspended".to_owned(),
        (LogState::Away, false) => "on JetStream, which is unreachable; grants continue".to_owned(),
        (LogState::Unspecified, _) => "in a state that this version does not know".to_owned(),
    };
    // Writing to a string does not fail.
    if !log.problem.is_empty() {
        let _infallible = write!(text, " ({})", log.problem);
    }
    if let (Some(oldest), Some(newest)) = (&log.oldest, &log.newest) {
        let _infallible = match newest.sequence < oldest.sequence {
            true => write!(text, ", no events yet"),
            false => write!(text, ", positions {} to {}", oldest.sequence, newest.sequence),
        };
    }
    if log.waiting_events > 0 {
        let _infallible = write!(text, ", {} wait", log.waiting_events);
    }
    if log.lost_events > 0 {
        let _infallible = write!(text, ", {} lost", log.lost_events);
    }
    text
}

/// Whether the collector makes progress. An error is a finding. The text about a stall is that of the alert.
fn of_progress(status: &GetStatusResponse) -> Result<String, String> {
    let seconds = |of: &Option<prost_types::Duration>| of.as_ref().map_or(0, |of| of.seconds);
    let (idle, stalled) = (seconds(&status.loop_idle), seconds(&status.stalled_for));
    if status.loop_idle.is_none() {
        return Ok("not reported by this version of the graph service".to_owned());
    }
    if idle > LOOP_STANDS_STILL_S {
        return Err(format!("STOPPED: the collector's loop has made no progress for {idle} s"));
    }
    if stalled >= STALLED_S {
        return Err(format!("STALLED: work is ready, but nothing was granted, reported or withdrawn for {stalled} s"));
    }
    let oldest = |of: &Option<prost_types::Duration>, what: &str| {
        of.as_ref().map(|of| format!(", the oldest {what} for {} s", of.seconds))
    };
    if let Some(worst) = status.obstacles.iter().max_by_key(|obstacle| obstacle.attempts)
        && worst.attempts >= FAILS_OFTEN
    {
        let object = worst.object.as_ref().map(named).unwrap_or_default();
        return Err(format!("FAILING: {} of {object} was tried {} times: {}", worst.what, worst.attempts, worst.why));
    }
    let has_ready = status.oldest_queued_age.is_some() && status.queued_items > status.held_items;
    if status.executors == 0 && status.term.is_some() && has_ready {
        return Err("STOPPED: work is ready, and no executor is connected".to_owned());
    }
    let idle = || if status.queued_items == 0 { ", nothing waits" } else { ", nothing is ready" };
    let waits = oldest(&status.oldest_queued_age, "decision waits").unwrap_or_else(|| idle().to_owned());
    let held = oldest(&status.oldest_held_age, "is held").unwrap_or_default();
    Ok(format!("the loop makes progress{waits}{held}"))
}

fn named(object: &ObjectRef) -> String {
    let slash = if object.namespace.is_empty() { "" } else { "/" };
    format!("{} {}{slash}{}", object.kind, object.namespace, object.name)
}

/// A cause that blocks decisions.
fn of_obstacle(obstacle: &Obstacle) -> String {
    let why: String = obstacle.why.chars().take(WHY_MAX).collect();
    let colon = if why.is_empty() { "" } else { ": " };
    match &obstacle.object {
        Some(object) => {
            format!("{} of {}, tried {} times{colon}{why}", obstacle.what, named(object), obstacle.attempts)
        }
        None => format!("{} behind {}{colon}{why}", obstacle.items, obstacle.what),
    }
}

/// An executor that sent wrong reports.
fn of_untrue(liar: &UntrueReports) -> String {
    let of = liar.identity.clone().unwrap_or_default();
    let refused = liar.refused_for.as_ref().map(|left| format!(", refused for another {} s", left.seconds));
    let (name, refused) = (of.executor, refused.unwrap_or_default());
    format!("{} reports of executor {name} (process {}){refused}", liar.count, of.incarnation)
}

fn lines(
    status: &GetStatusResponse,
    guards: Option<&[Guard]>,
    collections: &[Collection],
    searched: Searched,
) -> String {
    let mut text = String::new();
    let mut line = |name: &str, what: String| {
        // Writing to a string does not fail.
        let _infallible = writeln!(text, "{name:<11} {}", visible::line(&what));
    };
    let meta = status.meta.clone().unwrap_or_default();
    let term = meta.term.map_or_else(String::new, |term| format!(", term {}", term.number));
    line("replica", format!("{} {}{term}, version {}", meta.replica, role(status), status.version));
    line("progress", of_progress(status).unwrap_or_else(|finding| finding));
    line("graph", format!("{}, {}", counted(status.node_count, "object"), counted(status.edge_count, "reference")));
    let (queued, held, retrying) = (status.queued_items, status.held_items, status.backing_off_items);
    line(
        "queue",
        format!("{queued} waiting, of these {held} held and {retrying} retrying; {} leased", status.leased_items),
    );
    if searched.observed.is_some_and(|count| count > 0) {
        line("mode", "observe: decisions are published, and not carried out".to_owned());
    }
    if let Some(numbers) = &searched.parity {
        line("parity", parity::summary(numbers));
    }
    if let Some(annotated) = searched.annotated.filter(|count| *count > 0) {
        line(
            "annotated",
            format!("{annotated} to be deleted, but held by the annotation {}", engine::object::HOLD_ANNOTATION),
        );
    }
    for (at, obstacle) in status.obstacles.iter().enumerate() {
        line(if at == 0 { "blocked" } else { "" }, of_obstacle(obstacle));
    }
    if status.more_obstacles > 0 {
        line("", format!("and {} more", status.more_obstacles));
    }
    line("executors", status.executors.to_string());
    for liar in &status.untrue_reports {
        line("UNTRUE", of_untrue(liar));
    }
    if !status.grants_stopped.is_empty() {
        line("stopped", status.grants_stopped.clone());
    }
    if !status.pauses_unknown.is_empty() {
        line("held", format!("all destructive actions: {}", status.pauses_unknown));
    }
    for reads in &status.inconsistent_reads {
        let of = reads.group_resource.clone().unwrap_or_default();
        line("INCONSISTENT", format!("reads of {}: {}", in_group(&of), reads.detail));
    }
    if status.unverified_owners > 0 {
        let owners = counted(status.unverified_owners, "owner");
        line("asking", format!("the API server for {owners} that no list has shown"));
    }
    for of in &status.kept_apart {
        line(
            "apart",
            format!(
                "the resourceVersions of {} do not match those of other collections: if it has a separate etcd, add it to --separate-stores",
                in_group(of)
            ),
        );
    }
    if let Some(log) = &status.decision_log {
        line("decisions", of_log(log));
    }
    line("collections", counts(collections));
    for collection in collections {
        if !matches!(collection.state(), State::Synced | State::Ignored) {
            let error = if collection.error.is_empty() { String::new() } else { format!(": {}", collection.error) };
            line("", format!("{} is {}{error}", name(collection), in_words(collection.state())));
        }
    }
    if let Some(guards) = guards {
        if guards.is_empty() {
            line("guards", "none".to_owned());
            return text;
        }
        text.push('\n');
        text.push_str(&guards::table(guards));
        for remark in guards::remarks(guards) {
            let _infallible = writeln!(text, "{}", visible::line(&remark));
        }
        return text;
    }
    if status.pauses.is_empty() {
        line("pauses", "none".to_owned());
        return text;
    }
    text.push('\n');
    text.push_str(&pausing::table(&status.pauses));
    for pause in &status.pauses {
        for (what, why) in [("not effective yet", &pause.pending), ("wrong", &pause.problem)] {
            if !why.is_empty() {
                let _infallible = writeln!(text, "{}", visible::line(&format!("{}: {what}: {why}", pause.name)));
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::decision::v1beta1::Position;
    use proto::r#type::v1beta1::{ResponseMeta, Term};
    use proto::work::v1beta1::ExecutorIdentity;

    #[test]
    fn a_collector_that_stopped_without_a_word_is_told_of() {
        let seconds = |seconds: i64| Some(prost_types::Duration { seconds, nanos: 0 });
        let mut status = GetStatusResponse::default();
        assert_eq!(of_progress(&status), Ok("not reported by this version of the graph service".to_owned()));
        status.loop_idle = seconds(4);
        assert_eq!(of_progress(&status), Ok("the loop makes progress, nothing waits".to_owned()));
        status.oldest_queued_age = seconds(90);
        status.oldest_held_age = seconds(90);
        assert_eq!(
            of_progress(&status),
            Ok("the loop makes progress, the oldest decision waits for 90 s, the oldest is held for 90 s".to_owned())
        );
        (status.term, status.queued_items) = (Some(Term::default()), 2);
        assert_eq!(of_progress(&status), Err("STOPPED: work is ready, and no executor is connected".to_owned()));
        status.executors = 1;
        (status.oldest_queued_age, status.oldest_held_age) = (None, None);
        assert_eq!(of_progress(&status), Ok("the loop makes progress, nothing is ready".to_owned()));
        status.stalled_for = seconds(31);
        assert_eq!(
            of_progress(&status),
            Err("STALLED: work is ready, but nothing was granted, reported or withdrawn for 31 s".to_owned())
        );
        status.loop_idle = seconds(31);
        assert_eq!(of_progress(&status), Err("STOPPED: the collector's loop has made no progress for 31 s".to_owned()));
    }

    /// The exit code 2 of a query means findings.
    #[test]
    fn a_broken_collector_is_a_finding_and_a_paused_starting_or_standby_one_is_not() {
        let role = |role: ReplicaRole| Some(ResponseMeta { role: role.into(), ..ResponseMeta::default() });
        let fine = || GetStatusResponse {
            loop_idle: Some(prost_types::Duration::default()),
            meta: role(ReplicaRole::Leader),
            ..Default::default()
        };
        let standby = GetStatusResponse {
            grants_stopped: "this replica does not lead".to_owned(),
            meta: role(ReplicaRole::Standby),
            ..fine()
        };
        assert!(!is_broken(&standby, &[]));
        let collection = |state: State| Collection { state: state.into(), ..Collection::default() };
        assert!(!is_broken(&fine(), &[collection(State::Synced), collection(State::Listing)]));
        assert!(!is_broken(&GetStatusResponse { queued_items: 3, held_items: 3, ..fine() }, &[]));
        assert!(is_broken(&fine(), &[collection(State::Failed)]));
        for broken in [
            GetStatusResponse { loop_idle: Some(prost_types::Duration { seconds: 31, nanos: 0 }), ..fine() },
            GetStatusResponse { grants_stopped: "the store went back".to_owned(), ..fine() },
            GetStatusResponse { pauses_unknown: "403".to_owned(), ..fine() },
            GetStatusResponse { untrue_reports: vec![UntrueReports::default()], ..fine() },
        ] {
            assert!(is_broken(&broken, &[]), "{broken:?}");
        }
    }

    #[test]
    fn an_executor_whose_reports_are_untrue_is_named() {
        let identity = ExecutorIdentity { executor: "e-0".to_owned(), incarnation: "1f".to_owned() };
        let refused_for = Some(prost_types::Duration { seconds: 540, nanos: 0 });
        let liar = UntrueReports { identity: Some(identity), count: 10, refused_for };
        let status = GetStatusResponse { untrue_reports: vec![liar], ..GetStatusResponse::default() };
        let line = "10 reports of executor e-0 (process 1f), refused for another 540 s";
        assert!(
            lines(&status, None, &[], Searched::default())
                .lines()
                .any(|found| found.starts_with("UNTRUE") && found.ends_with(line))
        );
    }

    #[test]
    fn what_decided_work_waits_for_is_named_with_the_last_answer() {
        let webhook = Obstacle {
            what: "webhook: guard".to_owned(),
            items: 322,
            why: "admission_denied: no deletions on Fridays".to_owned(),
            ..Obstacle::default()
        };
        let object = ObjectRef {
            kind: "ConfigMap".to_owned(),
            namespace: "a".to_owned(),
            name: "x".to_owned(),
            ..ObjectRef::default()
        };
        let slow = Obstacle {
            what: "delete".to_owned(),
            items: 1,
            why: "attempt 13 failed: transient: the owner answers too slowly".to_owned(),
            object: Some(object),
            attempts: 13,
            ..Obstacle::default()
        };
        let mut status = GetStatusResponse {
            loop_idle: Some(prost_types::Duration::default()),
            obstacles: vec![webhook, slow],
            more_obstacles: 2,
            ..GetStatusResponse::default()
        };
        let text = lines(&status, None, &[], Searched::default());
        for expected in [
            "progress    FAILING: delete of ConfigMap a/x was tried 13 times: attempt 13 failed: transient: the owner answers too slowly\n",
            "blocked     322 behind webhook: guard: admission_denied: no deletions on Fridays\n",
            "            and 2 more\n",
        ] {
            assert!(text.contains(expected), "{text}");
        }
        status.obstacles.pop();
        assert_eq!(of_progress(&status), Ok("the loop makes progress, nothing waits".to_owned()));
        let told = document(&status, None, &[], Searched::default()).unwrap().with_incomplete(&[]);
        assert_eq!((&told["kind"], &told["obstacles"][0]["items"]), (&"CollectorStatus".into(), &"322".into()));
    }

    #[test]
    fn guards_stand_below_the_status_with_what_they_hold() {
        let keep = Guard { name: "protections/keep".to_owned(), held_items: 7, ..Guard::default() };
        let status = GetStatusResponse::default();
        let text = lines(&status, Some(std::slice::from_ref(&keep)), &[], Searched::default());
        let text = anstream::adapter::strip_str(&text).to_string();
        assert!(text.contains("\n\nGUARD ") && text.contains("\nprotection/keep  pending  7 "), "{text}");
        assert!(!text.contains("pauses "), "{text}");
        assert!(lines(&status, Some(&[]), &[], Searched::default()).ends_with("\nguards      none\n"));
        assert!(lines(&status, None, &[], Searched::default()).ends_with("\npauses      none\n"));
        let told = document(&status, Some(&[keep]), &[], Searched::default()).unwrap().with_incomplete(&[]);
        assert_eq!(told["guards"][0]["heldItems"], "7");
    }

    #[test]
    fn a_log_that_is_away_is_told_with_why_and_with_what_waits() {
        let at = |sequence: u64| Some(Position { log_id: "log".to_owned(), sequence });
        let mut log =
            DecisionLogStatus { state: LogState::Writing.into(), oldest: at(3), newest: at(9), ..Default::default() };
        assert_eq!(of_log(&log), "on JetStream, positions 3 to 9");
        let empty = DecisionLogStatus { oldest: at(1), newest: at(0), ..log.clone() };
        assert_eq!(of_log(&empty), "on JetStream, no events yet");
        log = DecisionLogStatus {
            state: LogState::Away.into(),
            required: true,
            problem: "refused".to_owned(),
            waiting_events: 4,
            ..log
        };
        assert_eq!(
            of_log(&log),
            "on JetStream, which is unreachable; grants are suspended (refused), positions 3 to 9, 4 wait"
        );
    }
    use proto::r#type::v1beta1::GroupResource;

    #[test]
    fn a_collection_that_cannot_be_seen_is_named_with_its_error() {
        let collection = |group: &str, resource: &str, state: State, error: &str| Collection {
            group_resource: Some(GroupResource { group: group.to_owned(), resource: resource.to_owned() }),
            state: state.into(),
            error: error.to_owned(),
            ..Collection::default()
        };
        let collections = [
            collection("", "pods", State::Synced, ""),
            collection("", "bindings", State::Ignored, ""),
            collection("example.com", "widgets", State::Failed, "403"),
        ];
        let text = lines(
            &GetStatusResponse::default(),
            None,
            &collections,
            Searched { annotated: Some(2), observed: Some(1), parity: Some(GetParityResponse::default()) },
        );
        assert!(text.contains("mode        observe: ") && text.contains("annotated   2 to be deleted"), "{text}");
        assert!(text.contains("parity      nothing compared yet, since "), "{text}");
        let expected = "collections 1 synced, 1 failed\n            widgets.example.com is failed: 403\n";
        assert!(text.contains(expected), "{text}");
        let told = document(&GetStatusResponse::default(), None, &collections, Searched::default())
            .unwrap()
            .with_incomplete(&[]);
        assert_eq!(told["collections"][2]["state"], "STATE_FAILED");
    }
}
