use super::*;

#[tokio::test(start_paused = true)]
async fn a_watch_list_ends_its_beginning() {
    let http = Http::new();
    http.config_map("a").await;
    let path = format!(
        "{CONFIG_MAPS}?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    );
    let mut watch = http.watch(&path).await;
    assert_eq!(watch.brief().await, "ADDED a");
    let end = watch.next().await.unwrap();
    assert_eq!((&end["type"], &end["object"]["kind"]), (&json!("BOOKMARK"), &json!("PartialObjectMetadata")));
    assert_eq!(end["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
    let position = http.server.with_model(|model| model.revision().to_string());
    assert_eq!(end["object"]["metadata"]["resourceVersion"], position.as_str());
    http.config_map("b").await;
    assert_eq!(watch.brief().await, "ADDED b");
    http.patch(&format!("{CONFIG_MAPS}/b"), "merge-patch", json!({ "data": { "a": "b" } })).await;
    http.delete(&format!("{CONFIG_MAPS}/a"), json!({})).await;
    assert_eq!(watch.brief().await, "MODIFIED b");
    assert_eq!(watch.brief().await, "DELETED a");
    let without_match = http.get(&format!("{CONFIG_MAPS}?watch=1&sendInitialEvents=true")).await;
    assert_eq!(without_match.code, 422);
}

#[tokio::test(start_paused = true)]
async fn bookmarks_come_in_time_and_on_command() {
    let http = Http::new();
    let mut watch = http.watch(&format!("{CONFIG_MAPS}?watch=1&allowWatchBookmarks=true")).await;
    assert!(within(Duration::from_secs(59), watch.next()).await.is_none());
    let bookmark = within(Duration::from_secs(2), watch.next()).await.unwrap().unwrap();
    assert_eq!(bookmark["type"], "BOOKMARK");
    // Writes to other collections move the position.
    http.post("/api/v1/namespaces/default/secrets", json!({ "metadata": { "name": "s" } })).await;
    http.server.send_bookmarks();
    let bookmark = within(Duration::from_secs(1), watch.next()).await.unwrap().unwrap();
    let position = http.server.with_model(|model| model.revision().to_string());
    assert_eq!(bookmark["object"]["metadata"]["resourceVersion"], position.as_str());
    http.server.set_bookmark_interval(Duration::from_secs(1));
    assert!(within(Duration::from_secs(2), watch.next()).await.is_some());
    let mut without = http.watch(&format!("{CONFIG_MAPS}?watch=1")).await;
    assert!(within(Duration::from_secs(90), without.next()).await.is_none());
}

#[tokio::test(start_paused = true)]
async fn watches_resume_until_history_is_gone() {
    let http = Http::new();
    let version = http.config_map("a").await["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    http.config_map("b").await;
    let path = format!("{CONFIG_MAPS}?watch=1&resourceVersion={version}");
    assert_eq!(http.watch(&path).await.brief().await, "ADDED b");
    http.server.compact();
    let mut late = http.watch(&path).await;
    let error = late.next().await.unwrap();
    assert_eq!((&error["type"], &error["object"]["code"]), (&json!("ERROR"), &json!(410)));
    assert!(late.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn watches_end() {
    let http = Http::new();
    let mut short = http.watch(&format!("{CONFIG_MAPS}?watch=1&timeoutSeconds=5")).await;
    assert!(within(Duration::from_secs(4), short.next()).await.is_none());
    assert!(within(Duration::from_secs(2), short.next()).await.unwrap().is_none());
    let mut cut = http.watch(&format!("{CONFIG_MAPS}?watch=1")).await;
    http.server.disconnect_watches();
    assert!(cut.next().await.is_none());
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let definition = json!({
        "metadata": { "name": "widgets.example.com" },
        "spec": {
            "group": "example.com", "scope": "Cluster", "names": { "plural": "widgets", "kind": "Widget" },
            "versions": [{ "name": "v1", "served": true, "storage": true }],
        },
    });
    http.post(definitions, definition).await;
    let mut served = http.watch("/apis/example.com/v1/widgets?watch=1").await;
    http.post(
        "/apis/example.com/v1/widgets",
        json!({ "apiVersion": "example.com/v1", "kind": "Widget", "metadata": { "name": "w" } }),
    )
    .await;
    assert_eq!(served.brief().await, "ADDED w");
    http.delete(&format!("{definitions}/widgets.example.com"), json!({})).await;
    // The real server, too, may end the watch before it sends the last deletion.
    while served.next().await.is_some() {}
    assert_eq!(http.get("/apis/example.com/v1/widgets").await.text, "404 page not found\n");
}

#[tokio::test(start_paused = true)]
async fn a_selecting_watch_sees_objects_come_and_go() {
    let http = Http::new();
    http.config_map("a").await;
    http.config_map("b").await;
    let mut watch = http.watch(&format!("{CONFIG_MAPS}?watch=1&labelSelector=on")).await;
    let mut elsewhere = http.watch("/api/v1/namespaces/kube-system/configmaps?watch=1").await;
    let path = format!("{CONFIG_MAPS}/a");
    http.patch(&path, "merge-patch", json!({ "metadata": { "labels": { "on": "1" } } })).await;
    http.patch(&path, "merge-patch", json!({ "data": { "k": "v" } })).await;
    http.patch(&path, "merge-patch", json!({ "metadata": { "labels": null } })).await;
    http.delete(&path, json!({})).await;
    for expected in ["ADDED a", "MODIFIED a", "DELETED a"] {
        assert_eq!(watch.brief().await, expected);
    }
    assert!(within(Duration::from_secs(1), watch.next()).await.is_none());
    assert!(within(Duration::from_secs(1), elsewhere.next()).await.is_none());
}

#[tokio::test]
async fn a_server_on_a_socket_stops_when_told() {
    let server = Server::new(1);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("kubeconfig");
    crate::write_kubeconfig(&path, listener.local_addr().unwrap()).unwrap();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let serving = server.clone();
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(async move { serving.serve(listener, async { drop(stopped.await) }).await });
    let config = kube::config::Kubeconfig::read_from(&path).unwrap();
    let config = kube::Config::from_custom_kubeconfig(config, &kube::config::KubeConfigOptions::default()).await;
    let client = kube::Client::try_from(config.unwrap()).unwrap();
    let api: kube::Api<k8s_openapi::api::core::v1::Namespace> = kube::Api::all(client);
    assert_eq!(api.list(&kube::api::ListParams::default()).await.unwrap().items.len(), 4);
    let mut watch = Box::pin(api.watch(&kube::api::WatchParams::default(), "0").await.unwrap());
    assert!(watch.next().await.is_some());
    stop.send(()).unwrap();
    while watch.next().await.is_some() {}
    drop(watch);
    assert!(tasks.join_next().await.unwrap().unwrap().is_ok());
}
