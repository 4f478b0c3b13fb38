//! Guards are created, released and bypassed at the API server of a sandbox.

use crate::containers::{define, make};
use crate::process::{output, plugin, until};
use crate::questions::World;
use http::StatusCode;
use serde_json::{Value, json};

const GROUP: &str = "/apis/ownergraph.dev/v1alpha1";

async fn object(world: &World, path: &str) -> Option<Value> {
    let (status, text) = world.api().text(&format!("{GROUP}/{path}")).await;
    (status != StatusCode::NOT_FOUND).then(|| serde_json::from_str(&text).unwrap())
}

async fn names(world: &World, plural: &str) -> Vec<String> {
    let list = object(world, plural).await.unwrap();
    let name = |item: &Value| item["metadata"]["name"].as_str().unwrap().to_owned();
    list["items"].as_array().unwrap().iter().map(name).collect()
}

#[tokio::test]
async fn a_guard_that_would_hold_nothing_or_everything_is_refused_before_it_is_written() {
    let world = World::with("enforce").await;
    let budget = ["budget", "few", "--max", "5", "--per", "1m", "--on-exceeded", "hold", "--reason", "r"];
    let undefined = world.ask(&budget).await;
    assert!(undefined.code == Some(1) && undefined.stderr.contains("ownergraph crds"), "{}", undefined.stderr);
    define(&world).await;
    for (flags, part) in [
        (&[][..], "a protection without conditions holds every deletion"),
        (&["-k", "podz"], "no resource type \"podz\""),
        (&["-n", "typo"], "Namespace typo does not exist; nothing was created"),
        (&["--owner", "cm/none"], "ConfigMap default/none does not exist; nothing was created"),
        (&["--owner", "cm"], "name an object as cm/NAME"),
        (&["--name", "web-*"], "to select objects by labels, use -l"),
        (&["-l", "a in (b"], "lacks a closing bracket"),
        (&["-l", "a=b", "--for", "1500ms"], "a whole number of seconds"),
        (&["-n", "default", "--preset", "helm"], "cannot be used with"),
        (&["--preset", "tiller"], "invalid value 'tiller'"),
        (&["-n", "default", "No_Name"], "expected a Kubernetes name"),
    ] {
        let refused = world.ask(&[&["protect", "--reason", "r"], flags].concat()).await;
        assert!(refused.code == Some(1) && refused.stderr.contains(part), "{flags:?}: {}", refused.stderr);
    }
    assert_eq!(names(&world, "protections").await, [""; 0]);
    for (max, per, part) in [("0", "1m", "expected a number"), ("101%", "1m", "expected"), ("5", "25h", "to 24h")] {
        let flags = ["budget", "few", "--max", max, "--per", per, "--on-exceeded", "hold", "--reason", "r"];
        let refused = world.ask(&flags).await;
        assert!(refused.code == Some(1) && refused.stderr.contains(part), "{max} {per}: {}", refused.stderr);
    }
    assert_eq!(names(&world, "budgets").await, [""; 0]);
}

#[tokio::test]
async fn each_guard_is_released_in_its_way() {
    let world = World::with("enforce").await;
    define(&world).await;
    let protect = ["protect", "-k", "cm", "-n", "default", "--owner", "cm/root", "--reason", "dear", "keep"];
    let made = world.ask(&protect).await;
    assert!(
        made.code == Some(0) && made.stdout.contains(" release protection/keep\n"),
        "{} {}",
        made.stdout,
        made.stderr
    );
    let spec = object(&world, "protections/keep").await.unwrap()["spec"].take();
    let owner = json!({ "resource": "configmaps", "namespace": "default", "name": "root" });
    let target = json!({ "resources": [{ "resource": "configmaps" }], "namespaces": ["default"], "owner": owner });
    assert_eq!(spec, json!({ "reason": "dear", "scope": { "targets": [target] } }));
    let again = world.ask(&protect).await;
    assert!(again.code == Some(1) && again.stderr.contains("already exists"), "{}", again.stderr);

    let mut plan = world.ask(&["plan", "delete", "cm/root"]).await;
    until("the plan knows the guard", async || {
        plan = world.ask(&["plan", "delete", "cm/root"]).await;
        plan.code == Some(3)
    })
    .await;
    let is_refused = plan.stdout.contains("\nfirst  kubectl ownergraph ")
        && plan.stdout.contains(" release protection/keep\n")
        && !plan.stdout.contains("\nrun ");
    assert!(is_refused, "{} {}", plan.stdout, plan.stderr);
    let refused = world.ask(&["delete", "cm/root", "--confirm=x"]).await;
    let part = "nothing was deleted; to release, run: kubectl ownergraph ";
    assert!(refused.code == Some(3) && refused.stderr.contains(part), "{}", refused.stderr);

    let asked = world.ask(&["release", "protection/keep"]).await;
    assert!(asked.code == Some(1) && asked.stderr.contains("--yes"), "{}", asked.stderr);
    let absent = world.ask(&["release", "protection/keep", "protection/absent", "--yes"]).await;
    assert!(
        absent.code == Some(1) && absent.stdout.is_empty(),
        "all are read first: {}{}",
        absent.stdout,
        absent.stderr
    );
    let released = world.ask(&["release", "protections/keep", "--yes"]).await;
    assert_eq!(released.stdout, "protection/keep deleted\n", "{}", released.stderr);
    assert!(
        released.stderr.contains("protection/keep holds ") && released.stderr.contains(": dear"),
        "{}",
        released.stderr
    );
    assert_eq!(object(&world, "protections/keep").await, None);
    let gone = world.ask(&["release", "protection/keep", "--yes"]).await;
    assert!(gone.code == Some(1) && gone.stderr.contains("\"keep\" not found"), "{}", gone.stderr);
    assert!(!gone.stderr.contains("crds"), "{}", gone.stderr);

    let budget = ["budget", "few", "--max", "10%", "--per", "1m", "--on-exceeded", "approve", "--reason", "calm"];
    assert_eq!(world.ask(&budget).await.code, Some(0));
    for command in ["release", "approve"] {
        let opened = world.ask(&[command, "budget/few"]).await;
        assert_eq!(opened.stdout, "budget/few has a new window\n", "{command}: {}", opened.stderr);
    }
    let spec = object(&world, "budgets/few").await.unwrap()["spec"].take();
    assert_eq!(
        (&spec["maxPercent"], &spec["windowSeconds"], &spec["onExceeded"]),
        (&json!(10), &json!(60), &json!("Approve"))
    );
    assert!(spec["countFrom"].as_str().unwrap().ends_with('Z'), "{spec}");

    let spec = json!({
        "reason": "ask", "stream": {}, "failurePolicy": "Deny", "maxHoldSeconds": 60, "afterMaxHold": "Deny",
    });
    let gate = json!({
        "apiVersion": "ownergraph.dev/v1alpha1", "kind": "Gate", "metadata": { "name": "opa" }, "spec": spec,
    });
    make(world.api(), &format!("{GROUP}/gates"), gate).await;
    let flags = |time| ["--for", time, "--reason", "r"];
    let (short, long) = (flags("10s"), flags("25h"));
    for (flags, part) in [(&[][..], "give --for"), (&short, "more than 10s"), (&long, "at most 24h")] {
        let refused = world.ask(&[&["release", "gate/opa"], flags].concat()).await;
        assert!(refused.code == Some(1) && refused.stderr.contains(part), "{flags:?}: {}", refused.stderr);
    }
    let bypassed = world.ask(&["release", "gate/opa", "--for", "10m", "--reason", "it hangs"]).await;
    assert_eq!(bypassed.code, Some(0), "{}", bypassed.stderr);
    let bypass = object(&world, "gates/opa").await.unwrap()["spec"]["bypass"].take();
    assert!(bypass["reason"] == "it hangs" && bypass["untilTime"].is_string(), "{bypass}");
}

