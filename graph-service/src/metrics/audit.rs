//! Metrics of audit events.

use super::zeroed;
use prometheus_client::metrics::counter::Counter;
use runtime::metrics::{Book, Label};

const USES: [&str; 3] = ["used", "irrelevant", "unreadable"];

/// Clones share the metrics.
#[derive(Clone, Debug)]
pub(crate) struct AuditMetrics {
    pub(crate) used: Counter,
    pub(crate) irrelevant: Counter,
    pub(crate) unreadable: Counter,
}

impl AuditMetrics {
    pub(crate) fn register(book: &mut Book<'_>) -> AuditMetrics {
        let events = book.put(
            "ownergraph_audit_events",
            [Label::of("use", USES)],
            (
                "Events of the API server's audit log, by use: `irrelevant` ones are about other requests, dry runs or subresources, or arrive again",
                "All are zero without `--audit-log` and `--audit-webhook`. `unreadable`: the log has the first reason. If `used` does not grow, check the audit policy.",
            ),
            zeroed(USES.map(|of| [("use", of)])),
        );
        let [used, irrelevant, unreadable] = USES.map(|of| events.get_or_create(&[("use", of)]).clone());
        AuditMetrics { used, irrelevant, unreadable }
    }
}
