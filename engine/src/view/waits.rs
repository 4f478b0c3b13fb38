//! Open decisions, by state and age.

use crate::time::Time;
use crate::words::words;
use core::time::Duration;

words! {
    /// The state of a decision, for counts.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Waiting {
        /// Waits for an executor with room.
        Ready = "ready",
        /// Waits for the retry after a failure of its own.
        BackingOff = "backing_off",
        /// Waits for a blocker, with other decisions.
        Blocked = "blocked",
        /// Waits for the end of a pause, for room in a budget, for an approval or a gate, or for readable guards.
        Held = "held",
        /// Stays, because a protection or the object itself holds it.
        Protected = "protected",
        /// Waits for nothing, because the mode is observe.
        Observed = "observed",
        /// An executor has it.
        Leased = "leased",
    }
}

/// Upper bounds of the age classes. The last class has no bound.
pub const AGE_BOUNDS: [Duration; 5] = [
    Duration::from_secs(1),
    Duration::from_secs(10),
    Duration::from_secs(60),
    Duration::from_secs(600),
    Duration::from_secs(3600),
];

/// The number and ages of decisions in one state. Times are cut to seconds, so ages are up to a second too low.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waits {
    pub at: Waiting,
    pub items: usize,
    pub oldest: Option<Time>,
    /// By the bounds of [`AGE_BOUNDS`].
    pub by_age: [usize; AGE_BOUNDS.len() + 1],
}

impl Waits {
    /// No decision is in this state.
    pub fn none(at: Waiting) -> Waits {
        Waits { at, items: 0, oldest: None, by_age: [0; AGE_BOUNDS.len() + 1] }
    }
}
