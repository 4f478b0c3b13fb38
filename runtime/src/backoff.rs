//! Delays between attempts. Pure: it neither sleeps nor reads a clock.

use std::time::Duration;

/// Delays that double from `min` to `max`, each drawn evenly from the upper half of its step, so that many who failed
/// together do not come back together.
#[derive(Debug, Clone)]
pub struct Backoff {
    min: Duration,
    max: Duration,
    step: Duration,
    random: u64,
}

impl Backoff {
    /// `min` must be above zero and not above `max`. Two with one seed give the same delays.
    pub fn new(min: Duration, max: Duration, seed: u64) -> Backoff {
        assert!(Duration::ZERO < min && min <= max, "a backoff from {min:?} to {max:?} has no delays");
        Backoff { min, max, step: min, random: seed }
    }

    /// The delay before the next attempt: between half of the present step and all of it.
    pub fn next_delay(&mut self) -> Duration {
        let step = self.step;
        self.step = (step * 2).min(self.max);
        let fraction = f64::from(self.draw()) / f64::from(u32::MAX);
        step / 2 + (step / 2).mul_f64(fraction)
    }

    /// Begins again at `min`, after a success.
    pub fn reset(&mut self) {
        self.step = self.min;
    }

    /// SplitMix64: any seed will do, and the quality is far above what jitter needs.
    fn draw(&mut self) -> u32 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed >> 32) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
