//! Compares ends. Checks that an end leaves no work undone, and that the writes before it obey the rules.

use super::differences::{Case, DIFFERENCES};
use super::end::{Change, End, Held, Owner, State};
use super::execute::Course;
use super::law;
use super::standing::{Standing, owner_at, standing};
use super::world::{Program, Slot};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// The result of the comparison of one seed.
#[derive(Clone, Debug)]
pub struct Judgement {
    /// Upstream's own runs disagree.
    pub racy: bool,
    pub objects: usize,
    /// Differences on purpose, by object.
    pub on_purpose: BTreeMap<Slot, &'static str>,
    /// Objects whose end differs from those of all of upstream's runs, and not on purpose.
    pub different: Vec<Slot>,
    /// Such objects where upstream's runs raced or put the object off, and all writes of our collector obeyed the
    /// rules. Upstream has more possible ends than its runs show.
    pub raced: Vec<Slot>,
    /// Objects about which our end leaves work undone, and the work.
    pub unfinished: BTreeMap<Slot, &'static str>,
    /// Objects with a write of our collector that no rule asks for, and the breach.
    pub breaches: BTreeMap<Slot, &'static str>,
    /// The number of such objects in all of upstream's runs.
    pub breaches_upstream: usize,
}

impl Judgement {
    pub fn is_good(&self) -> bool {
        self.different.is_empty() && self.unfinished.is_empty() && self.breaches.is_empty()
    }
}

/// Compares our end with all of upstream's. Each object must end as in one of upstream's runs. So it may be gone only
/// if it is gone in one of them, and where upstream's runs agree, only one end is right.
pub(super) fn judge(program: &Program, ours: &Course, upstream: &[Course]) -> Judgement {
    let slots = 0..program.objects.len();
    let ends: Vec<&End> = upstream.iter().map(Course::end).collect();
    let different: Vec<Slot> = slots.filter(|slot| !is_permitted(*slot, ours.end(), &ends)).collect();
    let mut on_purpose = explain(program, ours, upstream);
    on_purpose.retain(|slot, _| different.contains(slot));
    let breaches = law::breaches(program, ours);
    let races = races(program, upstream);
    let (raced, different) = different
        .into_iter()
        .filter(|slot| !on_purpose.contains_key(slot))
        .partition(|slot| breaches.is_empty() && races.contains(slot));
    Judgement {
        racy: ends.windows(2).any(|pair| pair[0] != pair[1]),
        objects: program.objects.len(),
        different,
        raced,
        on_purpose,
        unfinished: unfinished(program, ours.end()),
        breaches,
        breaches_upstream: upstream.iter().map(|course| law::breaches(program, course).len()).sum(),
    }
}

/// Returns the objects whose course is a matter of speed under upstream, for one of these reasons:
///
/// * Upstream's runs changed the object in different ways.
/// * Two owners went at once. The owner that is left when upstream judges the object decides.
/// * A user added an owner that went at the same time. It matters whether the collector was done with the owner by
///   then.
/// * Upstream put the object off at a quiet moment, and judges it on some other occasion or at its next start.
/// * The object depends on one of these objects, or waits for one.
fn races(program: &Program, upstream: &[Course]) -> BTreeSet<Slot> {
    let way = |course: &Course, slot: Slot| -> Vec<Option<State>> {
        course.changes.iter().filter(|change| change.slot == slot).map(|change| change.state.clone()).collect()
    };
    let differs = |slot: Slot| upstream.windows(2).any(|pair| way(&pair[0], slot) != way(&pair[1], slot));
    let loses = |slot: Slot| {
        upstream.iter().any(|course| loses_owners_at_once(course, slot) || gains_an_owner_that_goes(course, slot))
    };
    let slots = 0..program.objects.len();
    let mut races: BTreeSet<Slot> = slots.clone().filter(|&slot| differs(slot) || loses(slot)).collect();
    races.extend(upstream.iter().flat_map(|course| put_off(program, course)));
    // The set grows down to dependents, and then up to the owners that they block.
    spread(&mut races, slots.clone(), |slot, races| {
        program.references_of(slot).any(|reference| races.contains(&reference.owner))
    });
    spread(&mut races, slots, |slot, races| {
        let blocks = |dependent: Slot| {
            program
                .references_of(dependent)
                .any(|reference| reference.owner == slot && reference.blocking == Some(true))
        };
        races.iter().any(|&dependent| blocks(dependent))
    });
    races
}

