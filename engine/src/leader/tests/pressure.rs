//! Servers that fail, refuse, push back or are rewound, and executors that crash. No component busy-loops, and none
//! stops forever.

use super::stories::{ended, work};
use super::*;

/// Creates this number of dependents of an absent owner.
fn with_dependents(bench: &mut Bench, number: u64) {
    bench.seen("things", object("things", "o", 101));
    for at in 0..number {
        let dependent = object("configmaps", &format!("d{at}"), 102 + at).owned_by("things", "o");
        bench.seen("configmaps", dependent);
    }
    bench.deleted("things", "o", 102 + number);
}

#[test]
fn a_webhook_that_denies_for_an_hour_is_asked_now_and_then_and_all_go_once_it_allows() {
    let mut bench = Bench::synced();
    with_dependents(&mut bench, 500);
    let denied = |lease: &WorkLease| WorkReport {
        webhook: Some("guard.example.com".to_string()),
        message: "admission webhook \"guard.example.com\" denied the request".to_string(),
        ..ended(lease, Outcome::AdmissionDenied)
    };
    let attempts = work(&mut bench, Duration::from_secs(3600), denied);
    assert!(attempts <= 500 + 3600 / 5, "{attempts} attempts in an hour");
    assert!(bench.leader.queries().status().backing_off == 500);
    let named =
        |event: &Event| matches!(event, Event::Attempted { end, .. } if end.message.contains("guard.example.com"));
    assert!(bench.events.iter().any(named));
    let attempts = work(&mut bench, Duration::from_secs(6), done);
    assert_eq!((attempts, bench.leader.queries().status().queued), (500, 0), "within seconds of the change");
}

#[test]
fn a_server_that_pushes_back_is_left_alone_for_as_long_as_it_asks_and_others_go_on() {
    let mut bench = Bench::synced();
    with_dependents(&mut bench, 300);
    bench.seen("nodes", object("nodes", "n", 101).owned_by("nodes", "gone"));
    let throttled = |lease: &WorkLease| match &*lease.item.target.resource {
        "configmaps" => WorkReport { retry_after: Some(Duration::from_secs(7)), ..ended(lease, Outcome::Throttled) },
        _ => done(lease),
    };
    bench.pass(Duration::from_secs(1));
    bench.found_again("gone", FindingResult::Absent(Some(version(500))));
    let attempts = work(&mut bench, Duration::from_secs(70), throttled);
    assert!(
        attempts <= 300 + 20,
        "{attempts} attempts: after what was under way, one for each time it asked to be left alone"
    );
    let other = |event: &Event| {
        let Event::Attempted { end, .. } = event else { return false };
        end.action == ActionKind::Delete && &*end.target.resource == "nodes"
    };
    assert!(bench.events.iter().any(other), "another kind is not held up");
    // The rest of the seven seconds passes, and then the rate grows each second.
    let attempts = work(&mut bench, Duration::from_secs(7 + 10), done);
    assert_eq!((attempts, bench.leader.queries().status().queued), (300, 0), "within seconds of the change");
}

#[test]
fn a_child_that_is_made_again_every_second_costs_one_deletion_each() {
    let mut bench = Bench::synced();
    bench.seen("things", object("things", "o", 101));
    let child = |at: u64| object("configmaps", &format!("c{at}"), 200 + 2 * at).blocking("things", "o");
    bench.seen("configmaps", child(0));
    bench.seen("things", object("things", "o", 102).terminating("foregroundDeletion"));
    let mut attempts = 0;
    for at in 0..600 {
        attempts += work(&mut bench, Duration::from_secs(1), done);
        bench.seen("configmaps", child(at + 1));
        bench.deleted("configmaps", &format!("c{at}"), 203 + 2 * at);
    }
    assert_eq!(attempts, 600);
    assert!(
        bench.events.iter().all(|event| !matches!(event, Event::Decided { action: ActionKind::RemoveFinalizer, .. }))
    );
}

