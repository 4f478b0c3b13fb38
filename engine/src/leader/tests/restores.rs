//! A store that was restored from a backup, with its revisions set back or raised past all earlier revisions.

use super::*;

const BUMPED: u64 = 1_000_000_110;

pub(super) fn rewinds(bench: &Bench) -> usize {
    bench.events.iter().filter(|event| matches!(event, Event::Rewound { .. })).count()
}

/// Answers every question at this position for this number of five-second intervals.
pub(super) fn answered(bench: &mut Bench, times: usize, position: u64) {
    for _ in 0..times {
        bench.pass(Duration::from_secs(5));
        bench.answer_probes(position, &[]);
    }
}

pub(super) fn breaks(bench: &mut Bench, resource: &str) {
    bench.input(Input::WatchLost {
        collection: collection(resource),
        end: WatchEnd::Transport,
        error: "reset".to_string(),
    });
}

/// Creates `things/o`, deleted at 103, and its dependent `configmaps/a`. Nothing is granted yet.
fn owner_gone() -> Bench {
    let mut bench = Bench::synced();
    bench.seen("things", object("things", "o", 101));
    bench.seen("configmaps", object("configmaps", "a", 102).owned_by("things", "o"));
    breaks(&mut bench, "nodes");
    bench.deleted("things", "o", 103);
    assert_eq!(bench.grants(), NOTHING);
    bench
}

#[test]
fn a_store_that_leaps_ahead_was_restored_and_bumped() {
    let mut bench = owner_gone();
    bench.answer_probes(BUMPED, &[]);
    assert_eq!(rewinds(&bench), 1);
    bench.pass(Duration::from_secs(10));
    assert_eq!(bench.grants(), NOTHING, "o may be back");
    bench.list("nodes", BUMPED, vec![]);
    bench.list("configmaps", BUMPED, vec![object("configmaps", "a", 80).owned_by("things", "o")]);
    bench.list("things", BUMPED, vec![object("things", "o", 70)]);
    answered(&mut bench, 12, BUMPED);
    assert_eq!((bench.grants(), bench.leader.queries().status().stopped), (vec![], None));
    assert_eq!(rewinds(&bench), 1, "the new history is the known one now");
}

#[test]
fn reads_agree_for_a_minute_however_often_the_store_goes_back() {
    let mut bench = Bench::synced();
    // Each time, the collections are listed before the first read of the time before.
    for position in [95, 90, 85] {
        bench.bookmark("nodes", position - 3);
        for resource in ["nodes", "things", "configmaps"] {
            bench.list(resource, position, vec![]);
        }
        bench.pass(Duration::from_secs(1));
    }
    assert_eq!(rewinds(&bench), 3);
    for second in 2..60 {
        assert!(bench.leader.queries().status().stopped.is_some(), "after {second} seconds");
        bench.pass(Duration::from_secs(1));
        bench.answer_probes(86, &[]);
    }
    bench.pass(Duration::from_secs(1));
    bench.answer_probes(86, &[]);
    assert_eq!(bench.leader.queries().status().stopped, None);
}

#[test]
fn every_answer_may_be_the_one_that_shows_the_leap() {
    let leaps: [fn(&mut Bench); 4] = [
        |bench| bench.bookmark("nodes", BUMPED),
        |bench| bench.list("nodes", BUMPED, vec![]),
        |bench| {
            bench.seen("configmaps", object("configmaps", "b", 104).owned_by("things", "nobody"));
            bench.pass(Duration::from_secs(1));
            bench.found("nobody", FindingResult::Absent(Some(version(BUMPED))));
            // An answer about one name may come from one outdated server. The position of the store confirms or ends
            // the stop of grants.
            assert!(bench.leader.queries().status().stopped.is_some());
            bench.answer_probes(BUMPED, &[]);
        },
        |bench| {
            bench.seen("things", object("things", "x", 104).terminating("orphan"));
            bench.pass(Duration::from_secs(1));
            bench.answer_probes(BUMPED, &[]);
        },
    ];
    for (at, leap) in leaps.into_iter().enumerate() {
        let mut bench = Bench::synced();
        leap(&mut bench);
        assert_eq!(rewinds(&bench), 1, "case {at}");
    }
}

