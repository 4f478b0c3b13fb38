//! The conditions under which an owner counts as absent.

use super::*;

fn orphaned_child(bench: &mut Bench) {
    bench.seen("configmaps", object("configmaps", "a", 101).owned_by("things", "o"));
}

#[test]
fn an_owner_that_no_list_shows_is_checked_by_list_before_it_is_absent() {
    let mut bench = Bench::synced();
    orphaned_child(&mut bench);
    bench.pass(Duration::from_millis(249));
    assert_eq!(bench.grants(), NOTHING, "its own event may be just behind");
    bench.pass(Duration::from_millis(1));
    assert_eq!(bench.undecided(), [(Undecided::OwnerUnverified, 1)]);
    bench.found_again("o", FindingResult::Absent(Some(version(105))));
    assert_eq!(bench.grants(), ["delete(Background) a"]);
}

#[test]
fn the_owners_event_just_behind_its_dependents_costs_nothing() {
    let mut bench = Bench::synced();
    orphaned_child(&mut bench);
    bench.seen("things", object("things", "o", 100));
    bench.pass(Duration::from_secs(600));
    assert_eq!(bench.grants(), NOTHING);
}

#[test]
fn no_404_is_proof() {
    for result in
        [FindingResult::KindUnresolved, FindingResult::Forbidden, FindingResult::Failed, FindingResult::Absent(None)]
    {
        let mut bench = Bench::synced();
        orphaned_child(&mut bench);
        for _ in 0..50 {
            bench.pass(Duration::from_secs(10));
            bench.answer_probes(105, &[]);
            assert_eq!(bench.grants(), NOTHING, "after {result:?}");
            bench.found("o", result.clone());
        }
        assert_eq!(bench.leader.queries().status().undecided.len(), 1);
    }
}

#[test]
fn a_list_from_before_what_the_watch_has_shown_is_not_believed() {
    let mut bench = Bench::synced();
    orphaned_child(&mut bench);
    bench.bookmark("things", 200);
    bench.pass(Duration::from_secs(1));
    bench.found("o", FindingResult::Absent(Some(version(199))));
    for _ in 0..4 {
        bench.pass(Duration::from_secs(1));
        bench.answer_probes(200, &[]);
    }
    assert_eq!((bench.grants(), bench.questions()), (vec![], vec!["o by List".to_string()]));
}

#[test]
fn a_namesake_of_another_uid_proves_absence_and_is_left_alone() {
    let mut bench = Bench::synced();
    bench.seen("things", Object { uid: uid("o2"), ..object("things", "o", 101) });
    bench.seen("configmaps", object("configmaps", "a", 102).owned_by("things", "o"));
    bench.pass(Duration::from_secs(1));
    bench.found_again("o", FindingResult::OtherUid(Some(version(105))));
    assert_eq!(bench.grants(), ["delete(Background) a"]);
}

#[test]
fn an_owner_found_by_a_question_keeps_and_is_asked_again_later() {
    let mut bench = Bench::synced();
    orphaned_child(&mut bench);
    bench.pass(Duration::from_secs(1));
    let sighting = Sighting { uid: uid("o"), resource_version: version(103), facts: Facts::default() };
    bench.found("o", FindingResult::Exists(sighting));
    assert_eq!(bench.undecided(), []);
    bench.pass(Duration::from_secs(4));
    assert_eq!(bench.grants(), NOTHING);
    bench.pass(Duration::from_secs(2));
    for at in [110, 111, 111] {
        assert_eq!(bench.grants(), NOTHING);
        bench.pass(Duration::from_secs(5));
        bench.found("o", FindingResult::Absent(Some(version(at))));
    }
    assert_eq!(bench.grants(), ["delete(Background) a"]);
}

#[test]
fn nothing_is_decided_from_a_collection_that_is_not_complete() {
    let mut bench = Bench::bare();
    bench.serve("configmaps");
    bench.serve("things");
    bench.list("configmaps", 100, vec![object("configmaps", "a", 50).owned_by("things", "o")]);
    bench.pass(Duration::from_secs(600));
    assert_eq!(bench.grants(), NOTHING);
    assert_eq!(bench.undecided(), [(Undecided::CollectionUnsynced, 1)]);
    bench.list("things", 101, vec![object("things", "o", 40)]);
    bench.pass(Duration::from_secs(600));
    assert_eq!((bench.grants(), bench.undecided()), (vec![], vec![]));
}

