//! Makes inputs from other inputs. The same seed gives the same inputs.

use crate::random::Random;

/// Bytes with a meaning in the formats.
const TELLING: &[&[u8]] = &[
    b"\0",
    b"\xff",
    b"\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    b"\x80",
    b"\n",
    b"\"",
    b"{",
    b"}",
    b"[[[[",
    b"null",
    b"-1",
    b"18446744073709551616",
    b"1e999",
    b"\xed\xa0\x80",
    b"\\u0000",
    b"\xc3",
    b".",
    b":",
    b"((((",
    b"k8s\0",
];
/// The maximum length of an input.
const BYTES_MAX: usize = 64 * 1024;

/// Makes inputs.
#[derive(Debug)]
pub struct Mutator(Random);

impl Mutator {
    pub fn new(seed: u64) -> Mutator {
        Mutator(Random::new(seed, 0))
    }

    /// Returns a changed copy of one input, or of two.
    pub fn input(&mut self, corpus: &[Vec<u8>]) -> Vec<u8> {
        let mut input = self.one_of(corpus);
        for _ in 0..=self.below(4) {
            let (at, length) = self.part(&input);
            match self.below(7) {
                0 => {
                    if let Some(byte) = input.get_mut(at) {
                        *byte ^= 1 << (length % 8);
                    }
                }
                1 => drop(input.drain(at..at + length)),
                2 => {
                    let telling = TELLING[self.below(TELLING.len())];
                    input.splice(at..at + length.min(telling.len()), telling.iter().copied());
                }
                3 => {
                    let repeated = input[at..at + length].repeat(1 + self.below(8));
                    input.splice(at..at, repeated);
                }
                4 => {
                    let other = self.one_of(corpus);
                    let (from, many) = self.part(&other);
                    input.splice(at..at + length, other[from..from + many].iter().copied());
                }
                5 => input.truncate(at),
                _ => {
                    let byte = u8::try_from(self.below(256)).unwrap_or_default();
                    input.insert(at, byte);
                }
            }
            input.truncate(BYTES_MAX);
        }
        input
    }

    fn one_of(&mut self, corpus: &[Vec<u8>]) -> Vec<u8> {
        corpus.get(self.below(corpus.len().max(1))).cloned().unwrap_or_default()
    }

    /// Draws the beginning and the length of a part of these bytes. Most parts are short.
    fn part(&mut self, bytes: &[u8]) -> (usize, usize) {
        let at = self.below(bytes.len() + 1);
        let rest = bytes.len() - at;
        let most = if self.below(4) == 0 { rest } else { rest.min(8) };
        (at, self.below(most + 1))
    }

    fn below(&mut self, bound: usize) -> usize {
        self.0.index(bound)
    }
}
