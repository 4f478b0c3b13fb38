//! Both services with exactly the rights that the chart gives them, and with each of these taken away.

use super::{apply, restricted};
use anyhow::{Context, bail, ensure};
use futures::StreamExt as _;
use kube::Client;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tests::chart::{self, Helm, NAMESPACE, Right, reduced, rights};
use tests::controlplane::{ControlPlane, require};
use tests::load::{self, configmap, configmaps, create, delete, get, reference_to, until};
use tests::process::{Directory, free_port};
use tests::service::{Programs, Service};

pub(super) const SOON: Duration = Duration::from_secs(60);
const CASCADE_WITHIN: Duration = Duration::from_secs(120);
/// Processes at once: each lists the whole cluster first.
const ROWS_AT_ONCE: usize = 4;
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
const PAUSES: &str = "/apis/ownergraph.dev/v1alpha1/pauses";
/// A pause that holds nothing, because nothing is in its namespace.
const BRAKE: &str = "brake";

/// What has to happen for a right to be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    /// It starts.
    Start,
    /// An object refers to an owner in another namespace, and an Event may say so already.
    Misplaced,
    /// Somebody presses pause.
    Press,
    /// Somebody lifts a pause.
    Lift,
    /// An object names an owner that nobody has ever seen.
    Question,
    /// An owner goes that orphans its dependents.
    Orphan,
    /// An owner goes, and its dependents with it.
    Background,
}

/// Who lacks what, what makes that show, and the words by which it is named: in the log of either service, in `/readyz?verbose`, or to whoever
/// asked.
const ROWS: [(&str, Use, &str); 14] = [
    ("graph-service: get *.*", Use::Start, "cannot get resource \\\"namespaces\\\""),
    ("graph-service: list *.*", Use::Start, "cannot list resource \\\"pauses\\\""),
    ("graph-service: watch *.*", Use::Start, "cannot watch resource \\\"configmaps\\\""),
    ("graph-service: create events", Use::Misplaced, "cannot create resource \\\"events\\\""),
    ("graph-service: patch events", Use::Misplaced, "cannot patch resource \\\"events\\\""),
    ("graph-service: create pauses.ownergraph.dev", Use::Press, "cannot create resource \\\"pauses\\\""),
    ("graph-service: delete pauses.ownergraph.dev", Use::Lift, "cannot delete resource \\\"pauses\\\""),
    ("graph-service: patch pauses/status.ownergraph.dev", Use::Start, "cannot patch resource \\\"pauses/status\\\""),
    ("graph-service: create leases.coordination.k8s.io", Use::Start, "cannot create resource \\\"leases\\\""),
    ("graph-service: update leases.coordination.k8s.io", Use::Start, "cannot update resource \\\"leases\\\""),
    ("executor-service: get *.*", Use::Start, "cannot get resource \\\"namespaces\\\""),
    ("executor-service: list *.*", Use::Question, "cannot list resource \\\"configmaps\\\""),
    ("executor-service: patch *.*", Use::Orphan, "cannot patch resource \\\"configmaps\\\""),
    ("executor-service: delete *.*", Use::Background, "cannot delete resource \\\"configmaps\\\""),
];

/// A cluster with the chart's accounts in it, and the chart's flags for processes of this machine.
struct Site {
    plane: ControlPlane,
    client: Client,
    programs: Programs,
    installed: Vec<Value>,
    directory: Directory,
}

impl Site {
    async fn new() -> anyhow::Result<Option<Site>> {
        let (Some(helm), Some(binaries)) = (Helm::require()?, require()) else { return Ok(None) };
        let plane = ControlPlane::start(&binaries).await?;
        let installed = chart::objects(&helm.template(&["--set=tls.enabled=false"])?)?;
        apply(&plane, &[restricted(NAMESPACE)], &[])?;
        apply(&plane, &installed, &[])?;
        let client = plane.client().await?;
        // The definition of pauses takes a moment to be served.
        let served = || async { Ok(load::list(&client, PAUSES).await.is_ok()) };
        until("pauses are served", SOON, served, |served| *served).await?;
        let directory = Directory::create()?;
        Ok(Some(Site { programs: Programs::build()?, client, plane, installed, directory }))
    }

