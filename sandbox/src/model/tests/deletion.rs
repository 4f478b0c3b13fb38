use super::*;

fn with_policy(policy: Option<Policy>) -> DeleteOptions {
    DeleteOptions { propagation_policy: policy, ..DeleteOptions::default() }
}

fn with_orphan(orphan: Option<bool>) -> DeleteOptions {
    DeleteOptions { orphan_dependents: orphan, ..DeleteOptions::default() }
}

fn with_grace(seconds: Option<i64>) -> DeleteOptions {
    DeleteOptions { grace_period_seconds: seconds, ..DeleteOptions::default() }
}

/// The finalizers of an object, or nothing if it is gone.
fn left(world: &World, resource: &GroupResource, name: &str) -> Option<Vec<String>> {
    let object = world.get(resource, name).ok()?;
    Some(finalizers(&object).into_iter().map(str::to_owned).collect())
}

#[test]
fn a_deleted_object_is_gone_and_stays_gone() {
    let mut world = World::new();
    let missing = world.delete(&configmaps(), "a", &DeleteOptions::default()).unwrap_err();
    assert_eq!((missing.reason, missing.details.kind.as_str()), (Reason::NotFound, "configmaps"));
    let made = world.made(&configmaps(), json!({ "name": "a" }));
    let deleted = world.delete(&configmaps(), "a", &DeleteOptions::default()).unwrap();
    assert!(matches!(deleted, Deleted::Removed(last) if uid(&last) == uid(&made)));
    assert_eq!(world.get(&configmaps(), "a").unwrap_err().reason, Reason::NotFound);
    let created = revision(&made);
    assert_eq!(world.changes(&configmaps(), created), [format!("Deleted a {}", created + 1)]);
}

#[test]
fn a_deletion_without_grace_is_not_held_by_its_own_mark() {
    let mut world = World::new();
    let pod = world.made(&pods(), json!({ "name": "a" }));
    let before = world.model.revision();
    let options = DeleteOptions {
        resource_version: Some(text(&pod, "resourceVersion").to_owned()),
        grace_period_seconds: Some(0),
        ..DeleteOptions::default()
    };
    let Deleted::Removed(last) = world.delete(&pods(), "a", &options).unwrap() else { panic!("kept") };
    assert!(is_terminating(&last));
    assert_eq!(metadata::generation(&last), 2);
    let expected = [format!("Modified a {}", before + 1), format!("Deleted a {}", before + 2)];
    assert_eq!(world.changes(&pods(), before), expected);
}

#[test]
fn preconditions_are_conflicts() {
    let mut world = World::new();
    world.made(&configmaps(), json!({ "name": "a" }));
    for options in [
        DeleteOptions { uid: Some("other".to_owned()), ..DeleteOptions::default() },
        DeleteOptions { resource_version: Some("1".to_owned()), ..DeleteOptions::default() },
    ] {
        let error = world.delete(&configmaps(), "a", &options).unwrap_err();
        assert_eq!((error.reason, error.details.kind.as_str()), (Reason::Conflict, "ConfigMap"), "{error}");
        assert_eq!(error.details.name, "a");
    }
}

#[test]
fn foreign_finalizers_hold_an_object_until_an_update_drops_them() {
    let mut world = World::new();
    for resource in [configmaps(), pods(), controllers()] {
        world.made(&resource, json!({ "name": "a", "finalizers": ["x.io/hold"] }));
        let options = with_policy(Some(Policy::Background));
        let Deleted::Kept(kept) = world.delete(&resource, "a", &options).unwrap() else { panic!("removed") };
        assert_eq!(text(&kept, "deletionTimestamp"), NOW.timestamp(), "{resource}");
        assert_eq!(metadata::grace_seconds(&kept), Some(0));
        let mut object = Object::clone(&kept);
        metadata::set(&mut object, "labels", json!({ "a": "b" }));
        assert!(!world.update(&resource, Value::Object(object.clone())).unwrap().removed);
        metadata::unset(&mut object, "resourceVersion");
        metadata::unset(&mut object, "finalizers");
        let written = world.update(&resource, Value::Object(object)).unwrap();
        assert!(written.removed && finalizers(&written.object).is_empty());
        assert!(world.get(&resource, "a").is_err());
    }
}

