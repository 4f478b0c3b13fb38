//! Reads the API server's JSON and protobuf with the collector's own readers. Both encodings give the same objects and
//! the same events, on the sandbox and on a real API server.

use anyhow::{Context as _, ensure};
use engine::object::Object;
use http::Request;
use kube::Client;
use kube_api::metadata::{Decoder, Encoding, Event, event, page};
use kube_api::{Answer, Frames, Lines, Opened, call, open_stream};
use serde_json::{Value, json};
use std::time::Duration;
use tests::controlplane::{ControlPlane, require};
use tests::embedded::Api;
use tests::load::{configmap, create, delete, namespace, reference_to, until};
use tests::process::Directory;

const LIMIT: usize = 16 * 1024 * 1024;
const WITHIN: Duration = Duration::from_secs(30);
const COLLECTIONS: [&str; 5] = [
    "/api/v1/namespaces",
    "/api/v1/configmaps",
    "/api/v1/secrets",
    "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "/apis/example.com/v1/things",
];

fn accept(encoding: Encoding, kind: &str) -> String {
    let media_type = match encoding {
        Encoding::Json => "application/json",
        Encoding::Protobuf => "application/vnd.kubernetes.protobuf",
    };
    format!("{media_type};as={kind};g=meta.k8s.io;v=v1,application/json")
}

fn request(uri: &str, encoding: Encoding, kind: &str) -> anyhow::Result<Request<Vec<u8>>> {
    Ok(Request::get(uri).header("accept", accept(encoding, kind)).body(Vec::new())?)
}

async fn get(client: &Client, uri: &str, encoding: Encoding, kind: &str) -> anyhow::Result<Answer> {
    Ok(call(client, request(uri, encoding, kind)?, LIMIT, WITHIN).await?)
}

/// Returns all objects, in pages of two.
async fn listed(client: &Client, path: &str, encoding: Encoding) -> anyhow::Result<Vec<Object>> {
    let (mut objects, mut decoder) = (Vec::new(), Decoder::new(None));
    let mut token = String::new();
    loop {
        let uri = format!("{path}?limit=2&continue={token}");
        let answer = get(client, &uri, encoding, "PartialObjectMetadataList").await?;
        ensure!(Encoding::of(&answer.content_type) == Some(encoding), "{uri}: {}", answer.content_type);
        let page = page(encoding, &answer.body).map_err(|why| anyhow::anyhow!("{uri}: the answer {why}"))?;
        ensure!(!page.resource_version.is_empty(), "{uri}: no resourceVersion");
        ensure!(page.continues.is_none() || page.remaining.is_some_and(|more| more > 0), "{uri}: {:?}", page.remaining);
        for item in page.items {
            objects.push(decoder.object(&item).map_err(anyhow::Error::msg)?);
        }
        match page.continues {
            Some(next) => token = next,
            None => return Ok(objects),
        }
    }
}

/// Returns every event of a short watch-list as text.
async fn watched(client: &Client, path: &str, encoding: Encoding) -> anyhow::Result<Vec<String>> {
    let query =
        "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=1";
    watch(client, &format!("{path}?{query}"), encoding).await
}

async fn watch(client: &Client, uri: &str, encoding: Encoding) -> anyhow::Result<Vec<String>> {
    let request = request(uri, encoding, "PartialObjectMetadata")?;
    let Opened::Streaming { content_type, body } = open_stream(client, request, WITHIN).await? else {
        anyhow::bail!("{uri} is refused");
    };
    ensure!(Encoding::of(&content_type) == Some(encoding), "{uri}: {content_type}");
    let (mut words, mut decoder) = (Vec::new(), Decoder::new(None));
    let mut take = |piece: &[u8]| -> anyhow::Result<()> {
        words.push(match event(encoding, piece).map_err(|why| anyhow::anyhow!("{uri}: an event {why}"))? {
            Event::Added(item) => format!("added {:?}", decoder.object(&item)),
            Event::Modified(item) => format!("modified {:?}", decoder.object(&item)),
            Event::Deleted(item) => format!("deleted {:?}", decoder.object(&item)),
            // The position of the store differs in each run.
            Event::Bookmark { ends_list, .. } => format!("bookmark {ends_list}"),
            Event::Error(status) => format!("error {} {}", status.code, status.reason),
        });
        Ok(())
    };
    match encoding {
        Encoding::Json => {
            let mut lines = Lines::new(body, LIMIT);
            while let Some(line) = lines.next().await? {
                take(&line)?;
            }
        }
        Encoding::Protobuf => {
            let mut frames = Frames::new(body, LIMIT);
            while let Some(frame) = frames.next().await? {
                take(&frame)?;
            }
        }
    }
    Ok(words)
}