#[test]
fn a_failed_collection_can_still_answer_for_one_name() {
    let mut bench = Bench::bare();
    bench.serve("configmaps");
    bench.serve("things");
    bench.list("configmaps", 100, vec![object("configmaps", "a", 50).owned_by("things", "o")]);
    bench.input(Input::ListFailed { collection: collection("things"), error: "500".to_string(), broke: false });
    for wait in [1, 5] {
        assert_eq!(bench.grants(), NOTHING);
        bench.pass(Duration::from_secs(wait));
        bench.found("o", FindingResult::Absent(Some(version(105))));
    }
    assert_eq!(bench.grants(), ["delete(Background) a"]);
}

#[test]
fn a_kind_that_is_not_served_proves_nothing_until_it_is() {
    let mut bench = Bench::bare();
    bench.serve("configmaps");
    bench.list("configmaps", 100, vec![object("configmaps", "a", 50).owned_by("things", "o")]);
    bench.pass(Duration::from_secs(600));
    assert_eq!(bench.grants(), NOTHING);
    assert_eq!(bench.undecided(), [(Undecided::OwnerKindUnresolved, 1)]);
    assert_eq!(bench.leader.queries().unresolved_kinds(10).len(), 1);
    bench.serve("things");
    bench.list("things", 120, vec![]);
    bench.pass(Duration::from_secs(1));
    bench.found_again("o", FindingResult::Absent(Some(version(121))));
    assert_eq!(bench.grants(), ["delete(Background) a"]);
}

#[test]
fn the_loss_of_a_type_proves_nothing() {
    let mut bench = Bench::synced();
    bench.seen("things", object("things", "o", 101));
    orphaned_child_at(&mut bench, 102);
    bench.input(Input::KindUnserved(collection("things")));
    bench.pass(Duration::from_secs(600));
    assert_eq!(bench.grants(), NOTHING);
    assert_eq!(bench.undecided(), [(Undecided::OwnerKindUnresolved, 1)]);
}

fn orphaned_child_at(bench: &mut Bench, rv: u64) {
    bench.seen("configmaps", object("configmaps", "a", rv).owned_by("things", "o"));
}

#[test]
fn what_a_new_list_lacks_is_asked_for_by_name() {
    let mut bench = Bench::synced();
    bench.seen("things", object("things", "o", 101));
    orphaned_child_at(&mut bench, 102);
    bench.list("things", 110, vec![]);
    assert_eq!((bench.grants(), bench.questions()), (vec![], vec!["o by List".to_string()]));
}

#[test]
fn deleted_from_behind_an_apiservice_needs_a_read_too() {
    let mut bench = Bench::synced();
    bench.serve("remotes");
    bench.list("remotes", 5, vec![object("remotes", "o", 1)]);
    bench.seen("configmaps", object("configmaps", "a", 101).owned_by("remotes", "o"));
    bench.deleted("remotes", "o", 6);
    assert_eq!((bench.grants(), bench.questions()), (vec![], vec!["o by Read".to_string()]));
    bench.found("o", FindingResult::Absent(None));
    assert_eq!(bench.grants(), ["delete(Background) a"]);
}

#[test]
fn a_store_that_goes_back_voids_every_proof() {
    let mut bench = Bench::synced();
    bench.seen("things", object("things", "o", 101));
    orphaned_child_at(&mut bench, 102);
    bench.deleted("things", "o", 103);
    let lease = bench.take("a");
    bench.bookmark("nodes", 90);
    assert!(bench.events.iter().any(|event| matches!(event, Event::Rewound { .. })));
    assert_eq!(bench.relists.len(), 3);
    let stop = bench.sent.iter().any(|(_, message)| {
        matches!(message, ToExecutor::Revoke { leases, mode: RevokeMode::Stop, .. } if leases.contains(&lease.id))
    });
    assert!(stop, "what is out is stopped");
    bench.pass(Duration::from_secs(5));
    assert_eq!(bench.grants(), NOTHING);
    for resource in ["nodes", "things"] {
        let objects = if resource == "things" { vec![object("things", "o", 80)] } else { vec![] };
        bench.list(resource, 91, objects);
    }
    assert!(bench.leader.queries().status().stopped.is_some());
    bench.list("configmaps", 92, vec![object("configmaps", "a", 85).owned_by("things", "o")]);
    for _ in 0..12 {
        bench.pass(Duration::from_secs(5));
        assert!(bench.leader.queries().status().stopped.is_some(), "a minute of reads has to fit together");
        bench.answer_probes(95, &[]);
    }
    bench.pass(Duration::from_secs(600));
    assert_eq!((bench.grants(), bench.leader.queries().status().stopped), (vec![], None), "o is back, and so a stays");
}

