//! Tests of decisions, of queues and of the progress of cascades, as the plugin shows them.

use crate::process::{Running, plugin, until};
use crate::questions::{Said, World};
use http::Method;
use serde_json::{Value, json};

fn lines(said: &Said) -> Vec<Value> {
    said.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Where the log continues, as it was said.
fn position(said: &Said) -> String {
    let place = said.stderr.split("--after ").nth(1).unwrap_or_else(|| panic!("{}", said.stderr));
    place.trim().to_owned()
}

fn is_gone(line: &&str) -> bool {
    line.contains(" gone ")
}

#[tokio::test]
async fn the_log_is_told_once_and_goes_on_where_it_ended() {
    let world = World::with("enforce").await;
    world.api().delete("root").await;
    until("the cascade is over", async || world.api().get("leaf").await.is_none()).await;
    let deleted = |said: &Said| said.stdout.lines().filter(|line| line.contains(" done 200 ")).count();
    until("all of it is in the log", async || deleted(&world.ask(&["decisions", "--verdict", "done"]).await) == 3)
        .await;

    let gone = async || world.ask(&["decisions", "--verdict", "gone"]).await.stdout.lines().filter(is_gone).count();
    until("the log says that all of it has gone", async || gone().await == 3).await;

    let all = world.ask(&["decisions", "-A", "--oldest", "-o", "ndjson"]).await;
    let events = lines(&all);
    let sequences: Vec<u64> =
        events.iter().map(|line| line["event"]["position"]["sequence"].as_str().unwrap().parse().unwrap()).collect();
    assert_eq!(sequences, (1..=events.len() as u64).collect::<Vec<_>>(), "dense from the first");
    assert!(
        events.iter().all(|line| line["kind"] == "DecisionEvent" && line["apiVersion"] == "ownergraph.dev/v1alpha1")
    );
    let listed = world.ask(&["decisions", "-A", "--last", "2", "-o", "json"]).await;
    let document: Value = serde_json::from_str(&listed.stdout).unwrap();
    assert_eq!(document["items"].as_array().unwrap().as_slice(), &events[events.len() - 2..]);
    let id = events[0]["event"]["decisionId"].as_str().unwrap();
    let one = world.ask(&["decisions", id, "-o", "ndjson"]).await;
    assert!(
        lines(&one).len() > 1 && lines(&one).iter().all(|line| line["event"]["decisionId"] == id),
        "{}",
        one.stdout
    );

    let after = position(&all);
    assert_eq!(lines(&world.ask(&["decisions", "-A", "--after", &after, "-o", "ndjson"]).await).len(), 0);
    let owner = world.api().create("owner", &[]).await;
    world.api().create("owned", &[&owner]).await;
    let mut follower = Running::of(plugin(&[
        "decisions",
        "-f",
        "--after",
        &after,
        "-o",
        "ndjson",
        "--kubeconfig",
        &world.cluster.kubeconfig,
        "--server",
        &world.server,
    ]));
    world.api().delete("owner").await;
    let first: Value = serde_json::from_str(&follower.said("\"owned\"").await).unwrap();
    assert_eq!(first["event"]["position"]["sequence"], (events.len() + 1).to_string());

    let clouds = lines(&world.ask(&["decisions", "--cloudevents", "--reason", "owners-gone"]).await);
    assert!(
        clouds.len() >= 3
            && clouds
                .iter()
                .all(|event| event["specversion"] == "1.0" && event["data"]["target"]["kind"] == "ConfigMap")
    );
    let table = world.ask(&["decisions", "--cloudevents", "-o", "table"]).await;
    assert!(table.code == Some(1) && table.stderr.contains("use ndjson, json, yaml"), "{}", table.stderr);
    let (log, _) = after.rsplit_once(':').unwrap();
    let ahead = world.ask(&["decisions", "-A", "--after", &format!("{log}:99999")]).await;
    let part = format!("--after {log}:99999 is after the end of the log");
    assert!(ahead.code == Some(1) && ahead.stderr.contains(&part), "{}", ahead.stderr);
    let lost = world.ask(&["decisions", "--after", "another:7", "-A"]).await;
    assert!(lost.code == Some(0) && lost.stderr.contains("a new leader has a new log"), "{}", lost.stderr);
    let leaf = world.ask(&["decisions", "--verdict", "done", "--cel", r#"event.target.name == "leaf""#]).await;
    assert!(leaf.code == Some(0) && leaf.stdout.lines().count() == 2, "{} {}", leaf.stdout, leaf.stderr);
    for (expression, part) in [
        ("event.target.name ==", "error: --cel cannot be used, line 1, column "),
        ("event.nope == 1", "line 1, column 7: there is no field \"nope\", only decision_id, "),
        (&*"a".repeat(2_000), "error: --cel cannot be used: it has 2000 bytes; at most 1024"),
    ] {
        let said = world.ask(&["decisions", "--cel", expression]).await;
        assert!(said.code == Some(1) && said.stderr.contains(part), "{expression}: {}", said.stderr);
    }
    let wrong = world.ask(&["decisions", "--after", "7"]).await;
    assert!(wrong.code == Some(1) && wrong.stderr.contains("is not LOG:NUMBER"), "{}", wrong.stderr);
}

#[tokio::test]
async fn what_waits_is_counted_and_a_cascade_is_followed_to_its_end() {
    let world = World::start().await;
    assert!(world.ask(&["queue"]).await.stderr.contains("nothing waits"));
    assert!(world.ask(&["progress", "cm/root"]).await.stderr.contains("is not being deleted"));
    world.api().delete("root").await;
    until("two dependents wait", async || {
        let queue = world.ask(&["queue", "--by", "root", "-o", "json"]).await;
        let report: Value = serde_json::from_str(&queue.stdout).unwrap();
        report["total"] == 2 && report["items"][0]["name"] == "ConfigMap default/root"
    })
    .await;
    let stays = world.ask(&["progress", "cm/root", "--timeout", "2s"]).await;
    assert!(stays.code == Some(124) && stays.stderr.contains("2 waiting"), "{} {}", stays.stdout, stays.stderr);
    let stays = world.ask(&["progress", "cm/root", "--timeout", "2s", "-o", "json"]).await;
    let document: Value = serde_json::from_str(&stays.stdout).unwrap();
    assert_eq!((stays.code, &document["waiting"]), (Some(124), &2.into()), "{document}");
    assert_eq!(world.collector.terminate().await.code(), Some(0));

    let world = World::with("enforce").await;
    world.api().delete("root").await;
    let over = world.ask(&["progress", "configmap", "root", "--timeout", "60s"]).await;
    assert_eq!(over.code, Some(0), "{}", over.stderr);
    assert!(over.stdout.contains("ConfigMap default/root and its dependents: "), "{}", over.stdout);
    assert!(world.api().get("leaf").await.is_none());

    let top = world.api().create("top", &[]).await;
    let metadata = json!({ "name": "fin", "ownerReferences": [top], "finalizers": ["example.com/x"] });
    let body = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata });
    world.api().send(Method::POST, "/api/v1/namespaces/default/configmaps", Some(body)).await;
    until("both are known", async || {
        world.ask(&["tree", "cm/top", "--no-status", "-o", "name"]).await.stdout.lines().count() == 2
    })
    .await;
    world.api().delete("top").await;
    let blocked = world.ask(&["progress", "cm/top", "--timeout", "60s"]).await;
    let said = blocked.stdout.contains("0 of 1 deleted, 1 terminating")
        && blocked.stdout.contains("\nfor the reason, run kubectl ownergraph ")
        && blocked.stdout.ends_with(" why configmap/fin -n default\n");
    assert!(blocked.code == Some(2) && said, "{:?} {} {}", blocked.code, blocked.stdout, blocked.stderr);
}
