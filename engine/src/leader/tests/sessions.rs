//! Admission of executors, and the ends of their leases.

use super::*;
use crate::work::{HeldLease, PROTOCOL, SessionNumber};

fn with_work() -> Bench {
    let mut bench = Bench::synced();
    bench.seen("things", object("things", "o", 101));
    bench.seen("configmaps", object("configmaps", "a", 102).owned_by("things", "o"));
    bench.deleted("things", "o", 103);
    bench
}

#[test]
fn only_a_leader_lets_in_and_only_executors_of_its_cluster_and_protocol() {
    let refused = |edit: fn(&mut Hello)| {
        let mut bench = Bench::without_executor();
        let mut hello = hello("e", "i");
        edit(&mut hello);
        bench.hello(STREAM, hello);
        bench.refused.pop()
    };
    assert_eq!(refused(|_| {}), None);
    assert!(matches!(refused(|hello| hello.cluster_uid = "other".into()), Some(Refusal::OtherCluster { .. })));
    assert!(matches!(refused(|hello| hello.min_protocol = 2), Some(Refusal::ProtocolUnsupported { .. })));
    assert!(matches!(refused(|hello| hello.known_term = Some(term(2))), Some(Refusal::TermStale { .. })));
    assert_eq!(refused(|hello| hello.known_term = Some(Term { election: "x".into(), number: 9 })), None);
    let mut bench = Bench::without_executor();
    bench.input(Input::TermLost { leader_endpoint: String::new() });
    bench.hello(STREAM, hello("e", "i"));
    assert_eq!(bench.refused, [Refusal::NotLeader]);
}

/// The leader and the executor agree on a protocol, regardless of which one is a release ahead.
#[test]
fn a_stream_speaks_the_newest_protocol_that_both_of_its_ends_do() {
    let said = |leader: u32, executor: u32| {
        let mut bench = Bench::configured(Config { protocols: Protocols::of_release(leader), ..config() }, 7);
        let Protocols { oldest, newest } = Protocols::of_release(executor);
        bench.hello(STREAM, Hello { min_protocol: oldest, max_protocol: newest, ..hello("e", "i") });
        let welcomes = bench.sent.iter().find_map(|(_, message)| {
            let ToExecutor::Welcome(welcome) = message else { return None };
            Some(welcome.protocol)
        });
        welcomes.ok_or_else(|| bench.refused.remove(0))
    };
    let (new, old) = (PROTOCOL + 1, PROTOCOL);
    assert_eq!(said(old, old), Ok(old));
    assert_eq!(said(new, old), Ok(old), "graph services come first");
    assert_eq!(said(old, new), Ok(old), "a leader of the old release, while not all are replaced, or on the way back");
    assert_eq!(said(new, new), Ok(new));
    // Two releases lie between them.
    let refused = Refusal::ProtocolUnsupported { min: old + 1, max: old + 2 };
    assert_eq!(said(old + 2, old), Err(refused));
}

#[test]
fn a_silent_executor_loses_its_leases_after_ttl_and_a_beat() {
    let mut bench = with_work();
    let lease = bench.take("a");
    let other = StreamId(2);
    bench.hello(other, hello("e2", "i2"));
    let silent = |span: Duration, bench: &mut Bench| {
        bench.now = bench.now + span;
        bench.leader.handle(bench.now, Input::Message { stream: other, message: beat() });
        bench.leader.tick(bench.now);
        bench.drain();
    };
    bench.message(STREAM, ToLeader::Started { leases: vec![lease.id] });
    for _ in 0..4 {
        silent(Duration::from_secs(4), &mut bench);
    }
    silent(Duration::from_millis(3999), &mut bench);
    assert_eq!(bench.grants(), NOTHING);
    silent(Duration::from_millis(1), &mut bench);
    let again = bench.take("a");
    assert!(again.previous_attempt_ambiguous && again.attempt == 2 && again.id != lease.id);
    // The late report of the old lease closes nothing.
    bench.message(STREAM, ToLeader::Reports { reports: vec![done(&lease)], returns: vec![] });
    assert_eq!(bench.leader.queries().status().leased, 1);
}