#[test]
fn a_day_of_writes_is_no_leap() {
    let mut bench = Bench::synced();
    bench.pass(Duration::from_secs(86_400));
    bench.bookmark("nodes", 100 + 86_400 * 20_000);
    assert_eq!(rewinds(&bench), 0);
}

#[test]
fn the_collection_that_was_seen_furthest_says_where_the_store_stands() {
    let mut bench = owner_gone();
    let asked: Vec<GroupResource> = bench.probes.iter().map(|probe| probe.collection.clone()).collect();
    assert!(asked.contains(&collection("configmaps")), "nodes were seen at 100 alone: {asked:?}");
    // The answer of a quiet collection proves nothing about losses of the others.
    bench.answer_probes(101, &[]);
    assert_eq!(rewinds(&bench), 1);
}

#[test]
fn what_rests_on_a_collection_that_cannot_say_where_it_stands_waits_alone() {
    let mut bench = Bench::synced();
    bench.seen("things", object("things", "o", 101));
    bench.seen("configmaps", object("configmaps", "a", 102).owned_by("things", "o"));
    bench.seen("nodes", object("nodes", "n", 102));
    bench.seen("nodes", object("nodes", "m", 103).owned_by("nodes", "n"));
    breaks(&mut bench, "configmaps");
    bench.deleted("nodes", "n", 104);
    bench.deleted("things", "o", 105);
    let answer = |bench: &mut Bench, ours: fn(&Probe) -> bool| {
        for probe in core::mem::take(&mut bench.probes) {
            let answer =
                ProbeAnswer { resource_version: version(110), objects: Vec::new(), complete: true, remaining: None };
            let answer = if ours(&probe) { Ok(answer) } else { Err(Failure::transport("broken".to_string())) };
            bench.input(Input::Probed { probe: probe.id, answer });
        }
    };
    for _ in 0..20 {
        answer(&mut bench, |probe| &*probe.collection.resource != "configmaps");
        bench.pass(Duration::from_millis(500));
    }
    assert_eq!(bench.grants(), ["delete(Background) m"], "one broken collection does not hold up the others");
    answer(&mut bench, |_| true);
    bench.pass(Duration::from_secs(1));
    assert_eq!(bench.grants(), ["delete(Background) a"]);
}

#[test]
fn a_connection_that_broke_before_the_term_is_asked_about_all_the_same() {
    let mut bench = Bench::synced();
    bench.input(Input::TermLost { leader_endpoint: String::new() });
    breaks(&mut bench, "things");
    bench.input(Input::TermGained(term(2)));
    assert!(bench.leader.queries().status().stopped.is_some(), "no collection has said where the store stands");
    bench.answer_probes(99, &[]);
    assert_eq!(rewinds(&bench), 1);
}

#[test]
fn a_list_that_ends_past_a_version_it_does_not_show_is_of_another_history() {
    let mut bench = Bench::synced();
    bench.seen("things", object("things", "o", 101));
    bench.seen("configmaps", object("configmaps", "a", 102).owned_by("things", "o"));
    bench.deleted("things", "o", 103);
    let lease = bench.take("a");
    // The answer to the leader's own question is ahead of the watch, as the answer to the write was.
    let known = object("configmaps", "a", 150).terminating("foregroundDeletion").owned_by("things", "o");
    bench.report_with(&lease, |report| {
        report.observed =
            Some(Sighting { uid: known.uid, resource_version: known.resource_version, facts: known.facts });
    });
    bench.pass(Duration::from_secs(2));
    let known = object("configmaps", "a", 150).terminating("foregroundDeletion").owned_by("things", "o");
    let known = Sighting { uid: known.uid, resource_version: known.resource_version, facts: known.facts };
    bench.found("a", FindingResult::Exists(known));
    let restored = || vec![object("configmaps", "a", 102).owned_by("things", "o")];
    bench.list("configmaps", 149, restored());
    assert_eq!(rewinds(&bench), 0, "this list may have been taken before the write");
    bench.list("configmaps", 160, restored());
    assert_eq!(rewinds(&bench), 1);
    bench.list("configmaps", 161, restored());
    assert!(
        !bench.leader.queries().nodes(&uid("a"))[0].facts.terminating,
        "the list that found it out counted for the old history"
    );
}

