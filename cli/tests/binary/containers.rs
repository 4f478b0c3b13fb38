//! Namespaces and definitions: a plan has what goes with them, and it goes. Asked on a sandbox, whose API server
//! empties them as Kubernetes does.

use crate::process::{Http, until};
use crate::questions::World;
use http::{Method, StatusCode};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

const OBJECTS: usize = 1_000;
const INSTANCES: usize = 100;
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const DATABASES: &str = "/apis/shop.example.com/v1/namespaces/default/databases";

pub(crate) async fn make(api: &Http, path: &str, body: Value) -> Value {
    let made = api.send(Method::POST, path, Some(body)).await;
    assert_eq!(made.status, StatusCode::CREATED, "{path}: {}", String::from_utf8_lossy(&made.body));
    serde_json::from_slice(&made.body).unwrap()
}

fn config_map(name: &str, owner: Option<&Value>, finalizers: &[&str]) -> Value {
    let metadata =
        json!({ "name": name, "ownerReferences": owner.into_iter().collect::<Vec<_>>(), "finalizers": finalizers });
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata })
}

/// Returns the effect of a plan on each object, by uid.
async fn plan(world: &World, target: &str, code: i32) -> BTreeMap<String, String> {
    let said = world.ask(&["plan", "delete", target, "-o", "json"]).await;
    assert_eq!(said.code, Some(code), "{}", said.stderr);
    let document: Value = serde_json::from_str(&said.stdout).unwrap();
    let entries = document["entries"].as_array().unwrap();
    let entry = |entry: &Value| {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        (text(&entry["ref"]["uid"]), text(&entry["effect"]))
    };
    entries.iter().map(entry).collect()
}

async fn uids(api: &Http, path: &str) -> BTreeSet<String> {
    let (status, text) = api.text(path).await;
    if status == StatusCode::NOT_FOUND {
        return BTreeSet::new();
    }
    let list: Value = serde_json::from_str(&text).unwrap();
    let items = list["items"].as_array().unwrap();
    items.iter().map(|item| item["metadata"]["uid"].as_str().unwrap().to_owned()).collect()
}

fn of(plan: &BTreeMap<String, String>, effect: &str) -> BTreeSet<String> {
    plan.iter().filter(|(_, of)| *of == effect).map(|(uid, _)| uid.clone()).collect()
}

#[tokio::test]
async fn a_plan_of_a_namespace_is_what_then_happens_object_by_object() {
    let world = World::with("enforce").await;
    let api = world.api();
    make(api, "/api/v1/namespaces", json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "full" } }))
        .await;
    let inside = "/api/v1/namespaces/full/configmaps";
    let mut owner = Value::Null;
    for number in 0..OBJECTS {
        let name = format!("object-{number}");
        let owned = (number % 3 == 1).then_some(&owner);
        let made =
            make(api, inside, config_map(&name, owned, if number == 7 { &["example.com/kept"] } else { &[] })).await;
        if number % 3 == 0 {
            owner = json!({ "apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": made["metadata"]["uid"] });
        }
    }
    let before = uids(api, inside).await;
    let planned = plan(&world, "ns/full", 0).await;
    let goes = of(&planned, "EFFECT_DELETE");
    let waits = of(&planned, "EFFECT_WAITS");
    assert!(goes.len() + 1 >= OBJECTS && waits.len() == 2, "{} go, {} wait", goes.len(), waits.len());
    assert_eq!(api.send(Method::DELETE, "/api/v1/namespaces/full", None).await.status, StatusCode::OK);
    until("what the plan deletes is gone", async || uids(api, inside).await.is_disjoint(&goes)).await;
    let left = uids(api, inside).await;
    assert_eq!(left, before.difference(&goes).cloned().collect(), "and nothing else");
    assert!(left.is_subset(&waits) && left.len() == 1);
    until("the graph has seen it", async || {
        let why = world.ask(&["why", "ns/full"]).await;
        why.stdout.contains("1 object is in it (ConfigMap 1), of which finalizers keep ConfigMap full/object-7")
            && why.code == Some(2)
            && !why.stdout.contains("goes by itself")
    })
    .await;
    let stuck = world.ask(&["stuck", "-A", "--older-than", "1ms"]).await;
    assert!(
        stuck.stdout.contains("Namespace/full") && stuck.stdout.contains("ConfigMap full/object-7"),
        "{}",
        stuck.stdout
    );
}