#[test]
fn a_grant_that_is_not_started_is_recalled_and_granted_elsewhere() {
    let mut bench = with_work();
    let first = bench.take("a");
    bench.pass(Duration::from_secs(15));
    assert!(bench.sent.iter().any(|(_, message)| matches!(message, ToExecutor::Revoke { .. })));
    assert_eq!(bench.grants(), NOTHING);
    bench.pass(Duration::from_secs(5));
    let second = bench.take("a");
    assert!(second.id != first.id && second.attempt == 1 && !second.previous_attempt_ambiguous);
}

#[test]
fn what_was_started_and_never_reported_is_ambiguous() {
    let mut bench = with_work();
    let first = bench.take("a");
    bench.message(STREAM, ToLeader::Started { leases: vec![first.id] });
    bench.pass(Duration::from_secs(34));
    assert_eq!(bench.grants(), NOTHING);
    bench.pass(Duration::from_secs(1));
    assert!(bench.take("a").previous_attempt_ambiguous);
}

#[test]
fn an_executor_that_sits_on_its_leases_is_passed_over_while_there_is_another() {
    let mut bench = with_work();
    let lease = bench.take("a");
    let other = StreamId(2);
    bench.hello(other, hello("e2", "i2"));
    let given = |bench: &mut Bench, to: StreamId| {
        bench.grants();
        let sent = core::mem::take(&mut bench.sent).into_iter();
        let leases = sent.filter_map(|(stream, message)| {
            if let (ToExecutor::Grant { leases }, true) = (message, stream == to) { Some(leases.len()) } else { None }
        });
        leases.sum::<usize>()
    };
    given(&mut bench, other);
    for _ in 0..5 {
        bench.pass(Duration::from_secs(4));
        bench.message(other, beat());
    }
    assert_eq!(given(&mut bench, other), 1, "what it did not start");
    for (number, name) in ["b", "c", "d"].into_iter().enumerate() {
        bench.seen("configmaps", object("configmaps", name, 104 + number as u64).owned_by("things", "o"));
    }
    assert_eq!(given(&mut bench, other), 3, "and all that is new");
    // The executor sends a message again, and has its turn.
    let returned = WorkReturn { lease: lease.id, cause: ReturnCause::NotStarted };
    bench.message(STREAM, ToLeader::Reports { reports: vec![], returns: vec![returned] });
    for (number, name) in ["e", "f"].into_iter().enumerate() {
        bench.seen("configmaps", object("configmaps", name, 108 + number as u64).owned_by("things", "o"));
    }
    assert_eq!(given(&mut bench, STREAM), 1);
}

#[test]
fn what_an_executor_is_late_with_keeps_its_place_in_the_window() {
    for report_late in [true, false] {
        let mut bench = Bench::synced();
        bench.message(STREAM, ToLeader::Window { max_outstanding: 1 });
        bench.seen("things", object("things", "o", 101));
        bench.seen("configmaps", object("configmaps", "a", 102).owned_by("things", "o"));
        bench.deleted("things", "o", 103);
        let lease = bench.take("a");
        bench.message(STREAM, ToLeader::Started { leases: vec![lease.id] });
        bench.pass(Duration::from_secs(35));
        // The executor still carries out that work, and would return any grant beyond its window at once.
        assert_eq!(bench.grants(), NOTHING);
        assert_eq!(bench.leader.queries().executors()[0].overdue, 1);
        if report_late {
            let report = WorkReport { outcome: Outcome::Ambiguous, ..done(&lease) };
            bench.message(STREAM, ToLeader::Reports { reports: vec![report], returns: vec![] });
        } else {
            bench.input(Input::StreamClosed { stream: STREAM });
            bench.hello(STREAM, Hello { window: 1, ..hello("e1", "i1") });
        }
        assert!(bench.take("a").previous_attempt_ambiguous);
    }
}

