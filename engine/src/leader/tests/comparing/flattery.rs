//! Tests of changes that must not count as agreed, or as a difference by design.

use super::*;

#[test]
fn a_deletion_that_orphans_is_not_one_that_deletes_the_dependents() {
    // The finalizers before and after the deletion, the user, and what follows from a decision to delete in background.
    for (before, after, user, expected) in [
        (&[][..], &["example.com/slow"][..], "", [1, 0, 0, 0, 0]),
        (&[], &["foregroundDeletion"], "", [1, 0, 0, 0, 0]),
        (&[], &["orphan"], "", [0, 0, 0, 0, 1]),
        (&[], &["orphan"], "collector", [0, 0, 0, 1, 0]),
        (&["orphan"], &["orphan"], "", [1, 0, 0, 0, 0]),
        (&["orphan"], &["example.com/slow"], "", [0, 0, 0, 0, 1]),
        (&["orphan"], &["example.com/slow"], "collector", [0, 0, 0, 1, 0]),
    ] {
        let with = |object: Object, finalizers: &[&str]| {
            finalizers.iter().fold(object, |object, finalizer| object.with_finalizer(finalizer))
        };
        let mut bench = observing();
        bench.seen("things", object("things", "o", 101));
        bench.seen("configmaps", with(child(102), before));
        bench.deleted("things", "o", 103);
        if !user.is_empty() {
            bench.audited(AuditedVerb::Delete, "a", user);
        }
        let mut deleted = with(child(104), after);
        deleted.facts.terminating = true;
        bench.seen("configmaps", deleted);
        if !user.is_empty() {
            bench.log_moves_on();
        }
        bench.pass(A_MOMENT);
        assert_eq!(bench.sums(), expected, "{before:?} {after:?} {user}");
    }
}

#[test]
fn a_list_does_not_show_how_an_object_was_deleted() {
    let mut bench = observing();
    bench.seen("things", object("things", "o", 101));
    bench.seen("configmaps", child(102).with_finalizer("orphan"));
    bench.deleted("things", "o", 103);
    bench.input(Input::ListBegun { collection: collection("configmaps"), selectors: 0 });
    bench.list("configmaps", 110, vec![child(105).terminating("example.com/slow")]);
    bench.pass(A_MOMENT);
    assert_eq!(bench.sums(), [1, 0, 0, 0, 0]);
}

#[test]
fn an_owner_whose_end_is_seen_first_and_is_later_lived() {
    for (user, expected) in [("", [0, 0, 0, 0, 1]), ("collector", [0, 0, 0, 1, 0])] {
        let mut bench = family();
        bench.deleted("things", "o", 110);
        if !user.is_empty() {
            bench.audited(AuditedVerb::Delete, "a", user);
        }
        bench.deleted("configmaps", "a", 105);
        bench.log_moves_on();
        bench.pass(Duration::from_secs(60));
        assert_eq!(bench.sums(), expected, "the deletion of a is older than that of o, by {user}");
    }
}

#[test]
fn an_owner_that_is_seen_after_the_deletion_of_its_dependent_has_not_waited() {
    let mut bench = observing();
    bench.seen("configmaps", child(103));
    bench.deleted("configmaps", "a", 104);
    bench.seen("things", object("things", "o", 101));
    bench.bookmark("things", 110);
    bench.audited(AuditedVerb::Delete, "a", "collector");
    bench.log_moves_on();
    assert_eq!(bench.disagreements(), ["theirs_only delete a: unknown"]);
}

#[test]
fn a_collector_that_forgets_blocking_dependents_is_unknown() {
    for (user, is_unknown) in [("collector", true), ("alice", false)] {
        let mut bench = observing();
        bench.seen("things", object("things", "o", 101));
        bench.seen("configmaps", object("configmaps", "a", 102).blocking("things", "o"));
        bench.seen("things", object("things", "o", 103).terminating("foregroundDeletion"));
        bench.deleted("things", "o", 105);
        bench.logged(Audited { collection: collection("things"), ..bench.request(AuditedVerb::Change, "o", user) });
        bench.log_moves_on();
        bench.pass(Duration::from_secs(160));
        let told = bench.disagreements();
        assert_eq!(told.contains(&"theirs_only remove_finalizer o: unknown".into()), is_unknown, "{user}: {told:?}");
    }
}

