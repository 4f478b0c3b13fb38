//! Runs kubectl of the supported release against `ownergraph sandbox`.

use anyhow::{Context, ensure};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use tests::controlplane::{Binaries, require};
use tests::load::until;
use tests::process::{Directory, Process, free_port};
use tests::service::Programs;

struct Kubectl {
    program: PathBuf,
    kubeconfig: PathBuf,
    cache: PathBuf,
}

impl Kubectl {
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.env("KUBECONFIG", &self.kubeconfig).env("KUBECACHEDIR", &self.cache).args(arguments);
        command
    }

    /// Runs kubectl with this standard input. Returns its standard output.
    fn run_with(&self, arguments: &[&str], input: &str) -> anyhow::Result<String> {
        let mut child = self
            .command(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("starting kubectl")?;
        child.stdin.take().context("kubectl has a standard input")?.write_all(input.as_bytes())?;
        let output = child.wait_with_output()?;
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "kubectl {}: {}: {errors}", arguments.join(" "), output.status);
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn run(&self, line: &str) -> anyhow::Result<String> {
        self.run_with(&line.split(' ').collect::<Vec<_>>(), "")
    }
}

async fn sandbox(binaries: &Binaries, directory: &Path) -> anyhow::Result<(Process, Kubectl)> {
    let programs = Programs::build()?;
    let kubeconfig = directory.join("kubeconfig");
    let listen = format!("127.0.0.1:{}", free_port()?);
    let arguments = ["sandbox", "--listen", &listen, "--write-kubeconfig", &kubeconfig.display().to_string()];
    let arguments = arguments.map(str::to_owned);
    let process = Process::spawn("sandbox", directory, &programs.path("ownergraph"), &arguments)?;
    let kubectl = Kubectl { program: binaries.program("kubectl"), kubeconfig, cache: directory.join("cache") };
    let ask = || async { Ok(kubectl.run("get --raw /readyz").unwrap_or_default()) };
    until("the sandbox is ready", Duration::from_secs(30), ask, |answer| answer == "ok").await?;
    Ok((process, kubectl))
}

const DEPLOYMENT: &str = "apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {app: web}}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: main, image: nginx}]}
";

#[tokio::test(flavor = "multi_thread")]
async fn what_a_person_does_with_kubectl_works() -> anyhow::Result<()> {
    let Some(binaries) = require() else { return Ok(()) };
    let directory = Directory::create()?;
    let (mut process, kubectl) = sandbox(&binaries, directory.path()).await?;

    for (line, says) in [
        ("create configmap plain --from-literal=a=1", "configmap/plain created"),
        ("get configmap -A", "plain"),
        ("get configmap plain -o yaml", "a: \"1\""),
        ("api-resources", "deployments"),
        ("get namespaces", "kube-system"),
        ("patch configmap plain --type=merge -p {\"data\":{\"b\":\"2\"}}", "patched"),
        ("patch configmap plain --type=json -p [{\"op\":\"add\",\"path\":\"/data/c\",\"value\":\"3\"}]", "patched"),
        ("patch configmap plain -p {\"data\":{\"d\":\"4\"}}", "patched"),
        ("get configmap plain -o jsonpath={.data}", "{\"a\":\"1\",\"b\":\"2\",\"c\":\"3\",\"d\":\"4\"}"),
    ] {
        let said = kubectl.run(line)?;
        ensure!(said.contains(says), "kubectl {line}: {said}");
    }
    for (change, says) in [("nginx", "created"), ("nginx", "unchanged"), ("nginx:2", "configured")] {
        let said = kubectl.run_with(&["apply", "-f", "-"], &DEPLOYMENT.replace("nginx", change))?;
        ensure!(said.contains(says), "apply: {said}");
    }
    let image = kubectl.run("get deployment web -o jsonpath={.spec.template.spec.containers[0].image}")?;
    ensure!(image == "nginx:2", "{image}");
    process.terminate()?;
    let code = process.ended(Duration::from_secs(10)).await?;
    ensure!(code == 0, "the sandbox ends with {code}: {}", process.output());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn each_cascade_leaves_what_the_real_server_would() -> anyhow::Result<()> {
    let Some(binaries) = require() else { return Ok(()) };
    let directory = Directory::create()?;
    let (_process, kubectl) = sandbox(&binaries, directory.path()).await?;
    for (cascade, finalizers) in
        [("background", None), ("foreground", Some("foregroundDeletion")), ("orphan", Some("orphan"))]
    {
        kubectl.run(&format!("create configmap {cascade}"))?;
        kubectl.run(&format!("delete configmap {cascade} --cascade={cascade} --wait=false"))?;
        let left = kubectl
            .run(&format!("get configmap {cascade} --ignore-not-found -o jsonpath={{.metadata.finalizers[*]}}"))?;
        ensure!(left == finalizers.unwrap_or_default(), "{cascade}: {left}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_shows_changes_as_they_come() -> anyhow::Result<()> {
    let Some(binaries) = require() else { return Ok(()) };
    let directory = Directory::create()?;
    let (_process, kubectl) = sandbox(&binaries, directory.path()).await?;
    kubectl.run("create configmap first")?;
    let mut watch = kubectl.command(&["get", "configmap", "-w", "--no-headers"]).stdout(Stdio::piped()).spawn()?;
    let mut lines = BufReader::new(watch.stdout.take().context("kubectl has a standard output")?).lines();
    let mut next = || lines.next().context("the watch goes on")?.context("a line");
    ensure!(next()?.starts_with("first"));
    kubectl.run("create configmap second")?;
    ensure!(next()?.starts_with("second"));
    watch.kill()?;
    watch.wait()?;
    Ok(())
}
