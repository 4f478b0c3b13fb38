//! The view of a node.

use super::cell::{Cell, Checked, DependentEdge, Dependents, Flags, OwnerEdge, UNKNOWN_MARKS};
use super::{Coordinates, Graph, NodeId};
use crate::coverage::KindId;
use crate::evidence::{Presence, Proof};
use crate::marks::Marks;
use crate::object::{
    Excess, FOREGROUND_FINALIZER, Facts, Name, ORPHAN_FINALIZER, OwnerReference, ResourceVersion, Uid,
};
use core::fmt;
use core::num::NonZeroU32;

/// A node of a graph.
#[derive(Clone, Copy)]
pub(crate) struct Node<'a> {
    pub(super) graph: &'a Graph,
    pub(super) id: NodeId,
    pub(super) cell: &'a Cell,
}

/// A [`Presence`] without copies.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Known<'a> {
    /// A list or watch of its collection showed it, or a read while nothing newer was known.
    Observed,
    /// Known only from references.
    Virtual { unreadable: bool },
    /// A read found the object, although its collection has not shown it.
    Read { position: &'a ResourceVersion },
    /// Proven absent.
    Absent(&'a Proof),
}

/// A reference of an observed object to a node.
#[derive(Clone, Copy)]
pub(crate) struct Reference<'a> {
    graph: &'a Graph,
    edge: &'a OwnerEdge,
}

impl<'a> Node<'a> {
    pub(crate) fn uid(self) -> Uid {
        self.graph.uid_of(self.cell)
    }

    pub(crate) fn kind(self) -> KindId {
        self.graph.places.get(self.cell.place).0
    }

