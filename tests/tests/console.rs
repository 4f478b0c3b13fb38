//! The console in Chromium. On a real API server: every page, a deletion by keys alone, the guards of an operator, what
//! a tenant sees, and a console that users share, as in a cluster. On the sandbox: every page and the deletion, and
//! every page of the sandbox's own console.
//!
//! `console/tests/cluster.mjs` drives the browser. `BLESS=1` keeps its pictures for the documentation.

use anyhow::{Context as _, ensure};
use http::Method;
use kube::Client;
use serde_json::json;
use std::fs;
use std::io::{self, Write as _};
use std::path::Path;
use std::time::Duration;
use tests::certificates::{Authority, Mounted};
use tests::chart::root;
use tests::controlplane::{self, apply, kubectl, require};
use tests::examples::fetched;
use tests::load::{configmap, configmaps, create, delete, families, get, namespace, reference_to, send, until};
use tests::process::{Directory, Process, free_port};
use tests::service::{Programs, Service};
use tests::stage::{Stage, install_guards};
use tokio::process::Command;

const CHROMIUM: &str = "/usr/bin/chromium";
const SOON: Duration = Duration::from_secs(60);
/// The time that the script takes on a slow machine.
const WITHIN: Duration = Duration::from_secs(600);
const DEPENDENTS: usize = 60;

/// The namespace of a tenant, and another one.
const TENANT: &str = r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: tenant, namespace: shop}
rules:
  - {apiGroups: [""], resources: [configmaps], verbs: [get, list, watch]}
  - {apiGroups: [ownergraph.dev], resources: [graphobjects, decisions], verbs: [get, list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: tenant, namespace: shop}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: tenant}
subjects: [{kind: User, name: tenant}]
"#;

/// The user `reader` gets the roles of the chart for operators, and no other right.
const OPERATOR: &str = r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: operator-operate}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: ownergraph-operate}
subjects: [{kind: User, name: reader}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: operator-view}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: ownergraph-view}
subjects: [{kind: User, name: reader}]
"#;

/// Nothing of namespace bank goes.
const PROTECTION: &str = r#"
apiVersion: ownergraph.dev/v1alpha1
kind: Protection
metadata: {name: bank}
spec:
  reason: the ledger is audited
  scope: {targets: [{namespaces: [bank]}]}
"#;

/// The roles of the chart for callers, as they are rendered.
fn roles() -> anyhow::Result<String> {
    let manifests = fs::read_to_string(root().join("deploy/manifests/ownergraph.yaml"))?;
    let is_role = |text: &&str| {
        let named = |name: &str| text.contains(&format!("kind: ClusterRole\nmetadata:\n  name: ownergraph-{name}\n"));
        named("view") || named("operate")
    };
    let roles: Vec<&str> = manifests.split("---\n").filter(is_role).collect();
    ensure!(roles.len() == 2, "view and operate, not {roles:?}");
    Ok(roles.join("---\n"))
}

/// Objects for each page: a cascade to come, two owners of each other, an object that waits for a finalizer, one whose
/// owner is in another namespace, and one that a guard holds.
async fn scene(client: &Client) -> anyhow::Result<()> {
    for name in ["shop", "bank"] {
        namespace(client, name).await?;
    }
    let (shop, bank) = (configmaps("shop"), configmaps("bank"));
    families(client, "shop", "orders", 1, DEPENDENTS).await?;
    families(client, "shop", "doomed", 1, 3).await?;
    families(client, "bank", "ledger", 1, 2).await?;
    let one = create(client, &shop, &configmap("chicken", &[])).await?;
    let other = create(client, &shop, &configmap("egg", &[reference_to(&one)])).await?;
    let mut one = get(client, format!("{shop}/chicken")).await?.context("an object")?;
    one["metadata"]["ownerReferences"] = json!([reference_to(&other)]);
    send(client, Method::PUT, &format!("{shop}/chicken"), Some(&one)).await?;
    let mut slow = configmap("slow", &[]);
    slow["metadata"]["finalizers"] = json!(["example.com/backup"]);
    create(client, &shop, &slow).await?;
    delete(client, &format!("{shop}/slow"), "Background").await?;
    let elsewhere = get(client, format!("{bank}/ledger-0")).await?.context("an object")?;
    let mut stray = configmap("stray", &[reference_to(&elsewhere)]);
    stray["metadata"]["annotations"] = json!({ "ownergraph.dev/hold": "true" });
    create(client, &shop, &stray).await?;
    // One of its dependents is where a tenant of namespace shop sees nothing.
    let parent = create(client, &shop, &configmap("parent", &[])).await?;
    create(client, &shop, &configmap("child", &[reference_to(&parent)])).await?;
    create(client, &bank, &configmap("foreign", &[reference_to(&parent)])).await?;
    application(client).await
}

