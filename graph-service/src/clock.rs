//! The engine's time: counted from the start of the process.

use engine::time::Time;
use std::time::{Duration, SystemTime};
use tokio::time::Instant;

/// The process's clock, in the engine's terms.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock(runtime::clock::Clock);

impl Clock {
    pub(crate) fn start() -> Clock {
        Clock(runtime::clock::Clock::start())
    }

    pub(crate) fn now(self) -> Time {
        Time::from_origin(self.0.now())
    }

    pub(crate) fn instant(self, time: Time) -> Instant {
        self.0.instant(time.since_origin())
    }

    /// This moment, with the date that it is written as.
    pub(crate) fn wire(self) -> proto::convert::Clock {
        proto::convert::Clock { now: self.now(), calendar: SystemTime::now() }
    }

    /// How long ago that was; zero for what lies ahead.
    pub(crate) fn age(self, time: Time) -> Duration {
        self.now().since(time)
    }
}
