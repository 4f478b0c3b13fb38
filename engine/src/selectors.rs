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
    /// The wanted keys of labels and of annotations, with the requirements on each.
    labels: BTreeMap<Name, Vec<usize>>,
    annotations: BTreeMap<Name, Vec<usize>>,
    /// The requirements of all selectors, each with the number of its selector.
    requirements: Vec<(u16, Test)>,
    /// For each selector, the number of its requirements that an object without labels and annotations fails.
    unmet: Vec<u16>,
    /// The marks of an object without labels and annotations.
    bare: Marks,
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
            keys.entry(key.clone()).or_default().push(self.requirements.len());
            unmet += u16::from(!test.holds(None));
            self.requirements.push((number, test.clone()));
        }
        self.unmet.push(unmet);
        if unmet == 0 {
            let mut bare = self.bare.numbers().to_vec();
            bare.push(number);
            self.bare = Marks::of(&bare);
        }
        self.generation += 1;
    }

    fn on(&self, of: Labelled, key: &str) -> Option<&Vec<usize>> {
        match of {
            Labelled::Label => self.labels.get(key),
            Labelled::Annotation => self.annotations.get(key),
        }
    }
}

impl Test {
    /// Whether the test holds for this value, or for an absent key.
    pub fn holds(&self, value: Option<&str>) -> bool {
        let among = |values: &[Name]| value.is_some_and(|value| values.iter().any(|one| **one == *value));
        match self {
            Test::In(values) => among(values),
            Test::NotIn(values) => !among(values),
            Test::Exists => value.is_some(),
            Test::DoesNotExist => value.is_none(),
            Test::Lists(word) => value.is_some_and(|value| value.split(',').any(|one| one.trim() == &**word)),
        }
    }
}

/// Matches one object after another. It allocates only for a set of marks that differs from that of the object before.
#[derive(Debug)]
pub struct Matcher {
    table: Arc<Table>,
    /// Whether each requirement holds, by the labels and annotations read so far.
    holds: Vec<bool>,
    /// Whether the object has the key of each requirement.
    seen: Vec<bool>,
    /// For each selector, the number of requirements that do not hold.
    unmet: Vec<u16>,
    /// The requirements whose keys the object has.
    touched: Vec<usize>,
    found: Vec<u16>,
    last: Marks,
}

impl Matcher {
    pub fn new(table: Arc<Table>) -> Matcher {
        let holds: Vec<bool> = table.requirements.iter().map(|(_, test)| test.holds(None)).collect();
        let seen = vec![false; holds.len()];
        let unmet = table.unmet.clone();
        Matcher { last: table.bare.clone(), table, holds, seen, unmet, touched: vec![], found: vec![] }
    }

    pub fn table(&self) -> &Arc<Table> {
        &self.table
    }

    /// Whether a selector has a requirement on this key, so that its value has to be read.
    pub fn wants(&self, of: Labelled, key: &str) -> bool {
        self.table.on(of, key).is_some()
    }

    /// Takes one label or annotation of the present object. The last value of a repeated key counts.
    pub fn take(&mut self, of: Labelled, key: &str, value: &str) {
        let Matcher { table, holds, seen, unmet, touched, .. } = self;
        for &at in table.on(of, key).into_iter().flatten() {
            let (selector, test) = &table.requirements[at];
            let now = test.holds(Some(value));
            let unmet = &mut unmet[usize::from(*selector)];
            match (holds[at], now) {
                (false, true) => *unmet -= 1,
                (true, false) => *unmet += 1,
                (true, true) | (false, false) => {}
            }
            holds[at] = now;
            if !seen[at] {
                seen[at] = true;
                touched.push(at);
            }
        }
    }

    /// The marks of the present object. The next label or annotation is of another object.
    pub fn finish(&mut self) -> Marks {
        if self.touched.is_empty() {
            return self.table.bare.clone();
        }
        let Matcher { table, holds, seen, unmet, touched, found, last } = self;
        found.clear();
        found.extend(table.bare.numbers());
        found.extend(touched.iter().map(|&at| table.requirements[at].0));
        found.sort_unstable();
        found.dedup();
        found.retain(|&selector| unmet[usize::from(selector)] == 0);
        for at in touched.drain(..) {
            let (selector, test) = &table.requirements[at];
            (holds[at], seen[at]) = (test.holds(None), false);
            unmet[usize::from(*selector)] = table.unmet[usize::from(*selector)];
        }
        if last.numbers() != &**found {
            *last = Marks::of(found);
        }
        last.clone()
    }
}
