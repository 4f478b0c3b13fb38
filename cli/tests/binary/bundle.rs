//! A bundle of a collector that records, and the replay of its recording.

use crate::collect::Cluster;
use crate::process::{output, ownergraph, until};
use flate2::read::GzDecoder;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::net::TcpListener;
use std::path::Path;
use std::process::Output;

const DEPENDENTS: usize = 30;

/// The files of a bundle, with their text where they have text.
fn files(bundle: impl std::io::Read) -> BTreeMap<String, String> {
    let mut archive = tar::Archive::new(GzDecoder::new(bundle));
    let file = |entry: std::io::Result<tar::Entry<'_, _>>| {
        let (mut entry, mut data) = (entry.unwrap(), Vec::new());
        entry.read_to_end(&mut data).unwrap();
        (entry.path().unwrap().display().to_string(), String::from_utf8_lossy(&data).into_owned())
    };
    archive.entries().unwrap().map(file).collect()
}

async fn export(kubeconfig: &str, server: &str, more: &[&str]) -> Output {
    let arguments = ["export", "--kubeconfig", kubeconfig, "--server", server, "--bundle"];
    output(&mut ownergraph(&[&arguments[..], more].concat())).await
}

/// The deletions that a replay decides.
async fn replayed(trace: &Path) -> u64 {
    let said = output(&mut ownergraph(&["replay", trace.to_str().unwrap(), "-o", "json"])).await;
    assert_eq!(said.status.code(), Some(0), "{}", String::from_utf8_lossy(&said.stderr));
    let summary: Value = serde_json::from_slice(&said.stdout).unwrap();
    summary["decisions"]["delete"].as_u64().unwrap_or_default()
}

#[tokio::test]
async fn the_recording_of_a_bundle_is_replayed_to_the_same_decisions() {
    let cluster = Cluster::start().await;
    let directory = tempfile::tempdir().unwrap();
    let (traces, bundle) = (directory.path().join("traces"), directory.path().join("bundle.tar.gz"));
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = free.local_addr().unwrap().to_string();
    drop(free);
    let (collector, _admin) = cluster.collector(&["--record", traces.to_str().unwrap(), "--listen", &server]).await;
    let owner = cluster.api.create("owner", &[]).await;
    for number in 0..DEPENDENTS {
        cluster.api.create(&format!("dependent-{number}"), &[&owner]).await;
    }
    cluster.api.delete("owner").await;
    until("all dependents are gone", async || {
        let gone = async |number: usize| cluster.api.get(&format!("dependent-{number}")).await.is_none();
        gone(0).await && gone(DEPENDENTS / 2).await && gone(DEPENDENTS - 1).await
    })
    .await;
    // The recorder writes a block each second.
    let path = bundle.to_str().unwrap();
    until("a bundle has all decisions", async || {
        let _absent = std::fs::remove_file(&bundle);
        let said = export(&cluster.kubeconfig, &server, &[path]).await;
        let notes = String::from_utf8_lossy(&said.stderr).into_owned();
        assert_eq!(said.status.code(), Some(0), "{notes}");
        assert!(notes.starts_with(&format!("note: {path}: ")) && notes.ends_with(", nothing is missing\n"), "{notes}");
        replayed(&bundle).await == DEPENDENTS as u64
    })
    .await;
    assert_eq!(replayed(&traces).await, DEPENDENTS as u64);

    let found = files(File::open(&bundle).unwrap());
    let names: Vec<&str> = found.keys().map(|name| name.split("/ogr-").next().unwrap()).collect();
    let expected = ["README.txt", "configuration.yaml", "decisions.jsonl", "metrics.txt", "recording", "status.yaml"];
    assert_eq!(names, expected);
    let proposed = |line: &&str| line.contains("PHASE_PROPOSED") && line.contains("ITEM_KIND_DELETE");
    assert_eq!(found["decisions.jsonl"].lines().filter(proposed).count(), DEPENDENTS);
    assert!(found["status.yaml"].contains("kind: CollectorStatus"), "{}", found["status.yaml"]);
    assert!(found["metrics.txt"].contains("ownergraph_recording_active 1"));
    let configuration = &found["configuration.yaml"];
    assert!(configuration.contains("commandLine:") && configuration.contains("mode: Enforce"), "{configuration}");
    assert!(configuration.contains(traces.to_str().unwrap()), "{configuration}");
    assert!(found["README.txt"].contains("Missing:\nnothing\n"), "{}", found["README.txt"]);

    let said = export(&cluster.kubeconfig, &server, &[path]).await;
    let refused = String::from_utf8_lossy(&said.stderr).into_owned();
    assert_eq!((said.status.code(), refused.contains("exists and is not overwritten")), (Some(1), true), "{refused}");

    let said = export(&cluster.kubeconfig, &server, &["-", "--max-recording", "1B"]).await;
    let notes = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(notes.ends_with(", without recording/; README.txt in it says why\n"), "{notes}");
    let found = files(said.stdout.as_slice());
    let readme = &found["README.txt"];
    let again = format!("ownergraph --server {server} --kubeconfig {} export --bundle", cluster.kubeconfig);
    assert!(found.len() == 5 && readme.contains(&format!("to copy it from there: {again} ")), "{readme}");
    let without = directory.path().join("without.tar.gz");
    std::fs::write(&without, said.stdout).unwrap();
    let said = output(&mut ownergraph(&["replay", without.to_str().unwrap()])).await;
    let refused = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(refused.contains("the archive has no recording; its README.txt gives the reason"), "{refused}");
    assert_eq!(collector.terminate().await.code(), Some(0));
}
