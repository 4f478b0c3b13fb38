//! The metrics of executors. All executors of one process share them. Gauges are read at each scrape.

use engine::work::{ActionKind, Outcome, WorkReport};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeLabelSet, EncodeLabelValue, EncodeMetric as _, LabelValueEncoder,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use runtime::metrics::{Book, Description, Kind, Label, split_unit};
use runtime::traces::{Counts, Recording};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

/// The counters of the executors of one process. Clones share them.
#[derive(Clone, Debug)]
pub struct Metrics {
    executors: Executors,
    attempts: Family<AttemptLabels, Counter>,
    requests: Family<RequestLabels, Counter>,
    latency: Family<VerbLabels, Histogram, fn() -> Histogram>,
    pub(crate) start_failures: Counter,
    pub(crate) connect_failures: Counter,
    pub(crate) lapses: Counter,
    pub(crate) shares_lapsed: Counter,
    pub(crate) credentials_refused: Counter,
    pub(crate) stale_terms: Counter,
    pub(crate) rejected_messages: Counter,
    pub(crate) traces: Counts,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AttemptLabels {
    action: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    verb: &'static str,
    code: Code,
}

/// The status code of an answer; `None` if there was no answer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Code(Option<u16>);

impl EncodeLabelValue for Code {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), fmt::Error> {
        match self.0 {
            Some(code) => code.encode(encoder),
            None => "none".encode(encoder),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct VerbLabels {
    verb: &'static str,
}

/// All metrics of executors in `/metrics`, without those of every process.
pub fn described() -> Vec<Description> {
    let mut registry = Registry::default();
    let mut book = Book::new(&mut registry);
    let _unused = Metrics::register(&mut book);
    book.into_descriptions()
}

impl Metrics {
    /// Registers every metric.
    pub fn register(book: &mut Book<'_>) -> Metrics {
        let verb = || Label::of("verb", Verb::ALL.map(Verb::as_str));
        let mut counter = |name, help, advice| book.put(name, [], (help, advice), Counter::default());
        let (start_failures, connect_failures) = (
            counter(
                "ownergraph_executor_start_failures",
                "Failed attempts to read the identity of the cluster",
                "Grows while the API server is unreachable at the start. `/readyz` has the reason.",
            ),
            counter(
                "ownergraph_executor_connect_failures",
                "Streams that could not be opened or broke off",
                "A few at each change of leader are normal. A steady rate means that no graph service leads or is reachable.",
            ),
        );
        let metrics = Metrics {
            start_failures,
            connect_failures,
            lapses: counter(
                "ownergraph_executor_session_lapses",
                "Sessions whose heartbeats were not acknowledged in time",
                "The network fails, or the leader has stopped.",
            ),
            shares_lapsed: counter(
                "ownergraph_executor_write_shares_lapsed",
                "Shares of the write rate that the leader did not renew in time",
                "Only with `--max-writes-per-second`. The executor writes at a reduced rate until the leader renews its share.",
            ),
            credentials_refused: counter(
                "ownergraph_executor_credentials_refused",
                "Attempts and checks that the API server answered with 401, or that had no credentials",
                "The token has expired or its service account is gone. The executor accepts no work until a check passes.",
            ),
            stale_terms: counter(
                "ownergraph_executor_stale_terms",
                "Grants of a deposed leader that were returned",
                "One or two at a change of leader are normal.",
            ),
            rejected_messages: counter(
                "ownergraph_executor_rejected_messages",
                "Messages of the leader that were invalid or that this version does not know",
                "The graph service is newer, or has a bug.",
            ),
            traces: Counts::register(book, Recording::Executor),
            attempts: book.put(
                "ownergraph_executor_attempts",
                [
                    Label::of("action", ActionKind::ALL.map(ActionKind::as_str)),
                    Label::of("outcome", Outcome::ALL.map(Outcome::as_str)),
                ],
                (
                    "Leases carried out, by action and outcome",
                    "The same as `ownergraph_attempts_total`, for each executor. If only one executor has `forbidden` or `unauthenticated`, its credentials differ from the others.",
                ),
                Family::default(),
            ),
            requests: book.put(
                "ownergraph_executor_api_requests",
                [verb(), Label::bounded("code", "about two dozen HTTP status codes, and `none`")],
                (
                    "Requests of the executors to the API server, by verb and code; `code` is `none` without an answer",
                    "The load of collection on the API server. 429 means that the API server throttles; the executor then slows down.",
                ),
                Family::default(),
            ),
            latency: book.put(
                "ownergraph_executor_api_request_duration_seconds",
                [verb()],
                (
                    "Time from sending a request to the last byte of its answer",
                    "Slow admission webhooks are the usual reason for a rise.",
                ),
                Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.001, 2.0, 16))),
            ),
            executors: Executors::default(),
        };
        // Creates the counters at zero, so that a rate includes the first request.
        for verb in Verb::ALL {
            drop(metrics.latency.get_or_create(&VerbLabels { verb: verb.as_str() }));
        }
        for (name, about, _) in GAUGES {
            book.describe(name, Kind::Gauge, [], about);
        }
        book.registry().register_collector(Box::new(metrics.executors.clone()));
        metrics
    }

    /// Adds an executor, which is read until it is dropped.
    pub(crate) fn add(&self, executor: Weak<dyn Look>) {
        self.executors.with(|executors| executors.push(executor));
    }

