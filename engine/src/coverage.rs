//! The served kinds, and the completeness and position of each collection.

use crate::object::{Access, Backend, GroupResource, Name, ResourceVersion, ServedKind};
use crate::time::Time;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

mod rivals;
mod stores;
mod undiscovered;

pub(crate) use stores::Placement;
use stores::{leaps, raise};
pub use undiscovered::{ALL_RESOURCES, Undiscovered};

/// How much of a collection the graph knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// The first list, or a new one, is in progress.
    Listing,
    /// Listed, and watched.
    Synced,
    /// It was synced; its watch has been lost for a while.
    Stale,
    /// Cannot be listed.
    Failed,
    /// Not watched: ignored by configuration, or without the required verbs.
    Ignored,
}

impl State {
    /// The word for logs, labels and screens.
    pub fn as_str(self) -> &'static str {
        match self {
            State::Listing => "listing",
            State::Synced => "synced",
            State::Stale => "stale",
            State::Failed => "failed",
            State::Ignored => "ignored",
        }
    }
}

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

/// A group and kind, with the knowledge about its collection.
#[derive(Clone, Debug)]
pub(crate) struct Kind {
    pub(crate) group: Name,
    pub(crate) kind: Name,
    /// `None` while it is not served.
    pub(crate) served: Option<ServedKind>,
    /// The last served scope. References are still judged by this scope after the kind is gone.
    namespaced: Option<bool>,
    pub(crate) state: State,
    /// The graph has everything that the collection's watch has sent up to this version.
    pub(crate) position: Option<ResourceVersion>,
    /// Objects in the graph.
    pub(crate) observed: usize,
    /// The current or last list. Objects have the number of the last list that showed them.
    pub(crate) list: u32,
    /// Observed objects that the current list has shown.
    pub(crate) fresh: usize,
    pub(crate) error: String,
    pub(crate) since: Time,
    pub(crate) progress: Option<Time>,
    /// When the watch was lost.
    pub(crate) lost: Option<Time>,
    /// The number of the last list that started before the store was restored. Until a newer list is complete, lower
    /// versions are expected.
    pub(crate) rewound: Option<u32>,
    /// The highest version that any request has seen of the kind's store, and the time.
    pub(crate) high: Option<(ResourceVersion, Time)>,
    /// The highest seen version when the kind ceased to be served. A list that ends before this version belongs to
    /// another history.
    pub(crate) floor: Option<ResourceVersion>,
    /// An aggregated API server served the kind. Its versions say nothing about the main store.
    pub(crate) was_aggregated: bool,
    /// The lowest known version among objects that the current list returned at an older version. A list that ends past
    /// this version and still lacks the update belongs to another history.
    pub(crate) regressed_to: Option<ResourceVersion>,
    /// The connection of the watch broke, and the position of the store is not known yet.
    pub(crate) doubtful: bool,
    /// Invalid objects of the last list, which are not in the graph.
    pub(crate) unusable: usize,
    pub(crate) placement: Placement,
    /// Recent contradictions between answers about the collection.
    pub(crate) contradiction: Option<Contradiction>,
    /// Several resources of the group have this kind. A reference does not say which one it means.
    pub(crate) ambiguous: bool,
}

/// Contradictory answers of the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Contradiction {
    /// The last contradiction, as text.
    pub(crate) why: String,
    /// The number of contradictions, each one soon after the previous one.
    pub(crate) count: u32,
    pub(crate) last: Time,
}

impl Kind {
    /// Whether its objects are in the graph, or will be.
    pub(crate) fn is_watched(&self) -> bool {
        self.served.as_ref().is_some_and(|served| served.access == Access::Watched)
    }

    /// Whether this list, and the watch that follows it, belong to a history that the store no longer has.
    pub(crate) fn is_lost(&self, list: u32) -> bool {
        self.rewound == Some(list)
    }