    /// A kubeconfig with a token of this service account.
    async fn kubeconfig(&self, account: &str) -> anyhow::Result<PathBuf> {
        let token = self.token(account, json!({})).await?;
        let cluster =
            json!({ "server": self.plane.url(), "certificate-authority": self.plane.directory().join("ca.crt") });
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{ "name": "c", "cluster": cluster }], "users": [{ "name": "u", "user": { "token": token } }],
            "contexts": [{ "name": "c", "context": { "cluster": "c", "user": "u" } }],
        });
        let file = self.directory.path().join(format!("{account}.kubeconfig"));
        std::fs::write(&file, kubeconfig.to_string())?;
        Ok(file)
    }

    async fn token(&self, account: &str, spec: Value) -> anyhow::Result<String> {
        let path = format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{account}/token");
        let request = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec });
        let answer = create(&self.client, &path, &request).await?;
        Ok(answer["status"]["token"].as_str().context("a TokenRequest without a token")?.to_owned())
    }

    /// An account like the chart's own, without one right.
    async fn account(&self, of: &str, suffix: &str, without: Option<&Right>) -> anyhow::Result<PathBuf> {
        apply(&self.plane, &reduced(&self.installed, of, suffix, without), &[])?;
        self.kubeconfig(&format!("{of}-{suffix}")).await
    }

    /// The graph service as the chart starts it, under another Lease.
    fn graph(&self, kubeconfig: &Path, lease: &str) -> anyhow::Result<(Service, String)> {
        let listen = format!("127.0.0.1:{}", free_port()?);
        let mut flags = chart::arguments(&self.installed, "graph-service", lease)?;
        replace(&mut flags, "--listen", &listen)?;
        replace(&mut flags, "--advertise", &listen)?;
        replace(&mut flags, "--lease-name", lease)?;
        Ok((self.start("graph-service", &format!("graph-{lease}"), kubeconfig, flags)?, listen))
    }

    fn executor(&self, kubeconfig: &Path, name: &str, graph: &str) -> anyhow::Result<Service> {
        let mut flags = chart::arguments(&self.installed, "executor-service", name)?;
        replace(&mut flags, "--graph", graph)?;
        self.start("executor-service", name, kubeconfig, flags)
    }

    fn start(&self, program: &str, log: &str, kubeconfig: &Path, mut flags: Vec<String>) -> anyhow::Result<Service> {
        // The test gives it an admin address of its own.
        flags.retain(|flag| !flag.starts_with("--admin-listen="));
        flags.push(format!("--kubeconfig={}", kubeconfig.display()));
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        Service::start(&self.programs, program, log, self.directory.path(), &flags)
    }

    /// An owner and dependents in a namespace of their own.
    async fn family(&self, namespace: &str) -> anyhow::Result<String> {
        load::namespace(&self.client, namespace).await?;
        let owners = load::families(&self.client, namespace, "owner", 1, 5).await?;
        Ok(format!("{}/{}", configmaps(namespace), owners[0]))
    }

    fn ask(&self, server: &str, words: &[&str]) -> anyhow::Result<String> {
        let mut ownergraph = Command::new(self.programs.path("ownergraph"));
        let output = ownergraph.args(words).args(["--server", server]).output().context("running ownergraph")?;
        Ok(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

/// Gives a flag of the chart another value. One that the chart does not have is an error.
fn replace(flags: &mut [String], flag: &str, value: &str) -> anyhow::Result<()> {
    let prefix = format!("{flag}=");
    let found = flags.iter_mut().find(|text| text.starts_with(&prefix));
    *found.with_context(|| format!("the chart gives no {flag}"))? = format!("{prefix}{value}");
    Ok(())
}

/// Everything that a service says by itself, with quotes as JSON has them.
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

    // Two that lack nothing: the graph service that executors without a right are measured against, and the first to post the Event.
    let kubeconfig = site.account("graph-service", "whole", None).await?;
    let (mut graph, listen) = site.graph(&kubeconfig, "whole")?;
    graph.ready().await?;
    let brake = json!({
        "apiVersion": "ownergraph.dev/v1alpha1", "kind": "Pause", "metadata": { "name": BRAKE },
        "spec": { "reason": "shows how it stands", "lifetimeSeconds": 3600, "scope": { "targets": [{ "namespaces": ["nowhere"] }] } },
    });
    create(&site.client, PAUSES, &brake).await?;
    misplaced(&site).await?;

    let (graphs, executors): (Vec<_>, Vec<_>) =
        missing.into_iter().enumerate().partition(|(_, (right, ..))| right.account == "graph-service");
    let shown = futures::stream::iter(graphs).map(|(number, row)| lacks(&site, number, row));
    let shown: Vec<anyhow::Result<()>> = shown.buffer_unordered(ROWS_AT_ONCE).collect().await;
    shown.into_iter().collect::<anyhow::Result<()>>()?;
    // One after the other, because one of them would do what the other cannot.
    for (number, row) in executors {
        executor_lacks(&site, (&graph, &listen), number, row).await?;
    }
    Ok(())
}

/// The rows by right. A right without a row, or a row without its right, is an error.
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
    let (mut graph, listen) = site.graph(&kubeconfig, lease)?;
    let kubeconfig = site.kubeconfig("executor-service").await?;
    let mut executor = site.executor(&kubeconfig, "executor-0", &listen)?;
    graph.ready().await?;
    executor.ready().await?;
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
    let lease = get(&site.client, format!("{LEASES}/{lease}")).await?.context("nobody made the Lease")?;
    ensure!(lease["spec"]["holderIdentity"].as_str().is_some_and(|holder| !holder.is_empty()), "nobody led: {lease}");
    for (name, service) in [("graph-service", &graph), ("executor-service", &executor)] {
        let said = said(service).await;
        ensure!(!said.contains("forbidden"), "{name} lacks a right: {said}");
    }
    Ok(())
}