#[tokio::test]
async fn a_plan_of_a_definition_has_its_instances_and_their_children() {
    let world = World::with("enforce").await;
    let api = world.api();
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": "databases.shop.example.com" },
        "spec": {
            "group": "shop.example.com", "scope": "Namespaced",
            "names": { "plural": "databases", "singular": "database", "kind": "Database", "shortNames": ["db"] },
            "versions": [{ "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": {
                "type": "object", "x-kubernetes-preserve-unknown-fields": true,
            } } }],
        },
    });
    make(api, DEFINITIONS, definition).await;
    until("instances can be made", async || api.text(DATABASES).await.0 == StatusCode::OK).await;
    for number in 0..INSTANCES {
        let (kind, version) = ("Database", "shop.example.com/v1");
        let metadata = json!({ "name": format!("database-{number}") });
        let made = make(api, DATABASES, json!({ "apiVersion": version, "kind": kind, "metadata": metadata })).await;
        let owner = json!({ "apiVersion": version, "kind": kind, "name": made["metadata"]["name"], "uid": made["metadata"]["uid"] });
        let child = config_map(&format!("child-{number}"), Some(&owner), &[]);
        make(api, "/api/v1/namespaces/default/configmaps", child).await;
    }
    until("the graph has seen all of it", async || {
        world.ask(&["tree", "db/database-99", "--no-status", "-o", "name"]).await.stdout.lines().count() == 2
    })
    .await;
    let children = "/api/v1/namespaces/default/configmaps";
    let before: BTreeSet<String> = uids(api, children).await.union(&uids(api, DATABASES).await).cloned().collect();
    let planned = plan(&world, "crd/databases.shop.example.com", 0).await;
    let goes = of(&planned, "EFFECT_DELETE");
    assert_eq!((planned.len(), goes.len()), (2 * INSTANCES + 1, 2 * INSTANCES + 1));
    let path = format!("{DEFINITIONS}/databases.shop.example.com");
    assert_eq!(api.send(Method::DELETE, &path, None).await.status, StatusCode::OK);
    until("children and instances are gone", async || {
        uids(api, children).await.is_disjoint(&goes) && uids(api, DATABASES).await.is_empty()
    })
    .await;
    until("the definition is gone", async || api.text(&path).await.0 == StatusCode::NOT_FOUND).await;
    let expected: BTreeSet<String> = before.difference(&goes).cloned().collect();
    assert_eq!(uids(api, children).await, expected, "and nothing else");
}

#[tokio::test]
async fn a_pause_holds_the_kind_that_is_meant_and_a_plan_says_so() {
    let world = World::with("enforce").await;
    let way = ["--kubeconfig", &world.cluster.kubeconfig];
    define(&world).await;
    let pause = |scope: &'static [&'static str]| [&["pause"], scope, &["--for", "10m", "--reason", "brake"]].concat();
    until("pauses are known", async || world.ask(&pause(&["--kind", "secret"])).await.code == Some(0)).await;
    for (scope, part) in [
        (&["--kind", "podz"][..], "podz"),
        (&["--kind", "cm", "-n", "typo"], "namespace typo"),
        (&["--kind", "nodes", "-n", "default"], "are cluster-scoped"),
    ] {
        let refused = world.ask(&pause(scope)).await;
        assert!(refused.code == Some(1) && refused.stderr.contains(part), "{scope:?}: {}", refused.stderr);
    }
    let pressed = world.ask(&pause(&["--kind", "ConfigMap"])).await;
    assert!(pressed.code == Some(0) && pressed.stdout.contains("configmaps"), "{} {}", pressed.stdout, pressed.stderr);
    let planned = world.ask(&["plan", "delete", "cm/root"]).await;
    assert_eq!(planned.code, Some(3), "{}", planned.stderr);
    let held = planned.stdout.lines().find(|line| line.trim_start().starts_with("held")).unwrap();
    assert!(held.contains("held by pauses/") && held.contains("brake, until "), "{held}");
    assert!(planned.stderr.contains("2 objects are held"), "{}", planned.stderr);
    world.api().delete("root").await;
    until("the deletion is decided and held", async || {
        let why = world.ask(&["why", "cm/first"]).await;
        why.code == Some(2) && why.stdout.contains("would be deleted, but is held")
    })
    .await;
    assert!(world.api().get("first").await.is_some() && world.api().get("leaf").await.is_some());
    let decided = world.ask(&["decisions", "--kind", "cm"]).await;
    assert!(decided.stdout.contains("ConfigMap default/first"), "{} {}", decided.stdout, decided.stderr);
    let unknown = world.run(&way, &["decisions", "--kind", "podz"]).await;
    assert!(unknown.code == Some(1), "{}", unknown.stderr);
}

/// Installs the definitions of guards.
pub(crate) async fn define(world: &World) {
    let definitions = std::process::Command::new(env!("CARGO_BIN_EXE_ownergraph")).arg("crds").output().unwrap();
    let documents: Vec<Value> = serde_yaml_documents(&String::from_utf8(definitions.stdout).unwrap());
    for document in documents {
        make(world.api(), DEFINITIONS, document).await;
    }
}

/// The documents of a YAML file.
fn serde_yaml_documents(text: &str) -> Vec<Value> {
    let documents = text
        .split("\n---")
        .filter(|document| document.lines().any(|line| !line.trim().is_empty() && !line.starts_with('#')));
    documents.map(|document| serde_saphyr::from_str(document).unwrap()).collect()
}
