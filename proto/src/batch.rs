//! Splitting what is too large for one message.
//!
//! The engine thinks in lists, the wire in messages of at most [`BATCH_MAX_ENTRIES`] entries and about `BATCH_MAX_BYTES`: a quarter
//! of a megabyte is far below what any peer or proxy accepts. One entry that is larger than that travels alone.

use crate::work::v1beta1::{StreamWorkRequest, StreamWorkResponse};
use crate::work::v1beta1::{stream_work_request as request, stream_work_response as response};
use engine::work::{BATCH_MAX_ENTRIES, ToExecutor, ToLeader};
use prost::Message;

/// Where a batch ends, in encoded bytes.
pub(crate) const BATCH_MAX_BYTES: usize = 256 * 1024;

#[cfg(test)]
mod tests;

/// The messages that say `message` to a leader, in order. None for an empty list.
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
            // Returns are some forty bytes each, so both together stay about as small as the larger half.
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

/// The messages that say `message` to an executor, in order. None for an empty list.
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

/// Cuts `entries` so that each part stays within both bounds, or has one entry.
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
