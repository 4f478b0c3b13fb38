use super::*;
use engine::guard::Guard;
use engine::scope::Scope;
use proptest::collection::vec;
use proptest::prelude::*;

fn standing(json: &str) -> Guard {
    match resource::read(GuardKind::Pause, json, Sight::Fresh { now: None }).unwrap() {
        Seen::Standing(standing) => standing.guard,
        Seen::Leaving { name, .. } => panic!("{name} is leaving"),
    }
}

#[test]
fn an_answer_says_what_time_it_is_at_the_server() {
    let at = |text: Option<&str>| {
        let answer = Answer {
            status: StatusCode::OK,
            content_type: String::new(),
            body: bytes::Bytes::new(),
            retry_after: None,
            audit_id: None,
            date: text.map(str::to_owned),
        };
        date(&answer)
    };
    assert_eq!(at(Some("Thu, 01 Jan 2026 12:00:00 GMT")), Some(Duration::from_secs(1_767_268_800)));
    for absurd in [None, Some(""), Some("noon"), Some("Thu, 01 Jan 1903 12:00:00 GMT")] {
        assert_eq!(at(absurd), None, "{absurd:?}");
    }
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
        standing(&object.to_string()).actor
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
        let pause = standing(&object.to_string());
        prop_assert_eq!((pause.scope, pause.reason, pause.lifetime), (order.scope, order.reason, Some(order.lifetime)));
        prop_assert_eq!(pause.problem, "");
    }
}