#[test]
fn a_kind_whose_list_takes_a_quarter_of_an_hour_delays_no_other_kind() {
    let mut bench = Bench::synced();
    bench.serve("remotes");
    bench.input(Input::ListBegun { collection: collection("remotes"), selectors: 0 });
    for minute in 0..15 {
        for at in 0..100 {
            let object = object("remotes", &format!("r{minute}-{at}"), 50).owned_by("things", "o");
            bench.input(Input::Listed { collection: collection("remotes"), object });
        }
        if minute % 4 == 3 {
            // The token of the next page has expired. The objects of earlier pages remain.
            let nodes = bench.leader.queries().status().nodes;
            bench.input(Input::ListFailed {
                collection: collection("remotes"),
                error: "410 Expired".to_string(),
                broke: false,
            });
            bench.input(Input::ListBegun { collection: collection("remotes"), selectors: 0 });
            assert_eq!(bench.leader.queries().status().nodes, nodes);
        }
        let (owner, child) = (format!("p{minute}"), format!("c{minute}"));
        bench.seen("things", object("things", &owner, 200 + 10 * minute));
        bench.seen("configmaps", object("configmaps", &child, 201 + 10 * minute).owned_by("things", &owner));
        bench.deleted("things", &owner, 202 + 10 * minute);
        assert!(bench.grants().contains(&format!("delete(Background) {child}")), "at once, in minute {minute}");
        bench.pass(Duration::from_secs(60));
    }
}

#[test]
fn an_executor_that_dies_half_way_leaves_nothing_undone_and_touches_no_namesake() {
    let mut bench = Bench::synced();
    with_dependents(&mut bench, 4);
    let leases = core::mem::take(&mut bench.granted);
    bench.message(STREAM, ToLeader::Started { leases: leases.iter().map(|lease| lease.id).collect() });
    // The first attempt is reported twice. The second attempt took effect without a report. Then the executor
    // disappears.
    for _ in 0..2 {
        bench.message(STREAM, ToLeader::Reports { reports: vec![done(&leases[0])], returns: vec![] });
    }
    let name = |at: usize| leases[at].item.target.name.to_string();
    bench.deleted("configmaps", &name(0), 201);
    bench.deleted("configmaps", &name(1), 202);
    bench.seen("configmaps", Object { uid: uid("namesake"), ..object("configmaps", &name(1), 203) });
    bench.input(Input::StreamClosed { stream: STREAM });
    let other = StreamId(2);
    bench.hello(other, hello("e2", "i2"));
    for _ in 0..25 {
        bench.now = bench.now + Duration::from_secs(1);
        bench.message(other, beat());
        bench.leader.tick(bench.now);
        bench.drain();
    }
    let mut again: Vec<WorkLease> = core::mem::take(&mut bench.granted);
    again.sort_by(|a, b| a.item.target.name.cmp(&b.item.target.name));
    let targets: Vec<String> = again.iter().map(|lease| lease.item.target.name.to_string()).collect();
    assert_eq!(targets, [name(2), name(3)]);
    for (lease, before) in again.iter().zip(&leases[2..]) {
        assert!(lease.previous_attempt_ambiguous);
        assert_eq!(lease.item.target.uid, before.item.target.uid, "by uid and version, so twice is once");
        assert_eq!(lease.item.preconditions, before.item.preconditions);
    }
    assert_eq!(bench.leader.queries().nodes(&uid("namesake")).len(), 1);
}

#[test]
fn what_a_server_ten_minutes_behind_shows_again_or_not_yet_is_not_acted_on() {
    let mut bench = Bench::synced();
    bench.seen("things", object("things", "gone", 450));
    bench.seen("things", object("things", "new", 460));
    bench.seen("configmaps", object("configmaps", "of-gone", 470).owned_by("things", "gone"));
    bench.seen("configmaps", object("configmaps", "of-new", 480).owned_by("things", "new"));
    bench.deleted("things", "gone", 490);
    assert_eq!(bench.grants(), ["delete(Background) of-gone"]);
    // The next connection leads to a server without any of the changes.
    for resource in ["things", "configmaps"] {
        bench.input(Input::WatchLost {
            collection: collection(resource),
            end: WatchEnd::Transport,
            error: "reset".to_string(),
        });
    }
    bench.answer_probes(440, &[]);
    assert!(bench.leader.queries().status().stopped.is_some());
    for resource in ["configmaps", "nodes", "things"] {
        bench.list(resource, 440, vec![]);
    }
    let behind = |bench: &mut Bench| {
        bench.pass(Duration::from_secs(30));
        bench.answer_probes(440, &[]);
        assert_eq!(bench.grants(), NOTHING);
    };
    behind(&mut bench);
    // The server catches up, in its own order.
    bench.seen("things", object("things", "gone", 450));
    bench.seen("things", object("things", "new", 460));
    bench.seen("configmaps", object("configmaps", "of-gone", 470).owned_by("things", "gone"));
    bench.seen("configmaps", object("configmaps", "of-new", 480).owned_by("things", "new"));
    bench.deleted("things", "gone", 490);
    while bench.leader.queries().status().stopped.is_some() {
        bench.pass(Duration::from_secs(5));
        bench.answer_probes(500, &[]);
    }
    assert_eq!(bench.grants(), ["delete(Background) of-gone"]);
}

