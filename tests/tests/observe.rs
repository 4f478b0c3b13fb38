//! Mode `observe` next to a collector that nothing can turn off: our collector decides, counts, and writes nothing.

use anyhow::ensure;
use std::time::Duration;
use tests::embedded::Api;
use tests::load::{configmap, configmaps, count, create, delete, families, reference_to, until};
use tests::process::Directory;
use tests::service::{Programs, Service};

const SOON: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread")]
async fn observe_decides_and_counts_and_writes_nothing() -> anyhow::Result<()> {
    let programs = Programs::build()?;
    let directory = Directory::create()?;
    let api = Api::start(directory.path()).await?;
    let flags = ["collect", "--kubeconfig", &api.flag, "--mode", "observe"];
    let mut collector = Service::start(&programs, "ownergraph", "collect", directory.path(), &flags)?;
    collector.ready().await?;
    let maps = configmaps("default");
    let owners = families(&api.client, "default", "o", 3, 10).await?;
    let writes = |api: &Api| -> u64 {
        let requests = api.server.requests();
        let written = |verb: &str| ["DELETE", "PATCH", "PUT", "DELETECOLLECTION"].contains(&verb);
        requests.into_iter().filter(|(request, _)| written(request.verb)).map(|(_, count)| count).sum()
    };
    for (owner, policy) in owners.iter().zip(["Background", "Foreground", "Orphan"]) {
        delete(&api.client, &format!("{maps}/{owner}"), policy).await?;
    }
    // The reference names a nonexistent owner, so the collector must read it.
    let nobody =
        serde_json::json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "x", "uid": "x" } });
    create(&api.client, &maps, &configmap("dangling", &[reference_to(&nobody)])).await?;
    // The decisions are ten for the first owner, ten for the second one, and the dangling reference.
    let ask = || collector.total_of("ownergraph_decisions_total", "action=\"delete\"");
    until("21 deletions are decided", SOON, ask, |count| *count == 21.0).await?;
    ensure!(writes(&api) == owners.len() as u64, "only the test has written: {:?}", api.server.requests());
    ensure!(
        count(&api.client, &maps).await? == 33,
        "all dependents and two terminating owners are there, and the dangling one"
    );
    Ok(())
}
