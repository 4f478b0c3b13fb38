//! Selectors: the conjunctions of label and annotation requirements that guards use, each with a number.
//!
//! [`Selectors`] numbers the conjunctions and publishes a [`Table`]. A decoder reads the labels and annotations of each
//! object into a [`Matcher`] of that table, which returns the numbers of the selectors that match: the [`Marks`] of the
//! object. The labels themselves are not kept.

use crate::marks::Marks;
use crate::object::Name;
use crate::scope::{Labelled, Requirement, Test};
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

#[cfg(test)]
mod tests;

/// Maximum number of selectors of one process.
pub const SELECTORS_MAX: usize = 1000;
/// Maximum number of requirements of all selectors together.
pub const REQUIREMENTS_MAX: usize = 16 * SELECTORS_MAX;

/// There are [`SELECTORS_MAX`] selectors or [`REQUIREMENTS_MAX`] requirements already. The caller holds everything that
/// the other conditions of the target match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooMany;

/// All selectors of this process. Numbers are never reused.
#[derive(Clone, Debug, Default)]
pub struct Selectors {
    numbers: BTreeMap<Vec<Requirement>, (u16, u32)>,
    table: Arc<Table>,
}

impl Selectors {
    /// The number of the selector with these requirements, and the first generation of the table that has it. The order
    /// and repetition of requirements and values make no difference.
    ///
    /// # Errors
    /// A new selector exceeds a bound.
    pub fn want(&mut self, requirements: &[Requirement]) -> Result<(u16, u32), TooMany> {
        let requirements = canonical(requirements);
        if let Some(&known) = self.numbers.get(&requirements) {
            return Ok(known);
        }
        let number = self.numbers.len();
        if number >= SELECTORS_MAX || self.table.requirements.len() + requirements.len() > REQUIREMENTS_MAX {
            return Err(TooMany);
        }
        let number = u16::try_from(number).map_err(|_| TooMany)?;
        let table = Arc::make_mut(&mut self.table);
        table.add(number, &requirements);
        let known = (number, table.generation);
        self.numbers.insert(requirements, known);
        Ok(known)
    }

    /// The present table. Its generation grows with each new selector.
    pub fn table(&self) -> &Arc<Table> {
        &self.table
    }
}

fn canonical(requirements: &[Requirement]) -> Vec<Requirement> {
    let mut all = requirements.to_vec();
    for requirement in &mut all {
        if let Test::In(values) | Test::NotIn(values) = &mut requirement.test {
            values.sort_unstable();
            values.dedup();
        }
    }
    all.sort_unstable();
    all.dedup();
    all
}

/// The selectors of one generation. The caller gives it to its decoders.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    generation: u32,
    /// The wanted keys of labels and of annotations.
    labels: Texts<Option<Key>>,
    annotations: Texts<Option<Key>>,
    sieve: Sieve,
    /// The requirements on each key.
    keys: Vec<OnKey>,
    /// The selector of each requirement, and whether the requirement holds without the key.
    requirements: Vec<(u16, bool)>,
    /// For each selector, the number of its requirements that an object without labels and annotations fails.
    unmet: Vec<u16>,
    /// The marks of an object without labels and annotations.
    bare: Marks,
}

/// A key that a selector has a requirement on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key(usize);

/// The requirements that a key turns: they hold with this key if they do not hold without, and the reverse. A label
/// with one of many values is looked up, so that its cost does not depend on the number of guards.
#[derive(Clone, Debug, Default, PartialEq)]
struct OnKey {
    /// Turned by every value.
    any: Vec<usize>,
    /// Turned by these values.
    values: Texts<Vec<usize>>,
    /// Turned by a list that has this word.
    words: Texts<Vec<usize>>,
}

/// Texts with what belongs to each, in a hash table with open addressing. Most texts of objects are not among them, and
/// find an empty slot. The texts are those of guards, so that a quick look at a text is enough, without the secret of
/// [`crate::index`].
#[derive(Clone, Debug, PartialEq)]
struct Texts<T> {
    /// The position in `all` of each text, plus one; 0 if the slot is empty. The slot of a text is the first free one
    /// from the place that the upper bits of its number say. The length is a power of two, or 0 without texts.
    slots: Vec<u32>,
    all: Vec<(u64, Name, T)>,
}

