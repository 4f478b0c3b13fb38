use super::*;
use engine::object::GroupResource;

fn state(kind: GuardKind) -> State {
    State {
        kind,
        generation: 2,
        phase: Phase::Pending,
        pending: "one is late".to_owned(),
        problem: "odd".to_owned(),
        scope: Scope::default(),
        covers: None,
        held: 0,
        recorded: Recorded::default(),
        approved: Vec::new(),
        expires: Some(Duration::from_secs(90)),
    }
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

/// Each condition with its status, its reason, its message and its time.
fn conditions(status: &Value) -> Vec<String> {
    let text = |condition: &Value, field: &str| condition[field].as_str().unwrap_or("-").to_owned();
    let one = |condition: &Value| {
        assert_eq!(condition["observedGeneration"], 2, "{condition}");
        let fields = ["type", "status", "reason", "lastTransitionTime", "message"];
        fields.map(|field| text(condition, field)).join(" ").trim_end().to_owned()
    };
    status["conditions"].as_array().unwrap().iter().map(one).collect()
}

#[test]
fn the_status_says_how_a_guard_stands() {
    let pending = status(&state(GuardKind::Pause), &Value::Null, at(60));
    assert_eq!((&pending["state"], &pending["scope"]), (&json!("Pending"), &json!("everything")));
    assert_eq!((&pending["covers"], &pending["held"]), (&Value::Null, &json!(0)), "null removes a number of before");
    assert_eq!((&pending["expireTime"], &pending["observedGeneration"]), (&json!("1970-01-01T00:01:30Z"), &json!(2)));
    assert_eq!(pending["message"], "odd; one is late");
    let expected = [
        "Accepted False Invalid 1970-01-01T00:01:00Z odd",
        "Effective False WritesRemain 1970-01-01T00:01:00Z one is late",
        "Expired False LifetimeLeft 1970-01-01T00:01:00Z",
        "Reconciling True WritesRemain 1970-01-01T00:01:00Z one is late",
    ];
    assert_eq!(conditions(&pending), expected);
    assert_eq!(status(&state(GuardKind::Pause), &pending, at(65)), pending, "a condition that stays keeps its time");

    let mut effective = state(GuardKind::Pause);
    (effective.phase, effective.covers, effective.held) = (Phase::Effective, Some(7), 3);
    (effective.pending, effective.problem) = (String::new(), String::new());
    let effective_status = status(&effective, &pending, at(70));
    assert_eq!((&effective_status["covers"], &effective_status["held"]), (&json!(7), &json!(3)));
    let expected = [
        "Accepted True Valid 1970-01-01T00:01:10Z",
        "Effective True NoWriteRemains 1970-01-01T00:01:10Z",
        "Expired False LifetimeLeft 1970-01-01T00:01:00Z",
    ];
    assert_eq!(conditions(&effective_status), expected);

    let over = State { phase: Phase::Expired, expires: None, ..effective };
    let over = status(&over, &effective_status, at(90));
    assert_eq!((&over["state"], &over["expireTime"]), (&json!("Expired"), &Value::Null));
    let expected = [
        "Accepted True Valid 1970-01-01T00:01:10Z",
        "Effective False LifetimeOver 1970-01-01T00:01:30Z",
        "Expired True LifetimeOver 1970-01-01T00:01:30Z",
    ];
    assert_eq!(conditions(&over), expected);
}

#[test]
fn a_budget_says_whether_it_is_exceeded_and_an_approval_what_is_approved() {
    let from = |second| Some(Duration::from_secs(second));
    for (exceeded_from, time, expected) in [
        (from(0), json!("1970-01-01T00:00:00Z"), "Exceeded True LimitReached"),
        (from(30), json!("1970-01-01T00:00:30Z"), "Exceeded True LimitReached"),
        (None, Value::Null, "Exceeded False WithinLimit"),
    ] {
        let recorded = Recorded { exceeded_from, ..Recorded::default() };
        let status = status(&State { recorded, ..state(GuardKind::Budget) }, &Value::Null, at(60));
        assert_eq!(status["exceededFrom"], time);
        assert!(conditions(&status).iter().any(|one| one.starts_with(expected)), "{status}");
        assert_eq!(status.get("approved"), None);
    }
    let collection = GroupResource { group: "".into(), resource: "pods".into() };
    let deletions = vec![Spending { since: Duration::from_millis(30_001), collection, count: 4 }];
    let recorded = Recorded { deletions, ..Recorded::default() };
    let of_budget = status(&State { recorded, ..state(GuardKind::Budget) }, &Value::Null, at(60));
    let expected = json!([{ "sinceTime": "1970-01-01T00:00:31Z", "group": "", "resource": "pods", "count": 4 }]);
    assert_eq!(of_budget["deletions"], expected, "the next leader does not let them leave the window early");
    let approved = vec![(Uid::parse("u").unwrap(), 255)];
    let status = status(&State { approved, ..state(GuardKind::Approval) }, &Value::Null, at(60));
    assert_eq!(status["approved"], json!([{ "rootUID": "u", "digest": "00000000000000ff" }]));
    assert!(!status.to_string().contains("Exceeded"), "{status}");
}
