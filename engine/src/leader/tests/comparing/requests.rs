//! Changes and the requests of the audit log that made them.

use super::*;

#[test]
fn the_audit_log_names_who_followed_a_decision() {
    for (user, expected) in [("collector", [1, 0, 0, 0, 0]), ("alice", [0, 0, 0, 0, 1])] {
        let mut bench = family();
        bench.audited(AuditedVerb::Change, "other", "alice");
        bench.deleted("things", "o", 103);
        bench.deleted("configmaps", "a", 104);
        bench.pass(A_MOMENT);
        assert_eq!(bench.sums(), [0; 5], "the request is awaited");
        bench.audited(AuditedVerb::Delete, "a", user);
        bench.log_moves_on();
        assert_eq!((bench.sums(), bench.counts().without_request), (expected, 0), "{user}");
    }
    let mut bench = family();
    bench.audited(AuditedVerb::Change, "other", "alice");
    bench.deleted("things", "o", 103);
    bench.deleted("configmaps", "a", 104);
    bench.pass(Duration::from_secs(40));
    assert_eq!(bench.sums(), [0; 5], "a batch of the log may come after 30 s");
    bench.pass(Duration::from_secs(10));
    let counts = (bench.sums(), bench.counts().without_request);
    assert_eq!(counts, ([1, 0, 0, 0, 0], 1), "without a request, the facts decide");
}

#[test]
fn another_change_of_a_person_leaves_a_late_decision_late() {
    let mut bench = family();
    bench.audited(AuditedVerb::Change, "other", "alice");
    bench.deleted("things", "o", 103);
    bench.pass(Duration::from_secs(40));
    assert_eq!(bench.disagreements(), ["ours_only delete a: unknown"]);
    bench.audited(AuditedVerb::Change, "a", "alice");
    bench.seen("configmaps", object("configmaps", "a", 104));
    bench.log_moves_on();
    assert_eq!((bench.sums(), bench.disagreements().len()), ([0, 0, 1, 0, 1], 1));
}

#[test]
fn the_request_of_a_change_is_found_before_its_facts() {
    let mut bench = family();
    bench.audited(AuditedVerb::Delete, "a", "alice");
    bench.deleted("configmaps", "a", 104);
    bench.log_moves_on();
    assert_eq!(bench.sums(), [0; 5], "the owner is not seen as of the change");
    // The log moves on.
    for _ in 0..16_384 {
        bench.audited(AuditedVerb::Change, "other", "bob");
    }
    bench.pass(Duration::from_secs(160));
    assert_eq!(bench.sums(), [0, 0, 0, 0, 1]);
}

#[test]
fn a_deletion_of_a_collection_deletes_many_objects() {
    let mut bench = observing();
    bench.seen("things", object("things", "o", 101));
    for (name, rv) in [("a", 102), ("b", 103)] {
        bench.seen("configmaps", object("configmaps", name, rv).owned_by("things", "o"));
    }
    bench.audited(AuditedVerb::DeleteCollection, "", "namespace-controller");
    bench.deleted("configmaps", "a", 104);
    bench.deleted("configmaps", "b", 105);
    bench.bookmark("things", 110);
    bench.log_moves_on();
    assert_eq!(bench.sums(), [0, 0, 0, 0, 2]);
}

#[test]
fn a_collector_that_is_refused_is_not_wrong() {
    // Seconds before the decision, the status, the class.
    for (before, status, class) in
        [(0, 403, "refused"), (20, 403, "refused"), (60, 403, "unknown"), (0, 404, "unknown"), (0, 409, "unknown")]
    {
        let mut bench = family();
        let request = bench.request(AuditedVerb::Delete, "a", "collector");
        bench.logged(Audited { status, ..request });
        bench.pass(Duration::from_secs(before));
        bench.deleted("things", "o", 103);
        bench.pass(Duration::from_secs(40));
        assert_eq!(bench.disagreements(), [format!("ours_only delete a: {class}")], "{status} {before} s before");
    }
}

