//! `ownergraph try`, with and without a collector.

use crate::collect::Cluster;
use crate::process::{output, ownergraph};

#[tokio::test]
async fn what_it_makes_is_collected() {
    let cluster = Cluster::start().await;
    let (collector, _) = cluster.collector(&[]).await;
    let tried = output(&mut ownergraph(&["try", "--kubeconfig", &cluster.kubeconfig, "--objects", "250"])).await;
    let said = String::from_utf8_lossy(&tried.stdout).into_owned();
    assert_eq!(tried.status.code(), Some(0), "{said}{}", String::from_utf8_lossy(&tried.stderr));
    assert!(said.starts_with("created 250 objects with 3 owners in "), "{said}");
    assert!(said.contains("all 250 objects were collected "), "{said}");
    assert_eq!(collector.terminate().await.code(), Some(0));
}

#[tokio::test]
async fn without_a_collector_it_says_what_is_left() {
    let cluster = Cluster::start().await;
    let mut alone = ownergraph(&["try", "--kubeconfig", &cluster.kubeconfig, "--objects", "150", "--timeout", "100ms"]);
    let tried = output(&mut alone).await;
    let said = String::from_utf8_lossy(&tried.stderr).into_owned();
    assert_eq!(tried.status.code(), Some(124), "{said}");
    // The owner that was deleted in background is gone.
    assert!(
        said.contains("151 of 152 ConfigMaps are still in namespace default after 100ms, among them ownergraph-try-"),
        "{said}"
    );
    let mut nowhere = ownergraph(&["try", "--kubeconfig", &cluster.kubeconfig, "-n", "nowhere", "--objects", "1"]);
    let tried = output(&mut nowhere).await;
    let said = String::from_utf8_lossy(&tried.stderr).into_owned();
    assert_eq!(tried.status.code(), Some(1), "{said}");
    assert!(said.contains("namespaces \"nowhere\" not found"), "{said}");
    // For a user who interrupts the command. Nothing was created, so the error does not say it again.
    assert_eq!(said.matches(" delete configmaps -n nowhere -l ownergraph.dev/try=").count(), 1, "{said}");
    assert!(said.trim_end().ends_with("namespaces \"nowhere\" not found"), "{said}");
}