/// The wanted keys, and those of their values that turn requirements, as one bit each. Two lines of the cache say of
/// nearly every label that it turns nothing. A bit that two share costs only time.
#[derive(Clone, Debug, PartialEq)]
struct Sieve([u64; 256]);

impl Default for Sieve {
    fn default() -> Sieve {
        Sieve([0; 256])
    }
}

impl Sieve {
    /// Stands for the value in a pair if values that are not in the sieve may turn requirements.
    const ANY: u64 = u64::MAX;

    fn pair(key: u64, value: u64) -> u64 {
        (key.rotate_left(32) ^ value).wrapping_mul(FACTOR)
    }

    #[inline]
    fn has(&self, number: u64) -> bool {
        self.0[(number >> 56) as usize] >> (number >> 50 & 63) & 1 == 1
    }

    fn add(&mut self, number: u64) {
        self.0[(number >> 56) as usize] |= 1 << (number >> 50 & 63);
    }

    fn add_test(&mut self, key: &Name, test: &Test) {
        let key = number_of(key.as_bytes());
        self.add(key);
        match test {
            Test::In(values) | Test::NotIn(values) => {
                values.iter().for_each(|value| self.add(Sieve::pair(key, number_of(value.as_bytes()))));
            }
            Test::Exists | Test::DoesNotExist | Test::Lists(_) => self.add(Sieve::pair(key, Sieve::ANY)),
        }
    }
}

/// An odd number without a pattern.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// A number that depends on the length, the begin and the end of a text, in its upper bits on all of them. Texts that
/// differ only between share a number, and are searched one by one. They are those of guards.
#[inline]
fn number_of(text: &[u8]) -> u64 {
    let ends = if let (Some(begin), Some(end)) = (text.first_chunk(), text.last_chunk()) {
        u64::from_le_bytes(*begin).rotate_left(29) ^ u64::from_le_bytes(*end)
    } else if let (Some(begin), Some(end)) = (text.first_chunk(), text.last_chunk()) {
        u64::from(u32::from_le_bytes(*begin)) << 32 | u64::from(u32::from_le_bytes(*end))
    } else {
        text.iter().fold(0, |ends, &byte| ends << 8 | u64::from(byte))
    };
    (ends ^ text.len() as u64).wrapping_mul(FACTOR)
}

impl<T> Default for Texts<T> {
    fn default() -> Texts<T> {
        Texts { slots: vec![], all: vec![] }
    }
}

impl<T: Default> Texts<T> {
    /// There are at least as many slots for each text.
    const SLOTS_EACH: usize = 8;

    /// The first slot of a number.
    #[inline]
    fn home(&self, number: u64) -> usize {
        (number >> (64 - self.slots.len().trailing_zeros())) as usize
    }

    /// The place of a text: the slot that has it, or else the empty slot after which a search ends.
    fn place(&self, number: u64, text: &[u8]) -> (usize, Option<usize>) {
        let mut slot = self.home(number);
        loop {
            let Some(at) = (self.slots[slot] as usize).checked_sub(1) else { return (slot, None) };
            let (of, known, _) = &self.all[at];
            if *of == number && known.as_bytes() == text {
                return (slot, Some(at));
            }
            slot = (slot + 1) % self.slots.len();
        }
    }

    #[inline]
    fn get(&self, text: &[u8]) -> Option<&T> {
        if self.slots.is_empty() {
            return None;
        }
        let number = number_of(text);
        if self.slots[self.home(number)] == 0 { None } else { self.found(number, text) }
    }

    #[inline(never)]
    fn found(&self, number: u64, text: &[u8]) -> Option<&T> {
        self.place(number, text).1.map(|at| &self.all[at].2)
    }

