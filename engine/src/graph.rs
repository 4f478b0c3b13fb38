//! Objects and the references between them, with edges both ways.
//!
//! Upstream calls a node `node`, and its index of nodes `uidToNode`. Here a node is a uid *and* full coordinates
//! (group, kind, namespace, name). Two references with one uid and different coordinates lead to two nodes, so that
//! knowledge about one never counts for the other. A node exists while its object is observed or referenced.
//!
//! * `cell`, `texts`, `interner`: compact storage.
//! * `prefetch`: memory access for many facts at once.
//! * `node`: the view of a node.
//! * `edges`: references, at both ends; `knowledge`: the state of an object; `orphaned`: owners that orphan their
//!   dependents.
//! * `groups`: one object that several groups serve; `knots`: cycles of objects that wait for each other.

use crate::coverage::{Coverage, KindId};
use crate::evidence::Proof;
use crate::index::Index;
use crate::marks::Marks;
use crate::object::{Excess, Name, Object, ObjectRef, ResourceVersion, Uid};
use crate::paged_vec::PagedVec;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;
use cell::{Cell, Checked, DependentEdge, Dependents, Flags, Owners};
use core::num::NonZeroU32;
use interner::Interner;
use knots::Knots;
use orphaned::Orphaned;
use texts::Texts;

mod cell;
mod edges;
mod groups;
mod interner;
mod invariants;
mod knots;
mod knowledge;
mod node;
mod orphaned;
mod prefetch;
#[cfg(test)]
mod tests;
mod texts;

pub(crate) use knots::cycles;
pub(crate) use node::{Known, Node, Reference};
pub(crate) use orphaned::{Forgotten, address};

/// With ten million entries, a shard has ten thousand.
const SHARDS: usize = 1024;

/// Identifies a node. The number is reused after the node is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct NodeId(u32);

impl NodeId {
    /// The slot of the node, for per-node notes: see [`Graph::places`].
    pub(crate) fn place(self) -> usize {
        self.0 as usize
    }

    /// For tests of per-node notes.
    #[cfg(test)]
    pub(crate) fn of_number(number: u32) -> NodeId {
        NodeId(number)
    }
}

/// The address of an object, without its uid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Coordinates {
    pub(crate) kind: KindId,
    /// Empty for cluster scope.
    pub(crate) namespace: Name,
    pub(crate) name: Name,
}

/// The consequences of an update for other nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Change {
    /// Its dependents must be judged again.
    pub(crate) standing: bool,
    /// The dependents of all nodes with this uid must be judged again, because the record of the orphaning deletion has
    /// changed.
    pub(crate) remembered: bool,
    /// Owners with a new, removed or changed reference.
    pub(crate) owners: Vec<NodeId>,
    /// The object was not observed before.
    pub(crate) appeared: bool,
    /// Its marks are not the same as before.
    pub(crate) marked: bool,
}

/// The graph.
#[derive(Debug)]
pub(crate) struct Graph {
    /// Used and formerly used cells.
    cells: PagedVec<Cell>,
    free: PagedVec<NodeId>,
    by_uid: Index,
    by_address: Index,
    texts: Texts,
    /// Kinds with their namespaces.
    places: Interner<(KindId, Name)>,
    /// `apiVersion` and `kind` of references.
    kinds: Interner<(Name, Name)>,
    finalizers: Interner<Arc<[Name]>>,
    /// Sets of marks.
    marks: Interner<Marks>,
    /// Uids that are not in canonical form.
    uids: Interner<Uid>,
    /// Resource versions that are not numbers, or very large ones.
    versions: BTreeMap<NodeId, ResourceVersion>,
    /// Deletion timestamps.
    deletion_times: BTreeMap<NodeId, NonZeroU32>,
    /// Placeholders for the references of objects that have too many.
    excesses: BTreeMap<NodeId, Excess>,
    dependents: PagedVec<Dependents>,
    free_dependents: PagedVec<u32>,
    checked: BTreeMap<NodeId, Checked>,
    /// Unobserved nodes of each kind.
    unobserved: BTreeMap<KindId, BTreeSet<NodeId>>,
    edges: usize,
    observed: usize,
    /// Objects that were seen terminating with the `orphan` finalizer, by uid.
    orphaned: BTreeMap<Uid, Orphaned>,
    /// Owners that were forgotten since the last call.
    forgotten: Vec<Forgotten>,
    knots: Knots,
    /// Keep objects whose reference claims the uid of another object.
    holds_invalid: bool,
    /// Nodes dropped since the last call of [`Graph::take_dropped`]. Their numbers are not reused before the call.
    dropped: Vec<NodeId>,
}

