//! Objects and the references between them, with edges both ways.
//!
//! A node is a uid *and* full coordinates (group, kind, namespace, name). Two references that claim one uid under different coordinates
//! lead to two nodes, so that what is learned of one never leaks to the other. A node exists while its object is observed or while
//! anything refers to it.

use crate::coverage::{Coverage, KindId};
use crate::evidence::Proof;
use crate::object::{
    FOREGROUND_FINALIZER, Facts, Name, ORPHAN_FINALIZER, Object, ObjectRef, OwnerReference, ResourceVersion, Uid,
};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;
use cell::{Cell, DependentEdge, Dependents, Flags, How, OwnerEdge, Owners, Told};
use core::num::NonZeroU32;
use index::Index;
use interner::Interner;
use texts::Texts;

mod cell;
mod index;
mod interner;
mod invariants;
mod node;
#[cfg(test)]
mod tests;
mod texts;

pub(crate) use node::{Known, Node, Reference};

/// Cells are kept in pieces of so many, so that none is moved when there are more.
const PIECE: usize = 4096;
/// Each of ten million entries is then one of ten thousand in its shard.
const SHARDS: usize = 1024;

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

/// How a node is known, apart from its graph.
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
#[derive(Debug)]
pub(crate) struct Graph {
    cells: Vec<Box<[Cell]>>,
    /// Cells that are or were in use.
    used: usize,
    free: Vec<NodeId>,
    by_uid: Index,
    by_address: Index,
    texts: Texts,
    /// Kinds with their namespaces.
    places: Interner<(KindId, Name)>,
    /// `apiVersion` and `kind` of references.
    kinds: Interner<(Name, Name)>,
    finalizers: Interner<Arc<[Name]>>,
    /// uids in another form than the canonical one.
    uids: Interner<Uid>,
    /// Resource versions that are no number, or a very large one.
    versions: BTreeMap<NodeId, ResourceVersion>,
    /// When deletions were asked for.
    deletion_times: BTreeMap<NodeId, NonZeroU32>,
    dependents: Vec<Dependents>,
    free_dependents: Vec<u32>,
    told: BTreeMap<NodeId, Told>,
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

impl Graph {
    /// An empty graph. `holds_invalid`: objects whose reference claims the uid of an object that is elsewhere are kept. The secret keeps
    /// users from choosing uids and names that are found slowly.
    pub(crate) fn new(holds_invalid: bool, secret: u64) -> Graph {
        Graph {
            cells: Vec::new(),
            used: 0,
            free: Vec::new(),
            by_uid: Index::new(SHARDS, secret),
            by_address: Index::new(SHARDS, secret),
            texts: Texts::new(),
            places: Interner::new(secret),
            kinds: Interner::new(secret),
            finalizers: Interner::new(secret),
            uids: Interner::new(secret),
            versions: BTreeMap::new(),
            deletion_times: BTreeMap::new(),
            dependents: Vec::new(),
            free_dependents: Vec::new(),
            told: BTreeMap::new(),
            unobserved: BTreeMap::new(),
            edges: 0,
            observed: 0,
            orphaned: BTreeMap::new(),
            holds_invalid,
            dropped: Vec::new(),
        }
    }

    /// See [`Graph::new`].
    pub(crate) fn secret(&self) -> u64 {
        self.by_uid.secret()
    }

    /// Whether a reference to this node keeps its dependent although the node is absent: its uid belongs to an object elsewhere.
    pub(crate) fn holds_as_invalid(&self, node: Node<'_>) -> bool {
        self.holds_invalid && !node.is_observed() && self.primary(&node.uid()).is_some()
    }

    pub(crate) fn node(&self, id: NodeId) -> Node<'_> {
        self.get(id).expect("a node id is dropped with its node")
    }

