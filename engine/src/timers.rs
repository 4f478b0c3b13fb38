//! Deadlines by time. A deadline that has lost its reason is ignored when it comes.

use crate::time::Time;
use alloc::collections::BTreeSet;

#[derive(Debug)]
pub(crate) struct Timers<K> {
    at: BTreeSet<(Time, K)>,
}

impl<K: Ord> Default for Timers<K> {
    fn default() -> Self {
        Timers { at: BTreeSet::new() }
    }
}

impl<K: Ord> Timers<K> {
    pub(crate) fn set(&mut self, at: Time, what: K) {
        self.at.insert((at, what));
    }

    pub(crate) fn next(&self) -> Option<Time> {
        self.at.first().map(|&(at, _)| at)
    }

    /// The next deadline that has come.
    pub(crate) fn due(&mut self, now: Time) -> Option<K> {
        if self.next()? > now {
            return None;
        }
        self.at.pop_first().map(|(_, what)| what)
    }
}
