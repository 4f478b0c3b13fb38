use super::words::of_log;
use super::*;
use proto::admin::v1beta1::decision_log_status::State as LogState;
use proto::admin::v1beta1::{DecisionLogStatus, Obstacle, UntrueReports};
use proto::decision::v1beta1::Position;
use proto::r#type::v1beta1::{GroupResource, ObjectRef, ResponseMeta, Term};
use proto::work::v1beta1::ExecutorIdentity;
use serde_json::Value;

#[test]
fn a_collector_that_stopped_without_a_word_is_told_of() {
    let seconds = |seconds: i64| Some(prost_types::Duration { seconds, nanos: 0 });
    let mut status = GetStatusResponse::default();
    assert_eq!(of_progress(&status), Ok("not reported by this version of the graph service".to_owned()));
    status.loop_idle = seconds(4);
    assert_eq!(of_progress(&status), Ok("the loop makes progress, nothing waits".to_owned()));
    status.oldest_queued_age = seconds(90);
    status.oldest_held_age = seconds(90);
    assert_eq!(
        of_progress(&status),
        Ok("the loop makes progress, the oldest decision waits for 90 s, the oldest is held for 90 s".to_owned())
    );
    (status.term, status.queued_items) = (Some(Term::default()), 2);
    assert_eq!(of_progress(&status), Err("STOPPED: work is ready, and no executor is connected".to_owned()));
    status.executors = 1;
    (status.oldest_queued_age, status.oldest_held_age) = (None, None);
    assert_eq!(of_progress(&status), Ok("the loop makes progress, nothing is ready".to_owned()));
    status.stalled_for = seconds(31);
    assert_eq!(
        of_progress(&status),
        Err("STALLED: work is ready, but no attempt ended and nothing was withdrawn for 31 s".to_owned())
    );
    status.loop_idle = seconds(31);
    assert_eq!(of_progress(&status), Err("STOPPED: the collector's loop has made no progress for 31 s".to_owned()));
}

/// The exit code 2 of a query means findings.
#[test]
fn a_broken_collector_is_a_finding_and_a_paused_starting_or_standby_one_is_not() {
    let role = |role: ReplicaRole| Some(ResponseMeta { role: role.into(), ..ResponseMeta::default() });
    let fine = || GetStatusResponse {
        loop_idle: Some(prost_types::Duration::default()),
        meta: role(ReplicaRole::Leader),
        ..Default::default()
    };
    let standby = GetStatusResponse {
        grants_stopped: "this replica does not lead".to_owned(),
        meta: role(ReplicaRole::Standby),
        ..fine()
    };
    assert!(!is_broken(&standby, &[]));
    let collection = |state: State| Collection { state: state.into(), ..Collection::default() };
    assert!(!is_broken(&fine(), &[collection(State::Synced), collection(State::Listing)]));
    assert!(!is_broken(&GetStatusResponse { queued_items: 3, held_items: 3, ..fine() }, &[]));
    assert!(is_broken(&fine(), &[collection(State::Failed)]));
    for broken in [
        GetStatusResponse { loop_idle: Some(prost_types::Duration { seconds: 31, nanos: 0 }), ..fine() },
        GetStatusResponse { grants_stopped: "the store went back".to_owned(), ..fine() },
        GetStatusResponse { pauses_unknown: "403".to_owned(), ..fine() },
        GetStatusResponse { untrue_reports: vec![UntrueReports::default()], ..fine() },
    ] {
        assert!(is_broken(&broken, &[]), "{broken:?}");
    }
}

#[test]
fn an_executor_whose_reports_are_untrue_is_named() {
    let identity = ExecutorIdentity { executor: "e-0".to_owned(), incarnation: "1f".to_owned() };
    let refused_for = Some(prost_types::Duration { seconds: 540, nanos: 0 });
    let liar = UntrueReports { identity: Some(identity), count: 10, refused_for };
    let status = GetStatusResponse { untrue_reports: vec![liar], ..GetStatusResponse::default() };
    let line = "10 reports of executor e-0 (process 1f), refused for another 540 s";
    assert!(
        lines(&status, None, &[], Searched::default())
            .lines()
            .any(|found| found.starts_with("UNTRUE") && found.ends_with(line))
    );
}

