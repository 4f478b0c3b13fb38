//! The two worlds for cases, each with its collector.

use super::guard::{Guard, Seen};
use super::step::{CLUSTER_WIDGET, GROUP, Kind, WIDGET};
use crate::controlplane::{self, CollectorOptions, ControlPlane, UpstreamCollector};
use crate::process::Directory;
use crate::service::{Programs, Service};
use anyhow::{Context, ensure};
use axum::serve::ListenerExt as _;
use http::{Method, Request, StatusCode};
use kube_api::{Access, Answer, Cluster, call, connect};

use sandbox::{Fault, FaultAnswer, FaultId, Server};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const ANSWER_MAX_BYTES: usize = 16 << 20;
const ANSWER_WITHIN: Duration = Duration::from_secs(20);
const POLL_EVERY: Duration = Duration::from_millis(150);
const KIND_WITHIN: Duration = Duration::from_secs(60);
const MERGE: &str = "application/merge-patch+json";
/// No process listens on this port.
const DEAD_WEBHOOK: &str = "https://127.0.0.1:1/convert";

/// An API server, and the ways to reach it.
#[derive(Debug)]
pub struct World {
    pub name: &'static str,
    cluster: Cluster,
    /// The client of the collector.
    kubeconfig: PathBuf,
    sandbox: Option<Sandbox>,
    /// The control plane that belongs to this world alone.
    plane: Option<ControlPlane>,
    /// True if upstream's collector runs in place of ours.
    upstream: bool,
    programs: Programs,
    directory: Directory,
}

/// A running collector.
#[derive(Debug)]
pub enum Collector {
    Ours(Service),
    Upstream(UpstreamCollector),
}

#[derive(Debug)]
struct Sandbox {
    server: Server,
    faults: Mutex<Vec<FaultId>>,
    guard: Guard,
    _serving: JoinSet<()>,
}

impl World {
    /// Starts the sandbox behind a socket on loopback.
    pub async fn sandbox() -> anyhow::Result<World> {
        World::sandbox_of(Server::new(1), "sandbox").await
    }

    /// Starts the sandbox as a server without protobuf.
    pub async fn sandbox_in_json() -> anyhow::Result<World> {
        let server = Server::new(1);
        server.speak_protobuf(false);
        World::sandbox_of(server, "sandbox in JSON").await
    }

    async fn sandbox_of(server: Server, name: &'static str) -> anyhow::Result<World> {
        let directory = Directory::create()?;
        let guard = Guard::default();
        let mut serving = JoinSet::new();
        let (listener, kubeconfig) = listen(&directory, "kubeconfig").await?;
        let serve = server.clone();
        serving.spawn(async move {
            let ended = serve.serve(listener, std::future::pending()).await;
            tracing::info!(?ended, "the sandbox has stopped");
        });
        let (listener, watched) = listen(&directory, "collector-kubeconfig").await?;
        let router = guard.before(server.router());
        serving.spawn(async move {
            // A watch event is small, and must not wait for the acknowledgement of the former one.
            let listener = listener.tap_io(|stream| drop(stream.set_nodelay(true)));
            let ended = axum::serve(listener, router).await;
            tracing::info!(?ended, "the way to the sandbox has ended");
        });
        let sandbox = Sandbox { server, faults: Mutex::default(), guard, _serving: serving };
        let mut world = World::open(name, kubeconfig, Some(sandbox), directory).await?;
        world.kubeconfig = watched;
        Ok(world)
    }

    /// Starts a real API server, or returns `None` if it cannot be built. With `upstream`, upstream's collector runs in
    /// place of ours, to test the cases themselves.
    pub async fn real(upstream: bool) -> anyhow::Result<Option<World>> {
        let Some(binaries) = controlplane::require() else { return Ok(None) };
        let plane = ControlPlane::start(&binaries).await?;
        let kubeconfig = plane.kubeconfig().to_owned();
        let mut world = World::open("kube-apiserver", kubeconfig, None, Directory::create()?).await?;
        (world.plane, world.upstream) = (Some(plane), upstream);
        Ok(Some(world))
    }

