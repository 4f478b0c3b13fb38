//! The examples of policy engines, asked by gates on the real API server: each policy of the page about policies holds
//! and releases as written.

use super::guarded::World;
use anyhow::{Context, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use proto::admin::v1beta1::Guard;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use tests::certificates::{Authority, Mounted};
use tests::chart::root;
use tests::examples::{Example, fetched, opa};
use tests::load::{self, configmap, configmaps, create, delete, reference_to, until};
use tests::process::{Process, free_port};

const SOON: Duration = Duration::from_secs(60);
const DEPENDENTS: u64 = 5;
const REGO: &str = "```rego\n";
const FILES: [&str; 5] = ["authz.rego", "claims.rego", "frozen.rego", "review.rego", "window.rego"];

/// OPA with the policies of the example.
struct Opa {
    process: Process,
    port: u16,
    bundle: String,
    data: std::path::PathBuf,
}

impl Opa {
    async fn start(program: &Path, directory: &Path) -> anyhow::Result<Opa> {
        let policies = root().join("examples/opa").canonicalize()?;
        // OPA watches the directory of each file, so its log is in another one.
        let watched = directory.join("watched");
        fs::create_dir(&watched)?;
        let data = watched.join("data.json");
        fs::write(&data, json!({ "approved": {}, "window": Opa::window(2) }).to_string())?;
        let ours = Authority::new("engines")?;
        let served = Mounted::new(directory.join("opa"), &ours.sign("opa", &["localhost"])?, &[&ours])?;
        let port = free_port()?;
        let (address, certificate, key) = (format!("127.0.0.1:{port}"), served.file("tls.crt"), served.file("tls.key"));
        let flags = ["run", "--server", "--disable-telemetry", "--authorization=basic", "--watch", "--addr", &address];
        let more =
            ["--set=decision_logs.console=true", "--tls-cert-file", &certificate, "--tls-private-key-file", &key];
        let mut arguments: Vec<String> = flags.iter().chain(&more).map(|&flag| flag.to_owned()).collect();
        arguments.extend(FILES.map(|file| policies.join(file).display().to_string()));
        arguments.push(data.display().to_string());
        let process = Process::spawn("opa", directory, program, &arguments)?;
        let ask = || async { Ok(tokio::net::TcpStream::connect(&address).await.is_ok()) };
        until("OPA listens", SOON, ask, |listens| *listens).await?;
        Ok(Opa { process, port, bundle: STANDARD.encode(ours.pem()), data })
    }

    /// Cascades over more objects wait, because no day has this name.
    fn window(objects: u64) -> Value {
        json!({ "objects": objects, "weekday": "Never", "from": 0, "to": 24, "askAgainSeconds": 1 })
    }

    /// Waits until OPA has answered with this message.
    async fn answers(&self, message: &str) -> anyhow::Result<()> {
        says(&self.process, message).await
    }

    /// Replaces the data file at once.
    fn change(&self, data: &Value) -> anyhow::Result<()> {
        let next = self.data.with_extension("next");
        fs::write(&next, data.to_string())?;
        fs::rename(&next, &self.data).context("changing the data of OPA")
    }

    fn gate(&self, policy: &str, more: &Value) -> Value {
        let url = format!("https://localhost:{}/v0/data/ownergraph/{policy}/review", self.port);
        gate(&json!({ "webhook": { "url": url, "caBundle": self.bundle } }), more)
    }
}

/// Waits until a process has written this text.
async fn says(process: &Process, text: &str) -> anyhow::Result<()> {
    let ask = || async { Ok(process.output().contains(text)) };
    until(&format!("{text:?} is said"), SOON, ask, |said| *said).await.map(drop)
}

/// Waits until a gate denies so many decisions.
async fn denies(world: &World, name: &str, count: u64) -> anyhow::Result<()> {
    let denied = |guard: &Option<Guard>| {
        guard.as_ref().and_then(|guard| guard.gate.as_ref()).is_some_and(|usage| usage.denied == count)
    };
    until(&format!("{name} denies {count}"), SOON, || world.listed(name), denied).await.map(drop)
}

/// The spec of a gate, without its scope.
fn gate(transport: &Value, more: &Value) -> Value {
    let mut spec = json!({ "failurePolicy": "Hold", "maxHoldSeconds": 3600, "afterMaxHold": "Deny" });
    for (field, value) in [transport, more].into_iter().filter_map(Value::as_object).flatten() {
        spec[field] = value.clone();
    }
    spec
}

#[test]
fn the_page_shows_rego_of_the_example() -> anyhow::Result<()> {
    let files = FILES.map(|file| fs::read_to_string(root().join("examples/opa").join(file)));
    let files = files.into_iter().collect::<Result<Vec<String>, _>>()?.concat();
    let page = fs::read_to_string(root().join("docs/policy.md"))?;
    let begins = page.match_indices(REGO);
    let blocks: Vec<&str> = begins.filter_map(|(at, begin)| page[at + begin.len()..].split("```").next()).collect();
    ensure!(blocks.len() == 3, "the page has {} blocks of Rego", blocks.len());
    for rule in blocks.iter().flat_map(|block| block.split("\n\n")) {
        ensure!(files.contains(rule.trim()), "docs/policy.md shows a rule that no file has:\n{rule}");
    }
    Ok(())
}

#[test]
fn the_policies_of_opa_pass_their_own_tests() -> anyhow::Result<()> {
    let Some(opa) = fetched(opa())? else { return Ok(()) };
    let policies = root().join("examples/opa");
    for arguments in [&["check", "--strict"][..], &["fmt", "--fail", "--diff"], &["test", "--verbose"]] {
        let output = Command::new(&opa).args(arguments).arg(&policies).output()?;
        let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "opa {arguments:?}: {said}");
        ensure!(arguments[0] != "test" || said.contains("PASS: 12/12"), "opa ran other tests: {said}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn opa_holds_and_releases_by_the_three_policies() -> anyhow::Result<()> {
    let Some(program) = fetched(opa())? else { return Ok(()) };
    let Some(world) = World::start().await? else { return Ok(()) };
    let opa = Opa::start(&program, world.directory.path()).await?;
    let told = |error: anyhow::Error| error.context(format!("OPA said: {}", opa.process.log_tail()));
    for namespace in ["claims", "window", "beside", "frozen"] {
        load::namespace(&world.client, namespace).await?;
    }
    a_claim_waits_for_its_approval(&world, &opa).await.map_err(told)?;
    a_large_cascade_waits_for_the_window(&world, &opa).await.map_err(told)?;
    nothing_goes_in_a_frozen_namespace(&world, &opa).await.map_err(told)
}

async fn a_claim_waits_for_its_approval(world: &World, opa: &Opa) -> anyhow::Result<()> {
    world.guard("Gate", "gates", "claims", &opa.gate("claims", &json!({}))).await?;
    let maps = configmaps("claims");
    let owner = create(&world.client, &maps, &configmap("owner", &[])).await?;
    let claims = "/api/v1/namespaces/claims/persistentvolumeclaims";
    let claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": { "name": "data", "ownerReferences": [reference_to(&owner)] },
        "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } },
    });
    let claim = create(&world.client, claims, &claim).await?;
    create(&world.client, &maps, &configmap("beside", &[reference_to(&owner)])).await?;
    delete(&world.client, &format!("{maps}/owner"), "Background").await?;
    opa.answers("a PersistentVolumeClaim waits for an approval").await?;
    world.holds("gates/claims", 1).await?;
    world.gone(&maps).await?;
    let ask = || load::get(&world.client, "/api/v1/namespaces/claims/persistentvolumeclaims/data");
    let kept = ask().await?.context("the claim is gone without an approval")?;
    ensure!(kept["metadata"]["deletionTimestamp"].is_null(), "{kept}");
    let uid = claim["metadata"]["uid"].as_str().context("a claim has a uid")?;
    opa.change(&json!({ "approved": { uid: "CHG-1" }, "window": Opa::window(2) }))?;
    // The API server adds a finalizer to claims, and no controller removes it here.
    let goes = |claim: &Option<Value>| claim.as_ref().is_none_or(|it| !it["metadata"]["deletionTimestamp"].is_null());
    until("the approved claim goes", SOON, ask, goes).await?;
    Ok(())
}