#[test]
fn a_kind_that_is_not_served_while_the_store_goes_back_is_of_the_new_history_too() {
    let mut bench = Bench::synced();
    bench.seen("configmaps", object("configmaps", "a", 150));
    bench.input(Input::KindUnserved(collection("configmaps")));
    bench.bookmark("nodes", 90);
    assert_eq!(rewinds(&bench), 1);
    bench.serve("configmaps");
    bench.list("configmaps", 95, vec![object("configmaps", "a", 80).owned_by("things", "o")]);
    assert_eq!(bench.leader.queries().nodes(&uid("a"))[0].resource_version(), Some(&version(80)));
}

#[test]
fn a_kind_that_is_served_again_and_stands_before_where_it_was_shows_a_restored_store() {
    let mut bench = Bench::synced();
    bench.seen("configmaps", object("configmaps", "a", 150).owned_by("things", "o"));
    bench.input(Input::KindUnserved(collection("configmaps")));
    bench.serve("configmaps");
    let restored = || vec![object("configmaps", "a", 80)];
    // No other collection was ever seen past 110.
    bench.list("configmaps", 110, restored());
    assert_eq!(rewinds(&bench), 1);
    bench.list("configmaps", 110, restored());
    assert_eq!(bench.leader.queries().nodes(&uid("a"))[0].resource_version(), Some(&version(80)));
    assert_eq!(rewinds(&bench), 1);
}

#[test]
fn dependents_of_a_kind_that_the_new_history_does_not_serve_hold_no_owner() {
    let mut bench = Bench::synced();
    let owner = || object("configmaps", "o", 80).terminating("orphan");
    bench.seen("configmaps", Object { resource_version: version(110), ..owner() });
    bench.seen("things", object("things", "a", 120).owned_by("configmaps", "o"));
    assert_eq!(bench.grants(), ["remove o from a"]);
    bench.bookmark("nodes", 90);
    bench.list("nodes", 95, vec![]);
    bench.list("configmaps", 95, vec![owner()]);
    bench.input(Input::KindUnserved(collection("things")));
    assert_eq!(bench.leader.queries().nodes(&uid("a")).len(), 1, "it may be served again in a moment");
    answered(&mut bench, 14, 96);
    assert_eq!(bench.grants(), ["remove finalizer orphan of o"]);
    assert_eq!(bench.leader.inconsistency(), None);
}

#[test]
fn a_target_found_before_the_version_it_was_known_at_shows_a_restored_store() {
    let mut bench = owner_gone();
    bench.answer_probes(105, &[]);
    // Things were seen further than the collection of the first question, and are asked too.
    bench.answer_probes(105, &[]);
    bench.pass(Duration::from_secs(1));
    let lease = bench.take("a");
    let older = object("configmaps", "a", 60).owned_by("things", "o");
    bench.report_with(&lease, |report| {
        report.outcome = Outcome::Conflict;
        report.observed =
            Some(Sighting { uid: older.uid, resource_version: older.resource_version, facts: older.facts });
    });
    assert_eq!((rewinds(&bench), bench.leader.queries().status().stopped), (0, None), "an executor's word is none");
    bench.found("a", FindingResult::Absent(Some(version(61))));
    assert!(bench.leader.queries().status().stopped.is_some(), "an answer of the API server is");
    bench.answer_probes(61, &[]);
    assert_eq!(rewinds(&bench), 1);
    assert_eq!(bench.leader.queries().executors()[0].untrue_reports, 0, "it was true");
    assert_eq!(bench.leader.inconsistency(), None);
}