    /// Uses the API server of a control plane that belongs to one test. Ours may run next to another collector.
    pub async fn on(plane: &ControlPlane) -> anyhow::Result<World> {
        World::open("kube-apiserver", plane.kubeconfig().to_owned(), None, Directory::create()?).await
    }

    async fn open(
        name: &'static str,
        kubeconfig: PathBuf,
        sandbox: Option<Sandbox>,
        directory: Directory,
    ) -> anyhow::Result<World> {
        let access = Access { kubeconfig: Some(kubeconfig.clone()), ..Access::default() };
        let cluster = connect(&access).await?;
        let world = World {
            name,
            cluster,
            kubeconfig,
            sandbox,
            plane: None,
            upstream: false,
            programs: Programs::build()?,
            directory,
        };
        for kind in [WIDGET, CLUSTER_WIDGET] {
            world.define(kind).await?;
        }
        Ok(world)
    }

    /// Returns the collector's writes so far, or `None` if no guard records them.
    pub fn writes(&self) -> Option<Seen> {
        self.sandbox.as_ref().map(|sandbox| sandbox.guard.seen())
    }

    /// Starts a collector and waits until it is ready. `flags` are for ours.
    pub async fn collect(&self, name: &str, flags: &[&str]) -> anyhow::Result<Collector> {
        if let Some(plane) = self.plane.as_ref().filter(|_| self.upstream) {
            let options = CollectorOptions { requests_per_second: Some(1000), ..CollectorOptions::default() };
            return plane.start_upstream_collector(&options).await.map(Collector::Upstream);
        }
        let kubeconfig = self.kubeconfig.display().to_string();
        let arguments = [&["collect", "--kubeconfig", &kubeconfig, "--log-level", "debug"], flags].concat();
        let mut service = Service::start(&self.programs, "ownergraph", name, self.directory.path(), &arguments)?;
        service.ready().await?;
        Ok(Collector::Ours(service))
    }

    /// Sends one request with a JSON body, and returns any answer.
    pub async fn ask(&self, method: Method, path: &str, kind: &str, body: Option<&Value>) -> anyhow::Result<Answer> {
        let builder = Request::builder().method(&method).uri(path).header("content-type", kind);
        let request = builder.body(body.map_or_else(Vec::new, |body| body.to_string().into_bytes()))?;
        call(&self.cluster.client, request, ANSWER_MAX_BYTES, ANSWER_WITHIN)
            .await
            .with_context(|| format!("{method} {path}"))
    }

    /// Sends one request that must succeed. Returns the answer as JSON.
    pub async fn send(&self, method: Method, path: &str, body: Option<&Value>) -> anyhow::Result<Value> {
        let kind = if method == Method::PATCH { MERGE } else { "application/json" };
        let answer = self.ask(method.clone(), path, kind, body).await?;
        let text = String::from_utf8_lossy(&answer.body);
        ensure!(answer.status.is_success(), "{method} {path} is answered {}: {text}", answer.status);
        serde_json::from_str(&text).with_context(|| format!("{method} {path}: {text}"))
    }

    /// Returns the object, or `None` if it does not exist.
    pub async fn get(&self, path: &str) -> anyhow::Result<Option<Value>> {
        let answer = self.ask(Method::GET, path, "application/json", None).await?;
        let text = String::from_utf8_lossy(&answer.body);
        match answer.status {
            StatusCode::NOT_FOUND => Ok(None),
            StatusCode::OK => serde_json::from_str(&text).map(Some).with_context(|| format!("GET {path}: {text}")),
            status => anyhow::bail!("GET {path} is answered {status}: {text}"),
        }
    }

    /// Creates a namespace.
    pub async fn namespace(&self, name: &str) -> anyhow::Result<()> {
        let body = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
        self.send(Method::POST, "/api/v1/namespaces", Some(&body)).await.map(|_| ())
    }

