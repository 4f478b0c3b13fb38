//! Facts about changes and decisions: what stood when, and whom it concerns.

use super::Leader;
use crate::coverage::KindId;
use crate::evidence::Proof;
use crate::graph::{Coordinates, Known, Node, NodeId};
use crate::object::{ObjectRef, ResourceVersion, Uid};
use crate::parity::{Change, Lately, OWNERS_MAX, Owner};
use crate::verdict::{Standing, standing};
use crate::view::{EdgeView, OwnerStanding, Undecided};
use alloc::vec::Vec;

impl Leader {
    /// Whether the known state of an object is newer than that of all its owners, so that the decision follows from a
    /// change of the object.
    pub(super) fn follows_own_change(&self, uid: &Uid) -> bool {
        let graph = self.world.graph();
        let Some(node) = graph.primary(uid).map(|id| graph.node(id)) else { return false };
        let Some(version) = node.resource_version() else { return false };
        // The end of an owner that was never seen counts if the object has just lost another reference.
        let has_shed = self.parity.has_happened(self.cx.now, Lately::Shed, uid);
        let precedes = |end: &ResourceVersion| end.is_before(&version);
        let mut owners = node.owners().map(|owner| graph.node(owner)).peekable();
        owners.peek().is_some()
            && owners.all(|owner| {
                let buried = self.world.tombstones().get(self.cx.now, &owner.uid());
                let ended = buried.and_then(|gone| gone.deleted.as_ref());
                let is_older = match owner.known() {
                    Known::Absent(proof) => match (ended, proof) {
                        (Some(ended), _) => precedes(ended),
                        // A list proves the absence later than the owner ended.
                        (None, Proof::Listed { .. }) if buried.is_none() => has_shed,
                        (None, proof) => has_shed && proof.version().is_some_and(precedes),
                    },
                    // The owner may have changed while it waits for its dependents.
                    Known::Observed | Known::Read { .. } => match self.parity.moved_at(&owner.uid()) {
                        Some(began) => precedes(began),
                        None => owner.resource_version().is_some_and(|last| precedes(&last)),
                    },
                    Known::Virtual { .. } => false,
                };
                is_older && self.world.coverage().is_same_store(node.kind(), owner.kind())
            })
    }

    /// Whether neither an object nor one of its owners has changed since the comparison began. The end of an owner that
    /// was never seen is older.
    pub(super) fn is_earlier(&self, id: NodeId) -> bool {
        let (graph, coverage) = (self.world.graph(), self.world.coverage());
        let node = graph.node(id);
        let is_earlier = |kind: KindId, version: Option<&ResourceVersion>| {
            coverage.kind(kind).is_in_main_store() && version.is_some_and(|version| self.parity.is_earlier(version))
        };
        is_earlier(node.kind(), node.resource_version().as_ref())
            && node.owners().map(|owner| graph.node(owner)).all(|owner| match owner.known() {
                Known::Observed | Known::Read { .. } => is_earlier(owner.kind(), owner.resource_version().as_ref()),
                Known::Absent(Proof::WatchDeleted { resource_version }) => {
                    is_earlier(owner.kind(), Some(resource_version))
                }
                Known::Absent(_) => match self.world.tombstones().get(self.cx.now, &owner.uid()) {
                    Some(gone) => is_earlier(owner.kind(), gone.deleted.as_ref()),
                    None => true,
                },
                Known::Virtual { .. } => false,
            })
    }

    /// The standing of a reference as of the version of a change.
    pub(super) fn standing_at(&self, change: &Change, owner: &Owner) -> Standing {
        // A second deletion with another policy moves an owner that waits.
        if let Some(later) = owner.later {
            return later;
        }
        if let Some(stood) = self.stood_at(&change.target, change.version.as_ref(), owner) {
            return stood;
        }
        // Later events take back none of the other standings.
        if !matches!(owner.standing, Standing::Solid | Standing::Unverified(_)) {
            return owner.standing;
        }
        let unverified = Standing::Unverified(Undecided::OwnerUnverified);
        let (graph, coverage) = (self.world.graph(), self.world.coverage());
        let known = |object: &ObjectRef| coverage.known(&object.group, &object.kind);
        let (Some(dependent), Some(kind)) = (known(&change.target), known(&owner.view.owner)) else {
            return Standing::Unverified(Undecided::OwnerKindUnresolved);
        };
        let entry = coverage.kind(kind);
        let object = &owner.view.owner;
        let comparable = change.version.as_ref().filter(|_| coverage.is_same_store(dependent, kind));
        let has_reached = match comparable {
            Some(version) => entry.has_reached(version),
            None => entry.is_synced() && entry.progress().is_some_and(|at| at >= change.at),
        };
        let at = Coordinates { kind, namespace: object.namespace.clone(), name: object.name.clone() };
        let gone = self.world.tombstones().get(self.cx.now, &object.uid);
        let gone = gone.filter(|gone| is_same_place(&gone.object, object));
        if let Some(id) = graph.find(&object.uid, &at) {
            let node = graph.node(id);
            let now = standing(graph, coverage, (dependent, &change.target.namespace), node);
            match now {
                Standing::Solid if !has_reached => return unverified,
                Standing::Unverified(Undecided::OwnerUnverified) => {}
                // The owner may have gone after the change.
                Standing::Dangling if gone.is_some() => {}
                Standing::Solid
                | Standing::Dangling
                | Standing::Waiting
                | Standing::Orphaning
                | Standing::Unverified(_)
                | Standing::InvalidScope => return now,
            }
        }
        if graph.has_orphaned(&object.uid) {
            return Standing::Orphaning;
        }
        if let Some(gone) = gone {
            if gone.orphaned_dependents {
                return Standing::Orphaning;
            }
            let before = |deleted: &ResourceVersion| comparable.is_none_or(|at| deleted.is_before(at));
            return match &gone.deleted {
                Some(deleted) if !before(deleted) && gone.deleted_dependents => Standing::Waiting,
                Some(deleted) if !before(deleted) => Standing::Solid,
                _ => Standing::Dangling,
            };
        }
        if entry.served().is_none() {
            return Standing::Unverified(Undecided::OwnerKindUnresolved);
        }
        // The collection shows every object as of the change, and does not show the owner.
        let is_complete = has_reached && entry.is_synced() && !entry.is_aggregated();
        if is_complete { Standing::Dangling } else { unverified }
    }

