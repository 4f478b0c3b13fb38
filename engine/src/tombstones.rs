//! Objects that went, for readers: the last of them, for a while.

use crate::object::Uid;
use crate::time::Time;
use crate::view::Tombstone;
use alloc::collections::{BTreeMap, VecDeque};
use core::time::Duration;

/// Most objects that are remembered.
pub(crate) const TOMBSTONES_MAX: usize = 16_384;
/// How long each is remembered.
pub(crate) const TOMBSTONE_AGE_MAX: Duration = Duration::from_secs(600);

#[derive(Debug, Default)]
pub(crate) struct Tombstones {
    by_uid: BTreeMap<Uid, Tombstone>,
    /// In the order in which they went; one that went twice counts by its last time.
    order: VecDeque<(Time, Uid)>,
}

impl Tombstones {
    pub(crate) fn put(&mut self, tombstone: Tombstone) {
        while self.order.front().is_some_and(|(at, _)| self.order.len() == TOMBSTONES_MAX || is_old(*at, tombstone.at))
        {
            let Some((at, uid)) = self.order.pop_front() else { break };
            if self.by_uid.get(&uid).is_some_and(|kept| kept.at == at) {
                self.by_uid.remove(&uid);
            }
        }
        self.order.push_back((tombstone.at, tombstone.object.uid.clone()));
        self.by_uid.insert(tombstone.object.uid.clone(), tombstone);
    }

    pub(crate) fn get(&self, now: Time, uid: &Uid) -> Option<&Tombstone> {
        self.by_uid.get(uid).filter(|tombstone| !is_old(tombstone.at, now))
    }

    /// The youngest first.
    pub(crate) fn iter(&self, now: Time) -> impl Iterator<Item = &Tombstone> {
        let young = self.order.iter().rev().take_while(move |(at, _)| !is_old(*at, now));
        young.filter_map(|(at, uid)| self.by_uid.get(uid).filter(|tombstone| tombstone.at == *at))
    }
}

fn is_old(at: Time, now: Time) -> bool {
    now.since(at) > TOMBSTONE_AGE_MAX
}
