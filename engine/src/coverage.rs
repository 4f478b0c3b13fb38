//! Which kinds are served, which collections are complete, and up to which position.

use crate::object::{Access, Backend, GroupResource, Name, ResourceVersion, ServedKind, Uid};
use crate::time::Time;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

/// What `etcdutl --bump-revision` is told to add is a thousand million, by its manual; no cluster writes as much in a moment,
const LEAP_MIN: u128 = 100_000_000;
/// or faster than this for long.
const WRITES_PER_SECOND_MAX: u128 = 50_000;

/// How much of a collection the graph knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// The first list, or a new one, is under way.
    Listing,
    /// Listed, and the watch follows.
    Synced,
    /// Was synced; its watch has been lost for longer than a moment.
    Stale,
    /// Cannot be listed.
    Failed,
    /// Not watched: ignored by configuration, or without the verbs.
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

/// Kinds below this number are kept, whether anything names them or not.
const KINDS_KEPT: usize = 1024;
/// What was known of a kind when it ceased to be served counts for so long.
const UNSERVED_KEPT: Duration = Duration::from_secs(3600);

/// Names a group and kind, served or only referred to. Its place is used again after it was dropped, under another generation: what still
/// names a dropped kind (a timer, say) finds one that is not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct KindId {
    place: u32,
    generation: u32,
}

/// A group and kind, and what is known of its collection.
#[derive(Clone, Debug)]
pub(crate) struct Kind {
    pub(crate) group: Name,
    pub(crate) kind: Name,
    /// `None` while nobody serves it.
    pub(crate) served: Option<ServedKind>,
    /// The scope as it was served last. References stay judged by it when the kind goes.
    namespaced: Option<bool>,
    pub(crate) state: State,
    /// Up to here the graph has everything the collection's watch has to say.
    pub(crate) position: Option<ResourceVersion>,
    /// Objects in the graph.
    pub(crate) observed: usize,
    /// The list under way or the last one; objects carry the number of the list that showed them last.
    pub(crate) list: u32,
    /// Of the observed, those that the list under way has shown.
    pub(crate) fresh: usize,
    pub(crate) error: String,
    pub(crate) since: Time,
    pub(crate) progress: Option<Time>,
    /// The watch is lost since then.
    pub(crate) lost: Option<Time>,
    /// The store went back while the list of this number was the last that had begun: until a later one is complete, lower versions
    /// are expected.
    pub(crate) rewound: Option<u32>,
    /// The highest version that its store was ever seen at, by whatever question, and when.
    pub(crate) high: Option<(ResourceVersion, Time)>,
    /// How far it had been seen when it ceased to be served: a list that ends before that is of another history.
    pub(crate) floor: Option<ResourceVersion>,
    /// When it ceased to be served it was behind an APIService: its versions say nothing of the main store.
    pub(crate) was_aggregated: bool,
    /// Of the objects that the list under way shows at an earlier version than is known, the lowest version known: a list that ends
    /// past it should have shown that.
    pub(crate) outrun: Option<ResourceVersion>,
    /// The definition that said last, and when, that its instances are gone.
    pub(crate) emptied: Option<(Uid, Time)>,
    /// Its connection broke, and it has not said yet where it stands.
    pub(crate) doubtful: bool,
    /// Objects of the last list that cannot be used, and so are not in the graph.
    pub(crate) unusable: usize,
    /// The main API server keeps it in another store than the rest: `--etcd-servers-overrides`.
    pub(crate) kept_apart: bool,
    /// It was seen at or past the highest version known of the main store.
    pub(crate) keeps_up: bool,
    /// Answers in a row to the question whether it does, that lay behind.
    pub(crate) behind: u32,
    /// How answers about it contradicted each other lately.
    pub(crate) contradiction: Option<Contradiction>,
}

/// Answers of the API server that cannot both be true.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Contradiction {
    /// The last of them, in words.
    pub(crate) why: String,
    /// So many, none of them long after the one before.
    pub(crate) count: u32,
    pub(crate) last: Time,
}

impl Kind {
    /// Its objects are in the graph, or will be.
    pub(crate) fn is_watched(&self) -> bool {
        self.served.as_ref().is_some_and(|served| served.access == Access::Watched)
    }

