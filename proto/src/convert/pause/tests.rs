use super::*;
use crate::strategy;
use crate::r#type::v1beta1::LabelRequirement;
use engine::guard::{GuardId, GuardKind, Rule};
use engine::scope::{Labelled, Requirement, Test};
use engine::time::Time;
use engine::view::GuardUsage;
use proptest::prelude::*;
use prost::Message as _;

proptest! {
    #[test]
    fn orders_arrive(order in strategy::pause_order()) {
        let bytes = PauseCollectionRequest::from(order.clone()).encode_to_vec();
        let request = PauseCollectionRequest::decode(bytes.as_slice()).unwrap();
        prop_assert_eq!(PauseOrder::try_from(request), Ok(order));
    }

    #[test]
    fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(Ok(order)) = PauseCollectionRequest::decode(bytes.as_slice()).map(PauseOrder::try_from) {
            prop_assert_eq!(PauseOrder::try_from(PauseCollectionRequest::from(order.clone())), Ok(order));
        }
    }
}

fn selecting<const L: usize, const E: usize>(
    labels: [(&str, &str); L],
    expressions: [(&str, &str, &[&str]); E],
) -> Scope {
    let text = |text: &str| text.to_owned();
    let expression = |(key, operator, values): (&str, &str, &[&str])| LabelRequirement {
        key: text(key),
        operator: text(operator),
        values: values.iter().copied().map(text).collect(),
    };
    let label_selector = Some(LabelSelector {
        match_labels: labels.map(|(key, value)| (text(key), text(value))).into(),
        match_expressions: expressions.map(expression).into(),
    });
    Scope { targets: vec![ObjectFilter { label_selector, ..ObjectFilter::default() }] }
}

#[test]
fn a_requirement_that_a_selector_cannot_say_is_shown_and_not_taken_back() {
    let word = Requirement { of: Labelled::Annotation, key: "helm.sh/policy".into(), test: Test::Lists("keep".into()) };
    let filter = engine::scope::Filter { marks: vec![word], ..engine::scope::Filter::default() };
    let shown = ObjectFilter::from(filter);
    let expressions = &shown.label_selector.as_ref().unwrap().match_expressions;
    assert_eq!((expressions.len(), expressions[0].key.as_str()), (1, "annotation helm.sh/policy listing keep"));
    let refused = engine::scope::Filter::try_from(shown).unwrap_err().to_string();
    assert!(refused.contains("label_selector.match_expressions[0].key"), "{refused}");
}

#[test]
fn what_is_wrong_with_an_order_is_said() {
    let good = || PauseCollectionRequest {
        scope: None,
        reason: "why".to_owned(),
        ttl: Some(prost_types::Duration { seconds: 60, nanos: 0 }),
        request_id: String::new(),
    };
    assert!(PauseOrder::try_from(good()).is_ok());
    let refused = |edit: fn(&mut PauseCollectionRequest)| {
        let mut request = good();
        edit(&mut request);
        PauseOrder::try_from(request).unwrap_err().to_string()
    };
    let filter = |resources| ObjectFilter { resources, ..ObjectFilter::default() };
    let nameless = move |request: &mut PauseCollectionRequest| {
        let targets = vec![filter(vec![GroupResource::default()])];
        request.scope = Some(Scope { targets });
    };
    for (said, edit) in [
        ("field ttl is missing", (|request| request.ttl = None) as fn(&mut PauseCollectionRequest)),
        ("field ttl is zero", |request| request.ttl = Some(prost_types::Duration::default())),
        ("field ttl is longer than 86400 s", |request| {
            request.ttl = Some(prost_types::Duration { seconds: 86_401, nanos: 0 });
        }),
        ("field ttl is not a whole number of seconds", |request| {
            request.ttl = Some(prost_types::Duration { seconds: 1, nanos: 1 });
        }),
        ("field reason is empty", |request| request.reason = " ".to_owned()),
        ("field reason has more than 1024 bytes", |request| request.reason = "x".repeat(1025)),
        ("field request_id is not a UUID", |request| request.request_id = "../x".to_owned()),
        ("field scope.targets[0].uids is set", |request| {
            let filter = ObjectFilter { uids: vec!["u".to_owned()], ..ObjectFilter::default() };
            request.scope = Some(Scope { targets: vec![filter] });
        }),
        ("field scope.targets[0].cel is set", |request| {
            let filter = ObjectFilter { cel: "true".to_owned(), ..ObjectFilter::default() };
            request.scope = Some(Scope { targets: vec![filter] });
        }),
        ("field scope.targets[0].label_selector.match_labels.key is not the key of a label", |request| {
            request.scope = Some(selecting([("a b", "c")], []));
        }),
        ("field scope.targets[0].label_selector.match_labels.value is not the value of a label", |request| {
            request.scope = Some(selecting([("a", "c d")], []));
        }),
        ("field scope.targets[0].label_selector.match_expressions[0].operator is not In", |request| {
            request.scope = Some(selecting([], [("a", "Gt", &["1"])]));
        }),
        ("field scope.targets[0].label_selector.match_expressions[0].values is empty", |request| {
            request.scope = Some(selecting([], [("a", "In", &[])]));
        }),
        ("field scope.targets[0].label_selector.match_expressions[0].values is set", |request| {
            request.scope = Some(selecting([], [("a", "Exists", &["1"])]));
        }),
        ("field scope.targets[0].label_selector.match_expressions has 21 entries", |request| {
            request.scope = Some(selecting([], [("a", "Exists", [].as_slice()); 21]));
        }),
        ("field scope.targets[0].owner.name is empty", |request| {
            let owner = Some(OwnerScope { resource: "deploy".to_owned(), ..OwnerScope::default() });
            request.scope = Some(Scope { targets: vec![ObjectFilter { owner, ..ObjectFilter::default() }] });
        }),
        ("field scope.targets has 101 entries", |request| {
            request.scope = Some(Scope { targets: vec![ObjectFilter::default(); 101] });
        }),
    ] {
        assert!(refused(edit).starts_with(said), "{said}: {}", refused(edit));
    }
    let mut request = good();
    nameless(&mut request);
    let error = PauseOrder::try_from(request).unwrap_err().to_string();
    assert_eq!(error, "field scope.targets[0].resources[0].resource is empty");
}

#[test]
fn a_pause_shows_its_times_in_the_calendar() {
    let second = Duration::from_secs(1);
    let view = GuardView {
        id: GuardId { kind: GuardKind::Pause, name: "p".into() },
        rule: Rule::Hold,
        uid: Uid::parse("u").unwrap(),
        generation: 1,
        scope: engine::scope::Scope::default(),
        reason: "why".to_owned(),
        actor: "jane".to_owned(),
        created: 90 * second,
        lifetime: Some(60 * second),
        until: Some(Time::ZERO + 70 * second),
        over: false,
        effective: true,
        sessions_remaining: 0,
        pending: String::new(),
        held: 7,
        problem: String::new(),
        known: true,
        usage: GuardUsage::Standing,
    };
    let clock = Clock { now: Time::ZERO + 10 * second, calendar: SystemTime::UNIX_EPOCH + 100 * second };
    let unwritten = pause(GuardView { created: Duration::ZERO, ..view.clone() }, clock);
    assert_eq!((unwritten.create_time, unwritten.expire_time.unwrap().seconds), (None, 160));
    let shown = pause(view, clock);
    assert_eq!((shown.name.as_str(), shown.held_items, shown.effective), ("pauses/p", 7, true));
    assert_eq!((shown.create_time.unwrap().seconds, shown.expire_time.unwrap().seconds), (90, 150));
}
