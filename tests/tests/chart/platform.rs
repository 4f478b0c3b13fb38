//! Uses of the chart by platform teams: an umbrella chart around it, and OpenShift's rules for pods.

use super::file_flag;
use anyhow::{Context, bail, ensure};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use tests::chart::{self, Helm, root};
use tests::controlplane::require;

const DEPENDENCY: &str = concat!(
    "{ name: ownergraph, version: ",
    env!("CARGO_PKG_VERSION"),
    ", repository: \"\", alias: collector, condition: collector.enabled }"
);

/// A chart around ours. It calls ours `collector`.
fn umbrella(directory: &Path, values: &str) -> anyhow::Result<()> {
    let about = format!("apiVersion: v2\nname: platform\nversion: 1.0.0\ndependencies:\n  - {DEPENDENCY}\n");
    fs::write(directory.join("Chart.yaml"), about)?;
    fs::write(directory.join("values.yaml"), values)?;
    fs::create_dir_all(directory.join("charts"))?;
    symlink(root().join("deploy/chart"), directory.join("charts/ownergraph"))?;
    Ok(())
}

/// The objects of an umbrella chart in namespace `platform`.
pub(super) fn in_an_umbrella(helm: &Helm, flags: &[&str]) -> anyhow::Result<Vec<Value>> {
    let directory = tempfile::tempdir()?;
    umbrella(
        directory.path(),
        "global: { team: platform }\n\
         collector:\n  enabled: true\n  fullnameOverride: blue\n  \
         podSecurityContext: { runAsUser: \"\", fsGroup: \"\" }\n",
    )?;
    let path = directory.path().to_string_lossy();
    let output = helm.run(&["template", "one", &path, "--namespace", "platform"], flags)?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    chart::objects(&String::from_utf8(output.stdout)?)
}

#[test]
fn an_umbrella_chart_switches_it_and_gives_it_values() -> anyhow::Result<()> {
    let Some(helm) = Helm::require()? else { return Ok(()) };
    let objects = in_an_umbrella(&helm, &[])?;
    for component in ["graph-service", "executor-service"] {
        let deployment = chart::deployment(&objects, component)?;
        assert_eq!(deployment["metadata"]["name"], format!("blue-{component}"));
        assert_eq!(deployment["metadata"]["namespace"], "platform");
        let context = &deployment["spec"]["template"]["spec"]["securityContext"];
        assert_eq!(
            *context,
            json!({ "runAsNonRoot": true, "runAsGroup": 65532, "seccompProfile": { "type": "RuntimeDefault" } })
        );
    }
    assert_eq!(in_an_umbrella(&helm, &["--set=collector.enabled=false"])?, Vec::<Value>::new());
    let refused = in_an_umbrella(&helm, &["--set=collector.mode=sometimes"]).err().context("a wrong value")?;
    ensure!(refused.to_string().contains("/mode"), "{refused}");
    Ok(())
}

/// Returns the fields of a pod that OpenShift's restricted-v2 refuses, in a namespace with another range of users.
fn refused_by_restricted_v2(pod: &Value) -> Vec<String> {
    let mut refused = Vec::new();
    let mut refuse = |is_so: bool, what: &str| {
        if is_so {
            refused.push(what.to_owned());
        }
    };
    let context = &pod["securityContext"];
    for field in ["hostNetwork", "hostPID", "hostIPC"] {
        refuse(pod[field] == true, field);
    }
    for field in ["fsGroup", "supplementalGroups", "sysctls"] {
        refuse(!context[field].is_null(), field);
    }
    let allowed =
        ["configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"];
    for volume in pod["volumes"].as_array().into_iter().flatten() {
        let kinds = volume.as_object().into_iter().flatten().map(|(kind, _)| kind.as_str());
        let foreign = kinds.filter(|kind| *kind != "name" && !allowed.contains(kind)).count();
        refuse(foreign > 0, &format!("volume {volume}"));
    }
    let containers =
        ["initContainers", "containers"].iter().flat_map(|list| pod[list].as_array().into_iter().flatten());
    for container in containers {
        let own = &container["securityContext"];
        for (of, context) in [("pod", context), ("container", own)] {
            refuse(!context["runAsUser"].is_null(), &format!("runAsUser of the {of}"));
            refuse(context["runAsNonRoot"] == false, &format!("runAsNonRoot of the {of}"));
            refuse(!context["seLinuxOptions"].is_null(), &format!("seLinuxOptions of the {of}"));
            let seccomp = &context["seccompProfile"]["type"];
            refuse(!seccomp.is_null() && seccomp != "RuntimeDefault", &format!("seccompProfile of the {of}"));
        }
        let dropped = &own["capabilities"]["drop"];
        refuse(*dropped != json!(["ALL"]) && !dropped.is_null(), "capabilities that are not dropped");
        let added = own["capabilities"]["add"].as_array().map(Vec::as_slice).unwrap_or_default();
        refuse(added.iter().any(|added| added != "NET_BIND_SERVICE"), "capabilities that are added");
        refuse(own["privileged"] == true || own["allowPrivilegeEscalation"] == true, "privileges");
        for port in container["ports"].as_array().into_iter().flatten() {
            refuse(!port["hostPort"].is_null(), "hostPort");
        }
    }
    refused
}

