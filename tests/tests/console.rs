//! The console in Chromium, on a real API server: every page, a deletion by keys alone, and what a tenant sees.
//!
//! `console/tests/cluster.mjs` drives the browser. `BLESS=1` keeps its pictures for the documentation.

use anyhow::{Context as _, ensure};
use http::Method;
use kube::Client;
use serde_json::json;
use std::io::{self, Write as _};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tests::certificates::{Authority, Mounted};
use tests::chart::root;
use tests::examples::fetched;
use tests::load::{configmap, configmaps, create, delete, families, get, namespace, reference_to, send, until};
use tests::process::{Directory, Process, free_port};
use tests::stage::Stage;
use tokio::process::Command;

const CHROMIUM: &str = "/usr/bin/chromium";
const SOON: Duration = Duration::from_secs(60);
/// What the script takes on a slow machine.
const WITHIN: Duration = Duration::from_secs(400);
const DEPENDENTS: usize = 60;

/// The namespace of a tenant, and another one.
const TENANT: &str = r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: tenant, namespace: shop}
rules: [{apiGroups: [""], resources: [configmaps], verbs: [get, list, watch]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: tenant, namespace: shop}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: tenant}
subjects: [{kind: User, name: tenant}]
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
    Ok(())
}

fn apply(stage: &Stage, manifests: &[u8]) -> anyhow::Result<()> {
    let mut kubectl = stage.plane.kubectl();
    let mut running = kubectl.args(["apply", "-f", "-"]).stdin(Stdio::piped()).stdout(Stdio::null()).spawn()?;
    running.stdin.take().context("kubectl has no input")?.write_all(manifests)?;
    ensure!(running.wait()?.success(), "kubectl apply");
    Ok(())
}

/// A running console, and the address that it prints.
async fn console(stage: &Stage, name: &str, directory: &Path, flags: &[String]) -> anyhow::Result<(Process, String)> {
    let flags = [&["console".to_owned(), "--no-browser".to_owned()], flags].concat();
    let console = Process::spawn(name, directory, &stage.programs.path("ownergraph"), &flags)?;
    let read = || async { Ok(console.output()) };
    let address = |output: &str| output.split_whitespace().find(|word| word.contains("/#token=")).map(str::to_owned);
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
    let Some(stage) = Stage::start().await? else { return Ok(()) };
    let directory = Directory::create()?;
    let crds = std::process::Command::new(stage.programs.path("ownergraph")).arg("crds").output()?;
    apply(&stage, &crds.stdout)?;
    scene(&stage.client).await?;
    let protected = || async { Ok(apply(&stage, PROTECTION.as_bytes()).is_ok()) };
    until("the guard is accepted", SOON, protected, |is| *is).await?;
    apply(&stage, TENANT.as_bytes())?;

    let authority = Authority::new("console")?;
    let certificate = authority.sign("graph", &["localhost", "127.0.0.1"])?;
    let mounted = Mounted::new(directory.path().join("tls"), &certificate, &[&authority])?;
    let file = |name: &str| mounted.file(name);
    let address = format!("127.0.0.1:{}", free_port()?);
    let flags = ["--listen", &address, "--tls-cert", &file("tls.crt"), "--tls-key", &file("tls.key")];
    let _collector = stage.collect(directory.path(), &flags).await?;
    delete(&stage.client, &format!("{}/ledger-0", configmaps("bank")), "Background").await?;

    let flags_of = |user: &str| -> anyhow::Result<Vec<String>> {
        let kubeconfig = stage.plane.kubeconfig_of(user)?.display().to_string();
        let flags = ["--kubeconfig", &kubeconfig, "--server", &address, "--tls-ca", &file("ca.crt")];
        Ok(flags.map(str::to_owned).into())
    };
    let (_admin, of_admin) = console(&stage, "console-admin", directory.path(), &flags_of("admin")?).await?;
    let (_tenant, of_tenant) = console(&stage, "console-tenant", directory.path(), &flags_of("tenant")?).await?;
    let script = Command::new("node")
        .arg(root().join("console/tests/cluster.mjs"))
        .args([&of_admin, &of_tenant])
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(WITHIN, script).await.context("the script does not end")??;
    io::stderr().write_all(&output.stdout)?;
    ensure!(output.status.success(), "{}: {}", output.status, String::from_utf8_lossy(&output.stderr));
    let gone = || get(&stage.client, format!("{}/doomed-0", configmaps("shop")));
    until("the deletion that the keys confirmed happens", SOON, gone, Option::is_none).await?;
    Ok(())
}
