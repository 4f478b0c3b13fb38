//! Runs both services with exactly the rights that the chart grants, and without each single right.

use super::site::{PAUSES, SOON, Site, Wire};
use anyhow::{Context, bail, ensure};
use futures::StreamExt as _;
use proto::admin::v1beta1::BypassGateRequest;
use proto::admin::v1beta1::admin_service_client::AdminServiceClient;
use serde_json::json;
use std::time::Duration;
use tests::chart::{Right, rights};
use tests::load::{self, configmap, configmaps, create, delete, get, reference_to, until};
use tests::service::Service;
use tonic::transport::Endpoint;

const CASCADE_WITHIN: Duration = Duration::from_secs(120);
/// The number of processes at a time. Each of them first lists the whole cluster.
const ROWS_AT_ONCE: usize = 4;
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
/// A pause that holds nothing, because its namespace is empty.
const BRAKE: &str = "brake";

/// The action that uses a right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    /// A service starts.
    Start,
    /// An object refers to an owner in another namespace. An Event about it may exist already.
    Misplaced,
    /// A caller creates a pause.
    Press,
    /// A caller deletes a pause.
    Lift,
    /// A caller bypasses a gate.
    Bypass,
    /// An executor calls over TLS with a token.
    Call,
    /// A user deletes an owner and orphans its dependents.
    Orphan,
    /// A user deletes an owner and its dependents.
    Background,
}

/// The account and the missing right, the action that needs it, and the text that names it. The text is in the log of
/// one of the services, in `/readyz?verbose`, or in the answer.
const ROWS: [(&str, Use, &str); 22] = [
    ("graph-service: get *.*", Use::Start, "cannot get resource \\\"namespaces\\\""),
    ("graph-service: list *.*", Use::Start, "cannot list resource \\\"pauses\\\""),
    ("graph-service: watch *.*", Use::Start, "cannot watch resource \\\"configmaps\\\""),
    ("graph-service: create events", Use::Misplaced, "cannot create resource \\\"events\\\""),
    ("graph-service: patch events", Use::Misplaced, "cannot patch resource \\\"events\\\""),
    ("graph-service: create pauses.ownergraph.dev", Use::Press, "cannot create resource \\\"pauses\\\""),
    ("graph-service: delete pauses.ownergraph.dev", Use::Lift, "cannot delete resource \\\"pauses\\\""),
    ("graph-service: patch gates.ownergraph.dev", Use::Bypass, "cannot patch resource \\\"gates\\\""),
    ("graph-service: patch pauses/status.ownergraph.dev", Use::Start, "cannot patch resource \\\"pauses/status\\\""),
    (
        "graph-service: patch protections/status.ownergraph.dev",
        Use::Start,
        "cannot patch resource \\\"protections/status\\\"",
    ),
    ("graph-service: patch budgets/status.ownergraph.dev", Use::Start, "cannot patch resource \\\"budgets/status\\\""),
    (
        "graph-service: patch approvals/status.ownergraph.dev",
        Use::Start,
        "cannot patch resource \\\"approvals/status\\\"",
    ),
    ("graph-service: patch gates/status.ownergraph.dev", Use::Start, "cannot patch resource \\\"gates/status\\\""),
    ("graph-service: create leases.coordination.k8s.io", Use::Start, "cannot create resource \\\"leases\\\""),
    ("graph-service: update leases.coordination.k8s.io", Use::Start, "cannot update resource \\\"leases\\\""),
    ("graph-service: patch configmaps", Use::Call, "cannot patch resource \\\"configmaps\\\""),
    (
        "graph-service: create tokenreviews.authentication.k8s.io",
        Use::Call,
        "cannot create resource \\\"tokenreviews\\\"",
    ),
    (
        "graph-service: create subjectaccessreviews.authorization.k8s.io",
        Use::Call,
        "cannot create resource \\\"subjectaccessreviews\\\"",
    ),
    ("executor-service: get *.*", Use::Start, "cannot get resource \\\"namespaces\\\""),
    ("executor-service: patch *.*", Use::Orphan, "cannot patch resource \\\"configmaps\\\""),
    ("executor-service: delete *.*", Use::Background, "cannot delete resource \\\"configmaps\\\""),
    ("executor-service: lease workitems.ownergraph.dev", Use::Call, "may not lease workitems.ownergraph.dev"),
];

