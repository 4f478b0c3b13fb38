use super::*;

fn verify(by: CheckBy) -> WorkLease {
    let mut lease = lease(Action::Verify { checks: vec![ExistenceCheck { object: owner(), by }] });
    lease.item.preconditions = None;
    lease
}

fn list(items: Value, more: Value) -> Value {
    let mut metadata = json!({"resourceVersion": "219"});
    for (key, value) in more.as_object().unwrap() {
        metadata[key] = value.clone();
    }
    json!({"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": metadata, "items": items})
}

fn item(name: &str, namespace: &str, uid: &str) -> Value {
    json!({"metadata": {"name": name, "namespace": namespace, "uid": uid, "resourceVersion": "9"}})
}

const LIST: &str = "GET /apis/apps/v1/namespaces/default/deployments?fieldSelector=metadata.name%3Do";

async fn check(by: CheckBy, answer: Reply) -> FindingResult {
    let (report, asked) = play([answer], verify(by)).await;
    let line = if by == CheckBy::List { LIST.to_owned() } else { format!("GET {OWNER_PATH}") };
    assert_eq!(asked, [line]);
    assert_eq!((report.outcome, report.findings.len()), (Outcome::Verified, 1));
    report.findings.into_iter().next().unwrap().result
}

fn position() -> Option<ResourceVersion> {
    Some(ResourceVersion::parse("219"))
}

#[tokio::test(start_paused = true)]
async fn a_list_of_one_name_tells_presence_and_absence() {
    let none = json!({});
    for (answer, expected) in [
        (list(json!(null), none.clone()), FindingResult::Absent(position())),
        (list(json!([]), none.clone()), FindingResult::Absent(position())),
        (list(json!([item("o", "default", "another")]), none.clone()), FindingResult::OtherUid(position())),
        (list(json!([item("o", "default", "")]), none.clone()), FindingResult::Failed),
        (list(json!([item("p", "default", "x")]), none.clone()), FindingResult::Failed),
        (list(json!([item("o", "elsewhere", "owner")]), none.clone()), FindingResult::Failed),
        (list(json!([item("o", "default", "x"), item("p", "default", "y")]), none.clone()), FindingResult::Failed),
        (list(json!([]), json!({"continue": "more"})), FindingResult::Failed),
        (list(json!([]), json!({"remainingItemCount": 3})), FindingResult::Failed),
        (list(json!([]), json!({"resourceVersion": ""})), FindingResult::Failed),
        (json!({"kind": "PartialObjectMetadataList", "metadata": {"resourceVersion": "1"}}), FindingResult::Failed),
        (json!({"kind": "Status", "metadata": {"resourceVersion": "1"}, "items": []}), FindingResult::Failed),
        (json!("garbage"), FindingResult::Failed),
    ] {
        let text = answer.to_string();
        assert_eq!(check(CheckBy::List, reply(200, answer)).await, expected, "{text}");
    }
    let there = list(json!([item("o", "default", "owner")]), none);
    assert!(
        matches!(check(CheckBy::List, reply(200, there)).await, FindingResult::Exists(seen) if seen.uid == owner().uid)
    );
}

