//! A kind, and what is known about its collection.
//!
//! Discovery moves a kind between four forms: it was never served, it is served and watched, it is served and not
//! watched, or it was served formerly. Only a watched kind has a [`Sight`]. The sight begins at `Listing`, ends with
//! the watched form, and moves between its phases:
//!
//! | Fact | `Listing` | `Synced` | `Stale` | `Failed` |
//! |---|---|---|---|---|
//! | A list begins | | `Listing` | `Listing` | |
//! | The list is complete | `Synced` | `Synced` | `Synced` | `Synced` |
//! | The list fails | `Failed` | `Failed` | `Failed` | |
//! | The watch is lost | | remembers since when | | |
//! | The watch resumes | | forgets the loss | `Synced` | |
//! | The watch has been lost for a while | | `Stale` | | |
//!
//! What is known about the store of the kind ([`Seen`]) outlives the forms. It begins with the first version that any
//! request shows, and ends when the store is rewound. The number of the last list outlives both, because objects have
//! this number.

use super::Advance;
use super::placement::{Peak, Placement};
use crate::object::{Access, Backend, Name, ResourceVersion, ServedKind};
use crate::time::Time;
use crate::words::words;
use alloc::string::String;
use core::mem;
use core::time::Duration;

words! {
    /// How much of a collection the graph knows.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum State {
        /// The first list, or a new one, is in progress.
        Listing = "listing",
        /// Listed, and watched.
        Synced = "synced",
        /// The collection was synced. Its watch has been lost for a while.
        Stale = "stale",
        /// Cannot be listed.
        Failed = "failed",
        /// Not watched: ignored by configuration, or without the required verbs.
        Ignored = "ignored",
    }
}

/// A group and kind, with the knowledge about its collection.
#[derive(Clone, Debug)]
pub(crate) struct Kind {
    pub(crate) group: Name,
    pub(crate) kind: Name,
    serving: Serving,
    since: Time,
    /// Objects in the graph.
    observed: usize,
    list: List,
    seen: Option<Seen>,
    /// The number of the last list that started before the store was restored. Until a newer list is complete, lower
    /// versions are expected.
    rewound: Option<u32>,
    pub(super) placement: Placement,
    /// Recent contradictions between answers about the collection.
    pub(crate) contradiction: Option<Contradiction>,
    /// Several resources of the group have this kind. A reference does not say which one it means.
    pub(super) ambiguous: bool,
}

/// How discovery shows a kind.
#[derive(Clone, Debug)]
enum Serving {
    /// Only references name it.
    Never,
    /// References are still judged by the last served scope. The versions of an aggregated API server say nothing about
    /// the main store.
    Formerly {
        namespaced: bool,
        aggregated: bool,
    },
    Unwatched(ServedKind),
    Watched(ServedKind, Sight),
}

/// The content that a watched collection has shown.
#[derive(Clone, Debug, Default)]
struct Sight {
    phase: Phase,
    /// `None` until the first list is complete.
    position: Option<Position>,
    /// The last error, or a note about a collection that is synced and watched.
    error: String,
    /// The generation of the selectors that all objects were matched with; 0 before the first list is complete.
    selectors: u32,
}

#[derive(Clone, Copy, Debug, Default)]
enum Phase {
    #[default]
    Listing,
    Synced {
        /// When the watch was lost.
        lost: Option<Time>,
    },
    Stale,
    Failed,
}

/// The graph has everything that the collection's watch has sent up to this version.
#[derive(Clone, Debug)]
struct Position {
    version: ResourceVersion,
    progress: Time,
}

/// The current or last list.
#[derive(Clone, Debug, Default)]
struct List {
    /// Objects have the number of the last list that showed them.
    number: u32,
    /// Observed objects that this list has shown.
    fresh: usize,
    /// Invalid objects, which are not in the graph.
    unusable: usize,
    /// The lowest known version among objects that this list returned at an older version. A list that ends past this
    /// version and still lacks the update belongs to another history.
    regressed_to: Option<ResourceVersion>,
    /// The generation of the selectors that its objects are matched with.
    selectors: u32,
}

