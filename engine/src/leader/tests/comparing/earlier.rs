//! Tests of changes that the other collector made before the comparison began.

use super::*;

#[test]
fn garbage_from_before_the_comparison_is_no_unknown_disagreement() {
    let mut bench = observing();
    let of = |name, rv, owner| object("configmaps", name, rv).owned_by("things", owner);
    let listed =
        [("things", vec![object("things", "p", 50)]), ("configmaps", vec![of("a", 50, "o"), of("b", 50, "p")])];
    for (resource, objects) in listed {
        bench.input(Input::ListBegun { collection: collection(resource), selectors: 0 });
        bench.list(resource, 101, objects);
    }
    bench.seen("configmaps", of("c", 120, "o"));
    for _ in 0..4 {
        bench.pass(A_MOMENT);
        bench.answer_probes(130, &[]);
        bench.found_if_asked("o", &FindingResult::Absent(Some(version(130))));
    }
    bench.deleted("things", "p", 131);
    bench.pass(Duration::from_secs(60));
    let mut told = bench.disagreements();
    told.sort();
    let since = ["ours_only delete b: unknown", "ours_only delete c: unknown"];
    assert_eq!(told, [&["ours_only delete a: earlier"][..], &since].concat(), "b lost its owner since, and c is new");
}

#[test]
fn what_an_owner_waited_for_since_the_comparison_began_is_not_from_before() {
    let mut bench = observing();
    bench.input(Input::ListBegun { collection: collection("things"), selectors: 0 });
    bench.list("things", 101, vec![object("things", "o", 50).terminating("foregroundDeletion")]);
    bench.seen("configmaps", object("configmaps", "a", 102).blocking("things", "o"));
    bench.deleted("configmaps", "a", 103);
    bench.pass(Duration::from_secs(60));
    assert_eq!(bench.disagreements(), ["ours_only remove_finalizer o: unknown"]);
}

#[test]
fn versions_of_a_restored_store_are_not_from_before_the_comparison() {
    let mut bench = observing();
    bench.bookmark("nodes", 39);
    for resource in ["configmaps", "nodes", "things"] {
        bench.list(resource, 40, vec![]);
    }
    restores::answered(&mut bench, 14, 41);
    bench.seen("things", object("things", "o", 42));
    bench.seen("configmaps", child(43));
    bench.deleted("things", "o", 44);
    bench.pass(Duration::from_secs(60));
    assert_eq!(bench.disagreements(), ["ours_only delete a: unknown"], "44 is before the 100 of the lost history");
}
