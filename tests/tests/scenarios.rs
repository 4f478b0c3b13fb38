//! Incidents of other clusters, on a real API server: servers that restart, versions and backends that disappear, two
//! collectors at once.

use anyhow::{Context, ensure};
use http::Method;
use kube::Client;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tests::conformance::step::Runs;
use tests::conformance::world::World;
use tests::conformance::{cases, runner};
use tests::controlplane::{self, CollectorOptions, ControlPlane, require};
use tests::load::{self, configmap, configmaps, count, create, create_all, delete, families, get, list, reference_to};
use tests::load::{send, until};
use tests::process::Directory;
use tests::proxy::{Lie, Proxy};
use tests::service::{Programs, Service};
use tokio::sync::Mutex;
use tokio::time::Instant;

/// The lock of the incidents on the shared server. Each of them has its own collector there.
static ONE_AT_A_TIME: Mutex<()> = Mutex::const_new(());

/// The graph service reads discovery every half minute.
const SOON: Duration = Duration::from_secs(60);
/// The number of dependents that a controller creates after the deletion of their owner.
const LATE: usize = 3_000;
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

async fn collect(plane: &ControlPlane, directory: &Directory, name: &str) -> anyhow::Result<Service> {
    let kubeconfig = plane.kubeconfig().display().to_string();
    let flags = ["collect", "--kubeconfig", &kubeconfig];
    let mut collector = Service::start(&Programs::build()?, "ownergraph", name, directory.path(), &flags)?;
    collector.ready().await?;
    Ok(collector)
}

/// Creates the kind `Thing` of a group in these versions. The last version is the stored one.
async fn define(client: &Client, group: &str, versions: &[&str]) -> anyhow::Result<()> {
    let schema = json!({ "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } });
    let last = versions.last().copied().unwrap_or_default();
    let version = |name: &&str| json!({ "name": name, "served": true, "storage": *name == last, "schema": schema });
    let object = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("things.{group}") },
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": { "plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList" },
            "versions": versions.iter().map(version).collect::<Vec<_>>(),
        },
    });
    create(client, DEFINITIONS, &object).await?;
    for version in versions {
        let collection = things(group, version, "default");
        let ask = || async { Ok(get(client, collection.as_str()).await.ok().flatten()) };
        until("the kind is served", SOON, ask, Option::is_some).await?;
    }
    Ok(())
}

fn things(group: &str, version: &str, namespace: &str) -> String {
    format!("/apis/{group}/{version}/namespaces/{namespace}/things")
}

/// Creates a namespace with things and their dependents. Returns the names of the things.
async fn custom_families(
    client: &Client,
    (group, version): (&str, &str),
    namespace: &str,
    owners: usize,
    dependents: usize,
) -> anyhow::Result<Vec<String>> {
    load::namespace(client, namespace).await?;
    let names: Vec<String> = (0..owners).map(|number| format!("o-{number}")).collect();
    let object = |name: &String| json!({ "apiVersion": format!("{group}/{version}"), "kind": "Thing", "metadata": { "name": name } });
    let created = create_all(client, &things(group, version, namespace), names.iter().map(object).collect()).await?;
    let children = created.iter().flat_map(|owner| {
        let (name, reference) = (owner["metadata"]["name"].as_str().unwrap_or_default(), reference_to(owner));
        (0..dependents).map(move |number| configmap(&format!("{name}-{number}"), std::slice::from_ref(&reference)))
    });
    create_all(client, &configmaps(namespace), children.collect()).await?;
    Ok(names)
}

/// Creates an object whose owner never existed, and waits until it is gone. The collector has then handled all earlier
/// events.
async fn canary(client: &Client, namespace: &str, name: &str) -> anyhow::Result<()> {
    let owner = json!({ "apiVersion": "v1", "kind": "ConfigMap", "name": "nobody", "uid": format!("uid-of-{namespace}-{name}") });
    create(client, &configmaps(namespace), &configmap(name, &[owner])).await?;
    let path = format!("{}/{name}", configmaps(namespace));
    until("what has no owner is gone", SOON, || get(client, path.clone()), Option::is_none).await?;
    Ok(())
}