    /// What this list showed, and its watch after it, is of a history that the store no longer has.
    pub(crate) fn is_lost(&self, list: u32) -> bool {
        self.rewound == Some(list)
    }

    /// A watched collection that may hold objects the graph does not show.
    pub(crate) fn is_unseen(&self) -> bool {
        self.is_watched() && self.state != State::Synced
    }

    /// The same, or it has to say first that its history is still the one that was seen.
    pub(crate) fn is_uncertain(&self) -> bool {
        self.is_unseen() || (self.is_watched() && self.is_in_doubt())
    }

    /// What is known of it may be of another history of its store.
    pub(crate) fn is_in_doubt(&self) -> bool {
        self.doubtful || (self.is_aggregated() && self.rewound.is_some())
    }

    /// Known to be namespaced, known not to be, or unknown.
    pub(crate) fn namespaced(&self) -> Option<bool> {
        self.namespaced
    }

    /// Served by a server with a store of its own.
    pub(crate) fn is_aggregated(&self) -> bool {
        self.served.as_ref().is_some_and(|served| served.backend == Backend::Aggregated)
    }

    /// Its first list has not ended, or the last one failed: what it lacks says nothing.
    pub(crate) fn is_listed(&self) -> bool {
        self.is_watched() && self.position.is_some() && self.state != State::Failed
    }

    /// Its versions are those of the main store, and order with those of all other collections there.
    pub(crate) fn is_in_main_store(&self) -> bool {
        self.served.as_ref().is_some_and(|served| served.backend == Backend::Main) && !self.kept_apart
    }

    /// Whether this version lies too far ahead for the time that has passed: a store that is restored from a backup is told to go on
    /// behind every version there ever was.
    pub(crate) fn leaps(&self, now: Time, version: &ResourceVersion) -> bool {
        leaps(self.high.as_ref(), now, version)
    }

    /// Takes in that its store was seen at this version.
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
            outrun: None,
            emptied: None,
            doubtful: false,
            unusable: 0,
            kept_apart: false,
            keeps_up: false,
            behind: 0,
            contradiction: None,
        }
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

fn leaps(high: Option<&(ResourceVersion, Time)>, now: Time, version: &ResourceVersion) -> bool {
    let leaps = |(high, at): &(ResourceVersion, Time)| {
        version.leaps(high, LEAP_MIN + WRITES_PER_SECOND_MAX * u128::from(now.since(*at).as_secs()))
    };
    high.is_some_and(leaps)
}

fn raise(high: &mut Option<(ResourceVersion, Time)>, now: Time, version: &ResourceVersion) {
    if !high.as_ref().is_some_and(|(high, _)| version.is_before(high)) && !leaps(high.as_ref(), now, version) {
        *high = Some((version.clone(), now));
    }
}

/// What became of an attempt to move a collection's position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Advance {
    Moved,
    /// The version lies before the position: the store's history is another one.
    Rewind,
}

/// All kinds, by number, by group and kind, and by group and resource.
#[derive(Clone, Debug)]
pub(crate) struct Coverage {
    kinds: Vec<Place>,
    free: Vec<u32>,
    /// Stands for a kind that was dropped.
    none: Kind,
    /// So many there are before the next sweep.
    sweep_at: usize,
    by_kind: BTreeMap<(Name, Name), KindId>,
    by_resource: BTreeMap<GroupResource, KindId>,
    /// The highest version that any collection of the main store was seen at, and when.
    main: Option<(ResourceVersion, Time)>,
    /// The highest version of an object that a list of the main store has shown, however that list ends.
    shown: Option<ResourceVersion>,
}

#[derive(Clone, Debug)]
struct Place {
    generation: u32,
    /// `None` where it is free.
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
            main: None,
            shown: None,
        }
    }
}

impl Coverage {
    /// The number of a group and kind, which is made known if it was not.
    pub(crate) fn kind_id(&mut self, group: &str, kind: &str) -> KindId {
        let key = (Name::from(group), Name::from(kind));
        if let Some(&id) = self.by_kind.get(&key) {
            return id;
        }
        let kind = Some(Kind::of(key.0.clone(), key.1.clone()));
        let id = match self.free.pop() {
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
        };
        self.by_kind.insert(key, id);
        id
    }

