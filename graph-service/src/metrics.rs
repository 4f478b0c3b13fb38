//! The metrics of the graph service. Events raise counters; gauges are read at each scrape.

use engine::evidence::Proof;
use engine::leader::Cause;
use engine::time::Time;
use engine::work::{ActionKind, Outcome};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use runtime::clock::Clock;
use runtime::metrics::{Book, Description, Label};
use runtime::traces::{Counts, Recording};
use runtime::version::{COMMIT, VERSION};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

pub(crate) mod access;
pub(crate) mod audit;
pub(crate) mod gates;
mod gauges;
mod log;
mod parity;
pub(crate) mod recording;
mod requests;

pub(crate) use gauges::Snapshot;
pub(crate) use requests::counted;

use access::AccessMetrics;
use audit::AuditMetrics;
use gates::GateMetrics;
use gauges::Gauges;
use log::LogMetrics;
use recording::RecordingMetrics;
use requests::Requests;

/// Fields of a report that can be wrong.
const UNTRUE_FIELDS: [&str; 9] =
    ["api_calls", "attempt", "execution_time", "findings", "http_status", "item_id", "lease_id", "observed", "outcome"];
type Labels<const N: usize> = [(&'static str, &'static str); N];

/// Answers to questions whether an owner exists.
const ANSWERS: [&str; 3] = ["exists", "absent", "failed"];

/// All metrics. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Metrics {
    decisions: Family<Labels<2>, Counter>,
    withdrawals: Family<Labels<1>, Counter>,
    grants: Family<Labels<1>, Counter>,
    attempts: Family<Labels<3>, Counter>,
    removed: Family<Labels<1>, Counter>,
    proofs: Family<Labels<1>, Counter>,
    owner_to_dependent: Histogram,
    /// Deletions prevented because an owner was found alive.
    pub(crate) prevented: Counter,
    /// Wrong reports, by field.
    pub(crate) untrue: Family<Labels<1>, Counter>,
    /// Recent writes that have to be repeated.
    pub(crate) undone: Counter,
    pub(crate) misplaced: Counter,
    pub(crate) readopted: Counter,
    pub(crate) reported_late: Counter,
    pub(crate) breakers: Counter,
    pub(crate) cascades_unreported: Counter,
    /// Orphaning owners that were forgotten early for lack of room.
    pub(crate) orphaning_forgotten: Counter,
    pub(crate) rejected: Counter,
    /// Objects that were left out because their identity is incomplete.
    pub(crate) unusable: Counter,
    pub(crate) rewinds: Counter,
    /// Contradictory answers.
    pub(crate) inconsistent: Counter,
    asked: Family<Labels<1>, Counter>,
    /// Failed attempts to read the cluster's identity.
    pub(crate) start_failures: Counter,
    pub(crate) election_failures: Counter,
    /// Executor streams that ended with an error: another cluster or protocol, no leader, a protocol violation.
    pub(crate) streams_refused: Counter,
    /// Messages of executors that this build does not know.
    pub(crate) unknown_messages: Counter,
    ingested: Counter,
    round: Histogram,
    /// The time of the last progress, in milliseconds of the clock.
    moved: Arc<AtomicU64>,
    gauges: Gauges,
    pub(crate) requests: Requests,
    pub(crate) log: LogMetrics,
    pub(crate) access: AccessMetrics,
    pub(crate) gates: GateMetrics,
    pub(crate) traces: Counts,
    pub(crate) recording: RecordingMetrics,
    pub(crate) audit: AuditMetrics,
}

