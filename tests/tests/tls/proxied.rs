//! The API server behind a proxy of the kubeconfig: every command and both services.

use super::until_answers;
use anyhow::{Context, ensure};
use kube_api::Cluster;
use serde_json::json;
use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use tests::gateway::{Gateway, PASSWORD, Protocol};
use tests::load::{configmap, configmaps, create, reference_to};
use tests::process::{Directory, Process, free_port};
use tests::service::{Fleet, Programs, Service};

/// A name that resolves nowhere: only a proxy knows the way.
const HOST: &str = "k8s.invalid";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const PROTOCOLS: [(Protocol, &str); 2] = [(Protocol::Connect, "connect"), (Protocol::Socks5, "socks5")];

/// Commands that ask, each of the graph service and of the API server, or `--direct` of the API server alone.
const QUESTIONS: [&str; 15] = [
    "status",
    "version",
    "tree cm/owner",
    "owners cm/owned",
    "path cm/owned cm/owner",
    "why cm/owned",
    "plan delete cm/owner",
    "stuck -A",
    "cycles -A",
    "orphans -A",
    "check -A",
    "decisions -A",
    "queue",
    "export -A",
    "tree cm/owner --direct",
];
/// Commands that act, in their order. The last needs both services.
const ACTIONS: [&str; 5] = [
    "pause --all --for 1m --reason drill",
    "resume --all",
    "delete cm/owner --confirm=DIGEST",
    "progress cm/owner",
    "try --objects 20 --timeout 60s",
];

fn write_kubeconfig(path: &Path, cluster: serde_json::Value) -> anyhow::Result<()> {
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "behind",
        "clusters": [{ "name": "behind", "cluster": cluster }],
        "users": [{ "name": "me", "user": {} }],
        "contexts": [{ "name": "behind", "context": { "cluster": "behind", "user": "me", "namespace": "default" } }],
    });
    fs::write(path, config.to_string()).with_context(|| format!("writing {}", path.display()))
}

struct Behind {
    programs: Programs,
    directory: Directory,
    gateway: Gateway,
    kubeconfig: PathBuf,
    _sandbox: Process,
}

impl Behind {
    /// A sandbox that the kubeconfig reaches only by the proxy.
    async fn start(protocol: Protocol) -> anyhow::Result<Behind> {
        let programs = Programs::build()?;
        let directory = Directory::create()?;
        let (sandbox, address) = sandbox(&programs, directory.path()).await?;
        let direct = Cluster::without_credentials(format!("http://{address}").parse()?)?.client;
        let collection = configmaps("default");
        let owner = create(&direct, &collection, &configmap("owner", &[])).await?;
        create(&direct, &collection, &configmap("owned", &[reference_to(&owner)])).await?;
        create(&direct, DEFINITIONS, &serde_saphyr::from_str(include_str!("../../../deploy/crds/pauses.yaml"))?)
            .await?;
        let gateway = Gateway::start(protocol, address).await?;
        let kubeconfig = directory.path().join("behind.kubeconfig");
        write_kubeconfig(&kubeconfig, json!({ "server": format!("http://{HOST}:6443"), "proxy-url": gateway.url() }))?;
        Ok(Behind { programs, directory, gateway, kubeconfig, _sandbox: sandbox })
    }

    /// Runs a line of `ownergraph`; what it prints, without an error and without the password of the proxy.
    fn run(&self, line: &str, more: &[&str]) -> anyhow::Result<String> {
        let mut command = Command::new(self.programs.path("ownergraph"));
        command.args(line.split(' ')).args(more).env("OWNERGRAPH_KUBECONFIG", &self.kubeconfig);
        let output = command.output().context("running ownergraph")?;
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        ensure!(output.status.success(), "{line}: {}: {said}", output.status);
        ensure!(!said.contains(PASSWORD), "{line}: {said}");
        Ok(said)
    }
}

/// `ownergraph sandbox` at a free address, ready.
pub(super) async fn sandbox(programs: &Programs, directory: &Path) -> anyhow::Result<(Process, SocketAddr)> {
    let address = SocketAddr::from(([127, 0, 0, 1], free_port()?));
    let arguments = ["sandbox".to_owned(), "--listen".to_owned(), address.to_string()];
    let process = Process::spawn("sandbox", directory, &programs.path("ownergraph"), &arguments)?;
    until_answers(&format!("http://{address}")).await?;
    Ok((process, address))
}

#[tokio::test(flavor = "multi_thread")]
async fn every_command_and_both_services_go_by_the_proxy() -> anyhow::Result<()> {
    let _turn = crate::turn().await?;
    for (protocol, name) in PROTOCOLS {
        let behind = Behind::start(protocol).await?;
        let fleet = Fleet::start(&behind.programs, &behind.kubeconfig, 1).await?;
        let mut digest = String::new();
        for line in QUESTIONS.iter().chain(&ACTIONS) {
            let server = ["--server", fleet.grpc()];
            let named = !line.starts_with("try") && !line.ends_with("--direct");
            let more = if named { &server[..] } else { &[] };
            let line = line.replace("DIGEST", &digest);
            let said = behind.run(&line, more).with_context(|| name.to_owned())?;
            if line.starts_with("plan") {
                let line = said.lines().find_map(|line| line.strip_prefix("digest "));
                digest = line.context("a plan has a digest")?.to_owned();
            }
        }
        fleet.graph.process.terminate()?;
        let flags = ["collect", "--kubeconfig", &behind.kubeconfig.display().to_string()];
        let mut collect = Service::start(&behind.programs, "ownergraph", "collect", behind.directory.path(), &flags)?;
        collect.ready().await?;
        let asked = behind.gateway.asked();
        let only = BTreeSet::from([format!("{HOST}:6443")]);
        ensure!(asked.keys().cloned().collect::<BTreeSet<_>>() == only, "{name}: {asked:?}");
        let logs = [fleet.graph.process.output(), fleet.executors[0].process.output(), collect.process.output()];
        ensure!(!logs.concat().contains(PASSWORD), "{name}: a log has the password");
    }
    Ok(())
}
