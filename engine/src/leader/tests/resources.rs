//! One kind of one group that several resources serve.

use super::*;
use crate::view::ReasonCode;

/// Creates a bench in which `things` and `objects` are both of kind Thing.
fn two() -> Bench {
    let mut bench = Bench::synced();
    bench.serve("objects");
    bench.list("objects", 100, vec![]);
    bench
}

fn unserve(bench: &mut Bench, resource: &str) {
    bench.input(Input::KindUnserved(collection(resource)));
}

/// Answers for ten seconds that no object exists.
fn settle(bench: &mut Bench) {
    settle_at(bench, 200);
}

fn settle_at(bench: &mut Bench, position: u64) {
    for _ in 0..20 {
        bench.answer_probes(position, &[]);
        for name in ["o", "p", "q"] {
            bench.found_if_asked(name, &FindingResult::Absent(Some(version(position))));
        }
        bench.pass(Duration::from_millis(500));
    }
}

#[test]
fn an_owner_in_one_resource_is_not_absent_because_another_lacks_it() {
    for resource in ["things", "objects"] {
        let mut bench = two();
        bench.seen(resource, object(resource, "o", 101));
        bench.seen("configmaps", object("configmaps", "a", 102).owned_by("things", "o"));
        bench.list("objects", 110, if resource == "objects" { vec![object("objects", "o", 101)] } else { vec![] });
        settle(&mut bench);
        assert_eq!(bench.grants(), NOTHING, "{resource}");
    }
}

#[test]
fn of_such_a_kind_no_owner_is_proven_absent_by_its_own_deletion_either() {
    let mut bench = two();
    bench.seen("things", object("things", "o", 101));
    bench.seen("configmaps", object("configmaps", "a", 102).owned_by("things", "o"));
    bench.deleted("things", "o", 103);
    settle(&mut bench);
    assert_eq!(bench.grants(), NOTHING);
    assert_eq!(bench.undecided(), [(Undecided::OwnerKindUnresolved, 1)]);
}

#[test]
fn what_waits_says_which_resources_it_may_mean() {
    let mut bench = two();
    bench.seen("configmaps", object("configmaps", "a", 102).owned_by("things", "o"));
    settle(&mut bench);
    let reason = bench.leader.queries().explain(&uid("a")).unwrap().reasons.remove(0);
    assert_eq!(reason.code, ReasonCode::OwnerKindUnresolved);
    let how = "Thing.example.com is served as objects.example.com and as things.example.com";
    assert_eq!(reason.detail, how);
    assert_eq!(bench.leader.queries().unresolved_kinds(10)[0].resources, [collection("objects"), collection("things")]);
    let (blockers, _) = bench.leader.queries().blockers(10);
    assert_eq!((blockers[0].what.clone(), blockers[0].items), (format!("ambiguous: {how}"), 1));
}

#[test]
fn what_was_proven_before_the_second_came_does_not_count_beside_it() {
    let mut bench = Bench::synced();
    bench.message(STREAM, ToLeader::Window { max_outstanding: 0 });
    bench.seen("configmaps", object("configmaps", "a", 101).owned_by("things", "o"));
    settle(&mut bench);
    assert_eq!((bench.undecided(), bench.leader.queries().status().queued), (vec![], 1));
    bench.serve("objects");
    bench.message(STREAM, ToLeader::Window { max_outstanding: 100 });
    settle(&mut bench);
    assert_eq!(bench.grants(), NOTHING);
}

#[test]
fn all_is_as_ever_once_one_of_them_is_served_no_more() {
    for (gone, left) in [("objects", "things"), ("things", "objects")] {
        let mut bench = two();
        bench.seen("configmaps", object("configmaps", "a", 102).owned_by("things", "o"));
        bench.seen("configmaps", object("configmaps", "b", 103).owned_by("things", "p"));
        bench.seen(left, object(left, "p", 104));
        settle(&mut bench);
        assert_eq!(bench.grants(), NOTHING);
        unserve(&mut bench, gone);
        bench.pass(Duration::from_secs(1));
        let asked: Vec<GroupResource> = bench.probes.iter().map(|probe| probe.collection.clone()).collect();
        assert!(asked.contains(&collection(left)), "{asked:?}");
        settle(&mut bench);
        assert_eq!(bench.grants(), ["delete(Background) a"], "{gone} went");
        assert_eq!((bench.undecided(), bench.leader.queries().unresolved_kinds(10)), (vec![], vec![]));
        // The resource is served again.
        bench.seen("configmaps", object("configmaps", "c", 205).owned_by("things", "q"));
        bench.serve(gone);
        bench.list(gone, 206, vec![object(gone, "q", 204)]);
        settle_at(&mut bench, 210);
        assert_eq!(bench.grants(), NOTHING);
    }
}