#[test]
fn after_a_broken_connection_nothing_is_granted_until_the_store_has_said_where_it_stands() {
    let mut bench = Bench::synced();
    bench.seen("things", object("things", "o", 101));
    orphaned_child_at(&mut bench, 102);
    bench.input(Input::WatchLost {
        collection: collection("nodes"),
        end: WatchEnd::Transport,
        error: "reset".to_string(),
    });
    bench.deleted("things", "o", 103);
    assert_eq!(bench.grants(), NOTHING);
    let probe = bench.probes.pop().unwrap();
    bench.input(Input::Probed { probe: probe.id, answer: Err(Failure::transport("refused".to_string())) });
    assert_eq!(bench.grants(), NOTHING);
    bench.pass(Duration::from_secs(1));
    bench.answer_probes(104, &[]);
    assert_eq!(bench.grants(), ["delete(Background) a"]);
}

#[test]
fn a_store_that_stands_before_what_was_seen_is_a_rewind() {
    let mut bench = Bench::synced();
    bench.input(Input::WatchLost {
        collection: collection("nodes"),
        end: WatchEnd::Transport,
        error: "reset".to_string(),
    });
    bench.answer_probes(99, &[]);
    assert!(bench.events.iter().any(|event| matches!(event, Event::Rewound { .. })));
    let resumed = bench.events.iter().any(|event| matches!(event, Event::GrantsResumed));
    assert!(!resumed, "grants go from one reason to be stopped to the next");
}

#[test]
fn a_uid_that_is_seen_again_after_its_deleted_is_of_another_history() {
    let mut bench = Bench::synced();
    bench.seen("things", object("things", "o", 101));
    bench.deleted("things", "o", 102);
    bench.seen("things", object("things", "o", 103));
    assert!(bench.events.iter().any(|event| matches!(event, Event::Rewound { .. })));
}

#[test]
fn with_hold_a_store_that_went_back_stops_everything_until_the_process_starts_anew() {
    let mut bench = Bench::synced();
    bench.leader.cx.config.policy.on_store_rewind = OnStoreRewind::Hold;
    bench.bookmark("nodes", 90);
    for resource in ["nodes", "things", "configmaps"] {
        bench.list(resource, 91, vec![]);
    }
    bench.pass(Duration::from_secs(3600));
    assert!(bench.leader.queries().status().stopped.is_some_and(|why| why.contains("restart")));
}

#[test]
fn a_broken_connection_to_an_aggregated_server_holds_only_what_rests_on_it() {
    let mut bench = Bench::synced();
    bench.serve("remotes");
    bench.list("remotes", 5, vec![object("remotes", "r", 1), object("remotes", "child", 2).owned_by("things", "o")]);
    bench.seen("things", object("things", "o", 101));
    bench.seen("configmaps", object("configmaps", "a", 102).owned_by("things", "o"));
    bench.input(Input::WatchLost {
        collection: collection("remotes"),
        end: WatchEnd::Transport,
        error: "reset".to_string(),
    });
    bench.deleted("things", "o", 103);
    assert_eq!(bench.grants(), ["delete(Background) a"]);
    bench.answer_probes(5, &[]);
    bench.pass(Duration::from_secs(1));
    assert_eq!(bench.grants(), ["delete(Background) child"]);
}

#[test]
fn a_count_that_differs_twice_lists_the_collection_anew() {
    let mut bench = Bench::synced();
    bench.seen("things", object("things", "lost", 101));
    bench.pass(Duration::from_secs(2 * 3600));
    assert!(bench.relists.is_empty());
    for position in [201, 202] {
        bench.answer_probes(position - 1, &[]);
        // The watch has shown all changes up to that position.
        bench.bookmark("things", position);
        bench.pass(Duration::from_secs(10));
    }
    assert_eq!(bench.relists, [collection("things")]);
}

