//! Finds what was put in by a hash of it, in eight bytes and a half for each.
//!
//! Open addressing. An entry is half of the hash and a number; whoever asks compares what the number stands for. The table is in shards:
//! one table of ten million entries would stand still for half a second whenever it grows. The hash has a secret, because references and
//! with them keys are written by users.
//!
//! Very many entries of one hash would be found by looking at each of them. Those beyond the first few are a crowd: they are in a tree, in the
//! order of a second hash that each brings.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::hash::{Hash, Hasher};

/// A growing shard becomes larger by a half; it is at most so full.
const FULL: (usize, usize) = (6, 7);
const SMALLEST: usize = 8;
/// Entries of one hash in the table.
const FEW: usize = 16;
/// Never part of an entry, whose number is at least 1.
const EMPTY: u64 = 0;

/// Numbers by hash.
#[derive(Debug)]
pub(crate) struct Index {
    shards: Vec<Shard>,
    /// By hash: the second hash and the number of those that are not in the table.
    crowds: BTreeMap<u64, BTreeSet<(u64, u32)>>,
    secret: u64,
}

#[derive(Clone, Debug, Default)]
struct Shard {
    /// The low half of the hash, and the number plus one. Those of one hash are in the order in which they came.
    slots: Vec<u64>,
    len: usize,
}

impl Index {
    /// An empty one of so many shards, a power of two.
    pub(crate) fn new(shards: usize, secret: u64) -> Index {
        debug_assert!(shards.is_power_of_two());
        Index { shards: alloc::vec![Shard::default(); shards], crowds: BTreeMap::new(), secret: secret | 1 }
    }

    pub(crate) fn secret(&self) -> u64 {
        self.secret
    }

    pub(crate) fn hash(&self, key: &(impl Hash + ?Sized)) -> u64 {
        let mut mixer = Mixer { state: self.secret.rotate_left(32), secret: self.secret };
        key.hash(&mut mixer);
        mixer.finish()
    }

    /// Every number that was put in with this hash, and perhaps some of another that looks like it. A few are in the order in which they came.
    pub(crate) fn get(&self, hash: u64) -> impl Iterator<Item = u32> + Clone + use<'_> {
        self.few(hash).chain(self.crowd(hash).into_iter().flatten().map(|&(_, number)| number))
    }

    /// Of these, the ones that are not in a crowd: a few, and those that were promoted.
    pub(crate) fn few(&self, hash: u64) -> impl Iterator<Item = u32> + Clone + use<'_> {
        let shard = &self.shards[self.shard(hash)];
        let start = if shard.slots.is_empty() { 0 } else { shard.home(hash as u32) };
        let (before, after) = shard.slots.split_at(start);
        let run = after.iter().chain(before).take_while(|&&slot| slot != EMPTY);
        run.filter(move |&&slot| tag(slot) == hash as u32).map(|&slot| number(slot))
    }

    /// What is where an entry of this hash would be if it were alone.
    pub(crate) fn glance(&self, hash: u64) -> u64 {
        let shard = &self.shards[self.shard(hash)];
        shard.slots.get(shard.home(hash as u32)).copied().unwrap_or(EMPTY)
    }

    /// Whether some that were put in with this hash are in a crowd.
    pub(crate) fn is_crowded(&self, hash: u64) -> bool {
        self.crowd(hash).is_some()
    }

    /// Of the crowd of this hash, those that were put in with this second one.
    pub(crate) fn crowded(&self, hash: u64, second: u64) -> impl Iterator<Item = u32> + use<'_> {
        let of_hash = self.crowd(hash).into_iter();
        of_hash.flat_map(move |crowd| crowd.range((second, 0)..=(second, u32::MAX)).map(|&(_, number)| number))
    }

    fn crowd(&self, hash: u64) -> Option<&BTreeSet<(u64, u32)>> {
        if self.crowds.is_empty() { None } else { self.crowds.get(&hash) }
    }

    /// The second hash finds it again where very many have the first.
    pub(crate) fn put(&mut self, hash: u64, second: u64, number: u32) {
        let shard = self.shard(hash);
        if self.is_crowded(hash) || !self.shards[shard].put(entry(hash, number), FEW) {
            self.crowds.entry(hash).or_default().insert((second, number));
        }
    }

    /// Puts an entry that is in a crowd into the table.
    pub(crate) fn promote(&mut self, hash: u64, second: u64, number: u32) {
        if self.take_from_crowd(hash, second, number) {
            let shard = self.shard(hash);
            self.shards[shard].put(entry(hash, number), usize::MAX);
        }
    }

    /// Takes out what was put in.
    pub(crate) fn take(&mut self, hash: u64, second: u64, number: u32) {
        if !self.take_from_crowd(hash, second, number) {
            let shard = self.shard(hash);
            self.shards[shard].take(entry(hash, number));
        }
    }

    fn take_from_crowd(&mut self, hash: u64, second: u64, number: u32) -> bool {
        if self.crowds.is_empty() {
            return false;
        }
        let Some(crowd) = self.crowds.get_mut(&hash) else { return false };
        let was_there = crowd.remove(&(second, number));
        if crowd.is_empty() {
            self.crowds.remove(&hash);
        }
        was_there
    }

    /// Bytes of the tables.
    pub(crate) fn footprint(&self) -> usize {
        self.shards.iter().map(|shard| shard.slots.capacity() * size_of::<u64>()).sum()
    }

    pub(crate) fn len(&self) -> usize {
        let crowds: usize = self.crowds.values().map(BTreeSet::len).sum();
        self.shards.iter().map(|shard| shard.len).sum::<usize>() + crowds
    }

    fn shard(&self, hash: u64) -> usize {
        (hash >> 32) as usize & (self.shards.len() - 1)
    }
}

