//! The answers of the admin HTTP server: liveness, readiness with its reasons, metrics, the graph.

use crate::decisions::{DecisionLog, Progress, Standing};
use crate::dot;
use crate::driver::{Heartbeat, Reader};
use crate::ingest;
use crate::messages::Leadership;
use crate::metrics::{Metrics, Snapshot};
use engine::coverage::State;
use engine::leader::Queries;
use engine::object::{Uid, in_group};
use engine::time::Time;
use engine::view::{
    BlockerView, CollectionStatus, ExecutorView, GuardView, Status, UnresolvedKind, Unseen, Waiting, Waits,
};
use prometheus_client::registry::Registry;
use runtime::admin::{Probe, Readiness};
use runtime::clock::Clock;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;
use tokio::sync::watch;

pub(crate) mod progress;
#[cfg(test)]
mod tests;

/// Maximum time without a finished round. After it the driver counts as stopped.
const PROGRESS_WITHIN: Duration = Duration::from_secs(30);
/// Maximum time for which readiness waits for the first list of a collection.
const LISTING_GRACE: Duration = Duration::from_secs(30);
/// Maximum number of nodes in one drawing.
const GRAPH_NODES_MAX: usize = 20_000;
/// Maximum number of unresolved kinds to list.
const UNRESOLVED_MAX: usize = 50;
/// Maximum number of undiscovered groups and resources to list.
const HIDDEN_MAX: usize = 50;
/// Maximum number of blockers to list.
const BLOCKERS_MAX: usize = 50;

/// The health of the service. The admin server gets it before anything else runs.
pub(crate) struct Health {
    clock: Clock,
    heartbeat: Heartbeat,
    registry: Registry,
    metrics: Metrics,
    /// Why the start is not complete.
    starting: Mutex<String>,
    running: OnceLock<Running>,
}

/// State that exists once the cluster is known.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) cluster_uid: String,
    pub(crate) reader: Reader,
    pub(crate) leadership: watch::Receiver<Leadership>,
    pub(crate) ingest: ingest::Handle,
    pub(crate) decisions: DecisionLog,
}

/// One snapshot of the data of an answer.
struct Look {
    status: Status,
    pauses: Vec<GuardView>,
    collections: Vec<CollectionStatus>,
    unresolved: Vec<UnresolvedKind>,
    executors: Vec<ExecutorView>,
    /// The blockers, and the number of further ones.
    blockers: (Vec<BlockerView>, usize),
}

impl Look {
    fn at(queries: &Queries<'_>) -> Look {
        Look {
            status: queries.status(),
            pauses: queries.guards(),
            collections: queries.collections(),
            unresolved: queries.unresolved_kinds(UNRESOLVED_MAX),
            executors: queries.executors(),
            blockers: queries.blockers(BLOCKERS_MAX),
        }
    }
}

impl Health {
    pub(crate) fn new(clock: Clock, heartbeat: Heartbeat, registry: Registry, metrics: Metrics) -> Arc<Health> {
        let starting = Mutex::new("the service has not contacted the API server yet".to_owned());
        Arc::new(Health { clock, heartbeat, registry, metrics, starting, running: OnceLock::new() })
    }

