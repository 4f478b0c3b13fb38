//! Changes between a question and its answer, or between a decision and its report.

use super::*;

#[test]
fn a_watch_that_moves_on_while_the_store_is_asked_is_no_rewind() {
    let mut bench = Bench::synced();
    let lost = Input::WatchLost {
        collection: collection("nodes"),
        end: WatchEnd::Transport,
        error: "connection reset".to_string(),
    };
    bench.input(lost);
    for resource in ["configmaps", "nodes", "things"] {
        bench.seen(resource, object(resource, "x", 105));
    }
    bench.answer_probes(103, &[]);
    assert!(bench.events.contains(&Event::GrantsResumed));
    assert!(!bench.events.iter().any(|event| matches!(event, Event::Rewound { .. })));
}

#[test]
fn a_kind_that_comes_during_a_round_is_part_of_the_next() {
    let mut bench = Bench::bare();
    for resource in ["nodes", "things"] {
        bench.serve(resource);
        bench.list(resource, 100, vec![]);
    }
    bench.pass(Duration::from_secs(1));
    bench.seen("things", object("things", "o", 101).terminating("orphan"));
    bench.serve("configmaps");
    bench.answer_probes(102, &[]);
    assert_eq!(bench.grants(), NOTHING, "configmaps have not been asked");
    bench.pass(Duration::from_secs(1));
    bench.answer_probes(103, &[("configmaps", object("configmaps", "a", 90).owned_by("things", "o"))]);
    assert_eq!(bench.grants(), ["remove o from a"]);
}

/// Creates a bench with two listed collections, and the first list of configmaps in progress.
fn while_configmaps_are_listed() -> Bench {
    let mut bench = Bench::bare();
    for resource in ["nodes", "things"] {
        bench.serve(resource);
        bench.list(resource, 100, vec![]);
    }
    bench.serve("configmaps");
    bench.input(Input::ListBegun { collection: collection("configmaps"), selectors: 0 });
    bench.pass(Duration::from_secs(1));
    bench
}

#[test]
fn what_a_probe_shows_while_a_list_is_under_way_is_not_of_that_list() {
    for after_a_failure in [false, true] {
        let mut bench = while_configmaps_are_listed();
        let collection = || collection("configmaps");
        if after_a_failure {
            bench.input(Input::ListFailed { collection: collection(), error: "500".to_string(), broke: false });
            bench.input(Input::ListBegun { collection: collection(), selectors: 0 });
        }
        bench.seen("things", object("things", "o", 101).terminating("orphan"));
        bench.answer_probes(103, &[("configmaps", object("configmaps", "a", 90).owned_by("things", "o"))]);
        assert_eq!(bench.leader.queries().nodes(&uid("a")).len(), 1);
        // The list was taken after the deletion and does not show the object. No DELETED event follows.
        bench.input(Input::ListEnded { collection: collection(), resource_version: version(110) });
        assert_eq!(bench.leader.queries().nodes(&uid("a")), [], "it would be a ghost for ever");
    }
}

#[test]
fn a_list_that_is_overtaken_by_a_probe_takes_nothing_out_that_came_after_it() {
    let mut bench = while_configmaps_are_listed();
    bench.seen("things", object("things", "o", 105).terminating("orphan"));
    bench.answer_probes(107, &[("configmaps", object("configmaps", "a", 104).owned_by("things", "o"))]);
    let stripping = bench.take("a");
    // The server took the list before the dependent was created, and the list took a long time.
    bench.input(Input::ListEnded { collection: collection("configmaps"), resource_version: version(102) });
    assert_eq!(bench.leader.queries().nodes(&uid("a")).len(), 1);
    assert_eq!(bench.grants(), NOTHING, "a still refers to o");
    bench.deleted("configmaps", "a", 108);
    bench.report(&stripping, Outcome::Gone);
    assert_eq!(bench.grants(), ["remove finalizer orphan of o"]);
}

#[test]
fn nothing_is_due_while_the_barrier_waits_for_the_store() {
    let mut bench = Bench::synced();
    bench.pass(Duration::from_secs(1));
    let lost = Input::WatchLost {
        collection: collection("nodes"),
        end: WatchEnd::Transport,
        error: "connection reset".to_string(),
    };
    bench.input(lost);
    bench.seen("things", object("things", "o", 101).terminating("orphan"));
    bench.now = bench.now + Duration::from_secs(1);
    bench.leader.tick(bench.now);
    bench.drain();
    assert!(bench.leader.next_deadline().is_none_or(|at| at > bench.now), "a driver would run in circles");
}

