//! The time until which this process may act as leader, for code that cannot wait for a message.

use engine::time::Time;
use runtime::clock::Clock;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A suspended process wakes up to messages, events and the end of its term in any order. Code that is about to grant
/// checks this time first. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Validity(Arc<AtomicU64>);

impl Validity {
    /// A term without an end.
    pub(crate) fn endless() -> Validity {
        Validity(Arc::new(AtomicU64::new(u64::MAX)))
    }

    /// `None` if this process does not lead. Returns whether the previous time was over until now, so that other code
    /// may have seen the end of the term.
    pub(crate) fn set(&self, until: Option<Time>, clock: Clock) -> bool {
        // In nanoseconds, as in the elector. If only one of the two saw the end of the term, no replica would lead.
        let nanos = until.map_or(0, |until| u64::try_from(until.since_origin().as_nanos()).unwrap_or(u64::MAX));
        let previous = self.0.swap(nanos, Ordering::SeqCst);
        has_passed(previous, clock)
    }

    /// Whether this process must not act as leader.
    pub(crate) fn is_over(&self, clock: Clock) -> bool {
        has_passed(self.0.load(Ordering::SeqCst), clock)
    }
}

fn has_passed(nanos: u64, clock: Clock) -> bool {
    clock.now().since_origin().as_nanos() >= u128::from(nanos)
}
