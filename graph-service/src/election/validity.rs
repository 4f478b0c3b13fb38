//! Until when this process may act as leader, for those who cannot wait to be told that it no longer may.

use crate::clock::Clock;
use engine::time::Time;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A process that stood still wakes up with everything at once: messages to answer, events to judge, and the end of its term somewhere
/// among them. Whoever is about to grant looks here first. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Validity(Arc<AtomicU64>);

impl Validity {
    /// Never over.
    pub(crate) fn endless() -> Validity {
        Validity(Arc::new(AtomicU64::new(u64::MAX)))
    }

    /// `None` where this process does not lead.
    pub(crate) fn set(&self, until: Option<Time>) {
        // To the nanosecond, as the elector counts: where only one of the two takes the term for over, nobody leads.
        let nanos = until.map_or(0, |until| u64::try_from(until.since_origin().as_nanos()).unwrap_or(u64::MAX));
        self.0.store(nanos, Ordering::SeqCst);
    }

    /// Nothing may be done as leader now.
    pub(crate) fn is_over(&self, clock: Clock) -> bool {
        clock.now().since_origin().as_nanos() >= u128::from(self.0.load(Ordering::SeqCst))
    }
}
