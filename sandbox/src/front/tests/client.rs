//! A real client without a socket.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, PropagationPolicy, WatchEvent, WatchParams};
use kube::core::PartialObjectMeta;
use kube::{Api, Client, discovery};

use super::*;

#[tokio::test(start_paused = true)]
async fn a_typed_client_works() {
    let server = Server::new(7);
    let client = Client::new(server.router(), "default");
    let api: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let object: ConfigMap = serde_json::from_value(json!({ "metadata": { "name": "a" } })).unwrap();
    let made = api.create(&PostParams::default(), &object).await.unwrap();
    let patch = json!({ "metadata": { "labels": { "k": "v" } } });
    let patched = api.patch("a", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    assert_eq!(patched.metadata.uid, made.metadata.uid);
    let listed = api.list_metadata(&ListParams::default().labels("k=v")).await.unwrap();
    assert_eq!(listed.items.len(), 1);
    let mut stale = made.clone();
    stale.data = Some([("k".to_owned(), "v".to_owned())].into());
    let error = api.replace("a", &PostParams::default(), &stale).await.unwrap_err();
    assert!(matches!(error, kube::Error::Api(status) if status.code == 409));
    let foreground =
        DeleteParams { propagation_policy: Some(PropagationPolicy::Foreground), ..DeleteParams::default() };
    let kept = api.delete("a", &foreground).await.unwrap().left().expect("it waits for its dependents");
    assert_eq!(kept.metadata.finalizers, Some(vec!["foregroundDeletion".to_owned()]));
    let background =
        DeleteParams { propagation_policy: Some(PropagationPolicy::Background), ..DeleteParams::default() };
    assert!(api.delete("a", &background).await.unwrap().is_right());
    let pods: Api<Pod> = Api::default_namespaced(client);
    let error = pods.get("a").await.unwrap_err();
    assert!(matches!(error, kube::Error::Api(status) if status.code == 404));
}

#[tokio::test(start_paused = true)]
async fn a_client_watches_metadata() {
    let server = Server::new(7);
    let client = Client::new(server.router(), "default");
    let api: Api<Deployment> = Api::default_namespaced(client);
    let parameters = WatchParams::default().initial_events();
    let mut events = Box::pin(api.watch_metadata(&parameters, "").await.unwrap());
    let first = events.next().await.unwrap().unwrap();
    assert!(matches!(first, WatchEvent::Bookmark(bookmark) if !bookmark.metadata.annotations.is_empty()));
    let object: Deployment = serde_json::from_value(json!({ "metadata": { "name": "a" } })).unwrap();
    api.create(&PostParams::default(), &object).await.unwrap();
    tokio::time::sleep(Duration::from_secs(240)).await;
    api.delete("a", &DeleteParams::default()).await.unwrap();
    let mut seen = Vec::new();
    while seen.len() < 2 {
        let event: WatchEvent<PartialObjectMeta<Deployment>> = events.next().await.unwrap().unwrap();
        match event {
            WatchEvent::Added(object) => seen.push(format!("added {}", object.metadata.name.unwrap())),
            WatchEvent::Deleted(object) => seen.push(format!("deleted {}", object.metadata.name.unwrap())),
            WatchEvent::Modified(_) | WatchEvent::Error(_) => panic!("nothing else happened"),
            WatchEvent::Bookmark(_) => {}
        }
    }
    assert_eq!(seen, ["added a", "deleted a"]);
}

#[tokio::test(start_paused = true)]
async fn a_client_discovers_both_ways() {
    let server = Server::new(7);
    let client = Client::new(server.router(), "default");
    let older = discovery::Discovery::new(client.clone()).run().await.unwrap();
    let aggregated = discovery::Discovery::new(client).run_aggregated().await.unwrap();
    for found in [older, aggregated] {
        let apps = found.get("apps").unwrap();
        let (resource, capabilities) = apps.recommended_kind("Deployment").unwrap();
        assert_eq!((resource.plural.as_str(), resource.api_version.as_str()), ("deployments", "apps/v1"));
        assert!(capabilities.supports_operation(discovery::verbs::WATCH));
    }
}