async fn a_large_cascade_waits_for_the_window(world: &World, opa: &Opa) -> anyhow::Result<()> {
    world.guard("Gate", "gates", "window", &opa.gate("window", &json!({ "rootsOnly": true }))).await?;
    let maps = world.cascade("window").await?;
    opa.answers("a cascade over more than 2 objects waits").await?;
    world.holds("gates/window", DEPENDENTS).await?;
    opa.change(&json!({ "approved": {}, "window": Opa::window(500) }))?;
    world.gone(&maps).await
}

async fn nothing_goes_in_a_frozen_namespace(world: &World, opa: &Opa) -> anyhow::Result<()> {
    label(world, "frozen", &json!({ "frozen": "yes" })).await?;
    let selector = json!({ "matchExpressions": [{ "key": "frozen", "operator": "Exists" }] });
    let scope = json!({ "scope": { "targets": [{ "namespaceSelector": selector }] } });
    world.guard("Gate", "gates", "frozen", &opa.gate("frozen", &scope)).await?;
    let beside = world.cascade("beside").await?;
    world.gone(&beside).await?;
    let maps = world.cascade("frozen").await?;
    denies(world, "gates/frozen", DEPENDENTS).await?;
    world.holds("gates/frozen", DEPENDENTS).await?;
    label(world, "frozen", &json!({ "frozen": null })).await?;
    world.gone(&maps).await
}

