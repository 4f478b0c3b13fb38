//! The executor's clock.

use engine::time::Time;
use std::time::Duration;
use tokio::time::Instant;

/// Counts from its making. Tokio's clock, so that tests can hold it still; it is the system's monotonic clock, which does not count
/// while the whole machine is suspended. After a suspend the session therefore looks younger than it is, and only the preconditions
/// of a write stand between it and an object that changed meanwhile.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock(Instant);

impl Clock {
    /// A clock that shows zero now.
    pub(crate) fn start() -> Clock {
        Clock(Instant::now())
    }

    pub(crate) fn now(&self) -> Time {
        Time::from_origin(self.0.elapsed())
    }

    /// The moment to sleep until.
    pub(crate) fn instant(&self, time: Time) -> Instant {
        // A time too far to be represented is one nobody waits for.
        self.0.checked_add(time.since_origin()).unwrap_or_else(|| self.0 + Duration::from_secs(86_400 * 365))
    }
}
