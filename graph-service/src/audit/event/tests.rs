use super::*;
use proptest::prelude::*;
use serde_json::{Value, json};

/// A deletion of a pod, with these fields.
fn event(fields: Value) -> Value {
    let mut event = json!({
        "kind": "Event",
        "apiVersion": "audit.k8s.io/v1",
        "level": "Metadata",
        "auditID": "id",
        "stage": "ResponseComplete",
        "requestURI": "/api/v1/namespaces/shop/pods/web",
        "verb": "delete",
        "user": {"username": "jane", "groups": ["system:authenticated"]},
        "userAgent": "kubectl/v1.36.3 (linux/amd64) kubernetes/0123456",
        "objectRef": {"resource": "pods", "namespace": "shop", "name": "web", "apiVersion": "v1"},
        "responseStatus": {"metadata": {}, "code": 200},
    });
    for (name, value) in fields.as_object().unwrap() {
        event[name] = value.clone();
    }
    event
}

fn read(fields: Value) -> Reading {
    line(event(fields).to_string().as_bytes())
}

fn used(fields: Value) -> Audited {
    read(fields).unwrap().unwrap().audited
}

#[test]
fn an_event_says_who_did_what() {
    let expected = Audited {
        verb: AuditedVerb::Delete,
        collection: GroupResource { group: "".into(), resource: "pods".into() },
        namespace: "shop".into(),
        name: "web".into(),
        uid: None,
        resource_version: None,
        at: Time::ZERO,
        user: "jane".into(),
        by_collector: false,
        status: 200,
        id: "id".into(),
    };
    assert_eq!(used(json!({})), expected);
    let scale = json!({"resource": "deployments", "namespace": "a", "name": "b", "apiGroup": "apps"});
    let changed = used(json!({"verb": "patch", "objectRef": scale, "responseStatus": {"code": 409}}));
    assert_eq!((changed.verb, &*changed.collection.group, changed.status), (AuditedVerb::Change, "apps", 409));
    assert_eq!(used(json!({"verb": "update"})).verb, AuditedVerb::Change);
    assert_eq!(used(json!({"responseStatus": {}})).status, 0, "unknown");
    let selected = used(json!({"verb": "deletecollection"}));
    assert_eq!((selected.verb, &*selected.namespace, &*selected.name), (AuditedVerb::DeleteCollection, "shop", ""));
    let namespace = used(json!({"objectRef": {"resource": "namespaces", "namespace": "shop", "name": "shop"}}));
    assert_eq!((&*namespace.namespace, &*namespace.name), ("", "shop"), "a Namespace is in no namespace");
}

#[test]
fn an_event_with_bodies_has_the_version_after_the_request() {
    let fields = json!({
        "verb": "patch",
        "stageTimestamp": "2026-11-26T17:00:00.123456Z",
        "responseObject": {"metadata": {"uid": "u", "resourceVersion": "17"}},
    });
    let found = read(fields).unwrap().unwrap();
    let version = found.audited.resource_version.map(|version| version.to_string());
    assert_eq!((version.as_deref(), found.stage_time.map(|time| time.nanos)), (Some("17"), Some(123_456_000)));
    assert_eq!((used(json!({})).resource_version, read(json!({})).unwrap().unwrap().stage_time), (None, None));
}

#[test]
fn other_events_do_not_count() {
    let cases = [
        json!({"stage": "RequestReceived"}),
        json!({"stage": "Panic"}),
        json!({"verb": "get"}),
        json!({"verb": "create"}),
        json!({"objectRef": null}),
        json!({"objectRef": {"resource": "pods", "namespace": "shop", "name": "web", "subresource": "status"}}),
        json!({"objectRef": {"resource": "namespaces", "name": "shop", "subresource": "finalize"}}),
        json!({"objectRef": {"resource": "pods", "namespace": "shop"}}),
        json!({"objectRef": {"resource": "pods", "namespace": "shop", "name": "x".repeat(PART_MAX + 1)}}),
        json!({"requestURI": "/api/v1/namespaces/shop/pods/web?pretty=true&dryRun=All"}),
        json!({"requestObject": {"kind": "DeleteOptions", "dryRun": ["All"]}}),
    ];
    for case in cases {
        assert_eq!(read(case.clone()), Ok(None), "{case}");
    }
}

/// The forms of user agents are those of client-go: `AddUserAgent` appends the name of the client after a slash.
#[test]
fn the_collector_has_an_account_or_a_user_agent() {
    let agent = |name: &str| format!("kube-controller-manager/v1.36.3 (linux/amd64) kubernetes/0123456{name}");
    let cases = [
        (COLLECTOR, agent("/system:serviceaccount:kube-system:generic-garbage-collector"), true),
        (COLLECTOR, String::new(), true),
        (CONTROLLER_MANAGER, agent("/generic-garbage-collector"), true),
        (CONTROLLER_MANAGER, agent("/namespace-controller"), false),
        (CONTROLLER_MANAGER, agent("/generic-garbage-collector/other"), false),
        ("jane", agent("/generic-garbage-collector"), false),
        ("system:serviceaccount:shop:generic-garbage-collector", agent("/generic-garbage-collector"), false),
    ];
    for (user, agent, expected) in cases {
        let audited = used(json!({"user": {"username": user}, "userAgent": agent}));
        assert_eq!(audited.by_collector, expected, "{user} {agent}");
    }
    let acting = used(json!({"user": {"username": COLLECTOR}, "impersonatedUser": {"username": "joe"}}));
    assert_eq!((&*acting.user, acting.by_collector), ("joe", false));
}

