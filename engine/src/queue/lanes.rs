//! The order of ready items. Namespaces take turns, and in each namespace the roots of cascades take turns. So ten
//! objects wait neither for a hundred thousand of another namespace nor for those of another root.

use crate::object::{Name, Uid};
use alloc::collections::{BTreeMap, VecDeque};

/// Ready uids. Entries may be outdated; the caller of `pop` decides.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    lanes: Turns<Name, Turns<Option<Uid>, VecDeque<Uid>>>,
    entries: usize,
}

/// Keys with entries. The keys take turns.
#[derive(Debug)]
struct Turns<K, V> {
    of: BTreeMap<K, V>,
    order: VecDeque<K>,
}

impl<K, V> Default for Turns<K, V> {
    fn default() -> Turns<K, V> {
        Turns { of: BTreeMap::new(), order: VecDeque::new() }
    }
}

impl<K: Ord + Clone, V: Default> Turns<K, V> {
    fn entry(&mut self, key: &K) -> &mut V {
        if !self.of.contains_key(key) {
            self.order.push_back(key.clone());
        }
        self.of.entry(key.clone()).or_default()
    }

    /// Asks one key after the other until one returns an entry. Empty keys are removed. A key that returned an entry
    /// moves behind all others.
    fn find<T>(&mut self, mut ask: impl FnMut(&mut V) -> Option<T>, is_empty: impl Fn(&V) -> bool) -> Option<T> {
        while let Some(key) = self.order.pop_front() {
            let Some(mut value) = self.of.remove(&key) else { continue };
            let found = ask(&mut value);
            if !is_empty(&value) {
                self.of.insert(key.clone(), value);
                self.order.push_back(key);
            }
            if found.is_some() {
                return found;
            }
        }
        None
    }

    fn retain(&mut self, mut keep: impl FnMut(&mut V) -> bool) {
        self.of.retain(|_, value| keep(value));
        let of = &self.of;
        self.order.retain(|key| of.contains_key(key));
    }
}

impl Lanes {
    pub(super) fn push(&mut self, lane: &Name, root: &Option<Uid>, uid: Uid) {
        self.lanes.entry(lane).entry(root).push_back(uid);
        self.entries += 1;
    }

    /// The next wanted entry in turn. Unwanted ones are removed.
    pub(super) fn pop(&mut self, mut is_wanted: impl FnMut(&Uid) -> bool) -> Option<Uid> {
        let mut popped = 0;
        let of_root = |ready: &mut VecDeque<Uid>| {
            while let Some(uid) = ready.pop_front() {
                popped += 1;
                if is_wanted(&uid) {
                    return Some(uid);
                }
            }
            None
        };
        let mut of_root = of_root;
        let found = self.lanes.find(|lane| lane.find(&mut of_root, VecDeque::is_empty), |lane| lane.order.is_empty());
        self.entries -= popped;
        found
    }

    /// Removes unwanted entries.
    pub(super) fn retain(&mut self, mut is_wanted: impl FnMut(&Uid) -> bool) {
        let mut entries = 0;
        self.lanes.retain(|lane| {
            lane.retain(|ready| {
                ready.retain(&mut is_wanted);
                entries += ready.len();
                !ready.is_empty()
            });
            !lane.order.is_empty()
        });
        self.entries = entries;
    }

    /// The number of entries, including outdated ones.
    pub(super) fn len(&self) -> usize {
        self.entries
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lanes.order.is_empty()
    }

    /// The number of entries, and whether every key with entries has a turn.
    pub(super) fn count(&self) -> (usize, bool) {
        let lanes = self.lanes.of.values();
        let fair = lanes.clone().all(|lane| lane.order.len() == lane.of.len());
        let entries = lanes.flat_map(|lane| lane.of.values()).map(VecDeque::len).sum();
        (entries, fair && self.lanes.order.len() == self.lanes.of.len())
    }
}
