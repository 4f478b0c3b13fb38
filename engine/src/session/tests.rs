use super::*;
use crate::work::{PROTOCOL, ReturnCause, RevokeMode, Welcome};
use alloc::format;
use alloc::string::ToString;
use script::{check, config, delete, input, lease, report, term};

mod random;
mod script;

const OPEN: &str = r#"
    0  | connected   | hello - window 4 []
    10 | welcome L/1 | welcomed L/1, writes end 15000
"#;

fn check_open(script: &str) -> Session {
    check(&format!("{OPEN}{script}"))
}

#[test]
fn starts_what_fits_and_reports_what_ended() {
    let session = check_open(
        r#"
        20 | grant 1-1 1-2 1-3 1-4 | started [1-1 1-2], start 1-1, start 1-2
        30 | finish 1-1            | started [1-3], start 1-3
        39 | finish 1-3            | started [1-4], start 1-4
        40 | tick                  | reports [1-1 1-3] returns []
        50 | ack 1-1 1-3           |
        51 | finish 1-2            |
        52 | finish 1-4            | reports [1-2 1-4] returns []
        "#,
    );
    assert_eq!(
        session.status(),
        Status {
            phase: Phase::Active { since: Time::from_origin(Duration::from_millis(10)) },
            term: Some(term(1)),
            started: 0,
            buffered: 0,
            concurrency: 2,
            unacknowledged: 2,
            draining: false,
            credentials_refused: None,
        }
    );
    assert_eq!(session.writes_end, Some(Time::from_origin(Duration::from_secs(15))));
}

#[test]
fn returns_what_it_cannot_take() {
    check_open(
        r#"
        20 | grant 1-1!                    | reports [] returns [1-1:kind]
        21 | grant 1-2 1-3 1-4 1-5 1-6     | rejected 1 leases beyond the window of 4, started [1-2 1-3], start 1-2, start 1-3
        31 | tick                          | reports [] returns [1-6]
        32 | grant 1-3                     | rejected lease 1-3 granted twice
        33 | grant M:1-3 M:1-9             | rejected lease 1-3 granted twice, stale 1-9
        43 | tick                          | reports [] returns [1-3 1-9:term]
        44 | beat-ack 7                    | rejected the leader acknowledged the unknown heartbeat 7
        45 | welcome L/1                   | rejected unexpected message: a welcome
        46 | ack 1-2                       | rejected the leader acknowledged 1 unknown reports
        47 | finish 1-4                    | rejected an attempt for lease 1-4 ended, but no such attempt was in progress
        48 | drain-ack 0                   | rejected the leader acknowledged a drain that was not requested
        49 | connected                     | rejected connected without a request
        "#,
    );
}

#[test]
fn a_newer_term_voids_what_an_older_one_granted() {
    check_open(
        r#"
        20   | grant 1-1 1-2 1-3 | started [1-1 1-2], start 1-1, start 1-2
        5010 | tick              | beat 1 2+1
        5020 | beat-ack 1 2      | stale 1-3, writes end 20010
        5030 | tick              | reports [] returns [1-3:term]
        5031 | grant 1-4 2-1     | stale 1-4
        5041 | tick              | reports [] returns [1-4:term]
        5042 | finish 1-1        | started [2-1], start 2-1
        5043 | beat-ack 2 1      | rejected the leader acknowledged a heartbeat of term 1
        5044 | lost              | lost
        5550 | tick              | connect
        5551 | connected         | hello L/2 window 4 [1-2* 2-1* 1-1*]
        5552 | welcome L/1       | rejected term 1 has ended: a newer term 2 is known, disconnect, lost
        "#,
    );
}

#[test]
fn long_after_a_session_its_term_counts_no_more() {
    // The store was restored with the election's Lease: the next leader starts with a low number.
    for (minute, end) in [(59_999, "L/3"), (60_000, "-")] {
        check(&format!(
            r#"
            0     | connected   | hello - window 4 []
            10    | welcome L/3 | welcomed L/3, writes end 15000
            15000 | tick        | lapsed, disconnect, lost
            15510 | tick        | connect
            15511 | lost        | lost
            {}    | tick        | connect
            {}    | connected   | hello {end} window 4 []
            "#,
            15_000 + minute - 1,
            15_000 + minute,
        ));
    }
}