    /// The number of a group and kind, if anything ever named it.
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

    /// Whether so many kinds are known that it is worth a look which of them are named by nothing any more.
    pub(crate) fn wants_sweep(&self) -> bool {
        self.kinds.len() - self.free.len() > self.sweep_at
    }

    /// Drops kinds that are not served and that no node of the graph is of. Tenants choose the kinds of their references, and definitions
    /// come and go. How far a kind had been seen that was served is remembered for a while: its next list may be of another history.
    pub(crate) fn sweep(&mut self, now: Time, used: &BTreeSet<KindId>) {
        for (number, place) in self.kinds.iter_mut().enumerate() {
            let Some(kind) = &place.kind else { continue };
            let id = KindId { place: number as u32, generation: place.generation };
            let was_served = kind.high.is_some() || kind.floor.is_some() || kind.emptied.is_some() || kind.doubtful;
            let counts = was_served && now.since(kind.since) < UNSERVED_KEPT;
            if kind.served.is_some() || counts || used.contains(&id) {
                continue;
            }
            self.by_kind.remove(&(kind.group.clone(), kind.kind.clone()));
            place.kind = None;
            place.generation = place.generation.wrapping_add(1);
            self.free.push(id.place);
        }
        self.sweep_at = KINDS_KEPT.max(2 * (self.kinds.len() - self.free.len()));
    }

    /// Takes in that the store of this collection was seen at this version.
    pub(crate) fn raise(&mut self, now: Time, id: KindId, version: &ResourceVersion) {
        let reaches_main = self.main.as_ref().is_some_and(|(main, _)| version.reached(main));
        let kind = self.kind_mut(id);
        kind.raise(now, version);
        // What is left of a history that is over says nothing of the store as it is.
        if kind.rewound.is_none() && kind.is_in_main_store() && version.is_ordered() {
            if !kind.keeps_up && reaches_main {
                kind.keeps_up = true;
                kind.behind = 0;
            }
            raise(&mut self.main, now, version);
        }
    }

    /// Takes in that a list under way shows an object at this version.
    pub(crate) fn show(&mut self, id: KindId, version: &ResourceVersion) {
        let kind = self.kind(id);
        let counts = kind.rewound.is_none() && kind.is_in_main_store() && version.is_ordered();
        if counts && !self.shown.as_ref().is_some_and(|shown| version.is_before(shown)) {
            self.shown = Some(version.clone());
        }
    }

    /// No answer of this collection's store from now on can lie before this version: the collections of the main store share one, every
    /// other has its own.
    pub(crate) fn floor(&self, id: KindId) -> Option<&ResourceVersion> {
        let kind = self.kind(id);
        let own = kind.high.as_ref().map(|(high, _)| high);
        let shared = [self.main.as_ref().map(|(high, _)| high), self.shown.as_ref()];
        let shared = shared.into_iter().filter(|_| kind.is_in_main_store());
        shared.chain([own]).flatten().reduce(|one, other| if one.is_before(other) { other } else { one })
    }

    /// The main store has another history: nothing is known of where it stands.
    pub(crate) fn forget_main_store(&mut self) {
        self.main = None;
        self.shown = None;
    }

