//! Objects and the references between them, with edges both ways.
//!
//! A node is a uid *and* full coordinates (group, kind, namespace, name). Two references that claim one uid under different coordinates
//! lead to two nodes, so that what is learned of one never leaks to the other. A node exists while its object is observed or while
//! anything refers to it.

use crate::coverage::{Coverage, KindId};
use crate::evidence::Proof;
use crate::object::{Facts, Name, Object, ObjectRef, OwnerReference, ResourceVersion, Uid};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

mod invariants;
#[cfg(test)]
mod tests;

/// Names a node. Used again after the node is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct NodeId(u32);

/// Where an object is, apart from its uid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Coordinates {
    pub(crate) kind: KindId,
    /// Empty for cluster scope.
    pub(crate) namespace: Name,
    pub(crate) name: Name,
}

/// How a node is known.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Presence {
    /// A list or watch of its collection showed it, or a read while nothing newer was known.
    Observed(Observed),
    /// Only referred to.
    Virtual { unreadable: bool },
    /// Found by a question about it, though its collection has not shown it, or shows nothing.
    Read { facts: Facts, position: ResourceVersion },
    /// Proven absent.
    Absent(Proof),
}

/// An object in the graph.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Observed {
    pub(crate) resource_version: ResourceVersion,
    pub(crate) facts: Facts,
    /// The list of its collection that showed it last.
    pub(crate) list: u32,
}

#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) uid: Uid,
    pub(crate) at: Coordinates,
    pub(crate) presence: Presence,
    /// Beside `facts.owners`, entry for entry.
    owners: Vec<OwnerEdge>,
    dependents: Vec<DependentEdge>,
    /// Of the dependents, those whose reference blocks foreground deletion.
    blocking: u32,
    /// Waits to be judged.
    pub(crate) dirty: bool,
}

#[derive(Clone, Copy, Debug)]
struct OwnerEdge {
    owner: NodeId,
    /// Place of this edge among the owner's dependents.
    back: u32,
}

#[derive(Clone, Copy, Debug)]
struct DependentEdge {
    dependent: NodeId,
    /// Place of this edge among the dependent's owners.
    slot: u32,
}

impl Node {
    pub(crate) fn observed(&self) -> Option<&Observed> {
        match &self.presence {
            Presence::Observed(observed) => Some(observed),
            Presence::Virtual { .. } | Presence::Read { .. } | Presence::Absent(_) => None,
        }
    }

    /// What is known of the object, from its collection or from a read.
    pub(crate) fn facts(&self) -> Option<&Facts> {
        match &self.presence {
            Presence::Observed(observed) => Some(&observed.facts),
            Presence::Read { facts, .. } => Some(facts),
            Presence::Virtual { .. } | Presence::Absent(_) => None,
        }
    }

    /// References to this node.
    pub(crate) fn dependent_count(&self) -> usize {
        self.dependents.len()
    }

    pub(crate) fn blocking_count(&self) -> usize {
        self.blocking as usize
    }

    /// The nodes that refer to this one; one that does so twice comes twice.
    pub(crate) fn dependents(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.dependents.iter().map(|edge| edge.dependent)
    }

    /// Those of them at these places, the last place first. One that is there throughout is not missed by who goes down from the last place:
    /// a removal moves only the last one, and down.
    pub(crate) fn dependents_at(&self, places: core::ops::Range<usize>) -> impl Iterator<Item = NodeId> + '_ {
        self.dependents.get(places).unwrap_or_default().iter().rev().map(|edge| edge.dependent)
    }

    /// The nodes this one refers to, beside its `facts.owners`.
    pub(crate) fn owners(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.owners.iter().map(|edge| edge.owner)
    }
}

/// What an update of an object changed for others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Change {
    /// Its dependents must be judged again.
    pub(crate) standing: bool,
    /// Owners that gained or lost a reference, or whose reference changed.
    pub(crate) owners: Vec<NodeId>,
    /// The object was not in the graph as observed before.
    pub(crate) appeared: bool,
}

