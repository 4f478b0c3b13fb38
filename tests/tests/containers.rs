//! Plans of a namespace and of a definition on a real API server. The API server's own controllers carry out the plans:
//! kube-controller-manager's controller for namespaces, and kube-apiserver's for definitions.

use anyhow::{Context, ensure};
use http::{Method, Request};
use kube::Client;
use kube_api::{media, request};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use std::time::Duration;
use tests::load::until;
use tests::process::{Process, free_port};
use tests::service::Programs;
use tests::stage::Stage;

const OBJECTS: usize = 1_000;
const INSTANCES: usize = 100;
const SOON: Duration = Duration::from_secs(60);
const EMPTIED_WITHIN: Duration = Duration::from_secs(180);
const INSIDE: &str = "/api/v1/namespaces/full/configmaps";
const CHILDREN: &str = "/api/v1/namespaces/default/configmaps";
const DATABASES: &str = "/apis/shop.example.com/v1/namespaces/default/databases";

async fn post(client: &Client, path: &str, body: &Value) -> anyhow::Result<Value> {
    let request = request(Method::POST, path, media::JSON, body)?;
    client.request(request).await.with_context(|| format!("POST {path}"))
}

async fn delete(client: &Client, path: &str) -> anyhow::Result<()> {
    let request = Request::delete(path).body(Vec::new())?;
    client.request_text(request).await.with_context(|| format!("DELETE {path}"))?;
    Ok(())
}

/// Returns the uids of a collection. The set is empty if the collection is not served.
async fn uids(client: &Client, path: &str) -> anyhow::Result<BTreeSet<String>> {
    let answer: Result<Value, _> = client.request(Request::get(path).body(Vec::new())?).await;
    let Ok(list) = answer else { return Ok(BTreeSet::new()) };
    let items = list["items"].as_array().context("a list has items")?;
    Ok(items.iter().filter_map(|item| Some(item["metadata"]["uid"].as_str()?.to_owned())).collect())
}

fn config_map(name: &str, owner: Option<&Value>, finalizers: &[&str]) -> Value {
    let owners: Vec<&Value> = owner.into_iter().collect();
    let metadata = json!({ "name": name, "ownerReferences": owners, "finalizers": finalizers });
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata })
}

fn of(plan: &BTreeMap<String, String>, effect: &str) -> BTreeSet<String> {
    plan.iter().filter(|(_, of)| *of == effect).map(|(uid, _)| uid.clone()).collect()
}

#[tokio::test]
async fn what_a_plan_of_a_namespace_and_of_a_definition_says_is_what_then_happens() -> anyhow::Result<()> {
    let Some(stage) = Stage::start().await? else { return Ok(()) };
    let Stage { binaries, programs, plane, client } = &stage;
    let kubeconfig = plane.kubeconfig().display().to_string();
    let grpc = format!("127.0.0.1:{}", free_port()?);
    let _collector = stage.collect(plane.directory(), &["--listen", &grpc]).await?;
    let flags = [
        format!("--kubeconfig={kubeconfig}"),
        "--controllers=namespace-controller".to_owned(),
        "--leader-elect=false".to_owned(),
        "--secure-port=0".to_owned(),
    ];
    let manager = binaries.program("kube-controller-manager");
    let _manager = Process::spawn("kube-controller-manager-namespaces", plane.directory(), &manager, &flags)?;
    let ask = |words: &[&str]| ask(programs, &[words, &["--kubeconfig", &kubeconfig, "--server", &grpc]].concat());

    namespace(client, &ask).await.context("a namespace")?;
    definition(client, &ask).await.context("a definition")
}

type Said = (Option<i32>, String, String);

fn ask(programs: &Programs, words: &[&str]) -> anyhow::Result<Said> {
    let output = Command::new(programs.path("ownergraph")).args(words).output()?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok((output.status.code(), text(&output.stdout), text(&output.stderr)))
}

/// Returns the planned effect on each object, by uid.
fn plan(ask: &impl Fn(&[&str]) -> anyhow::Result<Said>, target: &str) -> anyhow::Result<BTreeMap<String, String>> {
    let (code, said, errors) = ask(&["plan", "delete", target, "-o", "json"])?;
    ensure!(code == Some(0), "{errors}");
    let document: Value = serde_json::from_str(&said)?;
    let entries = document["entries"].as_array().context("a plan has entries")?;
    let entry = |entry: &Value| Some((entry["ref"]["uid"].as_str()?.to_owned(), entry["effect"].as_str()?.to_owned()));
    entries.iter().map(|of| entry(of).context("an entry has a uid and an effect")).collect()
}

