//! The Helm chart. It is well formed, agrees with the plain manifests and the documentation, and is accepted by a real
//! API server. It has exactly the rights that both services need.

use crate::same;
use anyhow::{Context, bail, ensure};
use clap::Parser as _;
use serde_json::Value;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::Stdio;
use tests::certificates::Authority;
use tests::chart::{self, Helm, NAMESPACE, root};
use tests::controlplane::{ControlPlane, require};
use tests::load;

mod argocd;
mod audit;
mod callers;
mod console;
mod guards;
mod issuer;
mod kubelet;
mod least;
mod observe;
mod platform;
mod site;
mod values;

fn file_flag(file: &Path) -> String {
    format!("--values={}", file.display())
}

#[test]
fn every_set_of_values_is_rendered_and_a_wrong_one_is_refused() -> anyhow::Result<()> {
    let Some(helm) = Helm::require()? else { return Ok(()) };
    for file in chart::value_files()? {
        let flags = [file_flag(&file)];
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let linted = helm.run(&["lint", "--strict", ".", "--namespace", NAMESPACE], &flags)?;
        ensure!(linted.status.success(), "{}: {}", file.display(), String::from_utf8_lossy(&linted.stdout));
        let rendered = helm.template(&flags)?;
        let objects = chart::objects(&rendered)?;
        chart::deployment(&objects, "graph-service")?;
        for policy in objects.iter().filter(|object| object["kind"] == "NetworkPolicy") {
            let rules = policy["spec"]["ingress"].as_array().context("a policy without ingress")?;
            let is_open =
                |rule: &Value| rule["from"].as_array().is_none_or(Vec::is_empty) && rule["ports"][0]["port"] == "grpc";
            ensure!(!rules.iter().any(is_open), "{}: a rule without peers admits everyone: {policy}", file.display());
        }
    }
    for (wrong, named) in [
        ("mode=sometimes", "/mode"),
        ("graphService.replica=3", "replica"),
        ("executorService.replicas=0", "/executorService/replicas"),
        ("tls.source=magic", "/tls/source"),
        ("traces.endpoint=collector:4317", "/traces/endpoint"),
        ("networkPolicy.apiServerPorts[0]=70000", "/networkPolicy/apiServerPorts/0"),
        ("fullnameOverride=Blue", "/fullnameOverride"),
        ("commonLabels.app\\.kubernetes\\.io/name=x", "invalid propertyName"),
        ("podSecurityContext=65532", "/podSecurityContext"),
        ("revisionHistoryLimit=-1", "/revisionHistoryLimit"),
        ("graphService.imageDigest=sha256:0", "/graphService/imageDigest"),
        ("graphService.serviceAccount=graph", "/graphService/serviceAccount"),
        ("graphService.service.type=ExternalName", "/graphService/service/type"),
        ("executorService.extraVolumes[0].emptyDir=x", "/executorService/extraVolumes/0"),
        ("executorService.autoscaling.readyItems=0", "/executorService/autoscaling/readyItems"),
        ("executorService.autoscaling.enabled=true,executorService.autoscaling.minReplicas=50", "above maxReplicas"),
        ("tls.extraHosts[0]=a b", "/tls/extraHosts/0"),
        ("metrics.alerts.runbookUrl=runbooks", "/metrics/alerts/runbookUrl"),
        ("metrics.serviceMonitor.kind=Probe", "/metrics/serviceMonitor/kind"),
        ("graphService.route.enabled=true", "names no Gateway"),
        ("graphService.grpcWebOrigins[0]=*", "/graphService/grpcWebOrigins/0"),
        ("graphService.route.hostnames[0]=a b", "/graphService/route/hostnames/0"),
        ("executorService.topologySpreadConstraints[0].maxSkew=1", "/executorService/topologySpreadConstraints/0"),
        ("rbac.create=sometimes", "/rbac/create"),
        ("access.portForward=always", "/access/portForward"),
        ("access.apiServerTokens=2", "/access/apiServerTokens"),
        ("accessRoles.aggregateViewTo=cluster-admin", "/accessRoles/aggregateViewTo"),
        ("audit.sink.url=receiver:80", "/audit/sink/url"),
        ("audit.sink.inFlight=0", "/audit/sink/inFlight"),
        ("audit.sink.deadLetters=nowhere", "/audit/sink/deadLetters"),
        ("extraObjects[0]=1", "/extraObjects/0"),
        ("tls.clientCertificates=false,metrics.serviceMonitor.enabled=true", "tls.clientCertificates"),
    ] {
        let refused = helm.run(&["template", "ownergraph", "."], &["--set", wrong])?;
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        ensure!(!refused.status.success() && said.contains(named), "--set {wrong}: {said}");
    }
    Ok(())
}

