use super::*;

fn query() -> ListQuery {
    ListQuery::default()
}

fn names(page: &Page) -> Vec<&str> {
    page.items.iter().map(|object| name(object)).collect()
}

fn cluster_key(name: &str) -> ObjectKey {
    ObjectKey::new("", name)
}

#[test]
fn a_new_cluster_has_namespaces_and_services() {
    let world = World::new();
    let namespaces: Vec<&str> = world.model.objects(&GroupResource::new("", "namespaces")).map(|o| name(o)).collect();
    assert_eq!(namespaces, ["default", "kube-node-lease", "kube-public", "kube-system"]);
    let services: Vec<&str> = world.model.objects(&aggregation::services()).map(|o| name(o)).collect();
    assert!(services.contains(&"v1.") && services.contains(&"v1.apps") && services.contains(&"v2.autoscaling"));
    let again = World::new();
    let all = |world: &World| -> Vec<Arc<Object>> { world.model.all_objects().map(|(_, o)| Arc::clone(o)).collect() };
    assert_eq!(all(&world), all(&again), "the seed decides everything");
}

#[test]
fn creation_checks_where_and_what() {
    let mut world = World::new();
    let rows = [
        ("default", json!({ "metadata": {} }), Reason::Invalid),
        ("default", json!({ "metadata": { "name": "Not_A_Name" } }), Reason::Invalid),
        ("default", json!({ "metadata": { "name": "a", "resourceVersion": "5" } }), Reason::InternalError),
        ("default", json!({ "kind": "Secret", "metadata": { "name": "a" } }), Reason::BadRequest),
        ("default", json!({ "apiVersion": "v2", "metadata": { "name": "a" } }), Reason::BadRequest),
        ("default", json!({ "metadata": 5 }), Reason::BadRequest),
        ("other", json!({ "metadata": { "name": "a" } }), Reason::NotFound),
        ("default", json!({ "metadata": { "name": "a", "labels": { "a": "b c" } } }), Reason::Invalid),
    ];
    for (namespace, object, reason) in rows {
        let options = WriteOptions::default();
        let result = world.model.create(NOW, &configmaps(), namespace, map(object.clone()), &options);
        assert_eq!(result.unwrap_err().reason, reason, "{object}");
    }
    let missing = world.model.create(NOW, &configmaps(), "other", map(json!({})), &WriteOptions::default());
    let missing = missing.unwrap_err();
    assert_eq!((missing.details.kind.as_str(), missing.details.name.as_str()), ("namespaces", "other"));
    let given = json!({ "name": "a", "uid": "mine", "deletionTimestamp": "2020-01-01T00:00:00Z", "managedFields": [] });
    let made = world.made(&configmaps(), given);
    assert_ne!(uid(&made), "mine");
    assert!(!is_terminating(&made));
    assert_eq!(text(&made, "creationTimestamp"), "2027-01-15T08:00:00Z");
    assert_eq!((&made["kind"], &made["apiVersion"]), (&json!("ConfigMap"), &json!("v1")));
    let taken = world.create(&configmaps(), json!({ "metadata": { "name": "a" } })).unwrap_err();
    assert_eq!(taken.reason, Reason::AlreadyExists);
    let generated = world.made(&configmaps(), json!({ "generateName": "b-" }));
    assert!(name(&generated).starts_with("b-") && name(&generated).len() == 7);
}

#[test]
fn what_is_not_served_says_so_in_its_own_way() {
    let mut world = World::new();
    world.create(&custom::definitions(), widget_definition()).unwrap();
    let rows = [
        ("apps", "nothing", Reason::ResourceNotServed),
        ("", "nothing", Reason::ResourceNotServed),
        ("example.com", "nothing", Reason::GroupNotServed),
        ("nowhere.io", "nothing", Reason::GroupNotServed),
    ];
    for (group, resource, reason) in rows {
        let error = world.get(&GroupResource::new(group, resource), "a").unwrap_err();
        assert_eq!(error.reason, reason, "{group} {resource}");
        assert_eq!(*error.details, Details::default());
    }
    let deployments = GroupResource::new("apps", "deployments");
    world.made(&deployments, json!({ "name": "a" }));
    world.model.set_served(&deployments, false);
    assert_eq!(world.get(&deployments, "a").unwrap_err().reason, Reason::ResourceNotServed);
    assert!(world.model.list(&deployments, &query()).is_err());
    world.model.set_served(&deployments, true);
    assert!(world.get(&deployments, "a").is_ok());
}

