//! Metrics of the comparison with another collector.

use super::{Labels, count_of};
use engine::parity::{Class, Counts, Outcome, ParityView};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use runtime::metrics::{Book, Label};
use std::sync::atomic::AtomicU64;

/// Clones share the metrics.
#[derive(Clone, Debug)]
pub(super) struct ParityMetrics {
    outcomes: Family<Labels<1>, Gauge>,
    disagreements: Family<Labels<2>, Gauge>,
    open: Gauge,
    delays: Family<Labels<1>, Gauge<f64, AtomicU64>>,
}

const OUTCOMES: [&str; 5] = ["agreed", "theirs_first", "unattributed", "withdrawn", "not_compared"];
const SHARES: [(&str, u64); 2] = [("0.5", 500), ("0.99", 990)];

impl ParityMetrics {
    pub(super) fn register(book: &mut Book<'_>) -> ParityMetrics {
        ParityMetrics {
            outcomes: book.put(
                "ownergraph_parity_outcomes",
                [Label::of("outcome", OUTCOMES)],
                (
                    "Compared decisions and changes since the comparison began, in mode observe beside another collector",
                    "`agreed` and `theirs_first` are equal decisions. A person or a controller made `unattributed` changes. The comparison begins with the term; if the decision log outlives leaders, a leader counts on from the numbers of the last one.",
                ),
                Family::default(),
            ),
            disagreements: book.put(
                "ownergraph_parity_disagreements",
                [
                    Label::of("outcome", Outcome::ALL.map(Outcome::as_str)),
                    Label::of("class", Class::ALL.map(Class::as_str)),
                ],
                (
                    "Disagreements with another collector since the comparison began, by class",
                    "`unknown` must be 0: one of the two collectors is wrong. `kubectl ownergraph parity` has the evidence. It falls when the other collector follows after all.",
                ),
                Family::default(),
            ),
            open: book.put(
                "ownergraph_parity_open",
                [],
                ("Decisions that wait for the other collector", "It grows while the other collector stands still."),
                Gauge::default(),
            ),
            delays: book.put(
                "ownergraph_parity_delay_seconds",
                [Label::of("share", SHARES.map(|(word, _)| word))],
                (
                    "Time from a decision to the change of the other collector, rounded up to a power of two",
                    "No action needed.",
                ),
                Family::default(),
            ),
        }
    }

    pub(super) fn set(&self, view: Option<&ParityView>) {
        let none = Counts::default();
        let counts = view.map_or(&none, |view| &view.counts);
        let number = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        let Counts { agreed, theirs_first, unattributed, withdrawn, not_compared, .. } = *counts;
        for (outcome, count) in OUTCOMES.into_iter().zip([agreed, theirs_first, unattributed, withdrawn, not_compared])
        {
            self.outcomes.get_or_create(&[("outcome", outcome)]).set(number(count));
        }
        for class in Class::ALL {
            for (side, by_class) in [(Outcome::OursOnly, &counts.ours_only), (Outcome::TheirsOnly, &counts.theirs_only)]
            {
                let labels = [("outcome", side.as_str()), ("class", class.as_str())];
                self.disagreements.get_or_create(&labels).set(number(by_class[class as usize]));
            }
        }
        self.open.set(count_of(view.map_or(0, |view| view.open)));
        for (share, per_mille) in SHARES {
            let delay = counts.delay(per_mille).as_secs_f64();
            self.delays.get_or_create(&[("share", share)]).set(delay);
        }
    }
}
