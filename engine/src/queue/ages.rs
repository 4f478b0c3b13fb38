//! Ages of decisions by state, counted by the second, so that no reader has to visit every item.

use super::{Item, ItemState};
use crate::time::Time;
use crate::view::{AGE_BOUNDS, Waiting, Waits};
use alloc::collections::BTreeMap;
use core::time::Duration;

/// Items by the second of their decision. There is one entry for each second with items.
#[derive(Debug, Default)]
pub(super) struct Ages {
    seconds: BTreeMap<u64, [u32; Waiting::ALL.len()]>,
}

impl Ages {
    pub(super) fn enter(&mut self, decided: Time, place: &ItemState) {
        self.seconds.entry(second(decided)).or_default()[waiting(place) as usize] += 1;
    }

    pub(super) fn leave(&mut self, decided: Time, place: &ItemState) {
        let second = second(decided);
        let Some(counts) = self.seconds.get_mut(&second) else { return };
        counts[waiting(place) as usize] -= 1;
        if counts.iter().all(|&count| count == 0) {
            self.seconds.remove(&second);
        }
    }

    pub(super) fn of(&self, now: Time) -> [Waits; Waiting::ALL.len()] {
        let mut waits = Waiting::ALL.map(Waits::none);
        for (&second, counts) in &self.seconds {
            let at = Time::from_origin(Duration::from_secs(second + 1)).min(now);
            let age = now.since(at);
            let bound = AGE_BOUNDS.iter().take_while(|&&bound| age >= bound).count();
            for (waits, &count) in waits.iter_mut().zip(counts).filter(|(_, count)| **count > 0) {
                waits.items += count as usize;
                waits.by_age[bound] += count as usize;
                waits.oldest.get_or_insert(at);
            }
        }
        waits
    }

    /// Whether the counts match these items.
    pub(super) fn fit<'a>(&self, items: impl Iterator<Item = &'a Item>) -> bool {
        let mut counted = Ages::default();
        for item in items {
            counted.enter(item.decided, &item.state);
        }
        counted.seconds == self.seconds
    }
}

fn second(decided: Time) -> u64 {
    decided.since_origin().as_secs()
}

fn waiting(place: &ItemState) -> Waiting {
    match place {
        ItemState::Ready => Waiting::Ready,
        ItemState::Observed => Waiting::Observed,
        ItemState::Held(hold) if hold.is_to_last() => Waiting::Protected,
        ItemState::Held(_) => Waiting::Held,
        ItemState::Backoff { .. } => Waiting::BackingOff,
        ItemState::Behind(_) => Waiting::Blocked,
        ItemState::Leased(_) => Waiting::Leased,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_is_counted_by_where_and_by_age() {
        let at = |millis| Time::from_origin(Duration::from_millis(millis));
        let mut ages = Ages::default();
        for decided in [100, 900, 20_500, 89_999] {
            ages.enter(at(decided), &ItemState::Ready);
        }
        ages.enter(at(100), &ItemState::Observed);
        ages.leave(at(900), &ItemState::Ready);
        let waits = ages.of(at(90_000));
        let ready = &waits[Waiting::Ready as usize];
        assert_eq!((ready.items, ready.oldest), (3, Some(at(1000))));
        // Under a second; under ten minutes twice.
        assert_eq!(ready.by_age, [1, 0, 0, 2, 0, 0]);
        assert_eq!(waits[Waiting::Observed as usize].items, 1);
        for decided in [100, 20_500, 89_999] {
            ages.leave(at(decided), &ItemState::Ready);
        }
        ages.leave(at(100), &ItemState::Observed);
        assert!(ages.seconds.is_empty());
    }
}