/// Creates objects with every field that the collector reads, of a built-in and of a custom kind.
async fn fill(client: &Client) -> anyhow::Result<()> {
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": { "name": "things.example.com" },
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": { "plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList" },
            "versions": [{ "name": "v1", "served": true, "storage": true,
                "schema": { "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } } }],
        },
    });
    create(client, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition).await?;
    namespace(client, "encodings").await?;
    let things = "/apis/example.com/v1/namespaces/encodings/things";
    let served = || async { Ok(tests::load::get(client, things).await.ok().flatten()) };
    until("the kind is served", WITHIN, served, Option::is_some).await?;
    let configmaps = tests::load::configmaps("encodings");
    let owner = create(client, &configmaps, &configmap("owner", &[])).await?;
    let mut reference = reference_to(&owner);
    for (name, block) in [("a", Value::Null), ("b", json!(true)), ("c", json!(false))] {
        reference["blockOwnerDeletion"] = block;
        let metadata = json!({
            "name": name, "annotations": { "ownergraph.dev/hold": "", "text": "ü \"quoted\"" },
            "finalizers": ["example.com/f", "foregroundDeletion"], "ownerReferences": [reference],
        });
        create(client, &configmaps, &json!({ "metadata": metadata })).await?;
        let thing = json!({ "apiVersion": "example.com/v1", "kind": "Thing", "metadata": metadata });
        create(client, things, &thing).await?;
    }
    for path in [format!("{configmaps}/a"), format!("{things}/b")] {
        delete(client, &path, "Background").await?;
    }
    Ok(())
}

/// Checks that a watch of ConfigMaps brings this one event, in both encodings.
async fn ends_with_error(client: &Client, query: &str, expected: &str) -> anyhow::Result<()> {
    for encoding in [Encoding::Json, Encoding::Protobuf] {
        let words = watch(client, &format!("/api/v1/configmaps?{query}"), encoding).await?;
        ensure!(words == [expected], "{encoding:?}: {words:?}");
    }
    Ok(())
}

async fn compare(client: &Client) -> anyhow::Result<()> {
    fill(client).await?;
    for path in COLLECTIONS {
        // A control plane that has just started may still write.
        let lists = || async {
            Ok((listed(client, path, Encoding::Json).await?, listed(client, path, Encoding::Protobuf).await?))
        };
        until(&format!("both lists of {path} are the same"), WITHIN, lists, |(json, protobuf)| json == protobuf)
            .await?;
        let watches = || async {
            Ok((watched(client, path, Encoding::Json).await?, watched(client, path, Encoding::Protobuf).await?))
        };
        // A watch of a busy API server may end before its first bookmark.
        let same = |(json, protobuf): &(Vec<String>, Vec<String>)| {
            json == protobuf && json.iter().any(|word| word == "bookmark true")
        };
        until(&format!("both watches of {path} are the same"), WITHIN, watches, same).await?;
    }
    let things = listed(client, "/apis/example.com/v1/things", Encoding::Protobuf).await?;
    ensure!(
        things.len() == 3 && things.iter().all(|thing| thing.facts.hold && thing.facts.owners.len() == 1),
        "{things:#?}"
    );
    ensure!(things.iter().filter(|thing| thing.facts.terminating).count() == 1, "{things:#?}");
    // The API server sends an error inside a watch, and an error as an answer.
    let beyond = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true\
                  &resourceVersion=999999999&timeoutSeconds=20";
    ends_with_error(client, beyond, "error 504 Timeout").await?;
    for encoding in [Encoding::Json, Encoding::Protobuf] {
        let absent =
            get(client, "/api/v1/namespaces/encodings/configmaps/none", encoding, "PartialObjectMetadata").await?;
        let status = kube_api::parse_status(&absent).context("a Status in JSON")?;
        ensure!(absent.status == 404 && status.reason == "NotFound", "{status:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sandbox_says_the_same_in_both() -> anyhow::Result<()> {
    let directory = Directory::create()?;
    let api = Api::start(directory.path()).await?;
    compare(&api.client).await?;
    api.server.compact();
    ends_with_error(&api.client, "watch=true&resourceVersion=1&timeoutSeconds=1", "error 410 Expired").await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_real_api_server_says_the_same_in_both() -> anyhow::Result<()> {
    let Some(binaries) = require() else { return Ok(()) };
    let plane = ControlPlane::start(&binaries).await?;
    compare(&plane.client().await?).await
}