/// The time during which the restarted server answers without its custom kinds: first with 404, then with 503.
const COLD: Duration = Duration::from_secs(8);

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_restarts_with_a_cold_handler_costs_no_child() -> anyhow::Result<()> {
    let Some(binaries) = require() else { return Ok(()) };
    let mut plane = ControlPlane::start(&binaries).await?;
    let client = plane.client().await?;
    define(&client, "cold.example.com", &["v1"]).await?;
    let owners = custom_families(&client, ("cold.example.com", "v1"), "cold", 20, 50).await?;
    let maps = configmaps("cold");
    let directory = Directory::create()?;
    let proxy = Proxy::start(plane.client().await?, directory.path()).await?;
    let kubeconfig = proxy.kubeconfig().display().to_string();
    let flags = ["collect", "--kubeconfig", &kubeconfig];
    let programs = Programs::build()?;
    // The restarted server is one of three, so it gets every third request.
    let (mut asked, began) = (0_u32, Instant::now());
    proxy.lie(move |parts| {
        if !parts.uri.path().starts_with("/apis/cold.example.com") || began.elapsed() >= COLD {
            return None;
        }
        asked += 1;
        let (status, body) = if began.elapsed() < COLD / 2 { (404, "404 page not found\n") } else { (503, "") };
        let lie = Lie::Answer { status, content_type: "text/plain", retry_after: None, body: body.to_owned() };
        asked.is_multiple_of(3).then_some(lie)
    });
    // One collector starts in this state, and every watch of the other collector breaks.
    let mut collector = Service::start(&programs, "ownergraph", "collect", directory.path(), &flags)?;
    collector.ready().await?;
    plane.stop_apiserver();
    plane.start_apiserver().await?;
    let mut looks = tokio::time::interval(Duration::from_millis(500));
    while began.elapsed() < COLD {
        looks.tick().await;
        let left = count(&client, &maps).await?;
        ensure!(left == 1_000, "{left} of 1000 children are there");
    }
    canary(&client, "cold", "canary").await?;
    ensure!(count(&client, &maps).await? == 1_000, "all children are there");
    delete(&client, &format!("{}/{}", things("cold.example.com", "v1", "cold"), owners[0]), "Background").await?;
    until("it goes on by itself", SOON, || count(&client, &maps), |left| *left == 950).await?;
    Ok(())
}

/// This time is enough for several reads of discovery.
const OUTAGE: Duration = Duration::from_secs(8);

