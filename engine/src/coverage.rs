//! The served kinds, and the completeness and position of each collection (`monitors` of upstream). The states of one
//! kind are in `kind`.

use crate::object::{GroupResource, Name, ResourceVersion, ServedKind};
use crate::time::Time;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::time::Duration;

mod kind;
mod placement;
mod rivals;
mod stores;
mod undiscovered;

pub use kind::State;
pub(crate) use kind::{Contradiction, Kind};
use placement::Peak;
pub use undiscovered::{ALL_RESOURCES, Undiscovered};

/// Number of kinds up to which the graph keeps kinds that no reference names.
const KINDS_KEPT: usize = 1024;
/// How long the knowledge of a kind counts after it is no longer served.
const UNSERVED_KEPT: Duration = Duration::from_secs(3600);

/// Identifies a group and kind, served or only named. The slot of a dropped kind is reused with a new generation. So an
/// old id, in a timer for example, finds a kind that is not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct KindId {
    place: u32,
    generation: u32,
}

/// The result of advancing a collection's position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Advance {
    Moved,
    /// The version is before the position: the store has another history.
    Rewind,
}

/// All kinds, by number, by group and kind, and by group and resource.
#[derive(Clone, Debug)]
pub(crate) struct Coverage {
    kinds: Vec<Place>,
    free: Vec<u32>,
    /// The entry that stands for a dropped kind.
    none: Kind,
    /// The number of kinds that triggers the next sweep.
    sweep_at: usize,
    by_kind: BTreeMap<(Name, Name), KindId>,
    by_resource: BTreeMap<GroupResource, KindId>,
    /// Resources of kinds that have, or had, several resources. Each resource is a kind of its own here. References
    /// lead to the kind in `by_kind`.
    rivals: BTreeMap<GroupResource, KindId>,
    /// The highest version seen in any collection of the main store, and when.
    main: Option<Peak>,
    /// The highest version of an object in any list of the main store, even of failed lists.
    shown: Option<ResourceVersion>,
}

#[derive(Clone, Debug)]
struct Place {
    generation: u32,
    /// `None` for a free slot.
    kind: Option<Kind>,
}

impl Default for Coverage {
    fn default() -> Coverage {
        Coverage {
            kinds: Vec::new(),
            free: Vec::new(),
            none: Kind::of(Name::from(""), Name::from("")),
            sweep_at: KINDS_KEPT,
            by_kind: BTreeMap::new(),
            by_resource: BTreeMap::new(),
            rivals: BTreeMap::new(),
            main: None,
            shown: None,
        }
    }
}

impl Coverage {
    /// The number of a group and kind. Adds it if it is new.
    pub(crate) fn kind_id(&mut self, group: &str, kind: &str) -> KindId {
        let key = (Name::from(group), Name::from(kind));
        if let Some(&id) = self.by_kind.get(&key) {
            return id;
        }
        let id = self.add(key.0.clone(), key.1.clone());
        self.by_kind.insert(key, id);
        id
    }

    fn add(&mut self, group: Name, kind: Name) -> KindId {
        let kind = Some(Kind::of(group, kind));
        match self.free.pop() {
            Some(place) => {
                let generation = self.kinds[place as usize].generation;
                self.kinds[place as usize].kind = kind;
                KindId { place, generation }
            }
            None => {
                let place = u32::try_from(self.kinds.len()).expect("fewer than 2^32 kinds");
                self.kinds.push(Place { generation: 0, kind });
                KindId { place, generation: 0 }
            }
        }
    }

    /// The number of a group and kind, if it is known.
    pub(crate) fn known(&self, group: &str, kind: &str) -> Option<KindId> {
        self.by_kind.get(&(Name::from(group), Name::from(kind))).copied()
    }

    pub(crate) fn kind(&self, id: KindId) -> &Kind {
        let place = self.kinds.get(id.place as usize).filter(|place| place.generation == id.generation);
        place.and_then(|place| place.kind.as_ref()).unwrap_or(&self.none)
    }

    pub(crate) fn kind_mut(&mut self, id: KindId) -> &mut Kind {
        let place = self.kinds.get_mut(id.place as usize).filter(|place| place.generation == id.generation);
        match place.and_then(|place| place.kind.as_mut()) {
            Some(kind) => kind,
            None => {
                self.none = Kind::of(Name::from(""), Name::from(""));
                &mut self.none
            }
        }
    }

