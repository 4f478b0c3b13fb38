//! What the graph service counts. Counters are raised where things happen; what can be looked up is looked up when somebody asks.

use crate::clock::Clock;
use engine::evidence::Proof;
use engine::leader::Cause;
use engine::time::Time;
use engine::work::{ActionKind, Outcome};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use runtime::metrics::{Book, Description, Label};
use runtime::traces::{Counts, Recording};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

pub(crate) mod access;
mod gauges;
mod log;
mod requests;

pub(crate) use gauges::Snapshot;
pub(crate) use requests::counted;

use access::AccessMetrics;
use gauges::Gauges;
use log::LogMetrics;
use requests::Requests;

/// Fields of a report that can be untrue.
const UNTRUE_FIELDS: [&str; 9] =
    ["api_calls", "attempt", "execution_time", "findings", "http_status", "item_id", "lease_id", "observed", "outcome"];
type Labels<const N: usize> = [(&'static str, &'static str); N];

/// Why decisions are made: the first of these among the causes of one. See [`reason`].
const REASONS: [&str; 7] =
    ["cycle", "no_dependents", "no_blocking_dependents", "owner_orphans", "owner_waiting", "owner_absent", "kept"];

/// What becomes of a question whether an owner is there.
const ANSWERS: [&str; 3] = ["exists", "absent", "failed"];

/// All metrics. Cloning shares them.
#[derive(Clone, Debug)]
pub(crate) struct Metrics {
    decisions: Family<Labels<2>, Counter>,
    withdrawals: Family<Labels<1>, Counter>,
    grants: Family<Labels<1>, Counter>,
    attempts: Family<Labels<3>, Counter>,
    removed: Family<Labels<1>, Counter>,
    proofs: Family<Labels<1>, Counter>,
    owner_to_dependent: Histogram,
    /// Deletions that did not happen because an owner was found alive.
    pub(crate) prevented: Counter,
    /// Reports that were not true, by field.
    pub(crate) untrue: Family<Labels<1>, Counter>,
    /// Writes that had been carried out a moment before and have to be done again.
    pub(crate) undone: Counter,
    pub(crate) misplaced: Counter,
    pub(crate) readopted: Counter,
    pub(crate) reported_late: Counter,
    /// Owners that orphaned, and were forgotten early for want of room.
    pub(crate) orphaning_forgotten: Counter,
    pub(crate) rejected: Counter,
    /// Objects that were passed over because they lack what an identity needs.
    pub(crate) unusable: Counter,
    pub(crate) rewinds: Counter,
    /// Answers that cannot all be true.
    pub(crate) inconsistent: Counter,
    asked: Family<Labels<1>, Counter>,
    /// Attempts to learn the cluster's identity that failed.
    pub(crate) start_failures: Counter,
    pub(crate) election_failures: Counter,
    /// Executors' streams that were ended with an error: another cluster or protocol, no leader, no protocol at all.
    pub(crate) streams_refused: Counter,
    /// Messages on executors' streams that this build does not know.
    pub(crate) unknown_messages: Counter,
    ingested: Counter,
    round: Histogram,
    /// When something last went on with what is decided, in milliseconds of the clock.
    moved: Arc<AtomicU64>,
    gauges: Gauges,
    pub(crate) requests: Requests,
    pub(crate) log: LogMetrics,
    pub(crate) access: AccessMetrics,
    pub(crate) traces: Counts,
}

/// Every metric of the graph service, as its `/metrics` shows them; those of every process not among them.
pub fn described() -> Vec<Description> {
    let mut registry = prometheus_client::registry::Registry::default();
    let mut book = Book::new(&mut registry);
    let _unused = Metrics::register(&mut book);
    book.into_descriptions()
}