#[test]
fn is_valid_from_the_send_of_the_last_acknowledged_heartbeat() {
    check_open(
        r#"
        20    | grant 1-1 1-2 1-3 | started [1-1 1-2], start 1-1, start 1-2
        5010  | tick              | beat 1 2+1
        10010 | tick              | beat 2 2+1
        10020 | beat-ack 1        | writes end 20010
        15010 | tick              | beat 3 2+1
        20009 | tick              |
        20010 | tick              | lapsed, cancel 1-1, cancel 1-2, disconnect, lost
        20520 | tick              | connect
        20521 | finish 1-1        |
        20522 | connected         | hello L/1 window 4 [1-2* 1-1*]
        20523 | welcome L/1       | welcomed L/1, writes end 35522, reports [1-1] returns [1-3:lapsed]
        20524 | grant 1-4 1-5     | started [1-4], start 1-4
        "#,
    );
}

#[test]
fn between_two_streams_nothing_starts_and_nothing_is_forgotten() {
    check_open(
        r#"
        20   | grant 1-1 1-2 1-3 1-4 | started [1-1 1-2], start 1-1, start 1-2
        21   | finish 1-1            | started [1-3], start 1-3
        22   | lost                  | lost
        23   | finish 1-2            |
        400  | tick                  | connect
        401  | connected             | hello L/1 window 4 [1-4 1-3* 1-2* 1-1*]
        402  | welcome L/1 1-4 1-3   | welcomed L/1, writes end 15401, started [1-4], start 1-4, reports [1-1 1-2] returns []
        403  | lost                  | lost
        900  | tick                  | connect
        901  | connected             | hello L/1 window 4 [1-3* 1-4* 1-2* 1-1*]
        902  | welcome L/1 1-3       | welcomed L/1, writes end 15901, reports [1-1 1-2] returns []
        903  | ack 1-1 1-2           |
        904  | grant 1-5 1-6 1-7     |
        905  | finish 1-4            | started [1-5], start 1-5
        "#,
    );
}

#[test]
fn what_a_new_leader_does_not_adopt_is_handed_back_or_reported_late() {
    check_open(
        r#"
        20  | grant 1-1 1-2 1-3 1-4 | started [1-1 1-2], start 1-1, start 1-2
        22  | lost                  | lost
        400 | tick                  | connect
        401 | connected             | hello L/1 window 4 [1-3 1-4 1-1* 1-2*]
        402 | welcome L/2 1-3       | welcomed L/2, stale 1-3, stale 1-4, writes end 15401, reports [] returns [1-3:term 1-4:term]
        403 | finish 1-1            |
        413 | tick                  | reports [1-1] returns []
        "#,
    );
    // Another election has its own ids.
    check_open(
        r#"
        20  | grant 1-1 1-2 1-3     | started [1-1 1-2], start 1-1, start 1-2
        22  | lost                  | lost
        400 | tick                  | connect
        401 | connected             | hello L/1 window 4 [1-3 1-1* 1-2*]
        402 | welcome M/1           | welcomed M/1, writes end 15401
        403 | grant M:1-1 M:1-4     | rejected lease 1-1 granted twice
        413 | tick                  | reports [] returns [1-1]
        "#,
    );
}

#[test]
fn revocations_reach_what_they_name() {
    check_open(
        r#"
        20 | grant 1-1 1-2 1-3 1-4  | started [1-1 1-2], start 1-1, start 1-2
        21 | recall 1-1 1-3 1-9     |
        31 | tick                   | reports [] returns [1-3]
        32 | stop 1-1 1-4           | cancel 1-1
        33 | stop 1-1               |
        42 | tick                   | reports [] returns [1-4]
        43 | finish 1-1             |
        "#,
    );
}