#[test]
fn the_plain_manifests_are_the_charts() -> anyhow::Result<()> {
    let Some(helm) = Helm::require()? else { return Ok(()) };
    let values = file_flag(&root().join("deploy/chart/ci/manifests-values.yaml"));
    let rendered = helm.template(&[&values])?;
    let (mut everything, mut flows) = (String::new(), String::new());
    for document in rendered.split("---\n").map(str::trim).filter(|document| !document.is_empty()) {
        let (source, body) = document.split_once('\n').context("a document without its source")?;
        // Only `helm test` runs it.
        if source.contains("/templates/tests/") {
            continue;
        }
        let into = if source.ends_with("/flow-control.yaml") { &mut flows } else { &mut everything };
        // kubectl needs neither the labels of Helm nor the version of the chart.
        let is_helms =
            |line: &&str| ["app.kubernetes.io/managed-by:", "helm.sh/chart:"].iter().any(|label| line.contains(label));
        let body: Vec<&str> = body.trim().lines().filter(|line| !is_helms(line)).collect();
        into.push_str(&format!("---\n{}\n", body.join("\n")));
    }
    let head = "# Rendered from deploy/chart with the values of deploy/chart/ci/manifests-values.yaml; `BLESS=1 cargo test -p tests --test together chart::the_plain`.\n";
    same("deploy/manifests/ownergraph.yaml", &format!("{head}{SECRETS}{everything}"))?;
    same("deploy/manifests/flow-control.yaml", &format!("{head}{flows}"))
}

const SECRETS: &str = "#
# Before you apply it, create two secrets in its namespace, graph-service-tls and executor-service-tls, each with tls.crt, tls.key and ca.crt. The
# first certificate must be for graph-service.ownergraph.svc. The CA should sign for Ownergraph only: the name in a certificate identifies the
# caller.
";

#[test]
fn the_table_of_rights_is_the_charts() -> anyhow::Result<()> {
    same("docs/rbac.md", &chart::table()?.page()?)
}

#[test]
fn docker_compose_gives_the_rights_of_the_table() -> anyhow::Result<()> {
    let read = |file: &str| fs::read_to_string(root().join(file)).with_context(|| format!("reading {file}"));
    let table = read("deploy/chart/files/rbac.yaml")?.replace("{{ .Values.election.leaseName }}", "ownergraph");
    let table: Value = serde_saphyr::from_str(&table)?;
    let mut due = Vec::new();
    for role in table["roles"].as_array().context("the table has no roles")? {
        let account = role["account"].as_str().context("a role without an account")?;
        let place = match role["scope"].as_str() {
            Some("cluster") => "all namespaces",
            Some("election") => "kube-system",
            // Callers of docker-compose.yaml name the address of the graph service, which publishes nothing.
            Some("public" | "release") => continue,
            other => bail!("a scope that this test does not know: {other:?}"),
        };
        if !["callers", "audit"].contains(&account) {
            due.extend(chart::spelt_out(account, place, &role["rules"]));
        }
    }
    due.sort();

    let objects = chart::objects(&read("deploy/compose/manifests/access.yaml")?)?;
    let mut given = Vec::new();
    for binding in objects.iter().filter(|object| object.get("roleRef").is_some()) {
        let subjects = binding["subjects"].as_array().map(Vec::as_slice).unwrap_or_default();
        let [subject] = subjects else { bail!("not one subject: {binding}") };
        // The table has no line for a rule of another subject, unless the rule covers only paths.
        let account = match subject["name"].as_str().context("a subject without a name")? {
            "ownergraph:graph-services" => "graph-service",
            "ownergraph:executors" => "executor-service",
            other => other,
        };
        let named = |field: &str| binding["roleRef"][field].as_str().context("a binding to no role");
        let role = chart::object(&objects, named("kind")?, named("name")?)?;
        let namespace = &binding["metadata"]["namespace"];
        ensure!(role["metadata"]["namespace"] == *namespace, "the role is somewhere else: {binding}");
        given.extend(chart::spelt_out(account, namespace.as_str().unwrap_or("all namespaces"), &role["rules"]));
    }
    given.sort();
    assert_eq!(given, due);
    Ok(())
}

