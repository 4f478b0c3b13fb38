//! The verdict: what is garbage, and what a terminating owner waits for.
//!
//! The verdict has no state, no time and no effects. The same facts give the same verdict, in any order of arrival.
//! With [`crate::attempt`], it replaces upstream's `attemptToDeleteItem`.

use crate::coverage::{Coverage, KindId, State};
use crate::evidence::Proof;
use crate::graph::{Graph, Known, Node, NodeId, Reference};
use crate::hold::Hold;
use crate::view::Undecided;
use crate::work::PropagationPolicy;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

#[cfg(test)]
mod tests;

/// Maximum number of references to follow to find out whether an object to be deleted is in a cycle.
const LOOKED_AT_MAX: usize = 1000;

/// The meaning of one reference for the dependent, as in upstream's `classifyReferences`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// The owner exists and does not wait for this object.
    Solid,
    /// The owner is proven absent.
    Dangling,
    /// The owner is in foreground deletion. Upstream calls this `waitingForDependentsDeletion`.
    Waiting,
    /// The owner orphans its dependents, or did so at its deletion. The reference is removed, the object stays.
    Orphaning,
    /// Neither presence nor absence is known.
    Unverified(Undecided),
    /// A cluster-scoped object cannot have a namespaced owner.
    InvalidScope,
}

impl Standing {
    pub(crate) fn is_unverified(self) -> bool {
        matches!(self, Standing::Unverified(_))
    }
}

/// The verdict on one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Not observed: no verdict.
    NotObserved,
    /// No references: never collected.
    Unowned,
    /// Kept; `drop` are the indices of references to remove.
    Kept {
        drop: Vec<usize>,
    },
    Undecided(Undecided),
    /// As `Collectable`, but the object holds itself: see [`own_hold`].
    Held(Collection),
    Collectable(Collection),
    /// Terminating, and waits only for finalizers of other controllers or for its grace period.
    Terminating {
        drop: Vec<usize>,
    },
    /// In foreground deletion. `blocking` references to the object block the deletion. `unblock` are the indices of
    /// references that close a cycle of such deletions.
    Foreground {
        blocking: usize,
        drop: Vec<usize>,
        unblock: Vec<usize>,
    },
    /// In orphaning deletion, with this number of references to the object.
    Orphaning {
        dependents: usize,
        drop: Vec<usize>,
    },
}

/// How to delete an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Collection {
    pub(crate) propagation_policy: PropagationPolicy,
    /// Indices of references to waiting owners. The decision depends on their waiting.
    pub(crate) waiting: Vec<usize>,
    /// Indices of blocking references inside a cycle, to be unblocked first.
    pub(crate) unblock: Vec<usize>,
}

/// Judges one node.
pub(crate) fn verdict(graph: &Graph, coverage: &Coverage, id: NodeId) -> Verdict {
    let node = graph.node(id);
    let Some(list) = node.list() else { return Verdict::NotObserved };
    if coverage.kind(node.kind()).is_lost(list) {
        return Verdict::Undecided(Undecided::CollectionUnsynced);
    }
    let standings = standings(graph, coverage, node);
    if node.is_terminating() {
        let drop = places(&standings, |standing| standing == Standing::Orphaning);
        return if node.orphans_dependents() {
            Verdict::Orphaning { dependents: graph.dependent_count(coverage, id), drop }
        } else if node.deletes_dependents() {
            let blocking = graph.blocking_count(coverage, id);
            Verdict::Foreground { blocking, drop, unblock: deadlocked(graph, id) }
        } else {
            Verdict::Terminating { drop }
        };
    }
    if node.excess().is_some() {
        return Verdict::Undecided(Undecided::TooManyReferences);
    }
    let waiting = match weigh(&standings) {
        Weighed::Unowned => return Verdict::Unowned,
        Weighed::Kept { drop } => return Verdict::Kept { drop },
        Weighed::Undecided(cause) => return Verdict::Undecided(cause),
        Weighed::Collectable { waiting } => waiting,
    };
    let collection = collection(graph, coverage, id, waiting);
    if own_hold(graph, node).is_some() { Verdict::Held(collection) } else { Verdict::Collectable(collection) }
}

