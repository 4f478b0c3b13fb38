//! The standing of references.

use super::end::{End, Held, Owner, State};
use super::world::{Kind, Program, Slot, group_of};

/// The standing of a reference, by the true state of the objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    Solid,
    Waiting,
    Orphaning,
    Dangling,
    /// The reference names a kind that the test does not have.
    Unverified,
    /// The object is cluster-scoped, and its owner is namespaced.
    InvalidScope,
}

/// Returns the standing of a reference. It looks a namespaced owner up in the namespace of the dependent.
pub(super) fn standing(program: &Program, end: &End, slot: Slot, reference: &Held) -> Standing {
    let known = |kind: &Kind| is_of_kind(reference, *kind);
    let Some(kind) = Kind::ALL.into_iter().find(known) else { return Standing::Unverified };
    let namespace = &program.objects[slot].namespace;
    if kind.is_namespaced() && namespace.is_none() {
        return Standing::InvalidScope;
    }
    match owner_at(program, end, slot, reference) {
        None => Standing::Dangling,
        Some((_, owner)) if !owner.terminating => Standing::Solid,
        Some((_, owner)) if owner.waits() => Standing::Waiting,
        Some((_, owner)) if owner.orphans() => Standing::Orphaning,
        Some(_) => Standing::Solid,
    }
}

/// Returns whether a reference names this kind. The version is without effect: group, kind and uid identify an owner.
fn is_of_kind(reference: &Held, kind: Kind) -> bool {
    kind.name() == reference.kind && kind.group() == group_of(&reference.api_version)
}

/// Returns the owner that matches the whole reference: uid, kind, name and namespace.
pub(super) fn owner_at<'a>(program: &Program, end: &'a End, slot: Slot, reference: &Held) -> Option<(Slot, &'a State)> {
    let Owner::Slot(owner, incarnation) = reference.owner else { return None };
    let object = &program.objects[owner];
    let state = end.get(&owner)?;
    let right = is_of_kind(reference, object.kind)
        && object.name == reference.name
        && (object.namespace.is_none() || object.namespace == program.objects[slot].namespace)
        && state.incarnation == incarnation;
    right.then_some((owner, state))
}
