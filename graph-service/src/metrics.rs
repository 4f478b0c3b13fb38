//! The counters and gauges of the graph service. Counters are raised where things happen, gauges are read off the leader on each scrape.

use crate::clock::Clock;
use crate::decisions::{Progress, Size, Standing};
use engine::coverage::State;
use engine::view::{CollectionStatus, PauseView, Status};
use engine::work::{ActionKind, Outcome};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use std::sync::atomic::Ordering;
use std::time::Duration;

type Labels<const N: usize> = [(&'static str, &'static str); N];

/// All metrics. Cloning shares them.
#[derive(Clone, Debug)]
pub(crate) struct Metrics {
    decisions: Family<Labels<1>, Counter>,
    attempts: Family<Labels<2>, Counter>,
    removed: Family<Labels<1>, Counter>,
    /// Deletions that did not happen because an owner was found alive.
    pub(crate) prevented: Counter,
    pub(crate) misplaced: Counter,
    pub(crate) rejected: Counter,
    /// Objects that were passed over because they lack what an identity needs.
    pub(crate) unusable: Counter,
    /// Attempts to learn the cluster's identity that failed.
    pub(crate) start_failures: Counter,
    pub(crate) election_failures: Counter,
    /// Executors' streams that were ended with an error: another cluster or protocol, no leader, no protocol at all.
    pub(crate) streams_refused: Counter,
    /// Messages on executors' streams that this build does not know.
    pub(crate) unknown_messages: Counter,
    ingested: Counter,
    round: Histogram,
    collections: Family<Labels<1>, Gauge>,
    nodes: Gauge,
    edges: Gauge,
    virtual_nodes: Gauge,
    queue_items: Family<Labels<1>, Gauge>,
    oldest_queued: Gauge<f64, std::sync::atomic::AtomicU64>,
    leases: Gauge,
    undecided: Family<Labels<1>, Gauge>,
    blocked: Family<Labels<1>, Gauge>,
    sessions: Gauge,
    leader: Gauge,
    term: Gauge,
    grants_stopped: Gauge,
    pauses: Family<Labels<1>, Gauge>,
    pauses_unknown: Gauge,
    pub(crate) log: LogMetrics,
}

/// What a scrape of the gauges shows.
#[derive(Debug)]
pub(crate) struct Snapshot<'a> {
    pub(crate) status: &'a Status,
    pub(crate) pauses: &'a [PauseView],
    pub(crate) collections: &'a [CollectionStatus],
    pub(crate) clock: Clock,
}

impl Metrics {
    /// Registers every metric under the prefix `ownergraph`.
    pub(crate) fn register(registry: &mut Registry) -> Metrics {
        let metrics = Metrics {
            decisions: Family::default(),
            attempts: Family::default(),
            removed: Family::default(),
            prevented: Counter::default(),
            misplaced: Counter::default(),
            rejected: Counter::default(),
            unusable: Counter::default(),
            start_failures: Counter::default(),
            election_failures: Counter::default(),
            streams_refused: Counter::default(),
            unknown_messages: Counter::default(),
            ingested: Counter::default(),
            // To 5 s. The budget for a thousand inputs, 20 ms, is one of the bounds.
            round: Histogram::new(exponential_buckets(0.000_156_25, 2.0, 16)),
            collections: Family::default(),
            nodes: Gauge::default(),
            edges: Gauge::default(),
            virtual_nodes: Gauge::default(),
            queue_items: Family::default(),
            oldest_queued: Gauge::default(),
            leases: Gauge::default(),
            undecided: Family::default(),
            blocked: Family::default(),
            sessions: Gauge::default(),
            leader: Gauge::default(),
            term: Gauge::default(),
            grants_stopped: Gauge::default(),
            pauses: Family::default(),
            pauses_unknown: Gauge::default(),
            log: LogMetrics::default(),
        };
        let m = metrics.clone();
        let group = registry.sub_registry_with_prefix("ownergraph");
        // The encoder appends `_total` to the names of counters.
        group.register("decisions", "Decisions made, by action", m.decisions);
        group.register("attempts", "Attempts that ended, by action and outcome", m.attempts);
        group.register("objects_removed", "Objects that left the graph, by whether we deleted them", m.removed);
        group.register("misplaced_references", "References to owners in another namespace", m.misplaced);
        group.register("prevented_deletions", "Deletions stopped because an owner was found alive", m.prevented);
        group.register("rejected_inputs", "Inputs that made no sense and were ignored", m.rejected);
        group.register("unusable_objects", "Objects passed over because they lack a uid or cannot be read", m.unusable);
        group.register("start_failures", "Failed attempts to learn the identity of the cluster", m.start_failures);
        group.register("election_failures", "Failed calls to the election Lease", m.election_failures);
        group.register("streams_refused", "Streams of executors that were ended with an error", m.streams_refused);
        group.register("unknown_messages", "Messages of executors that this version does not know", m.unknown_messages);
        group.register("events_ingested", "Facts from the API server that were handled", m.ingested);
        group.register("round_seconds", "Time the engine took for one round of inputs", m.round);
        group.register("collections", "Collections, by state", m.collections);
        group.register("graph_nodes", "Objects in the graph", m.nodes);
        group.register("graph_edges", "Owner references in the graph", m.edges);
        group.register("graph_virtual_nodes", "Objects that are only referred to", m.virtual_nodes);
        group.register("queue_items", "Decided work that waits for an executor, by state", m.queue_items);
        group.register("queue_oldest_seconds", "Age of the oldest decision that waits", m.oldest_queued);
        group.register("leases", "Work items granted and not yet reported", m.leases);
        group.register("undecided", "Dependents without a verdict, by cause", m.undecided);
        group.register(
            "blocked_items",
            "Items behind something that stands in the way of many, by what that is",
            m.blocked,
        );
        group.register("sessions", "Executors with a session", m.sessions);
        group.register("leader", "1 while this replica leads", m.leader);
        group.register("term", "Term under which this replica leads, 0 while it does not", m.term);
        group.register("grants_stopped", "1 while nothing is granted for a reason that readyz names", m.grants_stopped);
        group.register("pauses", "Pauses that hold, by whether a write that they hold may still be sent", m.pauses);
        group.register(
            "pauses_unknown",
            "1 while nothing that destroys is granted because pauses are not known",
            m.pauses_unknown,
        );
        m.log.register(group);
        metrics
    }

