//! Callers that have a kubeconfig and nothing else, with the default values of the chart. Each kind of credentials
//! reaches the graph service through the API server, and gets the answers that its rights allow.

use super::apply;
use super::issuer::Issuer;
use super::kubelet::Kubelet;
use super::site::{SOON, Site, Wire};
use anyhow::{Context, ensure};
use http::Method;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use tests::certificates::Authority;
use tests::chart::{self, Helm, NAMESPACE};
use tests::controlplane::Options;
use tests::load::{self, create, get, until};
use tests::process::Directory;

const PUBLISHED: &str = "/api/v1/namespaces/kube-public/configmaps/ownergraph";
/// The name of the leader's pod: `Site::graph` gives its Lease and its pod one name.
const LEADER: &str = "ownergraph";

fn binding(kind: &str, name: &str, namespace: Option<&str>, role: &str, subject: Value) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": { "name": name, "namespace": namespace },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role }, "subjects": [subject],
    })
}

/// Accounts and rights: a tenant and a guest of one namespace, an operator, and two administrators. One administrator
/// has a certificate, and the guest an identity of OpenID Connect.
fn people() -> Vec<Value> {
    let account = |name: &str| json!({ "kind": "ServiceAccount", "name": name, "namespace": NAMESPACE });
    let made = |name: &str| json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": name, "namespace": NAMESPACE } });
    let read = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": { "name": "reads-maps" },
        "rules": [{ "apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list"] }],
    });
    let user = |name: &str| json!({ "kind": "User", "name": name, "apiGroup": "rbac.authorization.k8s.io" });
    vec![
        made("tenant"),
        made("operator"),
        made("chief"),
        read,
        binding("RoleBinding", "tenant-maps", Some("shop"), "reads-maps", account("tenant")),
        binding("RoleBinding", "tenant-view", Some("shop"), "ownergraph-view", account("tenant")),
        binding("RoleBinding", "guest-maps", Some("shop"), "reads-maps", user("oidc:grace")),
        binding("RoleBinding", "guest-view", Some("shop"), "ownergraph-view", user("oidc:grace")),
        binding("ClusterRoleBinding", "operator-maps", None, "reads-maps", account("operator")),
        binding("ClusterRoleBinding", "operator-view", None, "ownergraph-view", account("operator")),
        binding("ClusterRoleBinding", "operator-operate", None, "ownergraph-operate", account("operator")),
        binding("ClusterRoleBinding", "administrator", None, "cluster-admin", user("ada")),
        binding("ClusterRoleBinding", "chief", None, "cluster-admin", account("chief")),
    ]
}

/// The node, and the leader's pod on it, whose port the kubelet has.
async fn pod(site: &Site, kubelet: &Kubelet) -> anyhow::Result<()> {
    let node = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": { "name": "node" },
        "status": {
            "addresses": [{ "type": "InternalIP", "address": "127.0.0.1" }],
            "daemonEndpoints": { "kubeletEndpoint": { "Port": kubelet.port } },
        },
    });
    create(&site.client, "/api/v1/nodes", &node).await?;
    let mut pod = chart::pod(chart::object(&site.installed, "Deployment", "graph-service")?, LEADER);
    pod["spec"]["nodeName"] = json!("node");
    create(&site.client, &format!("/api/v1/namespaces/{NAMESPACE}/pods"), &pod).await?;
    Ok(())
}

struct Callers {
    /// With a client certificate.
    administrator: PathBuf,
    /// With a token in the kubeconfig, as the next.
    chief: PathBuf,
    tenant: PathBuf,
    /// With a token from an exec plug-in.
    operator: PathBuf,
    /// With an expired identity token, and a token to refresh it.
    guest: PathBuf,
}