    fn entry(&mut self, text: &Name) -> &mut T {
        let number = number_of(text.as_bytes());
        self.make_room();
        let at = match self.place(number, text.as_bytes()) {
            (_, Some(at)) => at,
            (slot, None) => {
                self.all.push((number, text.clone(), T::default()));
                self.slots[slot] =
                    u32::try_from(self.all.len()).expect("the requirements and their values are bounded");
                self.all.len() - 1
            }
        };
        &mut self.all[at].2
    }

    /// Makes room for one more text.
    fn make_room(&mut self) {
        let length = ((self.all.len() + 1) * Texts::<T>::SLOTS_EACH).next_power_of_two();
        if length <= self.slots.len() {
            return;
        }
        self.slots = vec![0; length];
        for at in 0..self.all.len() {
            let (number, text, _) = &self.all[at];
            let (slot, _) = self.place(*number, text.as_bytes());
            self.slots[slot] = u32::try_from(at + 1).expect("the requirements and their values are bounded");
        }
    }
}

impl OnKey {
    fn add(&mut self, test: &Test, requirement: usize) {
        match test {
            Test::In(values) | Test::NotIn(values) => {
                for value in values {
                    self.values.entry(value).push(requirement);
                }
            }
            Test::Exists | Test::DoesNotExist => self.any.push(requirement),
            Test::Lists(word) => self.words.entry(word).push(requirement),
        }
    }

    /// Adds the requirements that this value turns, each once.
    #[inline]
    fn turn(&self, value: &str, turned: &mut Vec<usize>) {
        let begin = turned.len();
        turned.extend(&self.any);
        turned.extend(self.values.get(value.as_bytes()).into_iter().flatten());
        if self.words.all.is_empty() {
            return;
        }
        turned.extend(value.split(',').filter_map(|word| self.words.get(word.trim().as_bytes())).flatten());
        // A list may repeat a word.
        turned[begin..].sort_unstable();
        let mut end = begin;
        for at in begin..turned.len() {
            if at == begin || turned[at] != turned[end - 1] {
                turned[end] = turned[at];
                end += 1;
            }
        }
        turned.truncate(end);
    }
}

impl Table {
    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// Whether there are no selectors, so that no label or annotation has to be read.
    pub fn is_empty(&self) -> bool {
        self.unmet.is_empty()
    }

    fn add(&mut self, number: u16, requirements: &[Requirement]) {
        let mut unmet = 0;
        for Requirement { of, key, test } in requirements {
            let keys = match of {
                Labelled::Label => &mut self.labels,
                Labelled::Annotation => &mut self.annotations,
            };
            let Key(at) = *keys.entry(key).get_or_insert(Key(self.keys.len()));
            if at == self.keys.len() {
                self.keys.push(OnKey::default());
            }
            self.keys[at].add(test, self.requirements.len());
            self.sieve.add_test(key, test);
            let holds = test.holds_without();
            unmet += u16::from(!holds);
            self.requirements.push((number, holds));
        }
        self.unmet.push(unmet);
        if unmet == 0 {
            let mut bare = self.bare.numbers().to_vec();
            bare.push(number);
            self.bare = Marks::of(&bare);
        }
        self.generation += 1;
    }
}

impl Test {
    /// Whether the test holds for an object without the key.
    fn holds_without(&self) -> bool {
        match self {
            Test::NotIn(_) | Test::DoesNotExist => true,
            Test::In(_) | Test::Exists | Test::Lists(_) => false,
        }
    }
}

/// Matches one object after another. It allocates only for a set of marks that differs from that of the object before.
#[derive(Debug)]
pub struct Matcher {
    table: Arc<Table>,
    /// The requirements that the present object turns, in the order of its keys.
    turned: Vec<usize>,
    /// The keys of the present object that turn requirements, each with the number of these in `turned`.
    keys: Vec<(Key, usize)>,
    /// Whether each key is in `keys`.
    seen: Vec<bool>,
    /// For each selector, the number of requirements that do not hold. Between objects, as in the table.
    unmet: Vec<u16>,
    found: Vec<u16>,
    /// The selectors that the last object turned, and its marks.
    last: (Vec<usize>, Marks),
}