#[test]
fn openshift_takes_the_pods_once_their_users_are_given_up() -> anyhow::Result<()> {
    let Some(helm) = Helm::require()? else { return Ok(()) };
    let openshift = file_flag(&root().join("deploy/chart/ci/openshift-values.yaml"));
    let users_given_up = ["--set=podSecurityContext.runAsUser=null", "--set=podSecurityContext.fsGroup=null"];
    let everything_given_up = ["--set=podSecurityContext=null", "--set=containerSecurityContext=null"];
    let all = [
        "--set=audit.enabled=true",
        "--set=audit.sink.url=https://receiver.example",
        "--set=console.enabled=true,console.publicUrls[0]=https://console.example",
    ];
    let refused = |flags: &[&str]| -> anyhow::Result<Vec<String>> {
        let objects = chart::objects(&helm.template(&[&all, flags].concat())?)?;
        let mut refused = Vec::new();
        for component in ["graph-service", "executor-service", "audit-log", "audit-sink", "console"] {
            let spec = &chart::deployment(&objects, component)?["spec"]["template"]["spec"];
            ensure!(spec["containers"].is_array(), "no containers: {spec}");
            refused.extend(refused_by_restricted_v2(spec));
        }
        Ok(refused)
    };
    for flags in [&[openshift.as_str()][..], &users_given_up, &everything_given_up] {
        assert_eq!(refused(flags)?, Vec::<String>::new(), "{flags:?}");
    }
    let as_it_comes = ["fsGroup", "runAsUser of the pod"];
    assert_eq!(refused(&[])?, [as_it_comes; 5].concat());

    // Only the users differ.
    let objects = chart::objects(&helm.template(&[&openshift])?)?;
    let pod = &chart::deployment(&objects, "graph-service")?["spec"]["template"]["spec"];
    assert_eq!(pod["securityContext"], json!({ "runAsNonRoot": true, "seccompProfile": { "type": "RuntimeDefault" } }));
    let container = pod["containers"].as_array().and_then(|all| all.first()).context("no container")?;
    assert_eq!(
        container["securityContext"],
        json!({ "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": { "drop": ["ALL"] } })
    );
    Ok(())
}

#[test]
fn names_labels_and_accounts_are_the_installations() -> anyhow::Result<()> {
    let Some(helm) = Helm::require()? else { return Ok(()) };
    let values = file_flag(&root().join("deploy/chart/ci/names-values.yaml"));
    let objects = chart::objects(&helm.template(&[&values])?)?;
    for object in &objects {
        let labels = &object["metadata"]["labels"];
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        if object["kind"] == "CustomResourceDefinition" {
            continue;
        }
        ensure!(labels["example.com/team"] == "platform", "no common label: {name}");
        ensure!(
            labels["helm.sh/chart"] == concat!("ownergraph-", env!("CARGO_PKG_VERSION"))
                && labels["app.kubernetes.io/managed-by"] == "Helm",
            "{name}"
        );
        let by_value = ["graph", "blue", "ownergraph", "graph-service-tls", "executor-service-tls"].contains(&name);
        ensure!(name.starts_with("blue-") || by_value, "{} {name}", object["kind"]);
    }
    let accounts: Vec<&Value> = objects
        .iter()
        .filter(|object| object["kind"] == "ServiceAccount")
        .map(|object| &object["metadata"]["name"])
        .collect();
    assert_eq!(accounts, ["graph"]);
    let graph = chart::deployment(&objects, "graph-service")?;
    let selector = json!({ "app.kubernetes.io/name": "collector", "app.kubernetes.io/component": "graph-service" });
    assert_eq!(graph["spec"]["selector"]["matchLabels"], selector);
    let labels = &graph["spec"]["template"]["metadata"]["labels"];
    assert_eq!([&labels["example.com/team"], &labels["example.com/cost"]], ["garbage", "17"]);
    let subject = chart::object(&objects, "ClusterRoleBinding", "blue-executor-service")?;
    assert_eq!(subject["subjects"][0]["name"], "executors");
    let flags = chart::arguments(&objects, "executor-service", "executor-0")?;
    for flag in [
        "--graph=dns:///blue-graph-service-replicas.ownergraph.svc:7450",
        "--tls-server-name=blue-graph-service.ownergraph.svc",
    ] {
        ensure!(flags.iter().any(|given| given == flag), "{flag}: {flags:?}");
    }
    Ok(())
}

