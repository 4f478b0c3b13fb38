//! Fields of a report besides its result: the content of the lease, and the audit id of its write.

use super::{ActionKind, WorkItem};
use crate::object::{Digest, ObjectRef, Uid};
use alloc::string::String;

/// Maximum length of an audit id.
pub const AUDIT_ID_MAX_BYTES: usize = 64;

/// The valid part of an audit id: visible ASCII characters, cut to the maximum length.
pub fn audit_id(text: &str) -> String {
    text.chars().filter(char::is_ascii_graphic).take(AUDIT_ID_MAX_BYTES).collect()
}

/// The content of a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct About {
    pub target: ObjectRef,
    pub action: ActionKind,
    /// [`WorkItem::decision`].
    pub decision: u64,
}

impl WorkItem {
    /// The number is the same for the same action on the same object for the same facts, on every replica and in every
    /// term.
    pub fn decision(&self) -> u64 {
        decision(&self.target.uid, self.action.kind(), self.preconditions.facts_digest)
    }
}

/// The number is the same for the same action on the same object for the same facts.
pub(crate) fn decision(target: &Uid, action: ActionKind, facts_digest: u64) -> u64 {
    let mut digest = Digest::default();
    digest.uid(target);
    digest.text(action.as_str());
    digest.number(facts_digest);
    digest.0
}
