//! A proxy between us and the API server gives the wrong answers about owners that broken servers are known to give.

use anyhow::ensure;
use http::request::Parts;
use kube::Client;
use serde_json::{Value, json};
use std::time::Duration;
use tests::lies::Collector;
use tests::load::{configmap, configmaps, count, create, create_all, delete, get, list, reference_to, until};
use tests::process::Directory;
use tests::proxy::{Lie, Proxy};
use tests::service::Service;
use tests::stage::Stage;
use tokio::time::Instant;

const SOON: Duration = Duration::from_secs(60);
/// The duration of the wrong answers.
const LYING: Duration = Duration::from_secs(30);
const OWNERS: usize = 20;
const DEPENDENTS: usize = 100;

fn kind_path(plural: &str) -> String {
    format!("/apis/example.com/v1/namespaces/default/{plural}")
}

async fn define(client: &Client, plural: &str, kind: &str) -> anyhow::Result<()> {
    let object = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("{plural}.example.com") },
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": { "plural": plural, "singular": kind.to_lowercase(), "kind": kind, "listKind": format!("{kind}List") },
            "versions": [{ "name": "v1", "served": true, "storage": true,
                "schema": { "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } } }],
        },
    });
    create(client, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &object).await?;
    let ask = || async { Ok(get(client, kind_path(plural)).await.ok().flatten()) };
    until("the kind is served", SOON, ask, Option::is_some).await?;
    Ok(())
}

/// Creates owners of one kind, each with dependents in a namespace with that name.
async fn family(client: &Client, plural: &str, kind: &str, prefix: &str, owners: usize) -> anyhow::Result<Vec<String>> {
    let names: Vec<String> = (0..owners).map(|number| format!("{prefix}-{number}")).collect();
    let object = |name: &String| json!({ "apiVersion": "example.com/v1", "kind": kind, "metadata": { "name": name } });
    let created = create_all(client, &kind_path(plural), names.iter().map(object).collect()).await?;
    let children = created.iter().flat_map(|owner| {
        let (name, reference) = (owner["metadata"]["name"].as_str().unwrap_or_default(), reference_to(owner));
        (0..DEPENDENTS).map(move |number| configmap(&format!("{name}-{number}"), std::slice::from_ref(&reference)))
    });
    create_all(client, &configmaps("default"), children.collect()).await?;
    Ok(names)
}

/// Every known form of "not found", and every way not to answer.
fn shapes(plural: &str, name: &str) -> Vec<Lie> {
    let answer =
        |status, content_type, retry_after, body: String| Lie::Answer { status, content_type, retry_after, body };
    let status = |reason: &str, code: u16, details: Value| {
        json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": "a lie",
            "reason": reason, "code": code, "details": details })
        .to_string()
    };
    let json = "application/json";
    vec![
        answer(404, "text/plain; charset=utf-8", None, "404 page not found\n".to_owned()),
        answer(404, json, None, status("NotFound", 404, json!({}))),
        answer(
            404,
            json,
            None,
            status("NotFound", 404, json!({ "name": name, "group": "example.com", "kind": plural })),
        ),
        answer(404, "text/html", None, "<html>404</html>".to_owned()),
        answer(404, json, None, String::new()),
        answer(503, json, None, status("ServiceUnavailable", 503, json!({}))),
        answer(429, json, Some(1), status("TooManyRequests", 429, json!({ "retryAfterSeconds": 1 }))),
        Lie::Reset,
    ]
}

/// Returns the name of the owner that a request is about: a read of one object, or a list with one name.
fn owner_asked(parts: &Parts) -> Option<(String, String)> {
    let path = parts.uri.path().strip_prefix("/apis/example.com/v1/namespaces/default/")?;
    let (plural, name) = path.split_once('/').unwrap_or((path, ""));
    let selected = parts.uri.query().unwrap_or_default().split('&').find_map(|part| {
        let value = part.strip_prefix("fieldSelector=")?;
        Some(value.trim_start_matches("metadata.name").trim_start_matches("%3D").trim_start_matches('=').to_owned())
    });
    let name = if name.is_empty() { selected? } else { name.to_owned() };
    (parts.method == http::Method::GET).then(|| (plural.to_owned(), name))
}