#[test]
fn a_gateway_leads_to_the_graph_service_and_only_helms_test_reaches_the_admin_ports() -> anyhow::Result<()> {
    let Some(helm) = Helm::require()? else { return Ok(()) };
    let values = file_flag(&root().join("deploy/chart/ci/gateway-values.yaml"));
    let objects = chart::objects(&helm.template(&[&values])?)?;
    let route = &chart::object(&objects, "GRPCRoute", "graph-service")?["spec"];
    assert_eq!(route["parentRefs"][0]["name"], "public");
    let back = &route["rules"][0]["backendRefs"][0];
    let service = chart::object(&objects, "Service", "graph-service")?;
    assert_eq!([&back["name"], &back["port"]], [&service["metadata"]["name"], &service["spec"]["ports"][0]["port"]]);
    let policy = &chart::object(&objects, "BackendTLSPolicy", "graph-service")?["spec"];
    assert_eq!(policy["targetRefs"][0]["name"], back["name"]);
    assert_eq!(policy["validation"]["hostname"], "graph-service.ownergraph.svc");
    let plaintext = chart::objects(&helm.template(&[&values, "--set=tls.enabled=false"])?)?;
    ensure!(chart::object(&plaintext, "BackendTLSPolicy", "graph-service").is_err(), "TLS to a plaintext port");
    let spread = |component: &str| -> anyhow::Result<Vec<Value>> {
        let spec = &chart::deployment(&objects, component)?["spec"]["template"]["spec"];
        Ok(spec["topologySpreadConstraints"].as_array().cloned().unwrap_or_default())
    };
    assert_eq!((spread("graph-service")?.len(), spread("executor-service")?.len()), (1, 0));

    let objects = chart::objects(&helm.template(&["--set=networkPolicy.monitoring=null"])?)?;
    let labels = &chart::object(&objects, "Pod", "ownergraph-test")?["metadata"]["labels"];
    let certified = chart::objects(&helm.template(&["--set=tls.source=certManager"])?)?;
    let asked = &chart::object(&certified, "Pod", "ownergraph-test")?["spec"]["containers"];
    for (at, (component, port)) in [("graph-service", 7451), ("executor-service", 7452)].into_iter().enumerate() {
        let url: http::Uri = asked[at]["args"][0].as_str().context("no URL")?.parse()?;
        let names = &chart::object(&certified, "Certificate", &format!("{component}-tls"))?["spec"]["dnsNames"];
        let is_certified = names.as_array().is_some_and(|names| names.iter().any(|name| url.host() == name.as_str()));
        ensure!(is_certified && url.port_u16() == Some(port), "{url}: {names}");
        let policy = chart::object(&objects, "NetworkPolicy", component)?;
        let ingress = policy["spec"]["ingress"].as_array().context("no ingress")?;
        let rule = ingress.iter().find(|rule| rule["ports"][0]["port"] == "admin").context("no rule")?;
        let [from] = rule["from"].as_array().map(Vec::as_slice).unwrap_or_default() else { bail!("{rule}") };
        let allowed = from["podSelector"]["matchLabels"].as_object().context("no pods")?;
        ensure!(allowed.iter().all(|(label, value)| labels[label] == *value), "{allowed:?} is not {labels}");
    }
    Ok(())
}

