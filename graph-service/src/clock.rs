//! The current time as answers show it.

use runtime::clock::Clock;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

/// If the calendar is set by more than this, dates follow it.
const SET_MIN: Duration = Duration::from_secs(1);

/// The current time, with its date.
pub(crate) fn wire(clock: Clock) -> proto::convert::Clock {
    proto::convert::Clock { now: clock.now(), calendar: SystemTime::now() }
}

/// Dates for answers that show the same instants again. The clock and the calendar are read one after the other, so
/// that each pair of reads gives an instant another date, microseconds apart. The dates of one pair stay.
#[derive(Debug, Default)]
pub(crate) struct Dates(Mutex<Option<proto::convert::Clock>>);

impl Dates {
    /// The current time, with its date.
    pub(crate) fn wire(&self, clock: Clock) -> proto::convert::Clock {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Dates::as_of(&mut kept, wire(clock))
    }

    fn as_of(kept: &mut Option<proto::convert::Clock>, read: proto::convert::Clock) -> proto::convert::Clock {
        let calendar = kept.and_then(|kept| kept.calendar.checked_add(read.now.since(kept.now)));
        let apart =
            |calendar: SystemTime| calendar.duration_since(read.calendar).unwrap_or_else(|earlier| earlier.duration());
        match calendar.filter(|&calendar| apart(calendar) <= SET_MIN) {
            Some(calendar) => proto::convert::Clock { calendar, ..read },
            None => *kept.insert(read),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::time::Time;
    use proto::convert::Clock;

    #[test]
    fn dates_stay_until_the_calendar_is_set() {
        let mut kept = None;
        let mut date = |now_ms: u64, calendar_ms: u64| {
            let calendar = SystemTime::UNIX_EPOCH + Duration::from_millis(calendar_ms);
            let read = Clock { now: Time::from_origin(Duration::from_millis(now_ms)), calendar };
            let date = Dates::as_of(&mut kept, read).timestamp(Time::from_origin(Duration::from_millis(500)));
            date.to_string()
        };
        assert_eq!(date(1_000, 2_000), "1970-01-01T00:00:01.500Z");
        assert_eq!(date(9_000, 10_003), "1970-01-01T00:00:01.500Z", "the calendar was read 3 ms later");
        assert_eq!(date(9_500, 9_600), "1970-01-01T00:00:01.500Z");
        assert_eq!(date(10_000, 71_000), "1970-01-01T00:01:01.500Z", "set by a minute");
        assert_eq!(date(11_000, 72_001), "1970-01-01T00:01:01.500Z");
    }
}