/// The positions that any request has seen of the kind's store in the current history.
#[derive(Clone, Debug)]
struct Seen {
    peak: Peak,
    /// The peak when the kind ceased to be served. A list that ends before this version belongs to another history.
    floor: Option<ResourceVersion>,
    /// The connection of the watch broke, and the position of the store is not known yet.
    doubtful: bool,
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

/// Questions.
impl Kind {
    /// The resource, while the kind is served.
    pub(crate) fn served(&self) -> Option<&ServedKind> {
        match &self.serving {
            Serving::Unwatched(served) | Serving::Watched(served, _) => Some(served),
            Serving::Never | Serving::Formerly { .. } => None,
        }
    }

    /// Whether its objects are in the graph, or will be.
    pub(crate) fn is_watched(&self) -> bool {
        self.sight().is_some()
    }

    /// Whether the kind is namespaced, if known.
    pub(crate) fn namespaced(&self) -> Option<bool> {
        match &self.serving {
            Serving::Never => None,
            Serving::Formerly { namespaced, .. } => Some(*namespaced),
            Serving::Unwatched(served) | Serving::Watched(served, _) => Some(served.namespaced),
        }
    }

    /// Whether an aggregated API server with a store of its own serves it.
    pub(crate) fn is_aggregated(&self) -> bool {
        self.served().is_some_and(|served| served.backend == Backend::Aggregated)
    }

    /// Whether its versions are those of the main store, and are comparable with those of all other collections there.
    pub(crate) fn is_in_main_store(&self) -> bool {
        let is_main = self.served().is_some_and(|served| served.backend == Backend::Main);
        is_main && matches!(self.placement, Placement::Main { .. })
    }

    pub(super) fn is_listable(&self) -> bool {
        self.served().is_some_and(|served| served.access != Access::ReadOnly)
    }

    /// Whether a reference by this kind may mean several resources.
    pub(crate) fn is_ambiguous(&self) -> bool {
        self.ambiguous || self.served().is_some_and(|served| served.split)
    }

    fn sight(&self) -> Option<&Sight> {
        match &self.serving {
            Serving::Watched(_, sight) => Some(sight),
            Serving::Never | Serving::Formerly { .. } | Serving::Unwatched(_) => None,
        }
    }

    pub(crate) fn state(&self) -> State {
        match self.sight().map(|sight| sight.phase) {
            None => State::Ignored,
            Some(Phase::Listing) => State::Listing,
            Some(Phase::Synced { .. }) => State::Synced,
            Some(Phase::Stale) => State::Stale,
            Some(Phase::Failed) => State::Failed,
        }
    }

    /// When the state last changed.
    pub(crate) fn since(&self) -> Time {
        self.since
    }

    pub(crate) fn is_synced(&self) -> bool {
        self.state() == State::Synced
    }

    /// Whether the collection was synced, and its watch is lost.
    pub(crate) fn lacks_watch(&self) -> bool {
        self.sight().is_some_and(|sight| matches!(sight.phase, Phase::Synced { lost: Some(_) } | Phase::Stale))
    }

    /// Whether the watch would show a new object of the current history.
    pub(crate) fn is_followed(&self) -> bool {
        self.is_synced() && !self.lacks_watch() && !self.is_in_doubt()
    }

    /// Whether the collection is watched and may have objects that the graph does not show.
    pub(crate) fn is_unseen(&self) -> bool {
        self.is_watched() && !self.is_synced()
    }

    /// Whether the collection is unseen, or must confirm its history first.
    pub(crate) fn is_uncertain(&self) -> bool {
        self.is_unseen() || (self.is_watched() && self.is_in_doubt())
    }

    /// Whether the first list is complete and the last list has not failed. Only then the absence of an object has a
    /// meaning.
    pub(crate) fn is_listed(&self) -> bool {
        self.position().is_some() && self.state() != State::Failed
    }

