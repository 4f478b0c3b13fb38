//! Wrong answers that the leader must not believe: outdated ones, answers of another kind, and contradictions between
//! servers.

use super::*;
use alloc::collections::BTreeMap;

/// Creates a bench in which configmap `a` is owned by thing `o`, and the list of things fails, as it does while an API
/// server starts.
fn unlisted() -> Bench {
    let mut bench = Bench::bare();
    for resource in ["configmaps", "nodes", "things"] {
        bench.serve(resource);
    }
    bench.list("nodes", 451, vec![]);
    bench.list("configmaps", 445, vec![object("configmaps", "a", 440).owned_by("things", "o")]);
    bench.input(Input::ListFailed { collection: collection("things"), error: "429".to_string(), broke: false });
    bench
}

/// Answers all questions about `o` for some time. Returns each grant once.
fn answered(bench: &mut Bench, result: &FindingResult) -> Vec<String> {
    for _ in 0..30 {
        bench.pass(Duration::from_secs(5));
        bench.answer_probes(451, &[]);
        bench.found_if_asked("o", result);
    }
    let mut grants = bench.grants();
    grants.dedup();
    grants
}

#[test]
fn a_list_from_before_what_its_store_has_shown_elsewhere_proves_nothing() {
    for stale in [1, 211, 444, 450] {
        let absent = FindingResult::Absent(Some(version(stale)));
        assert_eq!(answered(&mut unlisted(), &absent), NOTHING, "at {stale}");
    }
    assert_eq!(
        answered(&mut unlisted(), &FindingResult::Absent(Some(version(451)))),
        ["delete(Background) a"],
        "where the store stands by now"
    );
}

#[test]
fn a_list_without_a_version_that_can_be_ordered_proves_nothing_in_the_main_store() {
    for text in ["0", "abc", "", "-7", "0451"] {
        let absent = FindingResult::Absent(Some(ResourceVersion::parse(text)));
        assert_eq!(answered(&mut unlisted(), &absent), NOTHING, "at {text:?}");
    }
}

#[test]
fn a_collection_that_was_never_listed_takes_two_lists() {
    let mut bench = unlisted();
    bench.pass(Duration::from_secs(1));
    bench.found("o", FindingResult::Absent(Some(version(451))));
    bench.pass(Duration::from_millis(4900));
    assert_eq!(bench.grants(), NOTHING);
    bench.pass(Duration::from_millis(100));
    bench.found("o", FindingResult::Absent(Some(version(452))));
    assert_eq!(bench.grants(), ["delete(Background) a"]);
}

#[test]
fn an_owner_that_a_read_has_shown_is_absent_only_past_that_read() {
    let mut bench = unlisted();
    bench.pass(Duration::from_secs(1));
    let sighting = Sighting { uid: uid("o"), resource_version: version(470), facts: Facts::default() };
    bench.found("o", FindingResult::Exists(sighting));
    assert_eq!(answered(&mut bench, &FindingResult::Absent(Some(version(470)))), NOTHING);
}

fn told(bench: &Bench) -> Vec<&str> {
    fn why(event: &Event) -> Option<&str> {
        if let Event::Inconsistent { why, .. } = event { Some(why) } else { None }
    }
    bench.events.iter().filter_map(why).collect()
}

#[test]
fn an_answer_from_before_what_was_known_stops_grants_until_three_answers_agree() {
    let mut bench = unlisted();
    bench.seen("nodes", object("nodes", "n", 452));
    bench.seen("configmaps", object("configmaps", "b", 453).owned_by("nodes", "n"));
    bench.pass(Duration::from_secs(1));
    bench.found("o", FindingResult::Absent(Some(version(211))));
    bench.deleted("nodes", "n", 454);
    assert_eq!(told(&bench), ["a list returned version 211, which is before the known version 453"]);
    let things =
        bench.leader.queries().collections().into_iter().find(|of| of.kind.group_resource == collection("things"));
    assert_eq!(
        things.and_then(|of| of.inconsistent).as_deref(),
        Some("a list returned version 211, which is before the known version 453")
    );
    for agreed in 0..3 {
        assert_eq!(bench.grants(), NOTHING, "after {agreed}");
        assert!(bench.probes.iter().any(|probe| probe.object.is_none() && probe.fresh), "by other connections");
        bench.answer_probes(454, &[]);
        bench.pass(Duration::from_millis(500));
    }
    assert_eq!(bench.grants(), ["delete(Background) b"]);
    bench.pass(Duration::from_secs(700));
    let things =
        bench.leader.queries().collections().into_iter().find(|of| of.kind.group_resource == collection("things"));
    assert_eq!(things.and_then(|of| of.inconsistent), None, "and is forgotten when answers agree");
}

