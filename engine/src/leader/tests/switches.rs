//! A store that is replaced behind one address without a broken connection.

use super::*;

fn ends(bench: &mut Bench, resource: &str, end: WatchEnd) {
    let error = "the API server ended it before its time".to_string();
    bench.input(Input::WatchLost { collection: collection(resource), end, error });
}

fn suspicions(bench: &Bench) -> usize {
    bench.events.iter().filter(|event| matches!(event, Event::GrantsStopped { .. })).count()
}

#[test]
fn a_watch_that_ends_before_its_time_is_doubt_until_the_store_has_said_where_it_stands() {
    for end in [WatchEnd::Early, WatchEnd::Expired] {
        let mut bench = Bench::synced();
        bench.seen("things", object("things", "o", 101));
        bench.seen("configmaps", object("configmaps", "a", 102).owned_by("things", "o"));
        ends(&mut bench, "nodes", end);
        bench.input(Input::WatchResumed { collection: collection("nodes") });
        bench.deleted("things", "o", 103);
        assert_eq!(bench.grants(), NOTHING, "{end:?}");
        bench.answer_probes(104, &[]);
        // The collection that was seen further during the question is asked too.
        bench.answer_probes(104, &[]);
        assert_eq!(bench.grants(), ["delete(Background) a"], "{end:?}");
    }
}

#[test]
fn a_store_that_was_restored_behind_watches_that_end_in_good_order_is_a_rewind() {
    let mut bench = Bench::synced();
    bench.seen("things", object("things", "o", 101));
    bench.seen("configmaps", object("configmaps", "a", 102).owned_by("things", "o"));
    bench.deleted("things", "o", 103);
    bench.granted.clear();
    ends(&mut bench, "nodes", WatchEnd::Early);
    bench.answer_probes(101, &[]);
    assert!(bench.events.iter().any(|event| matches!(event, Event::Rewound { .. })));
}

#[test]
fn a_burst_of_ends_is_one_suspicion() {
    let mut bench = Bench::synced();
    for resource in ["configmaps", "nodes", "things"] {
        ends(&mut bench, resource, WatchEnd::Early);
    }
    assert_eq!(suspicions(&bench), 1);
    // The first question is from before the last end, so a second one follows.
    for _ in 0..2 {
        assert!(bench.leader.queries().status().stopped.is_some());
        bench.answer_probes(104, &[]);
    }
    assert_eq!((suspicions(&bench), bench.leader.queries().status().stopped), (1, None));
}

#[test]
fn a_list_whose_connection_breaks_is_doubt_and_one_that_is_refused_is_none() {
    for broke in [false, true] {
        let mut bench = Bench::synced();
        bench.seen("things", object("things", "o", 101));
        bench.seen("configmaps", object("configmaps", "a", 102).owned_by("things", "o"));
        bench.input(Input::ListBegun { collection: collection("nodes"), selectors: 0 });
        bench.input(Input::ListFailed { collection: collection("nodes"), error: "no".to_string(), broke });
        bench.deleted("things", "o", 103);
        assert_eq!((suspicions(&bench) > 0, bench.grants().is_empty()), (broke, broke));
        for _ in 0..2 {
            bench.answer_probes(104, &[]);
        }
        let later = bench.grants();
        assert_eq!(later, if broke { vec!["delete(Background) a"] } else { vec![] });
    }
}

#[test]
fn a_watch_that_is_refused_is_no_doubt() {
    let mut bench = Bench::synced();
    ends(&mut bench, "nodes", WatchEnd::Refused);
    assert_eq!((suspicions(&bench), bench.probes.len()), (0, 0));
}

#[test]
fn what_destroys_is_stopped_and_the_removal_of_a_dead_reference_goes_on() {
    let mut bench = Bench::synced();
    bench.seen("things", object("things", "o", 101));
    bench.seen("things", object("things", "p", 101));
    bench.seen("configmaps", object("configmaps", "a", 102).owned_by("things", "o"));
    bench.seen("configmaps", object("configmaps", "b", 103).owned_by("things", "o").owned_by("things", "p"));
    bench.pass(Duration::from_secs(1));
    bench.deleted("things", "o", 104);
    let (delete, removal) = (bench.take("a"), bench.take("b"));
    bench.message(STREAM, ToLeader::Started { leases: vec![delete.id, removal.id] });
    ends(&mut bench, "nodes", WatchEnd::Early);
    let stopped = |lease: &WorkLease| {
        let stops = |message: &ToExecutor| matches!(message, ToExecutor::Revoke { leases, mode: RevokeMode::Stop, .. } if leases.contains(&lease.id));
        bench.sent.iter().any(|(_, message)| stops(message))
    };
    assert_eq!((stopped(&delete), stopped(&removal)), (true, false));
}

#[test]
fn an_answer_to_a_question_from_before_the_last_end_ends_no_suspicion() {
    let mut bench = Bench::synced();
    bench.seen("things", object("things", "o", 101));
    bench.seen("configmaps", object("configmaps", "a", 102).owned_by("things", "o"));
    bench.deleted("things", "o", 103);
    bench.granted.clear();
    ends(&mut bench, "nodes", WatchEnd::Early);
    let asked = bench.other_probes();
    // The old store answers. Then it is restored, and another watch ends.
    ends(&mut bench, "nodes", WatchEnd::Early);
    for probe in asked {
        let answer =
            ProbeAnswer { resource_version: version(104), objects: Vec::new(), complete: true, remaining: None };
        bench.input(Input::Probed { probe: probe.id, answer: Ok(answer) });
    }
    assert!(bench.leader.queries().status().stopped.is_some());
    bench.pass(Duration::from_secs(1));
    bench.answer_probes(101, &[]);
    assert!(bench.events.iter().any(|event| matches!(event, Event::Rewound { .. })));
}
