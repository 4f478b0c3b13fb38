//! Randomness for waits: a seeded generator, so that a run can be replayed.

use core::time::Duration;

/// splitmix64. Good enough to spread retries, and eight bytes of state.
#[derive(Clone, Debug)]
pub(crate) struct Jitter {
    state: u64,
}

impl Jitter {
    pub(crate) fn new(seed: u64) -> Jitter {
        Jitter { state: seed }
    }

    /// Evenly spread over all 64 bits.
    pub(crate) fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A span in `low..=high`; `low` where the bounds are the wrong way round.
    pub(crate) fn between(&mut self, low: Duration, high: Duration) -> Duration {
        let spread = u64::try_from(high.saturating_sub(low).as_nanos()).unwrap_or(u64::MAX);
        let extra = match spread.checked_add(1) {
            Some(bound) => self.next() % bound,
            None => self.next(),
        };
        low.saturating_add(Duration::from_nanos(extra))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_stay_in_their_bounds_and_repeat_by_seed() {
        let (low, high) = (Duration::from_millis(100), Duration::from_millis(120));
        let (mut one, mut two) = (Jitter::new(7), Jitter::new(7));
        let mut seen = [false; 2];
        for _ in 0..1_000 {
            let span = one.between(low, high);
            assert!((low..=high).contains(&span));
            assert_eq!(span, two.between(low, high));
            seen[usize::from(span > Duration::from_millis(110))] = true;
        }
        assert_eq!(seen, [true, true]);
        assert_eq!(one.between(high, low), high);
        assert_eq!(one.between(Duration::ZERO, Duration::ZERO), Duration::ZERO);
    }
}
