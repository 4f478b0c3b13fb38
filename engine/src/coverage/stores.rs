//! The stores of collections, and the highest seen version of each store.

use super::placement::{Peak, Placement, raise};
use super::{Coverage, Kind, KindId};
use crate::object::ResourceVersion;
use crate::time::Time;
use alloc::vec::Vec;
use core::cmp::Ordering;

impl Kind {
    /// Whether the collection is part of the main store, and has reached the highest known version of that store.
    pub(crate) fn keeps_up(&self) -> bool {
        matches!(self.placement, Placement::Main { keeps_up: true, .. })
    }

    /// Whether the kind's store is known. Then the positions of the collection show the age of an answer.
    pub(crate) fn is_placed(&self) -> bool {
        self.placement == Placement::Apart || self.keeps_up()
    }

    /// Whether the store of the collection is unknown.
    pub(crate) fn is_unplaced(&self) -> bool {
        matches!(self.placement, Placement::Unknown { .. })
    }

    /// Sets whether the collection has a store of its own according to the administrator.
    pub(crate) fn set_apart(&mut self, apart: bool) {
        if apart {
            self.placement = Placement::Apart;
        } else if self.placement == Placement::Apart {
            self.placement = Placement::default();
        }
    }

    /// Answers have spoken against the placement of the collection in the main store so often in a row.
    fn against(&self) -> u32 {
        match self.placement {
            Placement::Main { against, .. } => against,
            Placement::Apart | Placement::Unknown { .. } => 0,
        }
    }

    /// Records an answer that contradicts the placement of the collection in the main store.
    pub(crate) fn speak_against(&mut self) {
        let is_synced = self.is_synced();
        match &mut self.placement {
            Placement::Main { keeps_up: false, against } if is_synced => *against = against.saturating_add(1),
            Placement::Main { .. } | Placement::Apart | Placement::Unknown { .. } => {}
        }
    }

    /// Resets the number of consecutive answers for or against the placement.
    pub(crate) fn begin_count(&mut self) {
        match &mut self.placement {
            Placement::Main { against: count, .. } | Placement::Unknown { along: count, .. } => *count = 0,
            Placement::Apart => {}
        }
    }

    /// Records the position of a collection whose store is unknown. The position agrees with the main store if it is
    /// not before the collection's earlier position, and if the main store was seen at the collection's position of the
    /// previous round. Returns the number of consecutive answers that agree.
    pub(crate) fn go_along(&mut self, main: Option<&ResourceVersion>, version: &ResourceVersion) -> u32 {
        let Placement::Unknown { along, stood } = &mut self.placement else { return 0 };
        let before = stood.replace(version.clone());
        let goes = |main: &ResourceVersion| version.reached(main) && before.is_some_and(|before| main.reached(&before));
        *along = if main.is_some_and(goes) { along.saturating_add(1) } else { 0 };
        *along
    }
}

impl Coverage {
    /// Whether the versions of two collections can be compared.
    pub(crate) fn is_same_store(&self, one: KindId, other: KindId) -> bool {
        one == other || self.kind(one).is_in_main_store() && self.kind(other).is_in_main_store()
    }

    /// Records that the store of this collection was seen at this version.
    pub(crate) fn raise(&mut self, now: Time, id: KindId, version: &ResourceVersion) {
        let reaches_main =
            self.main.as_ref().is_some_and(|main| version.reached(&main.version) && !main.leaps(now, version));
        let kind = self.kind_mut(id);
        kind.raise(now, version);
        // Data of an old history says nothing about the current store.
        if !kind.is_rewound() && kind.is_in_main_store() && version.is_ordered() {
            if !kind.keeps_up() && reaches_main {
                kind.placement = Placement::Main { keeps_up: true, against: 0 };
            }
            raise(&mut self.main, now, version);
        }
    }

    /// Records that the store accepted a write to an object of this collection at this version.
    pub(crate) fn wrote(&mut self, now: Time, id: KindId, version: &ResourceVersion) {
        let kind = self.kind(id);
        // If a collection has not kept up with the others, its store becomes unknown.
        if kind.is_in_main_store() && kind.keeps_up() && version.is_ordered() {
            raise(&mut self.main, now, version);
        }
    }

    /// Records that a list shows an object at this version.
    pub(crate) fn show(&mut self, id: KindId, version: &ResourceVersion) {
        let kind = self.kind(id);
        let counts = !kind.is_rewound() && kind.is_in_main_store() && version.is_ordered();
        if counts && !self.shown.as_ref().is_some_and(|shown| version.is_before(shown)) {
            self.shown = Some(version.clone());
        }
    }

