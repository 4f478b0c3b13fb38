//! Splits lists that are too large for one message.
//!
//! The engine sends lists of any length. A message has at most [`BATCH_MAX_ENTRIES`] entries and about
//! `BATCH_MAX_BYTES`, far below the limits of any peer or proxy. A larger entry is sent alone.

use crate::work::v1beta1::{StreamWorkRequest, StreamWorkResponse};
use crate::work::v1beta1::{stream_work_request as request, stream_work_response as response};
use engine::work::{BATCH_MAX_ENTRIES, ToExecutor, ToLeader};
use prost::Message;

/// Size of a batch in encoded bytes.
pub(crate) const BATCH_MAX_BYTES: usize = 256 * 1024;

#[cfg(test)]
mod tests;

/// Encodes `message` for a leader, in order. Empty for an empty list.
pub fn requests(message: ToLeader) -> Vec<StreamWorkRequest> {
    use request::Message as Kind;
    let Some(kind) = StreamWorkRequest::from(message).message else {
        return Vec::new();
    };
    let kinds = match kind {
        Kind::Progress(progress) => {
            batches(progress.started).map(|started| Kind::Progress(request::Progress { started })).collect()
        }
        Kind::Reports(message) => {
            let mut reports = batches(message.reports);
            let mut returns = batches(message.returns);
            // A return has about forty bytes, so a message with both lists is about as large as one with the larger
            // list only.
            let pairs = std::iter::from_fn(|| match (reports.next(), returns.next()) {
                (None, None) => None,
                (reports, returns) => Some(request::Reports {
                    reports: reports.unwrap_or_default(),
                    returns: returns.unwrap_or_default(),
                }),
            });
            pairs.map(Kind::Reports).collect()
        }
        Kind::Hello(_) | Kind::Heartbeat(_) | Kind::Window(_) | Kind::Drain(_) => vec![kind],
    };
    kinds.into_iter().map(|kind| StreamWorkRequest { message: Some(kind) }).collect()
}

/// Encodes `message` for an executor, in order. Empty for an empty list.
pub fn responses(message: ToExecutor) -> Vec<StreamWorkResponse> {
    use response::Message as Kind;
    let Some(kind) = StreamWorkResponse::from(message).message else {
        return Vec::new();
    };
    let kinds = match kind {
        Kind::Grant(grant) => batches(grant.leases).map(|leases| Kind::Grant(response::Grant { leases })).collect(),
        Kind::ReportAck(ack) => {
            batches(ack.results).map(|results| Kind::ReportAck(response::ReportAck { results })).collect()
        }
        Kind::Revoke(revoke) => {
            let part = |lease_ids| {
                Kind::Revoke(response::Revoke { lease_ids, mode: revoke.mode, reason: revoke.reason.clone() })
            };
            batches(revoke.lease_ids).map(part).collect()
        }
        Kind::Welcome(_) | Kind::HeartbeatAck(_) | Kind::Throttle(_) | Kind::DrainAck(_) | Kind::GoAway(_) => {
            vec![kind]
        }
    };
    kinds.into_iter().map(|kind| StreamWorkResponse { message: Some(kind) }).collect()
}

/// Splits `entries` into parts within both bounds, or of one entry.
fn batches<T: Message>(entries: Vec<T>) -> impl Iterator<Item = Vec<T>> {
    let mut entries = entries.into_iter().peekable();
    std::iter::from_fn(move || {
        let first = entries.next()?;
        let mut bytes = first.encoded_len();
        let mut batch = vec![first];
        while batch.len() < BATCH_MAX_ENTRIES
            && let Some(next) = entries.next_if(|next| bytes + next.encoded_len() <= BATCH_MAX_BYTES)
        {
            bytes += next.encoded_len();
            batch.push(next);
        }
        Some(batch)
    })
}
