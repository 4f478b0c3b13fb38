//! The examples of subscribers to the log of decisions, as somebody who copies them would run them: killed again and again in
//! mid-cascade, each sees every decision.

use anyhow::{Context, ensure};
use proto::decision::v1beta1::ListDecisionsRequest;
use proto::decision::v1beta1::decision_service_client::DecisionServiceClient;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tests::embedded::Api;
use tests::load::{configmaps, count, delete, families, until};
use tests::process::{Directory, Process};
use tests::service::{Fleet, Programs};

const DEPENDENTS: usize = 1000;
const KILLS: usize = 10;
const SOON: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread")]
async fn the_one_in_rust_goes_on_where_it_was_killed() -> anyhow::Result<()> {
    let programs = Programs::build_with("policy-subscriber")?;
    let subscriber = programs.path("policy-subscriber");
    survives_restarts(&programs, &subscriber, &[]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_one_in_python_goes_on_where_it_was_killed() -> anyhow::Result<()> {
    let programs = Programs::build()?;
    let directory = Directory::create()?;
    let python = match python(directory.path()) {
        Ok(python) => python,
        Err(error) if std::env::var_os("CI").is_none() => {
            // Where nothing can be fetched, the other example still shows the same.
            tracing::warn!("not run: {error:#}");
            return Ok(());
        }
        Err(error) => return Err(error),
    };
    let example = root().join("examples/policy-subscriber-python");
    let generated = directory.path().join("generated");
    std::fs::create_dir(&generated)?;
    let (protos, out) = (root().join("proto").display().to_string(), generated.display().to_string());
    let mut protoc = Command::new(&python);
    protoc.args(["-m", "grpc_tools.protoc", "-I", &protos, "--python_out", &out, "--grpc_python_out", &out]);
    run(protoc.args(protos_below(&root().join("proto"))?))?;
    let script = example.join("subscriber.py").display().to_string();
    survives_restarts(&programs, Path::new("/usr/bin/env"), &[format!("PYTHONPATH={out}"), python, script]).await
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// A Python with what the example needs.
fn python(scratch: &Path) -> anyhow::Result<String> {
    let requirements = root().join("examples/policy-subscriber-python/requirements.txt");
    let environment = scratch.join("python");
    run(Command::new("python3").args(["-m", "venv"]).arg(&environment))?;
    let python = environment.join("bin/python").display().to_string();
    run(Command::new(&python).args(["-m", "pip", "install", "--quiet", "--requirement"]).arg(requirements))?;
    Ok(python)
}

fn protos_below(directory: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(protos_below(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "proto") {
            found.push(path);
        }
    }
    Ok(found)
}

fn run(command: &mut Command) -> anyhow::Result<()> {
    let output = command.output().with_context(|| format!("running {command:?}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {}", said.trim());
    Ok(())
}

async fn survives_restarts(programs: &Programs, program: &Path, arguments: &[String]) -> anyhow::Result<()> {
    let directory = Directory::create()?;
    let api = Api::start(directory.path()).await?;
    let fleet = Fleet::start(programs, &api.kubeconfig, 1).await?;
    let owners = families(&api.client, "default", "o", 1, DEPENDENTS).await?;
    let mut arguments = arguments.to_vec();
    arguments.extend(["--server".to_owned(), fleet.grpc().to_owned()]);
    let start = || Process::spawn("subscriber", directory.path(), program, &arguments);
    let mut subscriber = start()?;
    let maps = configmaps("default");
    delete(&api.client, &format!("{maps}/{}", owners[0]), "Background").await?;
    for kill in 0..KILLS {
        let seen = (kill + 1) * DEPENDENTS / KILLS;
        let wait = || async { Ok(positions(&subscriber.output())?.len()) };
        until("the subscriber sees more", SOON, wait, |count| *count >= seen).await?;
        subscriber.kill()?;
        subscriber.ended(SOON).await?;
        subscriber = start()?;
    }
    until("the cascade ends", SOON, || count(&api.client, &maps), |left| *left == 0).await?;
    let client = DecisionServiceClient::connect(format!("http://{}", fleet.grpc())).await?;
    let head = || async {
        let listed = client.clone().list_decisions(ListDecisionsRequest::default()).await?.into_inner();
        let newest = listed.events.first().and_then(|event| event.position.clone()).context("nothing was decided")?;
        Ok((positions(&subscriber.output())?, newest.sequence))
    };
    let all = |(seen, head): &(BTreeSet<u64>, u64)| seen.last() == Some(head);
    let (seen, head) = until("the subscriber has come to the end of the log", SOON, head, all).await?;
    ensure!(head >= 3 * DEPENDENTS as u64, "proposed, leased and succeeded for each: {head}");
    let missing: Vec<u64> = (1..=head).filter(|position| !seen.contains(position)).take(10).collect();
    ensure!(missing.is_empty(), "of {head} events it missed {missing:?}");
    Ok(())
}

/// The positions in the subscriber's lines `LOG/POSITION PHASE KIND TARGET`; an error if it was told of a gap.
fn positions(output: &str) -> anyhow::Result<BTreeSet<u64>> {
    ensure!(!output.lines().any(|line| line.starts_with("gap ")), "there was a gap");
    let position = |line: &str| line.split_once(" PHASE_")?.0.rsplit_once('/')?.1.parse().ok();
    Ok(output.lines().filter_map(position).collect())
}