/// All metrics of the graph service in `/metrics`, without those of every process.
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
                ("Decisions withdrawn before they were carried out", "Normal if owners come back or another client deletes first."),
                zeroed(ActionKind::ALL.map(|action| [("action", action.as_str())])),
            ),
            grants: book.put(
                "ownergraph_grants",
                [actions()],
                ("Leases given to executors, by action", "A rate above that of `ownergraph_attempts_total` means repeated attempts."),
                zeroed(ActionKind::ALL.map(|action| [("action", action.as_str())])),
            ),
            attempts: book.put(
                "ownergraph_attempts",
                [actions(), reasons(), Label::of("outcome", Outcome::ALL.map(Outcome::as_str))],
                ("Attempts that executors reported, by action, reason of the decision and outcome", "`done`, `gone` and `unchanged` are success; `conflict`, `replaced` and `owner_exists` are preconditions at work; `forbidden`, `admission_*`, `throttled` and `unauthenticated` need an administrator."),
                Family::default(),
            ),
            removed: book.put(
                "ownergraph_objects_removed",
                [Label::of("by_us", ["true", "false"])],
                ("Objects that left the graph; `by_us` says whether the API server had accepted a deletion by Ownergraph", "`by_us=\"true\"` is the number of collected objects."),
                zeroed(["true", "false"].map(|by_us| [("by_us", by_us)])),
            ),
            proofs: book.put(
                "ownergraph_owners_proven_absent",
                [Label::of("proof", Proof::WORDS)],
                ("Owners proven absent, by proof", "`watch_deleted` is the common one; `listed` means that references named owners that no watch had shown."),
                zeroed(Proof::WORDS.map(|proof| [("proof", proof)])),
            ),
            owner_to_dependent: book.put(
                "ownergraph_owner_gone_to_dependent_gone_seconds",
                [],
                ("Time from the proof that the last owner is gone to the DELETED of the dependent", "The latency of collection, as a user of the cluster sees it. Held and blocked dependents count when they are deleted."),
                Histogram::new(exponential_buckets(0.002, 2.0, 20)),
            ),
            prevented: book.put(
                "ownergraph_prevented_deletions",
                [],
                ("Deletions prevented because an owner was found alive", "Each would have been a wrong deletion. More than a few mean that watches of the API server are not reliable."),
                Counter::default(),
            ),
            untrue: book.put(
                "ownergraph_untrue_reports",
                [Label::of("field", UNTRUE_FIELDS)],
                ("Reports of executors that are impossible, or that the API server contradicts, by the wrong field", "They have no effect on the graph. Above zero: the API server of an executor lags, or another process uses the identity of an executor. GetStatus names the process. After ten wrong reports the leader refuses it for ten minutes."),
                zeroed(UNTRUE_FIELDS.map(|field| [("field", field)])),
            ),
            undone: book.put(
                "ownergraph_undone_writes",
                [],
                ("Accepted writes that have to be repeated within a minute", "A client restores what is removed, or an aggregated API server accepts deletions without effect. The log names the objects."),
                Counter::default(),
            ),
            misplaced: book.put(
                "ownergraph_misplaced_references",
                [],
                ("References to owners in another namespace", "A client writes references that Kubernetes does not allow. Events on the dependents name them."),
                Counter::default(),
            ),
            readopted: book.put(
                "ownergraph_readopted_references",
                [],
                ("References that came back to objects whose owner had orphaned them", "The collector removes them again. A controller with an outdated view writes them. Events on the dependents name the owner and the field manager."),
                Counter::default(),
            ),
            cascades_unreported: book.put(
                "ownergraph_cascades_unreported",
                [],
                (
                    "Cascades without a summary Event, because too many were under way or too many Events wait",
                    "Nothing is wrong with the cascades; the decision log has each of their deletions.",
                ),
                Counter::default(),
            ),
            breakers: book.put(
                "ownergraph_breakers_opened",
                [],
                (
                    "Times that the built-in breaker stopped deletions that nothing explains",
                    "Read the reason in the Pause that it created. Find why the owners look absent before you delete the Pause.",
                ),
                Counter::default(),
            ),
            reported_late: book.put(
                "ownergraph_late_reports",
                [],
                ("Reports of attempts that an earlier leader granted", "Some follow each change of leader. Others come from an executor that reports leases that it never had."),
                Counter::default(),
            ),
            orphaning_forgotten: book.put(
                "ownergraph_orphaning_forgotten",
                [],
                ("Owners that orphaned their dependents and whose record was dropped within an hour for lack of room", "If a reference to such an owner comes back, it is dangling, and the dependent is collected."),
                Counter::default(),
            ),
            rejected: book.put(
                "ownergraph_rejected_inputs",
                [],
                ("Inputs that were invalid and ignored", "A bug in an executor or in the graph service. The log has the lines at level debug."),
                Counter::default(),
            ),
            unusable: book.put(
                "ownergraph_unusable_objects",
                [],
                ("Objects left out because they lack a uid or cannot be read", "They are never collected. Look for an aggregated API that serves objects without uids."),
                Counter::default(),
            ),
            rewinds: book.put(
                "ownergraph_rewinds",
                [],
                ("Observed restores of the API server's store to an earlier state", "One is expected after a restore from a backup. Without a restore, check etcd."),
                Counter::default(),
            ),
            inconsistent: book.put(
                "ownergraph_inconsistent_reads",
                [],
                ("Answers of the API server that contradict earlier ones", "Grants are suspended until answers agree. Find the API server or etcd member that lags or serves another store. `/readyz?verbose` names the collection and both versions."),
                Counter::default(),
            ),
            asked: book.put(
                "ownergraph_questions",
                [Label::of("answer", ANSWERS)],
                ("Questions to the API server about owners that no watch has shown, by answer", "`failed` grows while a collection cannot be read; the dependents are kept. `/readyz?verbose` has the reason."),
                zeroed(ANSWERS.map(|answer| [("answer", answer)])),
            ),
            start_failures: book.put(
                "ownergraph_start_failures",
                [],
                ("Failed attempts to read the identity of the cluster", "Grows while the API server is unreachable at the start. `/readyz` has the reason."),
                Counter::default(),
            ),
            election_failures: book.put(
                "ownergraph_election_failures",
                [],
                ("Failed calls to the election Lease", "If it keeps growing, the leader loses its term. `/readyz?verbose` has the reason."),
                Counter::default(),
            ),
            streams_refused: book.put(
                "ownergraph_streams_refused",
                [],
                ("Streams of executors that were ended with an error", "Replicas that do not lead refuse executors that look for the leader. A steady rate on the leader means another cluster, another protocol, or an unknown client."),
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
            // Bounds up to 5 s. The bound of 20 ms is the budget for a thousand inputs.
            round: book.put(
                "ownergraph_round_duration_seconds",
                [],
                ("Duration of one round of inputs", "The collector completes a round at least every five seconds. If the count does not grow, the collector has stopped. Slow rounds delay executors and readers."),
                Histogram::new(exponential_buckets(0.000_156_25, 2.0, 16)),
            ),
            moved: Arc::default(),
            gauges: Gauges::register(book),
            requests: Requests::register(book),
            log: LogMetrics::register(book),
            access: AccessMetrics::register(book),
            gates: GateMetrics::register(book),
            traces: Counts::register(book, Recording::GraphService),
            recording: RecordingMetrics::register(book),
            audit: AuditMetrics::register(book),
        };
        let build: Family<Labels<2>, Gauge> = Family::default();
        build.get_or_create(&[("version", VERSION), ("commit", COMMIT)]).set(1);
        let of_build = |name| Label::bounded(name, "one for each running build");
        book.put(
            "ownergraph_build_info",
            [of_build("version"), of_build("commit")],
            ("1, with the version and the commit of this build", "Shows the progress of an upgrade."),
            build,
        );
        metrics
    }

    pub(crate) fn decided(&self, action: ActionKind, causes: &[Cause]) {
        self.decisions.get_or_create(&[("action", action.as_str()), ("reason", Cause::most_specific(causes))]).inc();
    }

    pub(crate) fn withdrawn(&self, action: ActionKind) {
        self.withdrawals.get_or_create(&[("action", action.as_str())]).inc();
    }

    pub(crate) fn granted(&self, action: ActionKind) {
        self.grants.get_or_create(&[("action", action.as_str())]).inc();
    }

    pub(crate) fn attempted(&self, action: ActionKind, causes: &[Cause], outcome: Outcome) {
        let labels =
            [("action", action.as_str()), ("reason", Cause::most_specific(causes)), ("outcome", outcome.as_str())];
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

    /// Records progress.
    pub(crate) fn moved(&self, now: Time) {
        let millis = u64::try_from(now.since_origin().as_millis()).unwrap_or(u64::MAX);
        self.moved.store(millis, Ordering::Relaxed);
    }

    /// How long ready or leased work has waited without progress. Zero without such work, and on a replica that does not
    /// lead.
    pub(crate) fn stalled(&self, leads: bool, oldest_open: Option<Time>, clock: Clock) -> Duration {
        let Some(since) = oldest_open.filter(|_| leads) else { return Duration::ZERO };
        let moved = Time::from_origin(Duration::from_millis(self.moved.load(Ordering::Relaxed)));
        clock.age(since.max(moved))
    }

    /// The time since the last round, known even during the start.
    pub(crate) fn loop_idle(&self, since: Duration) {
        self.gauges.loop_idle.set(since.as_secs_f64());
    }

    /// Sets the gauges for a scrape.
    pub(crate) fn refresh(&self, snapshot: &Snapshot<'_>) {
        self.gauges.set(snapshot);
    }
}

fn actions() -> Label {
    Label::of("action", ActionKind::ALL.map(ActionKind::as_str))
}

fn reasons() -> Label {
    Label::of("reason", Cause::WORDS)
}

/// Creates counters at zero, so that a rate includes their first step.
pub(crate) fn zeroed<const N: usize>(labels: impl IntoIterator<Item = Labels<N>>) -> Family<Labels<N>, Counter> {
    let family: Family<Labels<N>, Counter> = Family::default();
    for labels in labels {
        drop(family.get_or_create(&labels));
    }
    family
}

fn count_of(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
