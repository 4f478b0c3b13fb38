//! `floor KUBECONFIG NAMESPACE IN_FLIGHT POLICY FILES [PER_SECOND]`: does the minimum work of a collector, as a
//! comparison for benchmarks.
//!
//! The program lists the ConfigMaps with an owner, writes `FILES.ready`, and waits for `FILES.go`. It then sends one
//! request for each object: a DELETE with uid and resourceVersion, or with the policy Orphan a PATCH that removes its
//! references. PER_SECOND limits the rate. At the end, `FILES.done` has the processor time in seconds and the memory in
//! MiB.

use anyhow::{Context, ensure};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::time::Duration;
use tests::controlplane::client;
use tests::load::{configmaps, list};
use tests::usage::{cpu_seconds, most_memory_mib};
use tokio::task::JoinSet;
use tokio::time::interval;

const LOOK_EVERY: Duration = Duration::from_millis(2);

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, kubeconfig, namespace, in_flight, policy, files, rate @ ..] = arguments.as_slice() else {
        anyhow::bail!("usage: floor KUBECONFIG NAMESPACE IN_FLIGHT POLICY FILES [PER_SECOND]")
    };
    let rate = rate.first().map(|rate| rate.parse::<f64>().context("PER_SECOND is no number")).transpose()?;
    let client = client(Path::new(kubeconfig)).await?;
    let maps = configmaps(namespace);
    let objects = list(&client, maps.as_str()).await?;
    let dependents = objects.iter().filter(|object| !object["metadata"]["ownerReferences"].is_null());
    let requests: Vec<http::Request<Vec<u8>>> =
        dependents.map(|object| request(&maps, object, policy == "Orphan")).collect::<anyhow::Result<_>>()?;
    fs::write(format!("{files}.ready"), "")?;
    let mut ticks = interval(LOOK_EVERY);
    while !Path::new(&format!("{files}.go")).exists() {
        ticks.tick().await;
    }
    let this = std::process::id();
    let before = cpu_seconds(this)?;
    let in_flight: usize = in_flight.parse().context("IN_FLIGHT is no number")?;
    let mut pace = rate.map(|rate| interval(Duration::from_secs_f64(rate.recip())));
    let mut under_way: JoinSet<anyhow::Result<()>> = JoinSet::new();
    for request in requests {
        if let Some(pace) = &mut pace {
            pace.tick().await;
        }
        if under_way.len() == in_flight {
            under_way.join_next().await.context("something is under way")???;
        }
        let client = client.clone();
        under_way.spawn(async move {
            client.request_text(request).await?;
            Ok(())
        });
    }
    while let Some(done) = under_way.join_next().await {
        done??;
    }
    let (cpu, memory) = (cpu_seconds(this)? - before, most_memory_mib(this)?);
    // The program writes another name first, so that a waiting reader never reads a partial file.
    fs::write(format!("{files}.end"), format!("{cpu} {memory}"))?;
    Ok(fs::rename(format!("{files}.end"), format!("{files}.done"))?)
}

fn request(maps: &str, object: &Value, orphan: bool) -> anyhow::Result<http::Request<Vec<u8>>> {
    let metadata = &object["metadata"];
    let name = metadata["name"].as_str().context("an object has a name")?;
    let (uid, version) = (&metadata["uid"], &metadata["resourceVersion"]);
    ensure!(uid.is_string() && version.is_string(), "{name} has no uid or resourceVersion");
    let path = format!("{maps}/{name}");
    let (request, kind, body) = if orphan {
        let owner = &metadata["ownerReferences"][0]["uid"];
        let drop = json!({ "metadata": { "uid": uid, "ownerReferences": [{ "$patch": "delete", "uid": owner }] } });
        (http::Request::patch(path), "application/strategic-merge-patch+json", drop)
    } else {
        let preconditions = json!({ "uid": uid, "resourceVersion": version });
        let delete = json!({ "apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions });
        (http::Request::delete(path), "application/json", delete)
    };
    Ok(request
        .header("accept", kube_api::media::METADATA)
        .header("content-type", kind)
        .body(body.to_string().into_bytes())?)
}
