//! A leader and an executor that were paused. Neither can do anything when it continues.

use anyhow::ensure;
use http::Method;
use kube::Client;
use serde_json::{Value, json};
use std::time::Duration;
use tests::controlplane::{ControlPlane, RequestCount};
use tests::link::{Link, Wire};
use tests::load::{configmap, configmaps, create, create_all, delete, list, reference_to, send, until};
use tests::replicas::{Held, Replicas, executor_name, held, wire_to};
use tests::stage::Stage;

const SOON: Duration = Duration::from_secs(60);
/// These durations are much shorter than the session of an executor, so the session lasts until the next leader.
const LEASES: [&str; 6] = ["--lease-duration", "5s", "--renew-deadline", "4s", "--retry-period", "1s"];
const DEPENDENTS: usize = 5;

struct World {
    plane: ControlPlane,
    client: Client,
    replicas: Replicas,
    leader_to_api: Link,
    executor_to_api: Link,
    maps: String,
}

impl World {
    /// Two graph services, of which the first leads, and an executor with one request at a time.
    async fn start() -> anyhow::Result<Option<World>> {
        let Some(Stage { programs, plane, client, .. }) = Stage::start().await? else { return Ok(None) };
        let mut replicas = Replicas::new(&programs, 2).await?;
        let (leader_to_api, kubeconfig) = wire_to(&plane, replicas.directory(), "leader").await?;
        replicas.add_graph(&kubeconfig, &LEASES)?;
        replicas.ready().await?;
        until("the first leads", SOON, || held(&client), |held| *held == Held { holder: Some(0), term: 1 }).await?;
        replicas.add_graph(plane.kubeconfig(), &LEASES)?;
        let (executor_to_api, kubeconfig) = wire_to(&plane, replicas.directory(), "executor").await?;
        replicas.add_executor(&kubeconfig, &["--concurrency", "1"])?;
        replicas.ready().await?;
        let maps = configmaps("default");
        Ok(Some(World { plane, client, replicas, leader_to_api, executor_to_api, maps }))
    }

    /// Deletes an owner with dependents. The first write is then in flight, and the other leases of the executor wait.
    async fn a_cascade_that_hangs(&self) -> anyhow::Result<Vec<Value>> {
        let owner = create(&self.client, &self.maps, &configmap("owner", &[])).await?;
        let reference = reference_to(&owner);
        let dependent = |number| configmap(&format!("dependent-{number}"), std::slice::from_ref(&reference));
        let dependents = create_all(&self.client, &self.maps, (0..DEPENDENTS).map(dependent).collect()).await?;
        self.executor_to_api.set("", Wire::Held);
        delete(&self.client, &format!("{}/owner", self.maps), "Background").await?;
        let granted = || self.replicas.graphs[0].metric("ownergraph_leases ");
        until("a write is under way, another one waits", SOON, granted, |leases| *leases == 2.0).await?;
        let under_way = || async { Ok(self.executor_to_api.kept()) };
        until("the write is on the wire", SOON, under_way, |kept| *kept > 0).await?;
        Ok(dependents)
    }

    /// Pauses the leader during a renewal. The executor must find another leader.
    async fn stop_the_leader(&self) -> anyhow::Result<()> {
        self.leader_to_api.set("", Wire::Held);
        let under_way = || async { Ok(self.leader_to_api.kept()) };
        until("a renewal is on the wire", SOON, under_way, |kept| *kept > 0).await?;
        self.replicas.graphs[0].service()?.process.pause()?;
        self.replicas.gates[0].set(&executor_name(0), Wire::Cut);
        let second_leads = |held: &Held| *held == Held { holder: Some(1), term: 2 };
        until("the second leads", SOON, || held(&self.client), second_leads).await?;
        Ok(())
    }

