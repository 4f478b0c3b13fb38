//! Changes of an object, or of its owners, between a look of the other collector and its request.

use super::*;

#[test]
fn a_background_deletion_just_after_one_in_foreground_is_a_matter_of_timing() {
    use AuditedVerb::{Change, Delete};
    let rows = [
        // Whether the owner of the object lives, the seconds from the deletion to the end of the finalizer, the request
        // that ends the finalizer, the class.
        (false, 0, Delete, "timing"),
        (false, 20, Delete, "unknown"),
        (true, 0, Delete, "unknown"),
        (false, 0, Change, "unknown"),
    ];
    for (lives, seconds, verb, expected) in rows {
        let mut bench = observing();
        bench.seen("things", object("things", "p", 101));
        bench.seen("things", object("things", "o", 102).owned_by("things", "p"));
        bench.seen("configmaps", object("configmaps", "a", 103).blocking("things", "o"));
        if !lives {
            bench.deleted("things", "p", 104);
        }
        bench.seen("things", object("things", "o", 105).owned_by("things", "p").terminating("foregroundDeletion"));
        bench.pass(Duration::from_secs(seconds));
        bench.deleted("things", "o", 106);
        for (user, verb, rv) in [("alice", Delete, Some(version(105))), ("collector", verb, None)] {
            let request = bench.request(verb, "o", user);
            bench.logged(Audited { collection: collection("things"), resource_version: rv, ..request });
        }
        bench.log_moves_on();
        bench.pass(Duration::from_secs(160));
        let told = bench.disagreements();
        let wanted = format!("theirs_only remove_finalizer o: {expected}");
        assert!(told.contains(&wanted), "{lives} {seconds} s {verb:?}: {told:?}");
    }
}

#[test]
fn an_owner_that_changes_while_it_waits_has_begun_to_wait_before() {
    // The version at which the owner begins to wait. The object loses its other reference at version 105.
    for (began, expected) in [(103, "own_change"), (106, "unknown")] {
        let mut bench = observing();
        bench.seen("things", object("things", "o", 101));
        bench.seen("things", object("things", "p", 102));
        let waiting = |rv| object("things", "o", rv).terminating("foregroundDeletion").with_finalizer("held");
        if began == 103 {
            bench.seen("things", waiting(103));
        }
        bench.seen("configmaps", child(104).owned_by("things", "p"));
        bench.seen("things", waiting(106));
        bench.seen("configmaps", child(105));
        bench.pass(Duration::from_secs(40));
        let told = bench.disagreements();
        assert!(told.contains(&format!("ours_only delete a: {expected}")), "began at {began}: {told:?}");
    }
}

#[test]
fn an_owner_that_was_never_seen_had_ended_before_its_absence_is_proven() {
    let mut bench = observing();
    bench.seen("things", object("things", "o", 101));
    bench.seen("configmaps", child(102).owned_by("things", "q"));
    bench.seen("configmaps", object("configmaps", "a", 140).owned_by("things", "q"));
    bench.bookmark("things", 150);
    for _ in 0..4 {
        bench.pass(A_MOMENT);
        bench.answer_probes(160, &[]);
        bench.found_if_asked("q", &FindingResult::Absent(Some(version(160))));
    }
    bench.pass(Duration::from_secs(60));
    assert_eq!(bench.disagreements(), ["ours_only delete a: own_change"]);
}
