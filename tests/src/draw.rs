//! Randomness from a seed (SplitMix64).

#[derive(Clone, Debug)]
pub(crate) struct Draw {
    state: u64,
}

impl Draw {
    pub(crate) fn new(seed: u64) -> Draw {
        let mut draw = Draw { state: seed };
        draw.next();
        draw
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// An index below `len`, which is not 0.
    pub(crate) fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.next() % (len.max(1) as u64)).unwrap_or(0)
    }

    /// In `low..=high`.
    pub(crate) fn between(&mut self, low: usize, high: usize) -> usize {
        low + self.index(high - low + 1)
    }

    pub(crate) fn percent(&mut self, chance: usize) -> bool {
        self.index(100) < chance
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> Option<T> {
        if from.is_empty() { None } else { from.get(self.index(from.len())).copied() }
    }

    /// One of the values, as often as its weight says.
    pub(crate) fn weighted<T: Copy>(&mut self, from: &[(usize, T)]) -> T {
        let mut left = self.index(from.iter().map(|(weight, _)| weight).sum());
        for (weight, value) in from {
            if left < *weight {
                return *value;
            }
            left -= weight;
        }
        from[0].1
    }
}
