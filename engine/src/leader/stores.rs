//! Detection of collections that share the main store of the main API server. Only the positions of these collections
//! are comparable with each other.
//!
//! The version of a consistent list in the main store is at or past the positions of the other collections at the time
//! of the request. For a minute of questions, a collection may return other versions because it has a separate store
//! (`--etcd-servers-overrides`), or because a lagging server answers. No answer distinguishes the two cases, so only
//! the configuration declares a separate store. Without that declaration, no list proves the absence of an owner in the
//! collection, no list proves anything to the collection's objects, and an event reports the collection. The collection
//! counts as part of the main store again once its position moves with the others.

use super::{KnownVersions, Leader, ProbeAnswer, Purpose, Timer};
use crate::coverage::KindId;
use crate::object::ResourceVersion;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

/// Time between two rounds of questions.
const ASK_EVERY: Duration = Duration::from_secs(10);
/// Number of rounds in which the positions of a collection must differ before it counts as outside the main store.
const APART_AFTER: u32 = 4;
/// Number of rounds in which a collection must move with the main store before it counts as part of the main store
/// again.
const REJOINED_AFTER: u32 = 2;
/// Maximum number of collections that one round asks.
const ASKED_MAX: usize = 64;

impl Leader {
    /// Schedules a comparison after a collection was listed. Most collections reach the position of the others by the
    /// next round.
    pub(super) fn compare_stores_later(&mut self) {
        if self.world.coverage().behind().next().is_some() {
            self.compare_in_a_moment();
        }
    }

    fn compare_in_a_moment(&mut self) {
        if self.prober.compare_soon() {
            self.cx.timers.set_after(self.cx.now, ASK_EVERY, Timer::Stores);
        }
    }

    /// Compares the stores of collections. A collection that kept up with the main store and is behind it now has
    /// contradicted its placement.
    pub(super) fn compare_stores(&mut self) {
        self.world.compare_stores();
        self.compare_in_a_moment();
    }

    pub(super) fn stores_due(&mut self) {
        self.prober.comparing_begins();
        if self.history.is_in_doubt() {
            return self.compare_in_a_moment();
        }
        let apart = self.world.coverage().apart(self.cx.now, APART_AFTER);
        if let Some(apart) = apart {
            self.world.take_apart(&mut self.cx, apart);
        }
        let elsewhere: Vec<KindId> =
            self.world.coverage().behind().chain(self.world.coverage().unplaced()).take(ASKED_MAX).collect();
        if !elsewhere.is_empty() {
            self.compare_in_a_moment();
        }
        for kind in elsewhere {
            self.probe(kind, None, Some(1), Purpose::Store);
        }
    }

    pub(super) fn store_answered(&mut self, kind: KindId, known: &KnownVersions, answer: Result<ProbeAnswer, String>) {
        let Ok(answer) = answer else { return };
        let version = &answer.resource_version;
        if self.world.coverage().kind(kind).is_unplaced() {
            return self.went_along(kind, known, version);
        }
        let before = known.store.as_ref().filter(|store| version.is_before(store));
        let is_far_ahead = self.world.coverage().is_far_ahead(self.cx.now, kind, version);
        if before.is_none() && !is_far_ahead {
            self.leapt(kind, version);
            return;
        }
        match before {
            Some(store) if known.own.as_ref().is_some_and(|own| version.is_before(own)) => {
                self.world.begin_count(kind);
                let why = alloc::format!(
                    "a list returned version {version}, which is before the known version {store} of the main store"
                );
                self.contradicted(kind, why);
            }
            _ => self.world.speaks_against(kind),
        }
    }

    /// Records the position of a collection that counts as outside the main store. A collection of the main store is at
    /// or past the position at which the main store was seen. That position is at or past the position of the
    /// collection one round earlier.
    fn went_along(&mut self, kind: KindId, known: &KnownVersions, version: &ResourceVersion) {
        if self.leapt(kind, version) {
            return;
        }
        self.world.goes_along(kind, known.main.as_ref(), version, REJOINED_AFTER);
    }
}
