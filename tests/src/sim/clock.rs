//! The clocks of processes. Each clock has its own origin and its own rate.

use super::world::S;
use crate::random::Random;
use engine::time::Time;
use std::time::Duration;

/// A process's clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    /// The reading at the origin of the world, in nanoseconds.
    origin: u64,
    /// The seconds that the clock counts in a thousand seconds of the world.
    rate: u64,
}

impl Clock {
    /// Draws a clock whose rate is wrong by at most `skew` per mille.
    pub(super) fn draw(random: &mut Random, skew: u64) -> Clock {
        Clock { origin: random.between(0, 1000) * S, rate: random.between(1000 - skew, 1000 + skew) }
    }

    /// The reading of the clock at the time `now` of the world.
    pub(super) fn local(self, now: u64) -> Time {
        Time::from_origin(Duration::from_nanos(self.origin + now * self.rate / 1000))
    }

    /// The first time of the world at which the clock reads `local`.
    pub(super) fn world(self, local: Time) -> u64 {
        let since = u64::try_from(local.since_origin().as_nanos()).unwrap_or(u64::MAX).saturating_sub(self.origin);
        since.saturating_mul(1000).div_ceil(self.rate)
    }
}
