//! The recording services, and the counters of exported and dropped spans.

use crate::metrics::{Book, Label};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;

/// The service that records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// The program's name.
    pub name: &'static str,
    /// Distinguishes processes of one program.
    pub instance: String,
    pub version: &'static str,
}

/// Counters of exported and dropped spans. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    exported: Counter,
    dropped: Family<[(&'static str, &'static str); 1], Counter>,
}

/// Why a span was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dropped {
    /// The queue was full: the collector is unreachable or slow.
    QueueFull,
    /// The collector refused them, or did not answer in time.
    Failed,
    /// The process ended before they were sent.
    Stopped,
}

/// The service that records spans. Each service has its own counters, because one process may run both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recording {
    GraphService,
    Executor,
}

impl Recording {
    /// The names of the counters of exported and of dropped spans.
    fn names(self) -> (&'static str, &'static str) {
        match self {
            Recording::GraphService => ("ownergraph_trace_spans_exported", "ownergraph_trace_spans_dropped"),
            Recording::Executor => {
                ("ownergraph_executor_trace_spans_exported", "ownergraph_executor_trace_spans_dropped")
            }
        }
    }
}

impl Dropped {
    const ALL: [Dropped; 3] = [Dropped::QueueFull, Dropped::Failed, Dropped::Stopped];

    fn word(self) -> &'static str {
        match self {
            Dropped::QueueFull => "queue_full",
            Dropped::Failed => "failed",
            Dropped::Stopped => "stopped",
        }
    }
}

impl Counts {
    /// Registers new counters, named after the service.
    pub fn register(book: &mut Book<'_>, recording: Recording) -> Counts {
        let (exported, dropped) = recording.names();
        let counts = Counts::default();
        for why in Dropped::ALL {
            counts.dropped(why, 0);
        }
        book.put(
            exported,
            [],
            (
                "Spans that the trace collector accepted",
                "Does not grow while no object is collected, or without traces.",
            ),
            counts.exported.clone(),
        );
        book.put(
            dropped,
            [Label::of("reason", Dropped::ALL.map(Dropped::word))],
            (
                "Spans that were recorded and not sent to the trace collector",
                "`queue_full`: the trace collector is unreachable or slow. `failed`: the trace collector refused them, and the log has the reason. Traces are incomplete; collection is not affected.",
            ),
            counts.dropped.clone(),
        );
        counts
    }

    pub(super) fn exported(&self, spans: usize) {
        self.exported.inc_by(spans as u64);
    }

    pub(super) fn dropped(&self, why: Dropped, spans: usize) {
        self.dropped.get_or_create(&[("reason", why.word())]).inc_by(spans as u64);
    }

    #[cfg(test)]
    pub(super) fn read(&self) -> (u64, [u64; 3]) {
        let of = |why: Dropped| self.dropped.get_or_create(&[("reason", why.word())]).get();
        (self.exported.get(), [of(Dropped::QueueFull), of(Dropped::Failed), of(Dropped::Stopped)])
    }
}