impl Metrics {
    /// Registers every metric.
    pub(crate) fn register(book: &mut Book<'_>) -> Metrics {
        let metrics = Metrics {
            decisions: book.put(
                "ownergraph_decisions",
                [actions(), reasons()],
                ("Decisions made or replaced, by action and reason", "The rate is what the cluster asks of the collector. A replica that does not lead decides as well, and grants nothing."),
                Family::default(),
            ),
            withdrawals: book.put(
                "ownergraph_withdrawals",
                [actions()],
                ("Decisions that ceased to hold before they were carried out", "Normal where owners come back or another client deletes first."),
                zeroed(ActionKind::ALL.map(|action| [("action", action.as_str())])),
            ),
            grants: book.put(
                "ownergraph_grants",
                [actions()],
                ("Leases given to executors, by action", "Against `ownergraph_attempts_total` it shows what is tried more than once."),
                zeroed(ActionKind::ALL.map(|action| [("action", action.as_str())])),
            ),
            attempts: book.put(
                "ownergraph_attempts",
                [actions(), reasons(), Label::of("outcome", Outcome::ALL.map(Outcome::as_str))],
                ("Attempts that executors reported, by action, reason of the decision and outcome", "`done`, `gone` and `unchanged` are what is wanted; `conflict`, `replaced` and `owner_exists` are preconditions at work; `forbidden`, `admission_*`, `throttled` and `unauthenticated` need an administrator."),
                Family::default(),
            ),
            removed: book.put(
                "ownergraph_objects_removed",
                [Label::of("by_us", ["true", "false"])],
                ("Objects that left the graph, by whether a deletion of ours had been accepted", "`by_us=\"true\"` is the number of collected objects."),
                zeroed(["true", "false"].map(|by_us| [("by_us", by_us)])),
            ),
            proofs: book.put(
                "ownergraph_owners_proven_absent",
                [Label::of("proof", Proof::WORDS)],
                ("Owners proven absent, by proof", "`watch_deleted` is the common one; `listed` means that references named owners nobody had seen."),
                zeroed(Proof::WORDS.map(|proof| [("proof", proof)])),
            ),
            owner_to_dependent: book.put(
                "ownergraph_owner_gone_to_dependent_gone_seconds",
                [],
                ("From the moment the graph knew that the last owner was gone to the moment it saw the dependent gone", "The latency of collecting, as a user of the cluster sees it. What is held or blocked counts when it goes."),
                Histogram::new(exponential_buckets(0.002, 2.0, 20)),
            ),
            prevented: book.put(
                "ownergraph_prevented_deletions",
                [],
                ("Deletions that were stopped because an owner was found alive", "Each would have been a wrong deletion of a less careful collector. More than a few point at an API server whose watches cannot be trusted."),
                Counter::default(),
            ),
            untrue: book.put(
                "ownergraph_untrue_reports",
                [Label::of("field", UNTRUE_FIELDS)],
                ("Reports of executors that cannot be true, or that the API server contradicts, by the field that is untrue", "The collector does nothing because of them. Above zero: the API server of an executor lags, or another process uses the identity of an executor. GetStatus names the process. After ten untrue reports the leader refuses it for ten minutes."),
                zeroed(UNTRUE_FIELDS.map(|field| [("field", field)])),
            ),
            undone: book.put(
                "ownergraph_undone_writes",
                [],
                ("Writes that were accepted, and have to be done again within a minute", "Somebody puts back what is removed, or an aggregated API server accepts deletions and does not do them. The log names the objects."),
                Counter::default(),
            ),
            misplaced: book.put(
                "ownergraph_misplaced_references",
                [],
                ("References to owners in another namespace", "Somebody writes references that Kubernetes does not allow; events on the dependents name them."),
                Counter::default(),
            ),
            readopted: book.put(
                "ownergraph_readopted_references",
                [],
                ("References that came back to objects whose owner had orphaned them", "They are taken away again. A controller with an old view writes them; Events on the dependents name the owner and the field manager."),
                Counter::default(),
            ),
            reported_late: book.put(
                "ownergraph_late_reports",
                [],
                ("Reports of attempts that an earlier leader gave out", "Some after each change of leader. Others come from an executor that reports what it was not given."),
                Counter::default(),
            ),
            orphaning_forgotten: book.put(
                "ownergraph_orphaning_forgotten",
                [],
                ("Owners that orphaned their dependents and were forgotten before their hour was over, to make room for others", "References that come back to them are dangling ones: their dependents are collected."),
                Counter::default(),
            ),
            rejected: book.put(
                "ownergraph_rejected_inputs",
                [],
                ("Inputs that made no sense and were ignored", "A fault in an executor or here; the lines are in the log at level debug."),
                Counter::default(),
            ),
            unusable: book.put(
                "ownergraph_unusable_objects",
                [],
                ("Objects that were passed over because they lack a uid or cannot be read", "They are never collected. Look for an aggregated API that serves objects without uids."),
                Counter::default(),
            ),
            rewinds: book.put(
                "ownergraph_rewinds",
                [],
                ("How often the store of the API server was seen to go back", "After a restore from a backup one is expected. Without a restore, look at etcd."),
                Counter::default(),
            ),
            inconsistent: book.put(
                "ownergraph_inconsistent_reads",
                [],
                ("Answers of the API server that contradict what it answered before", "Nothing is granted until answers agree. Look for an API server or an etcd member that lags, or that serves another store; `/readyz?verbose` names the collection and both versions."),
                Counter::default(),
            ),
            asked: book.put(
                "ownergraph_questions",
                [Label::of("answer", ANSWERS)],
                ("Questions whether an owner is there that nobody has shown, by answer", "`failed` grows while a collection cannot be asked; its dependents stay. `/readyz?verbose` has the reason."),
                zeroed(ANSWERS.map(|answer| [("answer", answer)])),
            ),
            start_failures: book.put(
                "ownergraph_start_failures",
                [],
                ("Failed attempts to learn the identity of the cluster", "Grows while the API server cannot be reached at the start; `/readyz` has the reason."),
                Counter::default(),
            ),
            election_failures: book.put(
                "ownergraph_election_failures",
                [],
                ("Failed calls to the election Lease", "A growing number ends in the loss of the term; `/readyz?verbose` has the reason."),
                Counter::default(),
            ),
            streams_refused: book.put(
                "ownergraph_streams_refused",
                [],
                ("Streams of executors that were ended with an error", "Executors that look for the leader are refused by the others. A steady rate on the leader means another cluster, another protocol, or a stranger."),
                Counter::default(),
            ),
            unknown_messages: book.put(
                "ownergraph_unknown_messages",
                [],
                ("Messages of executors that this version does not know", "Executors are newer than the graph service."),
                Counter::default(),
            ),
            ingested: book.put(
                "ownergraph_events_ingested",
                [],
                ("Facts from the API server that were handled", "The rate follows the writes in the cluster."),
                Counter::default(),
            ),
            // To 5 s. The budget for a thousand inputs, 20 ms, is one of the bounds.
            round: book.put(
                "ownergraph_round_duration_seconds",
                [],
                ("Time the collector took for one round of inputs", "There is a round at least every five seconds: a count that stands still is a collector that does. Slow rounds keep executors and readers waiting."),
                Histogram::new(exponential_buckets(0.000_156_25, 2.0, 16)),
            ),
            moved: Arc::default(),
            gauges: Gauges::register(book),
            requests: Requests::register(book),
            log: LogMetrics::register(book),
            access: AccessMetrics::register(book),
            traces: Counts::register(book, Recording::GraphService),
        };
        let build: Family<Labels<1>, Gauge> = Family::default();
        build.get_or_create(&[("version", env!("CARGO_PKG_VERSION"))]).set(1);
        let version = Label::bounded("version", "one for each build that runs");
        book.put(
            "ownergraph_build_info",
            [version],
            ("1, with the version of this build", "Shows how far an upgrade has come."),
            build,
        );
        metrics
    }