    /// Whether there are enough kinds for a sweep.
    pub(crate) fn wants_sweep(&self) -> bool {
        self.kinds.len() - self.free.len() > self.sweep_at
    }

    /// Drops kinds that are not served and have no nodes. Users choose the kinds in references, and definitions come
    /// and go. The highest version of a formerly served kind is kept for a while: its next list may belong to another
    /// history.
    pub(crate) fn sweep(&mut self, now: Time, used: &BTreeSet<KindId>) {
        for (number, place) in self.kinds.iter_mut().enumerate() {
            let Some(kind) = &place.kind else { continue };
            let id = KindId { place: number as u32, generation: place.generation };
            let counts = kind.high().is_some() && now.since(kind.since()) < UNSERVED_KEPT;
            if kind.served().is_some() || counts || used.contains(&id) {
                continue;
            }
            let key = (kind.group.clone(), kind.kind.clone());
            if self.by_kind.get(&key) == Some(&id) {
                self.by_kind.remove(&key);
            }
            self.rivals.retain(|_, rival| *rival != id);
            place.kind = None;
            place.generation = place.generation.wrapping_add(1);
            self.free.push(id.place);
        }
        self.sweep_at = KINDS_KEPT.max(2 * (self.kinds.len() - self.free.len()));
    }

    /// The kind of a served collection.
    pub(crate) fn find(&self, collection: &GroupResource) -> Option<KindId> {
        self.by_resource.get(collection).copied()
    }

    /// All kinds, served or only named.
    pub(crate) fn ids(&self) -> impl Iterator<Item = KindId> + use<> {
        let known = self.kinds.iter().enumerate().filter(|(_, place)| place.kind.is_some());
        let ids: Vec<KindId> =
            known.map(|(at, place)| KindId { place: at as u32, generation: place.generation }).collect();
        ids.into_iter()
    }

    /// Served kinds by group and resource.
    pub(crate) fn served(&self) -> impl Iterator<Item = (KindId, &Kind)> {
        self.by_resource.values().map(|&id| (id, self.kind(id)))
    }

    /// Records a served kind. A watched collection starts as listing.
    pub(crate) fn serve(&mut self, now: Time, served: ServedKind) -> KindId {
        let id = self.place_of(&served.group_resource, &served.kind);
        self.by_resource.insert(served.group_resource.clone(), id);
        self.kind_mut(id).serve(now, served);
        id
    }

    /// Records that a kind is no longer served. The state of its collection becomes unknown.
    pub(crate) fn unserve(&mut self, now: Time, collection: &GroupResource) -> Option<KindId> {
        let id = self.by_resource.remove(collection)?;
        self.kind_mut(id).unserve(now);
        Some(id)
    }

    /// The current list is complete as of `version`.
    pub(crate) fn end_list(&mut self, now: Time, id: KindId, version: ResourceVersion) -> Advance {
        let advance = self.kind_mut(id).end_list(now, version.clone());
        self.raise(now, id, &version);
        advance
    }

    /// An event or bookmark of the watch has `version`.
    pub(crate) fn advance(&mut self, now: Time, id: KindId, version: &ResourceVersion) -> Advance {
        let advance = self.kind_mut(id).advance(now, version);
        if advance == Advance::Moved {
            self.raise(now, id, version);
        }
        advance
    }

    /// The main store was seen at `version`. Doubts the kinds that are not served, and were seen past that version.
    /// Such a kind waits until it is served and listed. True if a kind waits.
    pub(crate) fn doubt_unserved(&mut self, version: &ResourceVersion) -> bool {
        let mut waits = false;
        for kind in self.all_mut() {
            waits |= kind.doubt_unserved(version);
        }
        waits
    }

    /// The main store was seen at `version`. Ends the doubt in unserved kinds that were not seen past it.
    pub(crate) fn trust_unserved(&mut self, version: &ResourceVersion) {
        self.all_mut().for_each(|kind| kind.trust_unserved(version));
    }

    /// The store of a kind was restored. A kind that is not served now may be served again, and its knowledge belongs
    /// to the earlier history too.
    pub(crate) fn lose_history(&mut self, id: KindId) {
        if self.kind(id).is_aggregated() {
            return self.kind_mut(id).lose_history();
        }
        self.all_mut().for_each(Kind::lose_history);
        self.forget_main_store();
    }
}