    /// Gives every dependent an owner that exists. Returns the uid of that owner.
    async fn rescue(&self, dependents: &[Value]) -> anyhow::Result<Value> {
        let keeper = create(&self.client, &self.maps, &configmap("keeper", &[])).await?;
        for dependent in dependents {
            let name = dependent["metadata"]["name"].as_str().unwrap_or_default();
            let mut owners = dependent["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default();
            owners.push(reference_to(&keeper));
            let patch = json!({ "metadata": { "ownerReferences": owners } });
            send(&self.client, Method::PATCH, &format!("{}/{name}", self.maps), Some(&patch)).await?;
        }
        Ok(keeper["metadata"]["uid"].clone())
    }

    async fn answered(&self, wanted: impl Fn(&RequestCount) -> bool) -> anyhow::Result<u64> {
        Ok(self.plane.server_metrics().await?.total(wanted))
    }

    async fn dependents(&self) -> anyhow::Result<Vec<Value>> {
        let all = list(&self.client, self.maps.as_str()).await?;
        let is_dependent =
            |object: &Value| object["metadata"]["name"].as_str().is_some_and(|name| name.starts_with("dependent"));
        Ok(all.into_iter().filter(is_dependent).collect())
    }
}

fn refused(verb: &'static str, resource: &'static str) -> impl Fn(&RequestCount) -> bool {
    move |request| request.verb == verb && request.resource == resource && request.code == "409"
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_wakes_in_a_former_term_changes_nothing() -> anyhow::Result<()> {
    // A renewal that is late on a busy machine would change the leader.
    let _turn = crate::every_turn().await?;
    let Some(world) = World::start().await? else { return Ok(()) };
    let executor = &world.replicas.executors[0];
    let dependents = world.a_cascade_that_hangs().await?;
    world.stop_the_leader().await?;

    // The executor returns its waiting lease of the former term to the new leader.
    let stale = || executor.metric("ownergraph_executor_stale_terms_total ");
    let stale = until("the executor refuses what the first had granted", SOON, stale, |count| *count >= 1.0).await?;

    // The late write of the executor finds a changed object.
    let keeper = world.rescue(&dependents).await?;
    let before = world.answered(refused("DELETE", "configmaps")).await?;
    world.executor_to_api.set("", Wire::Open);
    let deletes = || world.answered(refused("DELETE", "configmaps"));
    let late_deletes = until("its late write is refused", SOON, deletes, |count| *count > before).await? - before;

    // The late renewal of the leader finds a changed Lease, while the leader is still paused.
    let before = world.answered(refused("PUT", "leases")).await?;
    world.leader_to_api.set("", Wire::Open);
    let renewals = || world.answered(refused("PUT", "leases"));
    let late_renewals = until("its late renewal is refused", SOON, renewals, |count| *count > before).await? - before;
    let now = held(&world.client).await?;
    ensure!(now == Held { holder: Some(1), term: 2 }, "the Lease is the second's: {now:?}");

    // The leader continues with leases in its books. It may grant nothing.
    world.replicas.gates[0].set(&executor_name(0), Wire::Open);
    let first = &world.replicas.graphs[0];
    first.service()?.process.resume()?;
    let leads = || first.metric("ownergraph_leader ");
    until("the first knows that it does not lead", SOON, leads, |leads| *leads == 0.0).await?;
    ensure!(first.metric("ownergraph_leases ").await? == 0.0, "it has taken its grants off its books");

    let settled = |objects: &Vec<Value>| {
        objects.iter().all(|object| {
            let owners = object["metadata"]["ownerReferences"].as_array();
            owners.is_some_and(|owners| owners.len() == 1 && owners[0]["uid"] == keeper)
        })
    };
    let left = until("each is left with the owner that lives", SOON, || world.dependents(), settled).await?;
    let uid = |object: &Value| object["metadata"]["uid"].as_str().map(str::to_owned);
    ensure!(left.len() == DEPENDENTS, "{} of {DEPENDENTS} dependents are left", left.len());
    ensure!(dependents.iter().all(|before| left.iter().any(|now| uid(now) == uid(before))), "and they are the same");
    let now = held(&world.client).await?;
    ensure!(now == Held { holder: Some(1), term: 2 }, "no other replica has led meanwhile: {now:?}");
    let alarms = world.replicas.alarms()?;
    ensure!(alarms.is_empty(), "unexpected lines: {alarms:#?}");
    eprintln!(
        "refused: {stale} grants by the executor, {late_deletes} deletes and {late_renewals} renewals by the API server"
    );
    Ok(())
}