#[test]
fn pages_show_one_revision() {
    let mut world = World::new();
    for name in ["b", "d", "f", "h"] {
        world.made(&configmaps(), json!({ "name": name }));
    }
    let first = world.model.list(&configmaps(), &ListQuery { limit: 2, ..query() }).unwrap();
    assert_eq!((names(&first), first.remaining), (vec!["b", "d"], Some(2)));
    world.made(&configmaps(), json!({ "name": "e" }));
    world.delete(&configmaps(), "h", &DeleteOptions::default()).unwrap();
    world.merge(&configmaps(), "f", json!({ "data": { "a": "b" } })).unwrap();
    world.made(&configmaps(), json!({ "name": "a" }));
    let token = first.next.unwrap().token();
    let rest = ListQuery { limit: 1, from: Some(Position::parse(&token).unwrap()), ..query() };
    let second = world.model.list(&configmaps(), &rest).unwrap();
    assert_eq!((names(&second), second.remaining, second.revision), (vec!["f"], Some(1), first.revision));
    assert!(!second.items[0].contains_key("data"));
    let third = world.model.list(&configmaps(), &ListQuery { from: second.next, ..rest.clone() }).unwrap();
    assert_eq!((names(&third), third.next.is_none()), (vec!["h"], true));
    let exact = ListQuery { at: Some(first.revision), ..query() };
    assert_eq!(names(&world.model.list(&configmaps(), &exact).unwrap()), ["b", "d", "f", "h"]);
    assert_eq!(names(&world.model.list(&configmaps(), &query()).unwrap()), ["a", "b", "d", "e", "f"]);
    world.model.compact(world.model.revision());
    for old in [rest, exact] {
        assert_eq!(world.model.list(&configmaps(), &old).unwrap_err().code(), 410);
    }
    let future = ListQuery { at: Some(world.model.revision() + 1), ..query() };
    assert_eq!(world.model.list(&configmaps(), &future).unwrap_err().code(), 504);
    assert_eq!(Position::parse("nonsense").unwrap_err().code(), 400);
}

#[test]
fn selectors_select() {
    let mut world = World::new();
    world.made(&configmaps(), json!({ "name": "a", "labels": { "app": "web", "tier": "front" } }));
    world.made(&configmaps(), json!({ "name": "b", "labels": { "app": "db" } }));
    world.made(&configmaps(), json!({ "name": "c" }));
    let of = world.model.served(&configmaps()).unwrap();
    let rows = [
        ("app=web", "", "a"),
        ("app==web", "", "a"),
        ("app!=web", "", "b c"),
        ("app in (web, db)", "", "a b"),
        ("app notin (web)", "", "b c"),
        ("app", "", "a b"),
        ("!app", "", "c"),
        ("app,tier=front", "", "a"),
        ("", "metadata.name=b", "b"),
        ("", "metadata.name!=b", "a c"),
        ("app=web", "metadata.name=b", ""),
        ("", "metadata.namespace=default", "a b c"),
    ];
    for (labels, fields, expected) in rows {
        let selector = Selector::parse(&of, labels, fields).unwrap();
        for namespace in [None, Some("default".to_owned())] {
            let page = world.model.list(&configmaps(), &ListQuery { selector: selector.clone(), namespace, ..query() });
            assert_eq!(names(&page.unwrap()).join(" "), expected, "{labels} {fields}");
        }
    }
    for (labels, fields) in [("!!", ""), ("a in b", ""), ("a in (b", ""), ("=b", ""), ("", "data.x=1"), ("", "x")] {
        assert_eq!(Selector::parse(&of, labels, fields).unwrap_err().code(), 400, "{labels} {fields}");
    }
}

