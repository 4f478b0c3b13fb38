//! `ownergraph sandbox` and `ownergraph collect` as two processes.

use crate::process::{Http, Running, output, plugin, until};
use http::StatusCode;
use serde_json::{Value, json};
use tempfile::TempDir;

/// A sandbox, and a kubeconfig for it.
pub(crate) struct Cluster {
    process: Running,
    pub(crate) api: Http,
    pub(crate) kubeconfig: String,
    _directory: TempDir,
}

impl Cluster {
    pub(crate) async fn start() -> Cluster {
        let directory = tempfile::tempdir().unwrap();
        let kubeconfig = directory.path().join("kubeconfig").to_str().unwrap().to_owned();
        let mut process = Running::start(&["sandbox", "--write-kubeconfig", &kubeconfig]);
        let line = process.said("sandbox listens on").await;
        assert!(line.ends_with(&format!("export KUBECONFIG={kubeconfig}")), "{line}");
        let address = line.split("http://").nth(1).and_then(|rest| rest.split(';').next()).unwrap();
        Cluster { process, api: Http::at(address), kubeconfig, _directory: directory }
    }

    /// Starts a collector and waits until it is ready. Gives its admin server.
    pub(crate) async fn collector(&self, more: &[&str]) -> (Running, Http) {
        let mut arguments = vec!["collect", "--kubeconfig", &self.kubeconfig, "--admin-listen", "127.0.0.1:0"];
        arguments.extend(["--log-format", "json"]);
        arguments.extend(more);
        if !more.contains(&"--listen") {
            arguments.extend(["--listen", "127.0.0.1:0"]);
        }
        let mut collector = Running::start(&arguments);
        let line: Value = serde_json::from_str(&collector.logged("\"collecting\"").await).unwrap();
        let admin = Http::at(line["admin"].as_str().unwrap());
        until("the collector is ready", async || admin.text("/readyz").await.0 == StatusCode::OK).await;
        (collector, admin)
    }
}

#[tokio::test]
async fn what_lost_its_owner_goes_and_everything_else_stays() {
    let cluster = Cluster::start().await;
    let api = &cluster.api;
    let (collector, admin) = cluster.collector(&["--executors", "2", "--concurrency", "4"]).await;

    let owner = api.create("owner", &[]).await;
    let other = api.create("other", &[]).await;
    let first = api.create("first", &[&owner]).await;
    api.create("below-first", &[&first]).await;
    api.create("second", &[&owner]).await;
    api.create("shared", &[&owner, &other]).await;
    api.create("bystander", &[]).await;
    api.delete("owner").await;
    for name in ["first", "below-first", "second"] {
        until(name, async || api.get(name).await.is_none()).await;
    }
    until("the shared object keeps just the other owner", async || {
        api.get("shared").await.is_some_and(|shared| shared["metadata"]["ownerReferences"] == json!([other]))
    })
    .await;
    assert!(api.get("other").await.is_some() && api.get("bystander").await.is_some());

    let (status, ready) = admin.text("/readyz?verbose").await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(ready.matches("executor: ").count(), 2, "{ready}");
    assert_eq!(admin.text("/livez").await.0, StatusCode::OK);

    assert_eq!(collector.terminate().await.code(), Some(0));
    assert_eq!(cluster.process.terminate().await.code(), Some(0));
}