    /// The generation of the selectors that all its objects were matched with; 0 before the first list is complete.
    pub(crate) fn selectors(&self) -> u32 {
        self.sight().map_or(0, |sight| sight.selectors)
    }

    /// Whether its objects were matched with a selector of this generation.
    pub(crate) fn knows_selector(&self, since: u32) -> bool {
        self.selectors() >= since
    }

    /// The version up to which the graph has everything that the watch has sent.
    pub(crate) fn position(&self) -> Option<&ResourceVersion> {
        Some(&self.sight()?.position.as_ref()?.version)
    }

    /// Whether the graph has everything that the watch has sent up to `version`.
    pub(crate) fn has_reached(&self, version: &ResourceVersion) -> bool {
        self.position().is_some_and(|position| position.reached(version))
    }

    /// When the watch last reported its position.
    pub(crate) fn progress(&self) -> Option<Time> {
        Some(self.sight()?.position.as_ref()?.progress)
    }

    pub(crate) fn error(&self) -> &str {
        self.sight().map_or("", |sight| &sight.error)
    }

    /// The number of the current or last list.
    pub(crate) fn list(&self) -> u32 {
        self.list.number
    }

    /// Objects in the graph.
    pub(crate) fn observed(&self) -> usize {
        self.observed
    }

    /// Objects in the graph that the current list has shown.
    pub(crate) fn fresh(&self) -> usize {
        self.list.fresh
    }

    /// Objects of the last list, with the invalid ones.
    pub(crate) fn listed(&self) -> usize {
        self.observed + self.list.unusable
    }

    /// Whether its store was restored, and no list that started since is complete.
    pub(crate) fn is_rewound(&self) -> bool {
        self.rewound.is_some()
    }

    /// Whether this list, and the watch that follows it, belong to a history that the store no longer has. A list that
    /// was in progress when the store went back is the last such list. The numbers of lists wrap.
    pub(crate) fn is_lost(&self, list: u32) -> bool {
        self.rewound.is_some_and(|lost| lost.wrapping_sub(list) <= u32::MAX / 2)
    }

    /// Whether its connection broke, and the position of its store is not known yet.
    pub(crate) fn is_doubtful(&self) -> bool {
        self.seen.as_ref().is_some_and(|seen| seen.doubtful)
    }

    /// Whether its knowledge may belong to another history of its store.
    pub(crate) fn is_in_doubt(&self) -> bool {
        self.is_doubtful() || (self.is_aggregated() && self.is_rewound())
    }

    pub(super) fn peak(&self) -> Option<&Peak> {
        self.seen.as_ref().map(|seen| &seen.peak)
    }

    /// The highest version that any request has seen of its store.
    pub(crate) fn high(&self) -> Option<&ResourceVersion> {
        self.peak().map(|peak| &peak.version)
    }

    /// Whether this version is too far ahead for the elapsed time. A store that is restored from a backup continues
    /// after all earlier versions.
    pub(crate) fn leaps(&self, now: Time, version: &ResourceVersion) -> bool {
        self.peak().is_some_and(|peak| peak.leaps(now, version))
    }
}

/// Changes.
impl Kind {
    pub(super) fn of(group: Name, kind: Name) -> Kind {
        Kind {
            group,
            kind,
            serving: Serving::Never,
            since: Time::ZERO,
            observed: 0,
            list: List::default(),
            seen: None,
            rewound: None,
            placement: Placement::default(),
            contradiction: None,
            ambiguous: false,
        }
    }

    /// Notes the time if the state is not `before` any more. True if so.
    fn left(&mut self, now: Time, before: State) -> bool {
        let changed = self.state() != before;
        if changed {
            self.since = now;
        }
        changed
    }

    fn sight_mut(&mut self) -> Option<&mut Sight> {
        match &mut self.serving {
            Serving::Watched(_, sight) => Some(sight),
            Serving::Never | Serving::Formerly { .. } | Serving::Unwatched(_) => None,
        }
    }