impl Matcher {
    pub fn new(table: Arc<Table>) -> Matcher {
        let (unmet, bare) = (table.unmet.clone(), table.bare.clone());
        let seen = vec![false; table.keys.len()];
        Matcher { table, turned: vec![], keys: vec![], seen, unmet, found: vec![], last: (vec![], bare) }
    }

    pub fn table(&self) -> &Arc<Table> {
        &self.table
    }

    /// Whether a label or annotation may change what the present object turns, or may be refused. Only then it needs
    /// [`Matcher::wants`], which costs more. Few do.
    #[inline]
    pub fn may_want(&self, key: &[u8], value: &[u8]) -> bool {
        let key = number_of(key);
        self.table.sieve.has(key) && self.may_turn(key, value)
    }

    fn may_turn(&self, key: u64, value: &[u8]) -> bool {
        let sieve = &self.table.sieve;
        // A repeated key takes back what its value before turned. A wanted key refuses a value that is not UTF-8.
        !self.turned.is_empty()
            || sieve.has(Sieve::pair(key, number_of(value)))
            || sieve.has(Sieve::pair(key, Sieve::ANY))
            || !value.is_ascii()
    }

    /// The key, if a selector has a requirement on it, so that its value has to be read.
    #[inline]
    pub fn wants(&self, of: Labelled, key: impl AsRef<[u8]>) -> Option<Key> {
        let key = key.as_ref();
        match of {
            Labelled::Label => self.table.labels.get(key).copied().flatten(),
            Labelled::Annotation => self.table.annotations.get(key).copied().flatten(),
        }
    }

    /// Takes one label or annotation of the present object. The last value of a repeated key counts.
    #[inline]
    pub fn take(&mut self, key: Key, value: &str) {
        if self.seen[key.0] {
            self.take_back(key);
        }
        let Matcher { table, turned, keys, seen, .. } = self;
        let begin = turned.len();
        table.keys[key.0].turn(value, turned);
        if turned.len() > begin {
            keys.push((key, turned.len() - begin));
            seen[key.0] = true;
        }
    }

    /// Removes what an earlier value of the key turned.
    #[cold]
    fn take_back(&mut self, key: Key) {
        let Matcher { turned, keys, seen, .. } = self;
        let mut begin = 0;
        keys.retain(|&(of, count)| {
            if of == key {
                turned.drain(begin..begin + count);
            } else {
                begin += count;
            }
            of != key
        });
        seen[key.0] = false;
    }

    /// The marks of the present object. The next label or annotation is of another object.
    #[inline]
    pub fn finish(&mut self) -> Marks {
        // Most objects. A comparison of two empty lists costs a tenth of the decoding, because it reads nothing from
        // addresses that do not exist.
        if self.turned.is_empty() { self.table.bare.clone() } else { self.settle() }
    }

    fn settle(&mut self) -> Marks {
        let Matcher { table, turned, keys, seen, unmet, found, last } = self;
        keys.drain(..).for_each(|(key, _)| seen[key.0] = false);
        if *turned == last.0 {
            turned.clear();
            return last.1.clone();
        }
        found.clear();
        found.extend(table.bare.numbers());
        for &requirement in &*turned {
            let (selector, holds) = table.requirements[requirement];
            let unmet = &mut unmet[usize::from(selector)];
            *unmet = if holds { *unmet + 1 } else { *unmet - 1 };
            found.push(selector);
        }
        found.sort_unstable();
        found.dedup();
        found.retain(|&selector| unmet[usize::from(selector)] == 0);
        for &requirement in &*turned {
            let selector = usize::from(table.requirements[requirement].0);
            unmet[selector] = table.unmet[selector];
        }
        if last.1.numbers() != &**found {
            last.1 = Marks::of(found);
        }
        core::mem::swap(&mut last.0, turned);
        turned.clear();
        last.1.clone()
    }
}