#[test]
fn a_newer_incarnation_supersedes_and_the_old_one_is_refused() {
    let mut bench = with_work();
    bench.take("a");
    bench.hello(StreamId(2), hello("e1", "i2"));
    assert_eq!(bench.grants(), ["delete(Background) a"], "its leases are granted anew");
    let away = |(stream, message): &(StreamId, ToExecutor)| {
        *stream == STREAM && matches!(message, ToExecutor::GoAway { cause: crate::work::GoAwayCause::Superseded, .. })
    };
    assert!(bench.sent.iter().any(away));
    bench.hello(StreamId(3), hello("e1", "i1"));
    assert_eq!(bench.refused, [Refusal::Superseded]);
}

#[test]
fn a_new_leader_knows_the_newer_of_two_incarnations_by_their_first_sessions() {
    let first = |term: Term, number| Some(SessionNumber { term, number });
    let (older, newer) = (first(term(1), 5), first(term(1), 9));
    let lost = Term { election: "x".into(), number: 1 };
    let table = [
        (newer.clone(), older.clone(), false),
        (older.clone(), newer.clone(), true),
        // The first session of this process is with this leader, so the process is newer than any process of an earlier
        // term.
        (None, newer.clone(), false),
        (older.clone(), None, true),
        (None, None, true),
        // A process that cannot be compared counts as just started.
        (newer.clone(), first(lost, 1), true),
        (newer.clone(), first(term(9), 1), true),
    ];
    for (holder, comes, let_in) in table {
        let mut bench = Bench::without_executor();
        bench.input(Input::TermGained(term(2)));
        bench.hello(STREAM, Hello { first_session: holder.clone(), ..hello("e1", "holder") });
        bench.hello(StreamId(2), Hello { first_session: comes.clone(), ..hello("e1", "comes") });
        let told = format!("{comes:?} comes where {holder:?} is");
        let expected = if let_in { vec![] } else { vec![Refusal::Superseded] };
        assert_eq!(bench.refused, expected, "{told}");
        let away = |(stream, message): &(StreamId, ToExecutor)| {
            *stream == STREAM && matches!(message, ToExecutor::GoAway { .. })
        };
        assert_eq!(bench.sent.iter().any(away), let_in, "{told}");
        assert_eq!(bench.leader.queries().executors().len(), 1, "{told}");
    }
}

#[test]
fn a_returning_executor_keeps_what_it_holds_and_lost_grants_go_out_again() {
    let mut bench = Bench::synced();
    bench.seen("things", object("things", "o", 101));
    for name in ["a", "b"] {
        bench.seen("configmaps", object("configmaps", name, 102).owned_by("things", "o"));
    }
    bench.deleted("things", "o", 104);
    let (a, b) = (bench.take("a"), bench.take("b"));
    bench.input(Input::StreamClosed { stream: STREAM });
    let mut again = hello("e1", "i1");
    let held = |lease: LeaseId, item: u64| HeldLease { lease, item, term: term(1), started: true };
    again.held = vec![held(a.id, a.item.id), held(LeaseId { term: 1, number: 999 }, 999)];
    bench.hello(StreamId(2), again);
    let Some((_, ToExecutor::Welcome(welcome))) =
        bench.sent.iter().rev().find(|(_, message)| matches!(message, ToExecutor::Welcome(_)))
    else {
        panic!("no welcome")
    };
    assert_eq!((&*welcome.adopted, &*welcome.dropped), (&[a.id][..], &[LeaseId { term: 1, number: 999 }][..]));
    let regranted = bench.take("b");
    assert_ne!(regranted.id, b.id);
}