/// A tree of several kinds, for the pictures.
async fn application(client: &Client) -> anyhow::Result<()> {
    let make = |path: &'static str, owner: &serde_json::Value, name: &str, more: serde_json::Value| {
        let mut object = more;
        object["metadata"]["name"] = json!(name);
        object["metadata"]["ownerReferences"] = json!([reference_to(owner)]);
        async move { create(client, path, &object).await }
    };
    let selector = json!({ "matchLabels": { "app": "web" } });
    let containers = json!([{ "name": "web", "image": "web" }]);
    let template = json!({ "metadata": { "labels": { "app": "web" } }, "spec": { "containers": containers } });
    let workload = json!({ "spec": { "selector": selector, "template": template, "serviceName": "db" } });
    let set = json!({ "spec": { "selector": selector, "template": template } });
    let claim =
        json!({ "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } } });
    let service = json!({ "spec": { "ports": [{ "port": 80 }] } });
    let release = create(client, &configmaps("shop"), &configmap("release", &[])).await?;
    let web = make("/apis/apps/v1/namespaces/shop/deployments", &release, "web", set.clone()).await?;
    for name in ["web-5d9c", "web-7f42"] {
        make("/apis/apps/v1/namespaces/shop/replicasets", &web, name, set.clone()).await?;
    }
    let db = make("/apis/apps/v1/namespaces/shop/statefulsets", &release, "db", workload).await?;
    for name in ["data-db-0", "data-db-1", "data-db-2"] {
        make("/api/v1/namespaces/shop/persistentvolumeclaims", &db, name, claim.clone()).await?;
    }
    for name in ["web", "db"] {
        make("/api/v1/namespaces/shop/services", &release, name, service.clone()).await?;
    }
    make("/api/v1/namespaces/shop/secrets", &release, "db-password", json!({})).await?;
    Ok(())
}

/// A running console, and the address that it prints.
async fn console(
    programs: &Programs,
    name: &str,
    directory: &Path,
    flags: &[String],
) -> anyhow::Result<(Process, String)> {
    let flags = [flags, &["--no-browser".to_owned()]].concat();
    let console = Process::spawn(name, directory, &programs.path("ownergraph"), &flags)?;
    let read = || async { Ok(console.output()) };
    let address = |output: &str| output.split_whitespace().find(|word| word.contains("#token=")).map(str::to_owned);
    let output = until("the console listens", SOON, read, |output| address(output).is_some()).await?;
    Ok((console, address(&output).context("an address")?))
}

/// Whether the machine has what the script needs.
fn is_equipped() -> anyhow::Result<()> {
    ensure!(Path::new(CHROMIUM).exists(), "{CHROMIUM} is missing: install the package chromium");
    let built = root().join("console/dist/index.html").exists() && root().join("console/node_modules").exists();
    ensure!(built, "the console is not built: run `npm ci` and `npm run build` in console/, then build this test anew");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn every_page_works_on_a_real_cluster() -> anyhow::Result<()> {
    if fetched(is_equipped())?.is_none() {
        return Ok(());
    }
    let _turn = crate::turn().await?;
    let Some(stage) = Stage::start().await? else { return Ok(()) };
    let directory = Directory::create()?;
    install_guards(&stage.programs, stage.plane.kubectl(), &stage.client).await?;
    scene(&stage.client).await?;
    stage.plane.apply(PROTECTION.as_bytes())?;
    for text in [TENANT, &roles()?, OPERATOR] {
        stage.plane.apply(text.as_bytes())?;
    }

    let authority = Authority::new("console")?;
    let certificate = authority.sign("graph", &["localhost", "127.0.0.1"])?;
    let mounted = Mounted::new(directory.path().join("tls"), &certificate, &[&authority])?;
    let file = |name: &str| mounted.file(name);
    let address = format!("127.0.0.1:{}", free_port()?);
    let kubeconfig = stage.plane.kubeconfig().display().to_string();
    let (certificate, key) = (file("tls.crt"), file("tls.key"));
    let listen = ["--listen", &address, "--tls-cert", &certificate, "--tls-key", &key, "--api-server-tokens"];
    let flags = [&["--kubeconfig", &kubeconfig], &listen[..]].concat();
    let _graph = Service::start(&stage.programs, "graph-service", "graph", directory.path(), &flags)?;
    // A caller at an address shows the token of a file.
    let flags_of = |user: &str| -> anyhow::Result<Vec<String>> {
        let (kubeconfig, token) = (stage.plane.kubeconfig_of(user)?, directory.path().join(format!("{user}.token")));
        fs::write(&token, stage.plane.token_of(user)?)?;
        let (kubeconfig, token) = (kubeconfig.display().to_string(), token.display().to_string());
        let server = format!("https://{address}");
        let flags =
            ["--kubeconfig", &kubeconfig, "--server", &server, "--tls-ca", &file("ca.crt"), "--token-file", &token];
        Ok(flags.map(str::to_owned).into())
    };
    let program = stage.programs.path("ownergraph");
    let status = [vec!["status".to_owned()], flags_of("admin")?].concat();
    let ask = || async { Ok(Command::new(&program).args(&status).output().await?) };
    // Findings of the status are no error.
    until("the graph service answers", SOON, ask, |answer| answer.status.code().is_some_and(|code| code != 1)).await?;
    delete(&stage.client, &format!("{}/ledger-0", configmaps("bank")), "Background").await?;

    let programs = &stage.programs;
    let flags = [vec!["console".to_owned()], flags_of("admin")?].concat();
    let (_admin, of_admin) = console(programs, "console-admin", directory.path(), &flags).await?;
    let flags = [["console", "--namespace", "shop"].map(str::to_owned).to_vec(), flags_of("tenant")?].concat();
    let (_tenant, of_tenant) = console(programs, "console-tenant", directory.path(), &flags).await?;
    let flags = [vec!["console".to_owned()], flags_of("reader")?].concat();
    let (_operator, of_operator) = console(programs, "console-operator", directory.path(), &flags).await?;
    // As in a cluster: without a user of its own, for users who sign in.
    let shared = directory.path().join("shared.kubeconfig");
    let mut config: serde_json::Value = serde_json::from_slice(&fs::read(stage.plane.kubeconfig())?)?;
    config["users"] = json!([]);
    config["contexts"][0]["context"]["user"] = json!("");
    fs::write(&shared, config.to_string())?;
    let page = format!("127.0.0.1:{}", free_port()?);
    let (shared, server, origin) =
        (shared.display().to_string(), format!("https://{address}"), format!("http://{page}"));
    let flags = ["console", "--listen", &page, "--public-url", &origin, "--kubeconfig", &shared, "--server", &server];
    let mut flags: Vec<String> = flags.map(str::to_owned).into();
    flags.extend(["--tls-ca".to_owned(), file("ca.crt")]);
    let _shared = Process::spawn("console-shared", directory.path(), &program, &flags)?;
    let addresses = ["cluster", &of_admin, &of_operator, &of_tenant, &origin];
    script(&addresses, Some(stage.plane.token_of("tenant")?), &stage.client).await
}

/// Runs the script, and waits for the deletion that its keys confirm.
async fn script(arguments: &[&str], token: Option<&str>, client: &Client) -> anyhow::Result<()> {
    let script = Command::new("node")
        .arg(root().join("console/tests/cluster.mjs"))
        .args(arguments)
        .envs(token.map(|token| ("TENANT_TOKEN", token)))
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(WITHIN, script).await.context("the script does not end")??;
    io::stderr().write_all(&output.stdout)?;
    ensure!(output.status.success(), "{}: {}", output.status, String::from_utf8_lossy(&output.stderr));
    let gone = || get(client, format!("{}/doomed-0", configmaps("shop")));
    until("the deletion that the keys confirmed happens", SOON, gone, Option::is_none).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn every_page_works_on_the_sandbox() -> anyhow::Result<()> {
    let (Some(()), Some(binaries)) = (fetched(is_equipped())?, require()) else { return Ok(()) };
    let _turn = crate::turn().await?;
    let (programs, directory) = (Programs::build()?, Directory::create()?);
    let at = directory.path().join("sandbox.kubeconfig");
    let (kubeconfig, owned) = (at.display().to_string(), str::to_owned);
    let flags = ["sandbox", "--write-kubeconfig", &kubeconfig, "--console"].map(owned);
    let (_sandbox, own) = console(&programs, "sandbox", directory.path(), &flags).await?;
    let client = controlplane::client(&at).await?;
    install_guards(&programs, kubectl(&binaries, &at, directory.path()), &client).await?;
    scene(&client).await?;
    apply(kubectl(&binaries, &at, directory.path()), PROTECTION.as_bytes())?;

    let address = format!("127.0.0.1:{}", free_port()?);
    let flags = ["--kubeconfig", &kubeconfig, "--listen", &address];
    let mut graph = Service::start(&programs, "graph-service", "graph", directory.path(), &flags)?;
    graph.ready().await?;
    delete(&client, &format!("{}/ledger-0", configmaps("bank")), "Background").await?;
    let flags = ["console", "--kubeconfig", &kubeconfig, "--server", &address].map(owned);
    let (_console, served) = console(&programs, "console", directory.path(), &flags).await?;
    script(&["sandbox", &served, &own], None, &client).await
}
