//! Converts instants of the engine to dates.

use engine::time::Time;
use std::time::SystemTime;

/// Maps the engine's instants to the calendar. Both fields are the same moment.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    pub now: Time,
    pub calendar: SystemTime,
}

impl Clock {
    /// The date of `time`.
    pub fn timestamp(self, time: Time) -> prost_types::Timestamp {
        self.calendar.checked_sub(self.now.since(time)).unwrap_or(SystemTime::UNIX_EPOCH).into()
    }

    /// The date of a moment that may be in the future.
    pub fn later(self, time: Time) -> prost_types::Timestamp {
        self.calendar.checked_add(time.since(self.now)).map_or_else(|| self.timestamp(time), Into::into)
    }
}
