//! The one judge: what is garbage, and what an owner in deletion waits for.
//!
//! No state, no time, no effects: the same facts give the same verdict, in whatever order they arrived.

use crate::coverage::{Coverage, State};
use crate::evidence::Proof;
use crate::graph::{Graph, Known, Node, NodeId, Reference};
use crate::view::Undecided;
use crate::work::PropagationPolicy;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

#[cfg(test)]
mod tests;

/// Most references that are gone along to find out whether an object that is to go is in a cycle.
const LOOKED_AT_MAX: usize = 1000;

/// What one reference is worth to the object that has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// The owner is there and does not wait for this object to go.
    Solid,
    /// The owner is proven absent.
    Dangling,
    /// The owner is in foreground deletion.
    Waiting,
    /// The owner is, or was when it went, in orphaning deletion: the reference goes, the object stays.
    Orphaning,
    /// Neither presence nor absence is known.
    Unverified(Undecided),
    /// A cluster-scoped object cannot have a namespaced owner.
    InvalidScope,
}

/// What follows for one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Not in the graph as observed: nothing can be said of it.
    NotObserved,
    /// No reference: never collected.
    Unowned,
    /// Kept; `drop` are the places of references to remove.
    Kept {
        drop: Vec<usize>,
    },
    Undecided(Undecided),
    /// Would be deleted, but carries the hold annotation, or an invalid reference where these are held.
    Held,
    Collectable(Collection),
    /// In deletion, and nothing but foreign finalizers or a grace period to wait for.
    Terminating {
        drop: Vec<usize>,
    },
    /// In foreground deletion: this many blocking references point to it.
    /// `unblock` are the places of references that keep a cycle of such deletions from ending.
    Foreground {
        blocking: usize,
        drop: Vec<usize>,
        unblock: Vec<usize>,
    },
    /// In orphaning deletion: this many references point to it.
    Orphaning {
        dependents: usize,
        drop: Vec<usize>,
    },
}

/// How an object is to be deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Collection {
    pub(crate) propagation_policy: PropagationPolicy,
    /// Places of references to waiting owners: the decision rests on their waiting.
    pub(crate) waiting: Vec<usize>,
    /// Places of blocking references inside a cycle, to be unblocked first.
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
    let at = |wanted: &[Standing]| -> Vec<usize> { places(&standings, |standing| wanted.contains(&standing)) };
    if node.is_terminating() {
        let drop = at(&[Standing::Orphaning]);
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
    if standings.is_empty() {
        return Verdict::Unowned;
    }
    if standings.contains(&Standing::InvalidScope) {
        return Verdict::Kept { drop: at(&[Standing::Orphaning]) };
    }
    // An orphaned reference goes together with the dead ones: alone, it would leave the object to them.
    let asked = Standing::Unverified(Undecided::OwnerUnverified);
    if standings.contains(&Standing::Orphaning) && !standings.contains(&Standing::Solid) && standings.contains(&asked) {
        return Verdict::Undecided(Undecided::OwnerUnverified);
    }
    if standings.iter().any(|standing| matches!(standing, Standing::Solid | Standing::Orphaning)) {
        return Verdict::Kept { drop: at(&[Standing::Dangling, Standing::Waiting, Standing::Orphaning]) };
    }
    let unverified = standings.iter().find_map(|standing| match standing {
        Standing::Unverified(cause) => Some(*cause),
        Standing::Solid | Standing::Dangling | Standing::Waiting | Standing::Orphaning | Standing::InvalidScope => None,
    });
    if let Some(cause) = unverified {
        return Verdict::Undecided(cause);
    }
    if node.is_held() || node.owners().any(|owner| graph.holds_as_invalid(graph.node(owner))) {
        return Verdict::Held;
    }
    Verdict::Collectable(collection(graph, coverage, id, at(&[Standing::Waiting])))
}