/// The graph.
#[derive(Debug, Default)]
pub(crate) struct Graph {
    nodes: Vec<Option<Node>>,
    free: Vec<u32>,
    by_uid: BTreeMap<Uid, Slot>,
    /// Nodes of each kind that are not observed.
    unobserved: BTreeMap<KindId, BTreeSet<NodeId>>,
    edges: usize,
    observed: usize,
    /// Objects that were seen terminating with the `orphan` finalizer, by uid.
    orphaned: BTreeMap<Uid, Orphaned>,
    /// An object whose reference claims the uid of an object elsewhere is kept.
    holds_invalid: bool,
    /// Nodes that went since this was asked last. Their numbers are not used again before.
    dropped: Vec<NodeId>,
}

/// The memory of an owner whose dependents are to lose their reference, not their life.
#[derive(Debug)]
struct Orphaned {
    at: Coordinates,
    /// Set once the owner is gone: the barrier round after which it may be forgotten.
    round: Option<u64>,
    /// It was seen in a history that the store no longer has. In the present one the owner may be back, and orphan nobody, until it is
    /// proven absent.
    lost: bool,
}

/// Nearly every uid has one node.
#[derive(Debug)]
enum Slot {
    One(NodeId),
    Many(Vec<NodeId>),
}

impl Slot {
    fn as_slice(&self) -> &[NodeId] {
        match self {
            Slot::One(id) => core::slice::from_ref(id),
            Slot::Many(ids) => ids,
        }
    }
}

impl Graph {
    /// An empty graph. `holds_invalid`: objects whose reference claims the uid of an object that is elsewhere are kept.
    pub(crate) fn new(holds_invalid: bool) -> Graph {
        Graph { holds_invalid, ..Graph::default() }
    }

    /// Whether a reference to this node keeps its dependent although the node is absent: its uid belongs to an object elsewhere.
    pub(crate) fn holds_as_invalid(&self, node: &Node) -> bool {
        self.holds_invalid && node.observed().is_none() && self.primary(&node.uid).is_some()
    }

    pub(crate) fn node(&self, id: NodeId) -> &Node {
        self.nodes[id.0 as usize].as_ref().expect("a node id is dropped with its node")
    }

    /// The node, if the id still names one.
    pub(crate) fn get(&self, id: NodeId) -> Option<&Node> {
        self.nodes.get(id.0 as usize)?.as_ref()
    }

    pub(crate) fn node_mut(&mut self, id: NodeId) -> &mut Node {
        self.nodes[id.0 as usize].as_mut().expect("a node id is dropped with its node")
    }

    pub(crate) fn len(&self) -> usize {
        self.nodes.len() - self.free.len() - self.dropped.len()
    }

    /// The nodes that went since the last call, for whoever keeps notes about them.
    pub(crate) fn take_dropped(&mut self) -> Vec<NodeId> {
        self.free.extend(self.dropped.iter().map(|id| id.0));
        core::mem::take(&mut self.dropped)
    }

    pub(crate) fn edge_count(&self) -> usize {
        self.edges
    }

    pub(crate) fn unobserved_count(&self) -> usize {
        self.len() - self.observed
    }

