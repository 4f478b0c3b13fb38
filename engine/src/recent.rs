//! The most recent values by uid, up to a maximum number.

use crate::index::Index;
use crate::object::Uid;
use alloc::collections::VecDeque;

/// Numbers in the index wrap around at this power of two. It is far more than the number of kept entries.
const NUMBERS: u64 = 1 << 31;

#[derive(Debug)]
pub(crate) struct Recent<V> {
    /// In the order of arrival. For a uid the last one counts.
    entries: VecDeque<(Uid, V)>,
    /// The number of the first entry.
    first: u64,
    /// The last entry of each uid.
    index: Index,
    max: usize,
}

impl<V> Recent<V> {
    /// Keeps at most `max` entries. The secret keeps users from choosing uids with slow lookups.
    pub(crate) fn new(max: usize, secret: u64) -> Recent<V> {
        Recent { entries: VecDeque::new(), first: 0, index: Index::new(1, secret), max }
    }

    pub(crate) fn put(&mut self, uid: Uid, value: V) {
        if self.entries.len() == self.max {
            self.drop_first_if(|_| true);
        }
        let hash = self.index.hash(&uid);
        if let Some(before) = self.last(&uid) {
            self.index.take(hash, 0, self.number(before));
        }
        self.index.put(hash, 0, self.number(self.entries.len()));
        self.entries.push_back((uid, value));
    }

    /// Drops the oldest entry if the condition holds. False if it stays, or there is none.
    pub(crate) fn drop_first_if(&mut self, drops: impl FnOnce(&V) -> bool) -> bool {
        let Some((uid, _)) = self.entries.pop_front_if(|(_, value)| drops(value)) else { return false };
        // The index has no such entry if there is a newer one of this uid.
        self.index.take(self.index.hash(&uid), 0, self.number(0));
        self.first += 1;
        true
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The oldest entry.
    pub(crate) fn first(&self) -> Option<&V> {
        self.entries.front().map(|(_, value)| value)
    }

    /// The last entry of this uid.
    pub(crate) fn get(&self, uid: &Uid) -> Option<&V> {
        self.last(uid).map(|place| &self.entries[place].1)
    }

    /// The last entry of this uid, mutable.
    pub(crate) fn get_mut(&mut self, uid: &Uid) -> Option<&mut V> {
        let place = self.last(uid)?;
        self.entries.get_mut(place).map(|(_, value)| value)
    }

    /// The last entry of each uid, the newest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &V> {
        let numbered = self.entries.iter().enumerate().rev();
        numbered.filter(|(place, (uid, _))| self.last(uid) == Some(*place)).map(|(_, (_, value))| value)
    }

    pub(crate) fn clear(&mut self) {
        *self = Recent::new(self.max, self.index.secret());
    }

    /// The position of the last entry of this uid.
    fn last(&self, uid: &Uid) -> Option<usize> {
        let mut places = self
            .index
            .get(self.index.hash(uid))
            .map(|number| (u64::from(number).wrapping_sub(self.first) % NUMBERS) as usize);
        places.find(|&place| self.entries.get(place).is_some_and(|(of, _)| of == uid))
    }

    fn number(&self, place: usize) -> u32 {
        ((self.first + place as u64) % NUMBERS) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;

    fn uid(number: u32) -> Uid {
        Uid::parse(&alloc::format!("u{number}")).unwrap()
    }

    fn kept(recent: &Recent<u32>) -> Vec<u32> {
        recent.iter().copied().collect()
    }

    #[test]
    fn the_last_about_a_uid_counts_and_the_first_make_room() {
        let mut recent = Recent::new(3, 7);
        assert_eq!((recent.drop_first_if(|_| true), recent.get(&uid(1))), (false, None));
        recent.put(uid(1), 10);
        recent.put(uid(2), 20);
        recent.put(uid(1), 11);
        assert_eq!((recent.get(&uid(1)), recent.get(&uid(2)), kept(&recent)), (Some(&11), Some(&20), vec![11, 20]));
        recent.put(uid(3), 30);
        assert_eq!((recent.get(&uid(1)), kept(&recent)), (Some(&11), vec![30, 11, 20]), "the older about it went");
        recent.put(uid(4), 40);
        assert_eq!((recent.drop_first_if(|&value| value > 11), recent.get(&uid(2))), (false, None));
        assert!(recent.drop_first_if(|&value| value == 11));
        assert_eq!((recent.get(&uid(1)), kept(&recent)), (None, vec![40, 30]));
        recent.clear();
        assert_eq!((recent.get(&uid(4)), kept(&recent)), (None, vec![]));
    }

    #[test]
    fn numbers_go_round() {
        let mut recent = Recent::new(4, 7);
        recent.first = NUMBERS - 2;
        for number in 0..10 {
            recent.put(uid(number), number);
            assert_eq!(recent.get(&uid(number)), Some(&number));
        }
        assert_eq!((kept(&recent), recent.get(&uid(5))), (vec![9, 8, 7, 6], None));
    }
}