    /// Whether it is watched and may have objects that the graph does not show.
    pub(crate) fn is_unseen(&self) -> bool {
        self.is_watched() && self.state != State::Synced
    }

    /// Whether it is unseen, or must confirm its history first.
    pub(crate) fn is_uncertain(&self) -> bool {
        self.is_unseen() || (self.is_watched() && self.is_in_doubt())
    }

    /// Whether its knowledge may belong to another history of its store.
    pub(crate) fn is_in_doubt(&self) -> bool {
        self.doubtful || (self.is_aggregated() && self.rewound.is_some())
    }

    /// Whether it is namespaced, if known.
    pub(crate) fn namespaced(&self) -> Option<bool> {
        self.namespaced
    }

    /// Whether an aggregated API server with a store of its own serves it.
    pub(crate) fn is_aggregated(&self) -> bool {
        self.served.as_ref().is_some_and(|served| served.backend == Backend::Aggregated)
    }

    /// Whether the first list is complete and the last list has not failed. Only then the absence of an object has a
    /// meaning.
    pub(crate) fn is_listed(&self) -> bool {
        self.is_watched() && self.position.is_some() && self.state != State::Failed
    }

    /// Whether its versions are those of the main store, and are comparable with those of all other collections there.
    pub(crate) fn is_in_main_store(&self) -> bool {
        let is_main = self.served.as_ref().is_some_and(|served| served.backend == Backend::Main);
        is_main && matches!(self.placement, Placement::Main { .. })
    }

    /// Whether the kind's store is known. Then the positions of the collection show the age of an answer.
    pub(crate) fn is_placed(&self) -> bool {
        self.placement == Placement::Apart || self.keeps_up()
    }

    /// Whether this version is too far ahead for the elapsed time. A store that is restored from a backup continues
    /// after all earlier versions.
    pub(crate) fn leaps(&self, now: Time, version: &ResourceVersion) -> bool {
        leaps(self.high.as_ref(), now, version)
    }

    /// Records that its store was seen at this version.
    fn raise(&mut self, now: Time, version: &ResourceVersion) {
        raise(&mut self.high, now, version);
    }

    fn of(group: Name, kind: Name) -> Kind {
        Kind {
            group,
            kind,
            served: None,
            namespaced: None,
            state: State::Ignored,
            position: None,
            observed: 0,
            list: 0,
            fresh: 0,
            error: String::new(),
            since: Time::ZERO,
            progress: None,
            lost: None,
            rewound: None,
            high: None,
            floor: None,
            was_aggregated: false,
            regressed_to: None,
            doubtful: false,
            unusable: 0,
            placement: Placement::default(),
            contradiction: None,
            ambiguous: false,
        }
    }

    fn is_listable(&self) -> bool {
        self.served.as_ref().is_some_and(|served| served.access != Access::ReadOnly)
    }

    fn enter(&mut self, now: Time, state: State) -> bool {
        let changed = self.state != state;
        if changed {
            self.state = state;
            self.since = now;
        }
        changed
    }
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
    main: Option<(ResourceVersion, Time)>,
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
            let was_served = kind.high.is_some() || kind.floor.is_some() || kind.doubtful;
            let counts = was_served && now.since(kind.since) < UNSERVED_KEPT;
            if kind.served.is_some() || counts || used.contains(&id) {
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
        let kind = self.kind_mut(id);
        let was_watched = kind.is_watched();
        kind.namespaced = Some(served.namespaced);
        kind.served = Some(served);
        if !kind.is_watched() {
            kind.enter(now, State::Ignored);
        } else if !was_watched {
            kind.position = None;
            kind.enter(now, State::Listing);
            kind.since = now;
        }
        id
    }

