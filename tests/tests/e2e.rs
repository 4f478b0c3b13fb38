//! Real processes on a real API server.

use anyhow::{Context, ensure};
use http::Method;
use kube::Client;
use serde_json::{Value, json};
use std::time::Duration;
use tests::controlplane::RequestCount;
use tests::load::{
    self, configmap, configmaps, count, create, delete, families, get, list, longest_stall, reference_to, until,
};
use tests::process::Directory;
use tests::service::Fleet;
use tests::stage::Stage;

const SOON: Duration = Duration::from_secs(60);
const CASCADE_WITHIN: Duration = Duration::from_secs(120);
/// The maximum number of requests per object, without the reads of waiting owners.
const REQUESTS_PER_OBJECT: f64 = 1.1;
/// The maximum number of reads of each waiting owner in a second.
const READS_A_SECOND: f64 = 2.0;

/// The dependents per owner in the large cascades. The variable `DEPENDENTS` replaces the default of 100.
fn dependents() -> usize {
    std::env::var("DEPENDENTS").ok().and_then(|number| number.parse().ok()).unwrap_or(100)
}

async fn empty(client: &Client, collection: &str) -> anyhow::Result<()> {
    until("everything is gone", CASCADE_WITHIN, || count(client, collection), |left| *left == 0).await?;
    Ok(())
}

/// Counts a collector's writes and reads of objects, without discovery, watches, election and health.
fn is_about_objects(request: &RequestCount) -> bool {
    request.verb != "WATCH" && !request.resource.is_empty() && request.resource != "leases"
}

#[tokio::test(flavor = "multi_thread")]
async fn collect_carries_out_each_policy_with_about_one_request_per_object() -> anyhow::Result<()> {
    let _turn = crate::turn().await?;
    let Some(stage) = Stage::start().await? else { return Ok(()) };
    let directory = Directory::create()?;
    let mut collector = stage.collect(directory.path(), &[]).await?;
    let client = &stage.client;
    for policy in ["Background", "Foreground", "Orphan"] {
        let space = policy.to_lowercase();
        load::namespace(client, &space).await?;
        let owners = families(client, &space, "o", 20, dependents()).await?;
        let objects = 20 * dependents();
        until(
            "the graph has everything",
            SOON,
            || collector.metric("ownergraph_graph_nodes"),
            |nodes| nodes.is_some_and(|nodes| nodes >= objects as f64),
        )
        .await?;
        let before = stage.plane.server_metrics().await?;
        let begun = tokio::time::Instant::now();
        for owner in &owners {
            delete(client, &format!("{}/{owner}", configmaps(&space)), policy).await?;
        }
        let left = if policy == "Orphan" { objects } else { 0 };
        let settled = |items: &Vec<Value>| {
            items.len() == left && items.iter().all(|item| item["metadata"]["ownerReferences"].is_null())
        };
        // The test itself counts with lists. Its requests are few and large.
        let mut lists = 0_u64;
        let ask = || {
            lists += 1;
            list(client, configmaps(&space))
        };
        until("the cascade has ended", CASCADE_WITHIN, ask, settled).await?;
        let took = begun.elapsed();
        let made = stage.plane.server_metrics().await?.since(&before).total(is_about_objects);
        let ours = made - lists - owners.len() as u64;
        let each = ours as f64 / objects as f64;
        // A read of a waiting owner serves all its dependents for a second, so a slow machine takes more of them.
        let reads =
            if policy == "Foreground" { READS_A_SECOND * owners.len() as f64 * took.as_secs_f64() } else { 0.0 };
        let most = REQUESTS_PER_OBJECT + reads / objects as f64;
        eprintln!(
            "{policy}: {objects} objects in {took:.1?}, {:.0}/s, {each:.3} requests per object, of at most {most:.3}",
            objects as f64 / took.as_secs_f64()
        );
        if dependents() >= 100 {
            ensure!(each <= most, "{policy}: {each:.3} requests per object, more than {most:.3}");
        }
    }
    collector.process.terminate()?;
    ensure!(collector.process.ended(SOON).await? == 0, "a clean stop: {}", collector.process.output());
    Ok(())
}