impl Graph {
    /// An empty graph. `holds_invalid`: keep objects whose reference claims the uid of another object. The secret keeps
    /// users from choosing uids and names with slow lookups.
    pub(crate) fn new(holds_invalid: bool, secret: u64) -> Graph {
        Graph {
            cells: PagedVec::new(),
            free: PagedVec::new(),
            by_uid: Index::new(SHARDS, secret),
            by_address: Index::new(SHARDS, secret),
            texts: Texts::new(),
            places: Interner::new(secret),
            kinds: Interner::new(secret),
            finalizers: Interner::new(secret),
            marks: Interner::new(secret),
            uids: Interner::new(secret),
            versions: BTreeMap::new(),
            deletion_times: BTreeMap::new(),
            excesses: BTreeMap::new(),
            dependents: PagedVec::new(),
            free_dependents: PagedVec::new(),
            checked: BTreeMap::new(),
            unobserved: BTreeMap::new(),
            edges: 0,
            observed: 0,
            orphaned: BTreeMap::new(),
            forgotten: Vec::new(),
            knots: Knots::default(),
            holds_invalid,
            dropped: Vec::new(),
        }
    }

    /// See [`Graph::new`].
    pub(crate) fn secret(&self) -> u64 {
        self.by_uid.secret()
    }

    /// Whether invalid references keep their objects.
    pub(crate) fn holds_invalid(&self) -> bool {
        self.holds_invalid
    }

    /// Whether a reference to this absent node keeps its dependent: its uid belongs to another object.
    pub(crate) fn holds_as_invalid(&self, node: Node<'_>) -> bool {
        self.holds_invalid && !node.is_observed() && self.primary(&node.uid()).is_some()
    }

