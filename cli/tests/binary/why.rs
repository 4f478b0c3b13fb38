//! The states that an object can be in, as a real collector reports them.

use crate::process::until;
use crate::questions::World;
use http::{Method, StatusCode};
use serde_json::{Value, json};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Creates a ConfigMap with this metadata, and gives a reference to it as an owner.
async fn create(world: &World, name: &str, mut metadata: Value) -> Value {
    metadata["name"] = name.into();
    let body = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata });
    let answer = world.api().send(Method::POST, CONFIG_MAPS, Some(body)).await;
    assert_eq!(answer.status, StatusCode::CREATED, "{answer:?}");
    let created: Value = serde_json::from_slice(&answer.body).unwrap();
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": created["metadata"]["uid"],
        "blockOwnerDeletion": true,
    })
}

async fn delete(world: &World, name: &str, policy: &str) {
    let options = json!({ "kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": policy });
    let answer = world.api().send(Method::DELETE, &format!("{CONFIG_MAPS}/{name}"), Some(options)).await;
    assert!(answer.status.is_success(), "{answer:?}");
}

/// Asks until the answer has all of it, and gives the exit code.
async fn tells(world: &World, name: &str, parts: &[&str]) -> Option<i32> {
    let mut code = None;
    until(&format!("{name}: {parts:?}"), async || {
        let said = world.ask(&["why", "cm", name]).await;
        code = said.code;
        parts.iter().all(|part| said.stdout.contains(part))
    })
    .await;
    code
}

#[tokio::test]
async fn a_real_collector_tells_of_each_state() {
    let world = World::start().await;
    assert_eq!(tells(&world, "leaf", &["stays\n", "ConfigMap default/first owns it"]).await, Some(0));
    assert_eq!(tells(&world, "root", &["stays: it has no owners"]).await, Some(0));
    assert_eq!(tells(&world, "missing", &["was never seen", "check the name"]).await, Some(1));

    let strange = json!({ "apiVersion": "example.com/v1", "kind": "Strange", "name": "x", "uid": "u-1" });
    create(&world, "unresolved", json!({ "ownerReferences": [strange] })).await;
    let parts = ["whether to delete it\n", "does not serve the kind", "install the definition"];
    assert_eq!(tells(&world, "unresolved", &parts).await, Some(2));

    let owner = create(&world, "owner", json!({})).await;
    create(&world, "queued", json!({ "ownerReferences": [owner] })).await;
    let hold = json!({ "ownergraph.dev/hold": "true" });
    create(&world, "annotated", json!({ "ownerReferences": [owner], "annotations": hold })).await;
    delete(&world, "owner", "Background").await;
    let parts =
        ["will be deleted: the decision waits to be granted", "default/owner is gone", "the collector only observes"];
    assert_eq!(tells(&world, "queued", &parts).await, Some(0));
    assert_eq!(tells(&world, "annotated", &["would be deleted, but is held", "ownergraph.dev/hold"]).await, Some(2));
    assert_eq!(tells(&world, "owner", &["was deleted", "not by the collector"]).await, Some(0));

    create(&world, "finalized", json!({ "finalizers": ["example.com/backup"] })).await;
    delete(&world, "finalized", "Background").await;
    let parts = ["is terminating", "finalizer example.com/backup", "skips its cleanup"];
    assert_eq!(tells(&world, "finalized", &parts).await, Some(2));

    delete(&world, "root", "Foreground").await;
    assert_eq!(tells(&world, "leaf", &["ConfigMap default/first owns it"]).await, Some(0));
    assert_eq!(tells(&world, "second", &["ConfigMap default/root waits for its deletion"]).await, Some(0));

    let parent = create(&world, "parent", json!({})).await;
    create(&world, "child", json!({ "ownerReferences": [parent] })).await;
    delete(&world, "parent", "Foreground").await;
    let parts = ["waits until its dependents are deleted", "ConfigMap default/child has to be deleted first"];
    assert_eq!(tells(&world, "parent", &parts).await, Some(2));

    let giver = create(&world, "giver", json!({})).await;
    create(&world, "given", json!({ "ownerReferences": [giver] })).await;
    delete(&world, "giver", "Orphan").await;
    let parts = ["its dependents lose their reference first, and stay", "default/given has yet to lose a reference"];
    assert_eq!(tells(&world, "giver", &parts).await, Some(0));
}

#[tokio::test]
async fn what_the_collector_deleted_is_remembered_with_its_cause() {
    let world = World::with("enforce").await;
    delete(&world, "root", "Background").await;
    let parts = ["ConfigMap default/leaf was deleted", "by the collector", "ConfigMap default/first is gone"];
    assert_eq!(tells(&world, "leaf", &parts).await, Some(0));
}
