//! Read access to the leader. Queries change no state.

use super::Leader;
use super::context::Context;
use super::world::World;
use crate::coverage::{Coverage, KindId};
use crate::graph::{Graph, Node, NodeId};
use crate::object::{GroupResource, Name, ResourceVersion, Uid};
use crate::queue::{ItemState, Queue};
use crate::time::Time;
use crate::tombstones::Tombstone;
use crate::view::{
    Collecting, CollectionStatus, EXCESSIVE_NAMED, ExecutorView, LISTED_MAX, NodeView, Reached, Status, UnresolvedKind,
    Waiting, Waits,
};
use crate::work::ActionKind;
use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;

mod blockers;
mod changes;
mod contents;
mod decisions;
mod dependents;
mod explain;
mod guards;
mod parity;
mod planning;
mod scan;
mod walk;

pub use changes::Linked;
pub use contents::ContentsLook;
pub use dependents::{DependentsOptions, DependentsWalk};
pub use guards::Coverings;
pub use planning::{Frame, Planning};
pub use scan::{CycleSearch, Scan};
pub use walk::{Found, OwnersWalk, Walked};

/// Reads the components of the leader between two inputs.
#[derive(Clone, Copy, Debug)]
pub struct Queries<'a> {
    pub(super) leader: &'a Leader,
}

