//! Deadlines by time. When a deadline comes whose reason is gone, the owner of the timers ignores it.

use crate::time::Time;
use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::time::Duration;

#[derive(Debug)]
pub(crate) struct Timers<K> {
    at: BTreeSet<(Time, K)>,
    /// Deadlines with a common delay. Time never goes back, so each queue is in order. Every lease and every write has
    /// such a deadline, and nearly all of them lose their reason long before they come. In one tree they would be most
    /// of the entries.
    after: Vec<(Duration, VecDeque<(Time, K)>)>,
}

impl<K: Ord> Default for Timers<K> {
    fn default() -> Self {
        Timers { at: BTreeSet::new(), after: Vec::new() }
    }
}

impl<K: Ord> Timers<K> {
    pub(crate) fn set(&mut self, at: Time, what: K) {
        self.at.insert((at, what));
    }

    /// Sets a deadline with a common delay. There is one queue for each `wait`. `now` must not be before the `now` of
    /// the last call.
    pub(crate) fn set_after(&mut self, now: Time, wait: Duration, what: K) {
        let at = now + wait;
        match self.after.iter_mut().find(|(of, _)| *of == wait) {
            Some((_, queue)) => {
                debug_assert!(queue.back().is_none_or(|(last, _)| *last <= at), "time went back");
                queue.push_back((at, what));
            }
            None => self.after.push((wait, VecDeque::from([(at, what)]))),
        }
    }

    pub(crate) fn next(&self) -> Option<Time> {
        let queued = self.after.iter().filter_map(|(_, queue)| queue.front());
        self.at.first().into_iter().chain(queued).map(|&(at, _)| at).min()
    }

    /// The next deadline that has come.
    pub(crate) fn due(&mut self, now: Time) -> Option<K> {
        let queued = self
            .after
            .iter_mut()
            .filter(|(_, queue)| !queue.is_empty())
            .min_by(|(_, one), (_, other)| one.front().cmp(&other.front()));
        match queued {
            Some((_, queue)) if self.at.first().is_none_or(|first| queue.front() < Some(first)) => {
                queue.pop_front_if(|(at, _)| *at <= now)
            }
            Some(_) | None => {
                let is_due = self.at.first().is_some_and(|(at, _)| *at <= now);
                if is_due { self.at.pop_first() } else { None }
            }
        }
        .map(|(_, what)| what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadlines_come_in_order_however_they_were_set() {
        let at = |millis| Time::from_origin(Duration::from_millis(millis));
        let mut timers = Timers::default();
        assert_eq!((timers.next(), timers.due(at(1))), (None, None));
        timers.set(at(30), "set at 30");
        timers.set_after(at(0), Duration::from_millis(20), "20 after 0");
        timers.set_after(at(0), Duration::from_millis(40), "40 after 0");
        timers.set_after(at(10), Duration::from_millis(20), "20 after 10");
        timers.set_after(at(11), Duration::from_millis(20), "20 after 11");
        timers.set(at(41), "set at 41");
        assert_eq!((timers.next(), timers.due(at(19))), (Some(at(20)), None));
        assert_eq!((timers.due(at(20)), timers.due(at(20))), (Some("20 after 0"), None));
        let mut all = Vec::new();
        while let Some(what) = timers.due(at(40)) {
            all.push(what);
        }
        // At one instant, in the order of their keys.
        assert_eq!(all, ["20 after 10", "set at 30", "20 after 11", "40 after 0"]);
        assert_eq!((timers.next(), timers.due(at(41)), timers.next()), (Some(at(41)), Some("set at 41"), None));
    }
}
