//! What is known of the cluster: the graph, how complete it is, and the evidence about owners.

use super::{InvalidReferences, Policy, Undiscovered};
use crate::changes::Changes;
use crate::coverage::{Coverage, KindId};
use crate::evidence::Inquiry;
use crate::graph::{Graph, NodeId};
use crate::jitter::Jitter;
use crate::object::{Name, Uid};
use crate::time::Time;
use crate::tombstones::Tombstones;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
mod collections;
mod decisions;
pub(super) mod doubt;
mod edges;
mod emptied;
mod invariants;
mod marks;
mod nodes;
mod owners;
pub(super) mod readopting;
pub(super) mod reasons;
mod undecided;
mod undiscovered;

/// References that are remembered as told of; beyond that no more are told in this term.
const TOLD_MAX: usize = 10_000;

#[derive(Debug)]
pub(super) struct World {
    graph: Graph,
    coverage: Coverage,
    /// Nodes to judge, in the order in which they were marked.
    dirty: VecDeque<NodeId>,
    undecided: undecided::Nodes,
    /// Since when owners are known to be absent, for measuring. Entries go with their nodes.
    absent_since: BTreeMap<NodeId, Time>,
    inquiries: BTreeMap<NodeId, Inquiry>,
    /// What discovery does not show, and since when.
    undiscovered: BTreeMap<(Name, Option<Name>), (Undiscovered, Time)>,
    /// By kind, the definition that said that its instances are gone.
    emptied: BTreeMap<KindId, emptied::Emptied>,
    /// Of objects with many references: an owner that is being asked for.
    awaited: BTreeMap<NodeId, NodeId>,
    /// Owners in deletion, with the barrier round that each waits for; `None`: not asked for yet.
    deletions: BTreeMap<NodeId, Option<u64>>,
    /// Owners that orphaned their dependents, once the graph has forgotten them.
    former: readopting::Former,
    /// References that an event has reported, as dependent and owner: to owners in other namespaces, and back to owners that orphaned the
    /// dependent. An object with too many references stands here as both.
    reported: BTreeSet<(Uid, Uid)>,
    tombstones: Tombstones,
    /// For readers that follow objects.
    changes: Changes,
}

impl World {
    pub(super) fn new(policy: &Policy, secrets: &mut Jitter) -> World {
        World {
            graph: Graph::new(policy.invalid_references == InvalidReferences::Hold, secrets.next()),
            coverage: Coverage::default(),
            dirty: VecDeque::new(),
            undecided: undecided::Nodes::default(),
            absent_since: BTreeMap::new(),
            inquiries: BTreeMap::new(),
            undiscovered: BTreeMap::new(),
            emptied: BTreeMap::new(),
            awaited: BTreeMap::new(),
            deletions: BTreeMap::new(),
            former: readopting::Former::new(secrets.next()),
            reported: BTreeSet::new(),
            tombstones: Tombstones::new(secrets.next()),
            changes: Changes::default(),
        }
    }

    pub(super) fn graph(&self) -> &Graph {
        &self.graph
    }

    pub(super) fn coverage(&self) -> &Coverage {
        &self.coverage
    }

    /// Dependents without a verdict.
    pub(super) fn undecided(&self) -> &undecided::Nodes {
        &self.undecided
    }

    pub(super) fn tombstones(&self) -> &Tombstones {
        &self.tombstones
    }

    pub(super) fn changes(&self) -> &Changes {
        &self.changes
    }

    #[cfg(test)]
    pub(super) fn graph_mut(&mut self) -> &mut Graph {
        &mut self.graph
    }

    #[cfg(test)]
    pub(super) fn former_mut(&mut self) -> &mut readopting::Former {
        &mut self.former
    }
}