    /// Empty for cluster scope.
    pub(crate) fn namespace(self) -> &'a Name {
        &self.graph.places.get(self.cell.place).1
    }

    pub(crate) fn name(self) -> &'a str {
        self.graph.texts.get(self.cell.name)
    }

    pub(crate) fn at(self) -> Coordinates {
        let (kind, namespace) = self.graph.places.get(self.cell.place);
        Coordinates { kind: *kind, namespace: namespace.clone(), name: Name::from(self.name()) }
    }

    pub(crate) fn is_at(self, at: &Coordinates) -> bool {
        let (kind, namespace) = self.graph.places.get(self.cell.place);
        *kind == at.kind && *namespace == at.namespace && *self.name() == *at.name
    }

    pub(crate) fn known(self) -> Known<'a> {
        if self.is_observed() {
            return Known::Observed;
        }
        match self.checked() {
            Some(Checked::Read { position, .. }) => Known::Read { position },
            Some(Checked::Absent(proof)) => Known::Absent(proof),
            None => Known::Virtual { unreadable: self.cell.flags.has(Flags::UNREADABLE) },
        }
    }

    pub(crate) fn presence(self) -> Presence {
        match self.known() {
            Known::Observed => Presence::Observed { resource_version: self.graph.version_of(self.id) },
            Known::Virtual { unreadable } => Presence::Virtual { unreadable },
            Known::Read { position } => Presence::Read { position: position.clone() },
            Known::Absent(proof) => Presence::Absent(proof.clone()),
        }
    }

    pub(crate) fn is_observed(self) -> bool {
        self.cell.flags.has(Flags::OBSERVED)
    }

    /// Unobserved, and read or proven absent.
    pub(crate) fn is_checked(self) -> bool {
        self.checked().is_some()
    }

    /// Observed or read.
    pub(crate) fn has_facts(self) -> bool {
        self.is_observed() || self.read().is_some()
    }

    pub(crate) fn is_absent(self) -> bool {
        matches!(self.checked(), Some(Checked::Absent(_)))
    }

    /// Waits to be judged.
    pub(crate) fn is_dirty(self) -> bool {
        self.cell.flags.has(Flags::DIRTY)
    }

    /// The version of an observed object.
    pub(crate) fn resource_version(self) -> Option<ResourceVersion> {
        self.is_observed().then(|| self.graph.version_of(self.id))
    }

    /// The last list of its collection that showed it. `None` if it is not observed.
    pub(crate) fn list(self) -> Option<u32> {
        self.is_observed().then_some(self.cell.list)
    }

    /// The facts of the object, from its collection or from a read. Each call builds them again.
    pub(crate) fn facts(self) -> Option<Facts> {
        if self.is_observed() { Some(self.own_facts()) } else { self.read().cloned() }
    }

    /// The facts with the first `max` references and finalizers, and with the finalizers of garbage collection at any
    /// position.
    pub(crate) fn facts_listed(self, max: usize) -> Facts {
        let ours = |name: &&Name| [FOREGROUND_FINALIZER, ORPHAN_FINALIZER].contains(&&***name);
        let finalizers = self.finalizers();
        let rest = finalizers.iter().skip(max).filter(ours).take(2);
        let finalizers = finalizers.iter().take(max).chain(rest).cloned().collect();
        match self.read() {
            Some(read) => Facts {
                owners: read.owners.iter().take(max).cloned().collect(),
                excess: read.excess,
                finalizers,
                terminating: read.terminating,
                hold: read.hold,
                deletion_time: read.deletion_time,
            },
            None if self.is_observed() => Facts {
                owners: self.references().take(max).map(Reference::to_owned).collect(),
                excess: self.excess(),
                finalizers,
                terminating: self.cell.flags.has(Flags::TERMINATING),
                hold: self.cell.flags.has(Flags::HOLD),
                deletion_time: self.deletion_time(),
            },
            None => Facts::default(),
        }
    }

    /// The number of references of an observed or read object.
    pub(crate) fn reference_count(self) -> usize {
        self.read().map_or_else(|| self.owners().len(), |facts| facts.owners.len())
    }

    pub(crate) fn is_terminating(self) -> bool {
        self.read().map_or(self.cell.flags.has(Flags::TERMINATING), |facts| facts.terminating)
    }

    /// Whether the object carries the hold annotation.
    pub(crate) fn is_held(self) -> bool {
        self.read().map_or(self.cell.flags.has(Flags::HOLD), |facts| facts.hold)
    }

    /// Terminating, and its dependents are deleted first.
    pub(crate) fn deletes_dependents(self) -> bool {
        let deletes = self.cell.flags.has(Flags::TERMINATING) && self.cell.flags.has(Flags::FOREGROUND);
        self.read().map_or(deletes, Facts::deletes_dependents)
    }

    /// Terminating, and its dependents are orphaned.
    pub(crate) fn orphans_dependents(self) -> bool {
        let orphans = self.cell.flags.has(Flags::TERMINATING) && self.cell.flags.has(Flags::ORPHAN);
        self.read().map_or(orphans, Facts::orphans_dependents)
    }

    pub(crate) fn finalizers(self) -> &'a [Name] {
        self.read().map_or_else(|| self.own_finalizers(), |facts| &facts.finalizers)
    }

    /// The finalizers of other controllers.
    pub(crate) fn foreign_finalizers(self) -> impl Iterator<Item = &'a Name> {
        self.finalizers().iter().filter(|name| ***name != *FOREGROUND_FINALIZER && ***name != *ORPHAN_FINALIZER)
    }

    /// The finalizers of an observed object.
    pub(super) fn own_finalizers(self) -> &'a [Name] {
        self.cell.finalizers.checked_sub(1).map_or(&[], |list| self.graph.finalizers.get(list))
    }

    pub(crate) fn has_finalizer(self, finalizer: &str) -> bool {
        self.finalizers().iter().any(|name| **name == *finalizer)
    }

    /// The references of an observed object, in order.
    pub(crate) fn references(self) -> impl ExactSizeIterator<Item = Reference<'a>> + DoubleEndedIterator + Clone {
        let graph = self.graph;
        self.cell.owners.as_slice().iter().map(move |edge| Reference { graph, edge })
    }

    /// Whether the selector with this number matches an observed object, or may match.
    pub(crate) fn has_mark(self, selector: u16) -> bool {
        self.cell.marks == UNKNOWN_MARKS
            || self.set_of_marks().is_some_and(|set| self.graph.marks.get(set).has(selector))
    }

    /// Whether the marks of an observed object equal `marks`.
    pub(crate) fn has_marks(self, marks: &Marks) -> bool {
        match self.set_of_marks() {
            Some(set) => self.graph.marks.get(set) == marks,
            None if self.cell.marks == UNKNOWN_MARKS => marks.are_unknown(),
            None => *marks == Marks::default(),
        }
    }

    /// The marks of an observed object.
    pub(crate) fn marks(self) -> Marks {
        match self.set_of_marks() {
            Some(set) => self.graph.marks.get(set).clone(),
            None if self.cell.marks == UNKNOWN_MARKS => Marks::unknown(),
            None => Marks::default(),
        }
    }

    /// The number of its set of marks in the table of the graph.
    pub(super) fn set_of_marks(self) -> Option<u32> {
        self.cell.marks.checked_sub(1).filter(|_| self.cell.marks != UNKNOWN_MARKS).map(u32::from)
    }

    /// Whether the facts of an observed object equal `facts`.
    pub(crate) fn has_said(self, facts: &Facts) -> bool {
        self.has_references(&facts.owners)
            && *self.own_finalizers() == *facts.finalizers
            && self.cell.flags.has(Flags::TERMINATING) == facts.terminating
            && self.cell.flags.has(Flags::HOLD) == facts.hold
            && self.deletion_time() == facts.deletion_time
            && self.excess() == facts.excess
    }

    /// Whether the references equal `references`, in the same order.
    pub(crate) fn has_references(self, owners: &[OwnerReference]) -> bool {
        self.references().len() == owners.len() && self.references().zip(owners).all(|(known, owner)| known.is(owner))
    }

    /// Whether one of its references blocks the foreground deletion of this owner.
    pub(crate) fn blocks(self, owner: NodeId) -> bool {
        self.references().any(|reference| reference.owner() == owner && reference.blocks())
    }

    /// The owners of its references, in order.
    pub(crate) fn owners(self) -> impl ExactSizeIterator<Item = NodeId> + Clone + use<'a> {
        self.cell.owners.as_slice().iter().map(|edge| edge.owner)
    }

    /// The number of references to this node.
    pub(crate) fn dependent_count(self) -> usize {
        self.edges_of_dependents().len()
    }

    /// The number of references that block its foreground deletion.
    pub(crate) fn blocking_count(self) -> usize {
        self.list_of_dependents().map_or(0, Dependents::blocking)
    }

    /// The nodes that refer to this one. A node with two references appears twice.
    pub(crate) fn dependents(self) -> impl Iterator<Item = NodeId> + use<'a> {
        self.edges_of_dependents().iter().map(|edge| edge.dependent)
    }

    /// The dependents at these indices, the last one first. A walk from the last index down misses no dependent that
    /// stays, because a removal moves only the last one, to a lower index.
    pub(crate) fn dependents_at(self, places: core::ops::Range<usize>) -> impl Iterator<Item = NodeId> + use<'a> {
        let edges = self.edges_of_dependents().get(places).unwrap_or_default();
        edges.iter().rev().map(|edge| edge.dependent)
    }

    pub(super) fn list_of_dependents(self) -> Option<&'a Dependents> {
        let list = self.cell.dependents.checked_sub(1)?;
        Some(&self.graph.dependents[list as usize])
    }

    pub(super) fn edges_of_dependents(self) -> &'a [DependentEdge] {
        self.list_of_dependents().map_or(&[], Dependents::as_slice)
    }

    fn deletion_time(self) -> Option<NonZeroU32> {
        if !self.cell.flags.has(Flags::DELETION_TIME) {
            return None;
        }
        self.graph.deletion_times.get(&self.id).copied()
    }

    /// The placeholder for the references, if an observed object has more than the collector reads.
    pub(crate) fn excess(self) -> Option<Excess> {
        if !self.cell.flags.has(Flags::EXCESS) {
            return None;
        }
        self.graph.excesses.get(&self.id).copied()
    }

    /// The facts of an observed object.
    fn own_facts(self) -> Facts {
        Facts {
            owners: self.references().map(Reference::to_owned).collect(),
            excess: self.excess(),
            finalizers: self.finalizers().into(),
            terminating: self.cell.flags.has(Flags::TERMINATING),
            hold: self.cell.flags.has(Flags::HOLD),
            deletion_time: self.deletion_time(),
        }
    }

    fn read(self) -> Option<&'a Facts> {
        match self.checked()? {
            Checked::Read { facts, .. } => Some(facts),
            Checked::Absent(_) => None,
        }
    }

    fn checked(self) -> Option<&'a Checked> {
        if !self.cell.flags.has(Flags::CHECKED) {
            return None;
        }
        self.graph.checked.get(&self.id)
    }
}

