//! The readers of decisions that the chart installs with `audit`, as it starts them and with the rights that it gives
//! them.

use super::apply;
use super::site::{SOON, Site, Wire};
use crate::sink::receiver::Receiver;
use anyhow::{Context, ensure};
use serde_json::Value;
use std::fs;
use tests::chart::{self, Helm};
use tests::load::{delete, until};

const VALUES: [&str; 5] = [
    "--set=audit.enabled=true",
    "--set=audit.sink.url=https://receiver.example/events",
    "--set=audit.sink.secretName=receiver",
    "--set=audit.sink.caKey=ca.crt",
    "--set=audit.sink.tokenKey=token",
];

#[tokio::test(flavor = "multi_thread")]
async fn both_readers_run_as_the_chart_starts_them_with_the_rights_that_it_gives() -> anyhow::Result<()> {
    let (Some(helm), Some(site)) = (Helm::require()?, Site::new().await?) else { return Ok(()) };
    let objects = chart::objects(&helm.template(&VALUES)?)?;
    let is_audit = |object: &&Value| {
        let component = object["metadata"]["labels"]["app.kubernetes.io/component"].as_str();
        component.is_some_and(|component| component.starts_with("audit"))
    };
    let added: Vec<Value> = objects.iter().filter(is_audit).cloned().collect();
    // An account, a role and its binding, two policies for the network, two Deployments.
    ensure!(added.len() == 7, "{added:?}");
    apply(&site.plane, &added, &[])?;

    let (graph, listen) = site.graph(Wire::Tls, &site.kubeconfig("graph-service").await?, "ownergraph")?;
    let executor = site.executor_by_token("executor-service", "executor-0", &listen).await?;
    let owner = site.family("audited").await?;
    delete(&site.client, &owner, "Background").await?;

    let receiver = Receiver::start(site.directory(), false, "-").await?;
    let (ca, token) = (receiver.ca.display().to_string(), receiver.token.display().to_string());
    let server = [("--server", listen.as_str())];
    let to = [("--sink", receiver.url.as_str()), ("--sink-ca", &ca), ("--sink-token-file", &token)];
    // The service is reached while it starts, or the process ends, as its container would.
    let reached = || async { Ok(graph.process.output()) };
    until("the graph service leads", SOON, reached, |said| said.contains("this replica leads")).await?;
    let mut log = site.reader(&objects, "audit-log", &server).await?;
    let mut sink = site.reader(&objects, "audit-sink", &[&server[..], &to].concat()).await?;
    log.ready().await?;
    sink.ready().await?;

    let gone = |documents: Vec<Value>| {
        let is_it = |event: &&Value| event["phase"] == "PHASE_CONFIRMED" && event["target"]["namespace"] == "audited";
        documents.iter().filter(is_it).count()
    };
    let written = || async {
        let output = log.process.output();
        let lines = output.lines().filter(|line| line.starts_with('{'));
        let events = lines.map(|line| Ok(serde_json::from_str::<Value>(line)?["event"].clone()));
        Ok(gone(events.collect::<anyhow::Result<Vec<_>>>()?))
    };
    until("the log has every deletion", SOON, written, |count| *count == 5).await?;
    let delivered = || async {
        let seen = receiver.seen();
        ensure!(seen.wrong.is_empty(), "{:?}", seen.wrong);
        Ok(gone(seen.events.iter().map(|event| event["data"].clone()).collect()))
    };
    until("the receiver has every deletion", SOON, delivered, |count| *count == 5).await?;

    for mut reader in [log, sink] {
        reader.process.terminate()?;
        let code = reader.process.ended(SOON).await?;
        let output = reader.process.output();
        ensure!(code == 0 && output.contains("continue with: --after"), "exit code {code}: {output}");
    }
    for component in ["audit-log", "audit-sink"] {
        let file = site.directory().join(format!("{component}.position"));
        let position = fs::read_to_string(&file).with_context(|| format!("no position of {component}"))?;
        ensure!(position.trim().contains(':'), "{position}");
    }
    drop((graph, executor));
    Ok(())
}