#[test]
fn the_chart_has_the_version_of_the_programs() -> anyhow::Result<()> {
    let text = fs::read_to_string(root().join("deploy/chart/Chart.yaml"))?;
    let chart: Value = serde_saphyr::from_str(&text)?;
    assert_eq!(chart["appVersion"], env!("CARGO_PKG_VERSION"));
    assert_eq!(chart["version"], env!("CARGO_PKG_VERSION"));
    Ok(())
}

/// The flags of a container, in the form in which its program reads them.
fn check_flags(objects: &[Value]) -> anyhow::Result<()> {
    // The check of the flags reads this file.
    let mounted = tempfile::tempdir()?;
    let ca = mounted.path().join("ca.crt");
    fs::write(&ca, Authority::new("traces")?.pem())?;
    let arguments = |deployment: &str, pod: &str| -> anyhow::Result<Vec<String>> {
        let arguments = chart::arguments(objects, deployment, pod)?;
        let there = |argument: String| argument.replace("/etc/ownergraph/traces/ca.crt", &ca.to_string_lossy());
        Ok(arguments.into_iter().map(there).collect())
    };
    let mut flags = arguments("graph-service", "graph-service-0")?;
    let graph = &chart::deployment(objects, "graph-service")?["spec"]["template"]["spec"]["containers"][0];
    let environment = graph["env"].as_array().map(Vec::as_slice).unwrap_or_default();
    if environment.iter().any(|variable| variable["name"] == "OWNERGRAPH_DECISION_LOG") {
        flags.push("--decision-log=tls://nats.example:4222".to_owned());
    }
    let observes = flags.iter().any(|flag| flag == "--mode=observe");
    let flags = std::iter::once("graph-service".to_owned()).chain(flags);
    graph_service::options::Options::try_parse_from(flags)?.check()?;
    if observes {
        ensure!(chart::deployment(objects, "executor-service").is_err(), "nothing is granted to executors");
        return Ok(());
    }
    let flags = arguments("executor-service", "executor-service-0")?;
    let flags = std::iter::once("executor-service".to_owned()).chain(flags);
    executor_service::Options::try_parse_from(flags)?.check()?;
    Ok(())
}

#[test]
fn programs_take_the_flags_that_containers_give_them() -> anyhow::Result<()> {
    let Some(helm) = Helm::require()? else { return Ok(()) };
    for file in chart::value_files()? {
        let objects = chart::objects(&helm.template(&[&file_flag(&file)])?)?;
        check_flags(&objects).with_context(|| file.display().to_string())?;
    }
    for tls in ["true", "false"] {
        let tls = format!("--set=tls.enabled={tls}");
        let objects =
            chart::objects(&helm.template(&[&tls, "--set=traces.endpoint=http://collector.monitoring:4317"])?)?;
        check_flags(&objects).with_context(|| format!("plaintext to a collector, {tls}"))?;
        let traces = chart::arguments(&objects, "graph-service", "graph-service-0")?;
        ensure!(traces.iter().any(|flag| flag == "--otlp-insecure"), "{tls}: {traces:?}");
        let is_open = traces.iter().any(|flag| flag == "--insecure");
        ensure!(is_open != tls.ends_with("true"), "{tls}: {traces:?}");
    }
    let objects = chart::objects(&helm.template(&["--set=executorService.extraArgs={--graf=x}"])?)?;
    let refused = check_flags(&objects).err().context("an unknown flag was accepted")?;
    ensure!(refused.to_string().contains("--graf"), "{refused}");
    Ok(())
}

/// Applies objects as `kubectl apply --server-side --validate=strict` does. Returns the warnings of the API server.
fn apply(plane: &ControlPlane, objects: &[Value], flags: &[&str]) -> anyhow::Result<String> {
    kubectl(plane, &[&["apply", "--server-side", "--force-conflicts", "--validate=strict"], flags].concat(), objects)
}

