//! The task that sends spans, with the exporter of OpenTelemetry. The exporter encodes, compresses and retries; the
//! task collects batches, counts the results, and ends in time.

use super::counts::{Counts, Dropped, Service};
use super::data::{Dates, data, resource, scope};
use super::flags::Settings;
use super::span::Span;
use super::variables::BadTraces;
use crate::shutdown::Shutdown;
use opentelemetry::InstrumentationScope;
use opentelemetry_otlp::SpanExporter;
use opentelemetry_sdk::trace::SpanExporter as _;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::sync::CancellationToken;

/// The limit of spans in one request, far below the 4 MiB limit of a collector.
pub(super) const BATCH_MAX: usize = 512;
/// The maximum time that a span waits for others.
const BATCH_WITHIN: Duration = Duration::from_secs(1);
/// The time limit for the remaining spans and the request in flight, after the last recorder is closed.
pub(super) const LAST_WITHIN: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(super) struct Sending {
    exporter: SpanExporter,
    endpoint: String,
    scope: InstrumentationScope,
    counts: Counts,
    shutdown: Shutdown,
    /// Cancelled when the last recorder is closed.
    over: CancellationToken,
    /// The number of spans of the request in flight.
    under_way: usize,
    /// The last logged reason why the trace collector does not accept spans.
    known: String,
}

impl Sending {
    pub(super) fn new(
        settings: &Settings,
        service: &Service,
        counts: Counts,
        shutdown: Shutdown,
        over: CancellationToken,
    ) -> Result<Sending, BadTraces> {
        let mut exporter = settings.exporter()?;
        exporter.set_resource(&resource(service));
        Ok(Sending {
            exporter,
            endpoint: settings.endpoint.to_string(),
            scope: scope(service),
            counts,
            shutdown,
            over,
            under_way: 0,
            known: String::new(),
        })
    }

    /// Runs until the last recorder is closed and the remaining spans are sent or dropped. The remaining spans share
    /// one time limit, so an unreachable or slow collector never delays the end.
    pub(super) async fn run(mut self, mut queue: mpsc::Receiver<Span>) -> anyhow::Result<()> {
        let over = self.over.clone();
        let late = async {
            over.cancelled().await;
            sleep(LAST_WITHIN).await;
        };
        let mut batch = Vec::new();
        tokio::select! {
            biased;
            () = self.send_all(&mut queue, &mut batch) => {}
            () = late => {}
        }
        // After this call, recorders count late spans as dropped.
        queue.close();
        let mut left = self.under_way + batch.len();
        while queue.recv().await.is_some() {
            left += 1;
        }
        if left > 0 {
            tracing::warn!(endpoint = self.endpoint, spans = left, "the process ended before it sent these spans");
            self.counts.dropped(Dropped::Stopped, left);
        }
        Ok(())
    }

    async fn send_all(&mut self, queue: &mut mpsc::Receiver<Span>, batch: &mut Vec<Span>) {
        while fill(queue, batch, &self.shutdown).await {
            let dates = Dates::now();
            self.under_way = batch.len();
            let spans = batch.drain(..).map(|span| data(span, dates, &self.scope)).collect();
            let result = self.exporter.export(spans).await;
            let sent = std::mem::take(&mut self.under_way);
            match result {
                Ok(()) => {
                    self.counts.exported(sent);
                    if !self.known.is_empty() {
                        tracing::info!(endpoint = self.endpoint, "spans are sent again");
                        self.known.clear();
                    }
                }
                Err(error) => {
                    self.counts.dropped(Dropped::Failed, sent);
                    self.warn(&error.to_string());
                }
            }
        }
    }

    /// Logs each reason once, until the failure is over.
    fn warn(&mut self, why: &str) {
        if self.known != why {
            tracing::warn!(
                endpoint = self.endpoint,
                why,
                "cannot send spans to the trace collector; spans are dropped"
            );
            self.known = why.to_owned();
        } else {
            tracing::debug!(endpoint = self.endpoint, why, "cannot send spans to the trace collector");
        }
    }
}

/// Collects a batch. Returns false if the queue is closed and empty. After a request to stop, it does not wait for more
/// spans.
async fn fill(queue: &mut mpsc::Receiver<Span>, batch: &mut Vec<Span>, shutdown: &Shutdown) -> bool {
    let Some(first) = queue.recv().await else { return false };
    batch.push(first);
    let deadline = Instant::now() + BATCH_WITHIN;
    let whole = async {
        while batch.len() < BATCH_MAX {
            let Some(span) = queue.recv().await else { return };
            batch.push(span);
        }
    };
    tokio::select! {
        biased;
        _ = timeout_at(deadline, whole) => {}
        () = shutdown.requested() => {}
    }
    true
}
