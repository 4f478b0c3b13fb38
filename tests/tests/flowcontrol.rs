//! The API server's fair queues. Our objects are applied and used, and a collector that gets 429 loses nothing.

use anyhow::{Context, ensure};
use http::Request;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tests::controlplane::{ControlPlane, Options, User, require};
use tests::load::{self, configmaps, count, create, delete, families, get, send, until};
use tests::replicas::Replicas;
use tests::service::Programs;

const GROUP: &str = "/apis/flowcontrol.apiserver.k8s.io/v1";
const SOON: Duration = Duration::from_secs(60);
const CASCADE_WITHIN: Duration = Duration::from_secs(300);
const OWNERS: usize = 10;
const DEPENDENTS: usize = 60;

fn service_account(name: &str) -> String {
    format!("system:serviceaccount:ownergraph:{name}")
}

/// Starts a control plane that knows both services by the names in the manifests.
async fn start(apiserver_flags: Vec<String>) -> anyhow::Result<Option<ControlPlane>> {
    let Some(binaries) = require() else { return Ok(None) };
    let groups = ["system:serviceaccounts", "system:serviceaccounts:ownergraph"].map(str::to_owned).to_vec();
    let users = ["graph-service", "executor-service"]
        .map(|name| User { name: service_account(name), groups: groups.clone() })
        .to_vec();
    let plane = ControlPlane::start_with(&binaries, Options { apiserver_flags, users, ..Options::default() }).await?;
    let subjects =
        ["graph-service", "executor-service"].map(|name| json!({ "kind": "User", "name": service_account(name) }));
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": { "name": "ownergraph" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin" },
        "subjects": subjects,
    });
    create(&plane.client().await?, "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", &binding).await?;
    Ok(Some(plane))
}

fn manifests() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate is below the root");
    root.join("deploy/manifests/flow-control.yaml")
}

