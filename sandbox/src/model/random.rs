//! Uids and name suffixes from a seed, so that a run can be repeated to the last byte.

use engine::jitter::Rng;

/// A seeded source of uids and generated names.
#[derive(Debug, Clone)]
pub(crate) struct Random(Rng);

/// The characters after a `generateName`: no vowels, and none that look alike.
const SUFFIX_LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
const SUFFIX_LENGTH: usize = 5;

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Rng::new(seed))
    }

    /// A version 4 UUID in canonical lower case.
    pub(crate) fn uid(&mut self) -> String {
        let high = (self.0.next() & 0xffff_ffff_ffff_0fff) | 0x4000;
        let low = (self.0.next() & 0x3fff_ffff_ffff_ffff) | 0x8000_0000_0000_0000;
        let (a, b, c) = (high >> 32, (high >> 16) & 0xffff, high & 0xffff);
        let (d, e) = (low >> 48, low & 0xffff_ffff_ffff);
        format!("{a:08x}-{b:04x}-{c:04x}-{d:04x}-{e:012x}")
    }

    /// The suffix after a `generateName`.
    pub(crate) fn suffix(&mut self) -> String {
        let mut bits = self.0.next();
        let mut suffix = String::with_capacity(SUFFIX_LENGTH);
        for _ in 0..SUFFIX_LENGTH {
            let letters = SUFFIX_LETTERS.len() as u64;
            let index = usize::try_from(bits % letters).unwrap_or(0);
            suffix.push(char::from(SUFFIX_LETTERS[index]));
            bits /= letters;
        }
        suffix
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uids_are_canonical_and_repeat_with_the_seed() {
        let (mut one, mut two) = (Random::new(7), Random::new(7));
        let uid = one.uid();
        assert_eq!(uid, two.uid());
        assert_ne!(uid, one.uid());
        assert_eq!(uid.len(), 36);
        assert_eq!(&uid[14..15], "4");
        assert!("89ab".contains(&uid[19..20]));
        assert_eq!(uid, uid.to_lowercase());
        assert_eq!(one.suffix().len(), SUFFIX_LENGTH);
    }
}
