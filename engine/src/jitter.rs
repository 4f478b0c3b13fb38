//! Random numbers from a seed, so that a run can be replayed. All code of this tree that needs random numbers takes
//! them from here.

use core::time::Duration;

/// splitmix64: every seed is a good one, and the state is eight bytes. Not a source of secrets.
#[derive(Clone, Debug)]
pub struct Rng {
    state: u64,
}

impl Rng {
    pub fn new(seed: u64) -> Rng {
        Rng { state: seed }
    }

    /// Evenly spread over all 64 bits.
    #[expect(clippy::should_implement_trait, reason = "it has no end, so it is no iterator")]
    pub fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A span in `low..=high`; `low` if `low` is above `high`.
    pub fn between(&mut self, low: Duration, high: Duration) -> Duration {
        let spread = u64::try_from(high.saturating_sub(low).as_nanos()).unwrap_or(u64::MAX);
        let extra = match spread.checked_add(1) {
            Some(bound) => self.next() % bound,
            None => self.next(),
        };
        low.saturating_add(Duration::from_nanos(extra))
    }
}

/// Delays that double from `min` to `max`. Each delay is drawn evenly from the upper half of its step, so that clients
/// that failed together do not retry together.
#[derive(Clone, Debug)]
pub struct Backoff {
    min: Duration,
    max: Duration,
    step: Duration,
    pub(crate) jitter: Rng,
}

impl Backoff {
    /// `min` must be above zero and not above `max`. Two instances with the same seed give the same delays.
    pub fn new(min: Duration, max: Duration, seed: u64) -> Backoff {
        assert!(Duration::ZERO < min && min <= max, "a backoff from {min:?} to {max:?} has no delays");
        Backoff { min, max, step: min, jitter: Rng::new(seed) }
    }

    /// The delay before the next attempt: between half of the current step and all of it.
    pub fn next_delay(&mut self) -> Duration {
        let step = self.step;
        self.step = (step * 2).min(self.max);
        self.jitter.between(step / 2, step)
    }

    /// Begins again at `min`, after a success.
    pub fn reset(&mut self) {
        self.step = self.min;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_stay_in_their_bounds_and_repeat_by_seed() {
        let (low, high) = (Duration::from_millis(100), Duration::from_millis(120));
        let (mut one, mut two) = (Rng::new(7), Rng::new(7));
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

    #[test]
    fn each_delay_lies_in_the_upper_half_of_its_step() {
        let (min, max) = (Duration::from_millis(100), Duration::from_secs(5));
        for seed in 0..200 {
            let mut backoff = Backoff::new(min, max, seed);
            for round in 0..2 {
                for attempt in 0..80 {
                    let step = (min * (1 << attempt.min(10))).min(max);
                    let delay = backoff.next_delay();
                    assert!(
                        step / 2 <= delay && delay <= step,
                        "seed {seed} round {round} attempt {attempt}: {delay:?}"
                    );
                }
                backoff.reset();
            }
        }
    }

    #[test]
    fn seeds_part_the_herd_and_repeat_themselves() {
        let delays = |seed| {
            let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60), seed);
            [backoff.next_delay(), backoff.next_delay(), backoff.next_delay()]
        };
        assert_eq!(delays(1), delays(1));
        assert_ne!(delays(1), delays(2));
    }
}