    pub(crate) fn node(&self, id: NodeId) -> Node<'_> {
        self.get(id).expect("a node id is dropped with its node")
    }

    /// The node, if the id is still valid.
    pub(crate) fn get(&self, id: NodeId) -> Option<Node<'_>> {
        let cell = self.cells.get(id.place())?;
        cell.flags.has(Flags::LIVE).then_some(Node { graph: self, id, cell })
    }

    fn cell(&self, id: NodeId) -> &Cell {
        &self.cells[id.place()]
    }

    fn cell_mut(&mut self, id: NodeId) -> &mut Cell {
        &mut self.cells[id.place()]
    }

    /// Sets whether the node waits to be judged.
    pub(crate) fn set_dirty(&mut self, id: NodeId, dirty: bool) {
        self.cell_mut(id).flags.set(Flags::DIRTY, dirty);
    }

    /// Records that this list of its collection showed an observed object.
    pub(crate) fn set_list(&mut self, id: NodeId, list: u32) {
        debug_assert!(self.node(id).is_observed());
        self.cell_mut(id).list = list;
    }

    pub(crate) fn len(&self) -> usize {
        self.cells.len() - self.free.len() - self.dropped.len()
    }

    /// The nodes dropped since the last call, for per-node notes.
    pub(crate) fn take_dropped(&mut self) -> Vec<NodeId> {
        self.free.extend(self.dropped.iter().copied());
        core::mem::take(&mut self.dropped)
    }

    pub(crate) fn edge_count(&self) -> usize {
        self.edges
    }

    pub(crate) fn unobserved_count(&self) -> usize {
        self.len() - self.observed
    }

    /// Bytes of cells, indexes, names and references. Data that few objects have is not counted.
    pub(crate) fn footprint(&self) -> usize {
        let cells = self.cells.capacity() * size_of::<Cell>();
        let references = self.dependents.capacity() * size_of::<Dependents>() + self.edges * size_of::<DependentEdge>();
        cells + references + self.by_uid.footprint() + self.by_address.footprint() + self.texts.footprint()
    }

    /// Every node, in a reproducible order without meaning.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (NodeId, Node<'_>)> {
        (0..self.cells.len()).filter_map(|place| {
            let id = self.at_place(place)?;
            Some((id, self.node(id)))
        })
    }

    /// The number of slots for nodes; some are empty. A node keeps its slot.
    pub(crate) fn places(&self) -> usize {
        self.cells.len()
    }

    /// The node in a slot, if any.
    pub(crate) fn at_place(&self, place: usize) -> Option<NodeId> {
        let id = NodeId(u32::try_from(place).ok()?);
        self.get(id).map(|_| id)
    }

    /// The nodes of one uid in the order of arrival. There are several if references contradict each other.
    pub(crate) fn by_uid(&self, uid: &Uid) -> impl Iterator<Item = NodeId> + Clone + use<'_> {
        let uid = uid.clone();
        let found = self.by_uid.get(self.by_uid.hash(&uid)).map(NodeId);
        found.filter(move |&id| self.has_uid(self.cell(id), &uid))
    }

    /// All observed nodes of this uid, and a few others.
    pub(crate) fn few_by_uid(&self, uid: &Uid) -> impl Iterator<Item = NodeId> + Clone + use<'_> {
        let uid = uid.clone();
        let found = self.by_uid.few(self.by_uid.hash(&uid)).map(NodeId);
        found.filter(move |&id| self.has_uid(self.cell(id), &uid))
    }

    /// Whether [`Graph::few_by_uid`] leaves any out.
    pub(crate) fn is_crowded(&self, uid: &Uid) -> bool {
        self.by_uid.is_crowded(self.by_uid.hash(uid))
    }

    /// The nodes whose observed or claimed coordinates are this address, in the order of arrival.
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
        let hash = self.by_uid.hash(uid);
        let is_it = |id: &NodeId| self.has_uid(self.cell(*id), uid) && self.node(*id).is_at(at);
        if let Some(id) = self.by_uid.few(hash).map(NodeId).find(is_it) {
            return Some(id);
        }
        if !self.by_uid.is_crowded(hash) {
            return None;
        }
        let place = self.places.find(&(at.kind, at.namespace.clone()))?;
        let second = self.by_address.hash(&(place, &*at.name));
        self.by_uid.crowded(hash, second).map(NodeId).find(is_it)
    }

    /// The node that acts for all nodes of this uid, if several groups serve the same object.
    pub(crate) fn primary(&self, uid: &Uid) -> Option<NodeId> {
        self.few_by_uid(uid).find(|&id| self.node(id).is_observed())
    }

    /// The object reference of a node. Version and resource are empty if the kind is not served.
    pub(crate) fn object_ref(&self, coverage: &Coverage, id: NodeId) -> ObjectRef {
        let node = self.node(id);
        let kind = coverage.kind(node.kind());
        let (version, resource) = match kind.served() {
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

    /// The kinds of all nodes.
    pub(crate) fn kinds(&self) -> BTreeSet<KindId> {
        self.places.values().map(|(kind, _)| *kind).collect()
    }

    /// Unobserved nodes of a kind.
    pub(crate) fn unobserved(&self, kind: KindId) -> impl Iterator<Item = NodeId> + '_ {
        self.unobserved.get(&kind).into_iter().flatten().copied()
    }

    /// Adds or updates an object. The caller ensures that it is not older than the known state.
    pub(crate) fn upsert(
        &mut self,
        coverage: &mut Coverage,
        kind: KindId,
        list: u32,
        object: Object,
    ) -> (NodeId, Change) {
        let Object { uid, namespace, name, resource_version, facts, marks } = object;
        let at = Coordinates { kind, namespace, name };
        let remembered = self.note_orphaning(&uid, &at, &facts);
        let known = self.find(&uid, &at);
        if let Some(id) = known.filter(|&id| !self.node(id).is_observed()) {
            self.strike_unobserved(kind, id);
        }
        let id = known.unwrap_or_else(|| self.insert(&uid, &at));
        let node = self.node(id);
        let mut change = Change { appeared: !node.is_observed(), remembered, ..Change::default() };
        change.standing = change.appeared
            || node.deletes_dependents() != facts.deletes_dependents()
            || node.orphans_dependents() != facts.orphans_dependents();
        let same_references = !change.appeared && node.has_references(&facts.owners);
        let mut before = Owners::None;
        if !same_references {
            change.owners = self.owners_and_acting(id);
            before = self.detach(id);
        }
        self.observe(id, resource_version, list, &facts);
        change.marked = self.set_marks(id, marks);
        if !same_references {
            for reference in &facts.owners {
                let target = Self::target(coverage, &at.namespace, reference);
                change.owners.push(self.link(id, reference, &target));
            }
            // This comes last, so that an owner that is still referenced keeps all knowledge.
            self.drop_unused_owners(id, before.as_slice());
            self.give_back(before);
        }
        if change.appeared {
            self.promote(id);
        }
        self.note_waiting(id, !same_references);
        change.owners.retain(|&owner| self.get(owner).is_some());
        (id, change)
    }

    /// The owners of a node. When the last reference to an owner goes, another node of the same object may wait for
    /// that.
    fn owners_and_acting(&self, id: NodeId) -> Vec<NodeId> {
        let owners = self.node(id).owners();
        let unobserved = owners.clone().map(|owner| self.node(owner)).filter(|owner| !owner.is_observed());
        let acting = unobserved.filter_map(|owner| self.primary(&owner.uid()));
        owners.chain(acting).collect()
    }

    /// Removes an observed object. While it is referenced, it becomes `Virtual`, or `Absent` with `proof`. Returns the
    /// owners that lost a reference, and whether the node still exists.
    pub(crate) fn remove(&mut self, id: NodeId, proof: Option<Proof>) -> (Vec<NodeId>, bool) {
        let mut owners = self.owners_and_acting(id);
        let edges = self.detach(id);
        self.drop_unused_owners(id, edges.as_slice());
        self.give_back(edges);
        self.unobserve(id);
        self.note_waiting(id, true);
        if let Some(proof) = proof {
            self.tell(id, Checked::Absent(proof));
        }
        let kind = self.node(id).kind();
        let stays = self.drop_if_unused(id);
        if stays {
            self.list_unobserved(kind, id);
        }
        owners.retain(|&owner| self.get(owner).is_some());
        (owners, stays)
    }

    /// A node without any knowledge or reference.
    fn insert(&mut self, uid: &Uid, at: &Coordinates) -> NodeId {
        let id = self.free.pop().unwrap_or_else(|| self.fresh());
        let place = self.places.put((at.kind, at.namespace.clone()));
        let name = self.texts.put(&at.name);
        let mut flags = Flags::LIVE;
        let bytes = match uid.canonical() {
            Some(bytes) => *bytes,
            None => {
                flags.set(Flags::ODD_UID, true);
                cell::odd_uid_bytes(self.uids.put(uid.clone()))
            }
        };
        *self.cell_mut(id) = Cell { uid: bytes, name, place, flags, ..Cell::default() };
        let (of_uid, of_address) = (self.by_uid.hash(uid), self.by_address.hash(&(place, &*at.name)));
        self.by_uid.put(of_uid, of_address, id.0);
        self.by_address.put(of_address, of_uid, id.0);
        id
    }

    /// Moves an observed object in front of other nodes that claim its uid, of which there may be very many.
    fn promote(&mut self, id: NodeId) {
        let hash = self.by_uid.hash(&self.node(id).uid());
        if self.by_uid.is_crowded(hash) {
            let cell = self.cell(id);
            let second = self.by_address.hash(&(cell.place, self.texts.get(cell.name)));
            self.by_uid.promote(hash, second, id.0);
        }
    }

    /// A node that is referenced and not observed.
    fn insert_unobserved(&mut self, uid: &Uid, at: &Coordinates) -> NodeId {
        let id = self.insert(uid, at);
        self.list_unobserved(at.kind, id);
        id
    }

    fn list_unobserved(&mut self, kind: KindId, id: NodeId) {
        self.unobserved.entry(kind).or_default().insert(id);
    }

    fn strike_unobserved(&mut self, kind: KindId, id: NodeId) {
        if let Some(unobserved) = self.unobserved.get_mut(&kind) {
            unobserved.remove(&id);
            if unobserved.is_empty() {
                self.unobserved.remove(&kind);
            }
        }
    }

    fn fresh(&mut self) -> NodeId {
        let id = u32::try_from(self.cells.len()).ok().filter(|&id| id < u32::MAX).expect("fewer than 2^32 nodes");
        self.cells.push(Cell::default());
        NodeId(id)
    }

    /// Drops a node that is neither observed nor referenced. Returns true if the node stays.
    fn drop_if_unused(&mut self, id: NodeId) -> bool {
        let node = self.node(id);
        if node.is_observed() || node.dependent_count() > 0 {
            return true;
        }
        let (uid, kind) = (node.uid(), node.kind());
        self.strike_unobserved(kind, id);
        self.forget_checked(id);
        let Cell { name, place, .. } = *self.cell(id);
        let (of_uid, of_address) = (self.by_uid.hash(&uid), self.by_address.hash(&(place, self.texts.get(name))));
        self.by_uid.take(of_uid, of_address, id.0);
        self.by_address.take(of_address, of_uid, id.0);
        self.texts.give_back(name);
        self.places.give_back(place);
        if let Some(number) = self.cell(id).odd_uid() {
            self.uids.give_back(number);
        }
        *self.cell_mut(id) = Cell::default();
        self.dropped.push(id);
        if !self.orphaned.is_empty() {
            self.forget_if_unused(&uid);
        }
        false
    }
}
