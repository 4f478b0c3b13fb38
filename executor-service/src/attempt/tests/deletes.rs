use super::*;

#[tokio::test(start_paused = true)]
async fn a_delete_is_one_call_with_both_preconditions() {
    let (report, asked) = play([deleted()], delete(vec![])).await;
    assert_eq!(asked, [delete_at("5")]);
    assert_eq!((report.outcome, report.http_status, observed_version(&report)), (Outcome::Done, 200, None));
    assert_eq!(
        (report.lease, report.item, report.attempt, report.term.number),
        (LeaseId { term: 3, number: 1 }, 7, 1, 3)
    );
}

#[tokio::test(start_paused = true)]
async fn an_object_that_stays_is_seen_in_the_answer() {
    let stays = object("6", json!({"finalizers": ["x"], "deletionTimestamp": "2026-11-21T09:17:20Z"}));
    let (report, _) = play([reply(200, stays)], delete(vec![])).await;
    assert_eq!(report.outcome, Outcome::Done);
    assert!(report.observed.unwrap().facts.terminating);
}

#[tokio::test(start_paused = true)]
async fn a_conflict_with_unchanged_facts_is_sent_again_at_the_fresh_version() {
    let (report, asked) = play([conflict(), reply(200, with_owner("8")), deleted()], delete(vec![])).await;
    assert_eq!(asked, [delete_at("5"), get_line(), delete_at("8")]);
    assert_eq!((report.outcome, report.api_calls), (Outcome::Done, 3));
}

#[tokio::test(start_paused = true)]
async fn a_conflict_is_sent_again_three_times_at_most() {
    let mut replies = vec![conflict()];
    for version in ["6", "7", "8"] {
        replies.extend([reply(200, with_owner(version)), conflict()]);
    }
    replies.push(reply(200, with_owner("9")));
    let (report, asked) = play(replies, delete(vec![])).await;
    assert_eq!(asked.iter().filter(|line| line.starts_with("DELETE")).count(), 4);
    assert_eq!((report.outcome, observed_version(&report).as_deref()), (Outcome::Conflict, Some("9")));
}