/// The combined result of the references of a live object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Weighed {
    Unowned,
    /// As [`Verdict::Kept`].
    Kept {
        drop: Vec<usize>,
    },
    Undecided(Undecided),
    /// As [`Collection::waiting`].
    Collectable {
        waiting: Vec<usize>,
    },
}

/// Weighs the standings of all references of a live object.
pub(crate) fn weigh(standings: &[Standing]) -> Weighed {
    let at = |wanted: &[Standing]| -> Vec<usize> { places(standings, |standing| wanted.contains(&standing)) };
    if standings.is_empty() {
        return Weighed::Unowned;
    }
    if standings.contains(&Standing::InvalidScope) {
        return Weighed::Kept { drop: at(&[Standing::Orphaning]) };
    }
    // An orphaned reference is removed together with the dangling ones. Otherwise the dangling ones would decide alone
    // about the object.
    let asked = Standing::Unverified(Undecided::OwnerUnverified);
    if standings.contains(&Standing::Orphaning) && !standings.contains(&Standing::Solid) && standings.contains(&asked) {
        return Weighed::Undecided(Undecided::OwnerUnverified);
    }
    if standings.iter().any(|standing| matches!(standing, Standing::Solid | Standing::Orphaning)) {
        return Weighed::Kept { drop: at(&[Standing::Dangling, Standing::Waiting, Standing::Orphaning]) };
    }
    let unverified = standings.iter().find_map(|standing| match standing {
        Standing::Unverified(cause) => Some(*cause),
        Standing::Solid | Standing::Dangling | Standing::Waiting | Standing::Orphaning | Standing::InvalidScope => None,
    });
    if let Some(cause) = unverified {
        return Weighed::Undecided(cause);
    }
    Weighed::Collectable { waiting: at(&[Standing::Waiting]) }
}

/// The object's own hold: the hold annotation, or an invalid reference if the policy holds those.
pub(crate) fn own_hold(graph: &Graph, node: Node<'_>) -> Option<Hold> {
    if node.is_held() {
        return Some(Hold::Annotation);
    }
    let is_invalid = graph.holds_invalid() && node.owners().any(|owner| graph.holds_as_invalid(graph.node(owner)));
    is_invalid.then_some(Hold::InvalidReference)
}

/// The standing of each reference of a node, in order.
pub(crate) fn standings(graph: &Graph, coverage: &Coverage, node: Node<'_>) -> Vec<Standing> {
    let dependent = (node.kind(), &**node.namespace());
    node.owners().map(|owner| standing(graph, coverage, dependent, graph.node(owner))).collect()
}

/// The owners in such a standing, in the order of the references.
pub(crate) fn owners_in(graph: &Graph, coverage: &Coverage, id: NodeId, is: impl Fn(Standing) -> bool) -> Vec<NodeId> {
    let node = graph.node(id);
    let owners = node.owners().zip(standings(graph, coverage, node));
    owners.filter(|(_, standing)| is(*standing)).map(|(owner, _)| owner).collect()
}

/// The standing of one reference of a dependent of this kind, in this namespace.
pub(crate) fn standing(graph: &Graph, coverage: &Coverage, dependent: (KindId, &str), owner: Node<'_>) -> Standing {
    let kind = coverage.kind(owner.kind());
    if dependent.1.is_empty() && kind.namespaced() == Some(true) {
        return Standing::InvalidScope;
    }
    let known = owner.known();
    match known {
        Known::Observed if owner.list().is_some_and(|list| kind.is_lost(list)) => {
            return Standing::Unverified(Undecided::CollectionUnsynced);
        }
        Known::Absent(_) if graph.is_orphaned(owner) => return Standing::Orphaning,
        // The owner may be in a resource that the reference does not name.
        Known::Absent(_) | Known::Virtual { .. } if kind.is_ambiguous() && !graph.is_orphaned(owner) => {
            return Standing::Unverified(Undecided::OwnerKindUnresolved);
        }
        // The object may come from a server that is ahead of the one whose list lacks the owner.
        Known::Absent(Proof::Listed { .. }) if coverage.kind(dependent.0).is_unplaced() => {
            return Standing::Unverified(Undecided::OwnerUnverified);
        }
        Known::Absent(_) => return Standing::Dangling,
        Known::Observed | Known::Read { .. } | Known::Virtual { .. } => {}
    }
    if kind.served().is_none() {
        // Another group has shown this owner. This group may show the owner when the group is served again.
        let orphaned = matches!(known, Known::Virtual { .. }) && graph.is_orphaned(owner);
        return if orphaned { Standing::Orphaning } else { Standing::Unverified(Undecided::OwnerKindUnresolved) };
    }
    match known {
        Known::Observed | Known::Read { .. } if owner.orphans_dependents() => Standing::Orphaning,
        Known::Observed | Known::Read { .. } if owner.deletes_dependents() => Standing::Waiting,
        Known::Observed | Known::Read { .. } => Standing::Solid,
        _ if graph.is_orphaned(owner) => Standing::Orphaning,
        _ if kind.state() == State::Listing => Standing::Unverified(Undecided::CollectionUnsynced),
        Known::Virtual { unreadable: true } => Standing::Unverified(Undecided::OwnerUnreadable),
        Known::Virtual { unreadable: false } | Known::Absent(_) => Standing::Unverified(Undecided::OwnerUnverified),
    }
}