#[test]
fn an_owner_that_is_restored_from_an_orphaning_deletion_has_orphaned_no_dependent() {
    let mut bench = Bench::synced();
    bench.seen("things", object("things", "o", 101));
    bench.seen("things", object("things", "o", 120).terminating("orphan"));
    bench.bookmark("nodes", 90);
    let child = || object("configmaps", "a", 80).owned_by("things", "o");
    for (resource, objects) in
        [("nodes", vec![]), ("things", vec![object("things", "o", 70)]), ("configmaps", vec![child()])]
    {
        bench.list(resource, 105, objects);
    }
    answered(&mut bench, 12, 106);
    bench.deleted("things", "o", 107);
    assert_eq!(bench.grants(), ["delete(Background) a"]);
}

#[test]
fn an_orphaning_of_a_lost_history_counts_only_once_the_owner_is_proven_absent() {
    for gone in [false, true] {
        let mut bench = Bench::synced();
        bench.seen("things", object("things", "o", 101).terminating("orphan"));
        if gone {
            bench.deleted("things", "o", 120);
        }
        bench.seen("configmaps", object("configmaps", "a", 121).owned_by("things", "o"));
        assert_eq!(bench.grants(), ["remove o from a"]);
        bench.bookmark("nodes", 90);
        bench.list("nodes", 95, vec![]);
        bench.list("configmaps", 95, vec![object("configmaps", "a", 80).owned_by("things", "o")]);
        bench.input(Input::KindUnserved(collection("things")));
        answered(&mut bench, 14, 96);
        let undecided = vec![(Undecided::OwnerKindUnresolved, 1)];
        assert_eq!((bench.grants(), bench.undecided()), (vec![], undecided), "gone: {gone}");
        // The kind is served again. The owner may exist, and may orphan no dependent.
        bench.serve("things");
        if gone {
            bench.list("things", 97, vec![]);
            bench.pass(Duration::from_secs(1));
            bench.found_again("o", FindingResult::Absent(Some(version(98))));
            assert_eq!(bench.grants(), ["remove o from a"]);
        } else {
            bench.list("things", 97, vec![object("things", "o", 70)]);
            bench.pass(Duration::from_secs(60));
            assert_eq!((bench.grants(), bench.undecided()), (vec![], vec![]));
        }
    }
}

#[test]
fn a_forgotten_orphaning_of_a_lost_history_takes_no_reference_away() {
    let mut bench = Bench::synced();
    bench.seen("things", object("things", "o", 101).terminating("orphan"));
    bench.input(Input::KindUnserved(collection("things")));
    bench.bookmark("nodes", 90);
    bench.list("nodes", 95, vec![]);
    bench.list("configmaps", 95, vec![object("configmaps", "a", 80)]);
    answered(&mut bench, 30, 96);
    assert!(!bench.leader.world.graph().has_orphaned(&uid("o")), "nothing refers to it");
    // In the present history, the owner may exist in the hidden kind, without a deletion mark.
    bench.seen("configmaps", object("configmaps", "a", 97).owned_by("things", "o"));
    assert_eq!(bench.grants(), NOTHING);
    assert_eq!(bench.undecided(), [(Undecided::OwnerKindUnresolved, 1)]);
}