#[test]
fn what_is_observed_in_a_resource_that_goes_is_not_looked_for_in_the_other() {
    let mut bench = two();
    bench.seen("things", object("things", "o", 101));
    bench.seen("configmaps", object("configmaps", "a", 102).owned_by("things", "o"));
    unserve(&mut bench, "things");
    settle(&mut bench);
    assert_eq!(bench.grants(), NOTHING);
    assert_eq!(bench.undecided(), [(Undecided::OwnerKindUnresolved, 1)]);
}

#[test]
fn dependents_in_both_are_seen_and_go() {
    let mut bench = two();
    bench.seen("configmaps", object("configmaps", "o", 101));
    for resource in ["things", "objects"] {
        bench.seen(resource, object(resource, resource, 102).owned_by("configmaps", "o"));
    }
    bench.deleted("configmaps", "o", 103);
    assert_eq!(bench.grants(), ["delete(Background) objects", "delete(Background) things"]);
}

#[test]
fn an_owner_in_the_second_waits_in_foreground_for_its_dependents() {
    let mut bench = two();
    bench.seen("configmaps", object("configmaps", "a", 101).blocking("things", "o"));
    bench.seen("objects", object("objects", "o", 102).terminating("foregroundDeletion"));
    settle(&mut bench);
    assert_eq!(bench.grants(), NOTHING);
    bench.deleted("configmaps", "a", 201);
    assert_eq!(bench.grants(), ["remove finalizer foregroundDeletion of o"]);
}

#[test]
fn an_object_of_the_second_that_is_an_owner_too_goes() {
    let mut bench = two();
    bench.seen("configmaps", object("configmaps", "root", 101));
    bench.seen("objects", object("objects", "o", 102).owned_by("configmaps", "root"));
    bench.seen("configmaps", object("configmaps", "a", 103).owned_by("things", "o"));
    bench.deleted("configmaps", "root", 104);
    assert_eq!(bench.grants(), ["delete(Background) o"]);
}

#[test]
fn one_that_cannot_be_listed_does_not_count_beside_one_that_can() {
    for first in [true, false] {
        let mut bench = Bench::bare();
        bench.serve("configmaps");
        bench.list("configmaps", 100, vec![]);
        let read_only = Input::KindServed(ServedKind { access: Access::ReadOnly, ..served("objects") });
        if first {
            bench.input(read_only.clone());
        }
        bench.serve("things");
        bench.list("things", 100, vec![]);
        bench.input(read_only);
        bench.seen("configmaps", object("configmaps", "a", 101).owned_by("things", "o"));
        bench.pass(Duration::from_secs(1));
        bench.found_again("o", FindingResult::Absent(Some(version(105))));
        assert_eq!(bench.grants(), ["delete(Background) a"]);
    }
}

#[test]
fn another_version_of_a_resource_is_the_same_resource() {
    let mut bench = Bench::synced();
    bench.input(Input::KindServed(ServedKind { version: "v2".into(), ..served("things") }));
    bench.seen("configmaps", object("configmaps", "a", 101).owned_by("things", "o"));
    settle(&mut bench);
    assert_eq!(bench.grants(), ["delete(Background) a"]);
}

#[test]
fn a_resource_whose_kind_has_another_name_now_is_no_second_one() {
    let mut bench = Bench::synced();
    bench.input(Input::KindServed(ServedKind { kind: "Widget".into(), ..served("things") }));
    bench.list("things", 110, vec![]);
    bench.serve("objects");
    bench.list("objects", 110, vec![]);
    bench.seen("configmaps", object("configmaps", "a", 111).owned_by("things", "o"));
    settle(&mut bench);
    assert_eq!(bench.grants(), ["delete(Background) a"]);
}