impl Reference<'_> {
    pub(crate) fn owner(self) -> NodeId {
        self.edge.owner
    }

    /// Whether the owner's foreground deletion waits for this dependent.
    pub(crate) fn blocks(self) -> bool {
        self.edge.how.blocks() == Some(true)
    }

    /// The reference as it was written.
    pub(crate) fn to_owned(self) -> OwnerReference {
        let (api_version, kind) = self.graph.kinds.get(self.edge.how.kind());
        let owner = self.graph.node(self.edge.owner);
        OwnerReference {
            api_version: api_version.clone(),
            kind: kind.clone(),
            name: Name::from(owner.name()),
            uid: owner.uid(),
            controller: self.edge.how.controller(),
            block_owner_deletion: self.edge.how.blocks(),
        }
    }

    /// Whether the reference was written in this form.
    fn is(self, reference: &OwnerReference) -> bool {
        let how = self.edge.how;
        let (api_version, kind) = self.graph.kinds.get(how.kind());
        let owner = self.graph.node(self.edge.owner);
        (how.controller(), how.blocks()) == (reference.controller, reference.block_owner_deletion)
            && *api_version == reference.api_version
            && *kind == reference.kind
            && *owner.name() == *reference.name
            && self.graph.has_uid(owner.cell, &reference.uid)
    }
}

impl fmt::Debug for Node<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/{} {:?}", self.uid(), self.namespace(), self.name(), self.known())
    }
}
