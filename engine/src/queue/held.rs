//! The holds on items: which hold applies to each, and the items whose hold no event has reported yet.
//!
//! The leader determines the hold of guards in force, [`Item::hold`], for each new decision, after each change of the
//! guards, and at the grant. What is asked at the grant alone holds an item by its state.

use super::{Draft, Item, ItemState, Queue};
use crate::guard::HeldBy;
use crate::hold::{Hold, Holds};
use crate::object::Uid;
use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

impl Item {
    /// Returns the hold. A decision that is only observed is never granted, and still has a hold.
    pub(crate) fn held(&self) -> Option<&Hold> {
        match &self.state {
            ItemState::Held(hold) => Some(hold),
            ItemState::Observed => self.hold.as_ref(),
            ItemState::Ready | ItemState::Backoff { .. } | ItemState::Behind(_) | ItemState::Leased(_) => None,
        }
    }

    /// Whether the item is held until a user ends the hold.
    pub(crate) fn is_kept(&self) -> bool {
        self.held().is_some_and(Hold::is_to_last)
    }

    /// Returns the holder, for the log.
    pub(super) fn held_by(&self) -> Option<HeldBy> {
        self.held().and_then(Hold::holder)
    }
}

impl Queue {
    pub(crate) fn holds(&self) -> &Holds {
        &self.holds
    }

    /// Returns the holds for a change. The caller then calls [`Queue::rehold`].
    pub(crate) fn holds_mut(&mut self) -> &mut Holds {
        &mut self.holds
    }

    /// The number of held items.
    pub(crate) fn held(&self) -> usize {
        self.held.values().map(BTreeSet::len).sum()
    }

    /// The uids that this hold holds.
    pub(crate) fn held_by(&self, hold: &Hold) -> impl ExactSizeIterator<Item = &Uid> {
        const NONE: &BTreeSet<Uid> = &BTreeSet::new();
        self.held.get(hold).unwrap_or(NONE).iter()
    }

    /// Makes at most `max` items ready that this hold holds. Returns their number.
    pub(crate) fn release_held(&mut self, hold: &Hold, max: usize) -> usize {
        let uids: Vec<Uid> = self.held_by(hold).take(max).cloned().collect();
        for uid in &uids {
            self.make_ready(uid);
        }
        uids.len()
    }

    /// The next item whose holder has changed, with the holder.
    pub(crate) fn next_held_news(&mut self) -> Option<(&Item, Option<HeldBy>)> {
        loop {
            let uid = self.held_news.pop_first()?;
            let Some(item) = self.items.get_mut(&uid).filter(|item| item.reported_held != item.held_by()) else {
                continue;
            };
            item.reported_held = item.held_by();
            return self.items.get(&uid).map(|item| (item.as_ref(), item.reported_held.clone()));
        }
    }

    /// Recomputes the hold of each item.
    pub(crate) fn rehold(&mut self, find: impl Fn(&Holds, &Draft) -> Option<Hold>) {
        let changed = |item: &Item| {
            let hold = find(&self.holds, &item.draft);
            (hold != item.hold).then(|| (item.draft.target.uid.clone(), hold))
        };
        let changed: Vec<(Uid, Option<Hold>)> = self.items.values().map(Box::as_ref).filter_map(changed).collect();
        for (uid, hold) in changed {
            self.set_hold(&uid, hold);
        }
    }

    /// Applies the hold of an item. This includes items behind a blocker, because others would wait for the attempt of
    /// a held item.
    pub(crate) fn set_hold(&mut self, uid: &Uid, hold: Option<Hold>) {
        let Some(item) = self.items.get_mut(uid) else { return };
        let is_news = item.hold != hold;
        item.hold = hold;
        if is_news && item.state == ItemState::Observed {
            self.held_news.insert(uid.clone());
        }
        let waits = match item.state {
            ItemState::Ready | ItemState::Held(_) => true,
            ItemState::Behind(_) => item.hold.is_some(),
            ItemState::Observed | ItemState::Backoff { .. } | ItemState::Leased(_) => false,
        };
        if is_news && waits {
            self.make_ready(uid);
        }
    }
}