    /// Counts one call. `code` is an error if there was no answer.
    pub(crate) fn called<E>(&self, verb: Verb, code: Result<u16, E>, took: Duration) {
        self.requests.get_or_create(&RequestLabels { verb: verb.as_str(), code: Code(code.ok()) }).inc();
        self.latency.get_or_create(&VerbLabels { verb: verb.as_str() }).observe(took.as_secs_f64());
    }

    /// Counts the end of one attempt.
    pub(crate) fn ended(&self, kind: ActionKind, report: &WorkReport) {
        let outcome: Outcome = report.outcome;
        self.attempts.get_or_create(&AttemptLabels { action: kind.as_str(), outcome: outcome.as_str() }).inc();
    }
}

/// The RBAC verb of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Verb {
    Get,
    Patch,
    Delete,
}

impl Verb {
    pub(crate) const ALL: [Verb; 3] = [Verb::Get, Verb::Patch, Verb::Delete];

    /// The label value.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Verb::Get => "get",
            Verb::Patch => "patch",
            Verb::Delete => "delete",
        }
    }
}

/// The values of one executor for the gauges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Now {
    pub(crate) has_session: bool,
    pub(crate) is_accepted: bool,
    pub(crate) started: usize,
    pub(crate) concurrency: usize,
    pub(crate) loop_idle: Duration,
}

/// An executor of this process that gauges are read from.
pub(crate) trait Look: Send + Sync {
    fn now(&self) -> Now;
}

/// The running executors of this process.
#[derive(Clone, Default)]
struct Executors(Arc<Mutex<Vec<Weak<dyn Look>>>>);

type Gauge = (&'static str, (&'static str, &'static str), fn(&[Now]) -> f64);

/// Gauges over all executors of the process.
const GAUGES: [Gauge; 6] = [
    (
        "ownergraph_executor_instances",
        ("Executors in this process", "1, except with `ownergraph collect`, which runs several."),
        |all| all.len() as f64,
    ),
    (
        "ownergraph_executor_sessions",
        (
            "Executors of this process that have a session with the leader",
            "Executors without a session carry out no work. `/readyz` has the reason.",
        ),
        |all| all.iter().filter(|now| now.has_session).count() as f64,
    ),
    (
        "ownergraph_executor_credentials_accepted",
        (
            "Executors of this process whose credentials the API server accepts",
            "The others accept no work until the API server accepts their credentials.",
        ),
        |all| all.iter().filter(|now| now.is_accepted).count() as f64,
    ),
    (
        "ownergraph_executor_in_flight",
        ("Leases in progress", "Near the concurrency under load, 0 on a quiet cluster."),
        |all| all.iter().map(|now| now.started).sum::<usize>() as f64,
    ),
    (
        "ownergraph_executor_concurrency",
        (
            "Maximum number of leases in progress at once",
            "Learned from the API server's answers unless a flag fixes it. A low value means a slow API server.",
        ),
        |all| all.iter().map(|now| now.concurrency).sum::<usize>() as f64,
    ),
    (
        "ownergraph_executor_loop_idle_seconds",
        (
            "Time since the last turn of the executor's loop; with several executors, the longest",
            "Below five seconds, also without work. `/livez` fails above thirty.",
        ),
        |all| all.iter().map(|now| now.loop_idle.as_secs_f64()).fold(0.0, f64::max),
    ),
];

impl Executors {
    fn with<T>(&self, look: impl FnOnce(&mut Vec<Weak<dyn Look>>) -> T) -> T {
        let mut executors = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        executors.retain(|executor| executor.strong_count() > 0);
        look(&mut executors)
    }
}

impl fmt::Debug for Executors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Executors").finish_non_exhaustive()
    }
}

impl Collector for Executors {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let all: Vec<Now> =
            self.with(|executors| executors.iter().filter_map(Weak::upgrade).map(|executor| executor.now()).collect());
        for (name, (help, _), value) in GAUGES {
            let (stem, unit) = split_unit(name);
            let gauge = encoder.encode_descriptor(stem, help, unit.as_ref(), MetricType::Gauge)?;
            ConstGauge::new(value(&all)).encode(gauge)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::health::Health;
    use runtime::clock::Clock;

    #[test]
    fn executors_of_one_process_are_told_of_together() {
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut Book::new(&mut registry));
        let clock = Clock::start();
        let first = Health::new(clock, metrics.clone(), None);
        let second = Health::new(clock, metrics.clone(), None);
        for executor in [&first, &second] {
            executor.started("cluster");
        }
        metrics.called(Verb::Get, Ok::<_, ()>(200), Duration::ZERO);
        metrics.called(Verb::Get, Err(()), Duration::ZERO);
        let text = runtime::admin::encode(&registry);
        assert!(text.contains("ownergraph_executor_instances 2.0\n"), "{text}");
        assert!(text.contains("ownergraph_executor_sessions 0.0\n"), "{text}");
        for code in ["200", "none"] {
            assert!(text.contains(&format!("requests_total{{verb=\"get\",code=\"{code}\"}} 1\n")), "{text}");
        }
        drop(second);
        let text = runtime::admin::encode(&registry);
        assert!(text.contains("ownergraph_executor_instances 1.0\n"), "{text}");
    }
}
