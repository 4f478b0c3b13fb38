//! What a report says beside how its attempt ended: what it is about, and how the audit log names its write.

use super::{ActionKind, WorkItem};
use crate::object::{Digest, ObjectRef, Uid};
use alloc::string::String;

/// Longest name of an entry in an audit log.
pub const AUDIT_ID_MAX_BYTES: usize = 64;

/// The name of an entry in an audit log, as far as it is one: visible ASCII characters, cut.
pub fn audit_id(text: &str) -> String {
    text.chars().filter(char::is_ascii_graphic).take(AUDIT_ID_MAX_BYTES).collect()
}

/// What a lease was about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct About {
    pub target: ObjectRef,
    pub action: ActionKind,
    /// [`WorkItem::decision`].
    pub decision: u64,
}

impl WorkItem {
    /// The same for the same action on the same object by the same facts, on every replica and under every term.
    pub fn decision(&self) -> u64 {
        decision(&self.target.uid, self.action.kind(), self.preconditions.facts_digest)
    }
}

/// The same for the same action on the same object by the same facts.
pub(crate) fn decision(target: &Uid, action: ActionKind, facts_digest: u64) -> u64 {
    let mut digest = Digest::default();
    digest.uid(target);
    digest.text(action.as_str());
    digest.number(facts_digest);
    digest.0
}
