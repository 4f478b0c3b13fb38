//! The current time as answers show it.

use runtime::clock::Clock;
use std::time::SystemTime;

/// The current time, with its date.
pub(crate) fn wire(clock: Clock) -> proto::convert::Clock {
    proto::convert::Clock { now: clock.now(), calendar: SystemTime::now() }
}