    /// Sets why the start is not complete.
    pub(crate) fn starting(&self, why: &str) {
        why.clone_into(&mut self.starting.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Records that the cluster is known and all tasks run.
    pub(crate) fn running(&self, running: Running) {
        assert!(self.running.set(running).is_ok(), "a service starts once");
    }

    /// The progress of the start, as one sentence.
    pub(crate) fn progress(&self) -> String {
        let Some(running) = self.running.get() else {
            return self.starting.lock().unwrap_or_else(PoisonError::into_inner).clone();
        };
        progress::sentence(&running.ingest.status(), &running.reader.with(|queries| queries.collections()))
    }

    /// The time since the last round of the collector.
    pub(crate) fn loop_idle(&self) -> Duration {
        self.heartbeat.age(self.clock)
    }

    /// See [`Metrics::stalled`].
    pub(crate) fn stalled(&self, waits: &[Waits], leads: bool) -> Duration {
        self.metrics.stalled(leads, oldest_open(waits), self.clock)
    }

    /// Whether discovery has succeeded and no collection keeps readiness waiting.
    pub(crate) fn is_ready(&self) -> bool {
        let Some(running) = self.running.get() else { return false };
        let collections = running.reader.with(|queries| queries.collections());
        running.ingest.status().discovered && are_settled(&collections, self.clock)
    }
}

impl Probe for Health {
    fn livez(&self) -> Result<(), String> {
        let age = self.loop_idle();
        if age <= PROGRESS_WITHIN {
            return Ok(());
        }
        Err(format!("the collector has not finished a round for {} s", age.as_secs()))
    }

    fn readyz(&self) -> Readiness {
        let Some(running) = self.running.get() else {
            let why = self.starting.lock().unwrap_or_else(PoisonError::into_inner).clone();
            return Readiness { ready: false, lines: vec![format!("start: {why}")] };
        };
        let look = running.reader.with(Look::at);
        let discovery = running.ingest.status();
        let mut lines = vec![format!("cluster: {}", running.cluster_uid)];
        lines.push(leadership_line(&running.leadership.borrow()));
        lines.extend(running.leadership.borrow().problem.iter().map(|problem| format!("election: {problem}")));
        if !discovery.discovered {
            lines.push("discovery: not yet".to_owned());
        }
        lines.extend(discovery.problems.iter().map(|problem| format!("discovery: {problem}")));
        lines.extend(log_lines(&running.decisions));
        lines.extend(
            look.status.inconsistent.iter().map(|(collection, why)| format!("inconsistent reads: {collection}: {why}")),
        );
        let questions = &look.status.questions;
        if questions.waiting + questions.under_way > 0 {
            lines.push(format!("owner checks: {} in progress, {} wait", questions.under_way, questions.waiting));
        }
        lines.extend(look.status.stopped.iter().map(|why| format!("grants: stopped, {why}")));
        lines.extend(look.status.guards_unknown.iter().map(|why| format!("guards: deletions are suspended, {why}")));
        lines.extend(look.pauses.iter().map(|view| guard_line(view, self.clock)));
        lines.extend(
            look.status.undecided.iter().map(|(cause, count)| format!("undecided: {} {count}", cause.as_str())),
        );
        lines.extend(look.status.hidden.iter().take(HIDDEN_MAX).map(hidden_line));
        let excessive = look.status.excessive.iter();
        lines.extend(excessive.map(|object| format!("too many owner references: {object} ({}) is kept", object.uid)));
        lines.extend(look.unresolved.iter().map(unresolved_line));
        let (blockers, more) = &look.blockers;
        lines.extend(blockers.iter().map(|blocker| blocker_line(blocker, self.clock)));
        if *more > 0 {
            lines.push(format!("blocked: and {more} more"));
        }
        lines.extend(look.executors.iter().map(executor_line));
        lines.extend(look.collections.iter().map(collection_line));
        Readiness { ready: discovery.discovered && are_settled(&look.collections, self.clock), lines }
    }

    fn metrics(&self) -> String {
        if let Some(running) = self.running.get() {
            let clock = self.clock;
            // The data is read in pieces, so that the collector never waits for all of it.
            let status = running.reader.with(|queries| queries.status());
            let waits = running.reader.with(|queries| queries.queue_waits(clock.now()));
            let guards = running.reader.with(|queries| queries.guards());
            let collections = running.reader.with(|queries| queries.collections());
            let parity = running.reader.with(|queries| queries.parity(None));
            let stalled = self.stalled(&waits, status.term.is_some());
            self.metrics.refresh(&Snapshot {
                status: &status,
                waits: &waits,
                guards: &guards,
                collections: &collections,
                parity: parity.as_ref(),
                stalled,
                clock,
            });
            let progress = running.decisions.queue().map(|queue| queue.progress().borrow().clone());
            self.metrics.log.refresh(running.decisions.size(), progress.as_ref());
        }
        self.metrics.loop_idle(self.heartbeat.age(self.clock));
        runtime::admin::encode(&self.registry)
    }

    fn debug_graph(&self, uids: Vec<String>) -> Option<Result<String, String>> {
        let Some(running) = self.running.get() else {
            return Some(Err("the service has not started yet; /readyz shows the reason".to_owned()));
        };
        let wanted: Vec<Uid> = uids.iter().filter_map(|uid| Uid::parse(uid)).collect();
        if wanted.is_empty() && !uids.is_empty() {
            return Some(Ok(dot::graph(&[], None)));
        }
        // The nodes are copied under the lock, and written without it.
        let (nodes, more) = running.reader.with(|queries| queries.component(&wanted, GRAPH_NODES_MAX));
        Some(Ok(dot::graph(&nodes, more.then_some(GRAPH_NODES_MAX))))
    }
}

impl std::fmt::Debug for Health {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Health").field("running", &self.running).finish_non_exhaustive()
    }
}

/// The time of the oldest decision that an executor could carry out now. A lease alone is no progress: an executor may
/// return each lease without a start.
fn oldest_open(waits: &[Waits]) -> Option<Time> {
    let open = waits.iter().filter(|waits| matches!(waits.at, Waiting::Ready | Waiting::Leased));
    open.filter_map(|waits| waits.oldest).min()
}

/// A successful discovery says what was sent to the engine, and not what the engine has handled. The engine handles all
/// kinds before the first list. So after the first list that finishes or fails, no collection is missing.
fn are_settled(collections: &[CollectionStatus], clock: Clock) -> bool {
    let mut states = collections.iter().map(|collection| collection.state);
    states.any(|state| state != State::Ignored) && collections.iter().all(|collection| is_settled(collection, clock))
}

/// Whether the collection is synced, has failed once, or has been listing for too long.
fn is_settled(collection: &CollectionStatus, clock: Clock) -> bool {
    match collection.state {
        State::Synced | State::Stale | State::Failed | State::Ignored => true,
        State::Listing => !collection.error.is_empty() || clock.age(collection.since) >= LISTING_GRACE,
    }
}

fn leadership_line(leadership: &Leadership) -> String {
    let number = leadership.term.as_ref().map_or(0, |term| term.number);
    match &leadership.holder {
        _ if leadership.leading => format!("leadership: this replica leads, term {number}"),
        Some(holder) if leadership.endpoint.is_empty() => format!("leadership: {holder} leads, term {number}"),
        Some(holder) => format!("leadership: {holder} leads at {}, term {number}", leadership.endpoint),
        None => "leadership: no known leader".to_owned(),
    }
}

fn log_lines(log: &DecisionLog) -> Vec<String> {
    let Some(queue) = log.queue() else { return Vec::new() };
    let Progress { standing, waiting, lost, .. } = queue.progress().borrow().clone();
    let standing = match standing {
        Standing::Connecting => "not reached yet".to_owned(),
        Standing::Writing => "written to".to_owned(),
        Standing::CatchingUp => "catching up".to_owned(),
        Standing::Away { since, why } => {
            let what = if queue.is_required() { "and required" } else { "grants continue" };
            format!("unreachable for {} s ({why}), {what}", since.elapsed().as_secs())
        }
    };
    let mut lines = vec![format!("decision log: {standing}, {waiting} events wait, {lost} are lost")];
    lines.extend(log.problem().map(|why| format!("decision log: cannot be read, {why}")));
    lines
}

fn guard_line(guard: &GuardView, clock: Clock) -> String {
    let left = guard.until.map(|until| format!(", {} s left", until.since(clock.now()).as_secs())).unwrap_or_default();
    let mut line = format!("{}: {} ", guard.id.kind.as_str(), guard.id.name);
    match (guard.over, guard.effective) {
        (true, _) => line.push_str("has ended"),
        (false, true) => line.push_str(&format!("effective, {} held{left}", guard.held)),
        (false, false) => line.push_str(&format!("pending ({}), {} held{left}", guard.pending, guard.held)),
    }
    if !guard.problem.is_empty() {
        line.push_str(&format!("; wrong: {}", guard.problem));
    }
    line.push_str(&format!(": {}", guard.reason));
    line
}

fn unresolved_line(kind: &UnresolvedKind) -> String {
    let how = match kind.resources.len() {
        0 => "not served".to_owned(),
        _ => {
            let resources: Vec<String> = kind.resources.iter().map(ToString::to_string).collect();
            format!("served as {}; a reference does not say which resource it means", resources.join(" and as "))
        }
    };
    let name = in_group(&kind.kind, &kind.group);
    format!("unresolved: {name} is {how}, {} dependents wait for it", kind.dependents)
}

fn hidden_line(hidden: &Unseen) -> String {
    format!("undiscovered: {} ({}), owners in deletion wait for it", hidden.what, hidden.why)
}

fn blocker_line(blocker: &BlockerView, clock: Clock) -> String {
    let items = if blocker.items == 1 { "item waits" } else { "items wait" };
    let next = match blocker.next_probe {
        _ if blocker.probing => "tried now".to_owned(),
        Some(at) => format!("retried in {} s", at.since(clock.now()).as_secs_f64().ceil()),
        None if blocker.what.starts_with("undiscovered") => "released when discovery shows it".to_owned(),
        None if blocker.what.starts_with("ambiguous") => "released when one resource of the kind is left".to_owned(),
        None if blocker.what.starts_with("in_doubt") => {
            "released when the position of the collection is known".to_owned()
        }
        None => "released gradually".to_owned(),
    };
    let said = if blocker.said.is_empty() { String::new() } else { format!("; last answer: {}", blocker.said) };
    let since = clock.age(blocker.since).as_secs();
    format!("blocked: {}, {} {items} for {since} s, {next}{said}", blocker.what, blocker.items)
}

fn executor_line(executor: &ExecutorView) -> String {
    let connection = if executor.connected { "connected" } else { "not connected" };
    let draining = if executor.draining { ", draining" } else { "" };
    let overdue = if executor.overdue > 0 { format!(", {} overdue", executor.overdue) } else { String::new() };
    let stranger =
        if executor.unauthenticated { ", accepts no work: the API server refuses its credentials" } else { "" };
    let untrue = if executor.untrue_reports > 0 {
        format!(", sent {} wrong reports", executor.untrue_reports)
    } else {
        String::new()
    };
    format!(
        "executor: {} {connection}{draining}{stranger}, window {}, {} started, {} buffered{overdue}{untrue}",
        executor.executor, executor.window, executor.started, executor.buffered
    )
}

fn collection_line(collection: &CollectionStatus) -> String {
    let mut line = format!(
        "collection: {} {}, {} objects",
        collection.kind.group_resource,
        collection.state.as_str(),
        collection.objects
    );
    if let Some(position) = &collection.position {
        line.push_str(&format!(" at {position}"));
    }
    if collection.kept_apart {
        line.push_str(", not in the main store, but missing in --separate-stores");
    }
    if !collection.error.is_empty() {
        line.push_str(&format!(": {}", collection.error));
    }
    line
}