fn apply(plane: &ControlPlane, flags: &[&str]) -> anyhow::Result<()> {
    let output = plane.kubectl().args(["apply", "--server-side", "-f"]).arg(manifests()).args(flags).output()?;
    ensure!(output.status.success(), "kubectl apply {flags:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

/// Returns the uid of the FlowSchema of a request by this user.
async fn classified(plane: &ControlPlane, user: &str, path: &str) -> anyhow::Result<String> {
    let request = Request::get(path).body(kube::client::Body::empty())?;
    let answer = plane.client_of(&service_account(user)).await?.send(request).await?;
    let header = answer.headers().get("x-kubernetes-pf-flowschema-uid");
    Ok(header.context("an answer without the header: are fair queues off?")?.to_str()?.to_owned())
}

async fn uid_of(plane: &ControlPlane, path: String) -> anyhow::Result<String> {
    let object = get(&plane.client().await?, path.as_str()).await?.with_context(|| format!("{path} is not there"))?;
    Ok(object["metadata"]["uid"].as_str().context("an object has a uid")?.to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_of_the_services_are_put_where_the_manifests_say() -> anyhow::Result<()> {
    let Some(plane) = start(Vec::new()).await? else { return Ok(()) };
    apply(&plane, &["--dry-run=server"])?;
    ensure!(get(&plane.client().await?, format!("{GROUP}/flowschemas/ownergraph-executors")).await?.is_none());
    apply(&plane, &[])?;
    let lease = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/ownergraph";
    for (user, path, schema) in [
        ("executor-service", "/api/v1/namespaces/default/configmaps/x", "ownergraph-executors"),
        ("executor-service", "/api/v1/nodes/x", "ownergraph-executors"),
        ("executor-service", "/version", "ownergraph-executors"),
        ("graph-service", lease, "ownergraph-leader-election"),
        ("graph-service", "/api/v1/configmaps", "service-accounts"),
    ] {
        let uid = uid_of(&plane, format!("{GROUP}/flowschemas/{schema}")).await?;
        let what = format!("{user}'s GET {path} is in {schema}");
        until(&what, SOON, || classified(&plane, user, path), |found| *found == uid).await?;
    }
    // A schema without its level would be marked, and would have no effect.
    for schema in ["ownergraph-executors", "ownergraph-leader-election"] {
        let path = format!("{GROUP}/flowschemas/{schema}");
        let client = plane.client().await?;
        let dangles = |schema: &Option<Value>| {
            let conditions = schema.as_ref().and_then(|schema| schema["status"]["conditions"].as_array().cloned());
            conditions.into_iter().flatten().any(|it| it["type"] == "Dangling" && it["status"] == "False")
        };
        until("it leads to a level that is there", SOON, || get(&client, path.clone()), dangles).await?;
    }
    Ok(())
}

/// Returns the level of the manifests with very little room.
async fn tighten(plane: &ControlPlane) -> anyhow::Result<()> {
    let queuing = json!({ "queues": 1, "handSize": 1, "queueLengthLimit": 1 });
    let limited = json!({
        "nominalConcurrencyShares": 1, "lendablePercent": 0, "borrowingLimitPercent": 0,
        "limitResponse": { "type": "Queue", "queuing": queuing },
    });
    let path = format!("{GROUP}/prioritylevelconfigurations/ownergraph");
    send(&plane.client().await?, http::Method::PATCH, &path, Some(&json!({ "spec": { "limited": limited } }))).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cascade_that_is_pushed_back_ends_and_loses_nothing() -> anyhow::Result<()> {
    // With so few seats, one share is one seat.
    let flags = ["--max-requests-inflight=20", "--max-mutating-requests-inflight=20"].map(str::to_owned).to_vec();
    let Some(plane) = start(flags).await? else { return Ok(()) };
    let programs = Programs::build()?;
    let client = plane.client().await?;
    apply(&plane, &[])?;
    tighten(&plane).await?;
    let uid = uid_of(&plane, format!("{GROUP}/flowschemas/ownergraph-executors")).await?;
    let ask = || classified(&plane, "executor-service", "/version");
    until("executors have their own level", SOON, ask, |found| *found == uid).await?;

    load::namespace(&client, "tight").await?;
    let maps = configmaps("tight");
    let owners = families(&client, "tight", "going", OWNERS, DEPENDENTS).await?;
    families(&client, "tight", "staying", 1, DEPENDENTS).await?;
    let mut replicas = Replicas::new(&programs, 1).await?;
    replicas.add_graph(&plane.kubeconfig_of(&service_account("graph-service"))?, &[])?;
    let kubeconfig = plane.kubeconfig_of(&service_account("executor-service"))?;
    // The executor uses its default, and adapts its requests in flight.
    replicas.add_executor(&kubeconfig, &[])?;
    replicas.ready().await?;
    let before = plane.server_metrics().await?;
    for (number, owner) in owners.iter().enumerate() {
        let policy = ["Background", "Foreground"][number % 2];
        delete(&client, &format!("{maps}/{owner}"), policy).await?;
    }
    // The other family and its owner are left.
    let staying = DEPENDENTS + 1;
    until("only what stays is left", CASCADE_WITHIN, || count(&client, &maps), |left| *left <= staying).await?;
    ensure!(count(&client, &maps).await? == staying, "what should stay is gone");

    let made = plane.server_metrics().await?.since(&before);
    let refused = made.total(|request| request.code == "429" && request.verb == "DELETE");
    let throttled = "ownergraph_attempts_total{action=\"delete\",reason=\"owner_absent\",outcome=\"throttled\"}";
    let counted = replicas.graphs[0].metric(throttled).await?;
    eprintln!("{refused} deletions were refused with 429, the collector counted {counted}");
    ensure!(refused > 0 && counted > 0.0, "the API server never pushed back: {made:?}");
    let alarms = replicas.alarms()?;
    ensure!(alarms.is_empty(), "{alarms:?}");
    Ok(())
}