    pub(crate) fn decided(&self, action: ActionKind) {
        self.decisions.get_or_create(&[("action", action.as_str())]).inc();
    }

    pub(crate) fn attempted(&self, action: ActionKind, outcome: Outcome) {
        self.attempts.get_or_create(&[("action", action.as_str()), ("outcome", outcome.as_str())]).inc();
    }

    pub(crate) fn removed(&self, by_us: bool) {
        self.removed.get_or_create(&[("by_us", if by_us { "true" } else { "false" })]).inc();
    }

    pub(crate) fn round(&self, facts: usize, took: Duration) {
        self.ingested.inc_by(facts as u64);
        self.round.observe(took.as_secs_f64());
    }

    /// Sets the gauges.
    pub(crate) fn refresh(&self, snapshot: &Snapshot<'_>) {
        let Snapshot { status, pauses, collections, clock } = snapshot;
        for state in [State::Listing, State::Synced, State::Stale, State::Failed, State::Ignored] {
            let count = collections.iter().filter(|collection| collection.state == state).count();
            self.collections.get_or_create(&[("state", state.as_str())]).set(count_of(count));
        }
        self.nodes.set(count_of(status.nodes));
        self.edges.set(count_of(status.edges));
        self.virtual_nodes.set(count_of(status.virtual_nodes));
        let ready = status.queued.saturating_sub(status.backing_off + status.held);
        self.queue_items.get_or_create(&[("state", "held")]).set(count_of(status.held));
        self.queue_items.get_or_create(&[("state", "ready")]).set(count_of(ready));
        self.queue_items.get_or_create(&[("state", "backing_off")]).set(count_of(status.backing_off));
        self.blocked.clear();
        for (cause, items) in &status.blocked {
            self.blocked.get_or_create(&[("cause", cause)]).set(count_of(*items));
        }
        self.oldest_queued.set(status.oldest_queued.map_or(0.0, |since| clock.age(since).as_secs_f64()));
        self.leases.set(count_of(status.leased));
        self.undecided.clear();
        for (cause, count) in &status.undecided {
            self.undecided.get_or_create(&[("cause", cause.as_str())]).set(count_of(*count));
        }
        self.sessions.set(count_of(status.sessions));
        self.leader.set(i64::from(status.term.is_some()));
        let term = status.term.as_ref().map_or(0, |term| term.number);
        self.term.set(i64::try_from(term).unwrap_or(i64::MAX));
        self.grants_stopped.set(i64::from(status.stopped.is_some()));
        for (state, effective) in [("pending", false), ("effective", true)] {
            let count = pauses.iter().filter(|view| !view.over && view.effective == effective).count();
            self.pauses.get_or_create(&[("state", state)]).set(count_of(count));
        }
        self.pauses_unknown.set(i64::from(status.pauses_unknown.is_some()));
    }
}

/// Of the log of decisions and its followers.
#[derive(Clone, Debug, Default)]
pub(crate) struct LogMetrics {
    kept: Gauge,
    kept_bytes: Gauge,
    unread: Gauge,
    waiting: Gauge,
    away: Gauge,
    written: Counter,
    lost: Counter,
    pub(crate) followers: Gauge,
    pub(crate) slow_followers: Counter,
}

impl LogMetrics {
    fn register(self, group: &mut Registry) {
        group.register("decision_log_events", "Events of the log of decisions that are kept in memory", self.kept);
        group.register("decision_log_bytes", "Bytes of these", self.kept_bytes);
        group.register("decision_log_unread", "Events on JetStream that this replica has not read yet", self.unread);
        group.register("decision_log_waiting", "Events that wait to be written to JetStream", self.waiting);
        group.register("decision_log_away", "1 while the log on JetStream cannot be written to", self.away);
        group.register("decision_log_written", "Events that this replica has written to JetStream", self.written);
        group.register("decision_log_lost", "Events that could not be written to JetStream", self.lost);
        group.register("decision_followers", "Streams that follow the log of decisions", self.followers);
        group.register("decision_followers_slow", "Followers that were sent away: too slow", self.slow_followers);
    }

    /// Sets what is measured only when somebody asks.
    pub(crate) fn refresh(&self, size: Size, progress: Option<&Progress>) {
        self.kept.set(count_of(size.events));
        self.kept_bytes.set(count_of(size.bytes));
        self.unread.set(i64::try_from(size.behind).unwrap_or(i64::MAX));
        let Some(progress) = progress else { return };
        self.waiting.set(count_of(progress.waiting));
        self.away.set(i64::from(matches!(progress.standing, Standing::Away { .. })));
        self.written.inner().store(progress.written, Ordering::Relaxed);
        self.lost.inner().store(progress.lost, Ordering::Relaxed);
    }
}

fn count_of(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
