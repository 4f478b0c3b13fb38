//! `ownergraph decisions -f --sink`: the real programs, and a receiver that fails in many ways. The sink is killed in
//! the middle of a cascade. Each event arrives at least once and in the order of its object, or is a dead letter.

use anyhow::{Context, ensure};
use proto::decision::v1beta1::ListDecisionsRequest;
use proto::decision::v1beta1::decision_service_client::DecisionServiceClient;
use receiver::{Receiver, Seen};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::Duration;
use tests::certificates::Authority;
use tests::embedded::Api;
use tests::load::{configmaps, count, delete, families, until};
use tests::process::Directory;
use tests::service::{Fleet, Programs, Service};

pub(crate) mod receiver;

const DEPENDENTS: usize = 1000;
const KILLS: usize = 3;
const SOON: Duration = Duration::from_secs(120);
/// The object whose events the receiver refuses.
const REFUSED: &str = "/o-0-500";

#[tokio::test(flavor = "multi_thread")]
async fn each_event_arrives_in_order_or_is_a_dead_letter_however_often_the_sink_is_killed() -> anyhow::Result<()> {
    let programs = Programs::build()?;
    let directory = Directory::create()?;
    let api = Api::start(directory.path()).await?;
    let fleet = Fleet::start(&programs, &api.kubeconfig, 1).await?;
    let receiver = Receiver::start(directory.path(), true, REFUSED).await?;
    let owners = families(&api.client, "default", "o", 1, DEPENDENTS).await?;
    let path = |name: &str| directory.path().join(name).display().to_string();
    let (position, letters) = (path("position"), path("letters"));
    let (ca, token) = (receiver.ca.display().to_string(), receiver.token.display().to_string());
    let flags = [
        ["--server", fleet.grpc()],
        ["--kubeconfig", &api.flag],
        ["--sink", &receiver.url],
        ["--sink-ca", &ca],
        ["--sink-token-file", &token],
        ["--position", &position],
        ["--dead-letters", &letters],
    ];
    let arguments = [&["decisions", "-f", "-A"][..], flags.as_flattened()].concat();
    let start = || Service::start(&programs, "ownergraph", "sink", directory.path(), &arguments);
    let mut sink = start()?;
    let maps = configmaps("default");
    delete(&api.client, &format!("{maps}/{}", owners[0]), "Background").await?;
    for kill in 1..=KILLS {
        let enough = kill * 3 * DEPENDENTS / (KILLS + 1);
        let events = || async { Ok(receiver.seen().events.len()) };
        until("the receiver has more events", SOON, events, |events| *events >= enough).await?;
        sink.process.kill()?;
        sink.process.ended(SOON).await?;
        sink = start()?;
    }
    until("the cascade ends", SOON, || count(&api.client, &maps), |left| *left == 0).await?;
    let client = DecisionServiceClient::connect(format!("http://{}", fleet.grpc())).await?;
    let progress = || async {
        let listed = client.clone().list_decisions(ListDecisionsRequest::default()).await?.into_inner();
        let newest = listed.events.first().and_then(|event| event.position.clone()).context("nothing was decided")?;
        let stored = fs::read_to_string(&position).unwrap_or_default();
        Ok((stored.trim().to_owned(), format!("{}:{}", newest.log_id, newest.sequence), newest.sequence))
    };
    let (_, _, head) = until("all is settled", SOON, progress, |(stored, newest, _)| stored == newest).await?;
    ensure!(head >= 3 * DEPENDENTS as u64, "proposed, leased and succeeded for each: {head}");

    let seen = receiver.seen();
    let dead = dead_letters(&fs::read_to_string(&letters)?)?;
    arrived(&seen, &dead, head)?;
    sink.ready().await?;
    for (metric, least) in [("ownergraph_sink_delivered_total", 1.0), ("ownergraph_sink_retried_total", 1.0)] {
        let value = sink.total(metric).await?;
        ensure!(value >= least, "{metric} {value}");
    }
    for metric in ["ownergraph_sink_lag_events", "ownergraph_sink_in_flight", "ownergraph_sink_gaps_total"] {
        ensure!(sink.total(metric).await? == 0.0, "{metric} is not zero");
    }
    sink.process.terminate()?;
    let code = sink.process.ended(SOON).await?;
    let output = sink.process.output();
    ensure!(code == 0 && output.contains(&format!(":{head}\n")), "exit code {code}: {output}");
    Ok(())
}