impl Callers {
    async fn of(site: &Site, authority: &Authority, issuer: &Issuer, directory: &Path) -> anyhow::Result<Callers> {
        let signed = authority.sign("ada", &[])?;
        let file = |name: &str, text: &str| {
            let file = directory.join(name);
            fs::write(&file, text).map(|()| file)
        };
        let certificate = json!({
            "client-certificate": file("ada.crt", &signed.certificate)?, "client-key": file("ada.key", &signed.key)?,
        });
        let credential = json!({
            "apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
            "status": { "token": site.token("operator", json!({})).await? },
        });
        let printed = file("credential.json", &credential.to_string())?;
        let exec = json!({
            "apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never", "command": "cat", "args": [printed],
        });
        Ok(Callers {
            administrator: site.write("administrator", &certificate)?,
            chief: site.kubeconfig("chief").await?,
            tenant: site.kubeconfig("tenant").await?,
            operator: site.write("operator", &json!({ "exec": exec }))?,
            guest: site.write("guest", &issuer.user())?,
        })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kubeconfig_is_enough_for_every_question() -> anyhow::Result<()> {
    let (files, authority) = (Directory::create()?, Authority::new("cluster")?);
    let clients = files.path().join("clients.crt");
    fs::write(&clients, authority.pem())?;
    let flag = format!("--client-ca-file={}", clients.display());
    let issuer = Issuer::start(files.path(), "grace").await?;
    let apiserver_flags = [issuer.apiserver_flags(), vec![flag]].concat();
    let Some(mut site) = Site::with(Options { apiserver_flags, ..Options::default() }).await? else {
        return Ok(());
    };
    site.trusted = Some(issuer.authority.clone());
    load::namespace(&site.client, "shop").await?;
    load::namespace(&site.client, "bank").await?;
    apply(&site.plane, &people(), &[])?;
    for namespace in ["shop", "bank"] {
        load::families(&site.client, namespace, "owner", 1, 2).await?;
    }
    let callers = Callers::of(&site, &authority, &issuer, files.path()).await?;
    let graph = site.kubeconfig("graph-service").await?;
    let (graph, listen) = site.graph(Wire::Tls, &graph, LEADER)?;
    let kubelet = Kubelet::start(files.path(), &listen).await?;
    pod(&site, &kubelet).await?;
    let published = || async {
        let map = get(&site.client, PUBLISHED).await?.context("the chart publishes nothing")?;
        Ok(map["data"]["ca.crt"].as_str().map(str::to_owned))
    };
    until("the authority is published", SOON, published, |authority| authority.is_some()).await?;
    let leads = || async {
        let words = ["tree", "cm/owner-0", "-n", "shop", "--no-status", "-o", "name"];
        let answers = [
            site.person(&callers.administrator, &words).await?,
            site.person(&callers.chief, &words).await?,
            site.person(&callers.operator, &words).await?,
            site.person(&callers.tenant, &words).await?,
            site.person(&callers.guest, &words).await?,
        ];
        Ok(answers.map(|(code, answer, said)| format!("{code} {} {said}", answer.lines().count())))
    };
    until("each kind of credentials is accepted", SOON, leads, |answers| answers.iter().all(|one| one == "0 3 "))
        .await?;
    until("`helm test` succeeds", SOON, || async { site.helm_test(&graph) }, |(succeeds, _)| *succeeds).await?;

    let (tree, why, plan) =
        (["tree", "cm/owner-0", "--no-status"], ["why", "cm/owner-0"], ["plan", "delete", "cm/owner-0"]);
    // A pause that is not effective yet has a note, except where its name alone is asked for.
    let pause = ["pause", "--kind", "secrets", "--for", "1m", "--reason", "a test", "-o", "name"];
    let protect = ["protect", "keep", "--kind", "secrets", "--reason", "a test"];
    let budget = ["budget", "few", "--max", "5", "--per", "1m", "--on-exceeded", "hold", "--reason", "a test"];
    let as_operator = ["--as", "system:serviceaccount:ownergraph:operator"];
    let (shop, bank) = (["-n", "shop"], ["-n", "bank"]);
    for (who, kubeconfig, words, code, says) in [
        ("administrator", &callers.administrator, [&why[..], &shop].concat(), 0, ""),
        ("administrator", &callers.administrator, [&plan[..], &bank].concat(), 0, ""),
        ("administrator", &callers.administrator, pause.to_vec(), 0, ""),
        ("chief", &callers.chief, [&tree[..], &bank].concat(), 0, ""),
        ("chief", &callers.chief, [&why[..], &shop].concat(), 0, ""),
        ("chief", &callers.chief, [&plan[..], &bank].concat(), 0, ""),
        ("chief", &callers.chief, pause.to_vec(), 0, ""),
        ("operator", &callers.operator, [&tree[..], &bank].concat(), 0, ""),
        ("operator", &callers.operator, [&why[..], &bank].concat(), 0, ""),
        ("operator", &callers.operator, [&plan[..], &shop].concat(), 0, ""),
        ("operator", &callers.operator, pause.to_vec(), 0, ""),
        ("operator", &callers.operator, protect.to_vec(), 0, ""),
        ("operator", &callers.operator, vec!["release", "protection/keep", "--yes"], 0, "protection/keep holds "),
        ("operator", &callers.operator, budget.to_vec(), 0, ""),
        ("operator", &callers.operator, vec!["approve", "budget/few"], 0, ""),
        ("tenant", &callers.tenant, protect.to_vec(), 1, "cannot create resource \"protections\""),
        ("tenant", &callers.tenant, [&why[..], &shop].concat(), 0, ""),
        ("tenant", &callers.tenant, [&plan[..], &shop].concat(), 0, ""),
        ("tenant", &callers.tenant, [&tree[..], &bank].concat(), 1, "forbidden"),
        ("tenant", &callers.tenant, pause.to_vec(), 1, "may not update pauses.ownergraph.dev for all namespaces"),
        ("guest", &callers.guest, [&tree[..], &shop].concat(), 0, ""),
        ("guest", &callers.guest, [&why[..], &shop].concat(), 0, ""),
        ("guest", &callers.guest, [&tree[..], &bank].concat(), 1, "forbidden"),
        ("impersonator", &callers.administrator, [&pause[..], &as_operator].concat(), 1, "not for the user of --as"),
        // The plug-in lists the cluster itself, as the user of --as, who may not.
        (
            "impersonator",
            &callers.administrator,
            [&tree[..], &shop, &as_operator].concat(),
            1,
            "resource types cannot be listed: configmaps",
        ),
    ] {
        let (ended, answer, said) = site.person(kubeconfig, &words).await?;
        ensure!(ended == code && said.contains(says), "{who} {words:?}: {ended} instead of {code}: {answer}{said}");
        ensure!(!says.is_empty() || said.is_empty(), "{who} {words:?}: a fallback: {said}");
    }
    ensure!(issuer.refreshed() >= 4, "the issuer gave {} tokens", issuer.refreshed());
    the_commands_for_k9s_run(&site, &callers.chief).await?;
    nothing_is_sent_to_an_unproven_server(&site, &callers).await
}

/// Runs each command of the plug-in file for k9s about a row of a namespaced type, as k9s fills it in.
async fn the_commands_for_k9s_run(site: &Site, kubeconfig: &Path) -> anyhow::Result<()> {
    let file: Value = serde_saphyr::from_str(&fs::read_to_string(chart::root().join("console/k9s/plugins.yaml"))?)?;
    let user: Value = serde_saphyr::from_str(&fs::read_to_string(kubeconfig)?)?;
    let context = user["current-context"].as_str().context("a kubeconfig has a current context")?;
    let plugins = file["plugins"].as_object().context("the file has plug-ins")?;
    ensure!(plugins.len() == 3, "tree, why and plan: {file}");
    for (name, plugin) in plugins {
        let arguments = plugin["args"].as_array().context("a plug-in has arguments")?;
        let arguments: Vec<String> = arguments
            .iter()
            .filter_map(Value::as_str)
            .map(|argument| {
                let row = [("${RESOURCE_NAME}", "configmaps"), ("${RESOURCE_GROUP}", ""), ("$CONTEXT", context)];
                let row = row.into_iter().chain([("$NAMESPACE", "shop"), ("$NAME", "owner-0")]);
                row.fold(argument.to_owned(), |argument, (variable, value)| argument.replace(variable, value))
            })
            .collect();
        let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let (flags, words) = words.split_at(words.iter().position(|&word| word == "kubectl").context("kubectl")?);
        ensure!(plugin["command"] == "watch" && flags.contains(&"--exec"), "{name}: a shell reads the name: {plugin}");
        ensure!(words[1] == "ownergraph", "{name}: {words:?}");
        let (ended, answer, said) = site.person(kubeconfig, &words[2..]).await?;
        ensure!(ended == 0 && said.is_empty() && answer.contains("owner-0"), "{name}: {ended} {answer}{said}");
    }
    Ok(())
}

/// With the authority of another server in the ConfigMap, no question arrives, and a command that can do without the
/// service says why it does.
async fn nothing_is_sent_to_an_unproven_server(site: &Site, callers: &Callers) -> anyhow::Result<()> {
    let foreign = json!({ "data": { "ca.crt": Authority::new("another")?.pem() } });
    load::send(&site.client, Method::PATCH, PUBLISHED, Some(&foreign)).await?;
    let unproven = "is signed by none of the authorities in ConfigMap kube-public/ownergraph";
    for kubeconfig in [&callers.administrator, &callers.chief, &callers.tenant, &callers.operator] {
        let pause = ["pause", "--namespace", "shop", "--for", "1m", "--reason", "a test"];
        let (ended, _, said) = site.person(kubeconfig, &pause).await?;
        ensure!(ended == 1 && said.contains(unproven), "{}: {ended} {said}", kubeconfig.display());
    }
    let tree = ["tree", "cm/owner-0", "-n", "shop", "--no-status", "-o", "name"];
    let (ended, answer, said) = site.person(&callers.chief, &tree).await?;
    ensure!(ended == 0 && answer.lines().count() == 3, "{ended} {answer} {said}");
    ensure!(said.starts_with("note: ") && said.contains(unproven), "{said}");
    Ok(())
}

#[test]
fn everyone_may_forward_ports_only_where_no_other_pods_are_expected() -> anyhow::Result<()> {
    let Some(helm) = Helm::require()? else { return Ok(()) };
    for (namespace, flag, is_granted) in [
        (NAMESPACE, "mode=enforce", true),
        ("team-ownergraph", "mode=enforce", true),
        ("monitoring", "mode=enforce", false),
        ("kube-system", "mode=enforce", false),
        ("monitoring", "access.portForward=true", true),
        (NAMESPACE, "access.portForward=false", false),
        (NAMESPACE, "access.publish=false", false),
        (NAMESPACE, "tls.enabled=false", false),
    ] {
        let rendered = helm.template_in(namespace, &[&format!("--set={flag}")])?;
        ensure!(rendered.contains("pods/portforward") == is_granted, "{namespace} {flag}");
    }
    Ok(())
}
