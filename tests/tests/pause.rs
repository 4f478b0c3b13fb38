//! The pause, with real processes on a real API server: in the middle of a cascade, and around the end of a leader.

use anyhow::{Context, ensure};
use http::Method;
use kube::Client;
use serde_json::Value;
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tests::controlplane::ControlPlane;
use tests::load::{self, configmaps, count, create, delete, families, until};
use tests::process::{Directory, free_port};
use tests::proxy::Proxy;
use tests::service::{Programs, Service, start_graph};
use tests::stage::{Stage, install_guards};
use tokio::time::Instant;

const OBJECTS: usize = 1_000;
const SOON: Duration = Duration::from_secs(60);
/// The added delay of a write. The four requests of the executors write a hundred objects per second on any machine, so
/// that the cascade is still in flight when the test pauses it.
const SLOWER: Duration = Duration::from_millis(40);
/// The maximum time after the answer at which a write may still leave.
const PROMISED: Duration = Duration::from_secs(1);
const CASCADE_WITHIN: Duration = Duration::from_secs(180);

/// Two graph services, of which one leads, and two slow executors behind a proxy that records the times of DELETE
/// requests.
struct World {
    plane: ControlPlane,
    programs: Programs,
    client: Client,
    directory: Directory,
    grpc: [String; 2],
    graphs: [Service; 2],
    _executors: Vec<Service>,
    _proxy: Proxy,
    deletes: Arc<Mutex<Vec<(Instant, String)>>>,
}

impl World {
    async fn start() -> anyhow::Result<Option<World>> {
        let Some(Stage { programs, plane, client, .. }) = Stage::start().await? else { return Ok(None) };
        let directory = Directory::create()?;
        let proxy = Proxy::start(plane.client().await?, directory.path()).await?;
        let deletes: Arc<Mutex<Vec<(Instant, String)>>> = Arc::default();
        let noted = Arc::clone(&deletes);
        proxy.lie(move |request| {
            if request.method == Method::DELETE {
                noted
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push((Instant::now(), request.uri.path().to_owned()));
            }
            None
        });
        proxy.slow_writes(SLOWER);
        let grpc = [0; 2].map(|_| free_port().map(|port| format!("127.0.0.1:{port}")));
        let [first, second] = grpc;
        let grpc = [first?, second?];
        let start = |at: usize| start_graph(&programs, plane.kubeconfig(), directory.path(), &grpc[at], at);
        let mut graphs = [start(0)?, start(1)?];
        for graph in &mut graphs {
            graph.ready().await?;
        }
        let (kubeconfig, peers) = (proxy.kubeconfig().display().to_string(), grpc.join(","));
        let mut executors = Vec::new();
        for name in ["executor-0", "executor-1"] {
            let flags = ["--kubeconfig", &kubeconfig, "--graph", &peers, "--name", name, "--concurrency", "2"];
            executors.push(Service::start(&programs, "executor-service", name, directory.path(), &flags)?);
        }
        for executor in &mut executors {
            executor.ready().await?;
        }
        let world =
            World { plane, programs, client, directory, grpc, graphs, _executors: executors, _proxy: proxy, deletes };
        Ok(Some(world))
    }