#[test]
fn what_a_collection_showed_in_a_lost_history_counts_for_nothing_while_it_cannot_be_listed() {
    for (stale, undecided, begun) in
        [("things", 2, false), ("things", 2, true), ("configmaps", 1, false), ("configmaps", 1, true)]
    {
        let mut bench = Bench::synced();
        bench.seen("things", object("things", "o", 101));
        bench.seen("configmaps", object("configmaps", "a", 102).owned_by("things", "o"));
        bench.seen("things", object("things", "o", 120).terminating("orphan"));
        let undone = bench.take("a");
        assert_eq!(describe(&undone), "remove o from a");
        if begun {
            // The list fails after the store went back.
            bench.input(Input::ListBegun { collection: collection(stale), selectors: 0 });
        }
        bench.bookmark("nodes", 90);
        let now = [
            ("nodes", vec![]),
            ("things", vec![object("things", "o", 70)]),
            ("configmaps", vec![object("configmaps", "a", 80).owned_by("things", "o")]),
        ];
        for (resource, objects) in now.clone().into_iter().filter(|(resource, _)| *resource != stale) {
            bench.list(resource, 95, objects);
        }
        bench.input(Input::ListFailed { collection: collection(stale), error: "403".to_string(), broke: false });
        answered(&mut bench, 14, 96);
        assert_eq!(bench.leader.queries().status().stopped, None, "one collection does not stop the others");
        let undecided = vec![(Undecided::CollectionUnsynced, undecided)];
        assert_eq!((bench.grants(), bench.undecided()), (vec![], undecided), "{stale}");
        for (resource, objects) in now.into_iter().filter(|(resource, _)| *resource == stale) {
            bench.list(resource, 97, objects);
        }
        assert_eq!((bench.grants(), bench.undecided()), (vec![], vec![]), "o is not in deletion: {stale}");
        bench.deleted("things", "o", 98);
        assert_eq!(bench.grants(), ["delete(Background) a"]);
    }
}

#[test]
fn what_rests_on_a_kind_that_ceases_to_be_served_waits_where_the_store_may_have_gone_back() {
    for (lost_first, stands_at, goes) in
        [(true, 120, false), (false, 120, false), (true, 500, true), (false, 600, true)]
    {
        let mut bench = Bench::without_executor();
        for resource in ["configmaps", "nodes", "things"] {
            bench.serve(resource);
            bench.list(resource, 100, vec![]);
        }
        bench.seen("things", object("things", "o", 101));
        bench.seen("configmaps", object("configmaps", "a", 102).owned_by("things", "o"));
        bench.deleted("things", "o", 500);
        if lost_first {
            breaks(&mut bench, "things");
        }
        bench.input(Input::KindUnserved(collection("things")));
        if !lost_first {
            breaks(&mut bench, "nodes");
        }
        for _ in 0..10 {
            for probe in core::mem::take(&mut bench.probes) {
                let answer = ProbeAnswer {
                    resource_version: version(stands_at),
                    objects: vec![],
                    complete: true,
                    remaining: None,
                };
                let served = probe.collection != collection("things");
                bench.input(Input::Probed {
                    probe: probe.id,
                    answer: served.then_some(answer).ok_or(Failure::transport("404".to_string())),
                });
            }
            bench.pass(Duration::from_secs(1));
        }
        assert_eq!((rewinds(&bench), bench.leader.queries().status().stopped.clone()), (0, None));
        bench.hello(STREAM, hello("e1", "i1"));
        bench.pass(Duration::from_secs(1));
        let expected: &[&str] = if goes { &["delete(Background) a"] } else { &[] };
        assert_eq!(bench.grants(), expected, "{lost_first} {stands_at}");
        if !goes {
            // The kind is served again, and its list decides.
            bench.serve("things");
            bench.list("things", 125, vec![object("things", "o", 101)]);
            assert_eq!(rewinds(&bench), 1);
        }
    }
}

#[test]
fn a_restored_main_store_has_everything_listed_anew_and_one_behind_an_apiservice_only_itself() {
    for (went_back, relisted) in
        [("nodes", &["configmaps", "nodes", "things", "remotes"][..]), ("remotes", &["remotes"][..])]
    {
        let mut bench = Bench::synced();
        bench.serve("remotes");
        bench.list("remotes", 100, vec![]);
        bench.relists.clear();
        bench.bookmark(went_back, 90);
        bench.relists.sort();
        let relisted: Vec<_> = relisted.iter().map(|resource| collection(resource)).collect();
        assert_eq!(bench.relists, relisted);
    }
}