#[test]
fn members_that_disagree_about_an_owner_prove_nothing() {
    let mut bench = unlisted();
    let there = Sighting { uid: uid("o"), resource_version: version(430), facts: Facts::default() };
    let (exists, absent) = (FindingResult::Exists(there), |at| FindingResult::Absent(Some(version(at))));
    // Both servers continue independently.
    for at in 451..700 {
        bench.bookmark("nodes", at);
        bench.answer_probes(at, &[]);
        bench.found_if_asked("o", &if at % 3 == 1 { exists.clone() } else { absent(at) });
        bench.pass(Duration::from_secs(1));
        assert_eq!(bench.grants(), NOTHING, "at {at}");
    }
    assert!(!told(&bench).is_empty());
}

#[test]
fn one_list_proves_nothing_even_where_the_collection_is_listed() {
    let mut bench = Bench::synced();
    for name in ["a", "b"] {
        bench.seen("configmaps", object("configmaps", name, 101).owned_by("things", &format!("of-{name}")));
    }
    bench.pass(Duration::from_secs(1));
    bench.found("of-a", FindingResult::Absent(Some(version(105))));
    assert_eq!(bench.grants(), NOTHING);
    let there = Sighting { uid: uid("of-b"), resource_version: version(99), facts: Facts::default() };
    bench.found("of-b", FindingResult::Exists(there));
    assert_eq!(told(&bench).len(), 1, "its watch stands past 99 and does not show it");
    for at in 106..110 {
        bench.pass(Duration::from_secs(1));
        bench.answer_probes(at, &[]);
        bench.found_if_asked("of-a", &FindingResult::Absent(Some(version(at))));
    }
    assert_eq!(bench.grants(), NOTHING, "more lists have to agree once one was contradicted");
}

#[test]
fn what_one_list_has_proven_counts_no_more_once_another_contradicts_it() {
    let mut bench = Bench::synced();
    for (name, rv) in [("a", 101), ("b", 102)] {
        bench.seen("configmaps", object("configmaps", name, rv).owned_by("things", &format!("of-{name}")));
    }
    bench.pass(Duration::from_secs(1));
    bench.found_again("of-a", FindingResult::Absent(Some(version(105))));
    assert_eq!(bench.grants(), ["delete(Background) a"]);
    bench.bookmark("things", 106);
    let there = Sighting { uid: uid("of-b"), resource_version: version(99), facts: Facts::default() };
    bench.found("of-b", FindingResult::Exists(there));
    assert_eq!(told(&bench).len(), 1, "the watch has not shown it");
    let recalled = |(_, message): &(StreamId, ToExecutor)| matches!(message, ToExecutor::Revoke { .. });
    assert!(bench.sent.iter().any(recalled), "what was not begun comes back");
    bench.answer_probes(106, &[]);
    bench.pass(Duration::from_secs(1));
    assert_eq!(bench.undecided(), [(Undecided::OwnerUnverified, 1)], "of-a is asked for anew");
}

#[test]
fn a_collection_that_does_not_show_what_is_there_is_listed_anew_but_not_all_the_time() {
    let mut bench = Bench::synced();
    for at in 0..5 {
        let owned = object("configmaps", &format!("a{at}"), 101 + at).owned_by("things", &format!("o{at}"));
        bench.seen("configmaps", owned);
    }
    bench.bookmark("things", 110);
    bench.pass(Duration::from_secs(29));
    assert!(bench.relists.is_empty());
    for at in 0..5 {
        let there = Sighting { uid: uid(&format!("o{at}")), resource_version: version(99), facts: Facts::default() };
        bench.found_if_asked(&format!("o{at}"), &FindingResult::Exists(there));
        bench.answer_probes(110, &[]);
        bench.pass(Duration::from_secs(2));
        if let Some(collection) = bench.relists.pop() {
            bench.input(Input::ListBegun { collection: collection.clone(), selectors: 0 });
            bench.input(Input::ListEnded { collection, resource_version: version(110) });
            bench.relists.push(super::collection("nodes"));
        }
    }
    assert_eq!(bench.relists, [collection("nodes")], "once, and not in the seconds after it");
}

