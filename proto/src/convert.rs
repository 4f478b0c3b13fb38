//! Converts engine values to messages and back, with checks of every field.
//!
//! Encoding never fails. Decoding accepts any message. It returns a value that is valid for the engine, or the
//! [`Malformed`] field and the reason. Additions of a newer peer are not malformed: an unknown outcome becomes
//! `Transient`, an unknown action is returned, an unknown message is ignored.
//!
//! Names, references and uids of Kubernetes objects have no length limit here, because the API server sets none on the
//! texts of references. The size of the whole message bounds them.

use engine::work::LeaseId;
use std::time::Duration;

/// Converts an enum to one of the wire whose variants have the same names. With `and back`, the latter also becomes an
/// `Option`, which is `None` for a value that this build does not know.
macro_rules! same_names {
    ($from:ty => $to:ty { $($name:ident),+ $(,)? }) => {
        impl From<$from> for $to {
            fn from(value: $from) -> $to {
                match value {
                    $(<$from>::$name => <$to>::$name,)+
                }
            }
        }
    };
    ($from:ty => $to:ty { $($name:ident),+ $(,)? } and back) => {
        same_names!($from => $to { $($name),+ });

        impl From<$to> for Option<$from> {
            fn from(value: $to) -> Option<$from> {
                match value {
                    <$to>::Unspecified => None,
                    $(<$to>::$name => Some(<$from>::$name),)+
                }
            }
        }
    };
}

mod bypass;
mod clock;
mod decision;
mod field;
mod guard;
mod item;
mod labels;
mod object;
mod parity;
mod pause;
mod query;
mod report;
mod stream;
mod texts;
mod verdicts;
mod view;

pub use bypass::{BypassOrder, CLOCK_AHEAD_MAX};
pub use clock::Clock;
pub use decision::{
    EVENT_MAX_BYTES, LeaderLog, STUB_MAX_BYTES, Standing, bounded, decision_event, decision_id, open_decision,
    parse_decision_id, standing, stub,
};
pub use field::is_dns_subdomain;
pub use guard::guard;
pub use item::kinds;
pub use labels::{REQUIREMENTS_MAX, VALUES_MAX, is_label_key, is_label_value};
pub use parity::{counts, disagreed, parity};
pub use pause::{LIFETIME_MAX, PAUSE_PREFIX, PauseOrder, REASON_MAX_BYTES, SCOPE_MAX, pause};
pub use query::{departure, explanation, gone, pending_work, plan, plan_guard, reason};
pub use stream::{Received, received_from_executor, received_from_leader};
pub use verdicts::invalidated;
pub use view::{collection, delete_time, executor, lag, node_state, obstacle, status, trouble, unsynced};

#[cfg(test)]
mod tests;

/// Maximum length of an executor name, incarnation, version, election uid or cluster uid. Longer versions are cut,
/// longer names are refused.
pub const NAME_MAX_BYTES: usize = 253;
/// Maximum length of a leader's address.
pub const ENDPOINT_MAX_BYTES: usize = 1024;
/// Maximum number of held leases in one hello, far above any window.
pub(crate) const HELD_MAX: usize = 10_000;
/// Maximum number of kinds of work in one hello.
pub(crate) const KINDS_MAX: usize = 100;
/// Maximum duration on the wire. Longer ones are cut when sent and refused when received.
pub(crate) const DURATION_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// A message that violates the protocol. The peer has a bug or is not part of Ownergraph.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("field {field} {why}")]
pub struct Malformed {
    /// Path from the message to the field: `reports[3].term.election_uid`.
    pub field: String,
    /// The error, in words that follow the field's name.
    pub why: String,
}

impl Malformed {
    /// An error in the field itself.
    pub(crate) fn new(field: &str, why: impl Into<String>) -> Malformed {
        Malformed { field: String::from(field), why: why.into() }
    }

    /// The same error, with `parent` in front of its field.
    pub(crate) fn within(self, parent: &str) -> Malformed {
        Malformed { field: format!("{parent}.{}", self.field), why: self.why }
    }
}

/// Why a granted lease is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LeaseError {
    /// The item has an action that this build does not know: return the lease as `KindUnsupported`.
    #[error("lease {lease} has an action that this version does not know")]
    UnknownAction { lease: LeaseId },
    /// The lease violates the protocol.
    #[error(transparent)]
    Malformed(#[from] Malformed),
}
