//! The recorder of spans.

use super::context::{Ratio, SpanId, TraceId, trace_of};
use super::counts::{Counts, Dropped, Service};
use super::export::Sending;
use super::flags::Settings;
use super::span::Span;
use super::variables::BadTraces;
use crate::shutdown::Shutdown;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};

/// The limit of queued spans, at about half a kilobyte each.
pub(super) const QUEUE_MAX: usize = 8192;

/// Takes spans while the queue is open. Clones share the queue.
#[derive(Clone, Debug)]
pub struct Recorder {
    queue: mpsc::WeakSender<Span>,
    counts: Counts,
    ratio: Ratio,
    ids: Arc<Ids>,
}

/// Keeps the queue open. The last component that records spans holds it. Spans that other components record after its
/// drop do not delay the end.
#[derive(Debug)]
pub struct Open {
    _queue: mpsc::Sender<Span>,
    /// Signals the end to the export task, even while the task waits.
    _over: DropGuard,
}

/// A random number generator for span ids. Its numbers are random enough to avoid duplicates within a trace, and need
/// no system call per id.
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

    /// A recorder and its receiver, for tests.
    pub fn to_memory(ratio: Ratio) -> (Recorder, Open, mpsc::Receiver<Span>) {
        let (queue, spans) = mpsc::channel(QUEUE_MAX);
        let (recorder, open) = Recorder::new(queue, Counts::default(), ratio, CancellationToken::new());
        (recorder, open, spans)
    }

    /// Whether spans of this trace are recorded, if no caller has decided.
    pub fn covers(&self, trace: &TraceId) -> bool {
        self.ratio.covers(trace)
    }

    /// An id for a new span.
    pub fn span_id(&self) -> SpanId {
        SpanId::from(self.ids.next().max(1))
    }

    /// A random id for a trace that has no subject to derive an id from.
    pub fn trace_id(&self) -> TraceId {
        trace_of(&(self.ids.next(), self.ids.next()))
    }

    /// Takes a span that has ended. Never waits: if the queue is full, the span is dropped and counted.
    pub fn record(&self, span: Span) {
        let Some(queue) = self.queue.upgrade() else { return self.counts.dropped(Dropped::Stopped, 1) };
        match queue.try_send(span) {
            Ok(()) => {}
            Err(mpsc::error::TrySendError::Full(_)) => self.counts.dropped(Dropped::QueueFull, 1),
            Err(mpsc::error::TrySendError::Closed(_)) => self.counts.dropped(Dropped::Stopped, 1),
        }
    }
}

/// Returns a recorder, its [`Open`] guard, and the export task. The task ends within two seconds after [`Open`] was
/// dropped, even if the collector is unreachable or slow. Call it on the runtime that it runs on.
pub fn start(
    settings: &Settings,
    service: Service,
    counts: Counts,
    shutdown: Shutdown,
) -> Result<(Recorder, Open, impl Future<Output = anyhow::Result<()>> + Send + 'static), BadTraces> {
    let (queue, spans) = mpsc::channel(QUEUE_MAX);
    let over = CancellationToken::new();
    let (recorder, open) = Recorder::new(queue, counts.clone(), settings.sample, over.clone());
    let sending = Sending::new(settings, &service, counts, shutdown, over)?;
    Ok((recorder, open, sending.run(spans)))
}