async fn label(world: &World, namespace: &str, labels: &Value) -> anyhow::Result<()> {
    let body = serde_json::to_vec(&json!({ "metadata": { "labels": labels } }))?;
    let request = http::Request::builder().method(Method::PATCH).uri(format!("/api/v1/namespaces/{namespace}"));
    let request = request.header("content-type", "application/merge-patch+json").body(body)?;
    world.client.request::<Value>(request).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_engine_in_go_denies_holds_and_drains() -> anyhow::Result<()> {
    let Some(world) = World::start().await? else { return Ok(()) };
    let Some(example) = fetched(Example::engine_in_go(world.directory.path()))? else { return Ok(()) };
    let start = |name: &str, gate: &str, rules: &[&str]| {
        let flags = [&["--server", &world.address, "--gate", gate][..], rules].concat();
        Process::spawn(name, world.directory.path(), &example.program, &example.with(&flags))
    };
    for (gate_name, more, verdict, strict, mild) in [
        ("kinds", json!({}), "DENY", ["--deny-kind", "configmaps"], ["--deny-kind", "persistentvolumeclaims"]),
        ("cascades", json!({ "rootsOnly": true }), "HOLD", ["--max-cascade", "2"], ["--max-cascade", "500"]),
    ] {
        load::namespace(&world.client, gate_name).await?;
        world.guard("Gate", "gates", gate_name, &gate(&json!({ "stream": {} }), &more)).await?;
        let mut engine = start(&format!("{gate_name}-strict"), gate_name, &strict)?;
        says(&engine, "welcome").await?;
        let maps = world.cascade(gate_name).await?;
        says(&engine, &format!("GATE_VERDICT_{verdict}")).await?;
        let held = world.holds(&format!("gates/{gate_name}"), DEPENDENTS).await;
        held.with_context(|| format!("the engine said: {}", engine.log_tail()))?;
        engine.terminate()?;
        let ended = || std::future::ready(engine.exited());
        let status = until("the engine ends", SOON, ended, Option::is_some).await?;
        ensure!(status.is_some_and(|status| status.success()), "{status:?} after drain: {}", engine.log_tail());
        // The other rules are another revision, so the collector asks again.
        let engine = start(&format!("{gate_name}-mild"), gate_name, &mild)?;
        let gone = world.gone(&maps).await;
        gone.with_context(|| format!("the engine said: {}", engine.log_tail()))?;
    }
    Ok(())
}

/// The engine has answered for one part of the objects, and has questions about the other part when it is killed.
#[tokio::test(flavor = "multi_thread")]
async fn a_killed_engine_leaves_its_questions_to_the_failure_policy() -> anyhow::Result<()> {
    let Some(world) = World::start().await? else { return Ok(()) };
    let Some(example) = fetched(Example::engine_in_go(world.directory.path()))? else { return Ok(()) };
    let start = |name: &str, gate: &str| {
        let flags = ["--server", &world.address, "--gate", gate, "--deny-kind", "persistentvolumeclaims"];
        Process::spawn(name, world.directory.path(), &example.program, &example.with(&flags))
    };
    for policy in ["Allow", "Hold", "Deny"] {
        let namespace = policy.to_lowercase();
        let name = format!("gates/{namespace}");
        load::namespace(&world.client, &namespace).await?;
        // The API server allows timeouts of at most ten seconds.
        let more = json!({ "failurePolicy": policy, "timeoutSeconds": 10 });
        world.guard("Gate", "gates", &namespace, &gate(&json!({ "stream": {} }), &more)).await?;
        let mut engine = start(&format!("{namespace}-killed"), &namespace)?;
        says(&engine, "welcome").await?;
        let maps = world.cascade(&namespace).await?;
        world.gone(&maps).await?;
        engine.pause()?;
        world.cascade(&namespace).await?;
        let asked = |guard: &Option<Guard>| {
            guard.as_ref().and_then(|guard| guard.gate.as_ref()).is_some_and(|usage| usage.in_flight == DEPENDENTS)
        };
        until(&format!("{name} has asked"), SOON, || world.listed(&name), asked).await?;
        engine.kill()?;
        engine.ended(SOON).await?;
        if policy == "Allow" {
            world.gone(&maps).await?;
            continue;
        }
        world.holds(&name, DEPENDENTS).await?;
        denies(&world, &name, if policy == "Deny" { DEPENDENTS } else { 0 }).await?;
        // A new instance is asked again.
        let engine = start(&format!("{namespace}-next"), &namespace)?;
        says(&engine, "welcome").await?;
        world.gone(&maps).await?;
    }
    Ok(())
}
