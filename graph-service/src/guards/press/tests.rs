use super::*;
use engine::guard::Guard;
use engine::scope::{Labelled, OwnerScope, Requirement, Scope, Test};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use std::collections::HashSet;

/// The bound of the definition.
const EXPRESSIONS_MAX: usize = 20;

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

fn requirements() -> impl Strategy<Value = Vec<Requirement>> {
    let value = || "[a-z0-9]{1,5}".prop_map(Arc::from);
    let test = prop_oneof![
        vec(value(), 1..4).prop_map(Test::In),
        vec(value(), 1..4).prop_map(Test::NotIn),
        Just(Test::Exists),
        Just(Test::DoesNotExist),
    ];
    let key = "([a-z]{1,5}/)?[a-z]{1,3}".prop_map(Arc::from);
    let requirement = (key, test).prop_map(|(key, test)| Requirement { of: Labelled::Label, key, test });
    vec(requirement, 0..30).prop_filter("within the bounds", |all| expressions(all) <= EXPRESSIONS_MAX)
}

/// The number of `matchExpressions`. `matchLabels` has the first requirement of each key that asks for one value,
/// within its bound.
fn expressions(requirements: &[Requirement]) -> usize {
    let one_value = |one: &&Requirement| matches!(&one.test, Test::In(values) if values.len() == 1);
    let keys: HashSet<_> = requirements.iter().filter(one_value).map(|one| &one.key).collect();
    requirements.len() - keys.len().min(EXPRESSIONS_MAX)
}

fn filter() -> impl Strategy<Value = Filter> {
    let resource = || {
        ("[a-z.]{0,9}", "[a-z]{1,9}")
            .prop_map(|(group, resource)| GroupResource { group: group.into(), resource: resource.into() })
    };
    let name = || "[a-z0-9-]{1,9}".prop_map(Arc::<str>::from);
    let uid = option::of("[a-z0-9-]{1,9}".prop_map(|uid| Uid::parse(&uid).unwrap()));
    let owner = (resource(), prop_oneof![name(), Just("".into())], name(), uid)
        .prop_map(|(resource, namespace, name, uid)| OwnerScope { resource, namespace, name, uid });
    let lists = (vec(resource(), 0..3), vec(name(), 0..3), vec(name(), 0..3));
    (lists, requirements(), requirements(), option::of(owner)).prop_map(
        |((resources, namespaces, names), marks, namespace_marks, owner)| Filter {
            resources,
            namespaces,
            names,
            marks,
            namespace_marks,
            owner,
        },
    )
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
        let mut object = write("p", &order, user).unwrap();
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
        let mut object = write("p", &order, None).unwrap();
        object["metadata"]["uid"] = json!("u");
        let pause = standing(&object.to_string());
        prop_assert!(is_same(&pause.scope, &order.scope), "{:?} is not {:?}", pause.scope, order.scope);
        prop_assert_eq!((pause.reason, pause.lifetime), (order.reason, Some(order.lifetime)));
        prop_assert_eq!(pause.problem, "");
    }
}

#[test]
fn a_pause_that_its_resource_cannot_say_is_not_written() {
    for test in [Test::Exists, Test::Lists("keep".into())] {
        let mark = Requirement { of: Labelled::Annotation, key: "helm.sh/policy".into(), test };
        let of_object = Filter { marks: vec![mark.clone()], ..Filter::default() };
        let of_namespace = Filter { namespace_marks: vec![mark], ..Filter::default() };
        for target in [of_object, of_namespace] {
            let scope = Scope { targets: vec![Filter::default(), target] };
            let order = PauseOrder {
                scope,
                reason: "why".to_owned(),
                lifetime: Duration::from_secs(60),
                request_id: "id".to_owned(),
            };
            let Err(Failure::Refused(why)) = write("p", &order, None) else { panic!("{order:?}") };
            assert!(why.contains("annotation helm.sh/policy"), "{why}");
        }
    }
}

#[test]
fn a_resource_without_a_condition_of_the_order_is_noticed() {
    let mark = |key: &str| Requirement { of: Labelled::Label, key: key.into(), test: Test::Exists };
    let narrow = Filter { marks: vec![mark("b"), mark("a")], ..Filter::default() };
    let scope = |filter: &Filter| Scope { targets: vec![filter.clone()] };
    let sorted = Filter { marks: vec![mark("a"), mark("b")], ..Filter::default() };
    assert!(is_same(&scope(&narrow), &scope(&sorted)));
    assert!(!is_same(&scope(&narrow), &scope(&Filter::default())));
    assert!(!is_same(&scope(&narrow), &Scope::default()));
    let named = Filter { names: vec!["x".into()], ..sorted.clone() };
    assert!(!is_same(&scope(&named), &scope(&sorted)));
}