#[test]
fn a_stream_that_does_not_open_is_tried_again_ever_more_slowly() {
    let mut session = Session::new(config(), 3);
    let mut now = Time::ZERO;
    let mut waits = Vec::new();
    for _ in 0..12 {
        while session.poll().is_some() {}
        session.handle(now, Input::Disconnected { leader_endpoint: None, refusal: None, why: "refused".to_string() });
        let retry_at = session.next_deadline().expect("a retry");
        waits.push(retry_at.since(now));
        now = retry_at;
        session.tick(now);
    }
    assert!(
        waits.iter().all(|wait| *wait >= Duration::from_millis(100) && *wait <= Duration::from_secs(5)),
        "{waits:?}"
    );
    assert!(waits[0] <= Duration::from_millis(500), "{waits:?}");
    assert!(waits.iter().any(|wait| *wait > Duration::from_secs(1)), "{waits:?}");
    check(
        r#"
        0     | tick      |
        29999 | tick      |
        30000 | tick      | disconnect, lost
        30500 | tick      | connect
        30501 | connected | hello - window 4 []
        31250 | tick      |
        31251 | tick      | disconnect, lost
        "#,
    );
}

#[test]
fn a_graph_service_that_does_not_lead_is_asked_again_soon() {
    let mut session = Session::new(config(), 3);
    let mut now = Time::ZERO;
    let refusals = [None, None, None, None, None, Some(Refusal::NotLeader), Some(Refusal::NotLeader)];
    let mut wait = Duration::ZERO;
    for refusal in refusals {
        while session.poll().is_some() {}
        session.handle(now, Input::Disconnected { leader_endpoint: None, refusal, why: "refused".to_string() });
        let retry_at = session.next_deadline().expect("a retry");
        wait = retry_at.since(now);
        now = retry_at;
        session.tick(now);
    }
    assert!(wait <= config().reconnect_min * 4, "however many could not be reached before: {wait:?}");
}

#[test]
fn follows_three_hints_in_a_row() {
    check(
        r#"
        0    | lost a:1  | lost
        100  | tick      | connect a:1
        101  | lost b:1  | lost
        201  | tick      | connect b:1
        202  | lost a:1  | lost
        302  | tick      | connect a:1
        303  | lost b:1  | lost
        803  | tick      | connect
        804  | lost a:1  | lost
        904  | tick      | connect a:1
        "#,
    );
}

#[test]
fn goes_where_it_is_sent_once_its_reports_have_arrived() {
    check_open(
        r#"
        20   | grant 1-1 1-2 1-3     | started [1-1 1-2], start 1-1, start 1-2
        30   | away changed b:1 1 5  | sent away
        31   | away changed c:1 1 5  | sent away, rejected the leader asked the executor to leave twice
        32   | finish 1-1            | reports [1-1] returns []
        1030 | tick                  |
        1031 | ack 1-1               | disconnect, lost
        1131 | tick                  | connect b:1
        1132 | connected             | hello L/1 window 4 [1-3 1-2*]
        1133 | welcome L/2           | welcomed L/2, stale 1-3, writes end 16132, reports [] returns [1-3:term]
        "#,
    );
    check_open(
        r#"
        20   | grant 1-1             | started [1-1], start 1-1
        30   | finish 1-1            | reports [1-1] returns []
        31   | away age - 0 5        | sent away
        5010 | tick                  | beat 1 0+0
        5031 | tick                  | disconnect, lost
        5131 | tick                  | connect
        5132 | connected             | hello L/1 window 4 [1-1*]
        5133 | welcome L/1           | welcomed L/1, writes end 20132, reports [1-1] returns []
        5134 | away superseded - 0 0 | sent away, writes end 5134, disconnect, exit Superseded
        "#,
    );
}