fn kubectl(plane: &ControlPlane, command: &[&str], objects: &[Value]) -> anyhow::Result<String> {
    let list = serde_json::json!({ "apiVersion": "v1", "kind": "List", "items": objects });
    let mut kubectl = plane.kubectl();
    kubectl.args(command).args(["-f", "-"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut kubectl = kubectl.spawn().context("running kubectl")?;
    let mut stdin = kubectl.stdin.take().context("kubectl has no standard input")?;
    stdin.write_all(list.to_string().as_bytes())?;
    drop(stdin);
    let output = kubectl.wait_with_output()?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "kubectl {command:?}: {said}");
    Ok(said)
}

/// Creates a namespace in which the API server refuses pods that are not `restricted`, and warns of workloads with such
/// pods.
fn restricted(name: &str) -> Value {
    let level = "restricted";
    serde_json::json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": { "name": name, "labels": {
            "pod-security.kubernetes.io/enforce": level, "pod-security.kubernetes.io/warn": level,
        } },
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn the_api_server_takes_every_object_and_every_pod() -> anyhow::Result<()> {
    let (Some(helm), Some(binaries)) = (Helm::require()?, require()) else { return Ok(()) };
    let plane = &ControlPlane::start(&binaries).await?;
    let mut sets: Vec<Vec<String>> = chart::value_files()?.iter().map(|file| vec![file_flag(file)]).collect();
    // The chart with its default values has certificates from Helm.
    sets.push(Vec::new());
    for (number, flags) in sets.iter().enumerate() {
        let namespace = format!("taken-{number}");
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let objects = chart::objects(&helm.template_in(&namespace, &flags)?)?;
        is_taken(plane, &namespace, &objects).await.with_context(|| format!("{flags:?}"))?;
    }
    is_taken(plane, "platform", &platform::in_an_umbrella(&helm, &[])?).await?;
    not_seen_by_a_leader(plane).await
}

async fn is_taken(plane: &ControlPlane, namespace: &str, objects: &[Value]) -> anyhow::Result<()> {
    let definitions = chart::foreign_definitions(objects)?;
    if !definitions.is_empty() {
        apply(plane, &definitions, &[])?;
        plane_serves(plane, &definitions).await?;
    }
    apply(plane, &[restricted(namespace)], &[])?;
    let warned = apply(plane, objects, &[])?;
    ensure!(!warned.contains("Warning"), "{warned}");
    for name in ["graph-service", "executor-service", "audit-log", "audit-sink", "console"] {
        let pod = match chart::deployment(objects, name) {
            Ok(deployment) => chart::pod(deployment, name),
            // Mode observe has no executors.
            Err(_) if name != "graph-service" => continue,
            Err(error) => return Err(error),
        };
        let warned = kubectl(plane, &["create", "--dry-run=server", "--validate=strict"], std::slice::from_ref(&pod))?;
        ensure!(!warned.contains("Warning"), "{name}: {warned}");
        // Without its security context, the API server refuses the same pod. This shows that it checks.
        let mut open = pod;
        open["spec"]["containers"][0]["securityContext"] = Value::Null;
        let refused = kubectl(plane, &["create", "--dry-run=server"], &[open]);
        let said = format!("{:#}", refused.err().context("an unrestricted pod was taken")?);
        ensure!(said.contains("violates PodSecurity"), "{said}");
    }
    Ok(())
}

/// Without a leader, the status of a pause says that it is not in effect, as `kubectl wait` and kstatus read it.
async fn not_seen_by_a_leader(plane: &ControlPlane) -> anyhow::Result<()> {
    let pause = serde_json::json!({
        "apiVersion": "ownergraph.dev/v1alpha1", "kind": "Pause", "metadata": { "name": "new" },
        "spec": { "reason": "why", "lifetimeSeconds": 60 },
    });
    apply(plane, &[pause], &[])?;
    let pause = load::get(&plane.client().await?, format!("{}/new", site::PAUSES)).await?.context("no pause")?;
    assert_eq!([&pause["metadata"]["generation"], &pause["status"]["observedGeneration"]], [1, 0]);
    let effective = &pause["status"]["conditions"][0];
    assert_eq!([&effective["type"], &effective["status"], &effective["reason"]], ["Effective", "Unknown", "NotSeen"]);
    Ok(())
}

async fn plane_serves(plane: &ControlPlane, definitions: &[Value]) -> anyhow::Result<()> {
    let client = plane.client().await?;
    for definition in definitions {
        let text = |field: &str| definition["spec"][field].as_str().unwrap_or_default().to_owned();
        let version = definition["spec"]["versions"][0]["name"].as_str().unwrap_or_default();
        let path = format!("/apis/{}/{version}", text("group"));
        let plural = definition["spec"]["names"]["plural"].clone();
        let served = |found: &Option<Value>| {
            let resources = found.as_ref().and_then(|found| found["resources"].as_array().cloned()).unwrap_or_default();
            resources.iter().any(|resource| resource["name"] == plural)
        };
        load::until("a definition is served", site::SOON, || load::get(&client, path.clone()), served).await?;
    }
    Ok(())
}
