//! Records of owners that orphan their dependents. A record remains after the owner is gone.
//!
//! The record belongs to a uid, because several groups may serve one object, and one of them may lag. If in doubt, the
//! record keeps dependents.

use super::{Coordinates, Graph, Node, NodeId};
use crate::coverage::KindId;
use crate::object::{Digest, Facts, Name, Uid};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

/// The record of an owner that orphans its dependents.
#[derive(Debug)]
pub(super) struct Orphaned {
    /// The places that showed the orphaning, one for each group that serves the owner. Never empty.
    places: Vec<Place>,
    lost: Option<Lost>,
}

/// The orphaning was seen in a history that the store may have lost. In the current history the owner may exist without
/// a deletion mark. So the record counts once the owner is proven absent. It ends when a watch shows that the owner
/// went without orphaning.
#[derive(Clone, Copy, Debug, Default)]
struct Lost {
    /// Since the loss of the history, the owner's collection has shown the owner without a deletion mark. This flag
    /// matters because an owner that is terminating at first sight may have orphaned before.
    alive: bool,
}

/// An owner whose record was dropped.
#[derive(Debug)]
pub(crate) struct Forgotten {
    pub(crate) uid: Uid,
    /// The [`address`] of the owner.
    pub(crate) address: u64,
    /// The record belongs to a history that the store may have lost.
    pub(crate) lost: bool,
}

#[derive(Debug)]
struct Place {
    at: Coordinates,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Shown,
    /// The owner left its collection. The record may be dropped after this round of the barrier.
    Gone {
        until: u64,
    },
    /// The round has passed.
    Passed,
}

/// Namespace and name of an owner, as one number. A user who finds a collision can only keep the user's own object.
pub(crate) fn address(namespace: &str, name: &str) -> u64 {
    let mut digest = Digest::default();
    digest.text(namespace);
    digest.text(name);
    digest.0
}

impl Orphaned {
    fn place_mut(&mut self, at: &Coordinates) -> &mut Place {
        let known = self.places.iter().position(|place| place.at == *at);
        let known = known.unwrap_or_else(|| {
            self.places.push(Place { at: at.clone(), stage: Stage::Shown });
            self.places.len() - 1
        });
        &mut self.places[known]
    }
}

impl Graph {
    /// Whether the dependents of this unobserved node are orphaned. The owner has the same name in each group.
    pub(crate) fn is_orphaned(&self, node: Node<'_>) -> bool {
        if self.orphaned.is_empty() {
            return false;
        }
        let is_it = |place: &Place| *place.at.namespace == **node.namespace() && *place.at.name == *node.name();
        let orphaned = self.orphaned.get(&node.uid());
        orphaned.is_some_and(|orphaned| {
            (orphaned.lost.is_none() || node.is_absent())
                && orphaned.places.iter().any(|place| is_it(place) || node.is_at(&place.at))
        })
    }

    /// Whether an object with this uid was seen orphaning, at any coordinates.
    pub(crate) fn has_orphaned(&self, uid: &Uid) -> bool {
        self.orphaned.contains_key(uid)
    }

    /// Records that the node's collection no longer shows it. If its object orphaned its dependents, the record remains
    /// until this round of the barrier has passed.
    pub(crate) fn remember_orphaned(&mut self, id: NodeId, until: u64) {
        let (uid, at) = (self.node(id).uid(), self.node(id).at());
        if let Some(orphaned) = self.orphaned.get_mut(&uid) {
            orphaned.place_mut(&at).stage = Stage::Gone { until };
        }
    }

    /// Marks every record as belonging to a history that the store may have lost.
    pub(crate) fn lose_orphaned(&mut self) {
        for orphaned in self.orphaned.values_mut() {
            orphaned.lost = Some(Lost::default());
        }
    }

    /// Notes that the collection is listed again, so the orphaning of an owner may have been missed.
    pub(crate) fn lose_sight_of_orphaned(&mut self, kind: KindId) {
        for orphaned in self.orphaned.values_mut().filter(|of| of.places.iter().any(|place| place.at.kind == kind)) {
            orphaned.lost = orphaned.lost.map(|_| Lost::default());
        }
    }

    /// Copies the record of this node's orphaning from another graph.
    pub(crate) fn set_orphaned(&mut self, uid: Uid, at: &Coordinates) {
        let orphaned = self.orphaned.entry(uid).or_insert(Orphaned { places: Vec::new(), lost: None });
        orphaned.place_mut(at);
    }

    /// The namespaces of recorded owners that left their collection. Their records wait for a new round in each
    /// namespace.
    pub(crate) fn namespaces_of_gone_orphaned(&self) -> BTreeSet<Name> {
        let places = self.orphaned.values().flat_map(|orphaned| &orphaned.places);
        places.filter(|place| place.stage != Stage::Shown).map(|place| place.at.namespace.clone()).collect()
    }

