//! Which collections share the main store, and how far that and every other store was seen.

use super::{Coverage, Kind, KindId, State};
use crate::object::ResourceVersion;
use crate::time::Time;
use alloc::vec::Vec;
use core::cmp::Ordering;

/// What `etcdutl --bump-revision` is told to add is a thousand million, by its manual; no cluster writes as much in a moment,
const LEAP_MIN: u128 = 100_000_000;
/// or faster than this for long.
const WRITES_PER_SECOND_MAX: u128 = 50_000;

pub(super) fn leaps(high: Option<&(ResourceVersion, Time)>, now: Time, version: &ResourceVersion) -> bool {
    let leaps = |(high, at): &(ResourceVersion, Time)| {
        version.leaps(high, LEAP_MIN + WRITES_PER_SECOND_MAX * u128::from(now.since(*at).as_secs()))
    };
    high.is_some_and(leaps)
}

pub(super) fn raise(high: &mut Option<(ResourceVersion, Time)>, now: Time, version: &ResourceVersion) {
    if !high.as_ref().is_some_and(|(high, _)| version.is_before(high)) && !leaps(high.as_ref(), now, version) {
        *high = Some((version.clone(), now));
    }
}

impl Coverage {
    /// Takes in that the store of this collection was seen at this version.
    pub(crate) fn raise(&mut self, now: Time, id: KindId, version: &ResourceVersion) {
        let reaches_main = self.main.as_ref().is_some_and(|(main, _)| version.reached(main))
            && !leaps(self.main.as_ref(), now, version);
        let kind = self.kind_mut(id);
        kind.raise(now, version);
        // What is left of a history that is over says nothing of the store as it is.
        if kind.rewound.is_none() && kind.is_in_main_store() && version.is_ordered() {
            if !kind.keeps_up && reaches_main {
                kind.keeps_up = true;
                kind.against = 0;
            }
            raise(&mut self.main, now, version);
        }
    }

    /// Takes in that the store took a write to an object of this collection at this version.
    pub(crate) fn wrote(&mut self, now: Time, id: KindId, version: &ResourceVersion) {
        let kind = self.kind(id);
        // Of a collection that has not gone along with the others it is not known which store it is kept in.
        if kind.is_in_main_store() && kind.keeps_up && version.is_ordered() {
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

    /// The highest version that the main store was ever seen at.
    pub(crate) fn main(&self) -> Option<&ResourceVersion> {
        self.main.as_ref().map(|(main, _)| main)
    }

    /// Whether this version of a collection of the main store lies too far past all that the store was seen at.
    pub(crate) fn is_far_ahead(&self, now: Time, id: KindId, version: &ResourceVersion) -> bool {
        self.kind(id).is_in_main_store() && leaps(self.main.as_ref(), now, version)
    }

    /// The main store has another history: nothing is known of where it stands, or of which collections it holds.
    pub(crate) fn forget_main_store(&mut self) {
        self.main = None;
        self.shown = None;
        for kind in self.all_mut() {
            kind.unplaced = false;
            kind.stood = None;
        }
        self.compare_stores();
    }

    fn all_mut(&mut self) -> impl Iterator<Item = &mut Kind> {
        self.kinds.iter_mut().filter_map(|place| place.kind.as_mut())
    }

    /// Collections of the main store that have not been seen at or past where the others have shown it.
    pub(crate) fn behind(&self) -> impl Iterator<Item = KindId> + '_ {
        let is_behind = |kind: &Kind| kind.state == State::Synced && kind.is_in_main_store() && !kind.keeps_up;
        self.served().filter(move |(_, kind)| is_behind(kind)).map(|(id, _)| id)
    }

    /// Collections of which it is not known which store they are kept in.
    pub(crate) fn unplaced(&self) -> impl Iterator<Item = KindId> + '_ {
        self.served().filter(|(_, kind)| kind.unplaced).map(|(id, _)| id)
    }

    /// It is to be asked anew which collections share the main store.
    pub(crate) fn compare_stores(&mut self) {
        for kind in self.all_mut() {
            kind.keeps_up = false;
            kind.against = 0;
        }
    }

    /// Of collections that have stood elsewhere than the main store for `rounds` questions: those that do not share it. Where it is most of
    /// them, it is the ones ahead, or far behind, that do not; or none of them, where only what is not served any more has shown the main
    /// store to stand where it is thought to.
    pub(crate) fn apart(&self, now: Time, rounds: u32) -> Option<Vec<KindId>> {
        let elsewhere: Vec<KindId> = self.behind().filter(|&id| self.kind(id).against >= rounds).collect();
        let level = self.served().filter(|(_, kind)| kind.state == State::Synced && kind.is_in_main_store()).count();
        if 2 * elsewhere.len() <= level {
            return (!elsewhere.is_empty()).then_some(elsewhere);
        }
        let mut highs: Vec<&ResourceVersion> =
            elsewhere.iter().filter_map(|&id| self.kind(id).high.as_ref().map(|(high, _)| high)).collect();
        highs.sort_by(|one, other| one.compare(other).unwrap_or(Ordering::Equal));
        let (Some(&furthest), Some(&middle)) = (highs.last(), highs.get(highs.len() / 2)) else { return None };
        let is_apart = |&(_, kind): &(KindId, &Kind)| {
            let stands = |high: &(ResourceVersion, Time)| furthest.is_before(&high.0) || leaps(Some(high), now, middle);
            kind.is_in_main_store() && kind.high.as_ref().is_some_and(stands)
        };
        Some(self.served().filter(is_apart).map(|(id, _)| id).collect())
    }

    /// Takes collections for ones that do not share the main store. Where that stands is what the others have shown.
    pub(crate) fn take_apart(&mut self, apart: &[KindId]) {
        for &id in apart {
            self.kind_mut(id).unplaced = true;
        }
        (self.main, self.shown) = (None, None);
        for kind in self.kinds.iter_mut().filter_map(|place| place.kind.as_mut()) {
            kind.against = 0;
            if let Some((high, at)) = kind.high.clone().filter(|_| kind.is_in_main_store() && kind.rewound.is_none()) {
                raise(&mut self.main, at, &high);
            }
        }
    }

    /// Takes a collection for one of the main store again.
    pub(crate) fn rejoin(&mut self, id: KindId) {
        let kind = self.kind_mut(id);
        kind.unplaced = false;
        kind.against = 0;
        kind.stood = None;
    }
}
