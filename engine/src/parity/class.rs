//! The meaning of a change for the two collectors, and the classes of disagreements.

use crate::verdict::{Standing, Weighed, weigh};
use crate::view::Undecided;
use crate::words::words;
use crate::work::ActionKind;
use alloc::vec::Vec;

#[cfg(test)]
mod tests;

/// The number of classes.
pub const CLASSES: usize = Class::ALL.len();

words! {
    /// A kind of disagreement.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Outcome {
        /// Decided, and not happened within the wait.
        OursOnly = "ours_only",
        /// Happened, and not decided.
        TheirsOnly = "theirs_only",
    }
}

words! {
    /// The reason of a disagreement. `docs/design/upstream.md` lists the intended differences.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Class {
        /// No other class explains it: one of the two collectors is wrong.
        Unknown = "unknown",
        /// The two collectors saw the facts at different times, or the facts as of the change did not become known.
        Timing = "timing",
        /// The API server refused the request of the other collector.
        Refused = "refused",
        /// Intended: a guard, an annotation or an invalid reference holds the object.
        Held = "held",
        /// Intended: the other collector believes any 404 of an owner, and this one wants a proof.
        Unproven = "unproven",
        /// Intended: an owner orphans the object. The object stays, and only loses references.
        Orphaned = "orphaned",
        /// Intended: a dangling reference is removed although another reference is unverified.
        DroppedReference = "dropped_reference",
        /// Intended: only blocking references inside a real cycle are unblocked.
        Cycle = "cycle",
        /// Intended: a reference names its owner by a version that the API server does not serve, and the other
        /// collector gives up on the object.
        OtherVersion = "other_version",
        /// Intended: a reference has the uid of an owner under another name, kind, namespace or scope, and the other
        /// collector takes it for a reference to that owner.
        OtherCoordinates = "other_coordinates",
        /// Intended: the last change of the object is newer than the end of its owners. The other collector judges an
        /// object when an owner changes.
        OwnChange = "own_change",
        /// Intended: the object has more than 64 references, and the comparison reads 64.
        TooManyReferences = "too_many_references",
        /// Intended: the object and its owners have not changed since the comparison began. The other collector judged
        /// them before.
        Earlier = "earlier",
    }
}

impl Class {
    /// Whether a difference by design explains the disagreement.
    pub fn is_intended(self) -> bool {
        !matches!(self, Class::Unknown | Class::Timing | Class::Refused)
    }
}

/// Who made a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Actor {
    /// The audit log does not say.
    Unknown,
    Collector,
    Other,
}

/// The result of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Finding {
    Agreed,
    TheirsOnly(Class),
    Unattributed,
}

/// A change with the facts as of its version.
#[derive(Debug)]
pub(crate) struct Case<'a> {
    pub(crate) action: ActionKind,
    pub(crate) actor: Actor,
    pub(crate) decided: Option<ActionKind>,
    /// The change carries the decision out.
    pub(crate) follows: bool,
    /// The decision was made too early: it removes the finalizer of an owner with dependents to wait for.
    pub(crate) is_premature: bool,
    /// The decision is of the same kind, but orphans the dependents of the object where the change does not, or the
    /// reverse.
    pub(crate) differs: bool,
    /// A collector orphans the dependents of the object as the change does.
    pub(crate) is_by_rule: bool,
    pub(crate) was_undecided: bool,
    pub(crate) was_held: bool,
    pub(crate) was_terminating: bool,
    /// The standing of each reference as of the change, and whether the change removes the reference.
    pub(crate) owners: &'a [(Standing, bool)],
    /// The standings were others when the change was seen.
    pub(crate) facts_came: bool,
    /// The decision is so young that the other collector may have acted on the facts before it.
    pub(crate) is_young: bool,
    /// Another change removed references of the object shortly before.
    pub(crate) shed_before: bool,
    /// Another change added references to the object shortly before.
    pub(crate) grown_before: bool,
    /// A deletion made the change, and another deletion of the object came shortly before.
    pub(crate) is_second_deletion: bool,
    /// At least one owner lives, and each of them stopped to wait for its dependents shortly before.
    pub(crate) waited_before: bool,
    /// The change removes a reference with the uid of an owner under other coordinates, or in another scope.
    pub(crate) other_coordinates: bool,
    /// Dependents of the changed object still have their references.
    pub(crate) has_dependents: bool,
    /// One of them is older than the last change of the object before.
    pub(crate) has_old_dependents: bool,
    pub(crate) too_many: bool,
}

