//! A real Prometheus scrapes running programs while they collect.

use super::{at, rules};
use anyhow::{Context, ensure};
use runtime::metrics::{Description, Values};
use sandbox::{Attempt, Fault, FaultAnswer};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tests::embedded::Api;
use tests::load::{configmap, configmaps, create, delete, families, namespace, reference_to, until};
use tests::metrics::{Scrape, programs, used};
use tests::process::Directory;
use tests::prometheus::{self, Prometheus, Tools};
use tests::service::{Fleet, Programs, Service};

const SOON: Duration = Duration::from_secs(60);

/// Starts a server with a collection that no user may read.
async fn start(directory: &Directory) -> anyhow::Result<Api> {
    let api = Api::start(directory.path()).await?;
    let unseen = |attempt: &Attempt<'_>| attempt.resource == "persistentvolumes";
    api.server.inject(Fault::new(unseen, FaultAnswer::forbidden()));
    Ok(api)
}

/// Runs a cascade of each policy, with dangling and misplaced references, so that every metric has values.
async fn cascade(api: &Api, graph: &Service) -> anyhow::Result<()> {
    let maps = configmaps("default");
    let owners = families(&api.client, "default", "o", 3, 10).await?;
    let stays = create(&api.client, &maps, &configmap("stays", &[])).await?;
    for (owner, policy) in owners.iter().zip(["Background", "Foreground", "Orphan"]) {
        delete(&api.client, &format!("{maps}/{owner}"), policy).await?;
    }
    let nobody = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "x", "uid": "x" } });
    create(&api.client, &maps, &configmap("dangling", &[reference_to(&nobody)])).await?;
    namespace(&api.client, "elsewhere").await?;
    create(&api.client, &configmaps("elsewhere"), &configmap("misplaced", &[reference_to(&stays)])).await?;
    let collected = || graph.total_of("ownergraph_objects_removed_total", "by_us=\"true\"");
    // The sum covers two families with one owner that waited for its dependents, the dangling references, and the
    // misplaced ones.
    until("all of it is collected", SOON, collected, |count| *count >= 22.0).await?;
    for metric in ["ownergraph_misplaced_references_total", "ownergraph_owner_gone_to_dependent_gone_seconds_count"] {
        ensure!(graph.total(metric).await? > 0.0, "{metric}");
    }
    let listed = || graph.total_of("ownergraph_owners_proven_absent_total", "proof=\"listed\"");
    until("an owner is proven absent by a list", SOON, listed, |count| *count > 0.0).await?;
    Ok(())
}

fn described(of: &[&str]) -> Vec<Description> {
    let wanted = programs().into_iter().filter(|(title, _, _)| of.contains(title) || *title == "process");
    wanted.flat_map(|(_, _, described)| described).collect()
}

/// Checks that a program shows the metrics of the page, and that promtool finds no fault in them.
async fn check(tools: &Tools, service: &Service, of: &[&str]) -> anyhow::Result<Scrape> {
    let (_, text) = service.get("/metrics").await?;
    tools.promtool(&["check", "metrics"], &text)?;
    let scrape = Scrape::read(&text)?;
    let found = scrape.differences(&described(of));
    ensure!(found.is_empty(), "{of:?}: {found:#?}");
    Ok(scrape)
}

/// Checks that every expression names existing metrics, and existing labels of them.
fn check_names(expressions: &[String], shown: &BTreeSet<String>) -> anyhow::Result<()> {
    let described = described(&["graph-service", "executor-service"]);
    for expression in expressions {
        for (name, labels) in used(expression) {
            let family = ["_bucket", "_count", "_sum"].iter().find_map(|ending| name.strip_suffix(ending));
            let family = family.filter(|family| shown.contains(*family)).unwrap_or(&name);
            let known = described.iter().find(|known| known.name == family);
            let known = known.with_context(|| format!("{expression}: no crate describes {family}"))?;
            ensure!(shown.contains(family), "{expression}: no program shows {family}");
            for label in labels {
                let has = known.labels.iter().any(|of| of.name == label);
                ensure!(
                    has || ["cluster", "job", "instance", "le"].contains(&label.as_str()),
                    "{expression}: {family} has no {label}"
                );
            }
        }
    }
    Ok(())
}

async fn until_scraped(server: &Prometheus, times: usize) -> anyhow::Result<()> {
    let scrapes = || server.query("sum_over_time(up[5m])");
    let enough = |of: &Vec<f64>| of.len() == 2 && of.iter().all(|&count| count >= times as f64);
    until("Prometheus has looked at both", SOON, scrapes, enough).await.map(|_| ())
}

