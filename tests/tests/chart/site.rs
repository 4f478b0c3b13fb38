//! A cluster with an installation of the chart. Its services are processes on this machine.

use super::{apply, restricted};
use anyhow::Context;
use k8s_openapi::ByteString;
use kube::Client;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tests::chart::{self, Helm, NAMESPACE, Right, reduced};
use tests::controlplane::{ControlPlane, Options, require};
use tests::load::{self, configmaps, create, until};
use tests::process::{Directory, free_port};
use tests::service::{Programs, Service};

pub(super) const SOON: Duration = Duration::from_secs(60);
pub(super) const PAUSES: &str = "/apis/ownergraph.dev/v1alpha1/pauses";
/// The mount path of certificates in the chart.
const MOUNTED: &str = "/etc/ownergraph/tls";

/// The protocol between the services.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wire {
    Plaintext,
    Tls,
}

/// A cluster with the chart's accounts, and the chart's flags for processes on this machine.
pub(super) struct Site {
    pub(super) plane: ControlPlane,
    pub(super) client: Client,
    programs: Programs,
    /// The chart with its default values.
    pub(super) installed: Vec<Value>,
    /// The chart without TLS, for processes whose admin port a test reads.
    plain: Vec<Value>,
    directory: Directory,
    /// The authorities of a person's machine, instead of those of this one.
    pub(super) trusted: Option<PathBuf>,
}

impl Site {
    pub(super) async fn new() -> anyhow::Result<Option<Site>> {
        Site::with(Options::default()).await
    }

    pub(super) async fn with(options: Options) -> anyhow::Result<Option<Site>> {
        let Some(site) = Site::of(options, &[]).await? else { return Ok(None) };
        site.pauses_are_served().await?;
        Ok(Some(site))
    }

    /// The API server serves the definition of pauses after a moment.
    pub(super) async fn pauses_are_served(&self) -> anyhow::Result<()> {
        let served = || async { Ok(load::list(&self.client, PAUSES).await.is_ok()) };
        until("pauses are served", SOON, served, |served| *served).await.map(drop)
    }

    /// A cluster with the chart with these values.
    pub(super) async fn of(options: Options, values: &[&str]) -> anyhow::Result<Option<Site>> {
        let (Some(helm), Some(binaries)) = (Helm::require()?, require()) else { return Ok(None) };
        let plane = ControlPlane::start_with(&binaries, options).await?;
        let installed = chart::objects(&helm.template(values)?)?;
        let plain = chart::objects(&helm.template(&[values, &["--set=tls.enabled=false"]].concat())?)?;
        apply(&plane, &[restricted(NAMESPACE)], &[])?;
        apply(&plane, &installed, &[])?;
        let client = plane.client().await?;
        let directory = Directory::create()?;
        let services = ["graph-service", "executor-service"].into_iter();
        for deployment in services.filter(|service| chart::deployment(&installed, service).is_ok()) {
            write_secret(&installed, deployment, &directory.path().join(deployment))?;
        }
        Ok(Some(Site { programs: Programs::build()?, client, plane, installed, plain, directory, trusted: None }))
    }

    /// Returns a kubeconfig with a token of this service account.
    pub(super) async fn kubeconfig(&self, account: &str) -> anyhow::Result<PathBuf> {
        let token = self.token(account, json!({})).await?;
        self.write(account, &json!({ "token": token }))
    }

