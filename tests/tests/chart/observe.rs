//! The installation that only observes. The API server's audit log is the judge of what it writes.

use super::site::{PAUSES, SOON, Site, Wire};
use anyhow::{Context, ensure};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use tests::chart::{self, root};
use tests::controlplane::Options;
use tests::load::{configmap, configmaps, create, delete, namespace, reference_to, until};
use tests::process::Directory;

const POLICY: &str = r#"{ "apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"],
    "rules": [{ "level": "Metadata" }] }"#;
const ACCOUNT: &str = "system:serviceaccount:ownergraph:graph-service";

/// The requests of the graph service, each as its verb, its resource, and the status of the answer.
fn requests(log: &str) -> anyhow::Result<BTreeSet<(String, String, u64)>> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let lines =
        log.lines().map(serde_json::from_str::<Value>).collect::<Result<Vec<_>, _>>().context("an audit log")?;
    let own = lines.iter().filter(|event| event["user"]["username"] == ACCOUNT);
    Ok(own
        .map(|event| {
            let code = event["responseStatus"]["code"].as_u64().unwrap_or(0);
            (text(&event["verb"]), text(&event["objectRef"]["resource"]), code)
        })
        .collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_installation_that_observes_writes_nothing_but_its_lease() -> anyhow::Result<()> {
    let directory = Directory::create()?;
    let [policy, log] = ["policy.json", "audit.log"].map(|file| directory.path().join(file));
    fs::write(&policy, POLICY)?;
    let apiserver_flags =
        vec![format!("--audit-policy-file={}", policy.display()), format!("--audit-log-path={}", log.display())];
    let values = format!("--values={}", root().join("deploy/chart/values-observe.yaml").display());
    let options = Options { apiserver_flags, ..Options::default() };
    // With the definitions, there may be guards, whose status an active collector writes.
    let Some(site) = Site::of(options, &[&values, "--set=crds.install=true"]).await? else { return Ok(()) };
    site.pauses_are_served().await?;
    let pause = json!({
        "apiVersion": "ownergraph.dev/v1alpha1", "kind": "Pause", "metadata": { "name": "watched" },
        "spec": { "reason": "a test", "lifetimeSeconds": 3600, "scope": { "targets": [{ "namespaces": ["family"] }] } },
    });
    create(&site.client, PAUSES, &pause).await?;
    ensure!(chart::deployment(&site.installed, "executor-service").is_err(), "no work is granted to an executor");
    // A reference into another namespace, about which an active collector posts an Event, and a cascade.
    namespace(&site.client, "a").await?;
    namespace(&site.client, "b").await?;
    let owner = create(&site.client, &configmaps("a"), &configmap("owner", &[])).await?;
    let misplaced = configmap("misplaced", &[reference_to(&owner)]);
    create(&site.client, &configmaps("b"), &misplaced).await?;
    let family = site.family("family").await?;
    let (mut graph, listen) = site.graph(Wire::Plaintext, &site.kubeconfig("graph-service").await?, "ownergraph")?;
    graph.ready().await?;
    delete(&site.client, &family, "Background").await?;
    let decided = || async { Ok(graph.get("/metrics").await?.1) };
    let all = |metrics: &String| {
        metrics.lines().any(|line| {
            let items = line.rsplit_once(' ').and_then(|(_, items)| items.parse::<u32>().ok());
            // The family, and the misplaced object once its owner is proven absent.
            line.starts_with("ownergraph_queue_items{") && line.contains("\"observed\"") && items == Some(6)
        })
    };
    until("the cascade is decided", SOON, decided, all).await?;
    let known = |metrics: &String| metrics.lines().any(|line| line == "ownergraph_pauses{state=\"effective\"} 1");
    until("the pause is known", SOON, decided, known).await?;
    let said = site.ask(&listen, &["pause", "--all", "--for", "1m", "--reason", "a test"])?;
    ensure!(said.contains("mode observe creates and changes no guards"), "{said}");

    // The log has each request before its answer is sent.
    let seen = requests(&fs::read_to_string(&log)?)?;
    let writes: BTreeSet<_> =
        seen.iter().filter(|(verb, ..)| !["get", "list", "watch"].contains(&&**verb)).cloned().collect();
    let of_lease = |verb: &str, code| (verb.to_owned(), "leases".to_owned(), code);
    ensure!(writes.contains(&of_lease("create", 201)), "its Lease is in the log: {seen:?}");
    let allowed = BTreeSet::from([of_lease("create", 201), of_lease("update", 200)]);
    ensure!(writes.is_subset(&allowed), "{writes:?}");
    ensure!(!seen.iter().any(|(.., code)| *code == 403), "it lacks a right: {seen:?}");
    let said = graph.process.output();
    ensure!(!said.contains("forbidden") && !said.contains("cannot"), "{said}");
    Ok(())
}