    /// Records that a kind is no longer served. The state of its collection becomes unknown.
    pub(crate) fn unserve(&mut self, now: Time, collection: &GroupResource) -> Option<KindId> {
        let id = self.by_resource.remove(collection)?;
        let kind = self.kind_mut(id);
        kind.was_aggregated = kind.is_aggregated();
        kind.doubtful &= !kind.was_aggregated;
        kind.served = None;
        kind.floor = kind.high.as_ref().map(|(high, _)| high.clone());
        kind.position = None;
        kind.progress = None;
        kind.lost = None;
        kind.error.clear();
        kind.enter(now, State::Ignored);
        Some(id)
    }

    /// A list starts. True if the state changed.
    pub(crate) fn list_begun(&mut self, now: Time, id: KindId) -> bool {
        let kind = self.kind_mut(id);
        kind.list = kind.list.wrapping_add(1);
        kind.fresh = 0;
        kind.unusable = 0;
        kind.regressed_to = None;
        kind.lost = None;
        // Readers see a failed collection as failed until a list has succeeded.
        kind.state != State::Failed && kind.enter(now, State::Listing)
    }

    /// The current list is complete as of `version`.
    pub(crate) fn list_ended(&mut self, now: Time, id: KindId, version: ResourceVersion) -> Advance {
        let kind = self.kind_mut(id);
        let floor = kind.floor.take();
        let back = kind.position.iter().chain(&floor).any(|known| version.is_before(known));
        let skipped = kind.regressed_to.take().is_some_and(|known| version.reached(&known));
        let rewind = (back || skipped || kind.leaps(now, &version)) && kind.rewound.is_none();
        if kind.rewound.is_some_and(|list| list != kind.list) {
            kind.rewound = None;
        }
        if rewind {
            kind.high = None;
        }
        self.raise(now, id, &version);
        let kind = self.kind_mut(id);
        kind.position = Some(version);
        kind.doubtful = false;
        kind.error.clear();
        kind.progress = Some(now);
        kind.lost = None;
        kind.enter(now, State::Synced);
        if rewind { Advance::Rewind } else { Advance::Moved }
    }

    pub(crate) fn list_failed(&mut self, now: Time, id: KindId, error: String) -> bool {
        let kind = self.kind_mut(id);
        kind.error = error;
        kind.enter(now, State::Failed)
    }

    /// An event or bookmark of the watch has `version`.
    pub(crate) fn advance(&mut self, now: Time, id: KindId, version: &ResourceVersion) -> Advance {
        let kind = self.kind_mut(id);
        let back = kind.position.as_ref().is_some_and(|position| version.is_before(position));
        if (back || kind.leaps(now, version)) && kind.rewound.is_none() {
            return Advance::Rewind;
        }
        self.raise(now, id, version);
        let kind = self.kind_mut(id);
        kind.position = Some(version.clone());
        kind.progress = Some(now);
        Advance::Moved
    }

    /// Records a note about a watched collection. True if it is new.
    pub(crate) fn note(&mut self, id: KindId, note: String) -> bool {
        let kind = self.kind_mut(id);
        let news = kind.state == State::Synced && kind.lost.is_none() && kind.error != note;
        if news {
            kind.error = note;
        }
        news
    }

    pub(crate) fn watch_lost(&mut self, now: Time, id: KindId, error: String) {
        let kind = self.kind_mut(id);
        kind.error = error;
        kind.lost.get_or_insert(now);
    }

    /// The watch is open again. True if the state changed.
    pub(crate) fn watch_resumed(&mut self, now: Time, id: KindId) -> bool {
        let kind = self.kind_mut(id);
        kind.lost = None;
        if matches!(kind.state, State::Synced | State::Stale) {
            kind.error.clear();
            kind.progress = Some(now);
        }
        kind.state == State::Stale && kind.enter(now, State::Synced)
    }

    /// Marks a collection as stale if its watch has been lost for `after`. True if the state changed.
    pub(crate) fn stale(&mut self, now: Time, id: KindId, after: Duration) -> bool {
        let kind = self.kind_mut(id);
        kind.state == State::Synced
            && kind.lost.is_some_and(|lost| now.since(lost) >= after)
            && kind.enter(now, State::Stale)
    }
}