#[test]
fn a_list_that_fails_although_the_watch_goes_on_is_told_of_before_a_restart_meets_it() {
    let mut bench = Bench::synced();
    let told = |bench: &Bench, word: &str| {
        let about = |event: &&Event| {
            matches!(event, Event::Collection { collection: of, error, state: crate::coverage::State::Synced }
                if *of == collection("things") && error.contains(word))
        };
        bench.events.iter().filter(about).count()
    };
    let mut answers = |forbidden: bool, span: u64| {
        for _ in 0..span / 10 {
            bench.pass(Duration::from_secs(10));
            for probe in core::mem::take(&mut bench.probes) {
                let complete =
                    ProbeAnswer { resource_version: version(100), objects: vec![], complete: true, remaining: None };
                let of_things = forbidden && probe.collection == collection("things");
                let answer =
                    if of_things { Err(Failure::transport("403 Forbidden".to_string())) } else { Ok(complete) };
                bench.input(Input::Probed { probe: probe.id, answer });
            }
        }
    };
    answers(true, 3 * 3600);
    answers(false, 3600);
    assert_eq!(told(&bench, "403"), 1, "once, not every time");
    let things =
        bench.leader.queries().collections().into_iter().find(|of| of.kind.group_resource == collection("things"));
    assert_eq!(things.map(|of| of.error), Some(String::new()), "and no longer than it is so");
    bench.seen("things", object("things", "o", 200));
    bench.seen("configmaps", object("configmaps", "a", 201).owned_by("things", "o"));
    bench.deleted("things", "o", 202);
    assert_eq!(bench.grants(), ["delete(Background) a"]);
}

#[test]
fn a_reference_that_was_seen_before_the_term_is_told_of_in_the_term() {
    let mut bench = Bench::synced();
    bench.input(Input::TermLost { leader_endpoint: String::new() });
    bench.seen("things", Object { namespace: "other".into(), ..object("things", "o", 101) });
    bench.seen("configmaps", object("configmaps", "a", 102).owned_by("things", "o"));
    let told = |event: &&Event| matches!(event, Event::OwnerInOtherNamespace { .. });
    assert_eq!(bench.events.iter().filter(told).count(), 0);
    bench.input(Input::TermGained(term(3)));
    assert_eq!(bench.events.iter().filter(told).count(), 1);
}

#[test]
fn a_reference_into_another_namespace_is_told_of_once_and_held_by_request() {
    for hold in [false, true] {
        let mut bench = Bench::synced();
        *bench.leader.world.graph_mut() = Graph::new(hold, 7);
        bench.seen("things", Object { namespace: "other".into(), ..object("things", "o", 101) });
        bench.seen("configmaps", object("configmaps", "a", 102).owned_by("things", "o"));
        bench.seen("configmaps", object("configmaps", "a", 103).owned_by("things", "o"));
        let told = |event: &&Event| matches!(event, Event::OwnerInOtherNamespace { .. });
        assert_eq!(bench.events.iter().filter(told).count(), 1);
        bench.pass(Duration::from_secs(1));
        bench.found_again("o", FindingResult::Absent(Some(version(110))));
        let expected: &[&str] = if hold { &[] } else { &["delete(Background) a"] };
        assert_eq!(bench.grants(), expected, "hold: {hold}");
        if hold {
            bench.input(Input::Deleted {
                collection: collection("things"),
                object: Object { namespace: "other".into(), ..object("things", "o", 111) },
            });
            assert_eq!(bench.grants(), ["delete(Background) a"], "no object has that uid any more");
        }
    }
}

#[test]
fn an_administrator_may_say_that_an_unseen_collection_holds_no_owner() {
    let mut bench = Bench::bare();
    bench.leader.cx.config.policy.assume_no_dependents = vec![collection("configmaps")];
    for resource in ["configmaps", "things"] {
        bench.serve(resource);
    }
    bench.input(Input::ListFailed { collection: collection("configmaps"), error: "403".to_string(), broke: false });
    bench.list("things", 100, vec![object("things", "o", 50).terminating("foregroundDeletion")]);
    assert_eq!(bench.grants(), ["remove finalizer foregroundDeletion of o"]);
}

#[test]
fn two_claims_to_one_uid_are_judged_apart() {
    let mut bench = Bench::synced();
    bench.seen("things", object("things", "o", 101));
    bench.seen("configmaps", object("configmaps", "good", 102).owned_by("things", "o"));
    let mut bad = object("configmaps", "bad", 103).owned_by("things", "o");
    bad.facts.owners[0].kind = "ConfigMap".into();
    bad.facts.owners[0].api_version = "v1".into();
    bench.seen("configmaps", bad);
    let mut elsewhere = object("configmaps", "elsewhere", 104).owned_by("things", "o");
    elsewhere.namespace = "other".into();
    bench.seen("configmaps", elsewhere);
    bench.pass(Duration::from_secs(1));
    for _ in 0..2 {
        bench.found_again("o", FindingResult::Absent(Some(version(120))));
    }
    assert_eq!(bench.grants(), ["delete(Background) bad", "delete(Background) elsewhere"]);
}

