//! The cases in which our end differs from upstream's on purpose. In each of them, our end is the safer one.

use super::end::{End, Held, Owner, State};
use super::standing::{Standing, owner_at, standing};
use super::world::{Flaw, Program, Slot, UNSERVED_VERSION};
use std::collections::{BTreeMap, BTreeSet};

/// One object whose ends differ.
#[derive(Debug)]
pub(super) struct Case<'a> {
    pub(super) program: &'a Program,
    pub(super) slot: Slot,
    pub(super) ours: &'a End,
    pub(super) upstream: &'a End,
    /// The objects whose difference is already explained.
    pub(super) on_purpose: &'a BTreeMap<Slot, &'static str>,
}

/// One difference on purpose.
#[derive(Debug)]
pub struct Difference {
    pub name: &'static str,
    pub reason: &'static str,
    /// The paragraph of the written semantics.
    pub paragraph: &'static str,
    pub(super) applies: fn(&Case<'_>) -> bool,
}

/// All intended differences. The list has at most ten entries.
pub const DIFFERENCES: &[Difference] = &[
    Difference {
        name: "a good reference survives a bad one with its uid",
        reason: "Upstream removes references by uid. With the bad reference it removes the good one that has the same \
                 uid: the object loses an existing owner, and is never collected. Ours removes only the bad \
                 reference.",
        paragraph: "6.1",
        applies: shares_a_uid,
    },
    Difference {
        name: "other coordinates are another owner",
        reason: "A reference with an owner's uid under another name, kind or namespace does not lead to that owner. A \
                 reference of a cluster-scoped object to a namespaced owner leads nowhere. Upstream judges such a \
                 reference as dangling or invalid. Nevertheless, the reference blocks the owner's foreground \
                 deletion, and upstream removes it when the owner orphans. Upstream may then delete the object for \
                 its other owners. For ours, the reference has nothing to do with that owner.",
        paragraph: "1.4",
        applies: leads_elsewhere,
    },
    Difference {
        name: "what an owner orphans stays",
        reason: "Ours remembers an orphaning owner until every collection has shown what existed at that time. A \
                 dependent that shows up late, or whose other owners are gone, loses the reference and stays. With \
                 upstream, the faster request decides.",
        paragraph: "5",
        applies: orphaned_and_kept,
    },
    Difference {
        name: "an unverifiable owner beside a solid one",
        reason: "Upstream gives up on an object with an owner of an unserved kind, even if another owner keeps the \
                 object. References to absent owners stay, and owners in foreground deletion wait for the object \
                 forever.",
        paragraph: "4.2 D7",
        applies: beside_an_unverifiable,
    },
    Difference {
        name: "a cycle of foreground deletions comes to an end",
        reason: "Upstream unblocks a cycle only from a member that is not in deletion yet. Objects in foreground \
                 deletion that block each other, or an object that blocks itself, wait forever. Ours unblocks the \
                 reference that closes the cycle.",
        paragraph: "4.6",
        applies: cycle_ends,
    },
    Difference {
        name: "only a real cycle is unblocked",
        reason: "Upstream takes every dependent in foreground deletion for a sign of a cycle. It then rewrites the \
                 flags of all references of the object, so that no other owner waits for the object any more. This \
                 write makes upstream's own deletion of the object fail. When upstream tries again, the owner may be \
                 gone, and the object goes in background instead of in foreground. Ours follows the references.",
        paragraph: "4.2 D9",
        applies: unblocked_in_vain,
    },
    Difference {
        name: "an unserved version of a served kind",
        reason: "Ours finds an owner by group, kind and uid, whatever version the reference names, as long as the \
                 server serves any version of the kind. Upstream finds no resource for the version, and gives up on \
                 the object. The object stays forever when its owner is gone, and blocks its owner's foreground \
                 deletion.",
        paragraph: "1.4",
        applies: names_an_unserved_version,
    },
    Difference {
        name: "follows from another",
        reason: "The end of an owner or of a blocking dependent differs on purpose, and the end of the object follows \
                 from it.",
        paragraph: "4.2",
        applies: follows,
    },
];

impl Case<'_> {
    fn both(&self) -> Option<(&State, &State)> {
        Some((self.ours.get(&self.slot)?, self.upstream.get(&self.slot)?))
    }

    /// Returns the owners to which the program gave this object a reference.
    fn owners(&self) -> impl Iterator<Item = Slot> {
        self.program.references_of(self.slot).map(|reference| reference.owner)
    }
}

/// Returns whether an object exists and is not in deletion.
fn is_alive(end: &End, slot: Slot) -> bool {
    end.get(&slot).is_some_and(|state| !state.terminating)
}

/// Returns whether two states of one object are equal except for some references.
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
    case.owners().filter(|&owner| names_twice(case.program, case.slot, owner)).any(|owner| match case.both() {
        Some((ours, upstream)) if ours.terminating == upstream.terminating => {
            same_but_for(ours, upstream, |reference| leads_to(reference, owner))
        }
        // The owner is gone at the end.
        Some(_) | None => {
            let has_lost = |state: &State| state.references.iter().all(|reference| !leads_to(reference, owner));
            !is_alive(case.ours, case.slot)
                && !is_alive(case.ours, owner)
                && case.upstream.get(&case.slot).is_some_and(has_lost)
        }
    })
}