impl Shard {
    /// Where an entry would be if it were alone. Larger tags are never before smaller ones, however many slots there are.
    fn home(&self, tag: u32) -> usize {
        ((u64::from(tag) * self.slots.len() as u64) >> 32) as usize
    }

    /// False, and nothing is put in, where so many of its hash are there already.
    fn put(&mut self, entry: u64, most: usize) -> bool {
        if self.len * FULL.1 >= self.slots.len() * FULL.0 {
            self.grow();
        }
        let is_in = self.place(entry, most);
        self.len += usize::from(is_in);
        is_in
    }

    fn place(&mut self, entry: u64, most: usize) -> bool {
        let (mut at, mut alike) = (self.home(tag(entry)), 0);
        while self.slots[at] != EMPTY {
            alike += usize::from(tag(self.slots[at]) == tag(entry));
            at = self.after(at);
        }
        if alike >= most {
            return false;
        }
        self.slots[at] = entry;
        true
    }

    fn grow(&mut self) {
        let size = (self.slots.len() + self.slots.len() / 2).max(SMALLEST);
        let old = core::mem::replace(&mut self.slots, alloc::vec![EMPTY; size]);
        // From a gap on, so that those of one hash stay in their order.
        let gap = old.iter().position(|&slot| slot == EMPTY).unwrap_or(0);
        let (before, after) = old.split_at(gap);
        for &entry in after.iter().chain(before).filter(|&&slot| slot != EMPTY) {
            self.place(entry, usize::MAX);
        }
    }

    fn take(&mut self, entry: u64) {
        if self.slots.is_empty() {
            return;
        }
        let mut hole = self.home(tag(entry));
        while self.slots[hole] != entry {
            if self.slots[hole] == EMPTY {
                return;
            }
            hole = self.after(hole);
        }
        self.len -= 1;
        // Whatever comes after, without a gap, moves up if it may.
        let mut at = self.after(hole);
        while self.slots[at] != EMPTY {
            let home = self.home(tag(self.slots[at]));
            if self.distance(home, at) >= self.distance(hole, at) {
                self.slots[hole] = self.slots[at];
                hole = at;
            }
            at = self.after(at);
        }
        self.slots[hole] = EMPTY;
    }

    fn after(&self, at: usize) -> usize {
        if at + 1 == self.slots.len() { 0 } else { at + 1 }
    }

    fn distance(&self, from: usize, to: usize) -> usize {
        if to >= from { to - from } else { to + self.slots.len() - from }
    }
}