#[test]
fn a_stranger_to_the_api_server_takes_no_work_until_it_is_let_in_again() {
    let session = check_open(
        r#"
        20   | grant 1-1 1-2 1-3 1-4 | started [1-1 1-2], start 1-1, start 1-2
        30   | stranger 1-1          | window 0, credentials refused
        31   | stranger 1-2          | reports [1-1 1-2] returns [1-3 1-4]
        32   | grant 1-5             | reports [] returns [1-5]
        33   | checked ok            | rejected a check of the credentials ended that was not requested
        1030 | tick                  | check credentials
        1040 | checked 401           | credentials refused
        1045 | ack 1-1 1-2           |
        2000 | tick                  |
        3045 | tick                  | check credentials
        3050 | lost                  | lost
        3550 | tick                  | connect
        3551 | connected             | hello L/1 window 0 []
        3552 | welcome L/1           | welcomed L/1, writes end 18551
        3553 | checked ok            | credentials accepted, window 4
        3554 | grant 1-6             | started [1-6], start 1-6
        8552 | tick                  | beat 1 1+0, window 4
        "#,
    );
    assert_eq!(session.status().credentials_refused, None);
}

#[test]
fn starts_no_more_writes_than_its_share_and_little_once_that_has_run_out() {
    check_open(
        r#"
        20    | share 2 10             |
        21    | grant 1-1 1-2 1-3 1-4  |
        519   | tick                   |
        520   | tick                   | started [1-1], start 1-1
        530   | finish 1-1             |
        540   | tick                   | reports [1-1] returns []
        1020  | tick                   | started [1-2], start 1-2
        1030  | wrote-again 1          |
        1031  | finish 1-2             |
        1041  | tick                   | reports [1-2] returns []
        1520  | tick                   |
        2020  | tick                   | started [1-3], start 1-3
        2021  | share 0 3              |
        2022  | ack 1-1 1-2            |
        5010  | tick                   | beat 1 1+1
        5011  | beat-ack 1             | writes end 20010
        5021  | tick                   | share lapsed
        6021  | tick                   | started [1-4], start 1-4
        "#,
    );
}

#[test]
fn a_leader_without_shares_sets_no_limit_after_the_old_share_has_expired() {
    check_open(
        r#"
        20    | share 1 3              |
        21    | lost                   | lost
        400   | tick                   | connect
        401   | connected              | hello L/1 window 4 []
        402   | welcome L/2            | welcomed L/2, writes end 15401
        403   | grant 2-1 2-2 2-3      |
        1020  | tick                   | started [2-1], start 2-1
        2020  | tick                   | started [2-2], start 2-2
        2030  | finish 2-1             |
        2031  | finish 2-2             |
        2040  | tick                   | reports [2-1 2-2] returns []
        3020  | tick                   | started [2-3], start 2-3
        3021  | finish 2-3             | reports [2-3] returns []
        3022  | grant 2-4 2-5          | started [2-4 2-5], start 2-4, start 2-5
        "#,
    );
}