/// The standing of every reference of a node, in order.
pub(crate) fn standings(graph: &Graph, coverage: &Coverage, node: Node<'_>) -> Vec<Standing> {
    node.owners().map(|owner| standing(graph, coverage, node, graph.node(owner))).collect()
}

fn standing(graph: &Graph, coverage: &Coverage, dependent: Node<'_>, owner: Node<'_>) -> Standing {
    let kind = coverage.kind(owner.kind());
    if dependent.namespace().is_empty() && kind.namespaced() == Some(true) {
        return Standing::InvalidScope;
    }
    let known = owner.known();
    match known {
        Known::Observed if owner.list().is_some_and(|list| kind.is_lost(list)) => {
            return Standing::Unverified(Undecided::CollectionUnsynced);
        }
        Known::Absent(_) if graph.is_orphaned(owner) => return Standing::Orphaning,
        // It may be in a resource that the reference does not lead to.
        Known::Absent(_) | Known::Virtual { .. } if kind.ambiguous && !graph.is_orphaned(owner) => {
            return Standing::Unverified(Undecided::OwnerKindUnresolved);
        }
        // The object may come from a server that is ahead of the one whose list lacks the owner.
        Known::Absent(Proof::Listed { .. }) if coverage.kind(dependent.kind()).unplaced => {
            return Standing::Unverified(Undecided::OwnerUnverified);
        }
        Known::Absent(_) => return Standing::Dangling,
        Known::Observed | Known::Read { .. } | Known::Virtual { .. } => {}
    }
    let Some(served) = &kind.served else {
        // Another group has shown this owner, and this one may show it again once it is served.
        let orphaned = matches!(known, Known::Virtual { .. }) && graph.is_orphaned(owner);
        return if orphaned { Standing::Orphaning } else { Standing::Unverified(Undecided::OwnerKindUnresolved) };
    };
    match known {
        Known::Observed | Known::Read { .. } if owner.orphans_dependents() => Standing::Orphaning,
        Known::Observed | Known::Read { .. } if owner.deletes_dependents() => Standing::Waiting,
        Known::Observed | Known::Read { .. } => Standing::Solid,
        _ if graph.is_orphaned(owner) => Standing::Orphaning,
        _ if served.access == crate::object::Access::Watched && kind.state == State::Listing => {
            Standing::Unverified(Undecided::CollectionUnsynced)
        }
        Known::Virtual { unreadable: true } => Standing::Unverified(Undecided::OwnerUnreadable),
        Known::Virtual { unreadable: false } | Known::Absent(_) => Standing::Unverified(Undecided::OwnerUnverified),
    }
}

fn collection(graph: &Graph, coverage: &Coverage, id: NodeId, waiting: Vec<usize>) -> Collection {
    let node = graph.node(id);
    if !waiting.is_empty() && graph.dependent_count(coverage, id) > 0 {
        let mut budget = LOOKED_AT_MAX;
        // The owner's foreground deletion waits, directly or through others, for this object, which in turn waits for it. Before the last of
        // them is in deletion, nothing stands still: the deletion goes round the cycle and comes there.
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

/// In a cycle whose members are all in foreground deletion, each waits for the next for ever. Places of the blocking references of
/// such a member to be unblocked: of every such cycle at least one, because its uids cannot fall all the way round.
fn deadlocked(graph: &Graph, id: NodeId) -> Vec<usize> {
    let node = graph.node(id);
    let uid = node.uid();
    let stands_still = |reference: Reference<'_>| {
        reference.blocks() && graph.are_knotted(id, reference.owner()) && uid <= graph.node(reference.owner()).uid()
    };
    let still = node.references().enumerate().filter(|&(_, reference)| stands_still(reference));
    still.map(|(slot, _)| slot).collect()
}

/// Whether `of` is reached from `from` along blocking references, the last one that of a node in foreground deletion. That one is a dependent
/// of `of`: where none is, there is nothing to be gone through. Both are looked at in turn, so that neither a long way up nor many dependents
/// cost anything. Gives up after `budget` nodes: what is not found there is found once all of the cycle is in foreground deletion.
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
