//! Time since the start of the process, on a clock that includes suspends of the machine.

use engine::time::Time;
use std::time::Duration;
use tokio::time::Instant;

/// An instant that is never reached, and that every platform's clock can represent.
const FAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// A clock that starts at its creation. It follows tokio's clock, so that a test with a paused clock pauses this one.
/// It adds the time that the machine was suspended, because leases expire during a suspend.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: Instant,
    suspended: Duration,
}

impl Clock {
    /// A clock that shows zero now.
    pub fn start() -> Clock {
        Clock { origin: Instant::now(), suspended: suspended() }
    }

    /// The engine's time: counted from the start.
    pub fn now(self) -> Time {
        Time::from_origin(self.origin.elapsed() + suspended().saturating_sub(self.suspended))
    }

    /// The moment to sleep until. A suspend before it delays the wake-up; it never comes early.
    pub fn instant(self, time: Time) -> Instant {
        let slept = suspended().saturating_sub(self.suspended);
        self.origin.checked_add(time.since_origin().saturating_sub(slept)).unwrap_or_else(|| Instant::now() + FAR)
    }

    /// The time since `time`; zero for a time in the future.
    pub fn age(self, time: Time) -> Duration {
        self.now().since(time)
    }
}

/// The time for which the machine has been suspended since boot.
#[cfg(target_os = "linux")]
fn suspended() -> Duration {
    use rustix::time::{ClockId, clock_gettime};

    let read = |clock| {
        let time = clock_gettime(clock);
        Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
    };
    // The order matters: the time between the two reads then looks like a suspend of nanoseconds, and never like time
    // that ran backwards.
    let awake = read(ClockId::Monotonic);
    let difference = read(ClockId::Boottime).saturating_sub(awake);
    // Less than a millisecond is the time between the two reads.
    if difference < Duration::from_millis(1) { Duration::ZERO } else { difference }
}

/// On other systems the monotonic clock continues during a suspend.
#[cfg(not(target_os = "linux"))]
fn suspended() -> Duration {
    Duration::ZERO
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn it_follows_the_paused_clock_and_gives_back_instants() {
        let clock = Clock::start();
        let origin = Instant::now();
        tokio::time::advance(Duration::from_secs(7)).await;
        let shown = clock.now().since_origin();
        assert!(shown >= Duration::from_secs(7) && shown < Duration::from_secs(8), "{shown:?}");
        let instant = clock.instant(Time::from_origin(Duration::from_secs(9)));
        assert!(instant <= origin + Duration::from_secs(9) && instant > origin + Duration::from_secs(8));
        assert!(clock.instant(Time::from_origin(Duration::MAX)) > Instant::now());
    }
}