    /// Changes what the collection has shown. True if the state changed.
    fn look(&mut self, now: Time, change: impl FnOnce(&mut Sight)) -> bool {
        let before = self.state();
        if let Some(sight) = self.sight_mut() {
            change(sight);
        }
        self.left(now, before)
    }

    /// Discovery shows the kind.
    pub(super) fn serve(&mut self, now: Time, served: ServedKind) {
        let before = self.state();
        self.serving = match (served.access, mem::replace(&mut self.serving, Serving::Never)) {
            (Access::Listed | Access::ReadOnly, _) => Serving::Unwatched(served),
            (Access::Watched, Serving::Watched(_, sight)) => Serving::Watched(served, sight),
            (Access::Watched, _) => Serving::Watched(served, Sight::default()),
        };
        self.left(now, before);
    }

    /// Discovery does not show the kind any more.
    pub(super) fn unserve(&mut self, now: Time) {
        let (before, aggregated) = (self.state(), self.is_aggregated());
        if let Some(namespaced) = self.namespaced() {
            self.serving = Serving::Formerly { namespaced, aggregated };
        }
        if let Some(seen) = &mut self.seen {
            seen.doubtful &= !aggregated;
            seen.floor = Some(seen.peak.version.clone());
        }
        self.left(now, before);
    }

    /// A list starts. True if the state changed.
    pub(crate) fn begin_list(&mut self, now: Time, selectors: u32) -> bool {
        self.list = List { number: self.list.number.wrapping_add(1), selectors, ..List::default() };
        self.look(now, |sight| match sight.phase {
            // Readers see a failed collection as failed until a list has succeeded.
            Phase::Failed => {}
            Phase::Listing | Phase::Synced { .. } | Phase::Stale => sight.phase = Phase::Listing,
        })
    }

    /// The current list is complete as of `version`.
    pub(super) fn end_list(&mut self, now: Time, version: ResourceVersion) -> Advance {
        let floor = self.seen.as_mut().and_then(|seen| seen.floor.take());
        let back = self.position().into_iter().chain(&floor).any(|known| version.is_before(known));
        let skipped = self.list.regressed_to.take().is_some_and(|known| version.reached(&known));
        let rewind = (back || skipped || self.leaps(now, &version)) && !self.is_rewound();
        self.rewound = self.rewound.filter(|list| *list == self.list.number);
        self.seen = self.seen.take().filter(|_| !rewind);
        self.set_doubtful(false);
        let (position, phase) = (Some(Position { version, progress: now }), Phase::Synced { lost: None });
        let selectors = self.list.selectors;
        self.look(now, |sight| *sight = Sight { phase, position, error: String::new(), selectors });
        if rewind { Advance::Rewind } else { Advance::Moved }
    }

    /// The current list failed. True if the state changed.
    pub(crate) fn fail_list(&mut self, now: Time, error: String) -> bool {
        self.look(now, |sight| (sight.phase, sight.error) = (Phase::Failed, error))
    }

    /// An event or bookmark of the watch has `version`.
    pub(super) fn advance(&mut self, now: Time, version: &ResourceVersion) -> Advance {
        let back = self.position().is_some_and(|position| version.is_before(position));
        if (back || self.leaps(now, version)) && !self.is_rewound() {
            return Advance::Rewind;
        }
        if let Some(sight) = self.sight_mut() {
            sight.position = Some(Position { version: version.clone(), progress: now });
        }
        Advance::Moved
    }

    /// Records a note about a watched collection. True if it is new.
    pub(crate) fn note(&mut self, note: String) -> bool {
        let well = |sight: &&mut Sight| matches!(sight.phase, Phase::Synced { lost: None }) && sight.error != note;
        self.sight_mut().filter(well).map(|sight| sight.error = note).is_some()
    }