#[test]
fn a_finalizer_that_goes_before_the_dependents_is_not_agreed() {
    let mut bench = observing();
    bench.seen("things", object("things", "o", 101));
    bench.seen("configmaps", object("configmaps", "a", 102).blocking("things", "o"));
    bench.seen("things", object("things", "o", 103).terminating("foregroundDeletion"));
    let uid = object("things", "o", 103).uid;
    let mut premature = crate::parity::Open::new(ActionKind::RemoveFinalizer, [].into(), bench.now);
    premature.is_premature = true;
    bench.leader.parity.decided(bench.now, uid, premature);
    bench.deleted("configmaps", "a", 104);
    bench.deleted("things", "o", 105);
    bench.pass(A_MOMENT);
    assert_eq!(bench.disagreements(), ["theirs_only remove_finalizer o: unknown"]);
}

#[test]
fn a_guarded_object_with_a_living_owner_is_not_held_by_design() {
    for (owner_goes, user, expected) in [
        (true, "", &["theirs_only delete a: held"][..]),
        (true, "collector", &["theirs_only delete a: held"]),
        (false, "", &[]),
        (false, "collector", &["theirs_only delete a: unknown"]),
    ] {
        let mut bench = family();
        let mut held = child(103);
        held.facts.hold = true;
        bench.seen("configmaps", held);
        if owner_goes {
            bench.deleted("things", "o", 104);
        }
        if !user.is_empty() {
            bench.audited(AuditedVerb::Delete, "a", user);
        }
        bench.deleted("configmaps", "a", 105);
        bench.bookmark("things", 110);
        if !user.is_empty() {
            bench.log_moves_on();
        }
        bench.pass(A_MOMENT);
        assert_eq!(bench.disagreements(), expected, "{owner_goes} {user}");
    }
}

#[test]
fn a_served_version_of_an_owner_explains_nothing() {
    for (others, class) in [(vec![], "other_version"), (vec!["v1beta1".into()], "unknown")] {
        let mut bench = observing();
        bench.input(Input::KindServed(ServedKind { other_versions: others, ..served("things") }));
        bench.seen("things", object("things", "o", 101));
        let mut dependent = child(102);
        let reference = dependent.facts.owners[0].clone();
        let api_version = format!("{}/v1beta1", reference.group());
        dependent.facts.owners = vec![OwnerReference { api_version: api_version.into(), ..reference }].into();
        bench.seen("configmaps", dependent);
        bench.deleted("things", "o", 103);
        bench.pass(Duration::from_secs(40));
        assert_eq!(bench.disagreements(), [format!("ours_only delete a: {class}")]);
    }
}

#[test]
fn a_late_agreement_is_taken_back_where_it_was_counted() {
    let mut bench = observing();
    for (name, rv) in [("a", 200), ("b", 300)] {
        let owner = format!("o-{name}");
        bench.seen("things", object("things", &owner, rv));
        bench.seen("configmaps", object("configmaps", name, rv + 1).owned_by("things", &owner));
    }
    bench.deleted("things", "o-a", 400);
    bench.pass(Duration::from_secs(1200));
    bench.deleted("things", "o-b", 401);
    bench.pass(Duration::from_secs(300));
    bench.deleted("configmaps", "a", 402);
    let recent = bench.leader.queries().parity(Some(Duration::from_secs(60))).unwrap().counts;
    assert_eq!(bench.disagreements(), ["ours_only delete b: unknown"]);
    assert_eq!(recent.of(Class::Unknown), 1, "b is still unknown");
}

#[test]
fn the_end_of_an_owner_that_was_never_seen_explains_only_what_follows_a_lost_reference() {
    let mut bench = observing();
    bench.seen("things", object("things", "o", 101));
    bench.seen("configmaps", child(102).owned_by("things", "q"));
    for _ in 0..4 {
        bench.pass(A_MOMENT);
        bench.answer_probes(130, &[]);
        bench.found_if_asked("q", &FindingResult::Absent(Some(version(130))));
    }
    // A person takes the reference to its last living owner from `a`, and creates `b`.
    bench.seen("configmaps", object("configmaps", "a", 140).owned_by("things", "q"));
    bench.seen("configmaps", object("configmaps", "b", 141).owned_by("things", "q"));
    bench.bookmark("things", 150);
    bench.pass(Duration::from_secs(60));
    let mut told = bench.disagreements();
    told.sort();
    assert_eq!(told, ["ours_only delete a: own_change", "ours_only delete b: unknown"]);
}
