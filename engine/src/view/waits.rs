//! How much is decided and not done, by where it waits and for how long.

use crate::time::Time;
use core::time::Duration;

/// Where a decision waits, for counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Waiting {
    /// For an executor with room.
    Ready,
    /// For the next try after a failure of its own.
    BackingOff,
    /// With others, for what refuses all of them.
    Blocked,
    /// For the end of a pause, or for word which pauses there are.
    Held,
    /// For nothing: the mode is observe, in which it is never granted.
    Observed,
    /// An executor has it.
    Leased,
}

impl Waiting {
    /// All of them.
    pub const ALL: [Waiting; 6] =
        [Waiting::Ready, Waiting::BackingOff, Waiting::Blocked, Waiting::Held, Waiting::Observed, Waiting::Leased];

    /// The word for logs and labels.
    pub fn as_str(self) -> &'static str {
        match self {
            Waiting::Ready => "ready",
            Waiting::BackingOff => "backing_off",
            Waiting::Blocked => "blocked",
            Waiting::Held => "held",
            Waiting::Observed => "observed",
            Waiting::Leased => "leased",
        }
    }
}

/// Ages are counted below each of these, and from the last one on.
pub const AGE_BOUNDS: [Duration; 5] = [
    Duration::from_secs(1),
    Duration::from_secs(10),
    Duration::from_secs(60),
    Duration::from_secs(600),
    Duration::from_secs(3600),
];

/// How many decisions wait at one place, and since when. Times are cut to seconds, so that ages come out up to a second too low.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waits {
    pub at: Waiting,
    pub items: usize,
    pub oldest: Option<Time>,
    /// By the bounds of [`AGE_BOUNDS`].
    pub by_age: [usize; AGE_BOUNDS.len() + 1],
}

impl Waits {
    /// Nothing waits there.
    pub fn none(at: Waiting) -> Waits {
        Waits { at, items: 0, oldest: None, by_age: [0; AGE_BOUNDS.len() + 1] }
    }
}