#[tokio::test(flavor = "multi_thread")]
async fn no_answer_about_an_owner_but_a_list_without_it_costs_a_life() -> anyhow::Result<()> {
    let _turn = crate::turn().await?;
    let Some(Stage { programs, plane, client, .. }) = Stage::start().await? else { return Ok(()) };
    for (plural, kind) in [("things", "Thing"), ("others", "Other")] {
        define(&client, plural, kind).await?;
    }
    // One owner is deleted before the first read, one during the reads, and one lives. Their collection cannot be
    // listed, so each is read singly.
    let vanished = family(&client, "things", "Thing", "vanished", OWNERS / 4).await?;
    let going = family(&client, "things", "Thing", "going", OWNERS - OWNERS / 4).await?;
    family(&client, "others", "Other", "living", 3).await?;
    for owner in &vanished {
        delete(&client, &format!("{}/{owner}", kind_path("things")), "Background").await?;
    }

    let directory = Directory::create()?;
    let proxy = Proxy::start(plane.client().await?, directory.path()).await?;
    let mut told = 0_usize;
    proxy.lie(move |parts| {
        told += 1;
        if let Some((plural, name)) = owner_asked(parts) {
            let shapes = shapes(&plural, &name);
            return Some(shapes[told % shapes.len()].clone());
        }
        let whole_collection = parts.uri.path().ends_with("/others");
        whole_collection.then(|| shapes("others", "x")[5].clone())
    });
    let kubeconfig = proxy.kubeconfig().display().to_string();
    let flags = ["collect", "--kubeconfig", &kubeconfig];
    let mut collector = Service::start(&programs, "ownergraph", "collect", directory.path(), &flags)?;
    collector.ready().await?;
    let lying = Instant::now();
    for (owner, policy) in going.iter().zip(["Background", "Foreground", "Orphan"].into_iter().cycle()) {
        delete(&client, &format!("{}/{owner}", kind_path("things")), policy).await?;
    }
    // While the answers are wrong, only objects go whose owners the watch showed as deleted.
    let maps = configmaps("default");
    let mut looks = tokio::time::interval(Duration::from_secs(1));
    while lying.elapsed() < LYING {
        looks.tick().await;
        let names: Vec<String> = names(&list(&client, maps.as_str()).await?);
        for prefix in ["living", "vanished"] {
            let expected = if prefix == "living" { 3 } else { vanished.len() } * DEPENDENTS;
            let there = names.iter().filter(|name| name.starts_with(prefix)).count();
            ensure!(there == expected, "{prefix}: {there} of {expected} dependents are there");
        }
    }
    proxy.behave();
    let orphaned = going.len().div_ceil(3).min(going.len() / 3) * DEPENDENTS;
    let left = 3 * DEPENDENTS + orphaned;
    let behaves = Instant::now();
    let going = count(&client, &maps).await?.saturating_sub(left);
    until("all that should go is gone", SOON, || count(&client, &maps), |there| *there == left).await?;
    let took = behaves.elapsed();
    eprintln!("{going} objects were gone {took:.2?} after the proxy behaved");
    // A question waits for at most 5 s. A busy machine takes up to 15 ms for an object.
    let limit = Duration::from_secs(10) + Duration::from_millis(15) * u32::try_from(going)?;
    ensure!(took < limit, "too late: {took:?}, and {limit:?} would do");
    let items = list(&client, maps.as_str()).await?;
    for item in &items {
        let living = item["metadata"]["name"].as_str().unwrap_or_default().starts_with("living");
        ensure!(living != item["metadata"]["ownerReferences"].is_null(), "{item}");
    }
    until("no owner is left", SOON, || list(&client, kind_path("things")), |owners| owners.is_empty()).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn no_wrong_answer_costs_a_life_and_none_stops_the_collector() -> anyhow::Result<()> {
    let mut others = crate::every_turn().await?;
    let _turn = others.split(1);
    let Some(stage) = Stage::start().await? else { return Ok(()) };
    let run = tests::lies::run(&stage, Collector::Ours, others).await?;
    eprintln!("{run}");
    let wrong: Vec<&String> = run.outcomes.iter().flat_map(|outcome| &outcome.deleted).collect();
    ensure!(wrong.is_empty(), "dependents of owners that live are deleted: {wrong:?}");
    ensure!(run.left() == 0, "garbage is left");
    ensure!(run.is_told(), "lies that were not told");
    Ok(())
}

fn names(items: &[Value]) -> Vec<String> {
    items.iter().filter_map(|item| item["metadata"]["name"].as_str().map(str::to_owned)).collect()
}
