//! Tests of plans with guards, of the Event of a finished cascade, and of pauses with exact scopes.

use super::*;

impl World {
    /// A Pause of another name.
    async fn pause_besides(&self, known: &str) -> anyhow::Result<Option<Value>> {
        let pauses = load::list(&self.client, "/apis/ownergraph.dev/v1alpha1/pauses").await?;
        Ok(pauses.into_iter().find(|pause| pause["metadata"]["name"] != known))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_names_the_guards_and_its_command_approves_the_cascade() -> anyhow::Result<()> {
    let Some(world) = World::start().await? else { return Ok(()) };
    load::namespace(&world.client, "planned").await?;
    world.guard("Approval", "approvals", "planned", &json!({ "moreThan": 2 })).await?;
    let budget = json!({ "maxObjects": 1000, "windowSeconds": 60, "onExceeded": "Hold" });
    world.guard("Budget", "budgets", "planned", &budget).await?;
    families(&world.client, "planned", "o", 1, DEPENDENTS).await?;
    let plan = || async { world.run(&["plan", "delete", "configmap/o-0", "-n", "planned"]) };
    let plan = until("the plan has the cascade", SOON, plan, |plan| plan.contains("ConfigMap 6")).await?;
    ensure!(plan.contains("approvals/planned  holds 5 objects until a person approves the cascade: a test"), "{plan}");
    ensure!(!plan.contains("budgets/planned"), "it has room: {plan}");
    let then = plan.lines().find_map(|line| line.strip_prefix("then   ")).context("no command approves")?;
    let words: Vec<&str> = then.split_whitespace().collect();
    let maps = configmaps("planned");
    let owner = load::get(&world.client, &format!("{maps}/o-0")).await?.context("it is there")?;
    delete(&world.client, &format!("{maps}/o-0"), "Background").await?;
    world.holds("approvals/planned", DEPENDENTS as u64).await?;
    // The words after the name of the program.
    let at = words.iter().position(|word| *word == "approve").with_context(|| then.to_owned())?;
    let approve = || async { Ok(world.run(&words[at..]).ok()) };
    until("the cascade is counted and approved", SOON, approve, Option::is_some).await?;
    world.gone(&maps).await?;

    let events = "/api/v1/namespaces/planned/events";
    let ask = || async {
        let events = load::list(&world.client, events).await?;
        Ok(events.into_iter().find(|event| event["reason"] == "CascadeCollected"))
    };
    let event = until("the cascade has an Event", SOON, ask, Option::is_some).await?.context("it was there")?;
    ensure!(event["involvedObject"]["uid"] == owner["metadata"]["uid"], "{event}");
    ensure!(event["type"] == "Normal" && event["count"] == 1, "{event}");
    let message = event["message"].as_str().unwrap_or_default();
    ensure!(message.starts_with("Collected 5 objects in ") && message.contains(": configmaps 5"), "{message}");
    ensure!(message.ends_with("5 objects waited for guards"), "{message}");
    let all = load::list(&world.client, events).await?;
    ensure!(all.iter().filter(|event| event["reason"] == "CascadeCollected").count() == 1, "one for the cascade");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_has_exactly_the_scope_that_was_asked_for() -> anyhow::Result<()> {
    let Some(world) = World::start().await? else { return Ok(()) };
    load::namespace(&world.client, "narrow").await?;
    families(&world.client, "narrow", "o", 1, 3).await?;
    let reason = ["--for", "5m", "--reason", "a test"];
    let scope = ["-k", "cm", "-n", "narrow", "-l", "app=web,tier!=a,!old", "--namespace-selector", "env in (a,b)"];
    let pause =
        [["pause"].as_slice(), &scope, &["--name", "x", "--owner", "configmap/o-0", "-o", "name"], &reason].concat();
    let name = || async { Ok(world.run(&pause).map_err(|error| eprintln!("{error}")).ok()) };
    let name = until("the graph has the owner", SOON, name, Option::is_some).await?.context("it was there")?;
    let name = name.trim().trim_start_matches("pauses/").to_owned();
    let path = format!("/apis/ownergraph.dev/v1alpha1/pauses/{name}");
    let written = load::get(&world.client, &path).await?.context("no pause was created")?;
    let asked = json!({ "targets": [{
        "resources": [{ "group": "", "resource": "configmaps" }],
        "namespaces": ["narrow"],
        "names": ["x"],
        "labelSelector": {
            "matchLabels": { "app": "web" },
            "matchExpressions": [
                { "key": "old", "operator": "DoesNotExist" }, { "key": "tier", "operator": "NotIn", "values": ["a"] },
            ],
        },
        "namespaceSelector": { "matchExpressions": [{ "key": "env", "operator": "In", "values": ["a", "b"] }] },
        "owner": { "group": "", "resource": "configmaps", "namespace": "narrow", "name": "o-0" },
    }] });
    ensure!(written["spec"]["scope"] == asked, "{}", written["spec"]);
    let status = world.run(&["status"])?;
    let words = "configmaps in narrow named x with app=web, !old, tier!=a in namespaces with env in (a,b) below configmaps narrow/o-0";
    ensure!(status.contains(words), "{status}");

    // Objects that the pause does not cover are deleted.
    let maps = world.cascade_of("narrow", "p").await?;
    until("they go", SOON, || owned(&world.client, &maps, "p-0-"), |left| *left == 0).await?;

    let budget = json!({
        "scope": { "targets": [{
            "namespaces": ["narrow"], "labelSelector": { "matchExpressions": [{ "key": "odd", "operator": "DoesNotExist" }] },
        }] },
        "maxObjects": 1, "windowSeconds": 3600, "onExceeded": "Pause", "pauseSeconds": 300,
    });
    world.guard("Budget", "budgets", "narrow", &budget).await?;
    world.cascade_of("narrow", "q").await?;
    let ask = || world.pause_besides(&name);
    let made = until("the budget creates a Pause", SOON, ask, Option::is_some).await?.context("it was there")?;
    ensure!(made["spec"]["scope"] == budget["scope"], "{}", made["spec"]);
    Ok(())
}

/// The number of objects whose names begin with this.
async fn owned(client: &Client, maps: &str, prefix: &str) -> anyhow::Result<usize> {
    let left = load::list(client, maps).await?;
    Ok(left.iter().filter(|map| map["metadata"]["name"].as_str().is_some_and(|name| name.starts_with(prefix))).count())
}

impl World {
    /// Fills a namespace with one more owner and its dependents, and deletes the owner.
    async fn cascade_of(&self, namespace: &str, prefix: &str) -> anyhow::Result<String> {
        let maps = configmaps(namespace);
        for owner in families(&self.client, namespace, prefix, 1, DEPENDENTS).await? {
            delete(&self.client, &format!("{maps}/{owner}"), "Background").await?;
        }
        Ok(maps)
    }
}
