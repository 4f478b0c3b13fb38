//! The time of the engine: it counts from the start of the process.

use engine::time::Time;
use std::time::{Duration, SystemTime};
use tokio::time::Instant;

/// The clock of the process, in the engine's type.
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

    /// This moment, with its calendar date.
    pub(crate) fn wire(self) -> proto::convert::Clock {
        proto::convert::Clock { now: self.now(), calendar: SystemTime::now() }
    }

    /// How long ago `time` was; zero for a time in the future.
    pub(crate) fn age(self, time: Time) -> Duration {
        self.now().since(time)
    }
}