    /// Defines a custom kind. The server stores its objects in another version than the preferred one.
    pub async fn define(&self, kind: Kind) -> anyhow::Result<()> {
        let version = |name: &str, storage: bool| {
            let schema = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
            json!({ "name": name, "served": true, "storage": storage, "schema": { "openAPIV3Schema": schema } })
        };
        let body = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": { "name": format!("{}.{GROUP}", kind.plural) },
            "spec": {
                "group": GROUP, "scope": if kind.namespaced { "Namespaced" } else { "Cluster" },
                "names": { "plural": kind.plural, "singular": kind.kind.to_lowercase(), "kind": kind.kind },
                "versions": [version("v1", false), version("v1alpha1", true)],
            },
        });
        self.send(Method::POST, DEFINITIONS, Some(&body)).await?;
        self.until_answer(&kind.collection("default"), "served", |status| status == StatusCode::OK).await
    }

    /// Deletes the definition of a custom kind.
    pub async fn undefine(&self, kind: Kind) -> anyhow::Result<()> {
        self.send(Method::DELETE, &definition(kind), None).await?;
        let gone = |status| status == StatusCode::NOT_FOUND;
        self.until_answer(&definition(kind), "gone", gone).await
    }

    /// Makes every read of the kind's objects in `namespace` fail, and every read of all of them.
    pub async fn break_kind(&self, kind: Kind, namespace: &str) -> anyhow::Result<()> {
        match &self.sandbox {
            Some(sandbox) => {
                let namespace = namespace.to_owned();
                let matches = move |attempt: &sandbox::Attempt<'_>| {
                    attempt.resource == kind.plural && (attempt.namespace.is_empty() || attempt.namespace == namespace)
                };
                let fault = sandbox.server.inject(Fault::new(matches, FaultAnswer::internal_error()));
                sandbox.faults.lock().expect("no code panics with the lock held").push(fault);
            }
            None => {
                let webhook = json!({ "conversionReviewVersions": ["v1"], "clientConfig": { "url": DEAD_WEBHOOK } });
                let conversion = json!({ "strategy": "Webhook", "webhook": webhook });
                let body = json!({ "spec": { "conversion": conversion } });
                self.send(Method::PATCH, &definition(kind), Some(&body)).await?;
            }
        }
        self.until_answer(&kind.collection(namespace), "broken", |status| !status.is_success()).await
    }

    /// Undoes [`World::break_kind`].
    pub async fn mend_kind(&self, kind: Kind, namespace: &str) -> anyhow::Result<()> {
        match &self.sandbox {
            Some(sandbox) => {
                for fault in sandbox.faults.lock().expect("no code panics with the lock held").drain(..) {
                    sandbox.server.lift(fault);
                }
            }
            None => {
                let body = json!({ "spec": { "conversion": { "strategy": "None", "webhook": null } } });
                self.send(Method::PATCH, &definition(kind), Some(&body)).await?;
            }
        }
        self.until_answer(&kind.collection(namespace), "mended", |status| status.is_success()).await
    }

    async fn until_answer(&self, path: &str, what: &str, wanted: impl Fn(StatusCode) -> bool) -> anyhow::Result<()> {
        let deadline = Instant::now() + KIND_WITHIN;
        let mut ticks = ticks();
        loop {
            ticks.tick().await;
            let status = self.ask(Method::GET, path, "application/json", None).await?.status;
            if wanted(status) {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "{path} is not {what} in {KIND_WITHIN:?}, still answered {status}");
        }
    }
}

/// Creates a socket on loopback, and a file with its address.
async fn listen(directory: &Directory, name: &str) -> anyhow::Result<(TcpListener, PathBuf)> {
    let listener = TcpListener::bind("127.0.0.1:0").await.context("binding a socket on loopback")?;
    let kubeconfig = directory.path().join(name);
    sandbox::write_kubeconfig(&kubeconfig, listener.local_addr()?).context("writing the sandbox's kubeconfig")?;
    Ok((listener, kubeconfig))
}

/// The interval between two repetitions of a question.
pub(super) fn ticks() -> tokio::time::Interval {
    let mut ticks = interval(POLL_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

fn definition(kind: Kind) -> String {
    format!("{DEFINITIONS}/{}.{GROUP}", kind.plural)
}