#[test]
fn names_that_are_answered_senselessly_hold_up_no_other_name() {
    let mut bench = Bench::synced();
    for at in 0..1_000 {
        bench.seen(
            "configmaps",
            object("configmaps", &format!("a{at}"), 101 + at).owned_by("things", &format!("o{at}")),
        );
    }
    bench.pass(Duration::from_millis(250));
    // Nine of ten names are answered with an invalid list.
    let mut asked = BTreeMap::new();
    let mut answers = |bench: &mut Bench| {
        for probe in core::mem::take(&mut bench.probes) {
            let name = probe.object.as_ref().map(|named| named.name.to_string()).unwrap_or_default();
            let honest = name.ends_with('7') || name.is_empty();
            *asked.entry(name).or_insert(0) += 1;
            let answer =
                ProbeAnswer { resource_version: version(2_000), objects: vec![], complete: true, remaining: None };
            let answer = if honest { Ok(answer) } else { Err(Failure::senseless("no list".to_string())) };
            bench.input(Input::Probed { probe: probe.id, answer });
        }
        asked.len()
    };
    let mut told = 0;
    for _ in 0..100 {
        told = answers(&mut bench);
        bench.pass(Duration::from_millis(50));
    }
    assert!(told >= 1_000, "{told} of 1000 in five seconds");
    assert_eq!(bench.grants().len(), 100, "all of which the answer was a list");
    for _ in 0..1_200 {
        bench.pass(Duration::from_millis(50));
        answers(&mut bench);
    }
    // Each of the other names is asked again within a minute, but not constantly.
    let most = asked.iter().filter(|(name, _)| name.starts_with('o')).map(|(_, times)| *times).max();
    let least = asked.iter().filter(|(name, _)| name.starts_with('o') && !name.ends_with('7')).map(|(_, times)| *times);
    assert!(least.min() >= Some(2), "{asked:?}");
    assert!(most <= Some(12), "{asked:?}");
}

#[test]
fn no_consistent_answer_from_the_past_is_used_whatever_it_was_asked_for() {
    let mut bench = Bench::synced();
    bench.seen("things", object("things", "o", 101).terminating("orphan"));
    bench.pass(Duration::from_secs(1));
    // A lagging server answers each barrier round.
    for _ in 0..20 {
        for probe in bench.other_probes() {
            let at = if probe.fresh { 101 } else { 99 };
            let answer =
                ProbeAnswer { resource_version: version(at), objects: vec![], complete: true, remaining: None };
            bench.input(Input::Probed { probe: probe.id, answer: Ok(answer) });
        }
        bench.pass(Duration::from_secs(1));
        assert_eq!(bench.grants(), NOTHING);
    }
    assert!(!told(&bench).is_empty());
    for _ in 0..20 {
        bench.answer_probes(101, &[]);
        bench.pass(Duration::from_secs(1));
    }
    assert_eq!(bench.grants(), ["remove finalizer orphan of o"]);
}

#[test]
fn a_hundred_thousand_owners_are_asked_for_a_few_at_a_time_and_a_collection_that_fails_holds_up_no_other() {
    let mut bench = Bench::synced();
    for at in 0..2_000 {
        bench
            .seen("configmaps", object("configmaps", &format!("a{at}"), 101 + at).owned_by("nodes", &format!("n{at}")));
    }
    bench.seen("configmaps", object("configmaps", "b", 5_000).owned_by("things", "o"));
    bench.pass(Duration::from_millis(250));
    assert!(bench.questions().len() <= 32, "{} under way", bench.questions().len());
    let fails = |bench: &mut Bench| {
        for probe in core::mem::take(&mut bench.probes) {
            match probe.collection == collection("things") {
                true => bench.probes.push(probe),
                false => {
                    bench.input(Input::Probed { probe: probe.id, answer: Err(Failure::transport("500".to_string())) })
                }
            }
        }
    };
    fails(&mut bench);
    bench.found_again("o", FindingResult::Absent(Some(version(5_001))));
    assert_eq!(bench.grants(), ["delete(Background) b"]);
    for _ in 0..600 {
        bench.pass(Duration::from_millis(100));
        assert!(bench.questions().len() <= 1, "one at a time while it fails");
        fails(&mut bench);
    }
    let questions = bench.leader.queries().status().questions;
    assert_eq!(questions.waiting + questions.under_way, 2_000);
    assert_eq!(questions.unanswered.len(), 1);
    assert_eq!((questions.unanswered[0].owners, &*questions.unanswered[0].why), (2_000, "500"));
    // All names are asked within seconds of the recovery of the server.
    for _ in 0..200 {
        bench.pass(Duration::from_millis(50));
        for at in 0..2_000 {
            bench.found_if_asked(&format!("n{at}"), &FindingResult::Absent(Some(version(6_000))));
        }
    }
    assert_eq!(bench.grants().len(), 999, "the executor's window, less the one it has");
}