async fn crd(client: &Client, plural: &str, kind: &str) -> anyhow::Result<()> {
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
    let collection = format!("/apis/example.com/v1/namespaces/default/{plural}");
    // While the API server prepares the storage, a new kind answers 404, and then 429.
    let ask = || async { Ok(get(client, collection.as_str()).await.ok().flatten()) };
    until("the kind is served", SOON, ask, Option::is_some).await?;
    Ok(())
}

fn custom(kind: &str, name: &str, owners: &[Value]) -> Value {
    json!({ "apiVersion": "example.com/v1", "kind": kind, "metadata": { "name": name, "ownerReferences": owners } })
}

const THINGS: &str = "/apis/example.com/v1/namespaces/default/things";

#[tokio::test(flavor = "multi_thread")]
async fn a_two_level_tree_goes_leaves_first_and_a_second_owner_keeps() -> anyhow::Result<()> {
    let _turn = crate::turn().await?;
    let Some(stage) = Stage::start().await? else { return Ok(()) };
    let client = &stage.client;
    crd(client, "things", "Thing").await?;
    let directory = Directory::create()?;
    let _collector = stage.collect(directory.path(), &[]).await?;
    let maps = configmaps("default");
    let root = create(client, THINGS, &custom("Thing", "root", &[])).await?;
    let other = create(client, THINGS, &custom("Thing", "other", &[])).await?;
    let middle = create(client, &maps, &configmap("middle", &[reference_to(&root)])).await?;
    // The leaf has a finalizer, so the test can see that every object above it waits.
    let mut leaf = configmap("leaf", &[reference_to(&middle)]);
    leaf["metadata"]["finalizers"] = json!(["example.com/wait"]);
    create(client, &maps, &leaf).await?;
    create(client, &maps, &configmap("shared", &[reference_to(&root), reference_to(&other)])).await?;
    delete(client, &format!("{THINGS}/root"), "Foreground").await?;
    let terminating =
        |object: &Option<Value>| object.as_ref().is_some_and(|o| !o["metadata"]["deletionTimestamp"].is_null());
    until("the leaf is terminating", SOON, || get(client, format!("{maps}/leaf")), terminating).await?;
    ensure!(terminating(&get(client, format!("{maps}/middle")).await?), "the middle waits for its leaf");
    ensure!(terminating(&get(client, format!("{THINGS}/root")).await?), "the root waits for the middle");
    let kept = until(
        "the shared object has lost one reference",
        SOON,
        || get(client, format!("{maps}/shared")),
        |object| {
            object.as_ref().is_none_or(|o| o["metadata"]["ownerReferences"].as_array().is_some_and(|r| r.len() == 1))
        },
    )
    .await?
    .context("the shared object is there")?;
    ensure!(kept["metadata"]["ownerReferences"][0]["uid"] == other["metadata"]["uid"], "and it is the right one");
    let release = json!({ "metadata": { "finalizers": null } });
    load::send(client, Method::PATCH, &format!("{maps}/leaf"), Some(&release)).await?;
    until("the root is gone", SOON, || get(client, format!("{THINGS}/root")), Option::is_none).await?;
    for gone in ["leaf", "middle"] {
        ensure!(get(client, format!("{maps}/{gone}")).await?.is_none(), "{gone} went before the root");
    }
    ensure!(get(client, format!("{maps}/shared")).await?.is_some());
    Ok(())
}

/// Creates objects that must stay unchanged in any case: unowned objects, and objects with living owners.
async fn bystanders(client: &Client) -> anyhow::Result<Vec<Value>> {
    load::namespace(client, "bystanders").await?;
    families(client, "bystanders", "alive", 10, 50).await?;
    let unowned = (0..490).map(|number| configmap(&format!("unowned-{number}"), &[])).collect();
    load::create_all(client, &configmaps("bystanders"), unowned).await?;
    list(client, configmaps("bystanders")).await
}