    pub(crate) fn decided(&self, action: ActionKind, causes: &[Cause]) {
        self.decisions.get_or_create(&[("action", action.as_str()), ("reason", reason(causes))]).inc();
    }

    pub(crate) fn withdrawn(&self, action: ActionKind) {
        self.withdrawals.get_or_create(&[("action", action.as_str())]).inc();
    }

    pub(crate) fn granted(&self, action: ActionKind) {
        self.grants.get_or_create(&[("action", action.as_str())]).inc();
    }

    pub(crate) fn attempted(&self, action: ActionKind, causes: &[Cause], outcome: Outcome) {
        let labels = [("action", action.as_str()), ("reason", reason(causes)), ("outcome", outcome.as_str())];
        self.attempts.get_or_create(&labels).inc();
    }

    pub(crate) fn removed(&self, by_us: bool, owner_gone: Option<Duration>) {
        self.removed.get_or_create(&[("by_us", if by_us { "true" } else { "false" })]).inc();
        if let Some(since) = owner_gone {
            self.owner_to_dependent.observe(since.as_secs_f64());
        }
    }

    pub(crate) fn proven(&self, proof: &Proof) {
        self.proofs.get_or_create(&[("proof", proof.as_str())]).inc();
    }

    pub(crate) fn asked(&self, answer: &'static str) {
        self.asked.get_or_create(&[("answer", answer)]).inc();
    }