/// Returns whether the program gives the object a good and a bad reference with this owner's uid.
fn names_twice(program: &Program, slot: Slot, owner: Slot) -> bool {
    let flaws: Vec<Flaw> = program
        .references_of(slot)
        .filter(|reference| reference.owner == owner)
        .map(|reference| reference.flaw)
        .collect();
    flaws.contains(&Flaw::None) && flaws.into_iter().any(|flaw| matches!(flaw, Flaw::WrongName | Flaw::WrongKind(_)))
}

fn leads_elsewhere(case: &Case<'_>) -> bool {
    // The reference has the uid of an object, and its other fields do not name this object.
    let elsewhere = |end: &End, dependent: Slot, reference: &Held| {
        matches!(reference.owner, Owner::Slot(owner, at) if end.get(&owner).is_none_or(|state| state.incarnation == at))
            && owner_at(case.program, end, dependent, reference).is_none()
    };
    let orphaned = |reference: &Held| match reference.owner {
        Owner::Slot(owner, _) => case.program.orphans_dependents_of(owner),
        Owner::Unknown(_) => false,
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
    let held = |end: &End| end.get(&case.slot).is_some_and(State::waits);
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

fn names_an_unserved_version(case: &Case<'_>) -> bool {
    let is_unserved = |reference: &Held| reference.api_version.rsplit('/').next() == Some(UNSERVED_VERSION);
    case.upstream.get(&case.slot).is_some_and(|state| !state.terminating && state.references.iter().any(is_unserved))
}

fn cycle_ends(case: &Case<'_>) -> bool {
    let Some(upstream) = case.upstream.get(&case.slot).filter(|state| state.waits()) else { return false };
    let is_closing = |reference: &&Held| reference.blocking == Some(true) && closes_cycle(case, reference);
    let mut closing = upstream.references.iter().filter(is_closing);
    match case.ours.get(&case.slot).filter(|state| state.waits()) {
        None => closing.next().is_some(),
        // Another object blocks it too.
        Some(ours) => {
            let unblocked: Vec<Held> =
                closing.map(|reference| Held { blocking: Some(false), ..reference.clone() }).collect();
            let is_of_cycle =
                |reference: &Held| unblocked.contains(&Held { blocking: Some(false), ..reference.clone() });
            ours.references.iter().any(|reference| unblocked.contains(reference))
                && ours.references.len() == upstream.references.len()
                && same_but_for(ours, upstream, is_of_cycle)
        }
    }
}

/// Returns whether this reference closes a cycle of blocking references in upstream's end. The search goes upwards from
/// the owner, through waiting objects only.
fn closes_cycle(case: &Case<'_>, reference: &Held) -> bool {
    let owner = |slot, reference| owner_at(case.program, case.upstream, slot, reference).map(|(owner, _)| owner);
    let mut open: Vec<Slot> = owner(case.slot, reference).into_iter().collect();
    let mut seen: BTreeSet<Slot> = open.iter().copied().collect();
    while let Some(slot) = open.pop() {
        if slot == case.slot {
            return true;
        }
        let Some(state) = case.upstream.get(&slot).filter(|state| state.waits()) else { continue };
        let blocking = state.references.iter().filter(|reference| reference.blocking == Some(true));
        open.extend(blocking.filter_map(|reference| owner(slot, reference)).filter(|&owner| seen.insert(owner)));
    }
    false
}

fn unblocked_in_vain(case: &Case<'_>) -> bool {
    let Some((ours, upstream)) = case.both() else { return false };
    let unflagged = |reference: &Held| Held { blocking: None, ..reference.clone() };
    let rewritten = |reference: &Held| {
        let flag = |ours: &&Held| unflagged(ours) == unflagged(reference) && ours.blocking != Some(false);
        reference.blocking == Some(false) && ours.references.iter().any(|ours| flag(&ours))
    };
    ours.terminating == upstream.terminating && upstream.references.iter().any(rewritten)
}

fn follows(case: &Case<'_>) -> bool {
    let on_purpose = |slot: Slot| case.on_purpose.contains_key(&slot);
    let (ours, upstream) = (is_alive(case.ours, case.slot), is_alive(case.upstream, case.slot));
    if ours != upstream {
        // The object depends on an owner that waits in one of the two ends.
        let is_left = |end: &End, owner: Slot| !is_alive(end, case.slot) && end.get(&owner).is_some_and(State::waits);
        let waits_in_one = |owner: Slot| is_left(case.ours, owner) != is_left(case.upstream, owner);
        if case.owners().any(|owner| on_purpose(owner) && waits_in_one(owner)) {
            return true;
        }
        // The object has the same fate as its owner in both ends. A dependent that is in deletion and held also holds
        // its owner.
        return case.owners().filter(|&owner| on_purpose(owner)).any(|owner| {
            let is_there = |end: &End| end.contains_key(&owner);
            (is_alive(case.ours, owner), is_alive(case.upstream, owner)) == (ours, upstream)
                || (is_there(case.ours), is_there(case.upstream)) == (ours, upstream)
        });
    }
    if ours {
        let explained = |reference: &Held| matches!(reference.owner, Owner::Slot(owner, _) if on_purpose(owner));
        return case.both().is_some_and(|(ours, upstream)| same_but_for(ours, upstream, explained));
    }
    // The object is in deletion or gone in both ends. In one end it waits for a dependent, and in the other it does
    // not.
    [case.ours, case.upstream].into_iter().any(|end| {
        end.get(&case.slot).is_some_and(State::waits)
            && end.iter().any(|(&dependent, state)| {
                on_purpose(dependent) && state.references.iter().any(|reference| leads_to(reference, case.slot))
            })
    })
}
