//! Random numbers from a seed, in independent streams. A fault that is off does not change the numbers of the other
//! streams.

use engine::jitter::Rng;

#[derive(Clone, Debug)]
pub(crate) struct Random(Rng);

impl Random {
    /// Returns the stream `purpose` of a seed.
    pub(crate) fn new(seed: u64, purpose: u64) -> Random {
        let mut random = Rng::new(seed ^ purpose.wrapping_mul(0xd6e8_feb8_6659_fd93));
        random.next();
        Random(random)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0.next()
    }

    /// Returns a number below `bound`, or 0 if `bound` is 0.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { self.next() % bound }
    }

    /// Returns an index below `len`.
    pub(crate) fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.below(len as u64)).unwrap_or(0)
    }

    /// Returns a number in `low..=high`.
    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low) + 1)
    }

    pub(crate) fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }

    /// Returns true once in `times`.
    pub(crate) fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    pub(crate) fn pick<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        if from.is_empty() { None } else { from.get(self.index(from.len())) }
    }

    /// Returns one of the values, with a probability in proportion to its weight.
    pub(crate) fn weighted<T: Copy>(&mut self, from: &[(u64, T)]) -> T {
        let mut left = self.below(from.iter().map(|(weight, _)| weight).sum());
        for (weight, value) in from {
            if left < *weight {
                return *value;
            }
            left -= weight;
        }
        from[0].1
    }

    /// Returns a delay in nanoseconds, at most `max_ms` milliseconds. Most delays are short.
    pub(crate) fn delay(&mut self, max_ms: u64) -> u64 {
        let max = max_ms.max(1) * 1_000_000;
        let shift = self.below(6);
        1_000 + self.below(max >> shift)
    }
}
