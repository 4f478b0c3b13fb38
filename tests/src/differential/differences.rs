//! Where our end may be another than upstream's, on purpose. Each entry is safer than upstream, not merely other.

use super::end::{End, Held, Owner, State};
use super::judge::{Standing, owner_at, standing};
use super::world::{Flaw, Operation, Policy, Program, Slot};
use std::collections::{BTreeMap, BTreeSet};

/// One object whose ends differ.
#[derive(Debug)]
pub(super) struct Case<'a> {
    pub(super) program: &'a Program,
    pub(super) slot: Slot,
    pub(super) ours: &'a End,
    pub(super) upstream: &'a End,
    /// Objects whose difference is explained already.
    pub(super) on_purpose: &'a BTreeMap<Slot, &'static str>,
}

/// One difference on purpose.
#[derive(Debug)]
pub struct Difference {
    pub name: &'static str,
    pub reason: &'static str,
    /// Paragraph of the written semantics.
    pub paragraph: &'static str,
    pub(super) applies: fn(&Case<'_>) -> bool,
}

/// All of them. The list has at most ten entries.
pub const DIFFERENCES: &[Difference] = &[
    Difference {
        name: "a good reference survives a bad one with its uid",
        reason: "Upstream removes references by uid, and with the one that leads nowhere the one that is right: the object \
                 loses an owner that is there, and is never collected. Ours removes the bad one alone.",
        paragraph: "6.1",
        applies: shares_a_uid,
    },
    Difference {
        name: "other coordinates are another owner",
        reason: "A reference with an owner's uid under another name, kind or namespace leads elsewhere, and one of a \
                 cluster-scoped object to a namespaced owner leads nowhere. Upstream lets it block the owner's foreground \
                 deletion and strips it when the owner orphans, and may then delete the object for its other owners, though \
                 it judges the same reference as dangling or invalid. For ours it is no reference to that owner.",
        paragraph: "1.4",
        applies: leads_elsewhere,
    },
    Difference {
        name: "what an owner orphans stays",
        reason: "Ours remembers an owner that was seen orphaning until every collection has shown what existed then, so a \
                 dependent that shows up late, or whose other owners are gone, loses the reference and not its life. With \
                 upstream it depends on which request is faster.",
        paragraph: "5",
        applies: orphaned_and_kept,
    },
    Difference {
        name: "an unverifiable owner beside a solid one",
        reason: "An owner of a kind that is not served makes upstream give up on the object, also where another owner keeps it: \
                 references to absent owners stay, and owners in foreground deletion wait for it for ever.",
        paragraph: "4.2 D7",
        applies: beside_an_unverifiable,
    },
    Difference {
        name: "a late dependent of an owner in foreground deletion is judged at once",
        reason: "Upstream does not look at a reference that names an owner already in foreground deletion until something else \
                 makes it look at that owner. If the owner keeps a foreign finalizer and stops waiting meanwhile, the reference \
                 stays; ours has dropped it, beside another owner, while the owner waited.",
        paragraph: "3.4.1",
        applies: judged_at_once,
    },
    Difference {
        name: "follows from another",
        reason: "An owner ended otherwise on purpose, and what it owns with it; or a dependent that blocks.",
        paragraph: "4.2",
        applies: follows,
    },
];

impl Case<'_> {
    fn both(&self) -> Option<(&State, &State)> {
        Some((self.ours.get(&self.slot)?, self.upstream.get(&self.slot)?))
    }

    /// Owners of which the program gave this object a reference.
    fn owners(&self) -> impl Iterator<Item = Slot> {
        self.program.references_of(self.slot).map(|reference| reference.owner)
    }
}

/// Whether an object is there and stays.
fn is_alive(end: &End, slot: Slot) -> bool {
    end.get(&slot).is_some_and(|state| !state.terminating)
}

/// Whether two states of one object are the same but for some references.
fn same_but_for(ours: &State, upstream: &State, left_out: impl Fn(&Held) -> bool) -> bool {
    let rest = |state: &State| -> Vec<Held> {
        state.references.iter().filter(|reference| !left_out(reference)).cloned().collect()
    };
    let bare = |state: &State| State { references: rest(state), ..state.clone() };
    bare(ours) == bare(upstream)
}

fn leads_to(reference: &Held, slot: Slot) -> bool {
    matches!(reference.owner, Owner::Slot(owner, _) if owner == slot)
}

fn shares_a_uid(case: &Case<'_>) -> bool {
    let lost =
        case.owners().filter(|&owner| names_twice(case.program, case.slot, owner)).any(|owner| match case.both() {
            Some((ours, upstream)) if ours.terminating == upstream.terminating => {
                same_but_for(ours, upstream, |reference| leads_to(reference, owner))
            }
            Some(_) | None => {
                !is_alive(case.ours, case.slot)
                    && case
                        .upstream
                        .get(&case.slot)
                        .is_some_and(|state| state.references.iter().all(|reference| !leads_to(reference, owner)))
            }
        });
    lost || outlived(case)
}

/// Whether the program gives the object a good and a bad reference with this owner's uid.
fn names_twice(program: &Program, slot: Slot, owner: Slot) -> bool {
    let flaws: Vec<Flaw> = program
        .references_of(slot)
        .filter(|reference| reference.owner == owner)
        .map(|reference| reference.flaw)
        .collect();
    flaws.contains(&Flaw::None) && flaws.into_iter().any(|flaw| matches!(flaw, Flaw::WrongName | Flaw::WrongKind(_)))
}

