//! Where spans are handed in.

use super::context::{Ratio, SpanId, TraceId};
use super::export::Exporter;
use super::flags::{BadTraces, Settings};
use super::span::Span;
use crate::metrics::{Book, Label};
use crate::shutdown::Shutdown;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};

/// Spans that wait to be sent, at about half a kilobyte each.
pub(super) const QUEUE_MAX: usize = 8192;

/// Who records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// The program's name.
    pub name: &'static str,
    /// Tells processes of one program apart.
    pub instance: String,
    pub version: &'static str,
}

/// What became of spans. Cloning shares it.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    exported: Counter,
    dropped: Family<[(&'static str, &'static str); 1], Counter>,
}

/// Why a span was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dropped {
    /// The queue was full: the collector is away or slow.
    QueueFull,
    /// The collector took them not, in a way that no retry mends.
    Rejected,
    /// They were left at the end of the process.
    Stopped,
}

/// Who records: each has its own counts, because both may be in one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recording {
    GraphService,
    Executor,
}

impl Recording {
    /// Of what was exported, and of what was dropped.
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
    const ALL: [Dropped; 3] = [Dropped::QueueFull, Dropped::Rejected, Dropped::Stopped];

    fn word(self) -> &'static str {
        match self {
            Dropped::QueueFull => "queue_full",
            Dropped::Rejected => "rejected",
            Dropped::Stopped => "stopped",
        }
    }
}

impl Counts {
    /// Registers new ones, named by who records.
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
                "Spans that the trace collector took",
                "Stands still while nothing is collected, and where traces are off.",
            ),
            counts.exported.clone(),
        );
        book.put(
            dropped,
            [Label::of("reason", Dropped::ALL.map(Dropped::word))],
            (
                "Spans that were recorded and not sent to the trace collector",
                "`queue_full`: the collector of traces is away or slow; `rejected`: it does not want them, and its log says why. Traces have holes; nothing else suffers.",
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
        (self.exported.get(), [of(Dropped::QueueFull), of(Dropped::Rejected), of(Dropped::Stopped)])
    }
}

/// Takes spans, as long as the queue is open. Cloning shares it.
#[derive(Clone, Debug)]
pub struct Recorder {
    queue: mpsc::WeakSender<Span>,
    counts: Counts,
    ratio: Ratio,
    ids: Arc<Ids>,
}

/// Keeps the queue open. Whoever records last holds it; calls that outlive that hold up nobody.
#[derive(Debug)]
pub struct Open {
    _queue: mpsc::Sender<Span>,
    /// Tells whoever sends, also while it waits for something else.
    _over: DropGuard,
}

/// Random enough that no two spans of a trace have one id, and nothing that has to be asked of the system for each.
#[derive(Debug, Default)]
struct Ids {
    key: RandomState,
    next: AtomicU64,
}

impl Ids {
    fn next(&self) -> u64 {
        self.key.hash_one(self.next.fetch_add(1, Ordering::Relaxed))
    }
}

impl Recorder {
    fn new(queue: mpsc::Sender<Span>, counts: Counts, ratio: Ratio, over: CancellationToken) -> (Recorder, Open) {
        let recorder = Recorder { queue: queue.downgrade(), counts, ratio, ids: Arc::default() };
        (recorder, Open { _queue: queue, _over: over.drop_guard() })
    }

    /// A recorder, and the spans that it is given: for tests of those who record.
    pub fn to_memory(ratio: Ratio) -> (Recorder, Open, mpsc::Receiver<Span>) {
        let (queue, spans) = mpsc::channel(QUEUE_MAX);
        let (recorder, open) = Recorder::new(queue, Counts::default(), ratio, CancellationToken::new());
        (recorder, open, spans)
    }

    /// Whether spans of this trace are to be recorded where nobody else has decided that.
    pub fn covers(&self, trace: &TraceId) -> bool {
        self.ratio.covers(trace)
    }

    /// An id for a new span.
    pub fn span_id(&self) -> SpanId {
        SpanId::of_number(self.ids.next())
    }

    /// An id for a trace that stands for nothing that has a name.
    pub fn trace_id(&self) -> TraceId {
        TraceId::of(&(self.ids.next(), self.ids.next()))
    }

    /// Takes a span that has ended. Never waits: where the queue is full, the span is dropped and counted.
    pub fn record(&self, span: Span) {
        let Some(queue) = self.queue.upgrade() else { return self.counts.dropped(Dropped::Stopped, 1) };
        match queue.try_send(span) {
            Ok(()) => {}
            Err(mpsc::error::TrySendError::Full(_)) => self.counts.dropped(Dropped::QueueFull, 1),
            Err(mpsc::error::TrySendError::Closed(_)) => self.counts.dropped(Dropped::Stopped, 1),
        }
    }
}

/// A recorder, what keeps it open, and the task that sends what it takes. The task ends within two seconds after [`Open`] was dropped. From
/// then on, or from the request to stop, it tries nothing twice: a collector that is away or slow holds up nobody.
pub fn start(
    settings: &Settings,
    service: Service,
    counts: Counts,
    shutdown: Shutdown,
) -> Result<(Recorder, Open, impl Future<Output = anyhow::Result<()>> + Send + 'static), BadTraces> {
    let (queue, spans) = mpsc::channel(QUEUE_MAX);
    let over = CancellationToken::new();
    let (recorder, open) = Recorder::new(queue, counts.clone(), settings.sample, over.clone());
    let exporter = Exporter::new(settings, service, counts, shutdown, over)?;
    Ok((recorder, open, exporter.run(spans)))
}
