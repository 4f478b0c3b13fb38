//! Instants as arguments: the engine has no clock.

use core::fmt;
use core::ops::Add;
use core::time::Duration;

/// A monotonic instant: nanoseconds since an origin that only the caller knows.
///
/// The shells count from the start of their process on a clock that includes suspends. The simulator counts virtual
/// time. Two processes never compare instants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Time(u64);

impl Time {
    /// The origin.
    pub const ZERO: Time = Time(0);

    /// The instant `since_origin` after the origin. Saturates after 584 years.
    pub fn from_origin(since_origin: Duration) -> Time {
        Time(u64::try_from(since_origin.as_nanos()).unwrap_or(u64::MAX))
    }

    /// The time since the origin.
    pub fn since_origin(self) -> Duration {
        Duration::from_nanos(self.0)
    }

    /// The next multiple of `step` since the origin.
    pub(crate) fn rounded_up(self, step: Duration) -> Time {
        let step = u64::try_from(step.as_nanos()).unwrap_or(u64::MAX).max(1);
        Time(self.0.div_ceil(step).saturating_mul(step))
    }

    /// The time since `earlier`; zero if it is not earlier.
    pub fn since(self, earlier: Time) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Time {
    type Output = Time;

    fn add(self, span: Duration) -> Time {
        Time(self.0.saturating_add(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.since_origin())
    }
}