    /// The rounds of the barrier start again. The records of owners in this namespace that left their collection remain
    /// until this round has passed.
    pub(crate) fn remember_orphaned_longer(&mut self, namespace: &Name, until: u64) {
        let places = self.orphaned.values_mut().flat_map(|orphaned| &mut orphaned.places);
        for place in places.filter(|place| place.stage != Stage::Shown && place.at.namespace == *namespace) {
            place.stage = Stage::Gone { until };
        }
    }

    /// A round of the barrier has passed for these namespaces. Drops the records that waited for it and whose owners
    /// are not referenced. The other records are dropped with the last reference.
    pub(crate) fn forget_orphaned(&mut self, namespaces: &BTreeSet<Name>, round: u64) {
        let mut passed = Vec::new();
        for (uid, orphaned) in &mut self.orphaned {
            for place in &mut orphaned.places {
                let waits = matches!(place.stage, Stage::Gone { until } if until <= round);
                if waits && namespaces.contains(&place.at.namespace) {
                    place.stage = Stage::Passed;
                    passed.push(uid.clone());
                }
            }
        }
        for uid in passed {
            self.forget_if_unused(&uid);
        }
    }

    /// Drops the record of an owner once its rounds have passed, no group shows the owner, and no group's reference
    /// names it.
    pub(super) fn forget_if_unused(&mut self, uid: &Uid) {
        let Some(orphaned) = self.orphaned.get(uid) else { return };
        let is_it = |node: Node<'_>| {
            let mut places = orphaned.places.iter().map(|place| &place.at);
            node.is_observed() || places.any(|at| at.namespace == *node.namespace() && *at.name == *node.name())
        };
        let is_over = orphaned.places.iter().all(|place| place.stage == Stage::Passed);
        // If very many references claim the uid, this check does not see all of them.
        if is_over && !self.is_crowded(uid) && !self.few_by_uid(uid).any(|id| is_it(self.node(id))) {
            let (lost, first) = (orphaned.lost.is_some(), orphaned.places.first());
            let address = first.map(|place| address(&place.at.namespace, &place.at.name));
            self.orphaned.remove(uid);
            self.forgotten.extend(address.map(|address| Forgotten { uid: uid.clone(), address, lost }));
        }
    }

    /// Owners forgotten since the last call.
    pub(crate) fn take_forgotten(&mut self) -> Vec<Forgotten> {
        core::mem::take(&mut self.forgotten)
    }

    /// Drops the record of an owner after a watch has shown that the owner went without orphaning. The record belongs
    /// to a lost history.
    pub(crate) fn end_orphaned(&mut self, uid: &Uid) {
        if self.orphaned.get(uid).is_some_and(|orphaned| orphaned.lost.is_some_and(|lost| lost.alive)) {
            self.orphaned.remove(uid);
        }
    }

    /// Adds a record of the owner at this node again, while the owner is referenced. `lost` means that it comes from a
    /// history that the store may have lost.
    pub(crate) fn remember_again(&mut self, id: NodeId, lost: bool) {
        let (uid, at) = (self.node(id).uid(), self.node(id).at());
        self.set_orphaned(uid.clone(), &at);
        if let Some(orphaned) = self.orphaned.get_mut(&uid) {
            orphaned.place_mut(&at).stage = Stage::Passed;
            orphaned.lost = orphaned.lost.or(lost.then(Lost::default));
        }
    }

    /// The number of records.
    pub(crate) fn orphaned_count(&self) -> usize {
        self.orphaned.len()
    }

    /// Drops the records of all owners that left their collection and are not referenced, without a round.
    pub(crate) fn forget_gone_orphaned(&mut self) {
        let mut gone = Vec::new();
        for (uid, orphaned) in &mut self.orphaned {
            for place in orphaned.places.iter_mut().filter(|place| place.stage != Stage::Shown) {
                place.stage = Stage::Passed;
                gone.push(uid.clone());
            }
        }
        for uid in gone {
            self.forget_if_unused(&uid);
        }
    }

    /// Records what this place shows. Returns true if the record of the owner changes.
    pub(super) fn note_orphaning(&mut self, uid: &Uid, at: &Coordinates, facts: &Facts) -> bool {
        if facts.orphans_dependents() {
            let orphaned =
                self.orphaned.entry(uid.clone()).or_insert_with(|| Orphaned { places: Vec::new(), lost: None });
            let known = orphaned.places.len();
            let was_lost = orphaned.lost.take();
            orphaned.place_mut(at).stage = Stage::Shown;
            was_lost.is_some() || orphaned.places.len() > known
        } else if !facts.terminating
            && let Some(orphaned) = self.orphaned.get_mut(uid)
        {
            if let Some(lost) = &mut orphaned.lost {
                lost.alive = true;
                return false;
            }
            // A deletion cannot be undone. A group without the orphaning may only lag, so it withdraws only its own
            // entry. If the store may have been restored, one of its servers may lag, too.
            let known = orphaned.places.len();
            orphaned.places.retain(|place| place.at != *at);
            let left = orphaned.places.len();
            if left == 0 {
                self.orphaned.remove(uid);
            }
            left < known
        } else {
            false
        }
    }
}