/// Returns the objects about which a quiet moment left work undone, and the end does not. Work that upstream leaves
/// undone even after its restart is not a matter of time.
fn put_off(program: &Program, course: &Course) -> BTreeSet<Slot> {
    let left = |end: &End| -> BTreeSet<Slot> { unfinished(program, end).into_keys().collect() };
    let Some((last, before)) = course.ends.split_last() else { return BTreeSet::new() };
    let never = left(last);
    before.iter().flat_map(left).filter(|slot| !never.contains(slot)).collect()
}

/// Adds slots that belong to the set until no slot is new.
fn spread(set: &mut BTreeSet<Slot>, slots: Range<Slot>, belongs: impl Fn(Slot, &BTreeSet<Slot>) -> bool) {
    loop {
        let more: Vec<Slot> = slots.clone().filter(|&slot| !set.contains(&slot) && belongs(slot, set)).collect();
        if more.is_empty() {
            return;
        }
        set.extend(more);
    }
}

/// Returns whether more than one owner of the object began to go, or went, between two quiet moments.
fn loses_owners_at_once(course: &Course, slot: Slot) -> bool {
    course.ends.windows(2).any(|pair| {
        let lost = owners_of(pair[0].get(&slot)).into_iter().filter(|&owner| goes(pair, owner));
        lost.count() > 1
    })
}

/// Returns whether the object got an owner that began to go, or went, between the same two quiet moments.
fn gains_an_owner_that_goes(course: &Course, slot: Slot) -> bool {
    course.ends.windows(2).zip(course.quiet_at.windows(2)).any(|(pair, at)| {
        let before = owners_of(pair[0].get(&slot));
        let between = |change: &&Change| change.slot == slot && at[0] < change.revision && change.revision <= at[1];
        let mut held = course.changes.iter().filter(between).flat_map(|change| owners_of(change.state.as_ref()));
        held.any(|owner| !before.contains(&owner) && goes(pair, owner))
    })
}

/// Returns whether the object began to go, or went, between these two moments.
fn goes(pair: &[End], slot: Slot) -> bool {
    let is_alive = |end: &End| end.get(&slot).is_some_and(|state| !state.terminating);
    is_alive(&pair[0]) && !is_alive(&pair[1])
}

/// Returns the owners that are objects of the program, each once.
fn owners_of(state: Option<&State>) -> BTreeSet<Slot> {
    let references = state.into_iter().flat_map(|state| &state.references);
    references
        .filter_map(|reference| match reference.owner {
            Owner::Slot(owner, _) => Some(owner),
            Owner::Unknown(_) => None,
        })
        .collect()
}

/// Returns the objects that differ on purpose. The cause of a difference may not exist at the end, because a user may
/// have deleted it. So the comparison goes through all quiet moments, in order.
fn explain(program: &Program, ours: &Course, upstream: &[Course]) -> BTreeMap<Slot, &'static str> {
    let mut on_purpose: BTreeMap<Slot, &'static str> = BTreeMap::new();
    for (moment, ours) in ours.ends.iter().enumerate() {
        let upstream: Vec<&End> = upstream.iter().filter_map(|course| course.ends.get(moment)).collect();
        // One difference may follow from another, so the loop ends when it explains no further object.
        loop {
            let explained: Vec<(Slot, &'static str)> = (0..program.objects.len())
                .filter(|slot| !on_purpose.contains_key(slot) && !is_permitted(*slot, ours, &upstream))
                .filter_map(|slot| {
                    let explains = |end: &&End| {
                        let case = Case { program, slot, ours, upstream: end, on_purpose: &on_purpose };
                        DIFFERENCES.iter().find(|difference| (difference.applies)(&case))
                    };
                    upstream.iter().find_map(explains).map(|difference| (slot, difference.name))
                })
                .collect();
            if explained.is_empty() {
                break;
            }
            on_purpose.extend(explained);
        }
    }
    on_purpose
}

/// Returns whether the object ended as in one of upstream's runs. An object that waits for a foreign finalizer keeps
/// the references that it had when it was deleted. If upstream's runs disagree about these references, the order in
/// which the owners went has decided. Our object must then have the references that all runs kept, and may have those
/// that one of them kept.
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

/// Returns the work that the rules still ask for in a quiet end, by object.
fn unfinished(program: &Program, end: &End) -> BTreeMap<Slot, &'static str> {
    end.iter().filter_map(|(&slot, state)| left_to_do(program, end, slot, state).map(|what| (slot, what))).collect()
}

fn left_to_do(program: &Program, end: &End, slot: Slot, state: &State) -> Option<&'static str> {
    if state.orphans() {
        return Some("its dependents are not orphaned yet");
    }
    if state.waits() {
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
        Some("it has no owner that keeps it")
    }
}