    /// Runs `ownergraph` with these addresses. Returns exit code, standard output and error.
    fn ownergraph(&self, servers: &[usize], arguments: &[&str]) -> anyhow::Result<(i32, String, String)> {
        let servers: Vec<&str> = servers.iter().map(|&at| self.grpc[at].as_str()).collect();
        let mut command = Command::new(self.programs.path("ownergraph"));
        command.args(arguments);
        if !servers.is_empty() {
            command.args(["--server", &servers.join(",")]);
        }
        let output = command.output().context("running ownergraph")?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ok((output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr)))
    }

    fn kubectl(&self, arguments: &[&str]) -> anyhow::Result<String> {
        let output = self.plane.kubectl().args(arguments).output().context("running kubectl")?;
        ensure!(output.status.success(), "kubectl {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    async fn install(&self) -> anyhow::Result<()> {
        install_guards(&self.programs, self.plane.kubectl(), &self.client).await
    }

    fn status(&self, at: usize) -> anyhow::Result<Value> {
        let (code, said, errors) = self.ownergraph(&[at], &["status", "-o", "json"])?;
        // 2 says that the replica does not grant, for example because it has not read the guards of its term yet.
        ensure!(code == 0 || code == 2, "{errors}");
        serde_json::from_str(&said).with_context(|| said)
    }

    /// Waits until this replica leads.
    async fn leads(&self, at: usize) -> anyhow::Result<()> {
        let ask = || self.graphs[at].get("/readyz?verbose");
        let leads = |(_, body): &(u16, String)| body.contains("this replica leads");
        until("the replica leads", Duration::from_secs(40), ask, leads).await?;
        Ok(())
    }

    /// Fills a namespace with dependents, deletes their owners, and waits until the cascade is in flight.
    async fn cascade(&self, namespace: &str) -> anyhow::Result<String> {
        load::namespace(&self.client, namespace).await?;
        let maps = configmaps(namespace);
        let owners = families(&self.client, namespace, "o", 20, OBJECTS / 20).await?;
        for owner in &owners {
            delete(&self.client, &format!("{maps}/{owner}"), "Background").await?;
        }
        let ask = || count(&self.client, &maps);
        until("it is under way", CASCADE_WITHIN, ask, |left| *left <= OBJECTS - OBJECTS / 10).await?;
        Ok(maps)
    }

    /// Returns the time from `then` to the last DELETE of the namespace at the proxy.
    fn last_delete_after(&self, namespace: &str, then: Instant) -> Duration {
        let deletes = self.deletes.lock().unwrap_or_else(PoisonError::into_inner);
        let there = format!("/namespaces/{namespace}/");
        let last = deletes.iter().rev().find(|(_, path)| path.contains(&there)).map(|(at, _)| *at);
        last.map_or(Duration::ZERO, |last| last.saturating_duration_since(then))
    }

    /// A replica that starts after the creation of a pause of one hour gives it only the remaining time.
    async fn counts_its_time_from_the_beginning(&self, written: Instant) -> anyhow::Result<()> {
        const SERVERS_DIFFER: Duration = Duration::from_secs(10);
        const A_MINUTE: Duration = Duration::from_secs(60);
        let address = format!("127.0.0.1:{}", free_port()?);
        let mut late = start_graph(&self.programs, self.plane.kubeconfig(), self.directory.path(), &address, 2)?;
        late.ready().await?;
        let ask = || late.get("/readyz?verbose");
        let (_, body) = until("it sees the pause", SOON, ask, |(_, body)| body.contains(" s left")).await?;
        let left = body.lines().find_map(|line| line.split_once(" s left")?.0.rsplit(' ').next()?.parse::<u64>().ok());
        let left = Duration::from_secs(left.with_context(|| body.clone())?);
        let expected = Duration::from_secs(3600).saturating_sub(written.elapsed()) + SERVERS_DIFFER;
        eprintln!("a replica that started {:.1?} later gives it {left:?} more", written.elapsed());
        ensure!(left <= expected + Duration::from_secs(2) && left + A_MINUTE >= expected, "{left:?}, not {expected:?}");
        Ok(())
    }

    async fn finishes(&self, maps: &str) -> anyhow::Result<()> {
        until("the cascade finishes", CASCADE_WITHIN, || count(&self.client, maps), |left| *left == 0).await?;
        Ok(())
    }
}

fn effective(status: &Value) -> bool {
    status["pauses"].as_array().is_some_and(|pauses| pauses.iter().any(|pause| pause["effective"] == true))
}

/// Numbers of 64 bits are texts in JSON, and zeros are missing.
fn held_items(status: &Value) -> u64 {
    status["heldItems"].as_str().map_or(0, |held| held.parse().expect("a number"))
}

