//! The engine's time: counted from the start of the process.

use engine::time::Time;
use std::time::Duration;
use tokio::time::Instant;

/// Counts from the start of the process. Monotonic; follows tokio's clock, so that a paused one is paused here too.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    origin: Instant,
}

impl Clock {
    pub(crate) fn start() -> Clock {
        Clock { origin: Instant::now() }
    }

    pub(crate) fn now(self) -> Time {
        Time::from_origin(self.origin.elapsed())
    }

    pub(crate) fn instant(self, time: Time) -> Instant {
        // An instant beyond what the platform can count is as good as one in a year.
        let far = Duration::from_secs(365 * 24 * 3600);
        self.origin.checked_add(time.since_origin()).unwrap_or_else(|| Instant::now() + far)
    }

    /// How long ago that was; zero for what lies ahead.
    pub(crate) fn age(self, time: Time) -> Duration {
        self.now().since(time)
    }
}
