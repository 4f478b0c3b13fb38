//! The clocks of processes: each has an origin and a rate of its own.

use super::world::S;
use crate::random::Random;
use engine::time::Time;
use std::time::Duration;

/// A process's clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    /// What it showed at the world's origin, in nanoseconds.
    origin: u64,
    /// Of its seconds in a thousand seconds of the world.
    rate: u64,
}

impl Clock {
    /// A clock that is wrong by at most `skew` per mille.
    pub(super) fn draw(random: &mut Random, skew: u64) -> Clock {
        Clock { origin: random.between(0, 1000) * S, rate: random.between(1000 - skew, 1000 + skew) }
    }

    /// The objects it shows when the world is at `now`.
    pub(super) fn local(self, now: u64) -> Time {
        Time::from_origin(Duration::from_nanos(self.origin + now * self.rate / 1000))
    }

    /// When in the world it first shows `local`.
    pub(super) fn world(self, local: Time) -> u64 {
        let since = u64::try_from(local.since_origin().as_nanos()).unwrap_or(u64::MAX).saturating_sub(self.origin);
        since.saturating_mul(1000).div_ceil(self.rate)
    }
}