#[test]
fn a_backup_whose_revisions_were_raised_is_another_history_too() {
    let mut bench = Bench::synced();
    bench.seen("things", object("things", "back", 101));
    bench.seen("configmaps", object("configmaps", "a", 102).owned_by("things", "back"));
    bench.seen("configmaps", object("configmaps", "b", 150).owned_by("things", "back"));
    bench.deleted("things", "back", 160);
    let granted = bench.grants();
    assert_eq!(granted, ["delete(Background) a", "delete(Background) b"]);
    // The store has its state of 120, and continues from a revision of a billion.
    let lost =
        Input::WatchLost { collection: collection("things"), end: WatchEnd::Expired, error: "410 Gone".to_string() };
    bench.input(lost);
    bench.list("things", 1_000_000_000, vec![object("things", "back", 101)]);
    assert!(bench.events.iter().any(|event| matches!(event, Event::Rewound { .. })), "its DELETED was seen");
    assert!(bench.leader.queries().status().stopped.is_some());
    bench.list("things", 1_000_000_001, vec![object("things", "back", 101)]);
    bench.list("nodes", 1_000_000_001, vec![]);
    let a = object("configmaps", "a", 102).owned_by("things", "back");
    bench.list("configmaps", 1_000_000_001, vec![a]);
    for _ in 0..20 {
        bench.pass(Duration::from_secs(5));
        bench.answer_probes(1_000_000_001, &[]);
    }
    assert_eq!((bench.grants(), bench.leader.queries().status().stopped), (vec![], None), "its owner is back");
}

#[test]
fn what_is_withheld_is_not_granted_and_what_was_not_begun_comes_back_until_it_is_allowed_again() {
    let mut bench = Bench::synced();
    with_dependents(&mut bench, 3);
    let (begun, waiting) = (bench.take("d0"), bench.take("d1"));
    bench.message(STREAM, ToLeader::Started { leases: vec![begun.id] });
    bench.granted.clear();
    bench.input(Input::Withhold { why: Some("the log is away".to_string()) });
    let recalled = |(_, message): &(StreamId, ToExecutor)| matches!(message, ToExecutor::Revoke { leases, mode: RevokeMode::IfNotStarted, .. } if leases.contains(&waiting.id));
    assert!(bench.sent.iter().any(recalled), "what was not begun");
    let returned = WorkReturn { lease: waiting.id, cause: ReturnCause::NotStarted };
    bench.message(STREAM, ToLeader::Reports { reports: Vec::new(), returns: vec![returned] });
    bench.report(&begun, Outcome::Done);
    bench.pass(Duration::from_secs(60));
    assert_eq!(bench.grants(), Vec::<String>::new());
    assert_eq!(bench.leader.queries().status().stopped.as_deref(), Some("the log is away"));

    bench.input(Input::WatchLost {
        collection: collection("things"),
        end: WatchEnd::Transport,
        error: "cut".to_string(),
    });
    bench.input(Input::Withhold { why: None });
    assert_eq!(bench.grants(), Vec::<String>::new(), "another reason has come meanwhile");
    bench.answer_probes(200, &[]);
    assert!(!bench.grants().is_empty());
    let told = |why: &Event| bench.events.iter().filter(|event| *event == why).count();
    assert_eq!(told(&Event::GrantsStopped { why: "the log is away".to_string() }), 1);
    assert_eq!(told(&Event::GrantsResumed), 1);
}
