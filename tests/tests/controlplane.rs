//! The control plane of other tests. It starts, answers, restarts, and leaves nothing behind.

use std::env;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::Api;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::client::Body;
use kube_api::{Access, connect};
use tests::controlplane::{self, Binaries, CollectorOptions, ControlPlane, Options, User};
use tests::load::{configmap, configmaps, create, delete, get, reference_to, until};
use tests::service::{Fleet, Programs};
use tokio::time::{interval, timeout};

/// The variable that gives the victim process its part in the test.
const VICTIM: &str = "CONTROLPLANE_TEST_VICTIM";
/// The word before each process id and before the directory in the victim's standard output. The test harness also
/// prints there.
const MARK: &str = "controlplane-victim:";
const GONE_WITHIN: Duration = Duration::from_secs(60);

#[tokio::test]
async fn kubectl_and_client_see_the_same_server() -> anyhow::Result<()> {
    let Some(binaries) = controlplane::require() else { return Ok(()) };
    let plane = controlplane::shared(&binaries).await?;

    let before = plane.server_metrics().await?;
    kubectl(plane, &["create", "configmap", "from-kubectl", "--from-literal=key=value"])?;
    let configmaps: Api<ConfigMap> = Api::namespaced(plane.client().await?, "default");
    let configmap = configmaps.get("from-kubectl").await?;
    assert_eq!(configmap.data.context("no data")?["key"], "value");

    let created = plane.server_metrics().await?.since(&before);
    let posts = |counts: &controlplane::RequestCounts| {
        counts.total(|request| request.verb == "POST" && request.resource == "configmaps" && request.code == "201")
    };
    assert!(posts(&created) >= 1, "{created:?}");

    let version = plane.client().await?.apiserver_version().await?;
    assert_eq!((version.major.as_str(), version.minor.as_str()), ("1", "36"), "{version:?}");
    assert!(version.git_version.starts_with("v1.36."), "{version:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_shows_its_authority_is_reached_as_by_kubectl() -> anyhow::Result<()> {
    let Some(binaries) = controlplane::require() else { return Ok(()) };
    let options = Options { serves_authority: true, ..Options::default() };
    let plane = ControlPlane::start_with(&binaries, options).await?;
    kubectl(&plane, &["get", "--raw", "/readyz"])?;
    let client = plane.client().await?;
    let owner = create(&client, &configmaps("default"), &configmap("owner", &[])).await?;
    create(&client, &configmaps("default"), &configmap("owned", &[reference_to(&owner)])).await?;

    let programs = Programs::build()?;
    let _fleet = Fleet::start(&programs, plane.kubeconfig(), 1).await?;
    let mut tree = Command::new(programs.path("ownergraph"));
    tree.args(["tree", "cm/owner", "-n", "default", "--direct", "--kubeconfig"]).arg(plane.kubeconfig());
    let tree = tree.output().context("running ownergraph")?;
    ensure!(tree.status.success() && String::from_utf8_lossy(&tree.stdout).contains("owned"), "{tree:?}");
    delete(&client, &format!("{}/owner", configmaps("default")), "Background").await?;
    until(
        "the dependent is gone",
        GONE_WITHIN,
        || get(&client, format!("{}/owned", configmaps("default"))),
        |owned| owned.is_none(),
    )
    .await?;
    Ok(())
}

#[tokio::test]
async fn short_requests_share_a_connection_and_watches_do_not() -> anyhow::Result<()> {
    let Some(binaries) = controlplane::require() else { return Ok(()) };
    let plane = controlplane::shared(&binaries).await?;
    let access = Access { kubeconfig: Some(plane.kubeconfig().to_owned()), ..Access::default() };
    let cluster = connect(&access).await?;
    for (client, version) in [
        (cluster.sharing_client()?, http::Version::HTTP_2),
        (cluster.another_client()?, http::Version::HTTP_11),
        (cluster.client, http::Version::HTTP_11),
    ] {
        let response = client.send(http::Request::get("/version").body(Body::empty())?).await?;
        ensure!(response.version() == version, "{:?} instead of {version:?}", response.version());
    }
    Ok(())
}

#[tokio::test]
async fn users_are_authenticated_and_without_rights() -> anyhow::Result<()> {
    let Some(binaries) = controlplane::require() else { return Ok(()) };
    let viewer = User { name: "viewer".to_owned(), groups: vec!["viewers".to_owned()] };
    let options = Options { users: vec![viewer], ..Options::default() };
    let plane = ControlPlane::start_with(&binaries, options).await?;
    for user in ["reader", "tenant", "viewer"] {
        let namespaces: Api<Namespace> = Api::all(plane.client_of(user).await?);
        let refused = namespaces.list(&ListParams::default()).await.expect_err("no role grants this");
        assert!(refused.to_string().contains(&format!("User \"{user}\" cannot list")), "{refused}");
    }

    kubectl(&plane, &["create", "clusterrole", "configmap-viewer", "--verb=list", "--resource=configmaps"])?;
    kubectl(&plane, &["create", "clusterrolebinding", "viewers", "--clusterrole=configmap-viewer", "--group=viewers"])?;
    let configmaps: Api<ConfigMap> = Api::namespaced(plane.client_of("viewer").await?, "default");
    eventually("the granted right is in force", async || configmaps.list(&ListParams::default()).await.is_ok()).await?;
    assert!(plane.client_of("stranger").await.is_err());
    Ok(())
}

#[tokio::test]
async fn a_restart_keeps_address_and_data() -> anyhow::Result<()> {
    let Some(binaries) = controlplane::require() else { return Ok(()) };
    let mut plane = ControlPlane::start(&binaries).await?;
    let configmaps: Api<ConfigMap> = Api::namespaced(plane.client().await?, "default");
    configmaps.create(&PostParams::default(), &named("kept")).await?;

    plane.stop_apiserver();
    configmaps.get("kept").await.expect_err("no process listens there");
    plane.start_apiserver().await?;
    configmaps.get("kept").await?;

    let apiserver = plane.apiserver().context("just started")?;
    apiserver.pause()?;
    assert!(timeout(Duration::from_millis(300), configmaps.get("kept")).await.is_err(), "a paused server answered");
    apiserver.resume()?;
    configmaps.get("kept").await?;
    Ok(())
}

#[tokio::test]
async fn a_server_that_does_not_start_says_why() -> anyhow::Result<()> {
    let Some(binaries) = controlplane::require() else { return Ok(()) };
    let options = Options { apiserver_flags: vec!["--no-such-flag".to_owned()], ..Options::default() };
    let error = ControlPlane::start_with(&binaries, options).await.expect_err("there is no such flag");
    assert!(format!("{error:#}").contains("unknown flag: --no-such-flag"), "{error:#}");
    Ok(())
}

#[tokio::test]
async fn upstream_collects() -> anyhow::Result<()> {
    let Some(binaries) = controlplane::require() else { return Ok(()) };
    let plane = ControlPlane::start(&binaries).await?;
    let options =
        CollectorOptions { requests_per_second: Some(1_000), workers: Some(4), ..CollectorOptions::default() };
    let collector = plane.start_upstream_collector(&options).await?;
    let configmaps: Api<ConfigMap> = Api::namespaced(plane.client().await?, "default");
    let owner = configmaps.create(&PostParams::default(), &named("owner")).await?;
    let mut dependent = named("dependent");
    let owner_uid = owner.metadata.uid.context("a created object has a uid")?;
    dependent.metadata.owner_references = Some(vec![k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference {
        api_version: "v1".to_owned(),
        kind: "ConfigMap".to_owned(),
        name: "owner".to_owned(),
        uid: owner_uid,
        ..Default::default()
    }]);
    configmaps.create(&PostParams::default(), &dependent).await?;
    configmaps.delete("owner", &DeleteParams::background()).await?;
    eventually("the dependent is gone", async || matches!(configmaps.get_opt("dependent").await, Ok(None))).await?;

    let pid = collector.process().pid();
    drop(collector);
    assert!(!runs(pid), "the collector outlived its value");
    Ok(())
}

#[tokio::test]
async fn a_dropped_control_plane_is_gone() -> anyhow::Result<()> {
    let Some(binaries) = controlplane::require() else { return Ok(()) };
    let plane = ControlPlane::start(&binaries).await?;
    let (pids, directory) = remains(&plane);
    assert!(pids.iter().all(|pid| runs(*pid)) && directory.exists());
    drop(plane);
    assert!(!pids.iter().any(|pid| runs(*pid)), "servers outlived their value");
    assert!(!directory.exists(), "{} is left", directory.display());
    Ok(())
}

/// A signal kills one victim while it runs. The test of the other victim panics, with the control plane in a `static`
/// that is never dropped.
#[tokio::test]
async fn a_test_process_leaves_nothing_behind_however_it_ends() -> anyhow::Result<()> {
    let Some(binaries) = controlplane::require() else { return Ok(()) };
    if let Some(part) = env::var_os(VICTIM) {
        return victim(&binaries, part == "panic").await;
    }
    for part in ["hang", "panic"] {
        let mut child = Command::new(env::current_exe()?)
            .args(["controlplane::a_test_process_leaves_nothing_behind_however_it_ends", "--exact", "--nocapture"])
            .env(VICTIM, part)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let (pids, directory) = report(&mut child)?;
        ensure!(pids.len() == 2 && directory.exists(), "{part}: {pids:?} {directory:?}");
        if part == "hang" {
            child.kill()?;
        }
        ensure!(!child.wait()?.success(), "{part}: the victim was to fail");
        eventually("servers and directory are gone", async || {
            !pids.iter().any(|pid| runs(*pid)) && !directory.exists()
        })
        .await?;
    }
    Ok(())
}

async fn victim(binaries: &Binaries, panics: bool) -> anyhow::Result<()> {
    let plane = if panics { controlplane::shared(binaries).await? } else { &ControlPlane::start(binaries).await? };
    let (pids, directory) = remains(plane);
    let report: String = pids.iter().map(|pid| format!("{MARK}{pid}\n")).collect();
    // The victim writes its report directly to the stream, in one piece and on its own line.
    write!(std::io::stdout().lock(), "\n{report}{MARK}{}\n", directory.display())?;
    assert!(!panics, "the victim panics as it was told to");
    std::future::pending().await
}

/// Reads the victim's report. The victim's standard output ends with the victim.
fn report(child: &mut Child) -> anyhow::Result<(Vec<u32>, PathBuf)> {
    let mut lines = BufReader::new(child.stdout.take().context("no standard output")?).lines();
    let mut marked = || -> anyhow::Result<String> {
        loop {
            let line = lines.next().context("the victim ended without a report")??;
            if let Some(marked) = line.strip_prefix(MARK) {
                return Ok(marked.to_owned());
            }
        }
    };
    let pids = vec![marked()?.parse()?, marked()?.parse()?];
    Ok((pids, PathBuf::from(marked()?)))
}

fn remains(plane: &ControlPlane) -> (Vec<u32>, PathBuf) {
    let pids = plane.apiserver().into_iter().chain([plane.etcd()]).map(|process| process.pid()).collect();
    (pids, plane.directory().to_owned())
}

/// Returns whether the process runs. A zombie does not run.
fn runs(pid: u32) -> bool {
    let stat = fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat"));
    stat.is_ok_and(|stat| stat.rsplit(')').next().is_some_and(|fields| !fields.trim_start().starts_with('Z')))
}

fn kubectl(plane: &ControlPlane, arguments: &[&str]) -> anyhow::Result<()> {
    let output = plane.kubectl().args(arguments).output()?;
    ensure!(output.status.success(), "kubectl {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

fn named(name: &str) -> ConfigMap {
    let mut configmap = ConfigMap::default();
    configmap.metadata.name = Some(name.to_owned());
    configmap
}

async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) -> anyhow::Result<()> {
    let polling = async {
        let mut ticks = interval(Duration::from_millis(20));
        while !holds().await {
            ticks.tick().await;
        }
    };
    timeout(GONE_WITHIN, polling).await.with_context(|| format!("not within {GONE_WITHIN:?}: {what}"))
}
