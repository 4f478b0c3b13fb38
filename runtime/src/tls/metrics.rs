//! The TLS metrics and log lines of a server.

use std::net::SocketAddr;
use std::sync::Arc;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::reasons::{Reason, Refused};
use crate::metrics::{Book, Description, Label};
use crate::seldom::Seldom;

/// Counters of one server. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct TlsMetrics {
    refused: Family<[(&'static str, &'static str); 1], Counter>,
    reloads: Family<[(&'static str, &'static str); 1], Counter>,
    /// Has no value if the server uses no TLS.
    expiry: Family<[(&'static str, &'static str); 0], Gauge>,
    said: Arc<Seldom<Reason>>,
}

/// All TLS metrics, for docs/metrics.md.
pub fn described() -> Vec<Description> {
    let mut registry = Registry::default();
    let mut book = Book::new(&mut registry);
    TlsMetrics::default().register(&mut book);
    book.into_descriptions()
}

impl TlsMetrics {
    /// Registers the metrics.
    pub fn register(&self, book: &mut Book<'_>) {
        let metrics = self.clone();
        book.put(
            "ownergraph_tls_handshakes_refused",
            [Label::of("reason", Reason::ALL.map(Reason::as_str))],
            (
                "Failed TLS handshakes",
                "The log has one line a minute for each reason. TCP probes cause `closed`; callers with wrong files or unknown clients cause the others.",
            ),
            metrics.refused,
        );
        book.put(
            "ownergraph_tls_reloads",
            [Label::of("result", ["taken", "unusable"])],
            (
                "Changes of the TLS files; the label says whether the files were usable",
                "After an `unusable` change the earlier certificate stays in use until it expires.",
            ),
            metrics.reloads,
        );
        book.put(
            "ownergraph_tls_certificate_expiry_timestamp_seconds",
            [],
            (
                "Expiry of the served certificate, in seconds since 1970",
                "Alert a week before the expiry. Absent without TLS.",
            ),
            metrics.expiry,
        );
    }

    pub(super) fn serves_until(&self, not_after: i64) {
        self.expiry.get_or_create(&[]).set(not_after);
    }

    pub(super) fn reloaded(&self, not_after: i64) {
        self.reloads.get_or_create(&[("result", "taken")]).inc();
        self.serves_until(not_after);
    }

    pub(super) fn reload_failed(&self) {
        self.reloads.get_or_create(&[("result", "unusable")]).inc();
    }

    /// Counts a refused connection, and logs the reason if it was not logged recently.
    pub(super) fn refused(&self, refused: &Refused, from: Option<SocketAddr>) {
        let Refused { reason, why } = refused;
        self.refused.get_or_create(&[("reason", reason.as_str())]).inc();
        let from = from.map(tracing::field::display);
        if *reason == Reason::Closed {
            tracing::debug!(from, why, "a TLS handshake did not start");
        } else if let Some(unsaid) = self.said.unsaid(*reason) {
            tracing::warn!(from, reason = reason.as_str(), why, unsaid, "refused a TLS connection");
        }
    }
}
