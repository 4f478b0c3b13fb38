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

/// The selectors of one generation. The shell gives it to its decoders.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    generation: u32,
    /// The wanted keys of labels and of annotations.
    labels: Texts<Option<Key>>,
    annotations: Texts<Option<Key>>,
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

/// The requirements that a key turns: they hold with this key if they do not hold without, and the reverse. A label with
/// one of many values is looked up, so that its cost does not depend on the number of guards.
#[derive(Clone, Debug, Default, PartialEq)]
struct OnKey {
    /// Turned by every value.
    any: Vec<usize>,
    /// Turned by these values.
    values: Texts<Vec<usize>>,
    /// Turned by a list that has this word.
    words: Texts<Vec<usize>>,
}

/// Texts with what belongs to each. Most texts of objects are not among them, and differ from all of them in length. The
/// set of lengths fits into one line of the cache, so that these texts cost no more than that line.
#[derive(Clone, Debug, Default, PartialEq)]
struct Texts<T> {
    /// A bit for each length.
    lengths: [u64; 5],
    /// By length.
    all: Vec<Vec<(Name, T)>>,
}

impl<T: Default> Texts<T> {
    /// The longest label has as many bytes. Longer texts are in one place.
    const LENGTH_MAX: usize = 317;

    fn place(text: &[u8]) -> usize {
        text.len().min(Texts::<T>::LENGTH_MAX)
    }

    fn get(&self, text: &[u8]) -> Option<&T> {
        let place = Texts::<T>::place(text);
        if self.lengths[place / 64] >> (place % 64) & 1 == 0 {
            return None;
        }
        let of = self.all.get(place)?;
        let at = of.binary_search_by(|(known, _)| known.as_bytes().cmp(text)).ok()?;
        Some(&of[at].1)
    }

    fn entry(&mut self, text: &Name) -> &mut T {
        let place = Texts::<T>::place(text.as_bytes());
        if self.all.len() <= place {
            self.all.resize_with(place + 1, Vec::new);
        }
        self.lengths[place / 64] |= 1 << (place % 64);
        let of = &mut self.all[place];
        let at = match of.binary_search_by(|(known, _)| known.cmp(text)) {
            Ok(at) => at,
            Err(at) => {
                of.insert(at, (text.clone(), T::default()));
                at
            }
        };
        &mut of[at].1
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
    /// The wanted keys of the present object, each with the number of its requirements in `turned`.
    keys: Vec<(Key, usize)>,
    /// Whether the present object has each key.
    seen: Vec<bool>,
    /// For each selector, the number of requirements that do not hold. Between objects, as in the table.
    unmet: Vec<u16>,
    found: Vec<u16>,
    /// What the last object turned, and its marks.
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

    /// The key, if a selector has a requirement on it, so that its value has to be read.
    pub fn wants(&self, of: Labelled, key: impl AsRef<[u8]>) -> Option<Key> {
        let key = key.as_ref();
        match of {
            Labelled::Label => self.table.labels.get(key).copied().flatten(),
            Labelled::Annotation => self.table.annotations.get(key).copied().flatten(),
        }
    }

    /// Takes one label or annotation of the present object. The last value of a repeated key counts.
    pub fn take(&mut self, key: Key, value: &str) {
        let Matcher { table, turned, keys, seen, .. } = self;
        if core::mem::replace(&mut seen[key.0], true) {
            let mut begin = 0;
            keys.retain_mut(|(of, count)| {
                let is_it = *of == key;
                if is_it {
                    turned.drain(begin..begin + *count);
                } else {
                    begin += *count;
                }
                !is_it
            });
        }
        let begin = turned.len();
        table.keys[key.0].turn(value, turned);
        keys.push((key, turned.len() - begin));
    }

    /// The marks of the present object. The next label or annotation is of another object.
    pub fn finish(&mut self) -> Marks {
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
