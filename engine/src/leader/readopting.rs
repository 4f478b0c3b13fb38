//! References that come back to objects whose owner orphaned them: a controller with an old view writes them. They are taken away again, for
//! an hour after the graph has forgotten the owner.
//!
//! Only an object that the graph knew without the reference counts. One that is new and refers to such an owner was made too late, and is
//! collected.

use super::judging::TOLD_MAX;
use super::{Event, Leader};
use crate::graph::{NodeId, address};
use crate::object::Uid;
use crate::recent::Recent;
use crate::time::Time;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::time::Duration;

/// How long an owner is remembered, from the moment at which nothing refers to it any more.
const REMEMBERED_FOR: Duration = Duration::from_secs(3600);
/// Owners that are remembered, of some 60 bytes each. Of more, those that were forgotten first make room.
pub(super) const FORMER_MAX: usize = 100_000;

/// Owners that orphaned their dependents, once the graph has forgotten them.
#[derive(Debug)]
pub(super) struct Former {
    owners: Recent<Memory>,
    /// What is remembered since then or before is of a history that the store may have lost.
    lost: Option<Time>,
    /// Beyond so many in the graph, a replica that does not lead forgets those that nothing refers to.
    pub(super) graph_max: usize,
}

#[derive(Debug)]
struct Memory {
    since: Time,
    /// A reference that claims the uid for another name is about something else.
    address: u64,
}

impl Former {
    pub(super) fn new(secret: u64) -> Former {
        Former { owners: Recent::new(FORMER_MAX, secret), lost: None, graph_max: FORMER_MAX }
    }

    /// The store may have lost the history that all of this is of.
    pub(super) fn lose(&mut self, now: Time) {
        self.lost = Some(now);
    }

    /// Gives for how long the one was remembered that made room before its time.
    pub(super) fn put(&mut self, now: Time, uid: Uid, address: u64) -> Option<Duration> {
        while self.owners.drop_first_if(|memory| now.since(memory.since) >= REMEMBERED_FOR) {}
        let oldest = self.owners.first().filter(|_| self.owners.len() == FORMER_MAX);
        let cut = oldest.map(|memory| now.since(memory.since));
        self.owners.put(uid, Memory { since: now, address });
        cut
    }

    /// Whether what is remembered of this owner is of a history that the store may have lost; `None` where nothing is.
    fn find(&self, now: Time, uid: &Uid, address: u64) -> Option<bool> {
        let known = self.owners.get(uid)?;
        let counts = known.address == address && now.since(known.since) < REMEMBERED_FOR;
        counts.then(|| self.lost.is_some_and(|lost| known.since <= lost))
    }
}

impl Leader {
    /// Takes over what the graph has forgotten.
    pub(super) fn remember_former(&mut self) {
        for (uid, address) in self.world.graph.take_forgotten() {
            if let Some(remembered_for) = self.world.former.put(self.cx.now, uid, address) {
                self.cx.event(Event::OrphaningForgotten { remembered_for });
            }
        }
    }

    /// Rounds of the barrier pass only under a term: without one, the graph forgets by number.
    pub(super) fn bound_orphaned(&mut self) {
        if self.cx.term.is_none() && self.world.graph.orphaned_count() > self.world.former.graph_max {
            self.world.graph.forget_gone_orphaned();
            self.world.former.graph_max = FORMER_MAX.max(self.world.graph.orphaned_count().saturating_mul(2));
        }
    }

    /// The owners of a node that are gone and orphaned their dependents.
    pub(super) fn orphaning_owners(&self, id: NodeId) -> BTreeSet<Uid> {
        if self.world.graph.orphaned_count() == 0 {
            return BTreeSet::new();
        }
        let owners = self.world.graph.node(id).owners().map(|owner| self.world.graph.node(owner));
        owners
            .filter(|owner| !owner.is_observed() && self.world.graph.is_orphaned(*owner))
            .map(|owner| owner.uid())
            .collect()
    }

    /// The references of an object that the graph knew have changed: some lead back to owners that orphaned it, and did not before.
    pub(super) fn note_readoption(&mut self, id: NodeId, before: &BTreeSet<Uid>) {
        self.remember_former();
        if self.world.former.owners.is_empty() && self.world.graph.orphaned_count() == 0 {
            return;
        }
        for owner in self.world.graph.node(id).owners().collect::<Vec<_>>() {
            let node = self.world.graph.node(owner);
            let uid = node.uid();
            if node.is_observed() || before.contains(&uid) {
                continue;
            }
            if !self.world.graph.is_orphaned(node) {
                let former = self.world.former.find(self.cx.now, &uid, address(node.namespace(), node.name()));
                let Some(lost) = former else { continue };
                self.world.graph.remember_again(owner, lost);
                if lost {
                    continue;
                }
                self.mark_dependents(owner);
            }
            self.tell_readoption(id, owner);
        }
    }

    fn tell_readoption(&mut self, id: NodeId, owner: NodeId) {
        let node = self.world.graph.node(id);
        let Some(resource_version) = node.resource_version().filter(|_| self.cx.term.is_some()) else { return };
        let uids = (node.uid(), self.world.graph.node(owner).uid());
        let first = self.world.reported.len() < TOLD_MAX && self.world.reported.insert(uids);
        let (dependent, owner) = (self.object_ref(id), self.object_ref(owner));
        self.cx.event(Event::Readopted { dependent, resource_version, owner, first });
    }
}