#[test]
fn the_request_with_the_same_version_or_the_nearest_one_made_a_change() {
    let audited = |bench: &Bench, user: &str, rv: Option<u64>| Audited {
        resource_version: rv.map(version),
        ..bench.request(AuditedVerb::Change, "a", user)
    };
    for by_version in [true, false] {
        let mut bench = observing();
        bench.seen("things", object("things", "o", 101));
        bench.seen("things", object("things", "p", 102));
        bench.seen("configmaps", child(103).owned_by("things", "p"));
        bench.deleted("things", "o", 104);
        let early = audited(&bench, "alice", by_version.then_some(90));
        bench.logged(early);
        bench.pass(A_MOMENT);
        bench.seen("configmaps", object("configmaps", "a", 105).owned_by("things", "p"));
        let right = audited(&bench, "collector", by_version.then_some(105));
        bench.pass(A_MOMENT);
        assert_eq!(bench.sums(), [0; 5], "the batch with the right request is not here yet");
        let late = audited(&bench, "alice", by_version.then_some(106));
        bench.logged(late);
        bench.logged(right);
        bench.pass(A_MOMENT);
        assert_eq!(bench.sums(), [1, 0, 0, 0, 0], "{by_version}");
    }
}

#[test]
fn the_first_of_two_deletions_with_one_version_marked_the_object() {
    for (first, second, expected) in [("alice", "collector", [0, 0, 0, 0, 1]), ("collector", "alice", [1, 0, 0, 0, 0])]
    {
        let mut bench = family();
        bench.deleted("things", "o", 103);
        for user in [first, second] {
            let request = bench.request(AuditedVerb::Delete, "a", user);
            bench.logged(Audited { resource_version: Some(version(104)), ..request });
            bench.pass(Duration::from_millis(50));
        }
        bench.seen("configmaps", child(104).terminating("example.com/slow"));
        bench.pass(A_MOMENT);
        assert_eq!(bench.sums(), expected, "the second one changes nothing: {first}, then {second}");
    }
}

#[test]
fn one_request_marks_a_pod_and_deletes_it() {
    for (user, expected) in [("alice", [0, 0, 0, 0, 1]), ("collector", [1, 0, 0, 0, 0])] {
        let mut bench = family();
        bench.audited(AuditedVerb::Change, "other", "alice");
        bench.deleted("things", "o", 103);
        bench.seen("configmaps", child(104).terminating("example.com/slow"));
        bench.deleted("configmaps", "a", 106);
        let request = bench.request(AuditedVerb::Delete, "a", user);
        bench.logged(Audited { resource_version: Some(version(106)), ..request });
        bench.pass(A_MOMENT);
        assert_eq!(bench.sums(), [0; 5], "the log may have the request with the version of the mark later");
        bench.log_moves_on();
        assert_eq!((bench.sums(), bench.counts().without_request), (expected, 0), "{user}");
    }
}

#[test]
fn the_request_with_the_version_of_the_mark_goes_before_a_later_deletion() {
    let mut bench = family();
    bench.audited(AuditedVerb::Change, "other", "alice");
    bench.deleted("things", "o", 103);
    bench.seen("configmaps", child(104).terminating("example.com/slow"));
    for (user, rv) in [("collector", 106), ("alice", 104)] {
        let request = bench.request(AuditedVerb::Delete, "a", user);
        bench.logged(Audited { resource_version: Some(version(rv)), ..request });
    }
    // All of them are in one batch of the log, which has passed the change.
    let last = bench.request(AuditedVerb::Change, "other", "bob");
    bench.logged(Audited { at: last.at + A_MOMENT, ..last });
    bench.pass(A_MOMENT);
    assert_eq!(bench.sums(), [0, 0, 0, 0, 1]);
}

#[test]
fn another_deletion_or_the_change_of_the_version_before_removes_a_finalizer() {
    // The verb, the version in the answer, and whether the request removed the finalizer.
    for (verb, rv, is_it) in [
        (AuditedVerb::Change, Some(103), true),
        (AuditedVerb::Change, Some(104), true),
        (AuditedVerb::Change, Some(102), false),
        (AuditedVerb::Delete, Some(104), true),
        (AuditedVerb::Delete, Some(103), false),
        (AuditedVerb::Delete, None, true),
    ] {
        let mut bench = observing();
        bench.seen("things", object("things", "o", 101));
        bench.seen("configmaps", child(102).blocking("things", "o"));
        bench.seen("things", object("things", "o", 103).terminating("foregroundDeletion"));
        let request = bench.request(verb, "o", "alice");
        bench.logged(Audited { collection: collection("things"), resource_version: rv.map(version), ..request });
        bench.deleted("configmaps", "a", 104);
        bench.deleted("things", "o", 104);
        bench.log_moves_on();
        bench.pass(Duration::from_secs(60));
        let without = bench.counts().without_request;
        assert_eq!(without, if is_it { 1 } else { 2 }, "{verb:?} {rv:?}: the deletion of a has no request either");
    }
}
