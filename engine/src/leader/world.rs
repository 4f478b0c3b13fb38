//! Knowledge of the cluster: the graph, its completeness, and the evidence about owners. Upstream's counterpart is
//! `GraphBuilder`.

use super::{InvalidReferences, Policy, Undiscovered};
use crate::changes::Changes;
use crate::coverage::{Coverage, KindId};
use crate::evidence::Inquiry;
use crate::graph::{Graph, NodeId};
use crate::jitter::Rng;
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

/// Maximum number of references that are remembered as reported. Beyond this number the leader reports no more
/// references in this term.
const TOLD_MAX: usize = 10_000;

#[derive(Debug)]
pub(super) struct World {
    graph: Graph,
    coverage: Coverage,
    /// Nodes to judge, in the order in which they were marked.
    dirty: VecDeque<NodeId>,
    undecided: undecided::Nodes,
    /// Times since which owners are known to be absent, for metrics. An entry is removed with its node.
    absent_since: BTreeMap<NodeId, Time>,
    inquiries: BTreeMap<NodeId, Inquiry>,
    /// Resources that discovery does not show, and the time since which each one is hidden.
    undiscovered: BTreeMap<(Name, Option<Name>), (Undiscovered, Time)>,
    /// Definitions that reported the deletion of their instances, by kind.
    emptied: BTreeMap<KindId, emptied::Emptied>,
    /// For each object with many references, one owner whose existence is an open question.
    awaited: BTreeMap<NodeId, NodeId>,
    /// Owners in deletion, with the barrier round that each one waits for. `None` means that no round is requested yet.
    deletions: BTreeMap<NodeId, Option<u64>>,
    /// Owners that orphaned their dependents and that the graph has forgotten.
    former: readopting::Former,
    /// References that an event has reported, as dependent and owner: references to owners in other namespaces, and
    /// references back to owners that orphaned the dependent. An object with too many references appears as both
    /// dependent and owner.
    reported: BTreeSet<(Uid, Uid)>,
    /// Objects with such references, or with too many, that were judged without a term.
    untold: BTreeSet<NodeId>,
    tombstones: Tombstones,
    /// Changes for readers that follow objects.
    changes: Changes,
}

impl World {
    pub(super) fn new(policy: &Policy, secrets: &mut Rng) -> World {
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
            untold: BTreeSet::new(),
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

    /// Returns the dependents without a verdict.
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