    /// The node, if the id still names one.
    pub(crate) fn get(&self, id: NodeId) -> Option<Node<'_>> {
        let cell = self.cells.get(id.0 as usize / PIECE)?.get(id.0 as usize % PIECE)?;
        cell.flags.has(Flags::LIVE).then_some(Node { graph: self, id, cell })
    }

    fn cell(&self, id: NodeId) -> &Cell {
        &self.cells[id.0 as usize / PIECE][id.0 as usize % PIECE]
    }

    fn cell_mut(&mut self, id: NodeId) -> &mut Cell {
        &mut self.cells[id.0 as usize / PIECE][id.0 as usize % PIECE]
    }

    /// Says whether the node waits to be judged.
    pub(crate) fn set_dirty(&mut self, id: NodeId, dirty: bool) {
        self.cell_mut(id).flags.set(Flags::DIRTY, dirty);
    }

    /// Says that this list of its collection showed an object that was observed before.
    pub(crate) fn set_list(&mut self, id: NodeId, list: u32) {
        debug_assert!(self.node(id).is_observed());
        self.cell_mut(id).list = list;
    }

    pub(crate) fn len(&self) -> usize {
        self.used - self.free.len() - self.dropped.len()
    }

    /// The nodes that went since the last call, for whoever keeps notes about them.
    pub(crate) fn take_dropped(&mut self) -> Vec<NodeId> {
        self.free.extend(&self.dropped);
        core::mem::take(&mut self.dropped)
    }

    pub(crate) fn edge_count(&self) -> usize {
        self.edges
    }

    pub(crate) fn unobserved_count(&self) -> usize {
        self.len() - self.observed
    }

    /// Every node, in no order that means anything, but always the same one.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (NodeId, Node<'_>)> {
        (0..self.used).filter_map(|place| {
            let id = self.at_place(place)?;
            Some((id, self.node(id)))
        })
    }

    /// How many places there are for nodes; some are empty. A node stays in its place.
    pub(crate) fn places(&self) -> usize {
        self.used
    }

    /// The node at a place, if there is one.
    pub(crate) fn at_place(&self, place: usize) -> Option<NodeId> {
        let id = NodeId(u32::try_from(place).ok()?);
        self.get(id).map(|_| id)
    }

    /// The nodes of one uid: one, or more where references contradict each other. In the order in which they came.
    pub(crate) fn by_uid(&self, uid: &Uid) -> impl Iterator<Item = NodeId> + Clone + use<'_> {
        let uid = uid.clone();
        let found = self.by_uid.get(self.by_uid.hash(&uid)).map(NodeId);
        found.filter(move |&id| self.has_uid(self.cell(id), &uid))
    }

    /// The nodes that are, or are claimed to be, at an address. In the order in which they came.
    pub(crate) fn by_address<'a>(
        &'a self,
        kind: KindId,
        namespace: &str,
        name: &'a str,
    ) -> impl Iterator<Item = NodeId> + 'a {
        let place = self.places.find(&(kind, Name::from(namespace)));
        let found = place.into_iter().flat_map(move |place| {
            let found = self.by_address.get(self.by_address.hash(&(place, name))).map(NodeId);
            found.filter(move |&id| self.cell(id).place == place)
        });
        found.filter(move |&id| self.texts.get(self.cell(id).name) == name)
    }

    pub(crate) fn find(&self, uid: &Uid, at: &Coordinates) -> Option<NodeId> {
        self.by_uid(uid).find(|&id| self.node(id).is_at(at))
    }

    /// The one observed node of a uid that acts for it, where several groups serve the same object.
    pub(crate) fn primary(&self, uid: &Uid) -> Option<NodeId> {
        self.by_uid(uid).find(|&id| self.node(id).is_observed())
    }

    /// Whether this node was last seen orphaning its dependents, in whatever history.
    pub(crate) fn was_orphaning(&self, node: Node<'_>) -> bool {
        self.orphaning(node).is_some()
    }

    /// Whether the dependents of this node, which is not observed, are orphaned.
    pub(crate) fn is_orphaned(&self, node: Node<'_>) -> bool {
        self.orphaning(node).is_some_and(|orphaned| !orphaned.lost || node.is_absent())
    }

    fn orphaning(&self, node: Node<'_>) -> Option<&Orphaned> {
        if self.orphaned.is_empty() {
            return None;
        }
        self.orphaned.get(&node.uid()).filter(|orphaned| node.is_at(&orphaned.at))
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
        let passed = |orphaned: &Orphaned| {
            orphaned.round.is_some_and(|until| until <= round) && *orphaned.at.namespace == *namespace
        };
        let passed = self.orphaned.iter().filter(|(_, orphaned)| passed(orphaned)).map(|(uid, _)| uid);
        let forgotten: Vec<Uid> = passed.filter(|uid| self.by_uid(uid).next().is_none()).cloned().collect();
        for uid in forgotten {
            self.orphaned.remove(&uid);
        }
    }

    /// A node as others name it. Version and resource are empty where the kind is not served.
    pub(crate) fn object_ref(&self, coverage: &Coverage, id: NodeId) -> ObjectRef {
        let node = self.node(id);
        let kind = coverage.kind(node.kind());
        let (version, resource) = match &kind.served {
            Some(served) => (served.version.clone(), served.group_resource.resource.clone()),
            None => (Name::from(""), Name::from("")),
        };
        ObjectRef {
            group: kind.group.clone(),
            version,
            resource,
            kind: kind.kind.clone(),
            namespace: node.namespace().clone(),
            name: Name::from(node.name()),
            uid: node.uid(),
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
        self.note_orphaning(&uid, &at, &facts);
        let id = match self.find(&uid, &at) {
            Some(id) => id,
            None => self.insert(&uid, &at),
        };
        let node = self.node(id);
        let mut change = Change { appeared: !node.is_observed(), ..Change::default() };
        change.standing = change.appeared
            || node.deletes_dependents() != facts.deletes_dependents()
            || node.orphans_dependents() != facts.orphans_dependents();
        let same_references = !change.appeared
            && node.references().len() == facts.owners.len()
            && node.references().zip(&facts.owners).all(|(known, reference)| known.is(reference));
        let mut before = Owners::None;
        if !same_references {
            change.owners.extend(self.node(id).owners());
            before = self.detach(id);
        }
        self.observe(id, resource_version, list, &facts);
        if !same_references {
            for reference in &facts.owners {
                let target = Self::target(coverage, &at.namespace, reference);
                change.owners.push(self.link(id, reference, &target));
            }
            // Only now: an owner that is still referred to keeps all that is known of it.
            self.drop_unused_owners(id, before.as_slice());
            self.give_back(before);
        }
        change.owners.retain(|&owner| self.get(owner).is_some());
        (id, change)
    }

    fn note_orphaning(&mut self, uid: &Uid, at: &Coordinates, facts: &Facts) {
        if facts.orphans_dependents() {
            let orphaned = || Orphaned { at: at.clone(), round: None, lost: false };
            self.orphaned.entry(uid.clone()).or_insert_with(orphaned).lost = false;
        } else if !facts.terminating && !self.orphaned.is_empty() {
            // Nobody is called back from deletion: whatever was seen was of a history that the store no longer has.
            self.orphaned.remove(uid);
        }
    }

    /// Takes over what an object says of itself, but for its references.
    fn observe(&mut self, id: NodeId, resource_version: ResourceVersion, list: u32, facts: &Facts) {
        if !self.node(id).is_observed() {
            self.observed += 1;
            self.forget_told(id);
            let kind = self.node(id).kind();
            if let Some(unobserved) = self.unobserved.get_mut(&kind) {
                unobserved.remove(&id);
            }
        }
        self.set_finalizers(id, &facts.finalizers);
        self.set_version(id, Some(resource_version));
        let (foreground, orphan) = (facts.has_finalizer(FOREGROUND_FINALIZER), facts.has_finalizer(ORPHAN_FINALIZER));
        self.set_deletion_time(id, facts.deletion_time);
        let cell = self.cell_mut(id);
        cell.list = list;
        for (flag, is) in [
            (Flags::OBSERVED, true),
            (Flags::TERMINATING, facts.terminating),
            (Flags::HOLD, facts.hold),
            (Flags::FOREGROUND, foreground),
            (Flags::ORPHAN, orphan),
        ] {
            cell.flags.set(flag, is);
        }
    }

    /// Takes an observed object out: what is left is `Virtual`, or `Absent` with `proof`, while anything refers to it. Gives the owners
    /// that lost a reference, and whether the node is still there.
    pub(crate) fn remove(&mut self, id: NodeId, proof: Option<Proof>) -> (Vec<NodeId>, bool) {
        let mut owners: Vec<NodeId> = self.node(id).owners().collect();
        let edges = self.detach(id);
        self.drop_unused_owners(id, edges.as_slice());
        self.give_back(edges);
        self.unobserve(id);
        if let Some(proof) = proof {
            self.tell(id, Told::Absent(proof));
        }
        let stays = self.drop_if_unused(id);
        owners.retain(|&owner| self.get(owner).is_some());
        (owners, stays)
    }

    /// What was observed of a node, whose references have been taken out, is forgotten.
    fn unobserve(&mut self, id: NodeId) {
        debug_assert!(self.node(id).owners().len() == 0);
        if !self.node(id).is_observed() {
            return;
        }
        self.observed -= 1;
        let kind = self.node(id).kind();
        self.unobserved.entry(kind).or_default().insert(id);
        self.set_finalizers(id, &[]);
        self.set_version(id, None);
        self.set_deletion_time(id, None);
        let cell = self.cell_mut(id);
        for flag in [Flags::OBSERVED, Flags::TERMINATING, Flags::HOLD, Flags::FOREGROUND, Flags::ORPHAN] {
            cell.flags.set(flag, false);
        }
    }

    /// Replaces what is known of a node that is not observed.
    pub(crate) fn set_unobserved(&mut self, id: NodeId, presence: Presence) {
        debug_assert!(!self.node(id).is_observed());
        self.forget_told(id);
        match presence {
            Presence::Virtual { unreadable } => self.cell_mut(id).flags.set(Flags::UNREADABLE, unreadable),
            Presence::Read { facts, position } => self.tell(id, Told::Read { facts, position }),
            Presence::Absent(proof) => self.tell(id, Told::Absent(proof)),
            Presence::Observed(_) => debug_assert!(false, "an object is observed with its references"),
        }
    }

    fn tell(&mut self, id: NodeId, told: Told) {
        self.told.insert(id, told);
        self.cell_mut(id).flags.set(Flags::TOLD, true);
    }

    fn forget_told(&mut self, id: NodeId) {
        if self.cell(id).flags.has(Flags::TOLD) {
            self.told.remove(&id);
        }
        let flags = &mut self.cell_mut(id).flags;
        flags.set(Flags::TOLD, false);
        flags.set(Flags::UNREADABLE, false);
    }

    fn set_finalizers(&mut self, id: NodeId, finalizers: &[Name]) {
        if *self.node(id).own_finalizers() == *finalizers {
            return;
        }
        if let Some(list) = self.cell(id).finalizers.checked_sub(1) {
            self.finalizers.give_back(list);
        }
        self.cell_mut(id).finalizers =
            if finalizers.is_empty() { 0 } else { self.finalizers.put(Arc::from(finalizers)) + 1 };
    }

    fn set_deletion_time(&mut self, id: NodeId, time: Option<NonZeroU32>) {
        match time {
            Some(time) => {
                self.deletion_times.insert(id, time);
            }
            None if self.cell(id).flags.has(Flags::DELETION_TIME) => {
                self.deletion_times.remove(&id);
            }
            None => {}
        }
        self.cell_mut(id).flags.set(Flags::DELETION_TIME, time.is_some());
    }

    fn set_version(&mut self, id: NodeId, version: Option<ResourceVersion>) {
        if self.cell(id).flags.has(Flags::ODD_VERSION) {
            self.versions.remove(&id);
        }
        let number = version.as_ref().map_or(Some(0), ResourceVersion::number);
        let cell = self.cell_mut(id);
        cell.version = number.unwrap_or_default();
        cell.flags.set(Flags::ODD_VERSION, number.is_none());
        if let (None, Some(version)) = (number, version) {
            self.versions.insert(id, version);
        }
    }

    fn version_of(&self, id: NodeId) -> ResourceVersion {
        match self.versions.get(&id).filter(|_| self.cell(id).flags.has(Flags::ODD_VERSION)) {
            Some(version) => version.clone(),
            None => ResourceVersion::of_number(self.cell(id).version),
        }
    }

    fn uid_of(&self, cell: &Cell) -> Uid {
        match odd_uid(cell) {
            Some(number) => self.uids.get(number).clone(),
            None => Uid::of_canonical(cell.uid),
        }
    }

    fn has_uid(&self, cell: &Cell, uid: &Uid) -> bool {
        match odd_uid(cell) {
            Some(number) => self.uids.get(number) == uid,
            None => uid.canonical() == Some(&cell.uid),
        }
    }

    /// Leads the references of all dependents of `id` to where they lead now that the scope of its kind is known.
    pub(crate) fn relink_dependents(&mut self, coverage: &mut Coverage, id: NodeId) -> Vec<NodeId> {
        let dependents: BTreeSet<NodeId> = self.node(id).dependents().collect();
        for &dependent in &dependents {
            let node = self.node(dependent);
            let references: Vec<OwnerReference> = node.references().map(Reference::to_owned).collect();
            let namespace = node.namespace().clone();
            let before = self.detach(dependent);
            for reference in &references {
                let at = Self::target(coverage, &namespace, reference);
                self.link(dependent, reference, &at);
            }
            // Only now: its other owners are the same as before, with all that is known of them.
            self.drop_unused_owners(dependent, before.as_slice());
            self.give_back(before);
        }
        dependents.into_iter().collect()
    }

    /// A node of which nothing is known but what refers to it.
    fn insert(&mut self, uid: &Uid, at: &Coordinates) -> NodeId {
        let id = self.free.pop().unwrap_or_else(|| self.fresh());
        let place = self.places.put((at.kind, at.namespace.clone()));
        let name = self.texts.put(&at.name);
        let mut flags = Flags::LIVE;
        let bytes = match uid.canonical() {
            Some(bytes) => *bytes,
            None => {
                flags.set(Flags::ODD_UID, true);
                odd_uid_bytes(self.uids.put(uid.clone()))
            }
        };
        *self.cell_mut(id) = Cell { uid: bytes, name, place, flags, ..Cell::default() };
        self.by_uid.put(self.by_uid.hash(uid), id.0);
        self.by_address.put(self.by_address.hash(&(place, &*at.name)), id.0);
        self.unobserved.entry(at.kind).or_default().insert(id);
        id
    }

    fn fresh(&mut self) -> NodeId {
        if self.used == self.cells.len() * PIECE {
            self.cells.push((0..PIECE).map(|_| Cell::default()).collect());
        }
        let id = u32::try_from(self.used).ok().filter(|&id| id < u32::MAX).expect("fewer than 2^32 nodes");
        self.used += 1;
        NodeId(id)
    }

    fn link(&mut self, dependent: NodeId, reference: &OwnerReference, at: &Coordinates) -> NodeId {
        let owner = match self.find(&reference.uid, at) {
            Some(owner) => owner,
            None => self.insert(&reference.uid, at),
        };
        let kind = self.kinds.put((reference.api_version.clone(), reference.kind.clone()));
        let how = How::new(kind, reference.controller, reference.block_owner_deletion);
        let edge = DependentEdge::new(dependent, self.node(dependent).owners().len(), reference.blocks());
        let list = self.dependents_mut(owner);
        let back = u32::try_from(list.as_slice().len()).expect("fewer than 2^32 dependents");
        list.push(edge);
        self.cell_mut(dependent).owners.push(OwnerEdge { owner, back, how });
        self.edges += 1;
        owner
    }

    /// The list of dependents of a node, which may have none yet.
    fn dependents_mut(&mut self, id: NodeId) -> &mut Dependents {
        let list = match self.cell(id).dependents.checked_sub(1) {
            Some(list) => list,
            None => {
                let list = self.free_dependents.pop().unwrap_or_else(|| {
                    self.dependents.push(Dependents::default());
                    u32::try_from(self.dependents.len() - 1).expect("no more lists than nodes")
                });
                self.cell_mut(id).dependents = list + 1;
                list
            }
        };
        &mut self.dependents[list as usize]
    }

    fn drop_unused_owners(&mut self, id: NodeId, edges: &[OwnerEdge]) {
        for edge in edges {
            if edge.owner != id && self.get(edge.owner).is_some() {
                self.drop_if_unused(edge.owner);
            }
        }
    }

    /// Edges that were taken out need their kinds no more.
    fn give_back(&mut self, edges: Owners) {
        for edge in edges.as_slice() {
            self.kinds.give_back(edge.how.kind());
        }
    }

    /// Takes the references of a node out at their owners.
    fn detach(&mut self, id: NodeId) -> Owners {
        let edges = core::mem::take(&mut self.cell_mut(id).owners);
        // From the back: the edges of one owner then leave its list in the order in which later places are moved into earlier ones.
        for (slot, edge) in edges.as_slice().iter().enumerate().rev() {
            let list = self.dependents_mut(edge.owner);
            // An earlier removal of this loop may have moved this edge; then its place is where it points to us from.
            let is_it = |back: &DependentEdge| back.dependent == id && back.slot() == slot;
            let mut at = edge.back as usize;
            if !list.as_slice().get(at).is_some_and(is_it) {
                at = list.as_slice().iter().position(is_it).expect("every reference has its edge at the owner");
            }
            list.swap_remove(at);
            let (moved, is_empty) = (list.as_slice().get(at).copied(), list.as_slice().is_empty());
            self.edges -= 1;
            if let Some(moved) = moved.filter(|moved| moved.dependent != id) {
                let back = u32::try_from(at).expect("fewer than 2^32 dependents");
                self.cell_mut(moved.dependent).owners.as_mut_slice()[moved.slot()].back = back;
            }
            if is_empty {
                self.free_dependents_of(edge.owner);
            }
        }
        edges
    }

    fn free_dependents_of(&mut self, id: NodeId) {
        if let Some(list) = core::mem::take(&mut self.cell_mut(id).dependents).checked_sub(1) {
            self.dependents[list as usize] = Dependents::default();
            self.free_dependents.push(list);
        }
    }

    /// Drops a node that is neither observed nor referred to. True if it stays.
    fn drop_if_unused(&mut self, id: NodeId) -> bool {
        let node = self.node(id);
        if node.is_observed() || node.dependent_count() > 0 {
            return true;
        }
        let (uid, kind) = (node.uid(), node.kind());
        if let Some(unobserved) = self.unobserved.get_mut(&kind) {
            unobserved.remove(&id);
        }
        self.forget_told(id);
        let Cell { name, place, .. } = *self.cell(id);
        self.by_uid.take(self.by_uid.hash(&uid), id.0);
        self.by_address.take(self.by_address.hash(&(place, self.texts.get(name))), id.0);
        self.texts.give_back(name);
        self.places.give_back(place);
        if let Some(number) = odd_uid(self.cell(id)) {
            self.uids.give_back(number);
        }
        *self.cell_mut(id) = Cell::default();
        self.dropped.push(id);
        false
    }
}

/// The number of a uid in another form than the canonical one.
fn odd_uid(cell: &Cell) -> Option<u32> {
    let [a, b, c, d, ..] = cell.uid;
    cell.flags.has(Flags::ODD_UID).then_some(u32::from_le_bytes([a, b, c, d]))
}

fn odd_uid_bytes(number: u32) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..4].copy_from_slice(&number.to_le_bytes());
    bytes
}
