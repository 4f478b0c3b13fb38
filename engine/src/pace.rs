//! Writes per second: a rate, and a token bucket.

use crate::time::Time;
use core::fmt;
use core::time::Duration;

/// Writes per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Rate {
    /// In millionths of a write, so that a small share of a rate is not rounded to zero.
    micros: u64,
}

/// One write in the unit of a bucket's level: a rate in millionths times nanoseconds.
const ONE: i128 = 1_000_000_000_000_000;
/// A bucket with a waiting caller saves the writes of this time, so that clocks with a coarse tick keep up with a high
/// rate.
const TICK: Duration = Duration::from_millis(20);
/// A bucket without a waiting caller saves the writes of this time, and never more than one write. So all buckets that
/// share a rate save at most one second of it together.
const SAVED: Duration = Duration::from_secs(1);
/// The highest rate.
const MICROS_MAX: u64 = 1_000_000_000_000;

impl Rate {
    /// No writes.
    pub const ZERO: Rate = Rate { micros: 0 };

    /// The rate of this many writes each second.
    pub fn per_second(writes: u32) -> Rate {
        Rate::from_micros(u64::from(writes) * 1_000_000)
    }

    /// Millionths of a write each second; at most a million writes.
    pub fn from_micros(micros: u64) -> Rate {
        Rate { micros: micros.min(MICROS_MAX) }
    }

    /// Millionths of a write each second.
    pub fn micros(self) -> u64 {
        self.micros
    }

    pub(crate) fn divided(self, parts: usize) -> Rate {
        Rate { micros: self.micros / u64::try_from(parts).unwrap_or(u64::MAX).max(1) }
    }

    pub(crate) fn plus(self, other: Rate) -> Rate {
        Rate::from_micros(self.micros.saturating_add(other.micros))
    }

    /// Whole writes in this time.
    pub(crate) fn writes_in(self, span: Duration) -> usize {
        usize::try_from(self.worth(span) / ONE).unwrap_or(usize::MAX)
    }

    fn worth(self, span: Duration) -> i128 {
        let nanos = i128::try_from(span.as_nanos()).unwrap_or(i128::MAX);
        i128::from(self.micros).saturating_mul(nanos)
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}/s", self.micros / 1_000_000, self.micros % 1_000_000 / 100_000)
    }
}

/// A token bucket.
#[derive(Debug)]
pub(crate) struct Bucket {
    rate: Rate,
    /// Negative if more writes were sent than the rate allowed so far.
    level: i128,
    filled: Time,
    /// A caller asked for a write when the bucket was empty.
    awaited: bool,
}

impl Bucket {
    /// A bucket that is empty at `since`.
    pub(crate) fn new(since: Time, rate: Rate) -> Bucket {
        Bucket { rate, level: 0, filled: since, awaited: false }
    }

    pub(crate) fn rate(&self) -> Rate {
        self.rate
    }

    /// Tokens so far accrue at the old rate.
    pub(crate) fn set_rate(&mut self, now: Time, rate: Rate) {
        self.fill(now);
        self.rate = rate;
    }

    /// Sets the level so that the bucket holds exactly one write at `at`, and none earlier.
    pub(crate) fn hold_until(&mut self, at: Time) {
        (self.level, self.filled) = (ONE, at);
    }

    /// Deducts `writes` that were already sent.
    pub(crate) fn owe(&mut self, writes: u32) {
        self.level -= i128::from(writes) * ONE;
    }

    /// Takes one write, if there is one.
    pub(crate) fn take(&mut self, now: Time) -> bool {
        self.fill(now);
        self.awaited = now < self.filled || self.level < ONE || self.rate == Rate::ZERO;
        if !self.awaited {
            self.level -= ONE;
        }
        !self.awaited
    }

    /// Records that no caller waits now.
    pub(crate) fn rest(&mut self, now: Time) {
        self.fill(now);
        self.awaited = false;
    }

    /// The time of the next write. `None` at a rate of zero.
    pub(crate) fn next(&self) -> Option<Time> {
        if self.rate == Rate::ZERO {
            return None;
        }
        let missing = u128::try_from(ONE - self.level).unwrap_or(0);
        let nanos = missing.div_ceil(u128::from(self.rate.micros));
        Some(self.filled + Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)))
    }

    fn fill(&mut self, now: Time) {
        let most = if self.awaited { self.rate.worth(TICK).max(ONE) } else { self.rate.worth(SAVED).min(ONE) };
        let span = now.since(self.filled);
        if span > Duration::ZERO {
            self.filled = now;
            self.level = self.level.saturating_add(self.rate.worth(span)).min(most.max(0));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Time {
        Time::from_origin(Duration::from_millis(millis))
    }

    /// The number of writes between two moments, requested as soon as possible.
    fn gone(bucket: &mut Bucket, from: Time, to: Time) -> usize {
        let mut now = from;
        let mut gone = 0;
        while now < to {
            if bucket.take(now) {
                gone += 1;
            } else {
                now = bucket.next().unwrap_or(to).max(now);
            }
        }
        gone
    }

    #[test]
    fn writes_go_at_the_rate_and_not_faster() {
        for rate in [1, 7, 100, 5_000] {
            let mut bucket = Bucket::new(at(0), Rate::per_second(rate));
            let in_ten = gone(&mut bucket, at(0), at(10_000));
            assert!((10 * rate as usize - 1..=10 * rate as usize).contains(&in_ten), "{in_ten} at {rate}");
        }
    }

    #[test]
    fn a_coarse_tick_does_not_slow_a_high_rate_down() {
        let mut bucket = Bucket::new(at(0), Rate::per_second(5_000));
        let mut gone = 0;
        for millis in (0..1_000).step_by(10) {
            while bucket.take(at(millis)) {
                gone += 1;
            }
        }
        assert!((4_800..=5_000).contains(&gone), "{gone}");
    }

    #[test]
    fn many_buckets_save_up_no_more_than_a_second_together() {
        for parts in [1, 8, 1_000] {
            let mut saved = 0;
            for _ in 0..parts {
                let mut bucket = Bucket::new(at(0), Rate::per_second(10).divided(parts));
                bucket.rest(at(3_600_000));
                saved += gone(&mut bucket, at(3_600_000), at(3_600_001));
            }
            assert!(saved <= 10, "{saved} from {parts}");
        }
    }

    #[test]
    fn what_was_written_beyond_is_waited_for() {
        let mut bucket = Bucket::new(at(0), Rate::per_second(10));
        assert_eq!(gone(&mut bucket, at(0), at(1_000)), 9);
        bucket.owe(5);
        assert_eq!(gone(&mut bucket, at(1_000), at(2_000)), 5);
        bucket.set_rate(at(2_000), Rate::ZERO);
        assert!(!bucket.take(at(3_600_000)) && bucket.next().is_none());
    }
}
