//! Owners whose dependents are to lose their reference, not their life: remembered after they are gone.

use super::{Coordinates, Graph, Node};
use crate::object::{Facts, Name, Uid};
use alloc::vec::Vec;

/// The memory of an owner whose dependents are to lose their reference, not their life.
#[derive(Debug)]
pub(super) struct Orphaned {
    at: Coordinates,
    /// Set once the owner is gone: the barrier round after which it may be forgotten.
    round: Option<u64>,
    /// It was seen in a history that the store no longer has. In the present one the owner may be back, and orphan nobody, until it is
    /// proven absent.
    lost: bool,
}

impl Graph {
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

    pub(super) fn note_orphaning(&mut self, uid: &Uid, at: &Coordinates, facts: &Facts) {
        if facts.orphans_dependents() {
            let orphaned = || Orphaned { at: at.clone(), round: None, lost: false };
            self.orphaned.entry(uid.clone()).or_insert_with(orphaned).lost = false;
        } else if !facts.terminating && !self.orphaned.is_empty() {
            // Nobody is called back from deletion: whatever was seen was of a history that the store no longer has.
            self.orphaned.remove(uid);
        }
    }
}