#[test]
fn after_a_drain_nothing_is_granted_and_the_incarnation_does_not_come_back() {
    let mut bench = with_work();
    let lease = bench.take("a");
    bench.message(STREAM, ToLeader::Drain { reason: String::new(), deadline: Duration::from_secs(25) });
    bench.seen("configmaps", object("configmaps", "b", 104).owned_by("things", "o"));
    let returned = WorkReturn { lease: lease.id, cause: ReturnCause::NotStarted };
    bench.message(STREAM, ToLeader::Reports { reports: vec![], returns: vec![returned] });
    assert_eq!(bench.grants(), NOTHING);
    let acks: Vec<u32> = bench
        .sent
        .iter()
        .filter_map(
            |(_, message)| if let ToExecutor::DrainAck { outstanding } = message { Some(*outstanding) } else { None },
        )
        .collect();
    assert_eq!(acks, [1, 0]);
    bench.hello(StreamId(2), hello("e1", "i1"));
    assert_eq!(bench.refused, [Refusal::Drained]);
    bench.hello(StreamId(3), hello("e1", "i2"));
    bench.pass(Duration::from_secs(1));
    assert!(bench.grants().contains(&"delete(Background) a".to_string()));
}

#[test]
fn failures_wait_each_in_their_own_way() {
    let table: [(Outcome, u64, u64); 6] = [
        (Outcome::Transient, 0, 200),
        (Outcome::Conflict, 0, 100),
        (Outcome::Ambiguous, 100, 200),
        (Outcome::Forbidden, 4_999, 5_000),
        (Outcome::AdmissionDenied, 4_999, 5_000),
        (Outcome::Throttled, 999, 1_000),
    ];
    for (outcome, not_before, by) in table {
        let mut bench = with_work();
        let lease = bench.take("a");
        bench.report(&lease, outcome);
        bench.pass(Duration::from_millis(not_before.saturating_sub(1)));
        if not_before > 0 {
            assert_eq!(bench.grants(), NOTHING, "{outcome:?} before {not_before} ms");
        }
        bench.pass(Duration::from_millis(by - not_before.saturating_sub(1)));
        assert_eq!(bench.grants(), ["delete(Background) a"], "{outcome:?} by {by} ms");
    }
}

#[test]
fn credentials_that_expired_are_the_executors_matter_alone() {
    let mut bench = with_work();
    let lease = bench.take("a");
    let other = StreamId(2);
    bench.hello(other, hello("e2", "i2"));
    bench.message(STREAM, ToLeader::Window { max_outstanding: 0 });
    bench.report(&lease, Outcome::Unauthenticated);
    let again = bench.take("a");
    assert_eq!((again.attempt, again.previous_attempt_ambiguous), (1, false), "it does not count");
    assert!(matches!(bench.sent.last(), Some((stream, ToExecutor::Grant { .. })) if *stream == other));
    assert_eq!(bench.leader.queries().status().backing_off, 0, "and blocks no other item");
    let strangers: Vec<_> = bench
        .leader
        .queries()
        .executors()
        .into_iter()
        .map(|executor| (executor.executor, executor.unauthenticated))
        .collect();
    assert_eq!(strangers, [("e1".into(), true), ("e2".into(), false)]);
    bench.message(STREAM, ToLeader::Window { max_outstanding: 4 });
    assert!(!bench.leader.queries().executors()[0].unauthenticated);
}

#[test]
fn a_lone_executor_whose_credentials_expired_is_not_given_the_item_over_and_over() {
    let mut bench = with_work();
    let lease = bench.take("a");
    bench.report(&lease, Outcome::Unauthenticated);
    bench.pass(Duration::from_millis(999));
    assert_eq!(bench.grants(), NOTHING);
    bench.pass(Duration::from_millis(1));
    assert_eq!(bench.grants(), ["delete(Background) a"]);
}

