use super::*;
use crate::model::Holder;

#[tokio::test(start_paused = true)]
async fn the_kinds_of_404_are_told_apart() {
    let http = Http::new();
    let object = http.get(&format!("{CONFIG_MAPS}/a")).await;
    assert_eq!(object.json()["details"], json!({ "name": "a", "kind": "configmaps" }));
    let object = http.get("/apis/apps/v1/namespaces/nowhere/deployments/a").await;
    assert_eq!(object.json()["details"], json!({ "name": "a", "group": "apps", "kind": "deployments" }));
    for path in
        ["/apis/apps/v1/nothing", "/apis/apps/v9/deployments", "/api/v1/nothing/a", "/apis/apps/v1/deployments/a"]
    {
        let resource = http.get(path).await;
        assert_eq!((resource.code, &resource.json()["details"]), (404, &json!({})), "{path}");
        assert_eq!(resource.json()["reason"], "NotFound");
    }
    for path in ["/apis/nowhere.io/v1/things", "/apis/nowhere.io", "/apis/nowhere.io/v1", "/nothing"] {
        let group = http.get(path).await;
        assert_eq!((group.code, group.text.as_str()), (404, "404 page not found\n"), "{path}");
        assert!(group.content_type().starts_with("text/plain"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_backend_that_is_down_is_unavailable() {
    let http = Http::new();
    let service = json!({
        "metadata": { "name": "v1.agg.io" },
        "spec": { "group": "agg.io", "version": "v1", "service": { "namespace": "default", "name": "none" } },
    });
    let made = http.post("/apis/apiregistration.k8s.io/v1/apiservices", service).await;
    assert_eq!(made.json()["status"]["conditions"][0]["reason"], "ServiceNotFound");
    for path in ["/apis/agg.io/v1", "/apis/agg.io/v1/things", "/apis/agg.io/v1/namespaces/a/things/b"] {
        let answer = http.get(path).await;
        assert_eq!((answer.code, answer.text.as_str()), (503, "service unavailable\n"), "{path}");
    }
    let aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let discovery = http.accept("/apis", aggregated).await;
    assert_eq!(discovery.content_type(), aggregated);
    let groups = discovery.json()["items"].as_array().unwrap().clone();
    let group =
        |name: &str| groups.iter().find(|group| group["metadata"]["name"] == name).unwrap()["versions"][0].clone();
    assert_eq!(group("agg.io"), json!({ "version": "v1", "freshness": "Stale" }));
    assert_eq!(group("apps")["freshness"], "Current");
    http.delete("/apis/apiregistration.k8s.io/v1/apiservices/v1.agg.io", json!({})).await;
    assert_eq!(http.get("/apis/agg.io/v1/things").await.code, 404);
}

#[tokio::test(start_paused = true)]
async fn forms_follow_the_accept_header() {
    let http = Http::new();
    http.config_map("a").await;
    let path = format!("{CONFIG_MAPS}/a");
    let rows = [
        ("", "ConfigMap"),
        ("*/*", "ConfigMap"),
        ("application/vnd.kubernetes.protobuf,application/json", "ConfigMap"),
        (METADATA, "PartialObjectMetadata"),
        ("application/json;as=Table;v=v1;g=meta.k8s.io,application/json", "Table"),
        ("application/json;as=Table;v=v9;g=meta.k8s.io,application/json", "ConfigMap"),
    ];
    for (accept, kind) in rows {
        let answer = if accept.is_empty() { http.get(&path).await } else { http.accept(&path, accept).await };
        assert_eq!(answer.json()["kind"], kind, "{accept}");
    }
    let only_protobuf = http.accept(&path, "application/vnd.kubernetes.protobuf").await;
    assert_eq!((only_protobuf.code, &only_protobuf.json()["reason"]), (406, &json!("NotAcceptable")));
    let lists = METADATA.replace("Metadata;", "MetadataList;");
    assert_eq!(http.accept(CONFIG_MAPS, METADATA).await.code, 406, "a list is no object");
    assert_eq!(http.accept(&path, &lists).await.code, 406, "nor the other way round");
    let list = http.accept(CONFIG_MAPS, &lists).await.json();
    assert_eq!(list["kind"], "PartialObjectMetadataList");
    assert_eq!(list["items"][0]["kind"], "PartialObjectMetadata");
    assert_eq!(http.get(CONFIG_MAPS).await.json()["items"][0].get("kind"), None, "as the real server");
    assert_eq!(http.accept("/api/v1/secrets", &lists).await.json()["items"], Value::Null);
    assert_eq!(http.get("/api/v1/secrets").await.json()["items"], json!([]));
    let table = http.accept("/api/v1/namespaces", "application/json;as=Table;v=v1;g=meta.k8s.io").await.json();
    assert_eq!(table["rows"][0]["cells"], json!(["default", "Active", "0s"]));
    assert_eq!(table["rows"][0]["object"]["kind"], "PartialObjectMetadata");
}

#[tokio::test(start_paused = true)]
async fn deletions_answer_as_the_real_server() {
    let http = Http::new();
    let made = http.config_map("a").await;
    let path = format!("{CONFIG_MAPS}/a");
    let preconditions = json!({ "preconditions": { "resourceVersion": "1" } });
    let stale = http.delete(&path, preconditions).await;
    assert_eq!((stale.code, &stale.json()["details"]["name"]), (409, &json!("a")));
    let gone = http.send("DELETE", &path, &[("accept", METADATA)], Body::empty()).await.json();
    assert_eq!((&gone["kind"], &gone["status"]), (&json!("Status"), &json!("Success")));
    assert_eq!(gone["details"], json!({ "name": "a", "kind": "configmaps", "uid": made["metadata"]["uid"] }));
    http.config_map("b").await;
    let path = format!("{CONFIG_MAPS}/b");
    let headers = [("accept", METADATA), ("content-type", "application/json")];
    let body = json!({ "kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Foreground" });
    let kept = http.send("DELETE", &path, &headers, body.to_string()).await;
    assert_eq!((kept.code, &kept.json()["kind"]), (200, &json!("PartialObjectMetadata")));
    assert_eq!(kept.json()["metadata"]["finalizers"], json!(["foregroundDeletion"]));
    let query = format!("{path}?propagationPolicy=Orphan");
    let kept = http.send("DELETE", &query, &[], Body::empty()).await;
    assert_eq!(kept.json()["metadata"]["finalizers"], json!(["orphan"]));
    http.patch(&path, "merge-patch", json!({ "metadata": { "finalizers": ["orphan"] } })).await;
    let both = http.delete(&path, json!({ "propagationPolicy": "Orphan", "orphanDependents": true })).await;
    assert_eq!(both.code, 422);
    assert_eq!(http.delete(&path, json!({ "propagationPolicy": 5 })).await.code, 400);
    assert_eq!(http.delete(&path, json!([1])).await.code, 400);
    let held = json!({ "metadata": { "name": "c", "finalizers": ["x.io/hold"] } });
    http.post(CONFIG_MAPS, held).await;
    let accepted = http.delete(&format!("{CONFIG_MAPS}/c"), json!({ "orphanDependents": false })).await;
    assert_eq!(accepted.code, 202);
    let all = http.send("DELETE", CONFIG_MAPS, &[], Body::empty()).await.json();
    assert_eq!((&all["kind"], all["items"].as_array().unwrap().len()), (&json!("ConfigMapList"), 2));
}

#[tokio::test(start_paused = true)]
async fn bodies_and_patches_have_types() {
    let http = Http::new();
    let yaml = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata: {k: v}\n";
    let made = http.send("POST", CONFIG_MAPS, &[("content-type", "application/yaml")], yaml).await;
    assert_eq!((made.code, &made.json()["data"]), (201, &json!({ "k": "v" })));
    for (content_type, body, code) in [
        ("application/vnd.kubernetes.protobuf", "k8s\0", 415),
        ("application/vnd.kubernetes.protobuf", "{}", 400),
        ("text/plain", "x", 415),
        ("application/json", "{", 400),
        ("application/json", "[]", 400),
        ("application/yaml", "a: [", 400),
    ] {
        let answer = http.send("POST", CONFIG_MAPS, &[("content-type", content_type)], body).await;
        assert_eq!(answer.code, code, "{content_type} {body}: {}", answer.text);
    }
    let large = vec![b' '; 3 * 1024 * 1024 + 1];
    let answer = http.send("POST", CONFIG_MAPS, &[("content-type", "application/json")], large).await;
    assert_eq!(answer.code, 413);
    let missing = format!("{CONFIG_MAPS}/missing");
    let apply = http.send("PATCH", &missing, &[("content-type", "application/apply-patch+yaml")], "a: b").await;
    assert_eq!(apply.code, 415);
    assert!(apply.text.contains("no server-side apply"));
    assert_eq!(http.patch(&missing, "merge-patch", json!({})).await.code, 404);
    assert_eq!(http.send("PATCH", &missing, &[], "{}").await.code, 415);
    let path = format!("{CONFIG_MAPS}/a");
    let dry = http.patch(&format!("{path}?dryRun=All"), "merge-patch", json!({ "data": null })).await;
    assert_eq!((dry.code, dry.json().get("data")), (200, None));
    assert_eq!(http.get(&path).await.json()["data"], json!({ "k": "v" }));
    let reference = json!({ "apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "1" });
    let body = json!({ "metadata": { "ownerReferences": [reference, reference] } });
    let warned = http.patch(&path, "strategic-merge-patch", json!({})).await;
    assert_eq!(warned.headers.get("warning"), None);
    let warned = http.patch(&path, "merge-patch", body).await;
    assert!(warned.headers["warning"].to_str().unwrap().starts_with("299 - \".metadata.ownerReferences contains"));
    assert_eq!(http.send("POST", &path, &[], "{}").await.code, 405);
    assert_eq!(http.send("DELETE", "/api/v1/namespaces", &[], Body::empty()).await.code, 405);
}

#[tokio::test(start_paused = true)]
async fn lists_are_paged_and_pinned() {
    let http = Http::new();
    for name in ["a", "b", "c"] {
        http.config_map(name).await;
    }
    let first = http.get(&format!("{CONFIG_MAPS}?limit=2")).await.json();
    assert_eq!((first["items"].as_array().unwrap().len(), &first["metadata"]["remainingItemCount"]), (2, &json!(1)));
    let token = first["metadata"]["continue"].as_str().unwrap().replace('/', "%2F");
    http.delete(&format!("{CONFIG_MAPS}/c"), json!({})).await;
    let next = format!("{CONFIG_MAPS}?limit=2&continue={token}");
    let second = http.get(&next).await.json();
    assert_eq!(second["items"][0]["metadata"]["name"], "c");
    assert_eq!(second["metadata"]["resourceVersion"], first["metadata"]["resourceVersion"]);
    http.server.compact();
    let expired = http.get(&next).await.json();
    assert_eq!((&expired["code"], &expired["reason"]), (&json!(410), &json!("Expired")));
    let one = http.get(&format!("{CONFIG_MAPS}?fieldSelector=metadata.name%3Da")).await.json();
    assert_eq!(one["items"].as_array().unwrap().len(), 1);
    let future = http.get(&format!("{CONFIG_MAPS}?resourceVersion=9999")).await;
    assert_eq!((future.code, &future.headers["retry-after"]), (504, &"1".parse().unwrap()));
    assert_eq!(http.get(&format!("{CONFIG_MAPS}?limit=x")).await.code, 400);
    assert_eq!(http.get(&format!("{CONFIG_MAPS}?labelSelector=%21%21")).await.code, 400);
}

#[tokio::test(start_paused = true)]
async fn faults_answer_instead() {
    let http = Http::new();
    http.config_map("a").await;
    let lists = |attempt: &Attempt<'_>| attempt.resource == "configmaps" && attempt.verb == "LIST";
    let rows = [
        (FaultAnswer::forbidden(), 403),
        (FaultAnswer::internal_error(), 500),
        (FaultAnswer::unavailable(), 503),
        (FaultAnswer::page_not_found(), 404),
        (FaultAnswer::resource_not_served(), 404),
        (FaultAnswer::html_not_found(), 404),
    ];
    for (fault, code) in rows {
        let id = http.server.inject(Fault::new(lists, fault));
        assert_eq!(http.get(CONFIG_MAPS).await.code, code);
        assert_eq!(http.get(&format!("{CONFIG_MAPS}/a")).await.code, 200);
        http.server.lift(id);
        assert_eq!(http.get(CONFIG_MAPS).await.code, 200);
    }
    http.server.inject(Fault::new(lists, FaultAnswer::forbidden()).times(1));
    assert_eq!((http.get(CONFIG_MAPS).await.code, http.get(CONFIG_MAPS).await.code), (403, 200));
    let deletes = |attempt: &Attempt<'_>| attempt.verb == "DELETE";
    http.server.inject(Fault::new(deletes, FaultAnswer::Lose));
    let path = format!("{CONFIG_MAPS}/a");
    assert!(within(Duration::from_secs(9), http.delete(&path, json!({}))).await.is_none());
    assert_eq!(http.get(&path).await.code, 404, "carried out all the same");
    let slow = Fault::new(lists, FaultAnswer::Delay(Duration::from_secs(5)));
    http.server.inject(slow);
    assert!(within(Duration::from_secs(4), http.get(CONFIG_MAPS)).await.is_none());
    let count = RequestCount { verb: "LIST", group: String::new(), resource: "configmaps".to_owned(), code: 403 };
    assert_eq!(http.server.requests()[&count], 2);
    assert!(http.get("/metrics").await.text.contains("apiserver_request_total{code=\"403\""));
}

#[tokio::test(start_paused = true)]
async fn discovery_and_its_neighbours() {
    let http = Http::new();
    assert_eq!(http.get("/readyz").await.text, "ok");
    assert_eq!(http.get("/version").await.json()["minor"], "36");
    assert_eq!(http.get("/api").await.json()["versions"], json!(["v1"]));
    let groups = http.get("/apis").await.json();
    assert_eq!(groups["kind"], "APIGroupList");
    let autoscaling = http.get("/apis/autoscaling").await.json();
    assert_eq!(autoscaling["preferredVersion"]["version"], "v2");
    let core = http.get("/api/v1").await.json();
    let pods = core["resources"].as_array().unwrap().iter().find(|resource| resource["name"] == "pods").unwrap();
    assert_eq!((&pods["shortNames"], &pods["categories"]), (&json!(["po"]), &json!(["all"])));
    let index = http.get("/openapi/v3").await.json();
    let path = index["paths"]["apis/apps/v1"]["serverRelativeURL"].as_str().unwrap().to_owned();
    let document = http.get(&path).await.json();
    let patch = &document["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"]["patch"];
    assert_eq!(patch["parameters"][0]["name"], "fieldValidation");
    let deployments = GroupResource::new("apps", "deployments");
    http.server.with_model(|model| model.set_served(&deployments, false));
    let apps = http.get("/apis/apps/v1").await.json();
    assert!(apps["resources"].as_array().unwrap().iter().all(|resource| resource["name"] != "deployments"));
    assert_eq!(http.get("/apis/apps/v1/deployments").await.json()["details"], json!({}));
}

#[tokio::test(start_paused = true)]
async fn reviews_are_answered_as_objects_that_are_not_stored() {
    let http = Http::new();
    let holder = Holder { user: "eve".to_owned(), audiences: vec!["here".to_owned()], ..Holder::default() };
    http.server.with_model(|model| model.callers_mut().tokens.insert("secret".to_owned(), holder));
    let review = json!({ "kind": "TokenReview", "spec": { "token": "secret", "audiences": ["here"] } });
    let answer = http.post("/apis/authentication.k8s.io/v1/tokenreviews", review).await;
    assert_eq!((answer.code, &answer.json()["status"]["user"]["username"]), (201, &json!("eve")));
    let review = json!({ "spec": { "user": "eve", "nonResourceAttributes": { "path": "/metrics", "verb": "get" } } });
    let answer = http.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", review).await;
    assert_eq!((answer.code, &answer.json()["status"]["allowed"]), (201, &json!(false)));
    assert_eq!(http.get("/apis/authentication.k8s.io/v1/tokenreviews").await.code, 404);
}