fn collection(graph: &Graph, coverage: &Coverage, id: NodeId, waiting: Vec<usize>) -> Collection {
    let node = graph.node(id);
    if !waiting.is_empty() && graph.dependent_count(coverage, id) > 0 {
        let mut budget = LOOKED_AT_MAX;
        // The owner's foreground deletion waits, directly or indirectly, for this object, which in turn waits for the
        // owner. Until the last member of this cycle is terminating, nothing is stuck: the deletion proceeds along the
        // cycle.
        let mut in_cycle =
            |reference: Reference<'_>| reference.blocks() && leads_back(graph, reference.owner(), id, &mut budget);
        let unblock = node.references().enumerate().filter(|&(_, reference)| in_cycle(reference));
        let unblock = unblock.map(|(slot, _)| slot).collect();
        return Collection { propagation_policy: PropagationPolicy::Foreground, waiting, unblock };
    }
    let propagation_policy = if node.has_finalizer(crate::object::ORPHAN_FINALIZER) {
        PropagationPolicy::Orphan
    } else if node.has_finalizer(crate::object::FOREGROUND_FINALIZER) {
        PropagationPolicy::Foreground
    } else {
        PropagationPolicy::Background
    };
    Collection { propagation_policy, waiting, unblock: Vec::new() }
}

/// In a cycle whose members are all in foreground deletion, each member waits for the next one. Returns the indices of
/// this member's blocking references to unblock. Every such cycle has at least one, because uids cannot decrease all
/// the way around.
fn deadlocked(graph: &Graph, id: NodeId) -> Vec<usize> {
    let node = graph.node(id);
    let uid = node.uid();
    let stands_still = |reference: Reference<'_>| {
        reference.blocks() && graph.are_knotted(id, reference.owner()) && uid <= graph.node(reference.owner()).uid()
    };
    let still = node.references().enumerate().filter(|&(_, reference)| stands_still(reference));
    still.map(|(slot, _)| slot).collect()
}

/// Whether `of` is reachable from `from` along blocking references. The last reference must be that of a node in
/// foreground deletion that depends on `of`; without such a node the search ends at once. The search starts at both
/// ends and takes turns, so that neither a long chain nor many dependents are expensive. It gives up after `budget`
/// nodes. A missed cycle is found once all of its members are in foreground deletion.
fn leads_back(graph: &Graph, from: NodeId, of: NodeId, budget: &mut usize) -> bool {
    let waits = |id: NodeId| graph.node(id).deletes_dependents();
    let mut below = graph.node(of).dependents();
    let mut any_waits = false;
    let mut seen = BTreeSet::from([from]);
    let mut open = alloc::vec![from];
    while let Some(id) = open.pop() {
        if !any_waits {
            let Some(dependent) = below.next() else { return false };
            any_waits = waits(dependent);
        }
        let node = graph.node(id);
        for next in node.references().filter(|reference| reference.blocks()).map(Reference::owner) {
            if next == of && node.deletes_dependents() {
                return true;
            }
            let Some(left) = budget.checked_sub(1) else { return false };
            *budget = left;
            if seen.insert(next) {
                open.push(next);
            }
        }
    }
    false
}

fn places(standings: &[Standing], wanted: impl Fn(Standing) -> bool) -> Vec<usize> {
    standings.iter().enumerate().filter(|&(_, &standing)| wanted(standing)).map(|(at, _)| at).collect()
}
