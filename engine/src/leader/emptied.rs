//! Kinds whose definition said that their instances are gone.

use super::{Leader, Timer};
use crate::coverage::{KindId, State};
use crate::evidence::Proof;
use crate::graph::{Known, NodeId};
use crate::object::Uid;
use crate::time::Time;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::time::Duration;

/// How long a kind must stay unserved after its definition has gone,
const SETTLES: Duration = Duration::from_secs(5);
/// and how soon it must have gone after that for the two to belong together.
const COUNTS: Duration = Duration::from_secs(60);

/// What a definition said.
#[derive(Debug)]
pub(super) struct Emptied {
    crd: Uid,
    /// Owners that were only referred to when the definition said so first: an instance that was made later has another uid. `None` once the
    /// collection or a read has shown an object since, or the collection may have missed one.
    owners: Option<BTreeSet<Uid>>,
    /// When the definition went.
    gone: Option<Time>,
}

impl Leader {
    /// The instances of a definition are gone, as it says. While it stands, new ones can be made.
    pub(super) fn kind_emptied(&mut self, group: &str, kind: &str, crd: &Uid, standing: bool) {
        let Some(kind) = self.world.coverage.known(group, kind) else { return };
        let is_followed = self.is_followed(kind);
        let is_known = self.world.emptied.get(&kind).is_some_and(|emptied| emptied.crd == *crd);
        if standing && !is_known {
            let unknown = |id: &NodeId| matches!(self.world.graph.node(*id).known(), Known::Virtual { .. });
            let owners = || {
                self.world.graph.unobserved(kind).filter(unknown).map(|id| self.world.graph.node(id).uid()).collect()
            };
            let emptied = Emptied { crd: crd.clone(), owners: is_followed.then(owners), gone: None };
            self.world.emptied.insert(kind, emptied);
        }
        if !standing && is_known {
            let emptied = self.world.emptied.get_mut(&kind).filter(|emptied| emptied.gone.is_none());
            if let Some(emptied) = emptied {
                emptied.gone = Some(self.cx.now);
                if !is_followed {
                    emptied.owners = None;
                }
                self.cx.timers.set(self.cx.now + SETTLES, Timer::Emptied(kind));
            }
        }
    }

    /// Whether the watch of this kind would show an object that is made now.
    fn is_followed(&self, kind: KindId) -> bool {
        let entry = self.world.coverage.kind(kind);
        entry.is_watched() && entry.state == State::Synced && entry.lost.is_none() && !entry.is_in_doubt()
    }

    /// There is an object of this kind: what its definition said is over.
    pub(super) fn is_not_empty(&mut self, kind: KindId) {
        if let Some(emptied) = self.world.emptied.get_mut(&kind) {
            emptied.owners = None;
        }
    }

    /// The kind is not served any more. Its definition may have said before that this would come.
    pub(super) fn await_emptied(&mut self, kind: KindId) {
        if self.world.emptied.contains_key(&kind) {
            self.cx.timers.set(self.cx.now + SETTLES, Timer::Emptied(kind));
        }
    }

    /// Proves the owners absent that the definition's condition covers, unless their kind is served again: the event may be late, and a new
    /// definition of the same kind may have instances already.
    pub(super) fn emptied_due(&mut self, kind: KindId) {
        let entry = self.world.coverage.kind(kind);
        let Some(gone) = self.world.emptied.get(&kind).and_then(|emptied| emptied.gone) else { return };
        if entry.served.is_some() || self.cx.now.since(gone.max(entry.since)) < SETTLES {
            return;
        }
        let belongs = entry.since.since(gone) <= COUNTS;
        let Some(Emptied { crd, owners: Some(owners), .. }) = self.world.emptied.remove(&kind).filter(|_| belongs)
        else {
            return;
        };
        for id in self.world.graph.unobserved(kind).collect::<Vec<_>>() {
            // One that only another of this kind referred to goes with that one.
            if self.world.graph.get(id).is_some_and(|node| !node.is_observed() && owners.contains(&node.uid())) {
                self.prove(id, Proof::TypeEmptied { crd: crd.clone() });
            }
        }
    }
}