#[test]
fn a_cluster_scoped_dependent_stays_when_the_kind_of_its_namespaced_owner_goes() {
    let mut bench = Bench::synced();
    bench.seen("nodes", object("nodes", "n", 101).owned_by("things", "o"));
    for standing in [true, false] {
        let (group, kind) = ("example.com".into(), "Thing".into());
        bench.input(Input::KindEmptied { group, kind, crd: uid("crd"), standing });
    }
    bench.input(Input::KindUnserved(collection("things")));
    bench.pass(Duration::from_secs(600));
    assert_eq!(bench.grants(), NOTHING);
}

#[test]
fn a_late_dependent_of_an_owner_that_nothing_referred_to_is_found_by_the_second_round() {
    let mut bench = Bench::synced();
    bench.pass(Duration::from_secs(1));
    bench.seen("things", object("things", "o", 101).terminating("orphan"));
    bench.answer_probes(102, &[]);
    let lease = bench.take("o");
    bench.report(&lease, Outcome::Done);
    let lost =
        Input::WatchLost { collection: collection("configmaps"), end: WatchEnd::Refused, error: "ended".to_string() };
    bench.input(lost);
    bench.deleted("things", "o", 103);
    bench.answer_probes(105, &[("configmaps", object("configmaps", "late", 104).owned_by("things", "o"))]);
    let lease = bench.take("late");
    assert_eq!(describe(&lease), "remove o from late");
}

#[test]
fn what_is_known_of_an_owner_outlives_a_new_scope_of_another() {
    let mut bench = Bench::bare();
    bench.serve("configmaps");
    bench.serve("nodes");
    bench.list("nodes", 100, vec![]);
    let child = object("configmaps", "a", 90).owned_by("nodes", "n").owned_by("things", "o");
    bench.list("configmaps", 100, vec![child]);
    bench.pass(Duration::from_secs(1));
    let found = Sighting { uid: uid("n"), resource_version: version(101), facts: Facts::default() };
    bench.found("n", FindingResult::Exists(found));
    bench.serve("things");
    bench.list("things", 100, vec![]);
    bench.pass(Duration::from_secs(1));
    bench.found_again("o", FindingResult::Absent(Some(version(101))));
    assert_eq!(bench.grants(), ["remove o from a"], "n is as solid as before");
}

#[test]
fn an_owner_that_a_check_missed_is_asked_for_in_its_own_order() {
    let mut bench = Bench::synced();
    bench.serve("remotes");
    bench.list("remotes", 100, vec![object("remotes", "o", 90)]);
    bench.seen("configmaps", object("configmaps", "a", 101).blocking("remotes", "o"));
    bench.seen("remotes", object("remotes", "o", 101).terminating("foregroundDeletion"));
    let delete = bench.take("a");
    bench.deleted("remotes", "o", 102);
    let Action::Delete { owner_checks, .. } = &delete.item.action else { panic!("a is to be deleted") };
    let owner = owner_checks[0].clone();
    bench.report_with(&delete, |report| {
        report.outcome = Outcome::Conflict;
        report.findings = vec![Finding { owner, result: CheckResult::Absent }];
    });
    // The read after DELETED is in progress all the time, and is enough.
    bench.found("o", FindingResult::Absent(None));
    bench.pass(Duration::from_secs(1));
    assert_eq!(bench.grants(), ["delete(Background) a"]);
}

#[test]
fn a_question_that_gave_way_to_a_decision_is_asked_when_that_is_taken_back() {
    let mut bench = Bench::without_executor();
    for resource in ["configmaps", "nodes", "things"] {
        bench.serve(resource);
        bench.list(resource, 100, vec![]);
    }
    bench.seen("things", object("things", "o", 101));
    let mut child = object("configmaps", "a", 102).owned_by("things", "o");
    child.facts.owners[0].name = "elsewhere".into();
    bench.seen("configmaps", child);
    bench.pass(Duration::from_secs(1));
    // The same uid is to be deleted now, and then not.
    bench.seen("things", object("things", "p", 103).terminating("foregroundDeletion"));
    bench.seen("things", object("things", "o", 104).owned_by("things", "p"));
    bench.seen("things", object("things", "o", 105));
    bench.hello(STREAM, hello("e1", "i1"));
    assert!(bench.questions().contains(&"elsewhere by List".to_string()));
}

