use super::*;
use engine::object::Uid;

fn object(namespace: &str) -> ObjectRef {
    ObjectRef {
        group: "apps".into(),
        version: "v1".into(),
        resource: "deployments".into(),
        kind: "Deployment".into(),
        namespace: namespace.into(),
        name: "web".into(),
        uid: Uid::parse("d").unwrap(),
    }
}

fn warning(namespace: &str) -> Warning {
    Warning::OwnerInOtherNamespace {
        dependent: object(namespace),
        reference: OwnerReference {
            api_version: "v1".into(),
            kind: "ConfigMap".into(),
            name: "owner".into(),
            uid: Uid::parse("o").unwrap(),
            controller: None,
            block_owner_deletion: None,
        },
    }
}

#[test]
fn an_event_stands_on_the_dependent_and_names_the_reference() {
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(86_400);
    let event = event(&warning("shop"), "host", now);
    assert_eq!(event["metadata"]["namespace"], "shop");
    assert_eq!(event["involvedObject"]["apiVersion"], "apps/v1");
    assert_eq!(event["lastTimestamp"], "1970-01-02T00:00:00Z");
    assert_eq!((&event["type"], &event["reason"]), (&json!("Warning"), &json!("OwnerRefInvalidNamespace")));
    assert_eq!(
        event["message"],
        "ownerRef [v1/ConfigMap, namespace: shop, name: owner, uid: o] does not exist in namespace \"shop\""
    );
    assert_eq!(
        event["metadata"]["name"],
        super::event(&warning("shop"), "other", SystemTime::now())["metadata"]["name"]
    );
}

#[test]
fn an_event_says_that_an_object_has_too_many_references() {
    let event = event(&Warning::TooManyReferences { object: object("shop"), count: 5001 }, "host", SystemTime::now());
    assert_eq!((&event["reason"], &event["involvedObject"]["uid"]), (&json!("TooManyOwnerReferences"), &json!("d")));
    assert!(event["message"].as_str().unwrap().starts_with("5001 owner references"), "{event}");
}

#[test]
fn cluster_scoped_objects_have_theirs_in_the_default_namespace() {
    assert_eq!(event(&warning(""), "host", SystemTime::now())["metadata"]["namespace"], "default");
}
