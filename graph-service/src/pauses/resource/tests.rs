use super::*;
use engine::time::Time;
use proptest::collection::vec;
use proptest::prelude::*;

fn standing(json: &str, sight: Sight) -> Guard {
    match read(GuardKind::Pause, json, sight).unwrap() {
        Seen::Standing(pause) => pause,
        Seen::Leaving { name, .. } => panic!("{name} is leaving"),
    }
}

/// A pause with this spec, written at 12:00:00.
fn with_spec(spec: &str) -> String {
    format!(
        r#"{{"metadata":{{"name":"p","uid":"u","resourceVersion":"7","creationTimestamp":"2026-01-01T12:00:00Z"}},"spec":{spec}}}"#
    )
}

fn noon() -> Duration {
    standing(&with_spec("{}"), Sight::Fresh).created
}

#[test]
fn what_is_written_is_read_again() {
    let pause = standing(
        &with_spec(
            r#"{"reason":"why","lifetimeSeconds":60,"scope":{"targets":[
                {"resources":[{"group":"apps","resource":"deployments"},{"resource":"pods"}],"namespaces":["a","b"]}]}}"#,
        ),
        Sight::Fresh,
    );
    assert_eq!((&*pause.id.name, pause.reason.as_str(), pause.problem.as_str()), ("p", "why", ""));
    assert_eq!((pause.lifetime, pause.elapsed), (Some(Duration::from_secs(60)), Duration::ZERO));
    assert!(pause.scope.may_cover("apps", "deployments", "b") && pause.scope.may_cover("", "pods", "a"));
    assert!(!pause.scope.may_cover("", "pods", "c") && !pause.scope.may_cover("", "deployments", "a"));
}

