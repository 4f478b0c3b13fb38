//! Which collections of the main API server share its main store: only the positions of those can be compared with each other.
//!
//! A consistent list of a collection in the main store stands at or past whatever the others had shown when it was asked for. One that
//! stands elsewhere for a minute of questions has a store of its own (`--etcd-servers-overrides`), or another server answers for it, from
//! the past. No answer tells the one from the other, so only the administrator's word makes it a store of its own: without that, no list
//! proves an owner in it absent, no list proves anything to its objects, and the collection is told of. It counts as one of the main
//! store again once it goes along with the others.

use super::{KnownVersions, Leader, ProbeAnswer, Purpose, Timer};
use crate::coverage::KindId;
use crate::object::ResourceVersion;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

/// Between two rounds of questions.
const ASK_EVERY: Duration = Duration::from_secs(10);
/// Rounds that a collection stands elsewhere before it is taken for one that does not share the main store.
const APART_AFTER: u32 = 4;
/// Rounds that it goes along with the main store before it is taken for one of it again.
const REJOINED_AFTER: u32 = 2;
/// Collections asked in one round, at most.
const ASKED_MAX: usize = 64;

impl Leader {
    /// A collection is listed. Most have reached where the others are by the next round, by themselves.
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

    /// A collection that kept up with the main store stands behind it.
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
            self.probe(kind, None, Some(1), Purpose::Store(kind));
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
                let why = alloc::format!("a list stands at {version}, after {store} was seen");
                self.contradicted(kind, why);
            }
            _ => self.world.speaks_against(kind),
        }
    }

    /// A collection that is taken for one apart stands at this version. In the main store, it stands no earlier than that was seen at, and
    /// that was seen where the collection stood a round ago.
    fn went_along(&mut self, kind: KindId, known: &KnownVersions, version: &ResourceVersion) {
        if self.leapt(kind, version) {
            return;
        }
        self.world.goes_along(kind, known.main.as_ref(), version, REJOINED_AFTER);
    }
}