    /// Every node, in no order that means anything, but always the same one.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (NodeId, &Node)> {
        (0_u32..).zip(&self.nodes).filter_map(|(at, node)| Some((NodeId(at), node.as_ref()?)))
    }

    /// How many places there are for nodes; some are empty.
    pub(crate) fn places(&self) -> usize {
        self.nodes.len()
    }

    /// The node at a place, if there is one.
    pub(crate) fn at_place(&self, place: usize) -> Option<NodeId> {
        let id = NodeId(u32::try_from(place).ok()?);
        self.get(id).map(|_| id)
    }

    /// The nodes of one uid.
    pub(crate) fn by_uid(&self, uid: &Uid) -> &[NodeId] {
        self.by_uid.get(uid).map_or(&[], Slot::as_slice)
    }

    /// The uids after this one, in order.
    pub(crate) fn uids_after(&self, after: Option<&Uid>) -> impl Iterator<Item = &Uid> {
        use core::ops::Bound;
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.by_uid.range::<Uid, _>((from, Bound::Unbounded)).map(|(uid, _)| uid)
    }

    /// Every uid in the graph, in order, with its nodes.
    pub(crate) fn uids(&self) -> impl Iterator<Item = (&Uid, &[NodeId])> {
        self.by_uid.iter().map(|(uid, slot)| (uid, slot.as_slice()))
    }

    pub(crate) fn find(&self, uid: &Uid, at: &Coordinates) -> Option<NodeId> {
        self.by_uid(uid).iter().copied().find(|&id| self.node(id).at == *at)
    }

    /// The one observed node of a uid that acts for it, where several groups serve the same object.
    pub(crate) fn primary(&self, uid: &Uid) -> Option<NodeId> {
        self.by_uid(uid).iter().copied().find(|&id| self.node(id).observed().is_some())
    }

    /// Whether this node was last seen orphaning its dependents, in whatever history.
    pub(crate) fn was_orphaning(&self, node: &Node) -> bool {
        self.orphaned.get(&node.uid).is_some_and(|orphaned| orphaned.at == node.at)
    }

    /// Whether the dependents of this node, which is not observed, are orphaned.
    pub(crate) fn is_orphaned(&self, node: &Node) -> bool {
        let lost = self.orphaned.get(&node.uid).is_some_and(|orphaned| orphaned.lost);
        self.was_orphaning(node) && (!lost || matches!(node.presence, Presence::Absent(_)))
    }

    /// Whether an object of this uid was seen orphaning its dependents, whatever its coordinates.
    pub(crate) fn has_orphaned(&self, uid: &Uid) -> bool {
        self.orphaned.contains_key(uid)
    }

    /// An owner that orphaned its dependents is gone; it is to be remembered until this round of the barrier has passed.
    pub(crate) fn remember_orphaned(&mut self, uid: &Uid, until_round: u64) {
        if let Some(orphaned) = self.orphaned.get_mut(uid) {
            orphaned.round = Some(until_round);
        }
    }

    /// Every orphaning that was seen so far belongs to a history that the store no longer has.
    pub(crate) fn lose_orphaned(&mut self) {
        for orphaned in self.orphaned.values_mut() {
            orphaned.lost = true;
        }
    }

    /// Takes over from another graph that what is at this node orphans its dependents.
    pub(crate) fn set_orphaned(&mut self, uid: Uid, at: Coordinates) {
        self.orphaned.entry(uid).or_insert(Orphaned { at, round: None, lost: false });
    }

    /// Remembered owners that are gone, with their namespace.
    pub(crate) fn gone_orphaned(&self) -> Vec<(Uid, Name)> {
        let gone = self.orphaned.iter().filter(|(_, orphaned)| orphaned.round.is_some());
        gone.map(|(uid, orphaned)| (uid.clone(), orphaned.at.namespace.clone())).collect()
    }

    /// Forgets owners that orphaned their dependents, as of a round that passed for `namespace`. One that anything still refers to is
    /// kept in mind: its dependents have yet to lose the reference.
    pub(crate) fn forget_orphaned(&mut self, namespace: &str, round: u64) {
        let by_uid = &self.by_uid;
        self.orphaned.retain(|uid, orphaned| {
            let passed = orphaned.round.is_some_and(|until| until <= round) && *orphaned.at.namespace == *namespace;
            !passed || by_uid.contains_key(uid)
        });
    }

    /// A node as others name it. Version and resource are empty where the kind is not served.
    pub(crate) fn object_ref(&self, coverage: &Coverage, id: NodeId) -> ObjectRef {
        let node = self.node(id);
        let kind = coverage.kind(node.at.kind);
        let (version, resource) = match &kind.served {
            Some(served) => (served.version.clone(), served.group_resource.resource.clone()),
            None => (Name::from(""), Name::from("")),
        };
        ObjectRef {
            group: kind.group.clone(),
            version,
            resource,
            kind: kind.kind.clone(),
            namespace: node.at.namespace.clone(),
            name: node.at.name.clone(),
            uid: node.uid.clone(),
        }
    }

    /// Nodes of a kind that are referred to but not observed.
    pub(crate) fn unobserved(&self, kind: KindId) -> impl Iterator<Item = NodeId> + '_ {
        self.unobserved.get(&kind).into_iter().flatten().copied()
    }

    /// Where a reference leads. The scope is the owner kind's; while that is unknown, the dependent's namespace stands in.
    pub(crate) fn target(coverage: &mut Coverage, namespace: &Name, reference: &OwnerReference) -> Coordinates {
        let kind = coverage.kind_id(reference.group(), &reference.kind);
        let namespace =
            if coverage.kind(kind).namespaced() == Some(false) { Name::from("") } else { namespace.clone() };
        Coordinates { kind, namespace, name: reference.name.clone() }
    }

    /// Puts an object into the graph, or updates it. The caller has made sure that it is not older than what is known.
    pub(crate) fn upsert(
        &mut self,
        coverage: &mut Coverage,
        kind: KindId,
        list: u32,
        object: Object,
    ) -> (NodeId, Change) {
        let Object { uid, namespace, name, resource_version, facts } = object;
        let at = Coordinates { kind, namespace, name };
        if facts.orphans_dependents() {
            let orphaned = || Orphaned { at: at.clone(), round: None, lost: false };
            self.orphaned.entry(uid.clone()).or_insert_with(orphaned).lost = false;
        } else if !facts.terminating {
            // Nobody is called back from deletion: whatever was seen was of a history that the store no longer has.
            self.orphaned.remove(&uid);
        }
        let id = match self.find(&uid, &at) {
            Some(id) => id,
            None => self.insert(uid, at),
        };
        let mut change = Change::default();
        let node = self.node(id);
        let same_references = match &node.presence {
            Presence::Observed(before) => {
                change.standing = before.facts.deletes_dependents() != facts.deletes_dependents()
                    || before.facts.orphans_dependents() != facts.orphans_dependents();
                before.facts.owners == facts.owners
            }
            Presence::Virtual { .. } | Presence::Read { .. } | Presence::Absent(_) => {
                change.standing = true;
                change.appeared = true;
                false
            }
        };
        if change.appeared {
            self.observed += 1;
            self.unobserved.entry(kind).or_default().remove(&id);
        }
        let mut before = Vec::new();
        if !same_references {
            change.owners.extend(self.node(id).owners());
            before = self.detach(id);
        }
        let namespace = self.node(id).at.namespace.clone();
        let references = if same_references { Vec::new() } else { facts.owners.to_vec() };
        self.node_mut(id).presence = Presence::Observed(Observed { resource_version, facts, list });
        for reference in &references {
            let at = Self::target(coverage, &namespace, reference);
            change.owners.push(self.link(id, reference, at));
        }
        // Only now: an owner that is still referred to keeps all that is known of it.
        self.drop_unused_owners(id, &before);
        change.owners.retain(|&owner| self.get(owner).is_some());
        (id, change)
    }

    /// Takes an observed object out: what is left is `Virtual`, or `Absent` with `proof`, while anything refers to it. Gives the owners
    /// that lost a reference, and whether the node is still there.
    pub(crate) fn remove(&mut self, id: NodeId, proof: Option<Proof>) -> (Vec<NodeId>, bool) {
        let mut owners: Vec<NodeId> = self.node(id).owners().collect();
        self.unlink(id);
        self.set_unobserved(id, proof.map_or(Presence::Virtual { unreadable: false }, Presence::Absent));
        let stays = self.drop_if_unused(id);
        owners.retain(|&owner| self.get(owner).is_some());
        (owners, stays)
    }

    /// Replaces what is known of a node that is not observed.
    pub(crate) fn set_unobserved(&mut self, id: NodeId, presence: Presence) {
        debug_assert!(!matches!(presence, Presence::Observed(_)));
        if self.node(id).observed().is_some() {
            self.observed -= 1;
            let kind = self.node(id).at.kind;
            self.unobserved.entry(kind).or_default().insert(id);
        }
        self.node_mut(id).presence = presence;
    }

    /// Leads the references of all dependents of `id` to where they lead now that the scope of its kind is known.
    pub(crate) fn relink_dependents(&mut self, coverage: &mut Coverage, id: NodeId) -> Vec<NodeId> {
        let dependents: BTreeSet<NodeId> = self.node(id).dependents().collect();
        for &dependent in &dependents {
            let Some(observed) = self.node(dependent).observed() else { continue };
            let references = observed.facts.owners.to_vec();
            let namespace = self.node(dependent).at.namespace.clone();
            let before = self.detach(dependent);
            for reference in &references {
                let at = Self::target(coverage, &namespace, reference);
                self.link(dependent, reference, at);
            }
            // Only now: its other owners are the same as before, with all that is known of them.
            self.drop_unused_owners(dependent, &before);
        }
        dependents.into_iter().collect()
    }

    fn insert(&mut self, uid: Uid, at: Coordinates) -> NodeId {
        self.unobserved.entry(at.kind).or_default();
        let kind = at.kind;
        let node = Node {
            uid: uid.clone(),
            at,
            presence: Presence::Virtual { unreadable: false },
            owners: Vec::new(),
            dependents: Vec::new(),
            blocking: 0,
            dirty: false,
        };
        let id = match self.free.pop() {
            Some(at) => {
                self.nodes[at as usize] = Some(node);
                NodeId(at)
            }
            None => {
                self.nodes.push(Some(node));
                NodeId(u32::try_from(self.nodes.len() - 1).expect("fewer than 2^32 nodes"))
            }
        };
        self.unobserved.entry(kind).or_default().insert(id);
        match self.by_uid.get_mut(&uid) {
            None => {
                self.by_uid.insert(uid, Slot::One(id));
            }
            Some(Slot::Many(ids)) => ids.push(id),
            Some(slot @ Slot::One(_)) => *slot = Slot::Many([slot.as_slice(), &[id]].concat()),
        }
        id
    }

    fn link(&mut self, dependent: NodeId, reference: &OwnerReference, at: Coordinates) -> NodeId {
        let owner = match self.find(&reference.uid, &at) {
            Some(owner) => owner,
            None => self.insert(reference.uid.clone(), at),
        };
        let slot = self.node(dependent).owners.len();
        let node = self.node_mut(owner);
        let back = u32::try_from(node.dependents.len()).expect("fewer than 2^32 dependents");
        node.dependents
            .push(DependentEdge { dependent, slot: u32::try_from(slot).expect("fewer than 2^32 references") });
        node.blocking += u32::from(reference.blocks());
        self.node_mut(dependent).owners.push(OwnerEdge { owner, back });
        self.edges += 1;
        owner
    }

    /// Takes all references of a node out. Owners that nothing holds any more go with them.
    fn unlink(&mut self, id: NodeId) {
        let edges = self.detach(id);
        self.drop_unused_owners(id, &edges);
    }

    fn drop_unused_owners(&mut self, id: NodeId, edges: &[OwnerEdge]) {
        for edge in edges {
            if edge.owner != id && self.get(edge.owner).is_some() {
                self.drop_if_unused(edge.owner);
            }
        }
    }

    fn detach(&mut self, id: NodeId) -> Vec<OwnerEdge> {
        let edges = core::mem::take(&mut self.node_mut(id).owners);
        let blocks: Vec<bool> = self
            .node(id)
            .facts()
            .map_or_else(Vec::new, |facts| facts.owners.iter().map(OwnerReference::blocks).collect());
        // From the back: the edges of one owner then leave its list in the order in which later places are moved into earlier ones.
        for (slot, edge) in edges.iter().enumerate().rev() {
            let owner = self.node_mut(edge.owner);
            // An earlier removal of this loop may have moved this edge; then its place is where it points to us from.
            let mut at = edge.back as usize;
            if owner.dependents.get(at).is_none_or(|back| back.dependent != id || back.slot as usize != slot) {
                at = owner
                    .dependents
                    .iter()
                    .position(|back| back.dependent == id && back.slot as usize == slot)
                    .expect("every reference has its edge at the owner");
            }
            owner.dependents.swap_remove(at);
            owner.blocking -= u32::from(blocks.get(slot).copied().unwrap_or(false));
            let moved = owner.dependents.get(at).copied();
            self.edges -= 1;
            if let Some(moved) = moved
                && moved.dependent != id
            {
                let back = u32::try_from(at).expect("fewer than 2^32 dependents");
                self.node_mut(moved.dependent).owners[moved.slot as usize].back = back;
            }
        }
        edges
    }

    /// Drops a node that is neither observed nor referred to. True if it stays.
    fn drop_if_unused(&mut self, id: NodeId) -> bool {
        let node = self.node(id);
        if node.observed().is_some() || !node.dependents.is_empty() {
            return true;
        }
        let uid = node.uid.clone();
        let kind = node.at.kind;
        if let Some(unobserved) = self.unobserved.get_mut(&kind) {
            unobserved.remove(&id);
        }
        match self.by_uid.get_mut(&uid) {
            Some(Slot::Many(ids)) if ids.len() > 2 => ids.retain(|&other| other != id),
            Some(slot @ Slot::Many(_)) => {
                let rest = slot.as_slice().iter().copied().find(|&other| other != id);
                *slot = Slot::One(rest.expect("of two nodes, one is left"));
            }
            Some(Slot::One(_)) | None => {
                self.by_uid.remove(&uid);
            }
        }
        self.nodes[id.0 as usize] = None;
        self.dropped.push(id);
        false
    }
}
