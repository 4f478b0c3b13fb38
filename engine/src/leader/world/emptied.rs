//! Kinds whose definition reported the deletion of their instances.

use super::super::Timer;
use super::super::context::Context;
use super::World;
use crate::coverage::KindId;
use crate::graph::{Known, NodeId};
use crate::object::Uid;
use crate::time::Time;
use alloc::collections::BTreeSet;
use core::time::Duration;

/// Time that a kind must stay unserved after the deletion of its definition.
const SETTLES: Duration = Duration::from_secs(5);
/// Maximum time between the deletion of a definition and the end of serving its kind. Within this time the two events
/// are related.
const COUNTS: Duration = Duration::from_secs(60);

/// The report of a definition.
#[derive(Debug)]
pub(in crate::leader) struct Emptied {
    crd: Uid,
    /// Owners that were only referenced when the definition first reported the deletion. An instance that is created
    /// afterwards has another uid. The value becomes `None` when the collection or a read shows an object of the kind,
    /// or when the collection may have missed such an object.
    owners: Option<BTreeSet<Uid>>,
    /// The time at which the definition was deleted.
    gone: Option<Time>,
}

impl World {
    /// Records that a definition reports the deletion of its instances. While the definition exists, new instances can
    /// be created.
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

    /// Returns whether the watch of this kind would show a new object.
    pub(in crate::leader) fn is_followed(&self, kind: KindId) -> bool {
        self.coverage.kind(kind).is_followed()
    }

    /// Discards the report of a definition, because an object of this kind exists.
    pub(in crate::leader) fn is_not_empty(&mut self, kind: KindId) {
        if let Some(emptied) = self.emptied.get_mut(&kind) {
            emptied.owners = None;
        }
    }

    /// Starts the settling time when a kind is no longer served and its definition reported the deletion of its
    /// instances.
    pub(in crate::leader) fn await_emptied(&mut self, cx: &mut Context, kind: KindId) {
        if self.emptied.contains_key(&kind) {
            cx.timers.set(cx.now + SETTLES, Timer::Emptied(kind));
        }
    }

    /// Returns the definition, and the owners whose absence its condition proves. Returns `None` if the kind is served
    /// again: the event may be late, and a new definition of the same kind may already have instances.
    pub(in crate::leader) fn end_emptied(&mut self, now: Time, kind: KindId) -> Option<(Uid, BTreeSet<Uid>)> {
        let entry = self.coverage.kind(kind);
        let gone = self.emptied.get(&kind)?.gone?;
        if entry.served().is_some() || now.since(gone.max(entry.since())) < SETTLES {
            return None;
        }
        let belongs = entry.since().since(gone) <= COUNTS;
        let emptied = self.emptied.remove(&kind).filter(|_| belongs)?;
        Some((emptied.crd, emptied.owners?))
    }
}