#[test]
fn some_refusals_are_final() {
    check("0 | refused superseded | exit Superseded");
    check(r#"0 | refused cluster  | exit OtherCluster { ours: "here", theirs: "there" }"#);
    check("0 | refused protocol   | exit ProtocolUnsupported { min: 3, max: 4 }");
    check("0 | refused stale      | lost");
    check("0 | refused drained    | lost");
}

#[test]
fn a_drain_hands_everything_back() {
    check_open(
        r#"
        20 | grant 1-1 1-2 1-3 | started [1-1 1-2], start 1-1, start 1-2
        30 | drain 30          | drain 30s, reports [] returns [1-3]
        31 | drain-ack 2       |
        32 | grant 1-4         | reports [] returns [1-4]
        33 | finish 1-1        | reports [1-1] returns []
        34 | finish 1-2        | reports [1-2] returns []
        35 | ack 1-1 1-2       |
        36 | drain-ack 0       | writes end 36, disconnect, exit Drained
        37 | grant 1-5         |
        "#,
    );
    check("0 | drain 5 | disconnect, exit Drained");
    check(
        r#"
        0 | connected   | hello - window 4 []
        1 | drain 5     |
        2 | welcome L/1 | welcomed L/1, writes end 15000, drain 4.999s
        3 | drain-ack 0 | writes end 3, disconnect, exit Drained
        "#,
    );
}

#[test]
fn a_drain_without_a_leader_ends_at_its_deadline() {
    check_open(
        r#"
        20   | grant 1-1 1-2 1-3 | started [1-1 1-2], start 1-1, start 1-2
        30   | lost              | lost
        31   | drain 1           |
        32   | finish 1-1        |
        531  | tick              | connect
        532  | connected         | hello L/1 window 4 [1-2* 1-1*]
        533  | welcome L/1 1-2   | welcomed L/1, writes end 15532, drain 498ms, reports [1-1] returns [1-3]
        534  | lost              | lost
        1031 | tick              | cancel 1-2, writes end 1031, exit DrainTimedOut { outstanding: 2 }
        "#,
    );
    check_open(
        r#"
        20   | grant 1-1         | started [1-1], start 1-1
        30   | drain 9           | drain 9s
        31   | finish 1-1        | reports [1-1] returns []
        32   | lost              | lost
        532  | tick              | connect
        533  | refused drained   | lost, writes end 533, exit Drained
        "#,
    );
    check_open(
        r#"
        20   | drain 9           | drain 9s
        30   | lost              | lost, writes end 30, exit Drained
        "#,
    );
}

#[test]
fn batches_are_bounded_and_reports_too() {
    let mut config = config();
    config.concurrency = Concurrency::Fixed(400);
    let mut session = Session::new(config, 1);
    let at = |millis| Time::from_origin(Duration::from_millis(millis));
    session.handle(at(0), Input::Connected);
    session.handle(at(1), input("welcome L/1").expect("a message"));
    let leases: Vec<WorkLease> =
        (1..=400).map(|number| lease(LeaseId { term: 1, number }, term(1), delete())).collect();
    session.handle(at(2), Input::Message(ToExecutor::Grant { leases: leases.clone() }));
    let mut batches = Vec::new();
    while let Some(output) = session.poll() {
        if let Output::Send(ToLeader::Started { leases }) = output {
            batches.push(leases.len());
        }
    }
    assert_eq!(batches, [100, 100, 100, 100]);
    session.handle(at(3), input("lost").expect("an input"));
    for lease in &leases {
        session.handle(at(4), Input::Finished(report(lease.id, term(1))));
    }
    session.tick(at(1_000));
    session.handle(at(1_001), Input::Connected);
    session.handle(at(1_002), input("welcome L/1").expect("a message"));
    while let Some(output) = session.poll() {
        if let Output::Send(ToLeader::Reports { reports, .. }) = output {
            batches.push(reports.len());
        }
    }
    assert_eq!(batches[4..], [100, 100, 100, 100]);

    // The leader acknowledges nothing: the oldest reports are dropped first.
    let mut dropped = 0;
    for number in 1_000..1_000 + REPORTS_MAX as u64 {
        let id = LeaseId { term: 1, number };
        let grant = ToExecutor::Grant { leases: Vec::from([lease(id, term(1), delete())]) };
        for input in [Input::Message(grant), Input::Finished(report(id, term(1)))] {
            session.handle(at(2_000), input);
            while let Some(output) = session.poll() {
                dropped += usize::from(matches!(output, Output::Event(Event::Rejected { .. })));
            }
        }
    }
    assert_eq!(dropped, 400);
    assert_eq!(session.status().unacknowledged, REPORTS_MAX);
}

#[test]
fn a_lease_that_is_recalled_in_the_same_instant_as_it_is_granted_is_never_started() {
    for mode in [RevokeMode::IfNotStarted, RevokeMode::Stop] {
        let mut session = check_open("");
        let id = LeaseId { term: 1, number: 1 };
        let grant = ToExecutor::Grant { leases: Vec::from([lease(id, term(1), delete())]) };
        let revoke = ToExecutor::Revoke { leases: Vec::from([id]), mode, reason: "the decision is void".to_string() };
        // A delayed stream brings both at once.
        for message in [grant, revoke] {
            session.handle(Time::from_origin(Duration::from_millis(100)), Input::Message(message));
        }
        let outputs: Vec<Output> = core::iter::from_fn(|| session.poll()).collect();
        let [Output::Send(ToLeader::Reports { reports, returns })] = &outputs[..] else { panic!("{outputs:?}") };
        assert_eq!((reports.len(), returns[0].lease, returns[0].cause), (0, id, ReturnCause::NotStarted));
    }
}

#[test]
fn an_executor_a_release_ahead_speaks_what_the_leader_chooses_and_nothing_it_did_not_offer() {
    let welcome = || {
        let ToExecutor::Welcome(welcome) = script::welcome("L/1") else { panic!("the script's leader welcomes") };
        welcome
    };
    let after_welcome = |protocol: u32| {
        let mut session = Session::new(Config { protocols: Protocols::of_release(PROTOCOL + 1), ..config() }, 1);
        let mut outputs = Vec::new();
        let inputs = [Input::Connected, Input::Message(ToExecutor::Welcome(Welcome { protocol, ..welcome() }))];
        for input in inputs {
            session.handle(Time::ZERO, input);
            outputs.extend(core::iter::from_fn(|| session.poll()));
        }
        outputs
    };
    let offered = |outputs: &[Output]| {
        outputs.iter().find_map(|output| {
            let Output::Send(ToLeader::Hello(hello)) = output else { return None };
            Some((hello.min_protocol, hello.max_protocol))
        })
    };
    for protocol in [PROTOCOL, PROTOCOL + 1] {
        let outputs = after_welcome(protocol);
        assert_eq!(offered(&outputs), Some((PROTOCOL, PROTOCOL + 1)));
        let open = |output: &Output| matches!(output, Output::Event(Event::Welcomed { protocol: told, .. }) if *told == protocol);
        assert!(outputs.iter().any(open), "{outputs:?}");
    }
    for protocol in [PROTOCOL - 1, PROTOCOL + 2] {
        let outputs = after_welcome(protocol);
        assert!(outputs.contains(&Output::Disconnect), "{outputs:?}");
    }
}

#[test]
fn a_report_says_what_it_is_about_to_a_leader_that_did_not_grant_it_and_reads_protocol_2() {
    let about = || {
        let target = lease(LeaseId { term: 1, number: 1 }, term(1), delete()).item.target;
        crate::work::About { target, action: ActionKind::Delete, decision: 7 }
    };
    for (protocol, lease_term, expected) in [(2, 1, (true, true)), (2, 2, (false, true)), (1, 1, (false, false))] {
        let mut session = Session::new(config(), 1);
        let ToExecutor::Welcome(welcome) = script::welcome("L/2") else { panic!("the script's leader welcomes") };
        session.handle(Time::ZERO, Input::Connected);
        session.handle(Time::ZERO, Input::Message(ToExecutor::Welcome(Welcome { protocol, ..welcome })));
        while session.poll().is_some() {}
        let id = LeaseId { term: lease_term, number: 1 };
        let report = WorkReport {
            about: Some(alloc::boxed::Box::new(about())),
            audit_id: String::from("4f"),
            ..report(id, Term { election: "L".into(), number: lease_term })
        };
        session.reports.insert(id, report);
        session.unsent.push_back(id);
        session.tick(Time::ZERO + Duration::from_secs(1));
        let sent = core::iter::from_fn(|| session.poll()).find_map(|output| {
            let Output::Send(ToLeader::Reports { reports, .. }) = output else { return None };
            reports.into_iter().next()
        });
        let sent = sent.expect("it is reported");
        assert_eq!(
            (sent.about.is_some(), !sent.audit_id.is_empty()),
            expected,
            "protocol {protocol}, term {lease_term}"
        );
    }
}
