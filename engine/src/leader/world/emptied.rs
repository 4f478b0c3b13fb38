//! Kinds whose definition said that their instances are gone.

use super::super::Timer;
use super::super::context::Context;
use super::World;
use crate::coverage::{KindId, State};
use crate::graph::{Known, NodeId};
use crate::object::Uid;
use crate::time::Time;
use alloc::collections::BTreeSet;
use core::time::Duration;

/// How long a kind must stay unserved after its definition has gone,
const SETTLES: Duration = Duration::from_secs(5);
/// and how soon it must have gone after that for the two to belong together.
const COUNTS: Duration = Duration::from_secs(60);

/// What a definition said.
#[derive(Debug)]
pub(in crate::leader) struct Emptied {
    crd: Uid,
    /// Owners that were only referred to when the definition said so first: an instance that was made later has another uid. `None` once the
    /// collection or a read has shown an object since, or the collection may have missed one.
    owners: Option<BTreeSet<Uid>>,
    /// When the definition went.
    gone: Option<Time>,
}

impl World {
    /// The instances of a definition are gone, as it says. While it stands, new ones can be made.
    pub(in crate::leader) fn kind_emptied(
        &mut self,
        cx: &mut Context,
        group: &str,
        kind: &str,
        crd: &Uid,
        standing: bool,
    ) {
        let Some(kind) = self.coverage.known(group, kind) else { return };
        let is_followed = self.is_followed(kind);
        let is_known = self.emptied.get(&kind).is_some_and(|emptied| emptied.crd == *crd);
        if standing && !is_known {
            let unknown = |id: &NodeId| matches!(self.graph.node(*id).known(), Known::Virtual { .. });
            let owners = || self.graph.unobserved(kind).filter(unknown).map(|id| self.graph.node(id).uid()).collect();
            let emptied = Emptied { crd: crd.clone(), owners: is_followed.then(owners), gone: None };
            self.emptied.insert(kind, emptied);
        }
        if !standing && is_known {
            let emptied = self.emptied.get_mut(&kind).filter(|emptied| emptied.gone.is_none());
            if let Some(emptied) = emptied {
                emptied.gone = Some(cx.now);
                if !is_followed {
                    emptied.owners = None;
                }
                cx.timers.set(cx.now + SETTLES, Timer::Emptied(kind));
            }
        }
    }

    /// Whether the watch of this kind would show an object that is made now.
    pub(in crate::leader) fn is_followed(&self, kind: KindId) -> bool {
        let entry = self.coverage.kind(kind);
        entry.is_watched() && entry.state == State::Synced && entry.lost.is_none() && !entry.is_in_doubt()
    }

    /// There is an object of this kind: what its definition said is over.
    pub(in crate::leader) fn is_not_empty(&mut self, kind: KindId) {
        if let Some(emptied) = self.emptied.get_mut(&kind) {
            emptied.owners = None;
        }
    }

    /// The kind is not served any more. Its definition may have said before that this would come.
    pub(in crate::leader) fn await_emptied(&mut self, cx: &mut Context, kind: KindId) {
        if self.emptied.contains_key(&kind) {
            cx.timers.set(cx.now + SETTLES, Timer::Emptied(kind));
        }
    }

    /// The owners that the definition's condition covers, and the definition, unless their kind is served again: the event may be late, and
    /// a new definition of the same kind may have instances already.
    pub(in crate::leader) fn end_emptied(&mut self, now: Time, kind: KindId) -> Option<(Uid, BTreeSet<Uid>)> {
        let entry = self.coverage.kind(kind);
        let gone = self.emptied.get(&kind)?.gone?;
        if entry.served.is_some() || now.since(gone.max(entry.since)) < SETTLES {
            return None;
        }
        let belongs = entry.since.since(gone) <= COUNTS;
        let emptied = self.emptied.remove(&kind).filter(|_| belongs)?;
        Some((emptied.crd, emptied.owners?))
    }
}
