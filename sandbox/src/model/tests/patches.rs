use super::*;

fn reference(uid: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "name": format!("owner-{uid}"), "uid": uid })
}

fn strategic(world: &mut World, resource: &GroupResource, patch: Value) -> Result<Written, ApiError> {
    world.model.patch(NOW, resource, &key("a"), &Patch::Strategic(patch), &WriteOptions::default())
}

fn owners(object: &Object) -> Vec<String> {
    let list = metadata::value(object, "ownerReferences").and_then(Value::as_array).cloned().unwrap_or_default();
    list.iter().map(|reference| reference["uid"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn references_are_removed_by_uid() {
    let mut world = World::new();
    let references = json!([reference("1"), reference("2"), reference("3")]);
    let made = world.made(&configmaps(), json!({ "name": "a", "ownerReferences": references }));
    let remove =
        |uids: &[&str]| -> Value { uids.iter().map(|uid| json!({ "$patch": "delete", "uid": uid })).collect() };
    let patch = json!({ "metadata": { "uid": uid(&made), "ownerReferences": remove(&["1", "9"]) } });
    let object = strategic(&mut world, &configmaps(), patch).unwrap().object;
    assert_eq!(owners(&object), ["2", "3"]);
    let revision = world.model.revision();
    let patch = json!({ "metadata": { "ownerReferences": remove(&["1"]) } });
    strategic(&mut world, &configmaps(), patch).unwrap();
    assert_eq!(world.model.revision(), revision, "removing what is not there is no write");
    let patch = json!({ "metadata": { "ownerReferences": remove(&["2", "3"]) } });
    let object = strategic(&mut world, &configmaps(), patch).unwrap().object;
    assert_eq!(metadata::value(&object, "ownerReferences"), None);
    let patch = json!({ "metadata": { "uid": "other", "ownerReferences": remove(&["2"]) } });
    assert_eq!(strategic(&mut world, &configmaps(), patch).unwrap_err().code(), 422);
}

#[test]
fn references_are_merged_by_uid_and_finalizers_as_a_set() {
    let mut world = World::new();
    let metadata = json!({ "name": "a", "finalizers": ["x.io/a"], "ownerReferences": [reference("1")] });
    world.made(&configmaps(), metadata);
    let mut unblocked = reference("1");
    unblocked["blockOwnerDeletion"] = json!(false);
    let patch =
        json!({ "metadata": { "finalizers": ["x.io/b", "x.io/a"], "ownerReferences": [unblocked, reference("2")] } });
    let object = strategic(&mut world, &configmaps(), patch).unwrap().object;
    assert_eq!(owners(&object), ["1", "2"]);
    assert_eq!(object["metadata"]["ownerReferences"][0]["blockOwnerDeletion"], false);
    assert_eq!(finalizers(&object), ["x.io/a", "x.io/b"]);
    let patch = json!({ "metadata": { "$deleteFromPrimitiveList/finalizers": ["x.io/a"] } });
    let object = strategic(&mut world, &configmaps(), patch).unwrap().object;
    assert_eq!(finalizers(&object), ["x.io/b"]);
    let patch = json!({ "metadata": { "ownerReferences": [{ "$patch": "replace" }, reference("5")] } });
    let object = strategic(&mut world, &configmaps(), patch).unwrap().object;
    assert_eq!(owners(&object), ["5"]);
    let patch = json!({ "metadata": { "ownerReferences": [{ "name": "x" }] } });
    assert_eq!(strategic(&mut world, &configmaps(), patch).unwrap_err().code(), 500);
}

#[test]
fn containers_are_merged_and_other_lists_replaced() {
    let mut world = World::new();
    let deployments = GroupResource::new("apps", "deployments");
    let template = |containers: Value, extra: Value| json!({ "spec": { "template": { "spec": { "containers": containers, "tolerations": extra } } } });
    let mut object = template(json!([{ "name": "a", "image": "1" }, { "name": "b", "image": "1" }]), json!([1, 2]));
    object["metadata"] = json!({ "name": "a" });
    world.create(&deployments, object).unwrap();
    let mut patch = template(json!([{ "name": "b", "image": "2" }, { "name": "c" }]), json!([3]));
    patch["spec"]["template"]["spec"]["$setElementOrder/containers"] =
        json!([{ "name": "c" }, { "name": "b" }, { "name": "a" }]);
    let object = strategic(&mut world, &deployments, patch).unwrap().object;
    let spec = &object["spec"]["template"]["spec"];
    let expected = json!([{ "name": "c" }, { "name": "b", "image": "2" }, { "name": "a", "image": "1" }]);
    assert_eq!(spec["containers"], expected);
    assert_eq!(spec["tolerations"], json!([3]));
    assert_eq!(metadata::generation(&object), 2);
    let patch = json!({ "metadata": { "labels": { "a": "b" } } });
    let object = strategic(&mut world, &deployments, patch).unwrap().object;
    assert_eq!(metadata::generation(&object), 2, "metadata does not count");
}

#[test]
fn json_patches_are_all_or_nothing() {
    let mut world = World::new();
    let made = world.made(&configmaps(), json!({ "name": "a", "ownerReferences": [reference("1"), reference("2")] }));
    let patch = |world: &mut World, operations: Value| {
        world.model.patch(NOW, &configmaps(), &key("a"), &Patch::Json(operations), &WriteOptions::default())
    };
    let wrong = json!([
        { "op": "remove", "path": "/metadata/ownerReferences/0" },
        { "op": "test", "path": "/metadata/uid", "value": "other" },
    ]);
    assert_eq!(patch(&mut world, wrong).unwrap_err().code(), 422);
    assert_eq!(world.get(&configmaps(), "a").unwrap(), made);
    let right = json!([
        { "op": "test", "path": "/metadata/uid", "value": uid(&made) },
        { "op": "test", "path": "/metadata/resourceVersion", "value": text(&made, "resourceVersion") },
        { "op": "remove", "path": "/metadata/ownerReferences/0" },
        { "op": "add", "path": "/data", "value": { "a/b": "1" } },
        { "op": "copy", "from": "/data/a~1b", "path": "/data/c" },
        { "op": "move", "from": "/data/c", "path": "/data/d" },
        { "op": "replace", "path": "/data/a~1b", "value": "2" },
    ]);
    let object = patch(&mut world, right).unwrap().object;
    assert_eq!(owners(&object), ["2"]);
    assert_eq!(object["data"], json!({ "a/b": "2", "d": "1" }));
    for operations in [
        json!([{ "op": "remove", "path": "/metadata/ownerReferences/7" }]),
        json!([{ "op": "replace", "path": "/nothing/inside", "value": 1 }]),
        json!([{ "op": "add", "path": "/metadata/ownerReferences/9", "value": 1 }]),
        json!([{ "op": "dance", "path": "/data" }]),
        json!([{ "op": "add" }]),
    ] {
        assert_eq!(patch(&mut world, operations.clone()).unwrap_err().code(), 422, "{operations}");
    }
    for operations in [json!({}), json!([7])] {
        assert_eq!(patch(&mut world, operations).unwrap_err().code(), 400);
    }
    let object = patch(&mut world, json!([{ "op": "replace", "path": "/data/new", "value": "1" }])).unwrap().object;
    assert_eq!(object["data"]["new"], "1", "in a map, replacing may add");
}

#[test]
fn updates_are_guarded() {
    let mut world = World::new();
    let made = world.made(&configmaps(), json!({ "name": "a" }));
    let rows = [
        (json!({ "name": "a", "uid": "other" }), 409),
        (json!({ "name": "a", "resourceVersion": "1" }), 409),
        (json!({ "name": "a", "namespace": "other" }), 400),
        (json!({ "name": "a", "deletionTimestamp": "2020-01-01T00:00:00Z" }), 422),
        (json!({ "name": "a", "labels": { "a": 1 } }), 400),
        (json!({ "name": "a", "finalizers": [ORPHAN, FOREGROUND] }), 422),
        (json!({ "name": "a", "finalizers": ["unqualified"] }), 422),
    ];
    for (metadata, code) in rows {
        let error = world.update(&configmaps(), json!({ "metadata": metadata })).unwrap_err();
        assert_eq!(error.code(), code, "{metadata}: {error}");
    }
    for (patch, code) in [
        (json!({ "metadata": { "uid": "other" } }), 422),
        (json!({ "metadata": { "resourceVersion": "1" } }), 409),
        (json!({ "metadata": { "name": "b" } }), 400),
        (json!({ "metadata": { "namespace": "other" } }), 400),
        (json!({ "kind": "Secret" }), 422),
        (json!(5), 400),
    ] {
        assert_eq!(world.merge(&configmaps(), "a", patch.clone()).unwrap_err().code(), code, "{patch}");
    }
    assert_eq!(world.get(&configmaps(), "a").unwrap(), made);
    assert_eq!(world.merge(&configmaps(), "b", json!({})).unwrap_err().code(), 404);
}

#[test]
fn nothing_is_added_to_what_is_going() {
    let mut world = World::new();
    world.made(&configmaps(), json!({ "name": "a", "finalizers": ["x.io/a"] }));
    world.delete(&configmaps(), "a", &DeleteOptions::default()).unwrap();
    let patch = json!({ "metadata": { "finalizers": ["x.io/a", "x.io/b"] } });
    assert_eq!(world.merge(&configmaps(), "a", patch).unwrap_err().code(), 422);
    let patch = json!({ "metadata": { "deletionTimestamp": null, "deletionGracePeriodSeconds": null } });
    let object = world.merge(&configmaps(), "a", patch).unwrap().object;
    assert!(is_terminating(&object) && metadata::grace_seconds(&object) == Some(0));
    let written = world.merge(&configmaps(), "a", json!({ "metadata": { "finalizers": null } })).unwrap();
    assert!(written.removed);
    assert!(world.get(&configmaps(), "a").is_err());
}

#[test]
fn references_are_validated() {
    let mut world = World::new();
    let wrong = |field: &str, value: Value| {
        let mut wrong = reference("1");
        wrong[field] = value;
        json!([wrong])
    };
    let mut two = [reference("1"), reference("2")];
    two.iter_mut().for_each(|reference| reference["controller"] = json!(true));
    let rows = [
        (wrong("uid", json!("")), 422),
        (wrong("name", Value::Null), 422),
        (wrong("kind", json!("")), 422),
        (wrong("apiVersion", json!("")), 422),
        (wrong("apiVersion", json!("a/b/c")), 422),
        (wrong("kind", json!("Event")), 422),
        (json!(two), 422),
        (wrong("uid", json!(5)), 400),
        (json!([5]), 400),
    ];
    for (references, code) in rows {
        let object = json!({ "metadata": { "name": "x", "ownerReferences": references } });
        let error = world.create(&configmaps(), object).unwrap_err();
        assert_eq!(error.code(), code, "{references}: {error}");
    }
    let mut flagged = reference("1");
    flagged["blockOwnerDeletion"] = json!(true);
    let repeated = json!([reference("1"), reference("1"), flagged]);
    let written = world.create(&configmaps(), json!({ "metadata": { "name": "a", "ownerReferences": repeated } }));
    let written = written.unwrap();
    assert_eq!(owners(&written.object), ["1", "1"], "only exact repetitions are dropped");
    assert!(written.warning.unwrap().ends_with("duplicate UID(s) observed: 1"));
}

#[test]
fn status_is_kept_apart() {
    let mut world = World::new();
    let deployments = GroupResource::new("apps", "deployments");
    let object = json!({ "metadata": { "name": "a" }, "spec": { "replicas": 1 }, "status": { "replicas": 9 } });
    let made = world.create(&deployments, object).unwrap().object;
    assert!(!made.contains_key("status"));
    world.merge(&deployments, "a", json!({ "status": { "replicas": 9 } })).unwrap();
    assert!(!world.get(&deployments, "a").unwrap().contains_key("status"));
    let options = WriteOptions { subresource: Subresource::Status, ..WriteOptions::default() };
    let patch = Patch::Merge(json!({ "status": { "replicas": 1 }, "spec": { "replicas": 5 } }));
    let object = world.model.patch(NOW, &deployments, &key("a"), &patch, &options).unwrap().object;
    assert_eq!((&object["status"]["replicas"], &object["spec"]["replicas"]), (&json!(1), &json!(1)));
    assert_eq!(metadata::generation(&object), 1);
}

#[test]
fn custom_resources_take_no_strategic_patch() {
    let mut world = World::new();
    world.create(&custom::definitions(), widget_definition()).unwrap();
    let error = strategic(&mut world, &widgets(), json!({})).unwrap_err();
    assert_eq!(error.code(), 415, "before the object is looked for");
    assert_eq!(world.merge(&widgets(), "a", json!({})).unwrap_err().code(), 404);
    world.made(&widgets(), json!({ "name": "a" }));
    let error = world.update(&widgets(), json!({ "metadata": { "name": "a" } })).unwrap_err();
    assert_eq!(error.code(), 422, "an update of a custom resource must name a version");
}