#[test]
fn history_has_an_end() {
    let mut world = World { model: Model::with_history(7, NOW, 3) };
    let start = world.model.revision();
    for name in ["a", "b", "c"] {
        world.made(&configmaps(), json!({ "name": name }));
    }
    assert_eq!(world.changes(&configmaps(), start).len(), 3);
    world.delete(&configmaps(), "a", &DeleteOptions::default()).unwrap();
    let gone = world.model.events_since(&configmaps(), None, start, 10).unwrap_err();
    assert_eq!((gone.code(), gone.reason), (410, Reason::Expired));
    let events = world.model.events_since(&configmaps(), Some("default"), start + 1, 10).unwrap();
    let last = events.last().unwrap();
    assert_eq!((last.change, revision(&last.object)), (Change::Deleted, world.model.revision()));
    assert!(world.model.events_since(&configmaps(), Some("other"), start + 1, 10).unwrap().is_empty());
}

#[test]
fn a_namespace_goes_when_its_content_has_gone() {
    let mut world = World::new();
    let namespaces = GroupResource::new("", "namespaces");
    world.made(&namespaces, json!({ "name": "n" }));
    let create = |world: &mut World, metadata: Value| {
        let object = map(json!({ "metadata": metadata }));
        world.model.create(NOW, &configmaps(), "n", object, &WriteOptions::default())
    };
    create(&mut world, json!({ "name": "plain" })).unwrap();
    create(&mut world, json!({ "name": "held", "finalizers": ["x.io/hold"] })).unwrap();
    let deleted = world.model.delete(NOW, &namespaces, &cluster_key("n"), &DeleteOptions::default()).unwrap();
    let Deleted::Kept(namespace) = deleted else { panic!("removed") };
    assert_eq!(namespace["status"]["phase"], "Terminating");
    assert_eq!(create(&mut world, json!({ "name": "new" })).unwrap_err().reason, Reason::Forbidden);
    world.model.settle(NOW);
    assert!(world.model.get(&configmaps(), "n", "plain").is_err());
    assert!(is_terminating(&world.model.get(&configmaps(), "n", "held").unwrap()));
    assert!(world.model.get(&namespaces, "", "n").is_ok());
    let free = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    let held = ObjectKey::new("n", "held");
    world.model.patch(NOW, &configmaps(), &held, &free, &WriteOptions::default()).unwrap();
    world.model.settle(NOW);
    assert!(world.model.get(&namespaces, "", "n").is_err());
    let all = world.model.delete_collection(NOW, &namespaces, &query(), &DeleteOptions::default());
    assert_eq!(all.unwrap_err().code(), 405);
}

#[test]
fn a_definition_brings_its_type_and_takes_it_away() {
    let mut world = World::new();
    let definition = world.create(&custom::definitions(), widget_definition()).unwrap().object;
    assert_eq!(definition["status"]["conditions"][1]["type"], "Established");
    world.model.settle(NOW);
    let of = world.model.served(&widgets()).unwrap();
    assert_eq!((of.versions.clone(), of.storage_version.as_str()), (vec!["v1".into(), "v1alpha1".into()], "v1"));
    assert!(world.model.get(&aggregation::services(), "", "v1.example.com").is_ok());
    world.made(&widgets(), json!({ "name": "plain" }));
    world.made(&widgets(), json!({ "name": "held", "finalizers": ["hold"] }));
    let before = world.model.revision();
    let definitions = custom::definitions();
    let key = cluster_key("widgets.example.com");
    world.model.delete(NOW, &definitions, &key, &DeleteOptions::default()).unwrap();
    world.model.settle(NOW);
    let reason = |object: &Object| object["status"]["conditions"][2]["reason"].as_str().unwrap().to_owned();
    let definition = world.model.get(&definitions, "", "widgets.example.com").unwrap();
    assert_eq!(reason(&definition), "InstanceDeletionInProgress");
    let created = world.create(&widgets(), json!({ "metadata": { "name": "new" } })).unwrap_err();
    assert_eq!(created.reason, Reason::Forbidden);
    let changes = world.changes(&widgets(), before);
    assert_eq!(changes.len(), 2, "both instances in the ordinary way: {changes:?}");
    world.merge(&widgets(), "held", json!({ "metadata": { "finalizers": null } })).unwrap();
    world.model.settle(NOW);
    assert_eq!(world.model.served(&widgets()).unwrap_err().reason, Reason::GroupNotServed);
    let (last, through) = world.model.changes(&widgets(), before, 10).unwrap();
    assert_eq!(last.last().unwrap().change, Change::Deleted, "a watch that was slow still learns how they went");
    assert!(world.model.changes(&widgets(), through, 10).is_err(), "and then it ends");
    assert!(world.model.get(&aggregation::services(), "", "v1.example.com").is_err());
    let events = world.model.events_since(&definitions, None, before, 10).unwrap();
    let last = events.last().unwrap();
    assert_eq!((last.change, reason(&last.object).as_str()), (Change::Deleted, "InstanceDeletionInProgress"));
    world.create(&custom::definitions(), widget_definition()).unwrap();
    assert_eq!(world.model.objects(&widgets()).count(), 0);
    assert_eq!(world.model.events_since(&widgets(), None, before, 10).unwrap_err().code(), 410);
}

