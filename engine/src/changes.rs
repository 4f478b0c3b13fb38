//! The most recent changes of objects, for readers, in order.

use crate::object::Uid;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// Maximum number of kept changes.
pub(crate) const CHANGES_MAX: usize = 131_072;

#[derive(Debug, Default)]
pub(crate) struct Changes {
    /// The number of the first kept change.
    first: u64,
    uids: VecDeque<Uid>,
}

impl Changes {
    pub(crate) fn note(&mut self, uid: &Uid) {
        if self.uids.len() == CHANGES_MAX {
            self.uids.pop_front();
            self.first += 1;
        }
        self.uids.push_back(uid.clone());
    }

    /// The number of the next change.
    pub(crate) fn next(&self) -> u64 {
        self.first + self.uids.len() as u64
    }

    /// Returns at most `max` changes, starting with this number. `None` if some of them are no longer kept, or if the
    /// number is in the future.
    pub(crate) fn from(&self, number: u64, max: usize) -> Option<Vec<Uid>> {
        let at = usize::try_from(number.checked_sub(self.first)?).ok().filter(|&at| at <= self.uids.len())?;
        Some(self.uids.range(at..).take(max).cloned().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    #[test]
    fn the_last_changes_are_kept_by_number() {
        let uid = |number: usize| Uid::parse(&format!("u{number}")).unwrap();
        let mut changes = Changes::default();
        assert_eq!((changes.next(), changes.from(0, 5), changes.from(1, 5)), (0, Some(Vec::new()), None));
        for number in 0..CHANGES_MAX + 3 {
            changes.note(&uid(number));
        }
        assert_eq!(changes.next(), CHANGES_MAX as u64 + 3);
        assert_eq!(changes.from(2, 5), None, "not kept");
        assert_eq!(changes.from(3, 2), Some(alloc::vec![uid(3), uid(4)]));
        assert_eq!(changes.from(changes.next(), 2), Some(Vec::new()));
    }
}