#[test]
fn what_decided_work_waits_for_is_named_with_the_last_answer() {
    let webhook = Obstacle {
        what: "webhook: guard".to_owned(),
        items: 322,
        why: "admission_denied: no deletions on Fridays".to_owned(),
        ..Obstacle::default()
    };
    let object = ObjectRef {
        kind: "ConfigMap".to_owned(),
        namespace: "a".to_owned(),
        name: "x".to_owned(),
        ..ObjectRef::default()
    };
    let slow = Obstacle {
        what: "delete".to_owned(),
        items: 1,
        why: "attempt 13 failed: transient: the owner answers too slowly".to_owned(),
        object: Some(object),
        attempts: 13,
        ..Obstacle::default()
    };
    let mut status = GetStatusResponse {
        loop_idle: Some(prost_types::Duration::default()),
        obstacles: vec![webhook, slow],
        more_obstacles: 2,
        ..GetStatusResponse::default()
    };
    let text = lines(&status, None, &[], Searched::default());
    for expected in [
        "progress    FAILING: delete of ConfigMap a/x was tried 13 times: attempt 13 failed: transient: the owner answers too slowly\n",
        "blocked     322 behind webhook: guard: admission_denied: no deletions on Fridays\n",
        "            and 2 more\n",
    ] {
        assert!(text.contains(expected), "{text}");
    }
    status.obstacles.pop();
    assert_eq!(of_progress(&status), Ok("the loop makes progress, nothing waits".to_owned()));
    let told = document(&status, None, &[], Searched::default()).unwrap().with_incomplete(&[]);
    assert_eq!((&told["kind"], &told["obstacles"][0]["items"]), (&"CollectorStatus".into(), &"322".into()));
}

#[test]
fn guards_stand_below_the_status_with_what_they_hold() {
    let keep = Guard { name: "protections/keep".to_owned(), held_items: 7, ..Guard::default() };
    let status = GetStatusResponse::default();
    let text = lines(&status, Some(std::slice::from_ref(&keep)), &[], Searched::default());
    let text = anstream::adapter::strip_str(&text).to_string();
    assert!(text.contains("\n\nGUARD ") && text.contains("\nprotection/keep  pending  7 "), "{text}");
    assert!(!text.contains("pauses "), "{text}");
    assert!(lines(&status, Some(&[]), &[], Searched::default()).ends_with("\nguards      none\n"));
    assert!(lines(&status, None, &[], Searched::default()).ends_with("\npauses      none\n"));
    let told = document(&status, Some(&[keep]), &[], Searched::default()).unwrap().with_incomplete(&[]);
    assert_eq!(told["guards"][0]["heldItems"], "7");
}

#[test]
fn a_log_that_is_away_is_told_with_why_and_with_what_waits() {
    let at = |sequence: u64| Some(Position { log_id: "log".to_owned(), sequence });
    let mut log =
        DecisionLogStatus { state: LogState::Writing.into(), oldest: at(3), newest: at(9), ..Default::default() };
    assert_eq!(of_log(&log), "on JetStream, positions 3 to 9");
    let empty = DecisionLogStatus { oldest: at(1), newest: at(0), ..log.clone() };
    assert_eq!(of_log(&empty), "on JetStream, no events yet");
    log = DecisionLogStatus {
        state: LogState::Away.into(),
        required: true,
        problem: "refused".to_owned(),
        waiting_events: 4,
        ..log
    };
    assert_eq!(
        of_log(&log),
        "on JetStream, which is unreachable; grants are suspended (refused), positions 3 to 9, 4 wait"
    );
}

#[test]
fn a_collection_that_cannot_be_seen_is_named_with_its_error() {
    let collection = |group: &str, resource: &str, state: State, error: &str| Collection {
        group_resource: Some(GroupResource { group: group.to_owned(), resource: resource.to_owned() }),
        state: state.into(),
        error: error.to_owned(),
        ..Collection::default()
    };
    let collections = [
        collection("", "pods", State::Synced, ""),
        collection("", "bindings", State::Ignored, ""),
        collection("example.com", "widgets", State::Failed, "403"),
    ];
    let text = lines(
        &GetStatusResponse::default(),
        None,
        &collections,
        Searched { annotated: Some(2), observed: Some(1), parity: Some(GetParityResponse::default()) },
    );
    assert!(text.contains("mode        observe: ") && text.contains("annotated   2 to be deleted"), "{text}");
    assert!(text.contains("parity      nothing compared yet, since "), "{text}");
    let expected = "collections 1 synced, 1 failed\n            widgets.example.com is failed: 403\n";
    assert!(text.contains(expected), "{text}");
    let told =
        document(&GetStatusResponse::default(), None, &collections, Searched::default()).unwrap().with_incomplete(&[]);
    assert_eq!((&told["collections"][2]["state"], &told["parity"]), (&"STATE_FAILED".into(), &Value::Null));
    let parity = GetParityResponse { comparable: 7, agreed: 6, ..GetParityResponse::default() };
    let compared = Searched { parity: Some(parity), ..Searched::default() };
    let told = document(&GetStatusResponse::default(), None, &[], compared).unwrap().with_incomplete(&[]);
    assert_eq!((&told["parity"]["comparable"], &told["parity"]["agreed"]), (&"7".into(), &"6".into()));
}