    /// Collections of the main store that have not been seen at or past where the others have shown it.
    pub(crate) fn behind(&self) -> impl Iterator<Item = KindId> + '_ {
        let is_behind = |kind: &Kind| kind.state == State::Synced && kind.is_in_main_store() && !kind.keeps_up;
        self.served().filter(move |(_, kind)| is_behind(kind)).map(|(id, _)| id)
    }

    /// It is to be asked anew which collections share the main store.
    pub(crate) fn compare_stores(&mut self) {
        for kind in self.kinds.iter_mut().filter_map(|place| place.kind.as_mut()) {
            kind.keeps_up = false;
            kind.behind = 0;
        }
    }

    /// Of collections that have stayed behind for `rounds` questions: those with stores of their own. Where it is most of them, it is the
    /// ones ahead that are kept apart.
    pub(crate) fn apart(&self, rounds: u32) -> Vec<KindId> {
        let behind: Vec<KindId> = self.behind().filter(|&id| self.kind(id).behind >= rounds).collect();
        let high = |id: KindId| self.kind(id).high.as_ref().map(|(high, _)| high);
        let Some(furthest) = behind.iter().filter_map(|&id| high(id)).reduce(|a, b| if a.is_before(b) { b } else { a })
        else {
            return Vec::new();
        };
        let is_ahead = |&(id, kind): &(KindId, &Kind)| {
            kind.is_in_main_store() && high(id).is_some_and(|high| furthest.is_before(high))
        };
        let ahead: Vec<KindId> = self.served().filter(is_ahead).map(|(id, _)| id).collect();
        let level = self.served().filter(|(_, kind)| kind.state == State::Synced && kind.is_in_main_store()).count();
        if 2 * behind.len() > level { ahead } else { behind }
    }

    /// Takes collections for ones with stores of their own. Where the main store stands is what the others have shown.
    pub(crate) fn keep_apart(&mut self, apart: &[KindId]) {
        for &id in apart {
            self.kind_mut(id).kept_apart = true;
        }
        self.forget_main_store();
        for kind in self.kinds.iter_mut().filter_map(|place| place.kind.as_mut()) {
            kind.behind = 0;
            if let Some((high, at)) = kind.high.clone().filter(|_| kind.is_in_main_store() && kind.rewound.is_none()) {
                raise(&mut self.main, at, &high);
            }
        }
    }

    /// The kind of a served collection.
    pub(crate) fn find(&self, collection: &GroupResource) -> Option<KindId> {
        self.by_resource.get(collection).copied()
    }

    /// Every kind, served or only referred to.
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

    /// Takes what discovery shows. A collection that is watched begins as listing.
    pub(crate) fn serve(&mut self, now: Time, served: ServedKind) -> KindId {
        let id = self.kind_id(&served.group_resource.group, &served.kind);
        if let Some(before) = self.kind(id).served.as_ref().map(|before| before.group_resource.clone())
            && before != served.group_resource
        {
            self.by_resource.remove(&before);
        }
        self.by_resource.insert(served.group_resource.clone(), id);
        let kind = self.kind_mut(id);
        let was_watched = kind.is_watched();
        if kind.served.is_none() {
            kind.emptied = None;
        }
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

    /// Takes the loss of a kind; nothing is known of its collection any more.
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

    /// A list begins. True if the state changed.
    pub(crate) fn list_begun(&mut self, now: Time, id: KindId) -> bool {
        let kind = self.kind_mut(id);
        kind.list = kind.list.wrapping_add(1);
        kind.fresh = 0;
        kind.unusable = 0;
        kind.outrun = None;
        kind.lost = None;
        // A collection that fails stays failed for its readers until a list has worked.
        kind.state != State::Failed && kind.enter(now, State::Listing)
    }

    /// The list under way is complete as of `version`.
    pub(crate) fn list_ended(&mut self, now: Time, id: KindId, version: ResourceVersion) -> Advance {
        let kind = self.kind_mut(id);
        let floor = kind.floor.take();
        let back = kind.position.iter().chain(&floor).any(|known| version.is_before(known));
        let skipped = kind.outrun.take().is_some_and(|known| version.reached(&known));
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

    /// An event or bookmark of the watch carries `version`.
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

    /// Notes something about a collection that is watched without a fault. True if that is news.
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

    /// The watch follows again. True if the state changed.
    pub(crate) fn watch_resumed(&mut self, now: Time, id: KindId) -> bool {
        let kind = self.kind_mut(id);
        kind.lost = None;
        if matches!(kind.state, State::Synced | State::Stale) {
            kind.error.clear();
            kind.progress = Some(now);
        }
        kind.state == State::Stale && kind.enter(now, State::Synced)
    }

    /// Makes a collection stale whose watch has been lost for `after`. True if it became so now.
    pub(crate) fn stale(&mut self, now: Time, id: KindId, after: Duration) -> bool {
        let kind = self.kind_mut(id);
        kind.state == State::Synced
            && kind.lost.is_some_and(|lost| now.since(lost) >= after)
            && kind.enter(now, State::Stale)
    }
}