#[test]
fn a_decision_about_an_object_that_went_gives_way_to_the_question_about_it() {
    let mut bench = Bench::synced();
    bench.seen("things", object("things", "p", 101).terminating("foregroundDeletion"));
    bench.seen("things", object("things", "o", 102).owned_by("things", "p"));
    let delete = bench.take("o");
    bench.granted.clear();
    bench.deleted("things", "o", 103);
    bench.seen("configmaps", object("configmaps", "a", 104).owned_by("things", "o"));
    bench.pass(Duration::from_secs(1));
    bench.report(&delete, Outcome::Conflict);
    bench.pass(Duration::from_secs(1));
    assert_eq!((bench.grants(), bench.questions()), (vec![], vec!["o by List".to_string()]));
}

#[test]
fn an_orphaning_deletion_that_may_be_a_second_one_has_a_barrier_of_its_own() {
    let mut bench = Bench::synced();
    bench.seen("things", object("things", "o", 101).terminating("orphan"));
    bench.pass(Duration::from_secs(1));
    bench.answer_probes(101, &[]);
    let lease = bench.take("o");
    bench.report(&lease, Outcome::Transient);
    // The watch is broken, and a list skips the changes: a foreground deletion, a dependent, and this deletion.
    bench.list("things", 110, vec![object("things", "o", 109).terminating("orphan")]);
    bench.pass(Duration::from_secs(5));
    assert_eq!(bench.grants(), NOTHING);
    bench.answer_probes(110, &[("configmaps", object("configmaps", "a", 105).owned_by("things", "o"))]);
    assert_eq!(bench.grants(), ["remove o from a"]);
}

#[test]
fn a_second_orphaning_deletion_has_a_barrier_of_its_own() {
    let mut bench = Bench::synced();
    bench.pass(Duration::from_secs(1));
    bench.seen("things", object("things", "o", 101).terminating("orphan"));
    bench.answer_probes(102, &[]);
    assert_eq!(bench.grants(), ["remove finalizer orphan of o"]);
    bench.seen("things", object("things", "o", 103).terminating("foregroundDeletion"));
    bench.seen("things", object("things", "o", 104).terminating("orphan"));
    assert!(!bench.probes.is_empty(), "what came while it was in foreground deletion may not have been shown yet");
}

#[test]
fn a_read_from_before_its_deleted_does_not_bring_an_owner_back() {
    let mut bench = Bench::synced();
    bench.seen("things", object("things", "o", 101));
    bench.seen("configmaps", object("configmaps", "a", 102).blocking("things", "o"));
    bench.seen("things", object("things", "o", 103).terminating("foregroundDeletion"));
    let delete = bench.take("a");
    let Action::Delete { owner_checks, .. } = &delete.item.action else { panic!("a is to be deleted") };
    let owner = owner_checks[0].clone();
    bench.deleted("things", "o", 105);
    bench.report_with(&delete, |report| {
        report.outcome = Outcome::OwnerExists;
        let facts = Facts { terminating: true, ..Facts::default() };
        let seen = Sighting { uid: uid("o"), resource_version: version(104), facts };
        report.findings = vec![Finding { owner, result: CheckResult::Exists(seen) }];
    });
    assert_eq!(bench.grants(), ["delete(Background) a"], "its owner is absent for ever");
}

#[test]
fn an_object_that_is_not_judged_gets_no_grant_by_its_earlier_verdict() {
    let mut bench = Bench::synced();
    bench.input(Input::Message { stream: STREAM, message: ToLeader::Window { max_outstanding: 0 } });
    bench.seen("configmaps", object("configmaps", "c", 101).owned_by("things", "o"));
    bench.pass(Duration::from_millis(300));
    bench.seen("things", object("things", "o", 102).terminating("foregroundDeletion"));
    bench.deleted("configmaps", "c", 103);
    bench.pass(Duration::from_millis(300));
    bench.found("o", FindingResult::Absent(Some(version(104))));
    bench.seen("configmaps", object("configmaps", "b", 105).blocking("things", "o"));
    bench.input(Input::Message { stream: STREAM, message: ToLeader::Window { max_outstanding: 100 } });
    bench.pass(Duration::from_millis(300));
    let grants = bench.grants();
    assert!(!grants.iter().any(|grant| grant.starts_with("remove finalizer")), "{grants:?}");
}