#[test]
fn the_probe_of_a_blocker_stays_the_probe_if_no_executor_tried_it() {
    let mut bench = with_work();
    let lease = bench.take("a");
    bench.report(&lease, Outcome::Forbidden);
    bench.pass(Duration::from_secs(5));
    let probe = bench.take("a");
    bench.hello(StreamId(2), hello("e2", "i2"));
    bench.report(&probe, Outcome::Unauthenticated);
    assert_eq!(bench.take("a").attempt, 2);
}

#[test]
fn invalid_twice_is_parked_for_ten_minutes() {
    let mut bench = with_work();
    let lease = bench.take("a");
    bench.report(&lease, Outcome::Invalid);
    bench.pass(Duration::from_secs(1));
    let lease = bench.take("a");
    bench.report(&lease, Outcome::Invalid);
    bench.pass(Duration::from_secs(599));
    assert_eq!(bench.grants(), NOTHING);
    bench.pass(Duration::from_secs(1));
    assert_eq!(bench.grants(), ["delete(Background) a"]);
}

#[test]
fn a_delete_whose_event_never_comes_is_looked_into() {
    let mut bench = with_work();
    let lease = bench.take("a");
    bench.report(&lease, Outcome::Gone);
    bench.pass(Duration::from_secs(29));
    assert_eq!(bench.grants(), NOTHING, "a 404 to a write closes the item and nothing else");
    bench.pass(Duration::from_secs(1));
    bench.found("a", FindingResult::Absent(Some(version(110))));
    assert_eq!(bench.relists, [collection("configmaps")]);
}

#[test]
fn those_sent_away_come_back_spread_by_their_number() {
    for (executors, at_most) in [(2, Duration::from_millis(20)), (300, Duration::from_secs(2))] {
        let mut bench = Bench::without_executor();
        for number in 0..executors {
            bench.hello(StreamId(100 + number), hello(&number.to_string(), "i"));
        }
        bench.sent.clear();
        bench.input(Input::Stop);
        let waits: Vec<Duration> = bench
            .sent
            .iter()
            .filter_map(|(_, message)| match message {
                ToExecutor::GoAway { reconnect_after, .. } => Some(*reconnect_after),
                ToExecutor::Welcome(_)
                | ToExecutor::HeartbeatAck { .. }
                | ToExecutor::Grant { .. }
                | ToExecutor::ReportAck { .. }
                | ToExecutor::Revoke { .. }
                | ToExecutor::Throttle { .. }
                | ToExecutor::DrainAck { .. } => None,
            })
            .collect();
        assert_eq!(waits.len() as u64, executors);
        assert!(waits.iter().all(|wait| *wait <= at_most), "{waits:?}");
        assert!(waits.iter().any(|wait| *wait > at_most / 4), "{waits:?}");
    }
}

#[test]
fn a_deposed_leader_grants_nothing() {
    let mut bench = with_work();
    bench.take("a");
    bench.input(Input::TermLost { leader_endpoint: "there:1".to_string() });
    let names = |message: &ToExecutor| matches!(message, ToExecutor::GoAway { leader_endpoint, .. } if leader_endpoint == "there:1");
    assert!(bench.sent.iter().any(|(_, message)| names(message)), "{:?}", bench.sent);
    bench.seen("configmaps", object("configmaps", "b", 104).owned_by("things", "o"));
    bench.pass(Duration::from_secs(60));
    assert_eq!(bench.grants(), NOTHING);
    bench.input(Input::TermGained(term(3)));
    bench.answer_reads(&Ok(GuardAnswer::NotServed));
    bench.hello(StreamId(9), hello("e1", "i1"));
    let leases = core::mem::take(&mut bench.granted);
    assert_eq!(leases.len(), 2);
    assert!(leases.iter().all(|lease| lease.id.term == 3 && lease.term == term(3)));
}

fn hello_of(origin: Origin, incarnation: &str) -> Hello {
    Hello { origin, ..hello("e1", incarnation) }
}