impl<'a> Queries<'a> {
    fn cx(&self) -> &'a Context {
        &self.leader.cx
    }

    fn world(&self) -> &'a World {
        &self.leader.world
    }

    fn graph(&self) -> &'a Graph {
        self.leader.world.graph()
    }

    fn coverage(&self) -> &'a Coverage {
        self.leader.world.coverage()
    }

    fn queue(&self) -> &'a Queue {
        self.leader.dispatcher.queue()
    }

    /// Whether this replica leads.
    pub fn leads(&self) -> bool {
        self.cx().term.is_some()
    }

    /// Returns the counts of the leader.
    pub fn status(&self) -> Status {
        let waits = self.queue().waits(self.cx().now);
        let oldest =
            |of: &[Waiting]| waits.iter().filter(|waits| of.contains(&waits.at)).filter_map(|waits| waits.oldest).min();
        Status {
            term: self.cx().term.clone(),
            nodes: self.graph().len(),
            edges: self.graph().edge_count(),
            virtual_nodes: self.graph().unobserved_count(),
            graph_bytes: self.graph().footprint(),
            queued: self.queue().len() - self.queue().leased(),
            backing_off: self.queue().waiting(),
            blocked: self.blocked(),
            held: self.queue().held(),
            leased: self.queue().leased(),
            oldest_pending: oldest(&[Waiting::Ready, Waiting::BackingOff, Waiting::Blocked, Waiting::Leased]),
            oldest_held: oldest(&[Waiting::Held]),
            undecided: self.world().undecided().counts(),
            excessive: self.graph().excessive().take(EXCESSIVE_NAMED).map(|id| self.world().object_ref(id)).collect(),
            sessions: self.leader.dispatcher.leases().session_count(),
            stopped: self.stopped(),
            observes: self.observes(),
            guards_unknown: self.guards_unknown(),
            questions: self.leader.prober.questions().view(self.coverage()),
            inconsistent: self.world().inconsistent(),
            kept_apart: self.world().kept_apart(),
            hidden: self.world().hidden_views(self.cx()),
            untrue: self.leader.dispatcher.lies().views(self.cx().now),
        }
    }

    /// Returns the waiting decisions by state, with their waiting time at `now`.
    pub fn queue_waits(&self, now: Time) -> [Waits; Waiting::ALL.len()] {
        self.queue().waits(now.max(self.cx().now))
    }

    fn stopped(&self) -> Option<String> {
        let why = if self.cx().term.is_none() {
            "this replica does not lead"
        } else if self.cx().stopping {
            "the process is stopping"
        } else {
            return self.leader.history.stopped(&self.cx().config);
        };
        Some(String::from(why))
    }

    /// Returns all collections by group and resource.
    pub fn collections(&self) -> Vec<CollectionStatus> {
        let status = |kind: &crate::coverage::Kind| {
            Some(CollectionStatus {
                kind: kind.served().cloned()?,
                state: kind.state(),
                position: kind.position().cloned(),
                objects: kind.observed(),
                error: String::from(kind.error()),
                since: kind.since(),
                progress: kind.progress(),
                kept_apart: kind.is_unplaced(),
                inconsistent: kind.contradiction.as_ref().map(|contradiction| contradiction.why.clone()),
            })
        };
        self.coverage().served().filter_map(|(_, kind)| status(kind)).collect()
    }

    /// Returns the position of each watched collection by group and resource. Collections that were never listed are
    /// omitted, as are collections that are not listed again since a store rewind.
    pub fn positions(&self) -> Vec<(GroupResource, ResourceVersion)> {
        let position = |kind: &crate::coverage::Kind| {
            let collection = kind.served().filter(|_| kind.is_watched())?.group_resource.clone();
            Some((collection, kind.position().cloned().filter(|_| !kind.is_rewound())?))
        };
        self.coverage().served().filter_map(|(_, kind)| position(kind)).collect()
    }

    /// Returns the position of one collection, or `None` if the collection is not served.
    pub fn reached(&self, collection: &GroupResource) -> Option<Reached> {
        let kind = self.coverage().kind(self.coverage().find(collection)?);
        let version = kind.served()?.version.clone();
        let position = kind.position().cloned().filter(|_| !kind.is_rewound());
        Some(Reached { state: kind.state(), position, version })
    }

    /// Returns the number of store rewinds. Positions from before a rewind say nothing about positions after it.
    pub fn histories(&self) -> u64 {
        self.leader.history.count()
    }

    /// Returns whether the graph contains exactly these objects of a collection, each at its version.
    pub fn shows(&self, collection: &GroupResource, objects: &[(Uid, ResourceVersion)]) -> bool {
        let Some(id) = self.coverage().find(collection) else { return false };
        let shown = |(uid, version): &(Uid, ResourceVersion)| {
            let here = self.graph().by_uid(uid).map(|node| self.graph().node(node)).filter(|node| node.kind() == id);
            here.filter_map(|node| node.resource_version()).any(|known| known == *version)
        };
        self.coverage().kind(id).observed() == objects.len() && objects.iter().all(shown)
    }

    /// Returns at most `max` kinds in references that no API server serves, that several resources share, or whose
    /// versions differ.
    pub fn unresolved_kinds(&self, max: usize) -> Vec<UnresolvedKind> {
        let unresolved = |id: KindId| {
            let kind = self.coverage().kind(id);
            let dependents: usize =
                self.graph().unobserved(id).map(|node| self.graph().node(node).dependent_count()).sum();
            ((kind.served().is_none() || kind.is_ambiguous()) && dependents > 0).then(|| UnresolvedKind {
                group: kind.group.clone(),
                kind: kind.kind.clone(),
                resources: self.coverage().resources(id),
                since: kind.since(),
                dependents,
            })
        };
        self.coverage().ids().filter_map(unresolved).take(max).collect()
    }

    /// Returns the executors that have a session, sorted by name.
    pub fn executors(&self) -> Vec<ExecutorView> {
        let mut executors: Vec<ExecutorView> = self
            .leader
            .dispatcher
            .leases()
            .sessions()
            .map(|(_, session)| {
                let started = session
                    .leases
                    .iter()
                    .filter(|&&id| self.leader.dispatcher.leases().get(id).is_some_and(|lease| lease.started.is_some()))
                    .count();
                ExecutorView {
                    executor: session.executor.clone(),
                    incarnation: session.incarnation.clone(),
                    version: session.version.clone(),
                    window: session.window,
                    started,
                    buffered: session.leases.len() - started,
                    overdue: session.overdue.len(),
                    last_heard: session.last_heard,
                    draining: session.draining,
                    unauthenticated: session.unauthenticated && session.window == 0,
                    connected: session.stream.is_some(),
                    untrue_reports: self.leader.dispatcher.lies().count(&session.process()),
                }
            })
            .collect();
        executors.sort_by(|a, b| a.executor.cmp(&b.executor));
        executors
    }

    /// Returns the kind of a served collection.
    pub fn kind_of(&self, collection: &GroupResource) -> Option<Name> {
        self.coverage().find(collection).map(|kind| self.coverage().kind(kind).kind.clone())
    }

    /// Returns an object that was deleted recently.
    pub fn tombstone(&self, uid: &Uid) -> Option<&'a Tombstone> {
        self.world().tombstones().get(self.cx().now, uid)
    }

    /// Returns the objects that were deleted recently, the latest first.
    pub fn tombstones(&self) -> impl Iterator<Item = &'a Tombstone> {
        self.world().tombstones().iter(self.cx().now)
    }

    /// Returns the nodes with this uid. There are several nodes if references contradict each other.
    pub fn nodes(&self, uid: &Uid) -> Vec<NodeView> {
        self.graph().by_uid(uid).map(|id| self.view(id)).collect()
    }

    /// Returns at most `max` uids of objects that have this address or are referenced there. The namespace is empty for
    /// cluster scope.
    pub fn uids_at(&self, group: &str, kind: &str, namespace: &str, name: &str, max: usize) -> Vec<Uid> {
        let Some(kind) = self.coverage().known(group, kind) else { return Vec::new() };
        self.graph().by_address(kind, namespace, name).take(max).map(|id| self.graph().node(id).uid()).collect()
    }

    /// Returns at most `max` nodes, by uid, that are connected with any of `uids` in either direction. If `uids` is
    /// empty, returns the nodes with an edge. The flag is true if there are more nodes.
    pub fn component(&self, uids: &[Uid], max: usize) -> (Vec<NodeView>, bool) {
        if uids.is_empty() {
            let is_linked = |node: &Node<'_>| node.dependent_count() > 0 || node.owners().len() > 0;
            let mut linked = self.graph().iter().filter(|(_, node)| is_linked(node)).map(|(id, _)| id);
            let nodes = self.by_uid(&linked.by_ref().take(max).collect());
            return (nodes, linked.next().is_some());
        }
        let mut open: Vec<NodeId> = uids.iter().flat_map(|uid| self.graph().by_uid(uid)).collect();
        let mut seen: BTreeSet<NodeId> = open.iter().copied().collect();
        while let Some(id) = open.pop() {
            let node = self.graph().node(id);
            for next in node.owners().chain(node.dependents()) {
                if seen.len() == max && !seen.contains(&next) {
                    return (self.by_uid(&seen), true);
                }
                if seen.insert(next) {
                    open.push(next);
                }
            }
        }
        (self.by_uid(&seen), false)
    }

    fn by_uid(&self, ids: &BTreeSet<NodeId>) -> Vec<NodeView> {
        let mut nodes: Vec<NodeView> = ids.iter().map(|&id| self.view(id)).collect();
        nodes.sort_by(|a, b| a.object.uid.cmp(&b.object.uid));
        nodes
    }

    fn collecting(&self, id: NodeId) -> Option<Collecting> {
        let node = self.graph().node(id);
        if !node.is_observed() || node.is_terminating() {
            return None;
        }
        let item = self.queue().get(&node.uid()).filter(|item| item.draft.action.kind() == ActionKind::Delete);
        item.map(|item| match item.state {
            _ if item.held().is_some() => Collecting::Held,
            ItemState::Leased(_) => Collecting::Leased,
            ItemState::Held(_)
            | ItemState::Ready
            | ItemState::Observed
            | ItemState::Backoff { .. }
            | ItemState::Behind(_) => Collecting::Queued,
        })
    }

    fn view(&self, id: NodeId) -> NodeView {
        let node = self.graph().node(id);
        NodeView {
            object: self.world().object_ref(id),
            presence: node.presence(),
            facts: node.facts_listed(LISTED_MAX),
            owners: node.reference_count(),
            finalizers: node.finalizers().len(),
            dependents: node.dependent_count(),
            blocking_dependents: node.blocking_count(),
            undecided: self.world().undecided().get(id),
            collecting: self.collecting(id),
        }
    }
}
