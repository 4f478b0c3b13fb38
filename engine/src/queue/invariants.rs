//! Invariants of the queue, which hold between any two calls.

use super::{Delay, Item, ItemState, LANES_SPARE, Queue, tries};
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;

impl Queue {
    /// The first violated invariant. Checks everything.
    pub(crate) fn inconsistency(&self) -> Option<String> {
        let place = |wanted: fn(&ItemState) -> bool| self.items.values().filter(|item| wanted(&item.state)).count();
        let leased = place(|place| matches!(place, ItemState::Leased(_)));
        let waiting = place(|place| matches!(place, ItemState::Backoff { .. } | ItemState::Behind(_)));
        let (entries, fair) = self.lanes.count();
        let behind = self.blockers.members();
        if self.by_id.len() != self.items.len() {
            return Some(format!("{} items, but {} numbers", self.items.len(), self.by_id.len()));
        }
        if !self.ages.fit(self.items.values().map(Box::as_ref)) {
            return Some(String::from("the counted ages differ from the ages of the items"));
        }
        if (leased, waiting) != (self.leased, self.waiting) {
            return Some(format!(
                "{leased} items are leased and {waiting} wait, but the counters are {} and {}",
                self.leased, self.waiting
            ));
        }
        if behind != place(|place| matches!(place, ItemState::Behind(_))) {
            return Some(format!("{behind} items are behind blockers, but the states of the items differ"));
        }
        let alone = place(|place| matches!(place, ItemState::Backoff { why: Delay::Refused(_), .. }));
        if alone != self.blockers.loners() {
            return Some(format!("{alone} items wait alone, but the counter is {}", self.blockers.loners()));
        }
        let waits = |item: &&Item| matches!(&item.state, ItemState::Backoff { why, .. } if tries(item, why) > 0);
        let troubled = self.items.values().map(Box::as_ref).filter(waits).count();
        let listed = self.troubled().count();
        if troubled != listed || listed != self.troubled_count() {
            return Some(format!("{troubled} items wait for a retry, but {listed} are listed"));
        }
        let held = place(|place| matches!(place, ItemState::Held(_)));
        if held != self.held() {
            return Some(format!("{held} items are held, but the lists of the holds have {}", self.held()));
        }
        if entries != self.lanes.len() || entries > LANES_SPARE + 2 * self.items.len() + 1 {
            return Some(format!(
                "the lanes have {entries} entries, the counter is {}, and the queue has {} items",
                self.lanes.len(),
                self.items.len()
            ));
        }
        if !fair {
            return Some(String::from("a lane has no turn, or a turn has no lane"));
        }
        None
    }
}