    /// The standing of an owner that had gone when a change was seen, and was there as of the version of the change.
    pub(super) fn stood_at(&self, target: &ObjectRef, at: Option<&ResourceVersion>, owner: &Owner) -> Option<Standing> {
        let (coverage, object) = (self.world.coverage(), &owner.view.owner);
        let known = |object: &ObjectRef| coverage.known(&object.group, &object.kind);
        let (at, dependent, kind) = (at?, known(target)?, known(object)?);
        let gone = self.world.tombstones().get(self.cx.now, &object.uid)?;
        let is_later = || gone.deleted.as_ref().is_some_and(|deleted| !deleted.is_before(at));
        let is_it = owner.standing == Standing::Dangling && is_same_place(&gone.object, object);
        if !is_it || !coverage.is_same_store(dependent, kind) || !is_later() {
            return None;
        }
        Some(if gone.deleted_dependents { Standing::Waiting } else { Standing::Solid })
    }

    /// Whether an object in deletion, or one that has gone, still has dependents that its finalizer waits for.
    pub(super) fn has_dependents(&self, uid: &Uid) -> bool {
        let graph = self.world.graph();
        let orphans = graph.has_orphaned(uid);
        graph.few_by_uid(uid).map(|id| graph.node(id)).any(|node| awaits(&node, orphans || node.orphans_dependents()))
    }

    /// The dependents that the finalizer of an object in deletion waits for, as far as they are older than the last
    /// change of the object.
    pub(super) fn awaited(&self, id: NodeId, orphans: Option<bool>) -> Vec<Uid> {
        let (graph, coverage) = (self.world.graph(), self.world.coverage());
        let owner = graph.node(id);
        let is_older = |dependent: &Node<'_>| {
            let versions = dependent.resource_version().zip(owner.resource_version());
            coverage.is_same_store(dependent.kind(), owner.kind())
                && versions.is_some_and(|(one, other)| one.is_before(&other))
        };
        let uids = |ids: &mut dyn Iterator<Item = NodeId>| -> Vec<Uid> {
            let older = ids.map(|id| graph.node(id)).filter(is_older);
            older.map(|dependent| dependent.uid()).take(OWNERS_MAX).collect()
        };
        match orphans {
            Some(true) => uids(&mut graph.dependents(coverage, id)),
            Some(false) => uids(&mut graph.blocking_dependents(coverage, id)),
            None => Vec::new(),
        }
    }

    /// Whether an object is there, with a reference to this owner.
    pub(super) fn has_owner(&self, dependent: &Uid, owner: &Uid) -> bool {
        let graph = self.world.graph();
        let node = graph.primary(dependent).map(|id| graph.node(id)).filter(|node| node.is_observed());
        node.is_some_and(|node| node.owners().any(|id| graph.node(id).uid() == *owner))
    }

    /// Whether a reference has the uid of an object with other coordinates, which may be gone.
    pub(super) fn is_elsewhere(&self, reference: &EdgeView) -> bool {
        use OwnerStanding::{CoordinatesMismatch, InvalidScope, WrongNamespace};
        let uid = &reference.owner.uid;
        let gone = self.world.tombstones().get(self.cx.now, uid).map(|gone| gone.object.clone());
        let observed = self.world.best_known(uid).filter(|&id| self.world.graph().node(id).is_observed());
        matches!(reference.standing, CoordinatesMismatch | InvalidScope | WrongNamespace)
            || gone.is_some_and(|gone| !is_same_place(&gone, &reference.owner))
            || observed.is_some_and(|id| !is_same_place(&self.world.object_ref(id), &reference.owner))
    }

    /// Whether objects refer to the uid of this object under other coordinates.
    pub(super) fn is_claimed_elsewhere(&self, id: NodeId) -> bool {
        let graph = self.world.graph();
        graph.few_by_uid(&graph.node(id).uid()).any(|claim| claim != id && graph.node(claim).dependent_count() > 0)
    }
}

/// Whether an owner has dependents that the finalizer of its deletion waits for.
pub(super) fn awaits(owner: &Node<'_>, orphans: bool) -> bool {
    if orphans { owner.dependent_count() > 0 } else { owner.blocking_count() > 0 }
}

/// Whether two references name the same place.
fn is_same_place(one: &ObjectRef, other: &ObjectRef) -> bool {
    one.group == other.group && one.kind == other.kind && one.namespace == other.namespace && one.name == other.name
}