#[tokio::test(start_paused = true)]
async fn no_failure_of_a_list_is_an_absence() {
    let names_it = json!({"name": "o", "group": "apps", "kind": "deployments"});
    for (answer, expected) in [
        (status(404, "NotFound", json!({})), FindingResult::KindUnresolved),
        (status(404, "NotFound", names_it), FindingResult::KindUnresolved),
        (status(403, "Forbidden", json!({})), FindingResult::Forbidden),
        (status(429, "TooManyRequests", json!({})), FindingResult::Failed),
        (status(503, "ServiceUnavailable", json!({})), FindingResult::Failed),
        (reply(206, list(json!([]), json!({}))), FindingResult::Failed),
        (broken(), FindingResult::Failed),
    ] {
        assert_eq!(check(CheckBy::List, answer).await, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn a_question_that_was_answered_as_to_a_stranger_finds_nothing() {
    let (report, _) = play([status(401, "Unauthorized", json!({}))], verify(CheckBy::List)).await;
    assert_eq!((report.outcome, report.findings.len()), (Outcome::Unauthenticated, 0));
}

#[tokio::test(start_paused = true)]
async fn a_read_is_absence_only_where_the_404_names_the_object() {
    let details = |name: &str| json!({"name": name, "group": "apps", "kind": "deployments"});
    for (answer, expected) in [
        (status(404, "NotFound", details("o")), FindingResult::Absent(None)),
        (status(404, "NotFound", details("p")), FindingResult::KindUnresolved),
        (status(404, "NotFound", json!({})), FindingResult::KindUnresolved),
        (reply(404, json!("page")), FindingResult::KindUnresolved),
        (reply(200, owner_object("another", json!(null), false)), FindingResult::OtherUid(None)),
        (status(403, "Forbidden", json!({})), FindingResult::Forbidden),
        (status(500, "InternalError", json!({})), FindingResult::Failed),
        (status(409, "Conflict", json!({})), FindingResult::Failed),
        (reply(200, json!({"kind": "PartialObjectMetadata", "metadata": {"name": "o"}})), FindingResult::Failed),
    ] {
        assert_eq!(check(CheckBy::Read, answer).await, expected);
    }
    let there = reply(200, owner_object("owner", json!(null), false));
    assert!(matches!(check(CheckBy::Read, there).await, FindingResult::Exists(_)));
}

#[tokio::test(start_paused = true)]
async fn findings_come_in_the_order_of_the_checks_and_the_first_failure_lends_its_words() {
    let checks = ["a", "b", "c", "d", "e"]
        .map(|name| ExistenceCheck { object: ObjectRef { name: Name::from(name), ..owner() }, by: CheckBy::List });
    let mut lease = verify(CheckBy::List);
    lease.item.action = Action::Verify { checks: checks.to_vec() };
    let empty = || reply(200, list(json!([]), json!({})));
    let throttled = status(429, "TooManyRequests", json!({"retryAfterSeconds": 2}));
    let replies = [empty().after(50), throttled.after(10), empty().after(30), empty(), empty()];
    let (report, asked) = play(replies, lease).await;
    assert_eq!(asked.len(), 5);
    let names: Vec<&str> = report.findings.iter().map(|finding| &*finding.check.object.name).collect();
    assert_eq!(names, ["a", "b", "c", "d", "e"]);
    assert_eq!(report.findings[1].result, FindingResult::Failed);
    assert_eq!(
        (report.outcome, report.http_status, report.retry_after),
        (Outcome::Verified, 429, Some(Duration::from_secs(2)))
    );
}

#[tokio::test(start_paused = true)]
async fn a_verify_needs_no_open_session_and_ends_with_its_limit() {
    let mut script = Script::new([reply(200, list(json!([]), json!({})))]);
    script.attempts.set_writes_end(Time::ZERO);
    assert_eq!(script.run(verify(CheckBy::List)).await.outcome, Outcome::Verified);
    let late = WorkLease { execution_limit: Duration::ZERO, ..verify(CheckBy::List) };
    assert_eq!(script.run(late).await.outcome, Outcome::Abandoned);
    assert_eq!(script.asked().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn selectors_are_escaped_for_their_own_syntax_and_for_the_query() {
    let mut lease = verify(CheckBy::List);
    let object = ObjectRef { name: Name::from("a,b=c&d"), ..owner() };
    lease.item.action = Action::Verify { checks: vec![ExistenceCheck { object, by: CheckBy::List }] };
    let (_, asked) = play([reply(200, list(json!([]), json!({})))], lease).await;
    assert!(asked[0].ends_with("?fieldSelector=metadata.name%3Da%5C%2Cb%5C%3Dc%26d"), "{asked:?}");
}

#[tokio::test(start_paused = true)]
async fn a_name_that_no_uri_holds_is_not_asked_for() {
    let object = ObjectRef { name: Name::from("=".repeat(30_000)), ..owner() };
    for by in [CheckBy::List, CheckBy::Read] {
        let mut script = Script::new([]);
        let mut lease = verify(by);
        lease.item.action = Action::Verify { checks: vec![ExistenceCheck { object: object.clone(), by }] };
        let report = script.run(lease).await;
        assert_eq!((report.findings[0].result.clone(), script.asked().len()), (FindingResult::Failed, 0));
    }
}
