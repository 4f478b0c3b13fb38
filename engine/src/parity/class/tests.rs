//! The finding for each combination of facts.

use super::*;
use alloc::vec::Vec;

const OPEN: Standing = Standing::Unverified(Undecided::OwnerUnverified);
const UNSERVED: Standing = Standing::Unverified(Undecided::OwnerKindUnresolved);

/// A deletion of a judged object, without a decision, by an unknown user.
fn deletion<'a>(owners: &'a [(Standing, bool)]) -> Case<'a> {
    Case {
        action: ActionKind::Delete,
        actor: Actor::Unknown,
        decided: None,
        follows: false,
        is_premature: false,
        differs: false,
        is_by_rule: true,
        was_undecided: false,
        was_held: false,
        was_terminating: false,
        owners,
        facts_came: false,
        is_young: false,
        shed_before: false,
        grown_before: false,
        is_second_deletion: false,
        waited_before: false,
        other_coordinates: false,
        has_dependents: false,
        has_old_dependents: false,
        too_many: false,
    }
}

fn stays(standings: &[Standing]) -> Vec<(Standing, bool)> {
    standings.iter().map(|&standing| (standing, false)).collect()
}

#[test]
fn deletions() {
    use ActionKind::{Delete, RemoveOwnerReferences, UnblockOwnerReferences};
    use Standing::{Dangling, InvalidScope, Orphaning, Solid, Waiting};
    let theirs = Finding::TheirsOnly;
    let rows = [
        // Standings, decided, facts came, by an unknown user, by the collector.
        (&[Dangling][..], Some(Delete), false, Finding::Agreed, Finding::Agreed),
        (&[Dangling], None, true, Finding::Agreed, Finding::Agreed),
        (&[Dangling, Waiting], None, true, Finding::Agreed, Finding::Agreed),
        (&[Dangling], None, false, theirs(Class::Unknown), theirs(Class::Unknown)),
        (&[Dangling], Some(RemoveOwnerReferences), false, theirs(Class::Unknown), theirs(Class::Unknown)),
        (&[Dangling], Some(RemoveOwnerReferences), true, Finding::Agreed, Finding::Agreed),
        (&[Waiting], Some(UnblockOwnerReferences), false, theirs(Class::Cycle), theirs(Class::Cycle)),
        (&[Dangling, Solid], None, true, Finding::Unattributed, theirs(Class::Unknown)),
        (&[InvalidScope], None, false, Finding::Unattributed, theirs(Class::Unknown)),
        (&[Dangling, Orphaning], None, false, theirs(Class::Orphaned), theirs(Class::Orphaned)),
        (&[Solid, Orphaning], None, false, Finding::Unattributed, theirs(Class::Unknown)),
        (&[OPEN], None, false, theirs(Class::Timing), theirs(Class::Timing)),
        (&[UNSERVED], None, false, Finding::Unattributed, theirs(Class::Unproven)),
    ];
    for (standings, decided, facts_came, unknown, collector) in rows {
        let owners = stays(standings);
        let follows = decided == Some(Delete);
        let case = Case { decided, follows, facts_came, ..deletion(&owners) };
        assert_eq!(case.finding(), unknown, "{case:?}");
        assert_eq!(Case { actor: Actor::Collector, ..case }.finding(), collector, "{standings:?} by the collector");
        let other = Case { actor: Actor::Other, decided, follows, facts_came, ..deletion(&owners) };
        assert_eq!(other.finding(), Finding::Unattributed, "{standings:?} by another user");
    }
}

#[test]
fn removed_references() {
    use ActionKind::{Delete, RemoveOwnerReferences};
    use Standing::{Dangling, Orphaning, Solid};
    let theirs = Finding::TheirsOnly;
    let rows = [
        // The removed standing, the other one, decided, facts came, terminating, the decision is young, finding.
        (Dangling, Some(Solid), Some(RemoveOwnerReferences), false, false, false, Finding::Agreed),
        (Dangling, Some(Solid), None, true, false, false, Finding::Agreed),
        (Dangling, Some(Solid), Some(Delete), false, false, false, theirs(Class::Unknown)),
        (Orphaning, None, None, true, false, false, Finding::Agreed),
        (Orphaning, None, Some(Delete), false, false, false, theirs(Class::Unknown)),
        (Orphaning, None, None, true, true, false, Finding::Agreed),
        (Dangling, None, Some(Delete), false, false, false, theirs(Class::Unknown)),
        (Dangling, Some(Dangling), Some(Delete), false, false, true, Finding::Agreed),
        (Dangling, Some(Dangling), Some(Delete), false, false, false, theirs(Class::Unknown)),
        (Dangling, Some(Dangling), None, true, false, false, Finding::Agreed),
        (Dangling, Some(Dangling), None, false, false, false, theirs(Class::Unknown)),
        (Dangling, None, Some(Delete), false, false, true, theirs(Class::Unknown)),
        (Dangling, Some(Solid), Some(Delete), false, false, true, theirs(Class::Unknown)),
        (Dangling, None, None, true, false, false, theirs(Class::Timing)),
        (Dangling, None, None, true, true, false, Finding::Unattributed),
        (Standing::Waiting, Some(Standing::InvalidScope), None, false, false, false, Finding::Unattributed),
        (Solid, None, None, false, false, false, Finding::Unattributed),
        (OPEN, None, None, false, false, false, theirs(Class::Timing)),
    ];
    for (removed, other, decided, facts_came, was_terminating, is_young, finding) in rows {
        let owners: Vec<_> = [(removed, true)].into_iter().chain(other.map(|other| (other, false))).collect();
        let action = RemoveOwnerReferences;
        let follows = decided == Some(action);
        let case = Case { action, decided, follows, facts_came, was_terminating, is_young, ..deletion(&owners) };
        assert_eq!(case.finding(), finding, "{case:?}");
    }
}