fn entry(hash: u64, number: u32) -> u64 {
    debug_assert!(number < u32::MAX);
    (u64::from(hash as u32) << 32) | (u64::from(number) + 1)
}

fn tag(slot: u64) -> u32 {
    (slot >> 32) as u32
}

fn number(slot: u64) -> u32 {
    (slot as u32).wrapping_sub(1)
}

/// Multiplies and folds, eight bytes at a time.
struct Mixer {
    state: u64,
    secret: u64,
}

impl Mixer {
    fn mix(&mut self, word: u64) {
        let product = u128::from(self.state ^ word) * u128::from(self.secret);
        self.state = product as u64 ^ (product >> 64) as u64;
    }
}

impl Hasher for Mixer {
    fn write(&mut self, bytes: &[u8]) {
        let mut words = bytes.chunks_exact(8);
        for word in words.by_ref() {
            self.mix(u64::from_le_bytes(word.try_into().expect("a word has eight bytes")));
        }
        let rest = words.remainder().iter().fold(bytes.len() as u64, |word, &byte| (word << 8) | u64::from(byte));
        self.mix(rest);
    }

    fn finish(&self) -> u64 {
        let product = u128::from(self.state ^ 0x9e37_79b9_7f4a_7c15) * u128::from(self.secret);
        product as u64 ^ (product >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jitter::Jitter;
    use alloc::collections::BTreeMap;

    #[test]
    fn holds_what_a_map_of_lists_holds() {
        for seed in 0..100 {
            let mut random = Jitter::new(seed);
            let (mut index, mut naive) = (Index::new(1 << (seed % 3), seed), BTreeMap::<u64, Vec<u32>>::new());
            for number in 0..3000 {
                // Few hashes, some of which differ in the half that is not kept.
                let hash = ((random.next() % 200) << 25) | ((random.next() % 2) << 40);
                let here = naive.entry(hash).or_default();
                if random.next().is_multiple_of(2) || here.is_empty() {
                    index.put(hash, u64::from(number) % 7, number);
                    here.push(number);
                } else {
                    let gone = here.remove(random.next() as usize % here.len());
                    index.take(hash, u64::from(gone) % 7, gone);
                }
            }
            assert_eq!(index.len(), naive.values().map(Vec::len).sum::<usize>(), "seed {seed}");
            for (&hash, numbers) in &naive {
                let mut found: Vec<u32> = index.get(hash).filter(|found| numbers.contains(found)).collect();
                // A crowd is in another order.
                if index.is_crowded(hash) {
                    found.sort_unstable();
                }
                assert_eq!(found, *numbers, "seed {seed}: those of one hash, in order");
            }
        }
    }

    #[test]
    fn one_of_a_crowd_is_found_by_its_second_hash_and_can_be_promoted() {
        let mut index = Index::new(1, 7);
        for number in 0..10_000 {
            index.put(1, u64::from(number), number);
        }
        assert_eq!((index.few(1).count(), index.get(1).count(), index.len()), (FEW, 10_000, 10_000));
        assert_eq!(index.crowded(1, 9000).collect::<Vec<_>>(), [9000]);
        index.promote(1, 9000, 9000);
        assert_eq!((index.few(1).last(), index.crowded(1, 9000).next()), (Some(9000), None));
        index.put(1 << 31, 0, 10_000);
        assert_eq!(index.get(1 << 31).collect::<Vec<_>>(), [10_000], "another hash is not in its way");
        for number in 0..10_000 {
            index.take(1, u64::from(number), number);
        }
        assert_eq!((index.get(1).count(), index.is_crowded(1), index.len()), (0, false, 1));
    }

    #[test]
    fn hashes_differ_by_secret_and_by_every_byte() {
        let (one, other) = (Index::new(1, 1), Index::new(1, 0x1234_5678_9abc_def1));
        assert_ne!(one.hash("a"), other.hash("a"));
        let hashes = ["", "a", "b", "aa", "aaaaaaaa", "aaaaaaab", "aaaaaaaaa"].map(|text| other.hash(text));
        let distinct: BTreeSet<u64> = hashes.into_iter().collect();
        assert_eq!(distinct.len(), hashes.len());
    }
}
