//! Certificates and their authority change during a cascade.

use super::{HOSTS, Secured, caller};
use anyhow::ensure;
use executor_service::dial;
use futures::future::{try_join, try_join_all};
use proto::admin::v1beta1::GetStatusRequest;
use proto::admin::v1beta1::admin_service_client::AdminServiceClient;
use std::cell::Cell;
use std::time::Duration;
use tests::certificates::{Authority, Mounted};
use tests::embedded::Api;
use tests::load::{configmaps, count, delete, families, until};
use tests::process::{Directory, free_port};
use tests::service::Programs;

const OWNERS: usize = 4;
const DEPENDENTS: usize = 250;
const SOON: Duration = Duration::from_secs(60);

/// How many streams of each executor have ended, or did not begin.
async fn failures(executors: &[Secured], asker: &Mounted) -> anyhow::Result<Vec<f64>> {
    let asked = executors.iter().map(|executor| executor.metric("ownergraph_executor_connect_failures_total", asker));
    try_join_all(asked).await
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_rotate_under_a_cascade_and_no_request_fails() -> anyhow::Result<()> {
    let _turn = crate::turn().await?;
    let programs = Programs::build()?;
    let directory = Directory::create()?;
    let api = Api::start(directory.path()).await?;
    let (old, new) = (Authority::new("old")?, Authority::new("new")?);
    let mount = |name: &str| Mounted::new(directory.path().join(name), &old.sign(name, &HOSTS)?, &[&old]);
    let (mut server, mut executor, mut asker) = (mount("graph")?, mount("executor")?, mount("asker")?);

    let grpc = format!("127.0.0.1:{}", free_port()?);
    let kubeconfig = ["--kubeconfig", &api.flag];
    let arguments = [&kubeconfig[..], &["--listen", &grpc]].concat();
    let mut graph = Secured::start(&programs, "graph-service", "graph", directory.path(), (&server, &arguments))?;
    graph.ready(&asker).await?;
    let mut executors = Vec::new();
    for name in ["executor-1", "executor-2"] {
        let ca = executor.file("ca.crt");
        let arguments = [&kubeconfig[..], &["--graph", &grpc, "--name", name, "--tls-ca", &ca]].concat();
        let started = Secured::start(&programs, "executor-service", name, directory.path(), (&executor, &arguments))?;
        executors.push(started);
    }
    for executor in &mut executors {
        executor.ready(&asker).await?;
    }
    let failures_before = failures(&executors, &asker).await?;
    let maps = configmaps("default");
    let owners = families(&api.client, "default", "o", OWNERS, DEPENDENTS).await?;

    // All the time, one connection carries one question after another, and each further question opens a connection.
    let (over, questions) = (Cell::new(false), Cell::new(0));
    let calling = caller(&asker).await?;
    let standing = dial(&calling, &grpc, None).await.map_err(anyhow::Error::msg)?;
    let asking = async {
        let mut ticks = tokio::time::interval(Duration::from_millis(20));
        while !over.get() {
            ticks.tick().await;
            AdminServiceClient::new(standing.clone()).get_status(GetStatusRequest {}).await?;
            let fresh = dial(&calling, &grpc, None).await.map_err(anyhow::Error::msg)?;
            AdminServiceClient::new(fresh).get_status(GetStatusRequest {}).await?;
            questions.set(questions.get() + 2);
        }
        anyhow::Ok(())
    };
    let rotating = async {
        // The steps are a new certificate, both authorities, certificates of the new authority, and the new authority
        // alone.
        let steps = [(&old, vec![&old]), (&old, vec![&old, &new]), (&new, vec![&old, &new]), (&new, vec![&new])];
        for (number, (signer, trusted)) in steps.iter().enumerate() {
            delete(&api.client, &format!("{maps}/{}", owners[number]), "Background").await?;
            for (mounted, name) in [(&mut server, "graph"), (&mut executor, "executor"), (&mut asker, "asker")] {
                mounted.change(&signer.sign(name, &HOSTS)?, trusted)?;
            }
            for service in std::iter::once(&graph).chain(&executors) {
                let taken = || service.metric("ownergraph_tls_reloads_total{result=\"taken\"}", &asker);
                until("the new certificates are taken", SOON, taken, |taken| *taken == (number + 1) as f64).await?;
            }
            // Two questions may have started before the change.
            let enough = questions.get() + 4;
            let answered = || std::future::ready(anyhow::Ok(questions.get()));
            until("questions are answered after the change", SOON, answered, |answered| *answered >= enough).await?;
        }
        until("the cascade ends", SOON, || count(&api.client, &maps), |left| *left == 0).await?;
        over.set(true);
        anyhow::Ok(())
    };
    try_join(asking, rotating).await?;

    let failures = failures(&executors, &asker).await?;
    ensure!(failures == failures_before, "every stream lived on: {failures:?}; {}", executors[0].process.log_tail());
    let refused = graph.metric("ownergraph_tls_handshakes_refused_total", &asker).await?;
    ensure!(refused == 0.0, "no connection was refused: {refused}; {}", graph.process.log_tail());
    let unusable = graph.metric("ownergraph_tls_reloads_total{result=\"unusable\"}", &asker).await?;
    ensure!(unusable == 0.0, "all files fitted; {}", graph.process.log_tail());
    Ok(())
}