/// Gone with ours and there with upstream, because an owner further up lived longer under upstream for having lost its own owner. The
/// program may have deleted that owner since, so that the ends no longer show it.
fn outlived(case: &Case<'_>) -> bool {
    if case.ours.contains_key(&case.slot) {
        return false;
    }
    let mut above = BTreeSet::from([case.slot]);
    let mut open = vec![case.slot];
    while let Some(slot) = open.pop() {
        for reference in case.program.references_of(slot) {
            if slot != case.slot && names_twice(case.program, slot, reference.owner) {
                return true;
            }
            if above.insert(reference.owner) {
                open.push(reference.owner);
            }
        }
    }
    false
}

fn leads_elsewhere(case: &Case<'_>) -> bool {
    // A reference with the uid of an object that the rest of it does not lead to.
    let elsewhere = |end: &End, dependent: Slot, reference: &Held| {
        matches!(reference.owner, Owner::Slot(owner, at) if end.get(&owner).is_none_or(|state| state.incarnation == at))
            && owner_at(case.program, end, dependent, reference).is_none()
    };
    let orphaned = |reference: &Held| match reference.owner {
        Owner::Slot(owner, _) => case.program.orphans_dependents_of(owner),
        Owner::Nobody(_) => false,
    };
    if let Some((ours, upstream)) = case.both()
        && ours.references.len() > upstream.references.len()
        && same_but_for(ours, upstream, |reference| orphaned(reference) && elsewhere(case.ours, case.slot, reference))
    {
        return true;
    }
    if is_alive(case.ours, case.slot)
        && !is_alive(case.upstream, case.slot)
        && case.ours[&case.slot].references.iter().any(|reference| {
            orphaned(reference) && standing(case.program, case.ours, case.slot, reference) == Standing::InvalidScope
        })
    {
        return true;
    }
    let held = |end: &End| {
        end.get(&case.slot).is_some_and(|state| state.terminating && state.has_finalizer("foregroundDeletion"))
    };
    held(case.upstream)
        && !held(case.ours)
        && case.upstream.iter().any(|(&dependent, state)| {
            state.references.iter().any(|reference| {
                reference.blocking == Some(true)
                    && leads_to(reference, case.slot)
                    && elsewhere(case.upstream, dependent, reference)
            })
        })
}

fn orphaned_and_kept(case: &Case<'_>) -> bool {
    let Some(ours) = case.ours.get(&case.slot).filter(|state| !state.terminating) else { return false };
    !is_alive(case.upstream, case.slot)
        && case.owners().any(|owner| {
            case.program.orphans_dependents_of(owner)
                && ours.references.iter().all(|reference| !leads_to(reference, owner))
        })
}

fn beside_an_unverifiable(case: &Case<'_>) -> bool {
    let Some((ours, upstream)) = case.both() else { return false };
    let standing = |reference: &Held| standing(case.program, case.upstream, case.slot, reference);
    let should_go = |reference: &Held| {
        !ours.references.contains(reference) && matches!(standing(reference), Standing::Dangling | Standing::Waiting)
    };
    upstream.references.iter().any(|reference| standing(reference) == Standing::Unverified)
        && same_but_for(ours, upstream, should_go)
}

fn judged_at_once(case: &Case<'_>) -> bool {
    let named_late = |reference: &Held| {
        let Owner::Slot(owner, _) = reference.owner else { return false };
        let foreground = |operation: &&Operation| matches!(operation, Operation::Delete { slot, policy: Some(Policy::Foreground) } if *slot == owner);
        let mut after = case.program.operations().skip_while(|operation| !foreground(operation));
        // It is on its way out in both ends, and waits for nobody.
        [case.ours, case.upstream].into_iter().all(|end| {
            end.get(&owner).is_none_or(|state| state.terminating && !state.has_finalizer("foregroundDeletion"))
        }) && after.any(|operation| {
            operation.slot() == case.slot && operation.references().iter().any(|reference| reference.owner == owner)
        })
    };
    is_alive(case.ours, case.slot)
        && case.both().is_some_and(|(ours, upstream)| {
            same_but_for(ours, upstream, |reference| !ours.references.contains(reference) && named_late(reference))
        })
}

fn follows(case: &Case<'_>) -> bool {
    let on_purpose = |slot: Slot| case.on_purpose.contains_key(&slot);
    let (ours, upstream) = (is_alive(case.ours, case.slot), is_alive(case.upstream, case.slot));
    if ours != upstream {
        // It fares as its owner does, in both.
        return case.owners().any(|owner| {
            on_purpose(owner) && is_alive(case.ours, owner) == ours && is_alive(case.upstream, owner) == upstream
        });
    }
    if ours {
        let explained = |reference: &Held| matches!(reference.owner, Owner::Slot(owner, _) if on_purpose(owner));
        return case.both().is_some_and(|(ours, upstream)| same_but_for(ours, upstream, explained));
    }
    // On its way out in both, or gone: one of them waits for a dependent that the other does not wait for.
    [case.ours, case.upstream].into_iter().any(|end| {
        end.get(&case.slot).is_some_and(|state| state.has_finalizer("foregroundDeletion"))
            && end.iter().any(|(&dependent, state)| {
                on_purpose(dependent) && state.references.iter().any(|reference| leads_to(reference, case.slot))
            })
    })
}
