//! The task that sends spans.

use super::counts::{Counts, Dropped, Service};
use super::flags::{BadTraces, Settings};
use super::span::Span;
use super::wire::{Dates, request};
use crate::shutdown::Shutdown;
use engine::jitter::Backoff;
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_client::TraceServiceClient;
use std::error::Error;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use tonic::body::Body;
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

/// Spans of one request; far below the 4 MiB that a collector takes.
pub(super) const BATCH_MAX: usize = 512;
/// How long a span waits for others at most.
const BATCH_WITHIN: Duration = Duration::from_secs(1);
/// One request.
const SEND_WITHIN: Duration = Duration::from_secs(5);
/// All that is left once nobody records any more, with the request under way.
pub(super) const LAST_WITHIN: Duration = Duration::from_secs(2);
/// Pauses between tries while the collector is away.
const RETRY_MIN: Duration = Duration::from_millis(500);
const RETRY_MAX: Duration = Duration::from_secs(30);

type Transport = Client<HttpsConnector<HttpConnector>, Body>;

pub(super) struct Exporter {
    client: TraceServiceClient<Transport>,
    endpoint: String,
    service: Service,
    counts: Counts,
    shutdown: Shutdown,
    /// Nobody records any more.
    over: CancellationToken,
    backoff: Backoff,
    /// Why the collector does not take spans, as it was last said.
    known: String,
}

/// Why a batch was not taken.
struct Refused {
    why: String,
    is_final: bool,
    /// No sooner than this it wants to be asked again.
    pause: Duration,
}

impl Refused {
    fn by(status: &Status) -> Refused {
        let pause = status.get_details_retry_info().and_then(|info| info.retry_delay).unwrap_or_default();
        Refused { why: in_words(status), is_final: is_final(status), pause: pause.min(RETRY_MAX) }
    }
}

impl Exporter {
    pub(super) fn new(
        settings: &Settings,
        service: Service,
        counts: Counts,
        shutdown: Shutdown,
        over: CancellationToken,
    ) -> Result<Exporter, BadTraces> {
        let mut http = HttpConnector::new();
        http.enforce_http(false);
        http.set_nodelay(true);
        http.set_connect_timeout(Some(SEND_WITHIN));
        let tls = hyper_rustls::HttpsConnectorBuilder::new().with_tls_config(settings.tls()?);
        let connector = tls.https_or_http().enable_http2().wrap_connector(http);
        let transport = Client::builder(TokioExecutor::new()).http2_only(true).build(connector);
        let seed =
            getrandom::u64().map_err(|error| BadTraces(format!("cannot read randomness from the system: {error}")))?;
        Ok(Exporter {
            client: TraceServiceClient::with_origin(transport, settings.endpoint.clone()),
            endpoint: settings.endpoint.to_string(),
            service,
            counts,
            shutdown,
            over,
            backoff: Backoff::new(RETRY_MIN, RETRY_MAX, seed),
            known: String::new(),
        })
    }

    /// Until nobody records any more, and what was taken is sent or given up. What is left then has one limit for all of it: neither a
    /// collector that is away nor one that is slow holds up the end, whether somebody asked for it or not.
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
        // Whoever still records counts by itself what comes too late.
        queue.close();
        let mut left = batch.len();
        while queue.recv().await.is_some() {
            left += 1;
        }
        if left > 0 {
            tracing::warn!(endpoint = self.endpoint, spans = left, "stopped before these spans of traces were sent");
            self.counts.dropped(Dropped::Stopped, left);
        }
        Ok(())
    }

    /// Leaves in `batch` what was neither taken nor refused.
    async fn send_all(&mut self, queue: &mut mpsc::Receiver<Span>, batch: &mut Vec<Span>) {
        while fill(queue, batch, &self.shutdown).await {
            while let Err(refused) = self.send(batch).await {
                self.warn(&refused.why);
                if refused.is_final {
                    self.counts.dropped(Dropped::Rejected, batch.len());
                    break;
                }
                if self.shutdown.is_requested() || self.over.is_cancelled() {
                    return;
                }
                tokio::select! {
                    () = sleep(self.backoff.next_delay().max(refused.pause)) => {}
                    () = self.shutdown.requested() => {}
                    () = self.over.cancelled() => {}
                }
            }
            batch.clear();
        }
    }

    async fn send(&mut self, batch: &[Span]) -> Result<(), Refused> {
        let request = request(&self.service, batch, Dates::now());
        let answer = match timeout(SEND_WITHIN, self.client.export(request)).await {
            Ok(Ok(answer)) => answer.into_inner(),
            Ok(Err(status)) => return Err(Refused::by(&status)),
            Err(_) => {
                let why = "it does not answer".to_owned();
                return Err(Refused { why, is_final: false, pause: Duration::ZERO });
            }
        };
        let partly = answer.partial_success.filter(|partly| partly.rejected_spans > 0);
        let rejected = partly.as_ref().map_or(0, |partly| usize::try_from(partly.rejected_spans).unwrap_or(0));
        let rejected = rejected.min(batch.len());
        self.counts.exported(batch.len() - rejected);
        match partly {
            // What was refused of a request is not to be sent again.
            Some(partly) => {
                self.counts.dropped(Dropped::Rejected, rejected);
                self.warn(&format!("it rejects spans: {}", partly.error_message));
            }
            None if !self.known.is_empty() => {
                tracing::info!(endpoint = self.endpoint, "traces are sent again");
                self.known.clear();
            }
            None => {}
        }
        self.backoff.reset();
        Ok(())
    }

    /// Once for each reason, until it is over.
    fn warn(&mut self, why: &str) {
        if self.known != why {
            tracing::warn!(
                endpoint = self.endpoint,
                why,
                "traces cannot be sent; what does not fit into the queue is dropped"
            );
            self.known = why.to_owned();
        } else {
            tracing::debug!(endpoint = self.endpoint, why, "traces cannot be sent");
        }
    }
}

/// Collects a batch; false at the end of all. Once a stop was asked for, nothing waits for others.
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

/// Whether a batch that was refused so is never taken, by OTLP's table of codes: with one of these, such as that of a batch which is too
/// large, the same request would be tried for ever.
///
/// A status that has a source was not sent by the collector: the client makes it up when a connection breaks, mostly as UNKNOWN. Such a one says
/// nothing about the batch.
pub(super) fn is_final(status: &Status) -> bool {
    if status.source().is_some() {
        return false;
    }
    match status.code() {
        Code::Cancelled
        | Code::DeadlineExceeded
        | Code::Aborted
        | Code::OutOfRange
        | Code::Unavailable
        | Code::DataLoss => false,
        // What is exhausted comes back only if the collector says so.
        Code::ResourceExhausted => status.get_details_retry_info().is_none(),
        Code::Ok
        | Code::Unknown
        | Code::InvalidArgument
        | Code::NotFound
        | Code::AlreadyExists
        | Code::PermissionDenied
        | Code::FailedPrecondition
        | Code::Unimplemented
        | Code::Internal
        | Code::Unauthenticated => true,
    }
}

/// The message of a broken connection says only that there was one; its cause is at the bottom.
fn in_words(status: &Status) -> String {
    let mut cause: Option<&dyn Error> = status.source();
    while let Some(deeper) = cause.and_then(Error::source) {
        cause = Some(deeper);
    }
    match cause {
        Some(cause) => format!("{:?}: {cause}", status.code()),
        None => format!("{:?}: {}", status.code(), status.message()),
    }
}