#[test]
fn the_scope_of_an_owner_comes_from_discovery() {
    let mut bench = Bench::bare();
    bench.serve("configmaps");
    bench.list("configmaps", 100, vec![object("configmaps", "a", 50).owned_by("nodes", "n")]);
    bench.serve("nodes");
    bench.list("nodes", 100, vec![object("nodes", "n", 40)]);
    bench.pass(Duration::from_secs(600));
    assert_eq!((bench.grants(), bench.undecided()), (vec![], vec![]), "the node is its owner, in no namespace");
    bench.deleted("nodes", "n", 101);
    assert_eq!(bench.grants(), ["delete(Background) a"]);
}

#[test]
fn an_owner_check_that_fails_is_judged_again_and_never_proof() {
    let mut bench = Bench::synced();
    bench.seen("configmaps", object("configmaps", "a", 101).blocking("things", "o"));
    bench.seen("things", object("things", "o", 102).terminating("foregroundDeletion"));
    let lease = bench.take("a");
    assert_eq!(describe(&lease), "delete(Background) a if o waits");
    let Action::Delete { owner_checks, .. } = &lease.item.action else { panic!() };
    let owner = owner_checks[0].clone();
    bench.report_with(&lease, |report| {
        report.outcome = Outcome::OwnerExists;
        let facts = object("things", "o", 103).terminating("orphan").facts;
        let sighting = Sighting { uid: uid("o"), resource_version: version(103), facts };
        report.findings = vec![Finding { owner, result: CheckResult::Exists(sighting) }];
    });
    assert_eq!(bench.grants(), NOTHING, "the leader asks by itself");
    assert!(!bench.events.iter().any(|event| matches!(event, Event::Prevented { .. })));
    let facts = object("things", "o", 103).terminating("orphan").facts;
    bench.found("o", FindingResult::Exists(Sighting { uid: uid("o"), resource_version: version(103), facts }));
    assert_eq!(bench.grants(), ["remove o from a"], "a second DELETE turned the owner into an orphaning one");
    assert!(bench.events.iter().any(|event| matches!(event, Event::Prevented { .. })));
}

#[test]
fn a_reference_to_a_waiting_owner_is_removed_only_while_the_owner_waits() {
    let mut bench = Bench::synced();
    bench.seen("things", object("things", "o", 101).terminating("foregroundDeletion"));
    bench.seen("things", object("things", "s", 102));
    // Nothing shows that a second DELETE turned the foreground deletion of the owner into another one.
    bench.input(Input::WatchLost {
        collection: collection("things"),
        end: WatchEnd::Refused,
        error: "500".to_string(),
    });
    bench.pass(Duration::from_secs(60));
    bench.seen("configmaps", object("configmaps", "a", 103).blocking("things", "o").owned_by("things", "s"));
    let lease = bench.take("a");
    assert_eq!(describe(&lease), "remove o from a if o waits");
    let owner = lease.item.action.owner_checks()[0].clone();
    let sighting = Sighting { uid: uid("o"), resource_version: version(104), facts: object("things", "o", 104).facts };
    bench.report_with(&lease, |report| {
        report.outcome = Outcome::OwnerExists;
        report.findings = vec![Finding { owner, result: CheckResult::Exists(sighting.clone()) }];
    });
    bench.found("o", FindingResult::Exists(sighting.clone()));
    let grants = bench.grants();
    assert!(!grants.iter().any(|grant| grant.contains("from a")), "the owner keeps it: {grants:?}");
}

#[test]
fn a_reference_is_removed_exactly_if_its_uid_is_known_at_other_coordinates() {
    let mut bench = Bench::synced();
    bench.seen("things", object("things", "o", 101));
    bench.seen("things", object("things", "s", 102));
    let mut dependent = object("configmaps", "a", 103).owned_by("things", "o").owned_by("things", "s");
    dependent.facts.owners[0].name = "wrong".into();
    bench.seen("configmaps", dependent);
    bench.pass(Duration::from_secs(1));
    bench.found_again("o", FindingResult::Absent(Some(version(120))));
    // If a client corrects the name meanwhile, the correct reference stays.
    assert_eq!(bench.grants(), ["remove Thing/wrong from a"]);
}