#[tokio::test(flavor = "multi_thread")]
async fn every_metric_is_as_described_and_every_expression_finds_its_data() -> anyhow::Result<()> {
    let Some(tools) = prometheus::require() else { return Ok(()) };
    let programs = Programs::build()?;
    let directory = Directory::create()?;
    let api = start(&directory).await?;
    let fleet = Fleet::start(&programs, &api.kubeconfig, 1).await?;
    let (graph, executor) = (&fleet.graph, &fleet.executors[0]);
    let server = tools.start(&[graph.admin(), executor.admin()], &at("deploy/alerts/ownergraph.yaml")).await?;
    until_scraped(&server, 2).await?;
    cascade(&api, graph).await?;

    let graph_shows = check(&tools, graph, &["graph-service"]).await?;
    let executor_shows = check(&tools, executor, &["executor-service"]).await?;
    let shown: BTreeSet<String> = graph_shows.families.into_keys().chain(executor_shows.families.into_keys()).collect();
    let panels = rules::panels()?;
    let alerts = rules::alerts()?;
    let of_alert = |rule: &Value| rule["expr"].as_str().unwrap_or_default().to_owned();
    let expressions: Vec<String> =
        panels.iter().map(|(_, expression)| expression.clone()).chain(alerts.values().map(of_alert)).collect();
    check_names(&expressions, &shown)?;

    // A rate needs two scrapes of the same counter.
    let rate = || server.query("sum(rate(ownergraph_objects_removed_total{by_us=\"true\"}[1m])) > 0");
    until("Prometheus has seen the cascade", SOON, rate, |found| !found.is_empty()).await?;
    until_scraped(&server, 6).await?;
    // The answer to a scrape that takes longer than a second is lost, and with it all series until the next one.
    for (title, expression) in &panels {
        let finite = |values: &Vec<f64>| values.iter().any(|value| value.is_finite());
        until(&format!("{title} has a value: {expression}"), SOON, || server.query(expression), finite).await?;
    }
    for rule in alerts.values() {
        server.query(&of_alert(rule)).await?;
    }
    let calm = |alerts: &Vec<(String, String, String)>| {
        alerts.iter().all(|(_, state, health)| health == "ok" && state == "inactive")
    };
    until("no alert is pending", SOON, || server.alerts(), calm).await?;
    executor.process.terminate()?;
    let pending =
        || async { Ok(server.alerts().await?.into_iter().find(|(name, _, _)| name == "OwnergraphNoExecutors")) };
    let is_pending =
        |alert: &Option<(String, String, String)>| alert.as_ref().is_some_and(|(_, state, _)| state == "pending");
    until("the loss of the executor is noticed", SOON, pending, is_pending).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn one_process_shows_the_metrics_of_both() -> anyhow::Result<()> {
    let Some(tools) = prometheus::require() else { return Ok(()) };
    let programs = Programs::build()?;
    let directory = Directory::create()?;
    let api = start(&directory).await?;
    let flags = ["collect", "--kubeconfig", &api.flag, "--executors", "2", "--concurrency", "3"];
    let mut collector = Service::start(&programs, "ownergraph", "collect", directory.path(), &flags)?;
    collector.ready().await?;
    cascade(&api, &collector).await?;
    let scrape = check(&tools, &collector, &["graph-service", "executor-service"]).await?;
    let value = |name: &str| scrape.samples.iter().find(|sample| sample.family == name).map(|sample| sample.value);
    let counts = [("instances", 2.0), ("sessions", 2.0), ("credentials_accepted", 2.0), ("concurrency", 6.0)];
    for (name, count) in counts {
        ensure!(value(&format!("ownergraph_executor_{name}")) == Some(count), "{name}: {:?}", scrape.samples);
    }
    bounded(&scrape, &described(&["graph-service", "executor-service"]))
}

/// Checks that each label without a fixed set of values has few values.
fn bounded(scrape: &Scrape, described: &[Description]) -> anyhow::Result<()> {
    let mut values: BTreeMap<(&str, &str), BTreeSet<&str>> = BTreeMap::new();
    for known in described {
        for label in known.labels.iter().filter(|label| matches!(label.values, Values::Bounded(_))) {
            let of = scrape.samples.iter().filter(|sample| sample.family == known.name);
            let seen = of.filter_map(|sample| sample.labels.get(label.name)).map(String::as_str);
            values.entry((&known.name, label.name)).or_default().extend(seen);
        }
    }
    for (of, values) in values {
        ensure!(values.len() <= 100, "{of:?} has {} values", values.len());
    }
    Ok(())
}
