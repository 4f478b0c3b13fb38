use super::*;
use engine::object::Uid;

fn warning(namespace: &str) -> Warning {
    Warning {
        dependent: ObjectRef {
            group: "apps".into(),
            version: "v1".into(),
            resource: "deployments".into(),
            kind: "Deployment".into(),
            namespace: namespace.into(),
            name: "web".into(),
            uid: Uid::parse("d").unwrap(),
        },
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
fn cluster_scoped_objects_have_theirs_in_the_default_namespace() {
    assert_eq!(event(&warning(""), "host", SystemTime::now())["metadata"]["namespace"], "default");
}
