//! Random numbers from a seed, in independent streams. Without one fault, the other streams give the same numbers.

use engine::jitter::Rng;

#[derive(Clone, Debug)]
pub(crate) struct Random(Rng);

impl Random {
    /// The stream `purpose` of a seed.
    pub(crate) fn new(seed: u64, purpose: u64) -> Random {
        let mut random = Rng::new(seed ^ purpose.wrapping_mul(0xd6e8_feb8_6659_fd93));
        random.next();
        Random(random)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0.next()
    }

    /// Below `bound`; 0 for a bound of 0.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { self.next() % bound }
    }

    /// An index below `len`.
    pub(crate) fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.below(len as u64)).unwrap_or(0)
    }

    /// In `low..=high`.
    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low) + 1)
    }

    pub(crate) fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }

    /// True once in `times`.
    pub(crate) fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    pub(crate) fn pick<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        if from.is_empty() { None } else { from.get(self.index(from.len())) }
    }

    /// One of the values, as often as its weight says.
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

    /// Mostly short, sometimes long: nanoseconds up to `max_ms` milliseconds.
    pub(crate) fn delay(&mut self, max_ms: u64) -> u64 {
        let max = max_ms.max(1) * 1_000_000;
        let shift = self.below(6);
        1_000 + self.below(max >> shift)
    }
}
