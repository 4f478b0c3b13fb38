//! Values that many nodes share. Each is stored once, while it has users.

use crate::index::Index;
use alloc::vec::Vec;
use core::hash::Hash;

/// Values by number.
#[derive(Debug)]
pub(super) struct Interner<T> {
    values: Vec<Option<Kept<T>>>,
    free: Vec<u32>,
    index: Index,
}

#[derive(Debug)]
struct Kept<T> {
    value: T,
    /// The number of users.
    users: u32,
}

impl<T: Hash + Eq> Interner<T> {
    pub(super) fn new(secret: u64) -> Interner<T> {
        Interner { values: Vec::new(), free: Vec::new(), index: Index::new(1, secret) }
    }

    /// The number of this value, with one more user.
    pub(super) fn put(&mut self, value: T) -> u32 {
        if let Some(number) = self.find(&value) {
            self.kept_mut(number).users += 1;
            return number;
        }
        let number = self.free.pop().unwrap_or_else(|| {
            self.values.push(None);
            u32::try_from(self.values.len() - 1).expect("fewer than 2^32 values")
        });
        self.index.put(self.index.hash(&value), 0, number);
        self.values[number as usize] = Some(Kept { value, users: 1 });
        number
    }

    /// The number of this value, if it has users.
    pub(super) fn find(&self, value: &T) -> Option<u32> {
        self.index.get(self.index.hash(value)).find(|&number| self.kept(number).value == *value)
    }

    pub(super) fn get(&self, number: u32) -> &T {
        &self.kept(number).value
    }

    /// All values with users.
    pub(super) fn values(&self) -> impl Iterator<Item = &T> {
        self.values.iter().flatten().map(|kept| &kept.value)
    }

    /// Removes one user.
    pub(super) fn give_back(&mut self, number: u32) {
        let kept = self.kept_mut(number);
        kept.users -= 1;
        if kept.users == 0 {
            let hash = self.index.hash(&self.kept(number).value);
            self.index.take(hash, 0, number);
            self.values[number as usize] = None;
            self.free.push(number);
        }
    }

    /// The number of values.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.index.len()
    }

    fn kept(&self, number: u32) -> &Kept<T> {
        self.values[number as usize].as_ref().expect("a number is given back with its last user")
    }

    fn kept_mut(&mut self, number: u32) -> &mut Kept<T> {
        self.values[number as usize].as_mut().expect("a number is given back with its last user")
    }
}
