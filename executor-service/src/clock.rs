//! The time of the engine: it counts from the start of the process.

use engine::time::Time;
use tokio::time::Instant;

/// The clock of the process, in the engine's type.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock(runtime::clock::Clock);

impl Clock {
    /// A clock that shows zero now.
    pub(crate) fn start() -> Clock {
        Clock(runtime::clock::Clock::start())
    }

    pub(crate) fn now(&self) -> Time {
        Time::from_origin(self.0.now())
    }

    /// The moment to sleep until.
    pub(crate) fn instant(&self, time: Time) -> Instant {
        self.0.instant(time.since_origin())
    }
}
