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
    assert!(event["message"].as_str().unwrap().starts_with("The object has 5001 owner references"), "{event}");
}

#[test]
fn an_event_names_the_owner_that_a_reference_came_back_to_and_who_wrote_it() {
    let owner = ObjectRef { kind: "Thing".into(), name: "old".into(), uid: Uid::parse("o").unwrap(), ..object("shop") };
    let told = |writer: Option<&str>| {
        let warning = Warning::Readopted {
            dependent: object("shop"),
            resource_version: ResourceVersion::parse("107"),
            owner: owner.clone(),
            writer: writer.map(str::to_owned),
        };
        event(&warning, "host", SystemTime::now())
    };
    let event = told(Some("stale-controller"));
    assert_eq!((&event["reason"], &event["involvedObject"]["uid"]), (&json!("OwnerReferenceReadopted"), &json!("d")));
    let message = event["message"].as_str().unwrap();
    assert!(
        message.starts_with("field manager \"stale-controller\" restored the reference to Thing old (uid o)"),
        "{message}"
    );
    let unknown = told(None);
    assert!(unknown["message"].as_str().unwrap().starts_with("an unknown field manager restored"));
    assert_eq!(unknown["metadata"]["name"], event["metadata"]["name"]);
}

#[test]
fn cluster_scoped_objects_have_theirs_in_the_default_namespace() {
    assert_eq!(event(&warning(""), "host", SystemTime::now())["metadata"]["namespace"], "default");
}
