//! An index by hash, in eight and a half bytes for each entry.
//!
//! It uses open addressing. An entry is half of the hash and a number; the caller compares the object of that number.
//! The table is split into shards, because one table of ten million entries would stop for half a second when it grows.
//! The hash has a secret, because users write references and thus choose keys.
//!
//! Many entries of one hash would need a linear search. So the table holds only the first few entries of a hash. The
//! others are a crowd: a tree, ordered by a second hash from the caller.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::hash::{Hash, Hasher};

/// Highest load of a shard. A full shard grows by a half.
const FULL: (usize, usize) = (6, 7);
const SMALLEST: usize = 8;
/// Maximum number of entries of one hash in the table.
const FEW: usize = 16;
/// Not a valid entry: numbers start at 1.
const EMPTY: u64 = 0;

/// Numbers by hash.
#[derive(Debug)]
pub(crate) struct Index {
    shards: Vec<Shard>,
    /// By hash: second hash and number of entries that are not in the table.
    crowds: BTreeMap<u64, BTreeSet<(u64, u32)>>,
    secret: u64,
}

#[derive(Clone, Debug, Default)]
struct Shard {
    /// The low half of the hash, and the number plus one. Entries of one hash are in the order of arrival.
    slots: Vec<u64>,
    len: usize,
}

impl Index {
    /// An empty index with this number of shards, a power of two.
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

    /// All numbers with this hash, and possibly some with a similar one. A few are in the order of arrival.
    pub(crate) fn get(&self, hash: u64) -> impl Iterator<Item = u32> + Clone + use<'_> {
        self.few(hash).chain(self.crowd(hash).into_iter().flatten().map(|&(_, number)| number))
    }

    /// The numbers in the table: a few, and promoted ones.
    pub(crate) fn few(&self, hash: u64) -> impl Iterator<Item = u32> + Clone + use<'_> {
        let shard = &self.shards[self.shard(hash)];
        let start = if shard.slots.is_empty() { 0 } else { shard.home(hash as u32) };
        let (before, after) = shard.slots.split_at(start);
        let run = after.iter().chain(before).take_while(|&&slot| slot != EMPTY);
        run.filter(move |&&slot| tag(slot) == hash as u32).map(|&slot| number(slot))
    }

    /// Reads the home slot of this hash, to bring it into the processor's cache.
    pub(crate) fn glance(&self, hash: u64) -> u64 {
        let shard = &self.shards[self.shard(hash)];
        shard.slots.get(shard.home(hash as u32)).copied().unwrap_or(EMPTY)
    }

    /// Whether some entries with this hash are in a crowd.
    pub(crate) fn is_crowded(&self, hash: u64) -> bool {
        self.crowd(hash).is_some()
    }

    /// The entries in the crowd of this hash with this second hash.
    pub(crate) fn crowded(&self, hash: u64, second: u64) -> impl Iterator<Item = u32> + use<'_> {
        let of_hash = self.crowd(hash).into_iter();
        of_hash.flat_map(move |crowd| crowd.range((second, 0)..=(second, u32::MAX)).map(|&(_, number)| number))
    }

    fn crowd(&self, hash: u64) -> Option<&BTreeSet<(u64, u32)>> {
        if self.crowds.is_empty() { None } else { self.crowds.get(&hash) }
    }

    /// Adds an entry. The second hash finds it among many entries with the same first hash.
    pub(crate) fn put(&mut self, hash: u64, second: u64, number: u32) {
        let shard = self.shard(hash);
        if self.is_crowded(hash) || !self.shards[shard].put(entry(hash, number), FEW) {
            self.crowds.entry(hash).or_default().insert((second, number));
        }
    }

    /// Moves an entry from a crowd into the table.
    pub(crate) fn promote(&mut self, hash: u64, second: u64, number: u32) {
        if self.take_from_crowd(hash, second, number) {
            let shard = self.shard(hash);
            self.shards[shard].put(entry(hash, number), usize::MAX);
        }
    }

    /// Removes an entry.
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
    /// The home slot of a tag. Larger tags are never before smaller ones, for any number of slots.
    fn home(&self, tag: u32) -> usize {
        ((u64::from(tag) * self.slots.len() as u64) >> 32) as usize
    }

    /// Returns false and adds nothing if there are `most` entries with this hash.
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
        // Starts at a gap, so that entries of one hash keep their order.
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
        // Moves the following entries up to the next gap, where their home slot allows it.
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

/// Multiplies and folds eight bytes at a time.
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
    use crate::jitter::Rng;
    use alloc::collections::BTreeMap;

    #[test]
    fn holds_what_a_map_of_lists_holds() {
        for seed in 0..100 {
            let mut random = Rng::new(seed);
            let (mut index, mut naive) = (Index::new(1 << (seed % 3), seed), BTreeMap::<u64, Vec<u32>>::new());
            for number in 0..3000 {
                // Few hashes, some of which differ only in the half that is not stored.
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
                // A crowd has another order.
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
