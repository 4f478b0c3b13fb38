//! The holds on items: the items that a pause holds, and those of them that no event has reported yet.

use super::{Item, ItemState, Queue};
use crate::hold::{Hold, Holds};
use crate::object::{Name, Uid};
use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

impl Item {
    /// A named pause holds it.
    pub(super) fn is_paused(&self) -> bool {
        matches!(self.state, ItemState::Held(Hold::Pause(_)))
    }
}

impl Queue {
    pub(crate) fn holds(&self) -> &Holds {
        &self.holds
    }

    /// Returns the holds for a change. After a change that holds more, the caller calls [`Queue::hold_ready`]. After
    /// one that holds less, the caller calls [`Queue::unhold`].
    pub(crate) fn holds_mut(&mut self) -> &mut Holds {
        &mut self.holds
    }

    /// The number of held items.
    pub(crate) fn held(&self) -> usize {
        self.held.values().map(BTreeSet::len).sum()
    }

    /// Whether a hold applies to this item now, although its state is ready.
    pub(crate) fn is_held(&self, uid: &Uid) -> bool {
        self.items.get(uid).is_some_and(|item| item.state == ItemState::Ready && hold_on(&self.holds, item).is_some())
    }

    /// The uids that this hold holds.
    pub(crate) fn held_by(&self, hold: &Hold) -> impl ExactSizeIterator<Item = &Uid> {
        const NONE: &BTreeSet<Uid> = &BTreeSet::new();
        self.held.get(hold).unwrap_or(NONE).iter()
    }

    /// The next item whose hold by a pause has changed, with the pause.
    pub(crate) fn next_held_news(&mut self) -> Option<(&Item, Option<Name>)> {
        loop {
            let uid = self.held_news.pop_first()?;
            let Some(item) = self.items.get_mut(&uid).filter(|item| item.reported_held != item.is_paused()) else {
                continue;
            };
            item.reported_held = !item.reported_held;
            let pause = match &item.state {
                ItemState::Held(Hold::Pause(name)) => Some(name.clone()),
                ItemState::Held(Hold::Unknown | Hold::TooMany)
                | ItemState::Ready
                | ItemState::Observed
                | ItemState::Backoff { .. }
                | ItemState::Behind(_)
                | ItemState::Leased(_) => None,
            };
            return self.items.get(&uid).map(|item| (item.as_ref(), pause));
        }
    }

    /// Holds affected items after a hold has been added or extended. This includes items behind a blocker, because
    /// others would wait for the attempt of a held item.
    pub(crate) fn hold_ready(&mut self) {
        let holds = |item: &&Item| {
            matches!(item.state, ItemState::Ready | ItemState::Behind(_)) && hold_on(&self.holds, item).is_some()
        };
        let uids: Vec<Uid> =
            self.items.values().map(Box::as_ref).filter(holds).map(|item| item.draft.target.uid.clone()).collect();
        for uid in uids {
            self.make_ready(&uid);
        }
    }

    /// Checks the items of a hold again after the hold has been removed or reduced.
    pub(crate) fn unhold(&mut self, hold: &Hold) {
        let Some(uids) = self.held.remove(hold) else { return };
        for uid in uids {
            self.make_ready(&uid);
        }
    }
}

pub(super) fn hold_on(holds: &Holds, item: &Item) -> Option<Hold> {
    let target = &item.draft.target;
    if item.draft.destroys { holds.find(&target.group, &target.resource, &target.namespace) } else { None }
}

/// The hold in the item's state.
pub(super) fn held_state(item: &Item) -> Option<Hold> {
    match &item.state {
        ItemState::Held(hold) => Some(hold.clone()),
        ItemState::Ready
        | ItemState::Observed
        | ItemState::Backoff { .. }
        | ItemState::Behind(_)
        | ItemState::Leased(_) => None,
    }
}
