//! Randomness from a seed, in independent streams, so that taking one fault away leaves the other draws as they were.

/// SplitMix64.
#[derive(Clone, Debug)]
pub(super) struct Random {
    state: u64,
}

impl Random {
    /// The stream `purpose` of a seed.
    pub(super) fn new(seed: u64, purpose: u64) -> Random {
        let mut random = Random { state: seed ^ purpose.wrapping_mul(0xd6e8_feb8_6659_fd93) };
        random.next();
        random
    }

    pub(super) fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Below `bound`; 0 for a bound of 0.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { self.next() % bound }
    }

    /// An index below `len`.
    pub(super) fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.below(len as u64)).unwrap_or(0)
    }

    /// In `low..=high`.
    pub(super) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low) + 1)
    }

    pub(super) fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }

    /// True once in `times`.
    pub(super) fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    pub(super) fn pick<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        if from.is_empty() { None } else { from.get(self.index(from.len())) }
    }

    /// Mostly short, sometimes long: nanoseconds up to `max_ms` milliseconds.
    pub(super) fn delay(&mut self, max_ms: u64) -> u64 {
        let max = max_ms.max(1) * 1_000_000;
        let shift = self.below(6);
        1_000 + self.below(max >> shift)
    }
}