#[tokio::test(flavor = "multi_thread")]
async fn pressed_in_mid_cascade_it_holds_within_a_second_and_resumed_the_cascade_finishes() -> anyhow::Result<()> {
    let _turn = crate::turn().await?;
    let Some(world) = World::start().await? else { return Ok(()) };
    let leader = usize::from(!world.graphs[0].get("/readyz?verbose").await?.1.contains("this replica leads"));
    let (code, _, errors) = world.ownergraph(&[leader], &["pause", "--all", "--for", "1h", "--reason", "early"])?;
    ensure!(code == 3 && errors.contains("ownergraph crds | kubectl apply -f -"), "without the definition: {errors}");
    world.install().await?;
    let maps = world.cascade("shop").await?;

    // The command asks the replica that does not lead, finds the leader, and reports its status.
    let standby = 1 - leader;
    let pause = ["pause", "-n", "shop", "--for", "1h", "--reason", "what deletes these?", "-o", "json"];
    let pressing = Instant::now();
    let (code, said, errors) = world.ownergraph(&[standby], &pause)?;
    let answered = Instant::now();
    ensure!(code == 0, "{errors}");
    let pressed: Value = serde_json::from_str(&said)?;
    let name = pressed["metadata"]["name"].as_str().context("a pause has a name")?.to_owned();
    eprintln!("pressed: {said}");
    let ask = || async { world.status(leader) };
    let status = until("it is effective", Duration::from_secs(90), ask, effective).await?;
    let held = held_items(&status);
    let left = count(&world.client, &maps).await?;
    let (late, last) = (world.last_delete_after("shop", answered), world.last_delete_after("shop", pressing));
    eprintln!(
        "answered {:.3?} after it was pressed, effective {:.1?} after the answer; the last DELETE {last:.3?} after it was pressed, {late:.3?} after the answer; {left} left, {held} held",
        answered - pressing,
        answered.elapsed()
    );
    ensure!(late <= PROMISED, "a write {late:?} after the answer");
    // The four requests in flight may be the last ones. A write stays in flight for this time after it reached the
    // proxy.
    let under_way = world.last_delete_after("shop", pressing.checked_sub(SLOWER).context("the clock has only begun")?);
    ensure!(under_way > Duration::ZERO, "nothing was under way when it was pressed");
    ensure!(left > 0 && usize::try_from(held)? == left, "{held} held of {left}");
    let (code, said, errors) = world.ownergraph(&[leader], &["status"])?;
    ensure!(code == 0 && said.contains("effective") && said.contains("in shop"), "{said}{errors}");
    let shown = world.kubectl(&["get", "pauses.ownergraph.dev"])?;
    eprintln!("{said}\n{shown}");
    ensure!(shown.contains(&name) && shown.contains("in shop") && shown.contains("what deletes these?"), "{shown}");
    let ask = || async { world.kubectl(&["get", "pauses.ownergraph.dev"]) };
    until("kubectl shows that it is effective", SOON, ask, |shown| shown.contains("Effective")).await?;
    let gauge = world.graphs[leader].metric("ownergraph_pauses{state=\"effective\"}").await?;
    ensure!(gauge == Some(1.0), "pauses in /metrics: {gauge:?}");
    let gauge = world.graphs[leader].metric("ownergraph_queue_items{state=\"held\"}").await?;
    ensure!(gauge == Some(left as f64), "held in /metrics: {gauge:?}");

    // Other namespaces continue in the meantime.
    let other = world.cascade("other").await?;
    world.finishes(&other).await?;
    ensure!(count(&world.client, &maps).await? == left, "nothing of what is held went");
    world.counts_its_time_from_the_beginning(answered).await?;

    // A pause that kubectl created has the same effect. It ends when kubectl deletes it.
    let by_hand = serde_json::json!({
        "apiVersion": "ownergraph.dev/v1alpha1", "kind": "Pause", "metadata": { "name": "by-hand" },
        "spec": { "reason": "by hand", "lifetimeSeconds": 600 },
    });
    create(&world.client, "/apis/ownergraph.dev/v1alpha1/pauses", &by_hand).await?;
    let taken = |status: &Value| status["pauses"].as_array().is_some_and(|pauses| pauses.len() == 2);
    until("the one by hand is taken in", SOON, || async { world.status(leader) }, taken).await?;
    let (code, said, errors) = world.ownergraph(&[leader], &["resume", &name])?;
    ensure!(code == 0 && said.contains("resumed"), "{errors}");
    let held = |status: &Value| held_items(status) == left as u64;
    until("the other holds all of it now", SOON, || async { world.status(leader) }, held).await?;
    world.kubectl(&["wait", "--for=condition=Effective", "pause/by-hand", "--timeout=90s"])?;
    // A change is another generation, which the leader has yet to see.
    let longer = r#"{"spec":{"lifetimeSeconds":900}}"#;
    world.kubectl(&["patch", "ogp", "by-hand", "--type=merge", "--patch", longer])?;
    world.kubectl(&["wait", "--for=jsonpath={.status.observedGeneration}=2", "ogp/by-hand", "--timeout=30s"])?;
    world.kubectl(&["wait", "--for=condition=Effective", "ownergraph", "--all", "--timeout=30s"])?;
    world.kubectl(&["delete", "pauses.ownergraph.dev", "by-hand"])?;
    world.finishes(&maps).await?;
    let (code, _, errors) = world.ownergraph(&[leader], &["resume", &name])?;
    ensure!(code == 1 && errors.contains("there is no pause"), "{errors}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn it_survives_the_death_of_the_leader_and_works_while_no_replica_leads() -> anyhow::Result<()> {
    let _turn = crate::turn().await?;
    let Some(mut world) = World::start().await? else { return Ok(()) };
    world.install().await?;
    let mut leader = usize::from(!world.graphs[0].get("/readyz?verbose").await?.1.contains("this replica leads"));
    for (namespace, before) in [("before", true), ("after", false)] {
        let maps = world.cascade(namespace).await?;
        let (dying, heir) = (leader, 1 - leader);
        let press = |world: &World| {
            let pause = ["pause", "-n", namespace, "--for", "10m", "--reason", "about to fail over", "-o", "name"];
            let (code, said, errors) = world.ownergraph(&[dying, heir], &pause)?;
            ensure!(code == 0, "{errors}");
            Ok((said.trim().trim_start_matches("pauses/").to_owned(), Instant::now()))
        };
        let wait_a_second = || tokio::time::sleep(Duration::from_secs(1));
        // This second is the subject of the test, and not a wait for an event.
        let (name, answered) = if before {
            let pressed = press(&world)?;
            wait_a_second().await;
            world.graphs[dying].process.kill()?;
            pressed
        } else {
            world.graphs[dying].process.kill()?;
            wait_a_second().await;
            press(&world)?
        };
        world.graphs[dying].process.ended(SOON).await?;
        world.leads(heir).await?;
        let took_over = answered.elapsed();
        let held = |status: &Value| held_items(status) > 0;
        until("the heir holds it", SOON, || async { world.status(heir) }, held).await?;
        ensure!(!effective(&world.status(heir)?), "executors of the dead leader may not know of it");
        let status =
            until("it is effective", Duration::from_secs(90), || async { world.status(heir) }, effective).await?;
        let (late, left) = (world.last_delete_after(namespace, answered), count(&world.client, &maps).await?);
        eprintln!(
            "pressed a second {} the kill: the heir leads after {took_over:.1?}, effective after {:.1?}, the last DELETE {late:.3?} after the answer; {left} left, {} held",
            if before { "before" } else { "after" },
            answered.elapsed(),
            held_items(&status)
        );
        ensure!(late <= PROMISED, "a write {late:?} after the answer");
        ensure!(left > 0, "it was pressed in mid-cascade");
        let (code, _, errors) = world.ownergraph(&[heir], &["resume", &name])?;
        ensure!(code == 0, "{errors}");
        world.finishes(&maps).await?;
        let (kubeconfig, directory) = (world.plane.kubeconfig(), world.directory.path());
        let again = if before { 2 } else { 3 };
        world.graphs[dying] = start_graph(&world.programs, kubeconfig, directory, &world.grpc[dying], again)?;
        world.graphs[dying].ready().await?;
        leader = heir;
    }
    Ok(())
}