#[test]
fn no_other_caller_takes_an_executors_name() {
    let caller = |name: &str| Origin::Caller(name.into());
    for (holder, other) in [(caller("a"), caller("b")), (caller("a"), caller("")), (Origin::Process, caller(""))] {
        for incarnation in ["i1", "i2"] {
            let mut bench = Bench::without_executor();
            bench.hello(STREAM, hello_of(holder.clone(), "i1"));
            bench.hello(StreamId(2), hello_of(other.clone(), incarnation));
            assert_eq!(bench.refused, [Refusal::NameTaken], "{other:?} as {holder:?}");
            assert!(!bench.sent.iter().any(|(_, message)| matches!(message, ToExecutor::GoAway { .. })));
            assert!(bench.leader.queries().executors()[0].connected);
            // The name is free after the end of the session.
            bench.refused.clear();
            bench.input(Input::StreamClosed { stream: STREAM });
            bench.now = bench.now + Duration::from_secs(21);
            bench.leader.tick(bench.now);
            bench.drain();
            bench.hello(StreamId(3), hello_of(other.clone(), incarnation));
            assert_eq!(bench.refused, []);
        }
    }
}

#[test]
fn a_later_process_of_the_same_caller_takes_over() {
    let mut bench = Bench::without_executor();
    let caller = || Origin::Caller("a".into());
    bench.hello(STREAM, hello_of(caller(), "i1"));
    bench.hello(StreamId(2), hello_of(caller(), "i2"));
    assert_eq!((&bench.refused[..], bench.leader.queries().executors().len()), (&[][..], 1));
    assert_eq!(*bench.leader.queries().executors()[0].incarnation, *"i2");
}

#[test]
fn the_executors_of_the_leaders_own_process_cannot_be_kept_out() {
    let mut bench = Bench::without_executor();
    let outside = || hello_of(Origin::default(), "i1");
    // The faster executor drained, and was superseded.
    bench.hello(STREAM, outside());
    bench.message(STREAM, ToLeader::Drain { reason: String::new(), deadline: Duration::ZERO });
    bench.hello(StreamId(2), Hello { incarnation: "i0".into(), ..outside() });
    bench.hello(StreamId(3), hello_of(Origin::Process, "i1"));
    assert_eq!(bench.refused, []);
    assert_eq!(
        (bench.leader.queries().executors().len(), &*bench.leader.queries().executors()[0].incarnation),
        (1, "i1")
    );
    bench.hello(StreamId(4), outside());
    assert_eq!(bench.refused, [Refusal::NameTaken]);
}

#[test]
fn a_stop_that_is_lost_with_its_stream_is_repeated_until_the_executor_reports() {
    for rewound in [false, true] {
        let mut bench = Bench::synced();
        let lease = bench.started_deletion();
        bench.input(Input::StreamClosed { stream: STREAM });
        match rewound {
            true => bench.bookmark("nodes", 90),
            false => bench.seen("things", object("things", "o", 125)),
        }
        let held = HeldLease { lease: lease.id, item: lease.item.id, term: term(1), started: true };
        let mut stopped_at = |stream: u64, held: &[HeldLease]| {
            bench.sent.clear();
            bench.hello(StreamId(stream), Hello { held: held.to_vec(), ..hello("e1", "i1") });
            let stops = |(at, message): &(StreamId, ToExecutor)| {
                *at == StreamId(stream)
                    && matches!(message, ToExecutor::Revoke { leases, mode: RevokeMode::Stop, .. } if leases.contains(&lease.id))
            };
            let stopped = bench.sent.iter().any(stops);
            bench.input(Input::StreamClosed { stream: StreamId(stream) });
            stopped
        };
        let held = [held];
        assert!(stopped_at(2, &held), "rewound: {rewound}");
        assert!(stopped_at(3, &held), "rewound: {rewound}");
        assert!(!stopped_at(4, &[]), "rewound: {rewound}");
        assert!(!stopped_at(5, &held), "the executor has said that it ended the attempt, rewound: {rewound}");
    }
}
