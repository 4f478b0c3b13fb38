//! What the executor counts.

use crate::server::Verb;
use engine::work::{ActionKind, Outcome, WorkReport};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use std::time::Duration;

/// The counters of one executor, and the registry they stand in.
#[derive(Debug)]
pub(crate) struct Metrics {
    pub(crate) registry: Registry,
    attempts: Family<AttemptLabels, Counter>,
    requests: Family<RequestLabels, Counter>,
    latency: Family<VerbLabels, Histogram, fn() -> Histogram>,
    pub(crate) in_flight: Gauge,
    pub(crate) concurrency: Gauge,
    pub(crate) session_up: Gauge,
    pub(crate) start_failures: Counter,
    pub(crate) connect_failures: Counter,
    pub(crate) lapses: Counter,
    pub(crate) shares_lapsed: Counter,
    pub(crate) credentials_refused: Counter,
    pub(crate) credentials_accepted: Gauge,
    pub(crate) stale_terms: Counter,
    pub(crate) rejected_messages: Counter,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AttemptLabels {
    action: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    verb: &'static str,
    code: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct VerbLabels {
    verb: &'static str,
}

impl Default for Metrics {
    fn default() -> Metrics {
        let mut registry = Registry::with_prefix("ownergraph_executor");
        let attempts = Family::default();
        registry.register("attempts", "Leases carried out, by action and outcome", attempts.clone());
        let requests = Family::default();
        registry.register(
            "api_requests",
            "Calls at the API server; code is none where there was no answer",
            requests.clone(),
        );
        let latency: Family<VerbLabels, Histogram, fn() -> Histogram> =
            Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.001, 2.0, 16)));
        registry.register(
            "api_request_duration_seconds",
            "From sending to the last byte of the answer",
            latency.clone(),
        );
        let in_flight = Gauge::default();
        registry.register("in_flight", "Leases under way", in_flight.clone());
        let concurrency = Gauge::default();
        registry.register("concurrency", "Leases that may be under way at once", concurrency.clone());
        let session_up = Gauge::default();
        registry.register("session_up", "1 while a session with the leader is open", session_up.clone());
        let start_failures = Counter::default();
        registry.register(
            "start_failures",
            "Failed attempts to learn the identity of the cluster",
            start_failures.clone(),
        );
        let connect_failures = Counter::default();
        registry.register(
            "connect_failures",
            "Streams that could not be opened or broke off",
            connect_failures.clone(),
        );
        let lapses = Counter::default();
        registry.register("session_lapses", "Sessions whose heartbeats were not acknowledged in time", lapses.clone());
        let shares_lapsed = Counter::default();
        registry.register(
            "write_shares_lapsed",
            "Shares of the allowed writes that the leader did not renew in time",
            shares_lapsed.clone(),
        );
        let credentials_refused = Counter::default();
        registry.register(
            "credentials_refused",
            "Attempts and checks that the API server answered with 401, or for which no credentials could be got",
            credentials_refused.clone(),
        );
        let credentials_accepted = Gauge::default();
        registry.register(
            "credentials_accepted",
            "0 while the API server does not accept the credentials and no work is taken",
            credentials_accepted.clone(),
        );
        let stale_terms = Counter::default();
        registry.register("stale_terms", "Grants of a deposed leader handed back", stale_terms.clone());
        let rejected_messages = Counter::default();
        registry.register("rejected_messages", "Messages of the leader that made no sense", rejected_messages.clone());
        Metrics {
            registry,
            attempts,
            requests,
            latency,
            in_flight,
            concurrency,
            session_up,
            start_failures,
            connect_failures,
            lapses,
            shares_lapsed,
            credentials_refused,
            credentials_accepted,
            stale_terms,
            rejected_messages,
        }
    }
}

impl Metrics {
    /// Counts one call; `code` is an error where there was no answer.
    pub(crate) fn called<E>(&self, verb: Verb, code: Result<u16, E>, took: Duration) {
        let code = code.map_or_else(|_| "none".to_owned(), |code| code.to_string());
        self.requests.get_or_create(&RequestLabels { verb: verb.as_str(), code }).inc();
        self.latency.get_or_create(&VerbLabels { verb: verb.as_str() }).observe(took.as_secs_f64());
    }

    /// Counts the end of one attempt.
    pub(crate) fn ended(&self, kind: ActionKind, report: &WorkReport) {
        let outcome: Outcome = report.outcome;
        self.attempts.get_or_create(&AttemptLabels { action: kind.as_str(), outcome: outcome.as_str() }).inc();
    }
}
