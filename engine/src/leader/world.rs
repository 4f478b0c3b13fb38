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
pub(super) mod readopting;
pub(super) mod reasons;
mod undecided;
mod undiscovered;

/// References that are remembered as told of; beyond that no more are told in this term.
const TOLD_MAX: usize = 10_000;

#[derive(Debug)]
pub(super) struct World {
    pub(super) graph: Graph,
    pub(super) coverage: Coverage,
    /// Nodes to judge, in the order in which they were marked.
    pub(super) dirty: VecDeque<NodeId>,
    pub(super) undecided: undecided::Nodes,
    /// Since when owners are known to be absent, for measuring. Entries go with their nodes.
    pub(super) absent_since: BTreeMap<NodeId, Time>,
    pub(super) inquiries: BTreeMap<NodeId, Inquiry>,
    /// What discovery does not show, and since when.
    pub(super) undiscovered: BTreeMap<(Name, Option<Name>), (Undiscovered, Time)>,
    /// By kind, the definition that said that its instances are gone.
    pub(super) emptied: BTreeMap<KindId, emptied::Emptied>,
    /// Of objects with many references: an owner that is being asked for.
    pub(super) awaited: BTreeMap<NodeId, NodeId>,
    /// Owners in deletion, with the barrier round that each waits for; `None`: not asked for yet.
    pub(super) deletions: BTreeMap<NodeId, Option<u64>>,
    /// Owners that orphaned their dependents, once the graph has forgotten them.
    pub(super) former: readopting::Former,
    /// References that an event has reported, as dependent and owner: to owners in other namespaces, and back to owners that orphaned the
    /// dependent. An object with too many references stands here as both.
    pub(super) reported: BTreeSet<(Uid, Uid)>,
    pub(super) tombstones: Tombstones,
    /// For readers that follow objects.
    pub(super) changes: Changes,
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
}