#[tokio::test]
async fn what_serves_where_it_serves_by_default_is_found() {
    let cluster = Cluster::start().await;
    let arguments = ["collect", "--kubeconfig", &cluster.kubeconfig, "--admin-listen", "127.0.0.1:0"];
    let mut collector = Running::start(&[&arguments[..], &["--mode", "observe"]].concat());
    let line = collector.logged("127.0.0.1:7450").await;
    if line.contains("the port is in use") {
        // By another run of this test on this machine.
        assert!(line.contains("cannot listen on --listen 127.0.0.1:7450"), "{line}");
        return;
    }
    let owner = cluster.api.create("owner", &[]).await;
    cluster.api.create("dependent", &[&owner]).await;
    let ask = async |words: &[&str], kubeconfig: &str| {
        let output = output(&mut plugin(&[words, &["--kubeconfig", kubeconfig]].concat())).await;
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    until("the graph has seen both", async || {
        let (tree, notes) = ask(&["tree", "cm/owner", "--no-status", "-o", "name"], &cluster.kubeconfig).await;
        tree.lines().count() == 2 && notes.is_empty()
    })
    .await;
    let (status, notes) = ask(&["status"], &cluster.kubeconfig).await;
    assert!(status.contains(" leads") && notes.is_empty(), "{status} {notes}");
    let other = Cluster::start().await;
    let (tree, notes) = ask(&["tree", "ns/default", "--no-status"], &other.kubeconfig).await;
    assert!(tree.contains("Namespace/default"), "{tree} {notes}");
    assert!(notes.contains("127.0.0.1:7450 watches another cluster") && notes.contains("directly"), "{notes}");
    assert_eq!(collector.terminate().await.code(), Some(0));
}

#[tokio::test]
async fn an_observer_decides_and_deletes_nothing() {
    let cluster = Cluster::start().await;
    let (collector, admin) = cluster.collector(&["--mode", "observe"]).await;
    let owner = cluster.api.create("owner", &[]).await;
    cluster.api.create("dependent", &[&owner]).await;
    cluster.api.delete("owner").await;
    until("the deletion is decided", async || {
        let (_, metrics) = admin.text("/metrics").await;
        metrics.lines().any(|line| line.contains("decisions_total{action=\"delete\"") && !line.ends_with(" 0"))
    })
    .await;
    assert_eq!(collector.terminate().await.code(), Some(0));
    assert!(cluster.api.get("dependent").await.is_some());
}

#[tokio::test]
async fn one_of_two_elected_replicas_leads_and_the_other_takes_over() {
    let cluster = Cluster::start().await;
    let (first, _) = cluster.collector(&["--elect", "--executors", "1"]).await;
    let (second, admin) = cluster.collector(&["--elect", "--executors", "1", "--listen", "127.0.0.1:0"]).await;
    let leads = async || admin.text("/readyz?verbose").await.1.contains("leadership: this replica leads");
    assert!(!leads().await);
    assert_eq!(first.terminate().await.code(), Some(0));
    until("the second replica leads", leads).await;

    let owner = cluster.api.create("owner", &[]).await;
    cluster.api.create("dependent", &[&owner]).await;
    cluster.api.delete("owner").await;
    until("the dependent is gone", async || cluster.api.get("dependent").await.is_none()).await;
    assert_eq!(second.terminate().await.code(), Some(0));
}

#[tokio::test]
async fn an_unreachable_api_server_is_waited_for_and_a_stop_is_heard_meanwhile() {
    let directory = tempfile::tempdir().unwrap();
    let kubeconfig = directory.path().join("kubeconfig");
    // No process listens on port 1 of this machine.
    sandbox::write_kubeconfig(&kubeconfig, "127.0.0.1:1".parse().unwrap()).unwrap();
    let kubeconfig = kubeconfig.to_str().unwrap();
    let mut collector = Running::start(&[
        "collect",
        "--kubeconfig",
        kubeconfig,
        "--admin-listen",
        "127.0.0.1:0",
        "--listen",
        "127.0.0.1:0",
        "--log-format",
        "json",
    ]);
    let line: Value = serde_json::from_str(&collector.logged("\"collecting\"").await).unwrap();
    let admin = Http::at(line["admin"].as_str().unwrap());
    until("the reason shows", async || {
        let (status, text) = admin.text("/readyz").await;
        status == StatusCode::SERVICE_UNAVAILABLE && text.contains("cannot be reached")
    })
    .await;
    assert_eq!(collector.terminate().await.code(), Some(0));
}
