//! Questions to policy engines, and their answers.

use super::zeroed;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use runtime::metrics::{Book, Label};

/// The transports of gates.
pub(crate) const TRANSPORTS: [&str; 3] = ["cel", "webhook", "stream"];
/// Why answers were dropped.
const CAUSES: [&str; 3] = ["late", "twice", "unknown"];
/// Answers, as in [`engine::guard::Answer`].
const RESULTS: [&str; 5] = ["allow", "deny", "hold", "abstain", "failed"];

/// Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct GateMetrics {
    questions: Family<[(&'static str, &'static str); 1], Counter>,
    answers: Family<[(&'static str, &'static str); 1], Counter>,
    unmatched: Family<[(&'static str, &'static str); 1], Counter>,
    open: Gauge,
    instances: Gauge,
}

impl GateMetrics {
    pub(crate) fn register(book: &mut Book<'_>) -> GateMetrics {
        GateMetrics {
            questions: book.put(
                "ownergraph_gate_questions",
                [Label::of("transport", TRANSPORTS)],
                ("Questions to policy engines, by transport of the gate", "The rate follows the decisions in the scopes of gates."),
                zeroed(TRANSPORTS.map(|word| [("transport", word)])),
            ),
            answers: book.put(
                "ownergraph_gate_answers",
                [Label::of("result", RESULTS)],
                (
                    "Answers of policy engines, by result",
                    "`failed`: the engine is unreachable, or its answer is not usable; the failure policy of the gate applies. The status of the gate has the error.",
                ),
                zeroed(RESULTS.map(|result| [("result", result)])),
            ),
            unmatched: book.put(
                "ownergraph_gate_unmatched_answers",
                [Label::of("cause", CAUSES)],
                (
                    "Messages of policy engines that were dropped: answers, and requests for more time",
                    "`late`: the question has ended, so the engine is too slow for the timeout of the gate. `twice` and `unknown`: a bug in the engine.",
                ),
                zeroed(CAUSES.map(|cause| [("cause", cause)])),
            ),
            open: book.put(
                "ownergraph_gate_questions_in_flight",
                [],
                ("Questions to policy engines without an answer yet", "A number that stays high means a slow engine."),
                Gauge::default(),
            ),
            instances: book.put(
                "ownergraph_gate_instances",
                [],
                (
                    "Connected instances of policy engines",
                    "Instances connect to the leader. Without an instance, the failure policy of a gate applies.",
                ),
                Gauge::default(),
            ),
        }
    }

    pub(crate) fn asked(&self, transport: &'static str) {
        self.questions.get_or_create(&[("transport", transport)]).inc();
    }

    pub(crate) fn answered(&self, result: &'static str) {
        self.answers.get_or_create(&[("result", result)]).inc();
    }

    pub(crate) fn unmatched(&self, cause: &'static str) {
        self.unmatched.get_or_create(&[("cause", cause)]).inc();
    }

    /// The number of open questions changes.
    pub(crate) fn opened(&self, change: i64) {
        self.open.inc_by(change);
    }

    /// The number of instances changes.
    pub(crate) fn connected(&self, change: i64) {
        self.instances.inc_by(change);
    }

    #[cfg(test)]
    pub(crate) fn count(&self, cause: &'static str) -> u64 {
        self.unmatched.get_or_create(&[("cause", cause)]).get()
    }

    #[cfg(test)]
    pub(crate) fn open(&self) -> i64 {
        self.open.get()
    }
}