    /// The lowest version that an answer of this collection's store can have. The collections of the main store share
    /// one such floor. Every other collection has its own.
    pub(crate) fn floor(&self, id: KindId) -> Option<&ResourceVersion> {
        let kind = self.kind(id);
        let shared = [self.main(), self.shown.as_ref()].into_iter().filter(|_| kind.is_in_main_store());
        shared.chain([kind.high()]).flatten().reduce(|one, other| if one.is_before(other) { other } else { one })
    }

    /// The highest version ever seen of the main store.
    pub(crate) fn main(&self) -> Option<&ResourceVersion> {
        self.main.as_ref().map(|main| &main.version)
    }

    /// Whether this version is too far beyond all known versions of the main store.
    pub(crate) fn is_far_ahead(&self, now: Time, id: KindId, version: &ResourceVersion) -> bool {
        self.kind(id).is_in_main_store() && self.main.as_ref().is_some_and(|main| main.leaps(now, version))
    }

    /// Forgets the position of the main store, and which collections it has, because its history has changed.
    pub(crate) fn forget_main_store(&mut self) {
        self.main = None;
        self.shown = None;
        for kind in self.all_mut() {
            if kind.is_unplaced() {
                kind.placement = Placement::default();
            }
        }
        self.compare_stores();
    }

    pub(super) fn all_mut(&mut self) -> impl Iterator<Item = &mut Kind> {
        self.kinds.iter_mut().filter_map(|place| place.kind.as_mut())
    }

    /// Collections of the main store that were not seen at or past the position that the others have shown.
    pub(crate) fn behind(&self) -> impl Iterator<Item = KindId> + '_ {
        let is_behind = |kind: &Kind| kind.is_synced() && kind.is_in_main_store() && !kind.keeps_up();
        self.served().filter(move |(_, kind)| is_behind(kind)).map(|(id, _)| id)
    }

    /// Collections whose store is unknown.
    pub(crate) fn unplaced(&self) -> impl Iterator<Item = KindId> + '_ {
        self.served().filter(|(_, kind)| kind.is_unplaced()).map(|(id, _)| id)
    }

    /// Starts the comparison of stores again.
    pub(crate) fn compare_stores(&mut self) {
        for kind in self.all_mut() {
            kind.begin_count();
            if let Placement::Main { keeps_up, .. } = &mut kind.placement {
                *keeps_up = false;
            }
        }
    }

    /// Collections that do not share the main store, after their positions have differed from it for `rounds` requests.
    /// If most collections differ, the other store is the main store. Then the collections that are ahead of it or far
    /// behind it are the ones that do not share it. Returns none if only resources that are no longer served have shown
    /// the assumed position.
    pub(crate) fn apart(&self, now: Time, rounds: u32) -> Option<Vec<KindId>> {
        let elsewhere: Vec<KindId> = self.behind().filter(|&id| self.kind(id).against() >= rounds).collect();
        let level = self.served().filter(|(_, kind)| kind.is_synced() && kind.is_in_main_store()).count();
        if 2 * elsewhere.len() <= level {
            return (!elsewhere.is_empty()).then_some(elsewhere);
        }
        let mut highs: Vec<&ResourceVersion> = elsewhere.iter().filter_map(|&id| self.kind(id).high()).collect();
        highs.sort_by(|one, other| one.compare(other).unwrap_or(Ordering::Equal));
        let (Some(&furthest), Some(&middle)) = (highs.last(), highs.get(highs.len() / 2)) else { return None };
        let is_apart = |&(_, kind): &(KindId, &Kind)| {
            let stands = |peak: &Peak| furthest.is_before(&peak.version) || peak.leaps(now, middle);
            kind.is_in_main_store() && kind.peak().is_some_and(stands)
        };
        Some(self.served().filter(is_apart).map(|(id, _)| id).collect())
    }

    /// Marks collections as not sharing the main store. The position of the main store follows from the others.
    pub(crate) fn take_apart(&mut self, apart: &[KindId]) {
        for &id in apart {
            self.kind_mut(id).placement = Placement::Unknown { along: 0, stood: None };
        }
        (self.main, self.shown) = (None, None);
        for kind in self.kinds.iter_mut().filter_map(|place| place.kind.as_mut()) {
            kind.begin_count();
            if let Some(Peak { version, at }) = kind.peak().filter(|_| kind.is_in_main_store() && !kind.is_rewound()) {
                raise(&mut self.main, *at, version);
            }
        }
    }

    /// Marks a collection as sharing the main store again.
    pub(crate) fn rejoin(&mut self, id: KindId) {
        self.kind_mut(id).placement = Placement::default();
    }
}
