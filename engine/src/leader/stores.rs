//! Which collections of the main API server are kept in a store of their own (`--etcd-servers-overrides`): their versions cannot be
//! compared with those of the rest.
//!
//! A consistent list of a collection in the main store stands at or past whatever the others had shown when it was asked for. One that
//! stays behind for a minute of questions has a store of its own, and is compared with itself alone from then on.

use super::{Event, Known, Leader, ProbeAnswer, Purpose, Timer};
use crate::coverage::{Kind, KindId, State};
use crate::object::GroupResource;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

/// Between two rounds of questions.
const ASK_EVERY: Duration = Duration::from_secs(20);
/// Rounds that a collection is behind before it is taken for one with a store of its own: a minute.
const APART_AFTER: u32 = 4;
/// Collections asked in one round, at most.
const ASKED_MAX: usize = 64;

impl Leader {
    /// A collection is listed. Most have reached where the others are by the next round, by themselves.
    pub(super) fn compare_stores_later(&mut self) {
        if self.coverage.behind().next().is_some() {
            self.compare_in_a_moment();
        }
    }

    fn compare_in_a_moment(&mut self) {
        if !core::mem::replace(&mut self.comparing, true) {
            self.timers.set_after(self.now, ASK_EVERY, Timer::Stores);
        }
    }

    /// A collection that kept up with the main store stands behind it.
    pub(super) fn compare_stores(&mut self) {
        self.coverage.compare_stores();
        self.compare_in_a_moment();
    }

    pub(super) fn kept_apart(&self) -> Vec<GroupResource> {
        let apart = self.coverage.served().filter(|(_, kind)| kind.kept_apart);
        apart.filter_map(|(_, kind)| Some(kind.served.as_ref()?.group_resource.clone())).collect()
    }

    pub(super) fn inconsistent(&self) -> Vec<(GroupResource, String)> {
        let why = |(_, kind): (KindId, &Kind)| {
            let contradiction = kind.contradiction.as_ref()?;
            Some((kind.served.as_ref()?.group_resource.clone(), contradiction.why.clone()))
        };
        self.coverage.served().filter_map(why).collect()
    }

    pub(super) fn stores_due(&mut self) {
        self.comparing = false;
        if self.is_stopped_by_doubt() {
            return self.compare_in_a_moment();
        }
        let apart = self.coverage.apart(APART_AFTER);
        if !apart.is_empty() {
            self.coverage.keep_apart(&apart);
            for &id in &apart {
                if let Some(served) = &self.coverage.kind(id).served {
                    let collection = served.group_resource.clone();
                    self.event(Event::KeptApart { collection });
                }
            }
        }
        let behind: Vec<KindId> = self.coverage.behind().take(ASKED_MAX).collect();
        if !behind.is_empty() {
            self.compare_in_a_moment();
        }
        for kind in behind {
            self.probe(kind, None, Some(1), Purpose::Store(kind));
        }
    }

    pub(super) fn store_answered(&mut self, kind: KindId, known: &Known, answer: Result<ProbeAnswer, String>) {
        let Ok(answer) = answer else { return };
        let version = &answer.resource_version;
        let Some(store) = known.store.as_ref().filter(|store| version.is_before(store)) else {
            self.leapt(kind, version);
            return;
        };
        let entry = self.coverage.kind_mut(kind);
        if known.own.as_ref().is_some_and(|own| version.is_before(own)) {
            entry.behind = 0;
            let why = alloc::format!("a list stands at {version}, after {store} was seen");
            self.contradicted(kind, why);
        } else if entry.state == State::Synced && !entry.keeps_up {
            entry.behind = entry.behind.saturating_add(1);
        }
    }
}