#[test]
fn a_list_that_the_watch_has_overtaken_shows_no_restored_store() {
    let mut bench = Bench::synced();
    bench.pass(Duration::from_secs(1));
    let a = object("configmaps", "a", 102).owned_by("things", "o");
    bench.seen("things", object("things", "o", 101));
    bench.seen("configmaps", a.clone());
    bench.seen("things", object("things", "o", 103).terminating("orphan"));
    let others = [("configmaps", a.clone()), ("configmaps", object("configmaps", "b", 90))];
    // Only the position for configmaps is unknown, so their namespace is listed, whatever their watch shows.
    for probe in bench.other_probes() {
        let (resource_version, objects) = (version(105), Vec::new());
        let answer = match probe.collection == collection("configmaps") {
            true => Err(Failure::transport("503".to_string())),
            false => Ok(ProbeAnswer { resource_version, objects, complete: true, remaining: None }),
        };
        bench.input(Input::Probed { probe: probe.id, answer });
    }
    // During the list of the namespace, a is deleted, and its collection is listed again.
    bench.deleted("configmaps", "a", 106);
    bench.input(Input::ListBegun { collection: collection("configmaps"), selectors: 0 });
    bench.answer_probes(105, &others);
    assert_eq!((rewinds(&bench), bench.grants()), (0, vec!["remove o from a".to_string()]), "decided before it went");
    // The other objects of such a list may be as old, so the list is requested again.
    bench.pass(Duration::from_secs(2));
    bench.answer_probes(107, &[]);
    assert_eq!((rewinds(&bench), bench.grants()), (0, vec!["remove finalizer orphan of o".to_string()]));
}

#[test]
fn a_report_to_the_leader_of_a_lost_history_answers_nothing_in_the_one_that_got_its_term_again() {
    let deletes = |seed| {
        let mut bench = Bench::of_process(seed);
        bench.hello(STREAM, hello("e1", "i1"));
        for resource in ["configmaps", "things"] {
            bench.serve(resource);
            bench.list(resource, 100, vec![]);
        }
        bench.seen("things", object("things", "o", 101));
        bench.seen("configmaps", object("configmaps", "a", 102).owned_by("things", "o"));
        bench.deleted("things", "o", 103);
        let lease = bench.take("a");
        (bench, lease)
    };
    let (_, lost) = deletes(7 << 40);
    let (mut bench, lease) = deletes(8 << 40);
    assert_eq!((&lost.term, lost.item.id), (&lease.term, lease.item.id));
    bench.report(&lost, Outcome::Transient);
    bench.pass(Duration::from_secs(5));
    assert_eq!(bench.grants(), NOTHING, "it is still out");
    bench.report(&lease, Outcome::Transient);
    bench.pass(Duration::from_secs(5));
    assert_eq!(bench.grants(), ["delete(Background) a"]);
}

#[test]
fn a_store_that_stands_before_what_only_a_kind_that_went_had_shown_went_back() {
    let mut bench = Bench::synced();
    bench.seen("configmaps", object("configmaps", "a", 101).owned_by("things", "o"));
    bench.pass(Duration::from_secs(1));
    bench.found("o", FindingResult::Absent(Some(version(5_000))));
    bench.input(Input::KindUnserved(collection("things")));
    // A restored store continues from an earlier state, and the watches are just as far.
    bench.seen("nodes", object("nodes", "n", 111).terminating("orphan"));
    for at in 112..172 {
        bench.answer_probes(at, &[]);
        bench.pass(Duration::from_secs(1));
    }
    assert!(bench.events.iter().any(|event| matches!(event, Event::Rewound { .. })), "{:?}", bench.events);
    for resource in ["configmaps", "nodes"] {
        bench.list(resource, 180, vec![]);
    }
    for at in 180..300 {
        bench.answer_probes(at, &[]);
        bench.pass(Duration::from_secs(1));
    }
    bench.seen("nodes", object("nodes", "m", 301).terminating("orphan"));
    for at in 302..310 {
        bench.answer_probes(at, &[]);
        bench.pass(Duration::from_secs(1));
    }
    assert_eq!(bench.grants(), ["remove finalizer orphan of m"]);
}