#[test]
fn the_uid_comes_from_what_the_level_has() {
    let of = |uid: &str| json!({"resource": "pods", "name": "web", "uid": uid});
    let cases = [
        (json!({"objectRef": of("a"), "responseObject": {"metadata": {"uid": "b"}}}), Some("a")),
        (json!({"responseObject": {"kind": "Pod", "metadata": {"uid": "b"}}}), Some("b")),
        (json!({"responseObject": {"kind": "Status", "metadata": {}, "details": {"uid": "c"}}}), Some("c")),
        (json!({"responseStatus": {"code": 200, "details": {"name": "web", "uid": "d"}}}), Some("d")),
        (json!({"requestObject": {"kind": "DeleteOptions", "preconditions": {"uid": "e"}}}), Some("e")),
        (json!({"verb": "patch", "requestObject": {"metadata": {"uid": "f"}}}), Some("f")),
        (json!({"verb": "patch", "requestObject": [{"op": "remove", "path": "/a"}]}), None),
        (json!({"requestObject": "text", "responseObject": {"metadata": 1}}), None),
        (json!({"objectRef": of(&"x".repeat(PART_MAX + 1))}), None),
    ];
    for (case, expected) in cases {
        assert_eq!(used(case.clone()).uid, expected.and_then(Uid::parse), "{case}");
    }
}

#[test]
fn long_texts_are_cut_between_characters() {
    let long = "é".repeat(USER_MAX);
    let audited = used(json!({"user": {"username": format!("x{long}")}, "auditID": format!("x{long}")}));
    assert_eq!((audited.user.len(), audited.id.len()), (USER_MAX - 1, ID_MAX - 1));
}

#[test]
fn what_is_not_an_event_has_a_reason() {
    let cases = [
        (String::new(), "the line is not JSON of audit.k8s.io/v1: EOF"),
        ("2026-01-01T00:00:00Z AUDIT: id=\"a\" stage=\"x\"".to_owned(), "the line is not JSON"),
        (event(json!({"kind": "EventList"})).to_string(), "kind \"EventList\" of \"audit.k8s.io/v1\" is not Event"),
        (event(json!({"apiVersion": "v1"})).to_string(), "kind \"Event\" of \"v1\" is not Event of audit.k8s.io/v1"),
        (event(json!({"verb": 1})).to_string(), "the line is not JSON of audit.k8s.io/v1: invalid type"),
    ];
    for (text, expected) in cases {
        let why = line(text.as_bytes()).unwrap_err();
        assert!(why.starts_with(expected) && why.len() <= REASON_MAX, "{text}: {why}");
    }
}

#[test]
fn an_unreadable_item_of_a_list_does_not_affect_the_others() {
    let mut good = event(json!({}));
    good.as_object_mut().unwrap().retain(|name, _| name != "kind" && name != "apiVersion");
    let body = json!({"kind": "EventList", "apiVersion": VERSION, "items": [good, {"verb": []}, {}]}).to_string();
    let read: Vec<Reading> = list(body.as_bytes()).unwrap().kept.into_iter().map(item).collect();
    assert!(matches!(&read[..], [Ok(Some(_)), Err(_), Ok(None)]), "{read:?}");
    assert!(list(event(json!({})).to_string().as_bytes()).unwrap_err().contains("is not EventList"));
}

#[test]
fn a_bounded_number_of_items_is_kept() {
    for (items, kept, more) in [(EVENTS_MAX, EVENTS_MAX, 0), (EVENTS_MAX + 9, EVENTS_MAX, 9)] {
        let body = json!({"kind": "EventList", "apiVersion": VERSION, "items": vec![0; items]}).to_string();
        let found = list(body.as_bytes()).unwrap();
        assert_eq!((found.kept.len(), found.more), (kept, more));
    }
}

proptest! {
    #[test]
    fn mangled_events_are_read_or_refused(
        cut in 0_usize..2000,
        changes in prop::collection::vec((0_usize..2000, any::<u8>()), 0..4),
        many in any::<bool>(),
    ) {
        let one = event(json!({"impersonatedUser": {"username": "j\u{1f600}\n"}, "requestObject": {"dryRun": []}}));
        let list = json!({"kind": "EventList", "apiVersion": VERSION, "items": [one, one]});
        let mut text = if many { list } else { one }.to_string().into_bytes();
        for (at, byte) in changes {
            if let Some(place) = text.get_mut(at) {
                *place = byte;
            }
        }
        text.truncate(cut);
        crate::audit::fuzzing::audit(&text);
    }
}