impl Case<'_> {
    /// Judges the change.
    pub(crate) fn finding(&self) -> Finding {
        if self.actor == Actor::Other {
            return Finding::Unattributed;
        }
        if self.too_many {
            return Finding::TheirsOnly(Class::TooManyReferences);
        }
        if self.follows {
            return if self.is_premature { Finding::TheirsOnly(Class::Unknown) } else { Finding::Agreed };
        }
        match self.by_standings() {
            Finding::Agreed if self.was_held => Finding::TheirsOnly(Class::Held),
            finding @ (Finding::Agreed | Finding::TheirsOnly(_) | Finding::Unattributed) => finding,
        }
    }

    /// Judges a change that carries no decision out.
    fn by_standings(&self) -> Finding {
        match self.action {
            ActionKind::UnblockOwnerReferences => Finding::TheirsOnly(Class::Cycle),
            ActionKind::RemoveFinalizer if self.differs => Finding::TheirsOnly(Class::Unknown),
            ActionKind::RemoveFinalizer if !self.has_dependents => Finding::Agreed,
            ActionKind::RemoveFinalizer if self.actor == Actor::Unknown => Finding::Unattributed,
            ActionKind::RemoveFinalizer if self.has_old_dependents && !self.was_collectable() => {
                Finding::TheirsOnly(Class::Unknown)
            }
            ActionKind::RemoveFinalizer => Finding::TheirsOnly(Class::Timing),
            ActionKind::Delete => self.deletion(),
            ActionKind::RemoveOwnerReferences => {
                let is_of_living =
                    self.owners.iter().any(|&(standing, removed)| removed && standing == Standing::Solid);
                let by_uid = self.other_coordinates && (self.actor == Actor::Collector || !is_of_living);
                match self.removal() {
                    Finding::TheirsOnly(_) | Finding::Unattributed if by_uid => {
                        Finding::TheirsOnly(Class::OtherCoordinates)
                    }
                    finding @ (Finding::Agreed | Finding::TheirsOnly(_) | Finding::Unattributed) => finding,
                }
            }
        }
    }

    fn standings(&self) -> Vec<Standing> {
        self.owners.iter().map(|&(standing, _)| standing).collect()
    }

    /// Whether a collector may have decided to delete the object before its deletion began. It deletes in background
    /// then, which removes finalizers.
    fn was_collectable(&self) -> bool {
        self.is_second_deletion && matches!(weigh(&self.standings()), Weighed::Collectable { .. })
    }

    fn deletion(&self) -> Finding {
        let standings = self.standings();
        let is_any = |wanted: Standing| standings.contains(&wanted);
        match weigh(&standings) {
            Weighed::Collectable { .. } if !self.is_by_rule => self.by_facts(),
            Weighed::Collectable { .. } if self.differs => Finding::TheirsOnly(Class::Unknown),
            Weighed::Collectable { .. } => self.same(),
            Weighed::Undecided(cause) => self.unsettled(cause),
            Weighed::Kept { .. } if is_any(Standing::Orphaning) && !is_any(Standing::Solid) => {
                Finding::TheirsOnly(Class::Orphaned)
            }
            Weighed::Kept { .. } if self.waited_before && !is_kept_otherwise(&standings) => {
                Finding::TheirsOnly(Class::Timing)
            }
            Weighed::Kept { .. } | Weighed::Unowned => self.by_facts(),
        }
    }

    fn removal(&self) -> Finding {
        let standings = self.standings();
        let removed = || (0..self.owners.len()).filter(|&at| self.owners[at].1);
        if removed().any(|at| matches!(standings[at], Standing::Solid | Standing::InvalidScope)) {
            return self.by_facts();
        }
        if self.was_terminating {
            let is_orphaned = |at: usize| standings[at] == Standing::Orphaning;
            // The collector may have acted on the object as it was before its deletion mark.
            let is_early = self.actor == Actor::Collector
                && matches!(weigh(&standings), Weighed::Kept { drop } if removed().all(|at| drop.contains(&at)));
            return match removed().all(is_orphaned) {
                true => self.same(),
                false if is_early => Finding::Agreed,
                false => self.by_facts(),
            };
        }
        match weigh(&standings) {
            Weighed::Undecided(cause) => self.unsettled(cause),
            Weighed::Collectable { .. } => {
                // A collector that sees one of the other owners alive removes the reference. Their ends are behind the
                // decision here.
                let any_ended = self.owners.iter().any(|&(standing, removed)| !removed && standing != Standing::Solid);
                let came = self.decided.is_none() && (self.facts_came || self.was_undecided);
                match came || self.is_young {
                    true if any_ended => Finding::Agreed,
                    // No reference is left. A collector deletes an object rather than to take its last reference, so it
                    // acted on a state with more of them.
                    true if self.shed_before => Finding::TheirsOnly(Class::Timing),
                    _ => self.another(),
                }
            }
            Weighed::Kept { drop } => {
                // The collector may have acted on the object as it was before it got an invalid reference.
                let is_early = || {
                    let valid: Vec<Standing> =
                        standings.iter().copied().filter(|&standing| standing != Standing::InvalidScope).collect();
                    self.grown_before && valid.len() < standings.len() && !matches!(weigh(&valid), Weighed::Unowned)
                };
                if removed().all(|at| drop.contains(&at)) {
                    self.same()
                } else if self.actor == Actor::Collector && is_early() {
                    Finding::TheirsOnly(Class::Timing)
                } else {
                    self.by_facts()
                }
            }
            Weighed::Unowned => self.by_facts(),
        }
    }

    /// A living owner shows that no collector made the change, unless the audit log says that one did.
    fn by_facts(&self) -> Finding {
        match self.actor {
            Actor::Collector => Finding::TheirsOnly(Class::Unknown),
            Actor::Unknown | Actor::Other => Finding::Unattributed,
        }
    }

    /// The facts lead to the same decision. A collector that knew them already had to decide it.
    fn same(&self) -> Finding {
        if self.facts_came || self.was_undecided || self.was_held {
            return Finding::Agreed;
        }
        match self.decided {
            Some(ActionKind::UnblockOwnerReferences) => Finding::TheirsOnly(Class::Cycle),
            _ => Finding::TheirsOnly(Class::Unknown),
        }
    }

    /// The facts lead to another decision.
    fn another(&self) -> Finding {
        let open = self.decided.is_none() && (self.facts_came || self.was_undecided);
        Finding::TheirsOnly(if open { Class::Timing } else { Class::Unknown })
    }

    /// The facts as of the change did not become known.
    fn unsettled(&self, cause: Undecided) -> Finding {
        match (cause, self.actor) {
            (Undecided::OwnerKindUnresolved, Actor::Unknown) => Finding::Unattributed,
            (Undecided::OwnerKindUnresolved, _) => Finding::TheirsOnly(Class::Unproven),
            _ => Finding::TheirsOnly(Class::Timing),
        }
    }
}

/// Whether an owner keeps the object that does not live.
fn is_kept_otherwise(standings: &[Standing]) -> bool {
    let waiting = |&standing: &Standing| if standing == Standing::Solid { Standing::Waiting } else { standing };
    let before: Vec<Standing> = standings.iter().map(waiting).collect();
    matches!(weigh(&before), Weighed::Kept { .. } | Weighed::Unowned)
}