#[test]
fn a_barrier_does_not_pass_by_lists_whose_version_says_nothing() {
    for text in ["0", "abc", ""] {
        let mut bench = Bench::synced();
        bench.seen("things", object("things", "o", 101).terminating("orphan"));
        for _ in 0..60 {
            bench.pass(Duration::from_secs(1));
            for probe in bench.other_probes() {
                let resource_version = ResourceVersion::parse(text);
                let answer = ProbeAnswer { resource_version, objects: vec![], complete: true, remaining: None };
                bench.input(Input::Probed { probe: probe.id, answer: Ok(answer) });
            }
        }
        assert_eq!(bench.grants(), NOTHING, "{text:?}");
    }
}

/// Returns whether the orphaning `things/o` is released while the watch of `remotes`, a collection behind an
/// APIService, is lost. `listed` is the final version of its list. `answers` is the version of the answer to each
/// question during a minute, without objects.
fn passes(listed: Option<&str>, answers: &str) -> bool {
    let mut bench = Bench::synced();
    bench.serve("remotes");
    if let Some(text) = listed {
        bench.input(Input::ListBegun { collection: collection("remotes"), selectors: 0 });
        let resource_version = ResourceVersion::parse(text);
        bench.input(Input::ListEnded { collection: collection("remotes"), resource_version });
    }
    let end = WatchEnd::Transport;
    bench.input(Input::WatchLost { collection: collection("remotes"), end, error: "reset".to_string() });
    bench.seen("things", object("things", "o", 101).terminating("orphan"));
    for _ in 0..60 {
        bench.pass(Duration::from_secs(1));
        for probe in bench.other_probes() {
            let is_remote = probe.collection == collection("remotes");
            let resource_version = ResourceVersion::parse(if is_remote { answers } else { "101" });
            let answer = ProbeAnswer { resource_version, objects: vec![], complete: true, remaining: None };
            bench.input(Input::Probed { probe: probe.id, answer: Ok(answer) });
        }
    }
    !bench.grants().is_empty()
}

#[test]
fn a_barrier_passes_behind_an_apiservice_only_by_lists_of_the_present() {
    for text in ["0", "abc", ""] {
        assert!(!passes(Some("100"), text), "{text:?} says nothing where versions are numbers");
        assert!(!passes(None, text), "{text:?} says nothing where nothing is known");
    }
    assert!(passes(Some("100"), "100"));
    assert!(passes(None, "100"));
    assert!(passes(Some("one"), "two"), "there versions never compare");
}

#[test]
fn a_barrier_does_not_pass_behind_an_apiservice_by_a_list_from_the_past() {
    let mut bench = Bench::synced();
    bench.serve("remotes");
    bench.list("remotes", 100, vec![]);
    bench.pass(Duration::from_secs(1));
    let end = WatchEnd::Refused;
    bench.input(Input::WatchLost { collection: collection("remotes"), end, error: "closed".to_string() });
    bench.seen("things", object("things", "o", 101).terminating("orphan"));
    for _ in 0..20 {
        for probe in bench.other_probes() {
            // One of two servers lags, and this server lists namespaces.
            let at = if probe.collection == collection("remotes") && probe.namespace.is_some() { 99 } else { 101 };
            let answer =
                ProbeAnswer { resource_version: version(at), objects: vec![], complete: true, remaining: None };
            bench.input(Input::Probed { probe: probe.id, answer: Ok(answer) });
        }
        bench.pass(Duration::from_secs(1));
        assert_eq!(bench.grants(), NOTHING);
    }
}

#[test]
fn no_report_of_an_executor_proves_that_an_owner_is_absent() {
    let mut bench = Bench::synced();
    bench.seen("things", object("things", "p", 101).terminating("foregroundDeletion"));
    bench.seen("configmaps", object("configmaps", "a", 102).owned_by("things", "o").owned_by("things", "p"));
    bench.seen("configmaps", object("configmaps", "b", 103).owned_by("things", "p"));
    for result in [CheckResult::Absent, CheckResult::OtherUid] {
        let lease = bench.take("b");
        let owner = ObjectRef { uid: uid("o"), name: "o".into(), ..object_ref(&lease) };
        bench.report_with(&lease, |report| {
            report.outcome = Outcome::Conflict;
            report.findings = vec![Finding { owner, result }];
        });
        bench.pass(Duration::from_secs(60));
    }
    assert_eq!(bench.undecided(), [(Undecided::OwnerUnverified, 1)]);
    assert!(!bench.events.iter().any(|event| matches!(event, Event::Proven { .. })));
}

/// Returns the owner that a deletion checks.
fn object_ref(lease: &WorkLease) -> ObjectRef {
    let Action::Delete { owner_checks, .. } = &lease.item.action else { panic!("{lease:?}") };
    owner_checks[0].clone()
}