    pub(crate) fn lose_watch(&mut self, now: Time, error: String) {
        let Some(sight) = self.sight_mut() else { return };
        sight.error = error;
        if let Phase::Synced { lost } = &mut sight.phase {
            lost.get_or_insert(now);
        }
    }

    /// The watch is open again. True if the state changed.
    pub(crate) fn resume_watch(&mut self, now: Time) -> bool {
        self.look(now, |sight| match (sight.phase, &mut sight.position) {
            (Phase::Synced { .. } | Phase::Stale, Some(position)) => {
                sight.phase = Phase::Synced { lost: None };
                sight.error.clear();
                position.progress = now;
            }
            (Phase::Listing | Phase::Failed, _) | (_, None) => {}
        })
    }

    /// Marks a collection as stale if its watch has been lost for `after`. True if the state changed.
    pub(crate) fn expire(&mut self, now: Time, after: Duration) -> bool {
        self.look(now, |sight| match sight.phase {
            Phase::Synced { lost: Some(lost) } if now.since(lost) >= after => sight.phase = Phase::Stale,
            Phase::Listing | Phase::Synced { .. } | Phase::Stale | Phase::Failed => {}
        })
    }

    /// An object enters the graph. `shown` is true if the current list shows the object.
    pub(crate) fn count_in(&mut self, shown: bool) {
        self.observed += 1;
        self.list.fresh += usize::from(shown);
    }

    /// An object leaves the graph. `fresh` is true if the current list has shown the object.
    pub(crate) fn count_out(&mut self, fresh: bool) {
        self.observed -= 1;
        self.list.fresh -= usize::from(fresh);
    }

    /// The current list shows an object of the graph for the first time.
    pub(crate) fn count_shown(&mut self) {
        self.list.fresh += 1;
    }

    /// The current list contains an object that cannot enter the graph.
    pub(crate) fn count_unusable(&mut self) {
        self.list.unusable += 1;
    }

    /// The current list shows an object at an earlier version than the known one, which the watch has not reached.
    pub(crate) fn regress(&mut self, known: ResourceVersion) {
        let lowest = self.list.regressed_to.take().filter(|lowest| lowest.is_before(&known));
        self.list.regressed_to = Some(lowest.unwrap_or(known));
    }

    /// Records that its store was seen at this version.
    pub(super) fn raise(&mut self, now: Time, version: &ResourceVersion) {
        match &mut self.seen {
            Some(seen) => seen.peak.raise(now, version),
            None => {
                let peak = Peak { version: version.clone(), at: now };
                self.seen = Some(Seen { peak, floor: None, doubtful: false });
            }
        }
    }

    /// Sets whether the connection broke and the position of the store is not known yet. A store of which nothing was
    /// seen is not in doubt.
    pub(crate) fn set_doubtful(&mut self, doubtful: bool) {
        if let Some(seen) = &mut self.seen {
            seen.doubtful = doubtful;
        }
    }

    /// The main store was seen at `version`. Doubts the kind if it is not served, and was seen past that version in the
    /// main store. True if it is in doubt.
    pub(super) fn doubt_unserved(&mut self, version: &ResourceVersion) -> bool {
        if let (Serving::Formerly { aggregated: false, .. }, Some(Seen { floor: Some(floor), doubtful, .. })) =
            (&self.serving, &mut self.seen)
        {
            *doubtful = !version.reached(floor);
            return *doubtful;
        }
        false
    }

    /// The main store was seen at `version`. Ends the doubt in a kind that is not served and was not seen past it.
    pub(super) fn trust_unserved(&mut self, version: &ResourceVersion) {
        if let (None, Some(floor)) = (self.served(), self.seen.as_ref().and_then(|seen| seen.floor.as_ref()))
            && version.reached(floor)
        {
            self.set_doubtful(false);
        }
    }

    /// The store was restored to another history.
    pub(super) fn lose_history(&mut self) {
        // A collection that is not watched has no list that a new list replaces.
        self.rewound = (self.served().is_none() || self.is_watched()).then_some(self.list.number);
        self.seen = None;
    }
}
