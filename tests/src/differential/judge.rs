//! Compares ends, and says whether an end leaves anything to do.

use super::differences::{Case, DIFFERENCES};
use super::end::{End, Held, Owner, State};
use super::world::{Kind, Program, Slot};
use std::collections::BTreeMap;

/// What the comparison of one seed came to.
#[derive(Clone, Debug)]
pub struct Judgement {
    pub seed: u64,
    /// Upstream's own runs disagree.
    pub racy: bool,
    pub objects: usize,
    /// Differences on purpose, by object.
    pub on_purpose: BTreeMap<Slot, &'static str>,
    /// Objects that end otherwise than in any of upstream's runs, and not on purpose.
    pub different: Vec<Slot>,
    /// Objects of our end that a collector had something left to do about, and what.
    pub unfinished: BTreeMap<Slot, &'static str>,
}

impl Judgement {
    pub fn is_good(&self) -> bool {
        self.different.is_empty() && self.unfinished.is_empty()
    }
}

/// Compares our end with all of upstream's. Each object must end as in one of upstream's runs, so it may be gone only if it was
/// gone in one of them, and where upstream's runs agree there is one end that is right.
pub(super) fn judge(program: &Program, ours: &End, upstream: &[&End]) -> Judgement {
    let slots = 0..program.objects.len();
    let mut different: Vec<Slot> = slots.filter(|slot| !is_permitted(*slot, ours, upstream)).collect();
    let mut on_purpose: BTreeMap<Slot, &'static str> = BTreeMap::new();
    // One difference may follow from another, so this ends when nothing new is explained.
    loop {
        let explained: Vec<(Slot, &'static str)> = different
            .iter()
            .filter_map(|&slot| {
                let explains = |end: &End| {
                    let case = Case { program, slot, ours, upstream: end, on_purpose: &on_purpose };
                    DIFFERENCES.iter().find(|difference| (difference.applies)(&case))
                };
                upstream.iter().find_map(|end| explains(end)).map(|difference| (slot, difference.name))
            })
            .collect();
        if explained.is_empty() {
            break;
        }
        on_purpose.extend(explained);
        different.retain(|slot| !on_purpose.contains_key(slot));
    }
    Judgement {
        seed: program.seed,
        racy: upstream.windows(2).any(|pair| pair[0] != pair[1]),
        objects: program.objects.len(),
        on_purpose,
        different,
        unfinished: unfinished(program, ours),
    }
}

/// Whether the object ended as in one of upstream's runs. One that waits for a foreign finalizer keeps what references it had when it
/// was deleted. If upstream's runs disagree about those, the order in which its owners went decided: then ours may be any between
/// those that all of them kept and those that one of them kept.
fn is_permitted(slot: Slot, ours: &End, upstream: &[&End]) -> bool {
    if upstream.iter().any(|end| end.get(&slot) == ours.get(&slot)) {
        return true;
    }
    let Some(ours) = ours.get(&slot) else { return false };
    let bare = |state: &State| State { references: Vec::new(), ..state.clone() };
    let alike: Vec<&State> =
        upstream.iter().filter_map(|end| end.get(&slot)).filter(|state| bare(state) == bare(ours)).collect();
    let kept_by_all = |reference: &Held| alike.iter().all(|state| state.references.contains(reference));
    let kept_by_one = |reference: &Held| alike.iter().any(|state| state.references.contains(reference));
    ours.terminating
        && alike.windows(2).any(|pair| pair[0] != pair[1])
        && ours.references.iter().all(kept_by_one)
        && alike[0].references.iter().all(|reference| !kept_by_all(reference) || ours.references.contains(reference))
}

/// What a reference is worth, given all there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    Solid,
    Waiting,
    Orphaning,
    Dangling,
    /// Of a kind that nobody knows.
    Unverified,
    /// A namespaced owner of a cluster-scoped object.
    InvalidScope,
}

/// Looks the owner up where the reference says, in the dependent's own namespace.
pub(super) fn standing(program: &Program, end: &End, slot: Slot, reference: &Held) -> Standing {
    let known = |kind: &Kind| kind.name() == reference.kind && kind.api_version() == reference.api_version;
    let Some(kind) = Kind::ALL.into_iter().find(known) else { return Standing::Unverified };
    let namespace = &program.objects[slot].namespace;
    if kind.is_namespaced() && namespace.is_none() {
        return Standing::InvalidScope;
    }
    match owner_at(program, end, slot, reference) {
        None => Standing::Dangling,
        Some((_, owner)) if !owner.terminating => Standing::Solid,
        Some((_, owner)) if owner.has_finalizer("foregroundDeletion") => Standing::Waiting,
        Some((_, owner)) if owner.has_finalizer("orphan") => Standing::Orphaning,
        Some(_) => Standing::Solid,
    }
}

/// The owner that the whole reference leads to: uid, kind, name and namespace.
pub(super) fn owner_at<'a>(program: &Program, end: &'a End, slot: Slot, reference: &Held) -> Option<(Slot, &'a State)> {
    let Owner::Slot(owner, incarnation) = reference.owner else { return None };
    let object = &program.objects[owner];
    let state = end.get(&owner)?;
    let right = object.kind.name() == reference.kind
        && object.kind.api_version() == reference.api_version
        && object.name == reference.name
        && (object.namespace.is_none() || object.namespace == program.objects[slot].namespace)
        && state.incarnation == incarnation;
    right.then_some((owner, state))
}

/// What is left to do in an end that is said to be quiet: the fixpoint of the rules over what is there.
fn unfinished(program: &Program, end: &End) -> BTreeMap<Slot, &'static str> {
    end.iter().filter_map(|(&slot, state)| left_to_do(program, end, slot, state).map(|what| (slot, what))).collect()
}

fn left_to_do(program: &Program, end: &End, slot: Slot, state: &State) -> Option<&'static str> {
    if state.has_finalizer("orphan") && state.terminating {
        return Some("its dependents are not orphaned yet");
    }
    if state.has_finalizer("foregroundDeletion") && state.terminating {
        let blocked = end.iter().any(|(&dependent, held)| {
            held.references.iter().any(|reference| {
                reference.blocking == Some(true)
                    && owner_at(program, end, dependent, reference).is_some_and(|(owner, _)| owner == slot)
            })
        });
        return (!blocked).then_some("nothing blocks its foreground deletion any more");
    }
    if state.terminating || state.references.is_empty() {
        return None;
    }
    let standings: Vec<Standing> =
        state.references.iter().map(|reference| standing(program, end, slot, reference)).collect();
    let any = |wanted: &[Standing]| standings.iter().any(|standing| wanted.contains(standing));
    if any(&[Standing::InvalidScope]) {
        None
    } else if any(&[Standing::Solid, Standing::Orphaning]) {
        any(&[Standing::Dangling, Standing::Waiting, Standing::Orphaning])
            .then_some("it has an owner, and keeps references that should go")
    } else if any(&[Standing::Unverified]) {
        None
    } else {
        Some("no owner of it is left")
    }
}