#[tokio::test(flavor = "multi_thread")]
async fn a_backend_that_is_down_holds_only_the_dependents_of_its_objects() -> anyhow::Result<()> {
    let _turn = ONE_AT_A_TIME.lock().await;
    let Some(binaries) = require() else { return Ok(()) };
    let plane = controlplane::shared(&binaries).await?;
    let client = plane.client().await?;
    let group = "backend.example.com";
    define(&client, group, &["v1"]).await?;
    let owners = custom_families(&client, (group, "v1"), "backend", 10, 10).await?;
    let (maps, path) = (configmaps("backend"), things(group, "v1", "backend"));
    let directory = Directory::create()?;
    let before = collect(plane, &directory, "before").await?;
    // From now on, an extension server that never started serves the group.
    let service = format!("/apis/apiregistration.k8s.io/v1/apiservices/v1.{group}");
    let down = json!({
        "metadata": { "labels": { "kube-aggregator.kubernetes.io/automanaged": null } },
        "spec": { "service": { "namespace": "default", "name": "nobody", "port": 443 }, "insecureSkipTLSVerify": true },
    });
    send(&client, Method::PATCH, &service, Some(&down)).await?;
    let ask = || async { Ok(get(&client, path.as_str()).await.is_err()) };
    until("the backend is down", SOON, ask, |down| *down).await?;
    let began = Instant::now();
    // One collector started in time, and the other starts while the server is down.
    let mut collectors = Some(before);
    for (number, name) in ["seen", "unseen"].into_iter().enumerate() {
        let collector = match collectors.take() {
            Some(collector) => collector,
            None => collect(plane, &directory, name).await?,
        };
        // Nothing shows whether the owner of this object exists.
        let reference =
            json!({ "apiVersion": format!("{group}/v1"), "kind": "Thing", "name": "x", "uid": format!("uid-{name}") });
        create(&client, &maps, &configmap(name, &[reference])).await?;
        let space = format!("beside-{name}");
        load::namespace(&client, &space).await?;
        let beside = configmaps(&space);
        for owner in families(&client, &space, "o", 5, 20).await? {
            delete(&client, &format!("{beside}/{owner}"), "Background").await?;
        }
        let others = Instant::now();
        until("what others own is gone", SOON, || count(&client, &beside), |left| *left == 0).await?;
        eprintln!("{name}: 100 objects of other kinds were gone in {:.2?}", others.elapsed());
        let (mut looks, until) = (tokio::time::interval(Duration::from_millis(500)), OUTAGE * (number as u32 + 1) / 2);
        while began.elapsed() < until {
            looks.tick().await;
            let left = count(&client, &maps).await?;
            ensure!(left == 100 + number + 1, "{left} dependents are there");
        }
        let (_, body) = collector.get("/readyz?verbose").await?;
        ensure!(body.contains(group), "readyz says nothing of {group}: {body}");
    }
    let collector = collect(plane, &directory, "after").await?;
    let up = json!({ "spec": { "service": null, "insecureSkipTLSVerify": false } });
    send(&client, Method::PATCH, &service, Some(&up)).await?;
    let ask = || async { Ok(get(&client, path.as_str()).await.is_ok()) };
    until("the group is served again", SOON, ask, |up| *up).await?;
    delete(&client, &format!("{path}/{}", owners[0]), "Background").await?;
    until("what is garbage goes, and nothing else", SOON, || count(&client, &maps), |left| *left == 90).await?;
    drop(collector);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_that_is_no_longer_served_costs_no_life_and_leaves_nothing_behind() -> anyhow::Result<()> {
    let _turn = ONE_AT_A_TIME.lock().await;
    let Some(binaries) = require() else { return Ok(()) };
    let plane = controlplane::shared(&binaries).await?;
    let client = plane.client().await?;
    let group = "versions.example.com";
    define(&client, group, &["v1alpha1", "v1"]).await?;
    let owners = custom_families(&client, (group, "v1alpha1"), "versions", 4, 10).await?;
    let maps = configmaps("versions");
    let directory = Directory::create()?;
    let before = collect(plane, &directory, "before").await?;
    let schema = json!({ "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } });
    let version =
        |name: &str, served: bool| json!({ "name": name, "served": served, "storage": name == "v1", "schema": schema });
    let spec = json!({ "spec": { "versions": [version("v1alpha1", false), version("v1", true)] } });
    send(&client, Method::PATCH, &format!("{DEFINITIONS}/things.{group}"), Some(&spec)).await?;
    let old = things(group, "v1alpha1", "versions");
    let ask = || async { Ok(get(&client, old.as_str()).await.ok().flatten().is_none()) };
    until("the version is not served any more", SOON, ask, |gone| *gone).await?;
    // One collector has seen the kind served, and the other has not.
    let mut collector = before;
    for (name, gone) in [("seen", 0), ("unseen", 2)] {
        if name == "unseen" {
            drop(collector);
            collector = collect(plane, &directory, name).await?;
        }
        canary(&client, "versions", &format!("canary-{name}")).await?;
        let left = count(&client, &maps).await?;
        ensure!(left == 10 * (4 - gone), "{name}: {left} dependents are there");
        for (at, policy) in ["Background", "Foreground"].into_iter().enumerate() {
            let path = format!("{}/{}", things(group, "v1", "versions"), owners[gone + at]);
            delete(&client, &path, policy).await?;
            let expected = 10 * (3 - gone - at);
            until("its dependents go", SOON, || count(&client, &maps), |left| *left == expected).await?;
            until("it goes", SOON, || get(&client, path.clone()), Option::is_none).await?;
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn dependents_that_are_made_while_their_owner_orphans_them_all_live() -> anyhow::Result<()> {
    let _turn = ONE_AT_A_TIME.lock().await;
    let Some(binaries) = require() else { return Ok(()) };
    let plane = controlplane::shared(&binaries).await?;
    let client = plane.client().await?;
    load::namespace(&client, "orphans").await?;
    let maps = configmaps("orphans");
    let directory = Directory::create()?;
    let _collector = collect(plane, &directory, "orphans").await?;
    families(&client, "orphans", "o", 1, 500).await?;
    let owner = get(&client, format!("{maps}/o-0")).await?.context("the owner is there")?;
    delete(&client, &format!("{maps}/o-0"), "Orphan").await?;
    // The controller learns of the deletion late, and continues for a while. The owner goes when nothing refers to it.
    // The test does not depend on which of the two is faster. A dependent must stay if it was created before the test
    // last saw the owner.
    let mut made = 0_usize;
    let mut certain = 0;
    let began = Instant::now();
    while get(&client, format!("{maps}/o-0")).await?.is_some() {
        certain = made;
        if made == LATE || began.elapsed() > SOON {
            until("the owner goes", SOON * 5, || get(&client, format!("{maps}/o-0")), Option::is_none).await?;
            break;
        }
        let batch = (made..made + 10).map(|number| configmap(&format!("late-{number}"), &[reference_to(&owner)]));
        create_all(&client, &maps, batch.collect()).await?;
        made += 10;
    }
    eprintln!("{made} dependents were made while their owner was orphaning, of which {certain} surely in time");
    canary(&client, "orphans", "canary").await?;
    let free = |items: &Vec<Value>| items.iter().all(|item| item["metadata"]["ownerReferences"].is_null());
    let items = until("all references are gone", SOON, || list(&client, maps.as_str()), free).await?;
    let names: Vec<&str> = items.iter().filter_map(|item| item["metadata"]["name"].as_str()).collect();
    let late = |number: &usize| names.contains(&format!("late-{number}").as_str());
    ensure!(names.iter().filter(|name| name.starts_with("o-0-")).count() == 500, "the first 500 are there");
    ensure!((0..certain).all(|number| late(&number)), "{} of {certain} are there", (0..certain).filter(late).count());
    Ok(())
}

/// Returns the references and finalizers of each object by name, and whether the object is marked for deletion.
type End = BTreeMap<String, (usize, usize, bool)>;

/// Returns the names of all objects in a namespace, with the numbers of their references and finalizers.
async fn state(client: &Client, namespace: &str) -> anyhow::Result<End> {
    let length = |value: &Value| value.as_array().map_or(0, Vec::len);
    let items = list(client, configmaps(namespace)).await?;
    let entry = |item: &Value| {
        let metadata = &item["metadata"];
        let name = metadata["name"].as_str().unwrap_or_default().to_owned();
        let terminating = !metadata["deletionTimestamp"].is_null();
        (name, (length(&metadata["ownerReferences"]), length(&metadata["finalizers"]), terminating))
    };
    Ok(items.iter().map(entry).collect())
}

/// Deletes an owner with ten dependents, one of which has another owner. Returns the end, and the time until then.
async fn one_cascade(client: &Client, namespace: &str, policy: &str) -> anyhow::Result<(End, Duration)> {
    load::namespace(client, namespace).await?;
    let maps = configmaps(namespace);
    families(client, namespace, "o", 1, 9).await?;
    let owner = get(client, format!("{maps}/o-0")).await?.context("the owner is there")?;
    let other = create(client, &maps, &configmap("other", &[])).await?;
    create(client, &maps, &configmap("shared", &[reference_to(&owner), reference_to(&other)])).await?;
    // A collector that has seen newer objects has seen these too.
    canary(client, namespace, "canary").await?;
    let began = Instant::now();
    delete(client, &format!("{maps}/o-0"), policy).await?;
    let left = if policy == "Orphan" { 11 } else { 2 };
    let ended = |state: &End| {
        let references: usize = state.values().map(|(references, ..)| references).sum();
        state.len() == left && references == 1
    };
    let end = until("the cascade has ended", SOON, || state(client, namespace), ended).await?;
    Ok((end, began.elapsed()))
}

#[tokio::test(flavor = "multi_thread")]
async fn an_api_server_and_its_store_are_enough_and_each_policy_ends_as_with_upstream() -> anyhow::Result<()> {
    let _turn = ONE_AT_A_TIME.lock().await;
    let Some(binaries) = require() else { return Ok(()) };
    let plane = controlplane::shared(&binaries).await?;
    let client = plane.client().await?;
    let directory = Directory::create()?;
    let mut ends: [Vec<End>; 2] = [vec![], vec![]];
    for (number, who) in ["ours", "upstream"].into_iter().enumerate() {
        let options = CollectorOptions { requests_per_second: Some(1_000), ..CollectorOptions::default() };
        let (_ours, _upstream) = match who {
            "ours" => (Some(collect(plane, &directory, who).await?), None),
            _ => (None, Some(plane.start_upstream_collector(&options).await?)),
        };
        for policy in ["Background", "Foreground", "Orphan"] {
            let space = format!("envtest-{who}-{}", policy.to_lowercase());
            let (end, took) = one_cascade(&client, &space, policy).await?;
            eprintln!("{who}, {policy}: ended {took:.2?} after the DELETE");
            ends[number].push(end);
        }
    }
    ensure!(ends[0] == ends[1], "ours, then upstream's: {ends:#?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn two_collectors_at_once_end_where_each_of_them_would() -> anyhow::Result<()> {
    let Some(binaries) = require() else { return Ok(()) };
    let plane = ControlPlane::start(&binaries).await?;
    let options = CollectorOptions { requests_per_second: Some(1_000), ..CollectorOptions::default() };
    let world = Arc::new(World::on(&plane).await?);
    let _upstream = plane.start_upstream_collector(&options).await?;
    let mut chosen = cases::all();
    chosen.retain(|case| case.runs != Runs::Alone && !ONLY_OURS.contains(&case.name));
    let chosen: Vec<_> = chosen.into_iter().map(|case| case.live()).collect();
    let ended = runner::run(&world, chosen).await?;
    eprintln!("{} cases ended well under two collectors", ended.passed.len());
    ended.check()
}

/// The cases whose end differs from upstream's on purpose.
const ONLY_OURS: [&str; 3] = [
    // Upstream deletes a dependent that is created after the owner's dependents were orphaned.
    "orphan-that-comes-late",
    // Upstream removes the absent owner and the orphaning owner with separate patches. If the patch for the orphaning
    // owner comes first, only an absent owner is left, and upstream deletes the dependent.
    "orphan-beside-a-dead-owner",
    // Upstream's patch removes entries by uid, so the correct reference goes with the wrong one.
    "right-and-wrong-in-one-object",
];
