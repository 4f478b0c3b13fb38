//! Fuzz entry point for the answers of webhooks and the specs of gates.

use super::{BATCH_MAX, TEXT_MAX_BYTES, review, transport};
use std::collections::BTreeSet;

/// Reads the bytes as the answer to a full batch, and as the spec of a gate.
pub(crate) fn gates(bytes: &[u8]) {
    let asked: BTreeSet<u64> = (0..BATCH_MAX as u64).collect();
    match review::answers(bytes, &asked) {
        Ok((replies, _unmatched)) => {
            let numbers: BTreeSet<u64> = replies.iter().map(|reply| reply.number).collect();
            assert_eq!(numbers.len(), replies.len(), "an answer counts once");
            assert!(numbers.is_subset(&asked), "{numbers:?}");
            assert!(replies.iter().all(|reply| reply.message.len() <= TEXT_MAX_BYTES), "{replies:?}");
        }
        Err(why) => assert!(!why.is_empty(), "a refused answer has a reason"),
    }
    if let Ok(spec) = serde_json::from_slice(bytes)
        && let Err(why) = transport::read(&spec)
    {
        assert!(!why.is_empty(), "a refused spec has a reason");
    }
}