/// Returns everything that a service reports by itself, with quotes as in JSON.
async fn said(service: &Service) -> String {
    let shown = match service.get("/readyz?verbose").await {
        Ok((_, body)) => body,
        Err(error) => format!("{error:#}"),
    };
    format!("{}\n{}", service.process.output(), shown.replace('"', "\\\""))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_rights_of_the_chart_suffice_and_each_of_them_is_missed() -> anyhow::Result<()> {
    let Some(site) = Site::new().await? else { return Ok(()) };
    let missing = rows(&rights(&site.installed)?)?;
    everything_is_collected(&site).await?;

    // Two services have all rights: the graph service for executors without a right, and the first service that posts
    // the Event.
    let kubeconfig = site.account("graph-service", "whole", None).await?;
    let (mut graph, listen) = site.graph(Wire::Plaintext, &kubeconfig, "whole")?;
    graph.ready().await?;
    let brake = json!({
        "apiVersion": "ownergraph.dev/v1alpha1", "kind": "Pause", "metadata": { "name": BRAKE },
        "spec": { "reason": "shows how it stands", "lifetimeSeconds": 3600, "scope": { "targets": [{ "namespaces": ["nowhere"] }] } },
    });
    create(&site.client, PAUSES, &brake).await?;
    // Other guards that hold nothing either.
    for (kind, plural, rule) in [
        ("Protection", "protections", json!({})),
        ("Budget", "budgets", json!({ "maxObjects": 1, "windowSeconds": 60, "onExceeded": "Hold" })),
        ("Approval", "approvals", json!({ "moreThan": 1 })),
        (
            "Gate",
            "gates",
            json!({ "stream": {}, "failurePolicy": "Hold", "maxHoldSeconds": 60, "afterMaxHold": "Deny" }),
        ),
    ] {
        let mut guard = brake.clone();
        guard["kind"] = json!(kind);
        guard["spec"].as_object_mut().context("no spec")?.extend(rule.as_object().context("no rule")?.clone());
        create(&site.client, &format!("/apis/ownergraph.dev/v1alpha1/{plural}"), &guard).await?;
    }
    misplaced(&site).await?;

    let (graphs, executors): (Vec<_>, Vec<_>) =
        missing.into_iter().enumerate().partition(|(_, (right, ..))| right.account == "graph-service");
    let shown = futures::stream::iter(graphs).map(|(number, row)| lacks(&site, number, row));
    let shown: Vec<anyhow::Result<()>> = shown.buffer_unordered(ROWS_AT_ONCE).collect().await;
    shown.into_iter().collect::<anyhow::Result<()>>()?;
    // The actions run one after another, because one of them would do the work of another.
    for (number, row) in executors {
        executor_lacks(&site, (&graph, &listen), number, row).await?;
    }
    Ok(())
}

/// Returns the rows by right. A right without a row, or a row without its right, is an error.
fn rows(rights: &[Right]) -> anyhow::Result<Vec<(Right, Use, &'static str)>> {
    let of = |right: &Right| {
        let row = ROWS.iter().find(|(name, ..)| *name == right.to_string());
        let (_, uses, words) = row.with_context(|| format!("no row says how it shows that one is missing: {right}"))?;
        Ok((right.clone(), *uses, *words))
    };
    let found = rights.iter().map(of).collect::<anyhow::Result<Vec<_>>>()?;
    ensure!(found.len() == ROWS.len(), "a row is about a right that the chart does not give: {rights:?}");
    Ok(found)
}

async fn everything_is_collected(site: &Site) -> anyhow::Result<()> {
    let (kubeconfig, lease) = (site.kubeconfig("graph-service").await?, "ownergraph");
    let (graph, listen) = site.graph(Wire::Tls, &kubeconfig, lease)?;
    let executor = site.executor_by_token("executor-service", "executor-0", &listen).await?;
    for (policy, left) in [("Background", 0), ("Foreground", 0), ("Orphan", 5)] {
        let namespace = format!("all-{}", policy.to_lowercase());
        let owner = site.family(&namespace).await?;
        delete(&site.client, &owner, policy).await?;
        let gone = || async {
            let owner = get(&site.client, owner.as_str()).await?;
            let maps = load::list(&site.client, configmaps(&namespace)).await?;
            let owned = maps.iter().filter(|map| map["metadata"]["ownerReferences"].is_array()).count();
            Ok((owner.is_some(), owned, maps.len()))
        };
        until(&format!("{policy} is over"), CASCADE_WITHIN, gone, |now| *now == (false, 0, left)).await?;
    }
    let lease = get(&site.client, format!("{LEASES}/{lease}")).await?.context("the Lease does not exist")?;
    ensure!(
        lease["spec"]["holderIdentity"].as_str().is_some_and(|holder| !holder.is_empty()),
        "no replica led: {lease}"
    );
    for (name, service) in [("graph-service", &graph), ("executor-service", &executor)] {
        let said = service.process.output();
        ensure!(!said.contains("forbidden") && !said.contains("may not"), "{name} lacks a right: {said}");
    }
    Ok(())
}

/// Creates an object whose owner is in another namespace, and waits for the Event about it.
async fn misplaced(site: &Site) -> anyhow::Result<()> {
    for namespace in ["here", "there"] {
        load::namespace(&site.client, namespace).await?;
    }
    let owner = create(&site.client, &configmaps("there"), &configmap("owner", &[])).await?;
    let dependent = configmap("dependent", &[reference_to(&owner)]);
    create(&site.client, &configmaps("here"), &dependent).await?;
    let events = || load::list(&site.client, "/api/v1/namespaces/here/events");
    until("an Event says that the owner is elsewhere", SOON, events, |events| !events.is_empty()).await?;
    Ok(())
}

/// Runs a graph service without one right, and no executor.
async fn lacks(site: &Site, number: usize, (right, uses, words): (Right, Use, &str)) -> anyhow::Result<()> {
    let suffix = format!("row-{number}");
    let kubeconfig = site.account("graph-service", &suffix, Some(&right)).await?;
    let wire = if uses == Use::Call { Wire::Tls } else { Wire::Plaintext };
    let (mut graph, listen) = site.graph(wire, &kubeconfig, &suffix)?;
    let mut caller = None;
    let answer = match uses {
        Use::Start | Use::Misplaced => String::new(),
        Use::Call => {
            caller = Some(site.executor_by_token("executor-service", &suffix, &listen).await?);
            String::new()
        }
        Use::Press => {
            graph.ready().await?;
            site.ask(&listen, &["pause", "--namespace", "default", "--for", "1m", "--reason", "the brake is tried"])?
        }
        Use::Lift => {
            graph.ready().await?;
            site.ask(&listen, &["resume", BRAKE])?
        }
        Use::Bypass => {
            graph.ready().await?;
            bypass(&listen).await?
        }
        Use::Orphan | Use::Background => bail!("{right}: a graph service does not do that itself"),
    };
    let answer = answer.replace('"', "\\\"");
    let caller = caller.as_ref().map(|caller| &caller.process);
    let called = || caller.map(|process| process.output()).unwrap_or_default();
    let all = || async { Ok(format!("{answer}\n{}\n{}", called(), said(&graph).await)) };
    until(&format!("{right}: a program says {words}"), SOON, all, |all| all.contains(words)).await?;
    Ok(())
}

/// Bypasses a gate, and returns the message of the error.
async fn bypass(listen: &str) -> anyhow::Result<String> {
    let channel = Endpoint::try_from(format!("http://{listen}"))?.connect().await?;
    let ttl = Some(prost_types::Duration { seconds: 60, nanos: 0 });
    let request = BypassGateRequest { name: format!("gates/{BRAKE}"), ttl, reason: "the right is tried".to_owned() };
    let answer = AdminServiceClient::new(channel).bypass_gate(request).await;
    Ok(answer.err().map(|status| status.message().to_owned()).unwrap_or_default())
}

/// Runs the only executor without one right, at a graph service with all rights.
async fn executor_lacks(
    site: &Site,
    (graph, listen): (&Service, &str),
    number: usize,
    (right, uses, words): (Right, Use, &str),
) -> anyhow::Result<()> {
    let suffix = format!("row-{number}");
    let kubeconfig = site.account("executor-service", &suffix, Some(&right)).await?;
    let mut guarded = None;
    let mut executor = if uses == Use::Call {
        let kubeconfig = site.kubeconfig("graph-service-whole").await?;
        let (graph, listen) = site.graph(Wire::Tls, &kubeconfig, &suffix)?;
        guarded = Some(graph);
        site.executor_by_token(&format!("executor-service-{suffix}"), &suffix, &listen).await?
    } else {
        site.executor(&kubeconfig, &suffix, listen)?
    };
    let graph = guarded.as_ref().unwrap_or(graph);
    match uses {
        Use::Start | Use::Call => {}
        Use::Orphan | Use::Background => {
            executor.ready().await?;
            let owner = site.family(&suffix).await?;
            delete(&site.client, &owner, if uses == Use::Orphan { "Orphan" } else { "Background" }).await?;
        }
        Use::Misplaced | Use::Press | Use::Lift | Use::Bypass => bail!("{right}: an executor does not do that"),
    }
    let all = || async { Ok(format!("{}\n{}", said(&executor).await, said(graph).await)) };
    until(&format!("{right}: a program says {words}"), SOON, all, |all| all.contains(words)).await?;
    executor.process.terminate()?;
    executor.process.ended(SOON).await?;
    Ok(())
}