async fn namespace(client: &Client, ask: &impl Fn(&[&str]) -> anyhow::Result<Said>) -> anyhow::Result<()> {
    let full = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "full" } });
    post(client, "/api/v1/namespaces", &full).await?;
    let mut owner = Value::Null;
    for number in 0..OBJECTS {
        let name = format!("object-{number}");
        let finalizers: &[&str] = if number == 7 { &["example.com/kept"] } else { &[] };
        let owned = (number % 3 == 1).then_some(&owner);
        let made = post(client, INSIDE, &config_map(&name, owned, finalizers)).await?;
        if number % 3 == 0 {
            owner = json!({ "apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": made["metadata"]["uid"] });
        }
    }
    let before = uids(client, INSIDE).await?;
    let planned = plan(ask, "ns/full")?;
    let (goes, waits) = (of(&planned, "EFFECT_DELETE"), of(&planned, "EFFECT_WAITS"));
    ensure!(goes.len() + 1 >= OBJECTS && waits.len() == 2, "{} go, {} wait", goes.len(), waits.len());
    delete(client, "/api/v1/namespaces/full").await?;
    let left =
        until("the rest is gone", EMPTIED_WITHIN, || uids(client, INSIDE), |left| left.is_disjoint(&goes)).await?;
    ensure!(left == before.difference(&goes).cloned().collect(), "something else went too");
    ensure!(left.len() == 1 && left.is_subset(&waits));
    let why = || async { ask(&["why", "ns/full"]) };
    let told = |(_, said, _): &Said| said.contains("NamespaceFinalizersRemaining");
    let (code, said, errors) = until("the controller says what it waits for", SOON, why, told).await?;
    let keeps = "1 object is in it (ConfigMap 1), of which finalizers keep ConfigMap full/object-7";
    ensure!(code == Some(2) && said.contains(keeps) && !said.contains("goes by itself"), "{said} {errors}");
    Ok(())
}

async fn definition(client: &Client, ask: &impl Fn(&[&str]) -> anyhow::Result<Said>) -> anyhow::Result<()> {
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let schema = json!({ "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } });
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": "databases.shop.example.com" },
        "spec": {
            "group": "shop.example.com", "scope": "Namespaced",
            "names": { "plural": "databases", "singular": "database", "kind": "Database", "shortNames": ["db"] },
            "versions": [{ "name": "v1", "served": true, "storage": true, "schema": schema }],
        },
    });
    post(client, definitions, &definition).await?;
    let (kind, version) = ("Database", "shop.example.com/v1");
    let first = json!({ "apiVersion": version, "kind": kind, "metadata": { "name": "first" } });
    let made = || async { Ok(post(client, DATABASES, &first).await.is_ok()) };
    until("instances can be made", SOON, made, |made| *made).await?;
    for number in 0..INSTANCES {
        let body = json!({ "apiVersion": version, "kind": kind, "metadata": { "name": format!("database-{number}") } });
        let made = post(client, DATABASES, &body).await?;
        let metadata = &made["metadata"];
        let owner = json!({ "apiVersion": version, "kind": kind, "name": metadata["name"], "uid": metadata["uid"] });
        post(client, CHILDREN, &config_map(&format!("child-{number}"), Some(&owner), &[])).await?;
    }
    let seen = || async { ask(&["tree", "db/database-99", "--no-status", "-o", "name"]) };
    until("the graph has seen all of it", SOON, seen, |(_, said, _)| said.lines().count() == 2).await?;
    let before: BTreeSet<String> = uids(client, CHILDREN).await?;
    let planned = plan(ask, "crd/databases.shop.example.com")?;
    let goes = of(&planned, "EFFECT_DELETE");
    ensure!(planned.len() == goes.len() && goes.len() == 2 * INSTANCES + 2, "{} of {} go", goes.len(), planned.len());
    delete(client, &format!("{definitions}/databases.shop.example.com")).await?;
    let children = || uids(client, CHILDREN);
    let left = until("the children are gone", EMPTIED_WITHIN, children, |left| left.is_disjoint(&goes)).await?;
    ensure!(left == before.difference(&goes).cloned().collect(), "something else went too");
    ensure!(uids(client, DATABASES).await?.is_empty());
    Ok(())
}