    pub(crate) fn round(&self, facts: usize, took: Duration) {
        self.ingested.inc_by(facts as u64);
        self.round.observe(took.as_secs_f64());
    }

    /// Something went on with what is decided.
    pub(crate) fn moved(&self, now: Time) {
        let millis = u64::try_from(now.since_origin().as_millis()).unwrap_or(u64::MAX);
        self.moved.store(millis, Ordering::Relaxed);
    }

    /// How long work has been ready that nobody took, nor any other work: zero where there is none, or where this replica does not lead.
    pub(crate) fn stalled(&self, leads: bool, oldest_ready: Option<Time>, clock: Clock) -> Duration {
        let Some(since) = oldest_ready.filter(|_| leads) else { return Duration::ZERO };
        let moved = Time::from_origin(Duration::from_millis(self.moved.load(Ordering::Relaxed)));
        clock.age(since.max(moved))
    }

    /// How long ago the loop turned, told even before anything else is known.
    pub(crate) fn loop_idle(&self, since: Duration) {
        self.gauges.loop_idle.set(since.as_secs_f64());
    }

    /// Sets what is measured only when somebody asks.
    pub(crate) fn refresh(&self, snapshot: &Snapshot<'_>) {
        self.gauges.set(snapshot);
    }
}

fn actions() -> Label {
    Label::of("action", ActionKind::ALL.map(ActionKind::as_str))
}

fn reasons() -> Label {
    Label::of("reason", REASONS)
}

/// Counters that show from the start, so that a rate sees their first step.
pub(crate) fn zeroed<const N: usize>(labels: impl IntoIterator<Item = Labels<N>>) -> Family<Labels<N>, Counter> {
    let family: Family<Labels<N>, Counter> = Family::default();
    for labels in labels {
        drop(family.get_or_create(&labels));
    }
    family
}

/// The cause that says most about a decision.
fn reason(causes: &[Cause]) -> &'static str {
    let rank = |cause: &Cause| match cause {
        Cause::Cycle => 0,
        Cause::NoDependents => 1,
        Cause::NoBlockingDependents => 2,
        Cause::OwnerOrphans { .. } => 3,
        Cause::OwnerWaiting { .. } => 4,
        Cause::OwnerAbsent { .. } => 5,
        Cause::KeptBy { .. } => 6,
    };
    // Every decision has a cause.
    REASONS[causes.iter().map(rank).min().unwrap_or(REASONS.len() - 1)]
}

fn count_of(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