#[test]
fn what_orphans_again_in_the_present_history_does_so_under_every_group() {
    let mut bench = Bench::synced();
    let dependent = |at: u64| object("configmaps", "a", at).owned_by("mirrors", "o");
    bench.seen("things", object("things", "o", 101).terminating("orphan"));
    bench.seen("configmaps", dependent(102));
    let stripping = bench.take("a");
    bench.report(&stripping, Outcome::Done);
    bench.seen("configmaps", object("configmaps", "a", 103));
    breaks(&mut bench, "nodes");
    bench.answer_probes(BUMPED, &[]);
    assert_eq!(rewinds(&bench), 1);
    bench.granted.clear();
    bench.list("nodes", BUMPED, vec![]);
    // The dependent is shown first, while no fact of the current history says that its owner orphans it.
    bench.list("configmaps", BUMPED, vec![dependent(80)]);
    bench.list("things", BUMPED, vec![object("things", "o", 70).terminating("orphan")]);
    answered(&mut bench, 12, BUMPED);
    assert_eq!(bench.grants(), ["remove o from a"]);
}

#[test]
fn a_server_from_the_past_takes_no_orphaning_back() {
    for ends in [None, Some("orphan"), Some("foregroundDeletion")] {
        let mut bench = Bench::synced();
        let child = || object("configmaps", "a", 102).owned_by("things", "o");
        bench.seen("things", object("things", "o", 101));
        bench.seen("configmaps", child());
        bench.seen("things", object("things", "o", 110).terminating("orphan"));
        bench.deleted("things", "o", 120);
        assert_eq!(bench.grants(), ["remove o from a"]);
        // This server answers every list. The store seems to be rewound to before the deletion.
        bench.bookmark("nodes", 90);
        let then = [("nodes", vec![]), ("things", vec![object("things", "o", 101)]), ("configmaps", vec![child()])];
        for (resource, objects) in then {
            bench.list(resource, 105, objects);
        }
        for _ in 0..12 {
            bench.pass(Duration::from_secs(5));
            bench.answer_probes(106, &[("things", object("things", "o", 101)), ("configmaps", child())]);
        }
        match ends {
            // The other servers answer again.
            None => bench.list("things", 130, vec![]),
            Some(finalizer) => {
                bench.seen("things", object("things", "o", 129).terminating(finalizer));
                bench.input(Input::Deleted {
                    collection: collection("things"),
                    object: object("things", "o", 130).terminating(finalizer),
                });
            }
        }
        for _ in 0..20 {
            bench.found_if_asked("o", &FindingResult::Absent(Some(version(131))));
            bench.answer_probes(131, &[("configmaps", child())]);
            bench.pass(Duration::from_secs(1));
        }
        let grants = bench.grants();
        let is_deletion = |grant: &String| grant == "delete(Background) a";
        match ends {
            Some("foregroundDeletion") => assert!(grants.iter().any(is_deletion), "{grants:?}"),
            _ => assert!(
                !grants.is_empty() && grants.iter().all(|grant| grant == "remove o from a"),
                "{ends:?}: {grants:?}"
            ),
        }
    }
}

#[test]
fn a_kind_that_is_only_asked_says_where_the_main_store_stands_after_it_went_back() {
    let mut bench = Bench::synced();
    bench.input(Input::KindServed(ServedKind { access: Access::Listed, ..served("mirrors") }));
    bench.bookmark("nodes", 90);
    for resource in ["nodes", "things", "configmaps"] {
        bench.list(resource, 95, vec![]);
    }
    bench.seen("configmaps", object("configmaps", "a", 96).owned_by("mirrors", "o"));
    answered(&mut bench, 14, 96);
    assert_eq!(bench.leader.queries().status().stopped, None);
    bench.found("o", FindingResult::Absent(Some(version(120))));
    // The store is rewound again, to before all known positions.
    let before = rewinds(&bench);
    bench.seen("configmaps", object("configmaps", "b", 97).owned_by("mirrors", "p"));
    bench.pass(Duration::from_secs(1));
    bench.found("p", FindingResult::Absent(Some(version(100))));
    for _ in 0..10 {
        bench.answer_probes(101, &[]);
        bench.pass(Duration::from_secs(1));
    }
    assert_eq!(rewinds(&bench), before + 1);
}