#[test]
fn the_last_reference_of_an_object_that_has_just_lost_others() {
    use ActionKind::{Delete, RemoveOwnerReferences};
    let (last, one_of_two) = ([(Standing::Waiting, true)], [(Standing::Dangling, true), (Standing::Solid, false)]);
    for (owners, decided, shed_before, is_young, class) in [
        (&last[..], Some(Delete), true, true, Class::Timing),
        (&last[..], Some(Delete), true, false, Class::Unknown),
        (&last[..], Some(Delete), false, true, Class::Unknown),
        (&last[..], None, true, true, Class::Timing),
        (&one_of_two[..], Some(Delete), true, true, Class::Unknown),
    ] {
        let case = Case { action: RemoveOwnerReferences, decided, shed_before, is_young, ..deletion(owners) };
        assert_eq!(case.finding(), Finding::TheirsOnly(class), "{case:?}");
    }
}

#[test]
fn a_deletion_just_after_a_living_owner_stopped_to_wait() {
    use Standing::{Dangling, InvalidScope, Orphaning, Solid};
    for (standings, waited_before, class) in [
        (&[Solid][..], true, Class::Timing),
        (&[OPEN, Solid], true, Class::Timing),
        (&[Dangling, Solid], true, Class::Timing),
        (&[Dangling, Solid], false, Class::Unknown),
        (&[InvalidScope, Solid], true, Class::Unknown),
        (&[Orphaning, Solid], true, Class::Unknown),
    ] {
        let owners = stays(standings);
        let case = Case { waited_before, actor: Actor::Collector, ..deletion(&owners) };
        assert_eq!(case.finding(), Finding::TheirsOnly(class), "{case:?}");
    }
}

#[test]
fn what_explains_any_change() {
    let owners = stays(&[Standing::Dangling]);
    let held = Case { was_held: true, ..deletion(&owners) };
    assert_eq!(held.finding(), Finding::TheirsOnly(Class::Held));
    let owners_elsewhere = [(OPEN, true), (Standing::Solid, false)];
    let elsewhere =
        Case { action: ActionKind::RemoveOwnerReferences, other_coordinates: true, ..deletion(&owners_elsewhere) };
    assert_eq!(elsewhere.finding(), Finding::TheirsOnly(Class::OtherCoordinates));
    let by_uid = [(Standing::Solid, true), (OPEN, true)];
    for (actor, finding) in
        [(Actor::Unknown, Finding::Unattributed), (Actor::Collector, Finding::TheirsOnly(Class::OtherCoordinates))]
    {
        let action = ActionKind::RemoveOwnerReferences;
        let both = Case { action, actor, other_coordinates: true, ..deletion(&by_uid) };
        assert_eq!(both.finding(), finding, "{actor:?}");
    }
    let many = Case { too_many: true, ..deletion(&owners) };
    assert_eq!(many.finding(), Finding::TheirsOnly(Class::TooManyReferences));
    let unblocked = Case { action: ActionKind::UnblockOwnerReferences, ..deletion(&owners) };
    assert_eq!(unblocked.finding(), Finding::TheirsOnly(Class::Cycle));
    for (has_dependents, actor, finding) in [
        (false, Actor::Unknown, Finding::Agreed),
        (true, Actor::Unknown, Finding::Unattributed),
        (true, Actor::Collector, Finding::TheirsOnly(Class::Timing)),
    ] {
        let case = Case { action: ActionKind::RemoveFinalizer, has_dependents, actor, ..deletion(&owners) };
        assert_eq!(case.finding(), finding);
    }
}

#[test]
fn a_removed_reference_just_before_an_invalid_one_came() {
    use Standing::{Dangling, InvalidScope, Solid};
    for (owners, grown_before, actor, finding) in [
        (&[(Dangling, true), (InvalidScope, false)][..], true, Actor::Collector, Finding::TheirsOnly(Class::Timing)),
        (&[(Dangling, true), (InvalidScope, false)], false, Actor::Collector, Finding::TheirsOnly(Class::Unknown)),
        (&[(Dangling, true), (InvalidScope, false)], true, Actor::Unknown, Finding::Unattributed),
        (&[(Solid, true), (InvalidScope, false)], true, Actor::Collector, Finding::TheirsOnly(Class::Unknown)),
    ] {
        let action = ActionKind::RemoveOwnerReferences;
        let case = Case { action, actor, grown_before, ..deletion(owners) };
        assert_eq!(case.finding(), finding, "{case:?}");
    }
}
