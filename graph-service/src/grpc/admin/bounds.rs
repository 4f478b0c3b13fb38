//! Bounds the size of answers about pauses with large scopes.

use prost::Message as _;
use proto::admin::v1beta1::{GetStatusResponse, Pause};

/// Maximum number of bytes of the targets of one pause in a list.
const TARGETS_MAX_BYTES: usize = 128 * 1024;
/// Maximum number of bytes of all pauses in a status.
const PAUSES_MAX_BYTES: usize = 512 * 1024;

/// Shortens a pause for a list.
pub(super) fn short(mut pause: Pause) -> Pause {
    let Some(scope) = &mut pause.scope else { return pause };
    let all = scope.targets.len();
    let mut bytes = 0;
    let fits = |target: &&_| {
        bytes += prost::Message::encoded_len(*target);
        bytes <= TARGETS_MAX_BYTES
    };
    let kept = scope.targets.iter().take_while(fits).count();
    scope.targets.truncate(kept);
    pause.omitted_targets = u32::try_from(all - kept).unwrap_or(u32::MAX);
    pause
}

/// Shortens a status to as many pauses as fit.
pub(super) fn within(mut status: GetStatusResponse) -> GetStatusResponse {
    let pauses: Vec<Pause> = std::mem::take(&mut status.pauses).into_iter().map(short).collect();
    let all = pauses.len();
    let mut bytes = 0;
    status.pauses = pauses
        .into_iter()
        .take_while(|pause| {
            bytes += pause.encoded_len();
            bytes <= PAUSES_MAX_BYTES
        })
        .collect();
    status.more_pauses = u32::try_from(all - status.pauses.len()).unwrap_or(u32::MAX);
    status
}