    /// A kubeconfig of this user.
    pub(super) fn write(&self, name: &str, user: &Value) -> anyhow::Result<PathBuf> {
        let cluster =
            json!({ "server": self.plane.url(), "certificate-authority": self.plane.directory().join("ca.crt") });
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{ "name": "c", "cluster": cluster }], "users": [{ "name": "u", "user": user }],
            "contexts": [{ "name": "c", "context": { "cluster": "c", "user": "u" } }],
        });
        let file = self.directory.path().join(format!("{name}.kubeconfig"));
        fs::write(&file, kubeconfig.to_string())?;
        Ok(file)
    }

    pub(super) async fn token(&self, account: &str, spec: Value) -> anyhow::Result<String> {
        let path = format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{account}/token");
        let request = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec });
        let answer = create(&self.client, &path, &request).await?;
        Ok(answer["status"]["token"].as_str().context("a TokenRequest without a token")?.to_owned())
    }

    /// Creates an account like the chart's own, without one right.
    pub(super) async fn account(&self, of: &str, suffix: &str, without: Option<&Right>) -> anyhow::Result<PathBuf> {
        apply(&self.plane, &reduced(&self.installed, of, suffix, without), &[])?;
        self.kubeconfig(&format!("{of}-{suffix}")).await
    }

    /// Starts the graph service as the chart does, with another Lease. Returns its address too.
    pub(super) fn graph(&self, wire: Wire, kubeconfig: &Path, lease: &str) -> anyhow::Result<(Service, String)> {
        let listen = format!("127.0.0.1:{}", free_port()?);
        let mut flags = self.flags(wire, "graph-service", lease)?;
        replace(&mut flags, "--listen", &listen)?;
        replace(&mut flags, "--advertise", &listen)?;
        replace(&mut flags, "--lease-name", lease)?;
        Ok((self.start("graph-service", &format!("graph-{lease}"), kubeconfig, flags)?, listen))
    }

    /// Starts an executor as the chart does, in plaintext.
    pub(super) fn executor(&self, kubeconfig: &Path, name: &str, graph: &str) -> anyhow::Result<Service> {
        let mut flags = self.flags(Wire::Plaintext, "executor-service", name)?;
        replace(&mut flags, "--graph", graph)?;
        self.start("executor-service", name, kubeconfig, flags)
    }

    /// Starts an executor of this account as the chart does. The executor sends a token that is bound to its pod, and
    /// checks the name of the server.
    pub(super) async fn executor_by_token(&self, account: &str, name: &str, graph: &str) -> anyhow::Result<Service> {
        let file = self.bound_token(&self.installed, "executor-service", account, name).await?;
        let mut flags = self.flags(Wire::Tls, "executor-service", name)?;
        replace(&mut flags, "--graph", graph)?;
        replace(&mut flags, "--token-file", &file)?;
        let kubeconfig = self.kubeconfig(account).await?;
        self.start("executor-service", name, &kubeconfig, flags)
    }

    /// Starts a reader of decisions as a chart with `audit` does. The flags in `here` get other values on this machine.
    pub(super) async fn reader(
        &self,
        objects: &[Value],
        component: &str,
        here: &[(&str, &str)],
    ) -> anyhow::Result<Service> {
        let token = self.bound_token(objects, component, "audit", component).await?;
        let files = self.directory.path().join("graph-service").display().to_string();
        let flags = chart::arguments(objects, component, component)?;
        let mut flags: Vec<String> = flags.into_iter().map(|flag| flag.replace(MOUNTED, &files)).collect();
        let position = self.directory.path().join(format!("{component}.position")).display().to_string();
        for (flag, value) in [("--token-file", token.as_str()), ("--position", &position)].iter().chain(here) {
            replace(&mut flags, flag, value)?;
        }
        let kubeconfig = self.kubeconfig("audit").await?;
        self.start("ownergraph", component, &kubeconfig, flags)
    }

    /// Creates a pod of a Deployment, and a file with a token that is bound to the pod.
    async fn bound_token(
        &self,
        objects: &[Value],
        deployment: &str,
        account: &str,
        name: &str,
    ) -> anyhow::Result<String> {
        let mut pod = chart::pod(chart::object(objects, "Deployment", deployment)?, name);
        pod["spec"]["serviceAccountName"] = json!(account);
        let pod = create(&self.client, &format!("/api/v1/namespaces/{NAMESPACE}/pods"), &pod).await?;
        let bound = json!({ "kind": "Pod", "apiVersion": "v1", "name": name, "uid": pod["metadata"]["uid"] });
        let token = self.token(account, json!({ "audiences": ["ownergraph"], "boundObjectRef": bound })).await?;
        let file = self.directory.path().join(format!("{name}.token"));
        fs::write(&file, token)?;
        Ok(file.display().to_string())
    }

    /// The files of this site.
    pub(super) fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Returns the flags of a Deployment, with the paths of its secret's files on this machine.
    fn flags(&self, wire: Wire, deployment: &str, pod: &str) -> anyhow::Result<Vec<String>> {
        let objects = match wire {
            Wire::Plaintext => &self.plain,
            Wire::Tls => &self.installed,
        };
        let files = self.directory.path().join(deployment).display().to_string();
        let flags = chart::arguments(objects, deployment, pod)?;
        Ok(flags.into_iter().map(|flag| flag.replace(MOUNTED, &files)).collect())
    }

    fn start(&self, program: &str, log: &str, kubeconfig: &Path, mut flags: Vec<String>) -> anyhow::Result<Service> {
        // The test gives the process an admin address of its own.
        flags.retain(|flag| !flag.starts_with("--admin-listen="));
        flags.push(format!("--kubeconfig={}", kubeconfig.display()));
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        Service::start(&self.programs, program, log, self.directory.path(), &flags)
    }

    /// Creates an owner and dependents in a namespace of their own.
    pub(super) async fn family(&self, namespace: &str) -> anyhow::Result<String> {
        load::namespace(&self.client, namespace).await?;
        let owners = load::families(&self.client, namespace, "owner", 1, 5).await?;
        Ok(format!("{}/{}", configmaps(namespace), owners[0]))
    }

    /// Runs the plugin for a person who has this kubeconfig and nothing else. Returns the exit code, the answer, and
    /// the other output.
    pub(super) async fn person(&self, kubeconfig: &Path, words: &[&str]) -> anyhow::Result<(i32, String, String)> {
        let mut plugin = tokio::process::Command::new(self.programs.path("ownergraph"));
        plugin.envs(self.trusted.iter().map(|file| ("SSL_CERT_FILE", file)));
        let output =
            plugin.args(words).arg("--kubeconfig").arg(kubeconfig).output().await.context("running ownergraph")?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ok((output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr)))
    }

    /// Runs the container of `helm test` that asks the graph service, with the address of this one.
    pub(super) fn helm_test(&self, graph: &Service) -> anyhow::Result<(bool, String)> {
        let pod = chart::object(&self.installed, "Pod", "ownergraph-test")?;
        let [url, ca] = [0, 1].map(|at| pod["spec"]["containers"][0]["args"][at].as_str().unwrap_or_default());
        let here = graph.admin().replace("127.0.0.1", "localhost");
        let files = self.directory.path().join("graph-service").display().to_string();
        let mut healthcheck = Command::new(self.programs.path("healthcheck"));
        healthcheck.arg(url.replace("graph-service-replicas.ownergraph.svc:7451", &here));
        let output = healthcheck.arg(ca.replace(MOUNTED, &files)).output().context("running healthcheck")?;
        Ok((output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned()))
    }

    pub(super) fn ask(&self, server: &str, words: &[&str]) -> anyhow::Result<String> {
        let mut ownergraph = Command::new(self.programs.path("ownergraph"));
        let output = ownergraph.args(words).args(["--server", server]).output().context("running ownergraph")?;
        Ok(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

/// Replaces the value of a flag of the chart. A flag that the chart does not set is an error.
fn replace(flags: &mut [String], flag: &str, value: &str) -> anyhow::Result<()> {
    let prefix = format!("{flag}=");
    let found = flags.iter_mut().find(|text| text.starts_with(&prefix));
    *found.with_context(|| format!("the chart gives no {flag}"))? = format!("{prefix}{value}");
    Ok(())
}

/// Returns the files of the secret that a Deployment mounts.
fn write_secret(objects: &[Value], deployment: &str, directory: &Path) -> anyhow::Result<()> {
    let deployment = chart::object(objects, "Deployment", deployment)?;
    let name = deployment["spec"]["template"]["spec"]["volumes"][0]["secret"]["secretName"].as_str();
    let secret = chart::object(objects, "Secret", name.context("the first volume is the secret's")?)?;
    fs::create_dir_all(directory)?;
    for (file, text) in secret["data"].as_object().context("a secret without data")? {
        let ByteString(bytes) = serde_json::from_value(text.clone())?;
        fs::write(directory.join(file), bytes)?;
    }
    Ok(())
}