#[tokio::test(start_paused = true)]
async fn what_the_second_look_shows_decides_a_conflict() {
    let other_uid = object("8", json!({"uid": "another"}));
    let changed = object("8", json!({"ownerReferences": [written("owner", None), written("new", None)]}));
    let held =
        object("8", json!({"ownerReferences": [written("owner", None)], "annotations": {"ownergraph.dev/hold": ""}}));
    let terminating =
        object("8", json!({"ownerReferences": [written("owner", None)], "deletionTimestamp": "2026-11-21T09:17:20Z"}));
    for (second, outcome) in [
        (gone(), Outcome::Gone),
        (reply(200, other_uid), Outcome::Replaced),
        (reply(200, with_owner("5")), Outcome::AdmissionFailed),
        (reply(200, with_owner("4")), Outcome::Conflict),
        (reply(200, with_owner("opaque")), Outcome::Conflict),
        (reply(200, changed), Outcome::Conflict),
        (reply(200, held), Outcome::Conflict),
        (reply(200, terminating), Outcome::Conflict),
        (status(403, "Forbidden", json!({})), Outcome::Forbidden),
        (status(404, "NotFound", json!({})), Outcome::Transient),
        (reply(200, json!({"kind": "Status", "metadata": {"uid": UID}})), Outcome::Transient),
        (broken(), Outcome::Transient),
    ] {
        let (report, asked) = play([conflict(), second], delete(vec![])).await;
        assert_eq!(asked, [delete_at("5"), get_line()]);
        assert_eq!(report.outcome, outcome, "{report:?}");
        let shows = matches!(outcome, Outcome::Conflict | Outcome::Replaced | Outcome::AdmissionFailed);
        assert_eq!(report.observed.is_some(), shows, "{report:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_webhook_that_answers_409_is_named() {
    let denial = json!({"kind": "Status", "apiVersion": "v1", "message": "admission webhook \"w\" denied the request: no", "code": 409});
    let (report, _) = play([reply(409, denial), reply(200, with_owner("5"))], delete(vec![])).await;
    assert_eq!(
        (report.outcome, report.webhook.as_deref(), report.http_status),
        (Outcome::AdmissionFailed, Some("w"), 409)
    );
}

#[tokio::test(start_paused = true)]
async fn final_answers_are_reported_as_they_are() {
    for (answer, outcome) in [
        (gone(), Outcome::Gone),
        (status(405, "MethodNotAllowed", json!({})), Outcome::Unsupported),
        (status(422, "Invalid", json!({})), Outcome::Invalid),
        (status(429, "TooManyRequests", json!({"retryAfterSeconds": 3})), Outcome::Throttled),
        (status(503, "ServiceUnavailable", json!({})), Outcome::Transient),
        (broken(), Outcome::Ambiguous),
        (deleted().after(31_000), Outcome::Ambiguous),
    ] {
        let (report, asked) = play([answer], delete(vec![])).await;
        assert_eq!((asked.len(), report.outcome), (1, outcome), "{report:?}");
        assert_eq!(report.retry_after.is_some(), outcome == Outcome::Throttled);
    }
}

#[tokio::test(start_paused = true)]
async fn a_read_comes_first_where_the_lease_asks_for_it() {
    let terminating = object("8", json!({"deletionTimestamp": "2026-11-21T09:17:20Z"}));
    for (first, outcome) in [
        (gone(), Outcome::Gone),
        (reply(200, object("8", json!({"uid": "another"}))), Outcome::Replaced),
        (reply(200, terminating), Outcome::Unchanged),
        (reply(200, object("8", json!({}))), Outcome::Conflict),
    ] {
        let ambiguous = WorkLease { previous_attempt_ambiguous: true, ..delete(vec![]) };
        let (report, asked) = play([first], ambiguous).await;
        assert_eq!((asked, report.outcome), (vec![get_line()], outcome));
    }
    let mut read_first = delete(vec![]);
    read_first.item.read_first = true;
    let (report, asked) = play([reply(200, with_owner("8")), deleted()], read_first).await;
    assert_eq!((asked, report.outcome), (vec![get_line(), delete_at("8")], Outcome::Done));
}

#[tokio::test(start_paused = true)]
async fn a_waiting_owner_is_read_before_and_its_state_decides() {
    let line = format!("GET {OWNER_PATH}");
    let waiting = || reply(200, owner_object("owner", json!(["foregroundDeletion"]), true));
    let (report, asked) = play([waiting(), deleted()], delete(vec![owner()])).await;
    assert_eq!((asked, report.outcome), (vec![line.clone(), delete_at("5")], Outcome::Done));
    for (state, outcome) in [
        (reply(200, owner_object("owner", json!(["orphan"]), true)), Outcome::OwnerExists),
        (reply(200, owner_object("owner", json!(["foregroundDeletion"]), false)), Outcome::OwnerExists),
        (reply(200, owner_object("another", json!(["foregroundDeletion"]), true)), Outcome::Conflict),
        (status(404, "NotFound", json!({"name": "o", "group": "apps", "kind": "deployments"})), Outcome::Conflict),
        (status(404, "NotFound", json!({})), Outcome::Transient),
        (status(429, "TooManyRequests", json!({})), Outcome::Transient),
        (status(401, "Unauthorized", json!({})), Outcome::Transient),
        (broken(), Outcome::Transient),
    ] {
        let (report, asked) = play([state], delete(vec![owner()])).await;
        assert_eq!((asked, report.outcome), (vec![line.clone()], outcome), "{report:?}");
        let expected = usize::from(matches!(outcome, Outcome::OwnerExists | Outcome::Conflict));
        assert_eq!(report.findings.len(), expected, "{report:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn one_read_of_an_owner_serves_all_items_for_a_second_and_no_longer() {
    let waiting = || reply(200, owner_object("owner", json!(["foregroundDeletion"]), true)).after(200);
    let mut script = Script::new([waiting(), deleted(), deleted(), deleted(), waiting(), deleted()]);
    script.start(delete(vec![owner()]));
    script.start(delete(vec![owner()]));
    let reports = (script.attempts.next().await.report, script.attempts.next().await.report);
    assert_eq!((reports.0.outcome, reports.1.outcome), (Outcome::Done, Outcome::Done));
    assert_eq!(reports.0.api_calls + reports.1.api_calls, 3);
    tokio::time::advance(Duration::from_millis(700)).await;
    assert_eq!(script.run(delete(vec![owner()])).await.api_calls, 1);
    tokio::time::advance(Duration::from_millis(200)).await;
    assert_eq!(script.run(delete(vec![owner()])).await.api_calls, 2);
    let asked = script.asked();
    assert_eq!(asked.iter().filter(|line| line.starts_with("GET")).count(), 2, "{asked:?}");
}

#[tokio::test(start_paused = true)]
async fn a_slow_api_server_slows_a_foreground_deletion_and_does_not_stop_it() {
    for millis in [1_100, 2_000, 5_000] {
        let waiting = || reply(200, owner_object("owner", json!(["foregroundDeletion"]), true)).after(millis);
        let mut script = Script::new(std::iter::once(waiting()).chain((0..40).map(|_| deleted().after(millis))));
        for _ in 0..40 {
            script.start(delete(vec![owner()]));
        }
        for _ in 0..40 {
            let ended = script.attempts.next().await;
            assert_eq!((ended.report.outcome, ended.writes), (Outcome::Done, 1), "{:?}", ended.report);
        }
        let took = script.clock.now().since_origin();
        assert!(took < Duration::from_millis(2 * millis + 10), "{took:?} at {millis} ms for each request");
        assert_eq!(script.asked().len(), 41, "one read serves all");
    }
}

#[tokio::test(start_paused = true)]
async fn an_owner_is_read_again_before_a_retry_that_comes_late() {
    let waiting = || reply(200, owner_object("owner", json!(["foregroundDeletion"]), true));
    let orphaning = reply(200, owner_object("owner", json!(["orphan"]), true));
    let replies = [waiting(), conflict(), reply(200, with_owner("8")).after(1_500), orphaning];
    let (report, asked) = play(replies, delete(vec![owner()])).await;
    assert_eq!(asked.len(), 4);
    assert_eq!(report.outcome, Outcome::OwnerExists);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_written_after_the_session_or_the_item_has_run_out() {
    let mut script = Script::new([conflict(), reply(200, with_owner("8")).after(5_000)]);
    let end = script.clock.now() + Duration::from_secs(5);
    script.attempts.set_writes_end(end);
    let report = script.run(delete(vec![])).await;
    assert_eq!((script.asked().len(), report.outcome), (2, Outcome::Abandoned), "{report:?}");
    let report = script.run(delete(vec![])).await;
    assert_eq!((script.asked().len(), report.outcome), (0, Outcome::Abandoned));
    let end = script.clock.now() + Duration::from_secs(5);
    script.attempts.set_writes_end(end);
    let report = script.run(WorkLease { execution_limit: Duration::ZERO, ..delete(vec![]) }).await;
    assert_eq!((script.asked().len(), report.outcome), (0, Outcome::Abandoned));
}

#[tokio::test(start_paused = true)]
async fn before_the_first_session_and_after_a_cancel_nothing_is_written() {
    let mut script = Script::new([]);
    script.attempts.set_writes_end(Time::ZERO);
    assert_eq!(script.run(delete(vec![])).await.outcome, Outcome::Abandoned);
    let mut script = Script::new([]);
    let lease = script.start(delete(vec![]));
    script.attempts.cancel(lease);
    let report = script.attempts.next().await.report;
    assert_eq!((report.outcome, script.asked().len()), (Outcome::Abandoned, 0));
}

#[tokio::test(start_paused = true)]
async fn a_cancel_between_two_calls_stops_the_retry() {
    let mut script = Script::new([conflict().after(100)]);
    let lease = script.start(delete(vec![]));
    let early = tokio::time::timeout(Duration::from_millis(50), script.attempts.next()).await;
    assert!(early.is_err(), "what has left is waited for: {early:?}");
    script.attempts.cancel(lease);
    let ended = script.attempts.next().await;
    assert_eq!((ended.report.outcome, ended.writes), (Outcome::Abandoned, 1));
    assert_eq!(script.asked().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn coordinates_that_are_no_path_are_never_sent() {
    let endless = "ä".repeat(20_000);
    for name in ["", "..", "a/status", "a%2fstatus", &endless] {
        let mut lease = delete(vec![]);
        lease.item.target.name = Name::from(name);
        let (report, asked) = play([], lease).await;
        assert_eq!((report.outcome, asked.len()), (Outcome::Invalid, 0), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn names_are_escaped() {
    let mut lease = delete(vec![]);
    lease.item.target = ObjectRef {
        group: Name::from("rbac.authorization.k8s.io"),
        resource: Name::from("clusterroles"),
        namespace: Name::from(""),
        name: Name::from("system:a b?ä"),
        ..target()
    };
    let (_, asked) = play([deleted()], lease).await;
    let path = "DELETE /apis/rbac.authorization.k8s.io/v1/clusterroles/system%3Aa%20b%3F%C3%A4 ";
    assert!(asked[0].starts_with(path), "{asked:?}");
}

#[tokio::test(start_paused = true)]
async fn a_name_that_no_uri_holds_is_not_asked_for() {
    let mut lease = delete(vec![]);
    lease.item.target.name = Name::from("=".repeat(30_000));
    let mut script = Script::new([]);
    assert_eq!(script.run(lease).await.outcome, Outcome::Invalid);
    assert_eq!(script.asked().len(), 0);
}