/// An object whose owner is in another namespace; waits until an Event says so.
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

/// A graph service without one right, and no executor.
async fn lacks(site: &Site, number: usize, (right, uses, words): (Right, Use, &str)) -> anyhow::Result<()> {
    let suffix = format!("row-{number}");
    let kubeconfig = site.account("graph-service", &suffix, Some(&right)).await?;
    let (mut graph, listen) = site.graph(&kubeconfig, &suffix)?;
    let answer = match uses {
        Use::Start | Use::Misplaced => String::new(),
        Use::Press => {
            graph.ready().await?;
            site.ask(&listen, &["pause", "--namespace", "nowhere", "--for", "1m", "--reason", "the brake is tried"])?
        }
        Use::Lift => {
            graph.ready().await?;
            site.ask(&listen, &["resume", BRAKE])?
        }
        Use::Question | Use::Orphan | Use::Background => bail!("{right}: a graph service does not do that itself"),
    };
    let answer = answer.replace('"', "\\\"");
    let all = || async { Ok(format!("{answer}\n{}", said(&graph).await)) };
    until(&format!("{right}: somebody says {words}"), SOON, all, |all| all.contains(words)).await?;
    Ok(())
}

/// The only executor, without one right, of a graph service that lacks nothing.
async fn executor_lacks(
    site: &Site,
    (graph, listen): (&Service, &str),
    number: usize,
    (right, uses, words): (Right, Use, &str),
) -> anyhow::Result<()> {
    let suffix = format!("row-{number}");
    let kubeconfig = site.account("executor-service", &suffix, Some(&right)).await?;
    let mut executor = site.executor(&kubeconfig, &suffix, listen)?;
    match uses {
        Use::Start => {}
        Use::Question => {
            executor.ready().await?;
            load::namespace(&site.client, &suffix).await?;
            let nobody = json!({ "apiVersion": "v1", "kind": "ConfigMap", "name": "nobody", "uid": "11111111-2222-3333-4444-555555555555" });
            create(&site.client, &configmaps(&suffix), &configmap("asks", &[nobody])).await?;
        }
        Use::Orphan | Use::Background => {
            executor.ready().await?;
            let owner = site.family(&suffix).await?;
            delete(&site.client, &owner, if uses == Use::Orphan { "Orphan" } else { "Background" }).await?;
        }
        Use::Misplaced | Use::Press | Use::Lift => bail!("{right}: an executor does not do that"),
    }
    let all = || async { Ok(format!("{}\n{}", said(&executor).await, said(graph).await)) };
    until(&format!("{right}: somebody says {words}"), SOON, all, |all| all.contains(words)).await?;
    executor.process.terminate()?;
    executor.process.ended(SOON).await?;
    Ok(())
}
