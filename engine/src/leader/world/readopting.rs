//! Detection of references that return to objects whose owner orphaned them. A controller with an outdated view writes
//! these references. The leader removes them for one hour after the graph has forgotten the owner.
//!
//! Only an object that the graph knew without the reference counts. A new object that refers to an orphaning owner was
//! created too late, and is collected.

use super::super::Event;
use super::super::context::Context;
use super::{TOLD_MAX, World};
use crate::graph::{Forgotten, NodeId, address};
use crate::object::Uid;
use crate::recent::Recent;
use crate::time::Time;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::time::Duration;

/// Time that an owner is remembered after the last reference to the owner is gone.
const REMEMBERED_FOR: Duration = Duration::from_secs(3600);
/// Maximum number of remembered owners, of about 60 bytes each. The owner that the graph forgot first makes room for a
/// new one.
pub(in crate::leader) const FORMER_MAX: usize = 100_000;

/// Owners that orphaned their dependents and that the graph has forgotten.
#[derive(Debug)]
pub(in crate::leader) struct Former {
    owners: Recent<Memory>,
    /// The time up to which entries belong to a history that the store may have lost.
    lost: Option<Time>,
    /// Maximum number of orphaning owners in the graph of a replica that does not lead. Beyond this number the replica
    /// forgets owners without references.
    pub(in crate::leader) graph_max: usize,
}

#[derive(Debug)]
struct Memory {
    since: Time,
    /// The hash of the owner's coordinates. A reference that claims the uid under another name means another object.
    address: u64,
    /// The graph forgot the owner after the store may have lost the history that showed the orphaning.
    lost: bool,
}

impl Former {
    pub(in crate::leader) fn new(secret: u64) -> Former {
        Former { owners: Recent::new(FORMER_MAX, secret), lost: None, graph_max: FORMER_MAX }
    }

    /// Records that the store may have lost the history of all current entries.
    pub(in crate::leader) fn lose(&mut self, now: Time) {
        self.lost = Some(now);
    }

    /// Adds an owner. Returns the age of the entry that was evicted before its time.
    pub(in crate::leader) fn put(&mut self, now: Time, owner: Forgotten) -> Option<Duration> {
        while self.owners.drop_first_if(|memory| now.since(memory.since) >= REMEMBERED_FOR) {}
        let oldest = self.owners.first().filter(|_| self.owners.len() == FORMER_MAX);
        let cut = oldest.map(|memory| now.since(memory.since));
        self.owners.put(owner.uid, Memory { since: now, address: owner.address, lost: owner.lost });
        cut
    }

    /// Returns whether the entry of this owner belongs to a history that the store may have lost. Returns `None` if
    /// there is no entry.
    pub(in crate::leader) fn find(&self, now: Time, uid: &Uid, address: u64) -> Option<bool> {
        let known = self.owners.get(uid)?;
        let counts = known.address == address && now.since(known.since) < REMEMBERED_FOR;
        counts.then(|| known.lost || self.lost.is_some_and(|lost| known.since <= lost))
    }
}

impl World {
    /// Takes over the orphaning owners that the graph has forgotten.
    pub(in crate::leader) fn remember_former(&mut self, cx: &mut Context) {
        for owner in self.graph.take_forgotten() {
            if let Some(remembered_for) = self.former.put(cx.now, owner) {
                cx.event(Event::OrphaningForgotten { remembered_for });
            }
        }
    }

    /// Limits the number of orphaning owners in the graph. Barrier rounds pass only during a term; without a term, the
    /// number of owners limits the memory.
    pub(in crate::leader) fn bound_orphaned(&mut self, cx: &Context) {
        if cx.term.is_none() && self.graph.orphaned_count() > self.former.graph_max {
            self.graph.forget_gone_orphaned();
            self.former.graph_max = FORMER_MAX.max(self.graph.orphaned_count().saturating_mul(2));
        }
    }

    /// Returns the absent owners of a node that orphaned their dependents.
    pub(in crate::leader) fn orphaning_owners(&self, id: NodeId) -> BTreeSet<Uid> {
        if self.graph.orphaned_count() == 0 {
            return BTreeSet::new();
        }
        let owners = self.graph.node(id).owners().map(|owner| self.graph.node(owner));
        owners.filter(|owner| !owner.is_observed() && self.graph.is_orphaned(*owner)).map(|owner| owner.uid()).collect()
    }

    /// Reports new references of a known object that lead back to owners that orphaned the object.
    pub(in crate::leader) fn note_readoption(&mut self, cx: &mut Context, id: NodeId, before: &BTreeSet<Uid>) {
        self.remember_former(cx);
        if self.former.owners.is_empty() && self.graph.orphaned_count() == 0 {
            return;
        }
        for owner in self.graph.node(id).owners().collect::<Vec<_>>() {
            let node = self.graph.node(owner);
            let uid = node.uid();
            if node.is_observed() || before.contains(&uid) {
                continue;
            }
            if !self.graph.is_orphaned(node) {
                let former = self.former.find(cx.now, &uid, address(node.namespace(), node.name()));
                let Some(lost) = former else { continue };
                self.graph.remember_again(owner, lost);
                if lost {
                    continue;
                }
                self.mark_dependents(owner);
            }
            self.tell_readoption(cx, id, owner);
        }
    }

    pub(in crate::leader) fn tell_readoption(&mut self, cx: &mut Context, id: NodeId, owner: NodeId) {
        let node = self.graph.node(id);
        let Some(resource_version) = node.resource_version().filter(|_| cx.term.is_some()) else { return };
        let uids = (node.uid(), self.graph.node(owner).uid());
        let first = self.reported.len() < TOLD_MAX && self.reported.insert(uids);
        let (dependent, owner) = (self.object_ref(id), self.object_ref(owner));
        cx.event(Event::Readopted { dependent, resource_version, owner, first });
    }
}