#[test]
fn rights_and_accounts_may_exist_already() -> anyhow::Result<()> {
    let Some(helm) = Helm::require()? else { return Ok(()) };
    let values = file_flag(&root().join("deploy/chart/ci/given-values.yaml"));
    for object in chart::objects(&helm.template(&[&values])?)? {
        let kind = object["kind"].as_str().unwrap_or_default();
        ensure!(!kind.contains("Role") && !["ServiceAccount", "Secret"].contains(&kind), "{kind}");
    }
    Ok(())
}

#[test]
fn alerts_lead_to_pages_and_the_dashboard_to_grafana() -> anyhow::Result<()> {
    let Some(helm) = Helm::require()? else { return Ok(()) };
    let values = file_flag(&root().join("deploy/chart/ci/monitoring-values.yaml"));
    let objects = chart::objects(&helm.template(&[&values])?)?;
    let alerts = chart::object(&objects, "PrometheusRule", "ownergraph")?;
    let rules = alerts["spec"]["groups"][0]["rules"].as_array().context("no rules")?;
    for rule in rules {
        let page = format!("https://docs.example.com/runbooks/{}.md", rule["alert"].as_str().unwrap_or_default());
        assert_eq!(rule["annotations"]["runbook_url"], page);
    }
    let dashboard = chart::object(&objects, "ConfigMap", "ownergraph-dashboard")?;
    assert_eq!(dashboard["metadata"]["labels"]["grafana_dashboard"], "yes");
    let given = dashboard["data"]["ownergraph.json"].as_str().context("no dashboard")?;
    assert_eq!(given.trim(), fs::read_to_string(root().join("deploy/dashboards/ownergraph.json"))?.trim());
    let monitor = chart::object(&objects, "PodMonitor", "executor-service")?;
    let endpoint = &monitor["spec"]["podMetricsEndpoints"][0];
    assert_eq!(endpoint["scrapeTimeout"], "10s");
    assert_eq!(endpoint["relabelings"][0]["replacement"], "blue");
    let pods = &chart::deployment(&objects, "executor-service")?["spec"]["selector"]["matchLabels"];
    assert_eq!(monitor["spec"]["selector"]["matchLabels"], *pods);
    let view = chart::object(&objects, "ClusterRole", "ownergraph-view")?;
    assert_eq!(view["metadata"]["labels"]["rbac.authorization.k8s.io/aggregate-to-edit"], "true");
    Ok(())
}

#[test]
fn a_kustomization_builds_on_the_manifests() -> anyhow::Result<()> {
    let Some(binaries) = require() else { return Ok(()) };
    let directory = root().join("deploy/manifests");
    let output = Command::new(binaries.program("kubectl")).arg("kustomize").arg(&directory).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut due = Vec::new();
    for file in ["ownergraph.yaml", "flow-control.yaml"] {
        due.extend(chart::objects(&fs::read_to_string(directory.join(file))?)?);
    }
    let built = chart::objects(&String::from_utf8(output.stdout)?)?;
    assert_eq!(built.len(), due.len());
    ensure!(due.iter().all(|object| built.contains(object)), "kustomize changes an object");
    Ok(())
}

#[test]
fn an_autoscaler_alone_decides_on_the_number_of_executors() -> anyhow::Result<()> {
    let Some(helm) = Helm::require()? else { return Ok(()) };
    let values = file_flag(&root().join("deploy/chart/ci/autoscaling-values.yaml"));
    let objects = chart::objects(&helm.template(&[&values])?)?;
    ensure!(chart::deployment(&objects, "executor-service")?["spec"]["replicas"].is_null(), "the chart decides too");
    let scaler = &chart::object(&objects, "HorizontalPodAutoscaler", "executor-service")?["spec"];
    assert_eq!([&scaler["minReplicas"], &scaler["maxReplicas"]], [2, 20]);
    let metric = &scaler["metrics"][0]["external"];
    assert_eq!(metric["metric"]["name"], "ownergraph_queue_items");
    assert_eq!(metric["target"]["averageValue"], "1000");
    let objects = chart::objects(&helm.template(&[])?)?;
    ensure!(chart::object(&objects, "HorizontalPodAutoscaler", "executor-service").is_err(), "it is off by default");
    Ok(())
}