/// The sink reads a new CA file. A new leader has a new log, which is a gap, and the sink continues in it.
#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_authority_is_named_and_a_lost_log_is_a_dead_letter() -> anyhow::Result<()> {
    let programs = Programs::build()?;
    let directory = Directory::create()?;
    let api = Api::start(directory.path()).await?;
    let mut fleet = Fleet::start(&programs, &api.kubeconfig, 1).await?;
    let receiver = Receiver::start(directory.path(), false, "-").await?;
    let ca = directory.path().join("other-ca.crt");
    fs::write(&ca, Authority::new("others")?.pem())?;
    let (flag, token) = (ca.display().to_string(), receiver.token.display().to_string());
    let (position, server) = (directory.path().join("position"), fleet.grpc().to_owned());
    let stored = position.display().to_string();
    let flags = [
        ["--server", &server],
        ["--kubeconfig", &api.flag],
        ["--sink", &receiver.url],
        ["--sink-ca", &flag],
        ["--sink-token-file", &token],
        ["--position", &stored],
        ["--dead-letters", "-"],
    ];
    let arguments = [&["decisions", "-f", "-A"][..], flags.as_flattened()].concat();
    let sink = Service::start(&programs, "ownergraph", "sink", directory.path(), &arguments)?;
    let maps = configmaps("default");
    let collected = async |prefix: &str| {
        let owners = families(&api.client, "default", prefix, 1, 10).await?;
        delete(&api.client, &format!("{maps}/{}", owners[0]), "Background").await?;
        until("the cascade ends", SOON, || count(&api.client, &maps), |left| *left == 0).await
    };
    collected("first").await?;
    let probe = || async { Ok(sink.get("/readyz?verbose").await.map(|(_, body)| body).unwrap_or_default()) };
    let why = format!("signed by none of the authorities in --sink-ca {flag}: set --sink-ca");
    until("the probe names the authority", SOON, probe, |body| body.contains(&why)).await?;
    ensure!(receiver.seen().requests == 0, "a request reached a receiver that is not trusted");

    fs::copy(&receiver.ca, &ca)?;
    let gone = |prefix: &'static str| {
        let of = move |event: &Value| {
            let subject = event["subject"].as_str().unwrap_or_default();
            event["type"] == "dev.ownergraph.decision.confirmed.v1beta1" && subject.contains(prefix)
        };
        let receiver = &receiver;
        move || async move { Ok(receiver.seen().events.iter().filter(|event| of(event)).count()) }
    };
    until("all deletions arrive", SOON, gone("first-"), |count| *count == 10).await?;
    let log = || async { Ok(fs::read_to_string(&position).unwrap_or_default()) };
    let before = until("the position is stored", SOON, log, |text| text.contains(':')).await?;
    fleet.replace_graph().await?;
    fleet.graph.ready().await?;
    collected("second").await?;
    until("the deletions of the next leader arrive", SOON, gone("second-"), |count| *count == 10).await?;
    let log_id = |text: &str| text.rsplit_once(':').map(|(log_id, _)| log_id.to_owned());
    until("the position is one of the new log", SOON, log, |text| log_id(text) != log_id(&before)).await?;
    ensure!(sink.total("ownergraph_sink_gaps_total").await? == 1.0, "{}", sink.process.output());
    let output = sink.process.output();
    let letters = output.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let gaps: Vec<Value> = letters.map(|letter| letter["gap"]["reason"].clone()).collect();
    ensure!(gaps == ["LOG_REPLACED"], "{gaps:?}: {output}");
    Ok(())
}

/// The sequences of the dead letters. All of them are about the refused object.
fn dead_letters(text: &str) -> anyhow::Result<BTreeSet<u64>> {
    let mut dead = BTreeSet::new();
    for line in text.lines() {
        let letter: Value = serde_json::from_str(line).context("a dead letter that is no JSON")?;
        let event = &letter["event"];
        let is_refused = event["subject"].as_str().is_some_and(|subject| subject.ends_with(REFUSED));
        ensure!(is_refused && letter["reason"].as_str() == Some("400 Bad Request"), "{letter}");
        dead.insert(sequence(event)?);
    }
    Ok(dead)
}

fn sequence(event: &Value) -> anyhow::Result<u64> {
    let text = event["sequence"].as_str().with_context(|| format!("an event without a sequence: {event}"))?;
    Ok(text.parse()?)
}

fn arrived(seen: &Seen, dead: &BTreeSet<u64>, head: u64) -> anyhow::Result<()> {
    let Seen { requests, unavailable, busy, broken, refused, .. } = *seen;
    let events = seen.events.len();
    eprintln!(
        "{head} decisions: {requests} requests, {events} taken, {unavailable} times 503, {busy} times 429, {broken} connections broken, {refused} refused, {} dead letters",
        dead.len()
    );
    ensure!(seen.wrong.is_empty(), "{:?}", seen.wrong);
    ensure!([unavailable, busy, broken, refused].iter().all(|count| *count > 0), "a fault never struck");
    let mut first = BTreeSet::new();
    let mut last: BTreeMap<&str, u64> = BTreeMap::new();
    for event in &seen.events {
        let sequence = sequence(event)?;
        if !first.insert(sequence) {
            continue;
        }
        let object = event["partitionkey"].as_str().with_context(|| format!("an event of no object: {event}"))?;
        let before = last.insert(object, sequence).unwrap_or_default();
        ensure!(before < sequence, "of object {object}, {before} came before {sequence}");
        let phase = event["data"]["phase"].as_str().unwrap_or_default().trim_start_matches("PHASE_").to_lowercase();
        let kind = format!("dev.ownergraph.decision.{phase}.v1beta1");
        ensure!(event["type"] == *kind, "{event}");
    }
    ensure!(last.len() >= DEPENDENTS - 1, "events of {} objects", last.len());
    let missing: Vec<u64> = (1..=head).filter(|number| !first.contains(number) && !dead.contains(number)).collect();
    ensure!(missing.is_empty(), "of {head} events it missed {missing:?}");
    ensure!(dead.len() >= 3 && first.is_disjoint(dead), "{dead:?}");
    Ok(())
}
