use super::*;
use engine::evidence::Presence;
use engine::object::{Facts, ObjectRef, ResourceVersion, Uid};

fn pod() -> NodeView {
    let text = |text: &str| Name::from(text);
    let owner = OwnerReference {
        api_version: text("apps/v1"),
        kind: text("ReplicaSet"),
        name: text("web-7"),
        uid: Uid::parse("rs").unwrap(),
        controller: Some(true),
        block_owner_deletion: None,
    };
    NodeView {
        object: ObjectRef {
            group: text(""),
            version: text("v1"),
            resource: text("pods"),
            kind: text("Pod"),
            namespace: text("shop"),
            name: text("web-7-x"),
            uid: Uid::parse("u").unwrap(),
        },
        presence: Presence::Observed { resource_version: ResourceVersion::parse("7") },
        facts: Facts { owners: [owner].into(), finalizers: [text("a/b")].into(), ..Facts::default() },
        owners: 0,
        finalizers: 0,
        dependents: 2,
        blocking_dependents: 0,
        undecided: None,
        collecting: None,
    }
}

fn admits(filter: ObjectFilter) -> bool {
    Filter::of("include", &[filter]).unwrap().unwrap().admits(&pod())
}

fn cel(text: &str) -> ObjectFilter {
    ObjectFilter { cel: text.to_owned(), ..ObjectFilter::default() }
}

#[test]
fn every_field_that_is_told_of_is_there() {
    for (field, _) in OBJECT.fields {
        assert!(admits(cel(&format!("has(object.{field})"))), "{field}");
    }
    for (field, _) in NAMED.fields {
        let filter = Filter::of_names("targets", &[cel(&format!("has(object.{field})"))]).unwrap().unwrap();
        let object = pod().object.into();
        let seen = Activation::of([(&NAMED, named(&object))]);
        assert!(filter.admits_name(&object, || &seen), "{field}");
    }
    assert!(Filter::of_names("targets", &[cel("object.state == 'LIVE'")]).is_err());
}

#[test]
fn all_conditions_of_one_filter_must_hold() {
    let both = |namespace: &str, text: &str| ObjectFilter { namespaces: vec![namespace.to_owned()], ..cel(text) };
    assert!(admits(both("shop", "object.owners.exists(o, o.controller && o.name == 'web-7')")));
    assert!(!admits(both("other", "object.owners.exists(o, o.controller && o.name == 'web-7')")));
    assert!(!admits(both("shop", "object.dependent_count > 2")));
    assert!(admits(cel("object.state == 'LIVE' && 'a/b' in object.finalizers && object.uid == 'u'")));
    let many = vec![cel("true"); EXPRESSIONS_MAX + 1];
    assert!(Filter::of("include", &many).is_err());
}

#[test]
fn conditions_that_only_a_pause_has_are_refused_and_not_ignored() {
    let none = ObjectFilter::default;
    for (field, filter) in [
        ("names", ObjectFilter { names: vec!["a".to_owned()], ..none() }),
        ("label_selector", ObjectFilter { label_selector: Some(Default::default()), ..none() }),
        ("namespace_selector", ObjectFilter { namespace_selector: Some(Default::default()), ..none() }),
        ("owner", ObjectFilter { owner: Some(Default::default()), ..none() }),
    ] {
        let refused = Filter::of("include", &[none(), filter]).unwrap_err();
        assert!(refused.message().contains(&format!("include[1].{field}")), "{refused:?}");
    }
}