#[test]
fn the_end_of_instances_shows_while_another_finalizer_holds_the_definition() {
    let mut world = World::new();
    let mut definition = widget_definition();
    definition["metadata"]["finalizers"] = json!(["x.io/hold"]);
    world.create(&custom::definitions(), definition).unwrap();
    let key = cluster_key("widgets.example.com");
    world.model.delete(NOW, &custom::definitions(), &key, &DeleteOptions::default()).unwrap();
    world.model.settle(NOW);
    let definition = world.model.get(&custom::definitions(), "", "widgets.example.com").unwrap();
    let condition = &definition["status"]["conditions"][2];
    assert_eq!((&condition["status"], &condition["reason"]), (&json!("False"), &json!("InstanceDeletionCompleted")));
    assert_eq!(finalizers(&definition), ["x.io/hold"]);
}

#[test]
fn definitions_are_checked() {
    let rows = [
        ("/metadata/name", json!("widgets.other.com")),
        ("/spec/group", json!("nodot")),
        ("/spec/scope", json!("Everywhere")),
        ("/spec/versions/1/storage", json!(false)),
        ("/spec/versions", json!([])),
        ("/spec/names/kind", json!("")),
        ("/spec", json!("text")),
    ];
    for (path, value) in rows {
        let mut definition = widget_definition();
        *definition.pointer_mut(path).unwrap() = value;
        let error = World::new().create(&custom::definitions(), definition).unwrap_err();
        assert_eq!(error.code(), 422, "{path}");
    }
}

#[test]
fn a_backup_can_be_restored() {
    let mut world = World::new();
    let made = world.made(&configmaps(), json!({ "name": "a" }));
    let snapshot = world.model.snapshot();
    world.create(&custom::definitions(), widget_definition()).unwrap();
    world.delete(&configmaps(), "a", &DeleteOptions::default()).unwrap();
    world.model.restore(snapshot);
    world.model.settle(NOW);
    assert_eq!(world.get(&configmaps(), "a").unwrap(), made);
    assert_eq!(world.model.revision(), revision(&made));
    assert!(world.model.served(&widgets()).is_err());
}

#[test]
fn a_collection_is_deleted_by_selector() {
    let mut world = World::new();
    for (name, label) in [("a", "x"), ("b", "y"), ("c", "x")] {
        world.made(&configmaps(), json!({ "name": name, "labels": { "l": label } }));
    }
    let of = world.model.served(&configmaps()).unwrap();
    let selector = Selector::parse(&of, "l=x", "").unwrap();
    let found = world.model.delete_collection(
        NOW,
        &configmaps(),
        &ListQuery { selector, ..query() },
        &DeleteOptions::default(),
    );
    assert_eq!(found.unwrap().len(), 2);
    assert_eq!(names(&world.model.list(&configmaps(), &query()).unwrap()), ["b"]);
}