#[test]
fn what_cannot_be_read_holds_more_and_never_less() {
    let everything = |spec: &str| {
        let pause = standing(&with_spec(spec), Sight::Fresh);
        assert_eq!(pause.scope, Scope::default(), "{spec}");
        assert_eq!(pause.lifetime, Some(LIFETIME_MAX), "{spec}");
        pause.problem
    };
    assert!(everything("null").contains("lifetimeSeconds is not a number"));
    assert!(everything(r#"{"lifetimeSeconds":0}"#).contains("is not from 1 to 86400"));
    assert!(everything(r#"{"lifetimeSeconds":86401}"#).contains("is not from 1 to 86400"));
    let problem = everything(r#"{"lifetimeSeconds":"1h","scope":{"targets":[{"namespaces":["a"],"cel":"true"}]}}"#);
    assert!(
        problem.contains("holds everything") && problem.contains("cel") && problem.contains("not a number"),
        "{problem}"
    );
    everything(r#"{"scope":"all"}"#);
    everything(r#"{"scope":{"targets":[{"resources":[{"group":"apps"}]}]}}"#);
    let many = format!(r#"{{"scope":{{"targets":[{{"namespaces":[{}]}}]}}}}"#, [r#""a""#; 101].join(","));
    assert!(everything(&many).contains("101 namespaces"));
}

#[test]
fn the_api_servers_calendar_counts_and_only_for_what_was_there_already() {
    let spec = with_spec(r#"{"lifetimeSeconds":60}"#);
    let after = |seconds: u64| {
        let now = Some(noon() + Duration::from_secs(seconds));
        standing(&spec, Sight::Found { now }).elapsed.as_secs()
    };
    assert_eq!((after(5), after(30), after(100)), (0, 20, 90), "ten seconds for a clock that is ahead");
    let before = Sight::Found { now: Some(noon() - Duration::from_secs(3600)) };
    assert_eq!(standing(&spec, before).elapsed, Duration::ZERO, "a clock that is behind ends nothing early");
    assert_eq!(standing(&spec, Sight::Found { now: None }).elapsed, Duration::ZERO, "nor one that does not tell");
    assert_eq!(standing(&spec, Sight::Fresh).elapsed, Duration::ZERO);
}

#[test]
fn an_answer_says_what_time_it_is_at_the_server() {
    let at = |date: Option<&str>| {
        let answer = Answer {
            status: http::StatusCode::OK,
            content_type: String::new(),
            body: bytes::Bytes::new(),
            retry_after: None,
            audit_id: None,
            date: date.map(str::to_owned),
        };
        super::date(&answer)
    };
    assert_eq!(at(Some("Thu, 01 Jan 2026 12:00:00 GMT")), Some(noon()));
    for absurd in [None, Some(""), Some("noon"), Some("Thu, 01 Jan 1903 12:00:00 GMT")] {
        assert_eq!(at(absurd), None, "{absurd:?}");
    }
}

#[test]
fn one_that_is_being_deleted_is_gone_and_what_is_no_pause_is_refused() {
    let leaving = r#"{"metadata":{"name":"p","uid":"u","deletionTimestamp":"2026-01-01T12:00:00Z"}}"#;
    assert!(matches!(read(GuardKind::Pause, leaving, Sight::Fresh), Ok(Seen::Leaving { name, .. }) if name == "p"));
    for bad in ["", "[]", "{}", r#"{"metadata":{"name":"p"}}"#, r#"{"metadata":{"uid":"u"}}"#] {
        assert!(read(GuardKind::Pause, bad, Sight::Fresh).is_err(), "{bad}");
    }
}

#[test]
fn the_status_is_for_people() {
    let view = GuardView {
        id: GuardId { kind: GuardKind::Pause, name: "p".into() },
        rule: Rule::Hold,
        uid: Uid::parse("u").unwrap(),
        generation: 2,
        scope: Scope {
            targets: vec![Filter {
                resources: vec![GroupResource { group: "apps".into(), resource: "deployments".into() }],
                namespaces: vec!["a".into(), "b".into()],
                ..Filter::default()
            }],
        },
        reason: "why".to_owned(),
        actor: "jane".to_owned(),
        created: Duration::from_secs(60),
        lifetime: Some(Duration::from_secs(30)),
        until: Some(Time::ZERO),
        over: false,
        effective: false,
        sessions_remaining: 1,
        pending: "one is late".to_owned(),
        held: 0,
        problem: "odd".to_owned(),
        usage: engine::view::GuardUsage::Standing,
    };
    let at = |second: i64| Timestamp::from_second(second).unwrap();
    let condition = |kind: &str, is: &str, why: &str, message: &str, since: i64| {
        json!({
            "type": kind, "status": is, "reason": why, "message": message, "observedGeneration": 2,
            "lastTransitionTime": at(since).to_string(),
        })
    };
    let pending = status(&view, &Value::Null, at(60));
    let expected = json!({
        "state": "Pending", "scope": "deployments.apps in a,b", "expireTime": "1970-01-01T00:01:30Z",
        "message": "odd; one is late", "observedGeneration": 2,
        "conditions": [
            condition("Effective", "False", "WritesRemain", "odd; one is late", 60),
            condition("Expired", "False", "LifetimeLeft", "", 60),
            condition("Reconciling", "True", "WritesRemain", "odd; one is late", 60),
        ],
    });
    assert_eq!(pending, expected);
    assert_eq!(status(&view, &pending, at(65)), pending, "what stays keeps its time");
    let effective = GuardView { effective: true, pending: String::new(), problem: String::new(), ..view.clone() };
    let effective = status(&effective, &pending, at(70));
    let expected = [
        condition("Effective", "True", "NoWriteRemains", "", 70),
        condition("Expired", "False", "LifetimeLeft", "", 60),
    ];
    assert_eq!(effective["conditions"], json!(expected));
    let over = GuardView { over: true, pending: String::new(), problem: String::new(), ..view };
    let over = status(&over, &effective, at(90));
    assert_eq!((over["state"].as_str(), over["message"].as_str()), (Some("Expired"), Some("")));
    let expected =
        [condition("Effective", "False", "LifetimeOver", "", 90), condition("Expired", "True", "LifetimeOver", "", 90)];
    assert_eq!(over["conditions"], json!(expected));
}

fn filter() -> impl Strategy<Value = Filter> {
    let resource = ("[a-z.]{0,9}", "[a-z]{1,9}")
        .prop_map(|(group, resource)| GroupResource { group: group.into(), resource: resource.into() });
    let name = "[a-z0-9-]{1,9}".prop_map(Arc::from);
    (vec(resource, 0..3), vec(name, 0..3)).prop_map(|(resources, namespaces)| Filter {
        resources,
        namespaces,
        ..Filter::default()
    })
}

#[test]
fn a_pause_says_who_pressed_it_as_far_as_its_resource_does() {
    let order = PauseOrder {
        scope: Scope::default(),
        reason: "why".to_owned(),
        lifetime: Duration::from_secs(60),
        request_id: "id".to_owned(),
    };
    let actor = |user: Option<&str>, manager: Option<&str>| {
        let mut object = write("p", &order, user);
        object["metadata"]["uid"] = json!("u");
        if let Some(manager) = manager {
            object["metadata"]["managedFields"] = json!([{ "manager": manager }, { "manager": "later" }]);
        }
        standing(&object.to_string(), Sight::Fresh).actor
    };
    assert_eq!(actor(Some("jane"), Some("graph-service")), "jane");
    assert_eq!(actor(None, Some("kubectl-create")), "manager kubectl-create");
    assert_eq!(actor(None, None), "");
    assert!(!actor(Some("a\nb\u{1b}[31m"), None).contains(['\n', '\u{1b}']));
    assert_eq!(actor(Some(&"x".repeat(5000)), None).len(), 256);
}

proptest! {
    #[test]
    fn any_order_comes_back_as_the_same_pause(targets in vec(filter(), 0..3), reason in "\\PC{1,20}", seconds in 1..=86_400_u64) {
        let lifetime = Duration::from_secs(seconds);
        let order = PauseOrder { scope: Scope { targets }, reason, lifetime, request_id: "id".to_owned() };
        let mut object = write("p", &order, None);
        object["metadata"]["uid"] = json!("u");
        let pause = standing(&object.to_string(), Sight::Fresh);
        prop_assert_eq!((pause.scope, pause.reason, pause.lifetime), (order.scope, order.reason, Some(order.lifetime)));
        prop_assert_eq!(pause.problem, "");
    }

    #[test]
    fn any_text_is_survived(text in "\\PC{0,200}", spec in "\\PC{0,60}") {
        let _no_pause = read(GuardKind::Pause, &text, Sight::Fresh);
        let _no_pause = read(GuardKind::Pause, &with_spec(&spec), Sight::Fresh);
    }
}
