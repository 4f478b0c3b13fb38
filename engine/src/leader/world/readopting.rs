//! References that come back to objects whose owner orphaned them: a controller with an old view writes them. They are taken away again, for
//! an hour after the graph has forgotten the owner.
//!
//! Only an object that the graph knew without the reference counts. One that is new and refers to such an owner was made too late, and is
//! collected.

use super::super::Event;
use super::super::context::Context;
use super::{TOLD_MAX, World};
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
pub(in crate::leader) const FORMER_MAX: usize = 100_000;

/// Owners that orphaned their dependents, once the graph has forgotten them.
#[derive(Debug)]
pub(in crate::leader) struct Former {
    owners: Recent<Memory>,
    /// What is remembered since then or before is of a history that the store may have lost.
    lost: Option<Time>,
    /// Beyond so many in the graph, a replica that does not lead forgets those that nothing refers to.
    pub(in crate::leader) graph_max: usize,
}

#[derive(Debug)]
struct Memory {
    since: Time,
    /// A reference that claims the uid for another name is about something else.
    address: u64,
}

impl Former {
    pub(in crate::leader) fn new(secret: u64) -> Former {
        Former { owners: Recent::new(FORMER_MAX, secret), lost: None, graph_max: FORMER_MAX }
    }

    /// The store may have lost the history that all of this is of.
    pub(in crate::leader) fn lose(&mut self, now: Time) {
        self.lost = Some(now);
    }

    /// Gives for how long the one was remembered that made room before its time.
    pub(in crate::leader) fn put(&mut self, now: Time, uid: Uid, address: u64) -> Option<Duration> {
        while self.owners.drop_first_if(|memory| now.since(memory.since) >= REMEMBERED_FOR) {}
        let oldest = self.owners.first().filter(|_| self.owners.len() == FORMER_MAX);
        let cut = oldest.map(|memory| now.since(memory.since));
        self.owners.put(uid, Memory { since: now, address });
        cut
    }

    /// Whether what is remembered of this owner is of a history that the store may have lost; `None` where nothing is.
    pub(in crate::leader) fn find(&self, now: Time, uid: &Uid, address: u64) -> Option<bool> {
        let known = self.owners.get(uid)?;
        let counts = known.address == address && now.since(known.since) < REMEMBERED_FOR;
        counts.then(|| self.lost.is_some_and(|lost| known.since <= lost))
    }
}

impl World {
    /// Takes over what the graph has forgotten.
    pub(in crate::leader) fn remember_former(&mut self, cx: &mut Context) {
        for (uid, address) in self.graph.take_forgotten() {
            if let Some(remembered_for) = self.former.put(cx.now, uid, address) {
                cx.event(Event::OrphaningForgotten { remembered_for });
            }
        }
    }

    /// Rounds of the barrier pass only under a term: without one, the graph forgets by number.
    pub(in crate::leader) fn bound_orphaned(&mut self, cx: &Context) {
        if cx.term.is_none() && self.graph.orphaned_count() > self.former.graph_max {
            self.graph.forget_gone_orphaned();
            self.former.graph_max = FORMER_MAX.max(self.graph.orphaned_count().saturating_mul(2));
        }
    }

    /// The owners of a node that are gone and orphaned their dependents.
    pub(in crate::leader) fn orphaning_owners(&self, id: NodeId) -> BTreeSet<Uid> {
        if self.graph.orphaned_count() == 0 {
            return BTreeSet::new();
        }
        let owners = self.graph.node(id).owners().map(|owner| self.graph.node(owner));
        owners.filter(|owner| !owner.is_observed() && self.graph.is_orphaned(*owner)).map(|owner| owner.uid()).collect()
    }

    /// The references of an object that the graph knew have changed: some lead back to owners that orphaned it, and did not before.
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
