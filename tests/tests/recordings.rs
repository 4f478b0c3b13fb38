//! A recording of a collector on the real API server, replayed. `RECORD=DIR` keeps it in a directory, for the corpus.

use anyhow::{Context as _, ensure};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;
use tests::load::{configmaps, delete, families, until_left};
use tests::process::{Directory, free_port};
use tests::service::Programs;
use tests::stage::Stage;

const DEPENDENTS: usize = 300;
const SOON: Duration = Duration::from_secs(60);
/// The exit code of findings.
const FINDINGS: i32 = 2;

fn ownergraph(programs: &Programs, arguments: &[&str]) -> anyhow::Result<Output> {
    Command::new(programs.path("ownergraph")).args(arguments).output().context("starting ownergraph")
}

/// The standard output of a call that succeeds.
fn told(programs: &Programs, arguments: &[&str]) -> anyhow::Result<String> {
    let output = ownergraph(programs, arguments)?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "ownergraph {}: {}: {errors}", arguments.join(" "), output.status);
    Ok(String::from_utf8(output.stdout)?)
}

/// The events of a log, without their positions and their time: a replay has the time of the round.
fn events(ndjson: &str) -> anyhow::Result<Vec<Value>> {
    let event = |line: &str| -> anyhow::Result<Value> {
        let mut document: Value = serde_json::from_str(line)?;
        let event = document["event"].as_object_mut().context("an event")?;
        event.remove("position");
        event.remove("eventTime");
        event.remove("age");
        Ok(document)
    };
    ndjson.lines().map(event).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recording_is_replayed_to_the_same_decisions() -> anyhow::Result<()> {
    let Some(stage) = Stage::start().await? else { return Ok(()) };
    let (directory, programs) = (Directory::create()?, &stage.programs);
    let traces = directory.path().join("traces");
    let trace = traces.display().to_string();
    let grpc = format!("127.0.0.1:{}", free_port()?);
    let mut collector = stage.collect(directory.path(), &["--record", &trace, "--listen", &grpc]).await?;
    let maps = configmaps("default");
    let owners = families(&stage.client, "default", "o", 3, DEPENDENTS).await?;
    for (owner, policy) in owners.iter().zip(["Background", "Foreground", "Orphan"]) {
        delete(&stage.client, &format!("{maps}/{owner}"), policy).await?;
    }
    // The dependents of the third owner stay, and so does the ConfigMap of the API server's certificate.
    until_left(&stage.client, &maps, DEPENDENTS, SOON).await?;
    ensure!(collector.metric("ownergraph_recording_active ").await? == Some(1.0), "it records");
    let kubeconfig = stage.plane.kubeconfig().display().to_string();
    let ask = ["decisions", "--kubeconfig", &kubeconfig, "--server", &grpc, "--oldest", "-o", "ndjson"];
    let live = told(programs, &ask)?;
    collector.process.terminate()?;
    collector.process.ended(SOON).await?;

    if let Some(kept) = std::env::var_os("RECORD") {
        for file in fs::read_dir(&traces)? {
            let file = file?;
            fs::copy(file.path(), Path::new(&kept).join(file.file_name()))?;
        }
    }

    // The same binary makes the same decisions, byte for byte.
    let replayed = told(programs, &["replay", &trace, "--decisions"])?;
    ensure!(replayed == told(programs, &["replay", &trace, "--decisions"])?, "two replays differ");
    let (replayed_events, live) = (events(&replayed)?, events(&live)?);
    ensure!(live.len() >= 3 * DEPENDENTS, "{} events", live.len());
    let differs = live.iter().zip(&replayed_events).find(|(one, other)| one != other);
    ensure!(differs.is_none() && replayed_events.len() >= live.len(), "live, and replayed: {differs:?}");

    let file = directory.path().join("decisions.ndjson");
    fs::write(&file, &replayed)?;
    let other = file.display().to_string();
    let same = told(programs, &["replay", &trace, "--against", &other])?;
    ensure!(same.ends_with(" decisions in both\n"), "{same}");
    differences(programs, &trace, &file, &replayed)?;
    explanations(programs, &trace, &replayed)?;
    damage(programs, &traces)
}

/// Decisions that only one side has are told, with what this version says.
fn differences(programs: &Programs, trace: &str, file: &Path, decisions: &str) -> anyhow::Result<()> {
    let proposed = |line: &&str| line.contains("\"PHASE_PROPOSED\"") && line.contains("\"ITEM_KIND_DELETE\"");
    let lines: Vec<&str> = decisions.lines().collect();
    let (first, second) = (lines.iter().position(proposed), lines.iter().rposition(proposed));
    let (Some(first), Some(second)) = (first, second) else { anyhow::bail!("no deletions") };
    let mut changed: Vec<String> = lines.iter().map(ToString::to_string).collect();
    let compared = |changed: &[String]| -> anyhow::Result<String> {
        fs::write(file, changed.join("\n"))?;
        let output = ownergraph(programs, &["replay", trace, "--against", &file.display().to_string()])?;
        ensure!(output.status.code() == Some(FINDINGS), "{}", output.status);
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    };
    // Another version orphaned the dependents of the object, for the same facts.
    changed[first] = changed[first].replace("PROPAGATION_POLICY_BACKGROUND", "PROPAGATION_POLICY_ORPHAN");
    let text = compared(&changed)?;
    ensure!(text.contains(": delete (orphan) ConfigMap") && text.contains("only here: delete (background)"), "{text}");
    // Another version did not decide the first deletion, and decided another one about the second object.
    let document: Value = serde_json::from_str(&changed[second])?;
    let id = document["event"]["decisionId"].as_str().context("a decision id")?.to_owned();
    let object = document["event"]["target"]["name"].as_str().context("a name")?.to_owned();
    changed[second] = changed[second].replace(&id, "0000000000000001");
    changed.remove(first);
    let text = compared(&changed)?;
    let there = format!("only in {}: delete (background) ConfigMap default/{object}", file.display());
    ensure!(text.contains(&there) && text.contains("because"), "{text}");
    ensure!(text.matches("only here: delete (background) ConfigMap").count() == 2, "{text}");
    Ok(())
}

/// An object is explained as it was at a time of the recording.
fn explanations(programs: &Programs, trace: &str, decisions: &str) -> anyhow::Result<()> {
    let first = decisions.lines().find(|line| line.contains("\"PHASE_PROPOSED\"")).context("a decision")?;
    let document: Value = serde_json::from_str(first)?;
    let time = document["event"]["eventTime"].as_str().context("a time")?;
    let why =
        |until: &str| told(programs, &["replay", trace, "--until", until, "--why", "configmap/o-1-0", "-n", "default"]);
    let (before, after) = (why(time)?, told(programs, &["replay", trace, "--why", "cm/o-1-0"])?);
    ensure!(before.starts_with("ConfigMap default/o-1-0 stays"), "{before}");
    ensure!(after.contains("by the collector"), "{after}");
    let unknown = ownergraph(programs, &["replay", trace, "--why", "cm/none"])?;
    let error = String::from_utf8_lossy(&unknown.stderr).into_owned();
    ensure!(error.contains("the recording does not know cm/none"), "{error}");
    Ok(())
}

/// A recording that was cut is replayed up to the cut, and says so.
fn damage(programs: &Programs, traces: &Path) -> anyhow::Result<()> {
    let files: BTreeSet<_> = fs::read_dir(traces)?.map(|file| Ok(file?.path())).collect::<anyhow::Result<_>>()?;
    let file = files.first().context("a file")?;
    let whole = fs::read(file)?;
    ensure!(!String::from_utf8_lossy(&whole).contains("apiVersion"), "the file is compressed");
    fs::write(file, &whole[..whole.len() - whole.len() / 4])?;
    let output = ownergraph(programs, &["replay", &traces.display().to_string()])?;
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.code() == Some(FINDINGS), "{}: {text}", output.status);
    ensure!(text.contains("the recording is damaged: ") && text.contains("the file ends in a block"), "{text}");
    Ok(())
}