#[test]
fn absence_of_a_split_kind_is_no_proof() {
    for split in [false, true] {
        let mut bench = Bench::synced();
        bench.input(Input::KindServed(ServedKind { split, ..served("things") }));
        bench.list("things", 100, vec![]);
        bench.seen("configmaps", object("configmaps", "a", 103).owned_by("things", "o"));
        bench.pass(Duration::from_secs(1));
        if split {
            bench.pass(Duration::from_secs(600));
            assert_eq!((bench.grants(), bench.undecided()), (vec![], vec![(Undecided::OwnerKindUnresolved, 1)]));
            let (blockers, _) = bench.leader.queries().blockers(10);
            assert_eq!(
                blockers[0].what,
                "ambiguous: Thing.example.com is served as things.example.com, whose versions have or may have different servers, scopes or kinds"
            );
        } else {
            bench.found_again("o", FindingResult::Absent(Some(version(120))));
            assert_eq!(bench.grants(), ["delete(Background) a"]);
        }
    }
}

/// A server at the present position answers without the owner, and the watch shows the owner afterwards.
#[test]
fn a_watch_that_disproves_an_absence_stops_what_rests_on_it() {
    for (shown_at, disproved) in [(125, true), (105, false)] {
        let mut bench = Bench::synced();
        let lease = bench.started_deletion();
        bench.seen("things", object("things", "o", shown_at));
        assert!(bench.stopped().contains(&lease.id), "the owner keeps it");
        assert_eq!(bench.leader.queries().status().stopped.is_some(), disproved, "an older event is only late");
    }
}

#[test]
fn a_reference_that_turns_out_invalid_stops_a_started_deletion_where_the_policy_holds_such() {
    let mut bench = Bench::synced();
    *bench.leader.world.graph_mut() = Graph::new(true, 7);
    let lease = bench.started_deletion();
    bench.seen("things", Object { namespace: "other".into(), ..object("things", "o", 121) });
    assert_eq!(bench.stopped(), [lease.id]);
}

#[test]
fn an_absence_from_before_a_split_is_no_proof_after_it() {
    for ends_by in [Input::KindServed(served("things")), Input::KindUnserved(collection("things"))] {
        let mut bench = Bench::synced();
        bench.input(Input::Message { stream: STREAM, message: ToLeader::Window { max_outstanding: 0 } });
        bench.seen("configmaps", object("configmaps", "a", 103).owned_by("things", "o"));
        bench.pass(Duration::from_secs(1));
        bench.found_again("o", FindingResult::Absent(Some(version(120))));
        assert_eq!(bench.undecided(), []);
        bench.input(Input::KindServed(ServedKind { split: true, ..served("things") }));
        assert_eq!(bench.undecided(), [(Undecided::OwnerKindUnresolved, 1)]);
        bench.input(ends_by);
        bench.input(Input::Message { stream: STREAM, message: ToLeader::Window { max_outstanding: 100 } });
        bench.pass(Duration::from_secs(1));
        assert_eq!(bench.grants(), NOTHING);
    }
}

#[test]
fn a_foreground_owner_is_held_while_a_collection_cannot_be_seen() {
    let mut bench = Bench::with_failed_list();
    assert_eq!(bench.grants(), NOTHING);
    assert_eq!(bench.undecided(), [(Undecided::DependentsUnseen, 1)]);
    assert!(bench.probes.iter().any(|probe| probe.namespace.as_deref() == Some("ns") && probe.limit.is_none()));
    for delay in [2, 4, 8] {
        for probe in core::mem::take(&mut bench.probes) {
            bench.input(Input::Probed { probe: probe.id, answer: Err(Failure::transport("403".to_string())) });
        }
        bench.pass(Duration::from_secs(delay + 1));
        assert_eq!(bench.grants(), NOTHING);
    }
    core::mem::take(&mut bench.probes).into_iter().for_each(|probe| {
        bench.input(Input::Probed { probe: probe.id, answer: Err(Failure::transport("403".to_string())) });
    });
    bench.pass(Duration::from_secs(17));
    bench.answer_probes(101, &[]);
    assert_eq!(bench.grants(), ["remove finalizer foregroundDeletion of o"]);
}