#[tokio::test(flavor = "multi_thread")]
async fn killing_either_service_half_way_loses_nothing_and_touches_no_other_object() -> anyhow::Result<()> {
    let _turn = crate::turn().await?;
    let Some(stage) = Stage::start().await? else { return Ok(()) };
    let client = &stage.client;
    let before = bystanders(client).await?;
    let mut fleet = Fleet::start(&stage.programs, stage.plane.kubeconfig(), 2).await?;
    for victim in ["executor", "graph"] {
        load::namespace(client, victim).await?;
        let maps = configmaps(victim);
        let objects = 20 * dependents();
        let owners = families(client, victim, "o", 20, dependents()).await?;
        for owner in &owners {
            delete(client, &format!("{maps}/{owner}"), "Background").await?;
        }
        until("half of it is gone", CASCADE_WITHIN, || count(client, &maps), |left| *left <= objects / 2).await?;
        if victim == "executor" {
            fleet.executors[0].process.kill()?;
        } else {
            fleet.replace_graph().await?;
        }
        empty(client, &maps).await?;
    }
    ensure!(list(client, configmaps("bystanders")).await? == before, "the bystanders are as they were, to the byte");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn kinds_come_and_go_without_a_restart() -> anyhow::Result<()> {
    let _turn = crate::turn().await?;
    let Some(stage) = Stage::start().await? else { return Ok(()) };
    let client = &stage.client;
    let directory = Directory::create()?;
    let collector = stage.collect(directory.path(), &[]).await?;
    let maps = configmaps("default");
    for round in 0..2 {
        crd(client, "things", "Thing").await?;
        let served = tokio::time::Instant::now();
        let owner = create(client, THINGS, &custom("Thing", "owner", &[])).await?;
        create(client, THINGS, &custom("Thing", "child", &[reference_to(&owner)])).await?;
        create(client, &maps, &configmap("of-owner", &[reference_to(&owner)])).await?;
        let stays = create(client, THINGS, &custom("Thing", "stays", &[])).await?;
        create(client, &maps, &configmap("of-type", &[reference_to(&stays)])).await?;
        delete(client, &format!("{THINGS}/owner"), "Background").await?;
        until("the child is gone", SOON, || get(client, format!("{THINGS}/child")), Option::is_none).await?;
        eprintln!("round {round}: a new kind's first cascade ended {:.2?} after the kind was served", served.elapsed());
        until("the map is gone", SOON, || get(client, format!("{maps}/of-owner")), Option::is_none).await?;
        delete(client, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.example.com", "Background")
            .await?;
        until("what its objects owned is gone", SOON, || get(client, format!("{maps}/of-type")), Option::is_none)
            .await?;
        let ask = || collector.get("/readyz?verbose");
        let clean = |(code, body): &(u16, String)| {
            *code == 200
                && !body.contains("things.example.com")
                && !body.contains("failed")
                && !body.contains("undecided")
        };
        until("nothing is left of the kind in readyz", SOON, ask, clean).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn owners_of_kinds_that_cannot_be_asked_keep_their_dependents() -> anyhow::Result<()> {
    let _turn = crate::turn().await?;
    let Some(stage) = Stage::start().await? else { return Ok(()) };
    let client = &stage.client;
    crd(client, "things", "Thing").await?;
    // A group answers 503 if its server is down.
    let service = json!({
        "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": { "name": "v1.down.example.com" },
        "spec": { "group": "down.example.com", "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 100,
            "insecureSkipTLSVerify": true, "service": { "namespace": "default", "name": "nobody" } },
    });
    create(client, "/apis/apiregistration.k8s.io/v1/apiservices", &service).await?;
    let directory = Directory::create()?;
    let collector = stage.collect(directory.path(), &[]).await?;
    let maps = configmaps("default");
    let reference = |api_version: &str, kind: &str| json!({ "apiVersion": api_version, "kind": kind, "name": "x", "uid": format!("uid-of-{kind}") });
    for (name, reference) in [
        ("group-not-served", reference("unknown.example.com/v1", "Unknown")),
        ("resource-not-served", reference("example.com/v1", "Later")),
        ("server-down", reference("down.example.com/v1", "Down")),
    ] {
        create(client, &maps, &configmap(name, &[reference])).await?;
    }
    // An object whose owner is gone shows that the collector works.
    create(client, &maps, &configmap("really-missing", &[reference("v1", "ConfigMap")])).await?;
    until("the missing owner is proven so", SOON, || get(client, format!("{maps}/really-missing")), Option::is_none)
        .await?;
    let ask = || collector.get("/readyz?verbose");
    let says = |(_, body): &(u16, String)| ["Unknown", "Later", "Down"].iter().all(|kind| body.contains(kind));
    until("readyz names the kinds that are not served", SOON, ask, says).await?;
    let undecided = collector.metric("ownergraph_undecided{cause=\"owner_kind_unresolved\"}").await?;
    ensure!(undecided == Some(3.0), "undecided in /metrics: {undecided:?}");
    ensure!(count(client, &maps).await? == 3, "all three stay");
    crd(client, "laters", "Later").await?;
    until("its owner is proven absent", SOON, || get(client, format!("{maps}/resource-not-served")), Option::is_none)
        .await?;
    ensure!(count(client, &maps).await? == 2, "the others stay");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn sigterm_in_mid_cascade_hands_back_at_once_and_exits_0() -> anyhow::Result<()> {
    let _turn = crate::turn().await?;
    let Some(stage) = Stage::start().await? else { return Ok(()) };
    let client = &stage.client;
    let mut fleet = Fleet::start(&stage.programs, stage.plane.kubeconfig(), 2).await?;
    let maps = configmaps("default");
    let owners = families(client, "default", "o", 10, dependents()).await?;
    let uid =
        get(client, format!("{maps}/{}", owners[0])).await?.context("the first owner is there")?["metadata"]["uid"]
            .clone();
    let uid = uid.as_str().context("a uid is text")?;
    let ask = || fleet.graph.get("/debug/graph");
    until("the graph draws the owners", SOON, ask, |(code, body)| *code == 200 && body.contains(uid)).await?;
    let (code, dot) = fleet.graph.get(&format!("/debug/graph?uid={uid}")).await?;
    ensure!(
        code == 200 && dot.starts_with("strict digraph full {") && dot.matches(" -> ").count() == dependents(),
        "{dot}"
    );
    for (path, says) in [("/livez", ""), ("/readyz", ""), ("/metrics", "\nownergraph_graph_nodes ")] {
        let (code, body) = fleet.graph.get(path).await?;
        ensure!(code == 200 && body.contains(says), "{path}: {code} {body}");
    }
    for owner in &owners {
        delete(client, &format!("{maps}/{owner}"), "Background").await?;
    }
    let half = 5 * dependents();
    until("half of it is gone", CASCADE_WITHIN, || count(client, &maps), |left| *left <= half).await?;
    let mut leaving = fleet.executors.remove(0);
    leaving.process.terminate()?;
    ensure!(leaving.process.ended(SOON).await? == 0, "a drained executor exits 0: {}", leaving.process.output());
    let output = leaving.process.output();
    ensure!(output.contains("executor stopped after all leases ended"), "it returned what it held: {output}");
    // A lease that was not returned would wait for the end of the session, which takes twenty seconds.
    let stall = longest_stall(client, &maps, 0, CASCADE_WITHIN).await?;
    ensure!(stall < Duration::from_secs(8), "nothing waited for an expiry: {stall:?}");
    for service in [&mut fleet.executors[0], &mut fleet.graph] {
        service.process.terminate()?;
        ensure!(service.process.ended(SOON).await? == 0, "exits 0: {}", service.process.output());
    }
    Ok(())
}