/// The words of a printed command, as a shell reads them.
fn words(line: &str) -> Vec<String> {
    let parts = line.split('\'').enumerate();
    let words = parts.flat_map(|(at, part)| match at % 2 {
        0 => part.split_whitespace().map(str::to_owned).collect(),
        _ => vec![part.to_owned()],
    });
    words.collect()
}

#[tokio::test]
async fn a_held_object_goes_by_the_command_that_why_prints() {
    let world = World::with("enforce").await;
    define(&world).await;
    let guard = async |plural: &str, kind: &str, spec: Value| {
        let metadata = json!({ "name": "it" });
        let object =
            json!({ "apiVersion": "ownergraph.dev/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec });
        make(world.api(), &format!("{GROUP}/{plural}"), object).await;
    };
    let scope = |name: &str| json!({ "targets": [{ "names": [name] }] });
    guard("protections", "Protection", json!({ "reason": "r", "scope": scope("protection") })).await;
    guard("approvals", "Approval", json!({ "reason": "r", "scope": scope("approval"), "moreThan": 0 })).await;
    let gate = json!({
        "reason": "r", "scope": scope("gate"), "stream": {}, "failurePolicy": "Deny", "maxHoldSeconds": 600,
        "afterMaxHold": "Deny",
    });
    guard("gates", "Gate", gate).await;
    until("all guards are known", async || {
        let told = world.ask(&["status"]).await.stdout;
        ["protection/it", "approval/it", "gate/it"].iter().all(|name| told.contains(name))
    })
    .await;
    for kind in ["protection", "approval", "gate"] {
        let owner = world.api().create(&format!("owner-of-{kind}"), &[]).await;
        world.api().create(kind, &[&owner]).await;
    }
    until("the graph has all objects", async || world.ask(&["tree", "cm/owner-of-gate"]).await.code == Some(0)).await;
    for kind in ["protection", "approval", "gate"] {
        world.api().delete(&format!("owner-of-{kind}")).await;
    }
    for kind in ["protection", "approval", "gate"] {
        let mut command = String::new();
        until("the hold is told with its command", async || {
            let why = world.ask(&["why", &format!("cm/{kind}")]).await.stdout;
            let line = why.lines().find_map(|line| line.strip_prefix("  release  ")).unwrap_or_default();
            command = line.to_owned();
            // A cascade is counted before it can be approved.
            !command.is_empty() && (kind != "approval" || command.contains("--digest"))
        })
        .await;
        assert!(world.api().get(kind).await.is_some(), "{kind} is held");
        let stuck = world.ask(&["stuck", "--older-than", "0s"]).await.stdout;
        assert!(stuck.contains(&command), "{command}: {stuck}");
        let mut words = words(&command);
        assert_eq!(words.drain(..2).collect::<Vec<_>>(), ["kubectl", "ownergraph"]);
        if kind == "protection" {
            words.push("--yes".to_owned());
        }
        if kind == "approval" {
            words.extend(["-o".to_owned(), "json".to_owned()]);
        }
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let ran = output(&mut plugin(&words)).await;
        assert!(ran.status.success(), "{command}: {}", String::from_utf8_lossy(&ran.stderr));
        if kind == "approval" {
            let document: Value = serde_json::from_slice(&ran.stdout).unwrap();
            assert_eq!(
                (&document["kind"], &document["items"][0]["approvals"]),
                (&json!("CascadeList"), &json!(["it"]))
            );
        }
        until("the object is gone", async || world.api().get(kind).await.is_none()).await;
    }
}
