//! Metrics of the decision log and its followers.

use super::count_of;
use crate::decisions::{Progress, Size, Standing};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use runtime::metrics::Book;
use std::sync::atomic::Ordering;

/// Clones share them.
#[derive(Clone, Debug)]
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
    pub(super) fn register(book: &mut Book<'_>) -> LogMetrics {
        let shared = "0 if the log is kept in memory.";
        LogMetrics {
            kept: book.put(
                "ownergraph_decision_log_events",
                [],
                (
                    "Events of the decision log in memory",
                    "docs/decisions.md describes the bound, and what happens to older events.",
                ),
                Gauge::default(),
            ),
            kept_bytes: book.put(
                "ownergraph_decision_log_bytes",
                [],
                ("Bytes of the events of the decision log in memory", "Part of the memory of the process."),
                Gauge::default(),
            ),
            unread: book.put(
                "ownergraph_decision_log_unread",
                [],
                ("Events on JetStream that this replica has not read yet", shared),
                Gauge::default(),
            ),
            waiting: book.put(
                "ownergraph_decision_log_waiting",
                [],
                ("Events that wait to be written to JetStream", shared),
                Gauge::default(),
            ),
            away: book.put(
                "ownergraph_decision_log_away",
                [],
                (
                    "1 while the log on JetStream cannot be written",
                    "With `--decision-log-required` grants are suspended during this time. Check NATS.",
                ),
                Gauge::default(),
            ),
            written: book.put(
                "ownergraph_decision_log_written",
                [],
                ("Events that this replica has written to JetStream", shared),
                Counter::default(),
            ),
            lost: book.put(
                "ownergraph_decision_log_lost",
                [],
                (
                    "Events that could not be written to JetStream",
                    "Followers get each gap within a term. Consumers that need every event must list again.",
                ),
                Counter::default(),
            ),
            followers: book.put(
                "ownergraph_decision_followers",
                [],
                ("Streams that follow the decision log", "A missing consumer lowers this number."),
                Gauge::default(),
            ),
            slow_followers: book.put(
                "ownergraph_decision_followers_slow",
                [],
                (
                    "Followers that were disconnected because they did not read",
                    "The consumer is too slow. It can resume at its last position.",
                ),
                Counter::default(),
            ),
        }
    }

    /// Sets the gauges for a scrape.
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