#[test]
fn orphan_dependents_and_existing_finalizers() {
    let others = ["x.io/one", "x.io/two"];
    let mixed = ["x.io/one", ORPHAN, "x.io/two"];
    let appended = ["x.io/one", "x.io/two", ORPHAN];
    type Row<'a> = (&'a [&'a str], Option<bool>, bool, Option<&'a [&'a str]>);
    // finalizers before, orphanDependents, a type that orphans by default, finalizers after (None is gone)
    let rows: &[Row<'_>] = &[
        (&mixed, Some(true), false, Some(&mixed)),
        (&others, Some(true), false, Some(&appended)),
        (&[], Some(true), false, Some(&[ORPHAN])),
        (&[ORPHAN], Some(true), false, Some(&[ORPHAN])),
        (&mixed, Some(false), true, Some(&others)),
        (&others, Some(false), true, Some(&others)),
        (&[], Some(false), true, None),
        (&[ORPHAN], Some(false), true, None),
        (&mixed, None, true, Some(&mixed)),
        (&others, None, true, Some(&appended)),
        (&[], None, true, Some(&[ORPHAN])),
        (&[ORPHAN], None, true, Some(&[ORPHAN])),
        (&mixed, None, false, Some(&mixed)),
        (&others, None, false, Some(&others)),
        (&[], None, false, None),
        (&[ORPHAN], None, false, Some(&[ORPHAN])),
    ];
    for (before, orphan, orphans_by_default, after) in rows {
        let mut world = World::new();
        let resource = if *orphans_by_default { controllers() } else { configmaps() };
        world.made(&resource, json!({ "name": "a", "finalizers": before }));
        world.delete(&resource, "a", &with_orphan(*orphan)).unwrap();
        let after = after.map(|names| names.iter().map(|&name| name.to_owned()).collect());
        assert_eq!(left(&world, &resource, "a"), after, "{before:?} {orphan:?} {orphans_by_default}");
    }
}

#[test]
fn propagation_policies_and_existing_finalizers() {
    let stays = |name: &str| Some(vec![name.to_owned()]);
    for existing in [None, Some(ORPHAN), Some(FOREGROUND)] {
        for policy in [Some(Policy::Foreground), Some(Policy::Background), Some(Policy::Orphan), None] {
            for orphans_by_default in [false, true] {
                let mut world = World::new();
                let resource = if orphans_by_default { controllers() } else { configmaps() };
                let before: Vec<&str> = existing.into_iter().collect();
                world.made(&resource, json!({ "name": "a", "finalizers": before }));
                world.delete(&resource, "a", &with_policy(policy)).unwrap();
                let expected = match (policy, existing) {
                    (Some(Policy::Foreground), _) => stays(FOREGROUND),
                    (Some(Policy::Background), _) => None,
                    (Some(Policy::Orphan), _) => stays(ORPHAN),
                    (None, Some(existing)) => stays(existing),
                    (None, None) if orphans_by_default => stays(ORPHAN),
                    (None, None) => None,
                };
                let case = format!("{existing:?} {policy:?} {orphans_by_default}");
                assert_eq!(left(&world, &resource, "a"), expected, "{case}");
            }
        }
    }
}

#[test]
fn default_policies_follow_the_type() {
    let rows = [
        ("", "replicationcontrollers", Some(ORPHAN)),
        ("batch", "jobs", Some(ORPHAN)),
        ("batch", "cronjobs", None),
        ("apps", "deployments", None),
        ("apps", "replicasets", None),
        ("", "events", None),
    ];
    for (group, resource, expected) in rows {
        let mut world = World::new();
        let resource = GroupResource::new(group, resource);
        world.made(&resource, json!({ "name": "a" }));
        world.delete(&resource, "a", &DeleteOptions::default()).unwrap();
        assert_eq!(left(&world, &resource, "a"), expected.map(|name| vec![name.to_owned()]), "{resource}");
    }
    let mut world = World::new();
    let events = GroupResource::new("", "events");
    world.made(&events, json!({ "name": "a" }));
    world.delete(&events, "a", &with_policy(Some(Policy::Foreground))).unwrap();
    assert_eq!(left(&world, &events, "a"), None, "events know no dependents");
}

#[test]
fn a_second_deletion_changes_the_policy() {
    let mut world = World::new();
    world.made(&configmaps(), json!({ "name": "a", "finalizers": ["x.io/hold"] }));
    let rows = [
        (Some(Policy::Foreground), vec!["x.io/hold", FOREGROUND]),
        (Some(Policy::Orphan), vec!["x.io/hold", ORPHAN]),
        (None, vec!["x.io/hold", ORPHAN]),
        (Some(Policy::Background), vec!["x.io/hold"]),
    ];
    for (policy, expected) in rows {
        world.delete(&configmaps(), "a", &with_policy(policy)).unwrap();
        let object = world.get(&configmaps(), "a").unwrap();
        assert_eq!(finalizers(&object), expected, "{policy:?}");
    }
    let revision = world.model.revision();
    world.delete(&configmaps(), "a", &with_policy(Some(Policy::Background))).unwrap();
    assert_eq!(world.model.revision(), revision, "a deletion that changes nothing writes nothing");
}

/// A terminating pod on a node with this much grace left.
fn terminating_pod(grace: i64) -> World {
    let mut world = World::new();
    let pod = json!({ "metadata": { "name": "a" }, "spec": { "nodeName": "n" } });
    world.create(&pods(), pod).unwrap();
    world.delete(&pods(), "a", &with_grace(Some(grace))).unwrap();
    world
}

#[test]
fn grace_can_only_be_shortened() {
    // existing grace, requested, grace afterwards (None is gone)
    let rows = [
        (-1, -1, Some(1)),
        (-1, 0, None),
        (-1, 1, Some(1)),
        (-1, 2, Some(1)),
        (1, -1, Some(1)),
        (1, 0, None),
        (1, 1, Some(1)),
        (1, 2, Some(1)),
        (2, -1, Some(1)),
        (2, 0, None),
        (2, 1, Some(1)),
        (2, 2, Some(2)),
    ];
    for (existing, requested, expected) in rows {
        let mut world = terminating_pod(existing);
        world.delete(&pods(), "a", &with_grace(Some(requested))).unwrap();
        let grace = world.get(&pods(), "a").ok().and_then(|pod| metadata::grace_seconds(&pod));
        assert_eq!(grace, expected, "{existing} {requested}");
    }
}

#[test]
fn grace_is_not_shortened_into_the_past() {
    for (requested, grace) in [(5, Some(1)), (0, None)] {
        let mut world = terminating_pod(30);
        world.model.delete(LATER, &pods(), &key("a"), &with_grace(Some(requested))).unwrap();
        let pod = world.get(&pods(), "a").ok();
        assert_eq!(pod.as_ref().and_then(|pod| metadata::grace_seconds(pod)), grace);
        if let Some(pod) = pod {
            assert_eq!(text(&pod, "deletionTimestamp"), LATER.timestamp());
        }
    }
}

#[test]
fn a_waiting_pod_is_left_alone() {
    let mut world = terminating_pod(30);
    let revision = world.model.revision();
    let options = with_policy(Some(Policy::Foreground));
    assert!(matches!(world.delete(&pods(), "a", &options).unwrap(), Deleted::Kept(_)));
    assert_eq!(world.model.revision(), revision, "finalizers are not touched while grace is pending");
    let pod = world.get(&pods(), "a").unwrap();
    assert_eq!(metadata::deletion_seconds(&pod), Some(NOW.seconds() + 30));
}

#[test]
fn grace_depends_on_the_pod() {
    let rows = [
        (json!({}), None, None),
        (json!({ "nodeName": "n" }), None, Some(30)),
        (json!({ "nodeName": "n", "terminationGracePeriodSeconds": 5 }), None, Some(5)),
        (json!({ "nodeName": "n" }), Some(7), Some(7)),
        (json!({ "nodeName": "n" }), Some(0), None),
        (json!({ "terminationGracePeriodSeconds": 5 }), Some(7), None),
    ];
    for (spec, asked, expected) in rows {
        let mut world = World::new();
        world.create(&pods(), json!({ "metadata": { "name": "a" }, "spec": spec })).unwrap();
        world.delete(&pods(), "a", &with_grace(asked)).unwrap();
        let grace = world.get(&pods(), "a").ok().and_then(|pod| metadata::grace_seconds(&pod));
        assert_eq!(grace, expected, "{spec} {asked:?}");
    }
    let mut world = World::new();
    world.create(&pods(), json!({ "metadata": { "name": "a" }, "spec": { "nodeName": "n" } })).unwrap();
    let finished = Patch::Merge(json!({ "status": { "phase": "Succeeded" } }));
    let options = WriteOptions { subresource: Subresource::Status, ..WriteOptions::default() };
    world.model.patch(NOW, &pods(), &key("a"), &finished, &options).unwrap();
    assert!(matches!(world.delete(&pods(), "a", &DeleteOptions::default()).unwrap(), Deleted::Removed(_)));
}

#[test]
fn options_are_decoded_strictly() {
    let good = json!({
        "kind": "DeleteOptions", "apiVersion": "v1", "preconditions": { "uid": "u", "resourceVersion": "3" },
        "gracePeriodSeconds": 4, "propagationPolicy": "Orphan", "dryRun": ["All"], "orphanDependents": null,
    });
    let options = DeleteOptions {
        uid: Some("u".to_owned()),
        resource_version: Some("3".to_owned()),
        grace_period_seconds: Some(4),
        propagation_policy: Some(Policy::Orphan),
        orphan_dependents: None,
        dry_run: true,
    };
    assert_eq!(DeleteOptions::decode(&good), Ok(options));
    let rows = [
        (json!([]), 400),
        (json!({ "kind": "Pod" }), 400),
        (json!({ "propagationPolicy": 5 }), 400),
        (json!({ "gracePeriodSeconds": "1" }), 400),
        (json!({ "orphanDependents": "yes" }), 400),
        (json!({ "preconditions": [] }), 400),
        (json!({ "propagationPolicy": "Huh" }), 422),
        (json!({ "dryRun": ["Some"] }), 422),
    ];
    for (body, code) in rows {
        assert_eq!(DeleteOptions::decode(&body).unwrap_err().code(), code, "{body}");
    }
    let both = DeleteOptions {
        orphan_dependents: Some(true),
        propagation_policy: Some(Policy::Orphan),
        ..DeleteOptions::default()
    };
    assert_eq!(World::new().delete(&configmaps(), "a", &both).unwrap_err().code(), 422);
}

#[test]
fn a_dry_run_changes_nothing() {
    let mut world = World::new();
    world.made(&configmaps(), json!({ "name": "a" }));
    world.made(&pods(), json!({ "name": "a" }));
    let revision = world.model.revision();
    let dry = DeleteOptions { dry_run: true, ..DeleteOptions::default() };
    for resource in [configmaps(), pods()] {
        assert!(matches!(world.delete(&resource, "a", &dry).unwrap(), Deleted::Removed(_)));
        assert!(world.get(&resource, "a").is_ok());
    }
    assert_eq!(world.model.revision(), revision);
}
