//! One release replaces the former one during cascades, one replica at a time. Then the former release returns.

mod endings;

use anyhow::{Context, ensure};
use endings::{Follower, stream_endings};
use engine::work::PROTOCOL;
use kube::Client;
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;
use tests::controlplane::ControlPlane;
use tests::load::{self, configmap, configmaps, count, delete, families, list, reference_to, until};
use tests::replicas::{Member, Replicas, held};
use tests::stage::Stage;
use tokio::time::{Instant, interval};

const SPACE: &str = "upgrade";
const SOON: Duration = Duration::from_secs(60);
/// The added delay of a write. It is so long that a replica is replaced in the middle of a cascade, however fast the
/// machine is.
const WRITES_PER_SECOND: &str = "120";
/// The owners of one cascade, one for each policy, and the dependents of each.
const POLICIES: [&str; 3] = ["Background", "Foreground", "Orphan"];
const DEPENDENTS: usize = 120;
/// The dependents with another owner that exists.
const SHARED: usize = 20;
/// The objects that must not change: owners that exist, and their dependents.
const BYSTANDERS: (usize, usize) = (5, 20);

/// The program of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Release {
    This,
    Next,
}

impl Release {
    fn graph_service(self) -> &'static str {
        match self {
            Release::This => "graph-service",
            Release::Next => "next-graph-service",
        }
    }

    fn executor_service(self) -> &'static str {
        match self {
            Release::This => "executor-service",
            Release::Next => "next-executor-service",
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Replica {
    Graph(usize),
    Executor(usize),
}

/// The objects that must exist at the end: by name, the uid and the names of the owners.
type Expected = BTreeMap<String, (String, Vec<String>)>;

struct World {
    /// This value is dropped last, except for the processes that write to it.
    _plane: ControlPlane,
    client: Client,
    replicas: Replicas,
    followers: Vec<Follower>,
    expected: Expected,
    /// The state of the bystanders at the beginning, which includes their resource versions.
    bystanders: Vec<Value>,
    cascades: usize,
}

fn text(object: &Value, pointer: &str) -> String {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn owners(object: &Value) -> Vec<String> {
    let references = object["metadata"]["ownerReferences"].as_array();
    references.map_or_else(Vec::new, |all| all.iter().map(|one| text(one, "/name")).collect())
}

impl World {
    async fn start() -> anyhow::Result<Option<World>> {
        let Some(Stage { programs, plane, client, .. }) = Stage::start().await? else { return Ok(None) };
        for space in [SPACE, "bystanders"] {
            load::namespace(&client, space).await?;
        }
        families(&client, "bystanders", "alive", BYSTANDERS.0, BYSTANDERS.1).await?;
        let bystanders = list(&client, configmaps("bystanders")).await?;
        let mut replicas = Replicas::new(&programs, 2).await?;
        let log = ["--log-format", "json", "--log-level", "info,executor_service=debug"];
        for _ in 0..2 {
            let flags = [&["--max-writes-per-second", WRITES_PER_SECOND][..], &log].concat();
            replicas.add_graph(plane.kubeconfig(), &flags)?;
        }
        for _ in 0..2 {
            replicas.add_executor(plane.kubeconfig(), &log)?;
        }
        replicas.ready().await?;
        let followers = (0..2).flat_map(|graph| Follower::start_both(replicas.grpc(graph))).collect();
        let (expected, cascades) = (Expected::new(), 0);
        Ok(Some(World { client, replicas, followers, expected, bystanders, cascades, _plane: plane }))
    }

    /// Creates one owner for each policy with its dependents, and some dependents that another owner keeps. Deletes the
    /// owners. Returns the number of objects that must go or lose a reference.
    async fn begin_cascade(&mut self) -> anyhow::Result<usize> {
        let maps = configmaps(SPACE);
        let prefix = format!("c{}", self.cascades);
        self.cascades += 1;
        let dying = families(&self.client, SPACE, &prefix, POLICIES.len(), DEPENDENTS).await?;
        let keeper = load::create(&self.client, &maps, &configmap(&format!("{prefix}-keeper"), &[])).await?;
        let first = load::get(&self.client, format!("{maps}/{}", dying[0])).await?.context("the owner was created")?;
        let both = [reference_to(&first), reference_to(&keeper)];
        let shared = (0..SHARED).map(|number| configmap(&format!("{prefix}-shared-{number}"), &both)).collect();
        let shared = load::create_all(&self.client, &maps, shared).await?;
        let keeper_name = text(&keeper, "/metadata/name");
        self.expect(&keeper, Vec::new());
        shared.iter().for_each(|object| self.expect(object, vec![keeper_name.clone()]));
        let orphaned = format!("{}-", dying[2]);
        for object in list(&self.client, maps.clone()).await? {
            if text(&object, "/metadata/name").starts_with(&orphaned) {
                self.expect(&object, Vec::new());
            }
        }
        let all = self.left().await?;
        for (owner, policy) in dying.iter().zip(POLICIES) {
            delete(&self.client, &format!("{maps}/{owner}"), policy).await?;
        }
        Ok(all)
    }

    fn expect(&mut self, object: &Value, owners: Vec<String>) {
        self.expected.insert(text(object, "/metadata/name"), (text(object, "/metadata/uid"), owners));
    }

    /// Returns the number of objects that must still go or lose a reference.
    async fn left(&self) -> anyhow::Result<usize> {
        let objects = list(&self.client, configmaps(SPACE)).await?;
        let is_done = |object: &Value| {
            let known = self.expected.get(&text(object, "/metadata/name"));
            known.is_some_and(|(_, expected)| *expected == owners(object))
        };
        Ok(objects.iter().filter(|object| !is_done(object)).count())
    }

    fn member(&mut self, replica: Replica) -> &mut Member {
        match replica {
            Replica::Graph(index) => &mut self.replicas.graphs[index],
            Replica::Executor(index) => &mut self.replicas.executors[index],
        }
    }

    /// Stops a replica in the middle of a cascade, and starts the other release in its place, as a rolling update does.
    async fn replace(&mut self, replica: Replica, release: Release) -> anyhow::Result<()> {
        let all = self.begin_cascade().await?;
        until("the cascade has begun", SOON, || self.left(), |left| *left < all).await?;
        let began = Instant::now();
        let left = self.left().await?;
        ensure!(left > 0, "{replica:?}: the cascade was over too soon");
        let member = self.member(replica);
        let process = &mut member.service_mut()?.process;
        process.terminate()?;
        let code = process.ended(SOON).await?;
        ensure!(code == 0, "{replica:?} ended with {code}: {}", process.log_tail());
        let (program, renamed) = match replica {
            Replica::Graph(_) => (release.graph_service(), false),
            Replica::Executor(_) => (release.executor_service(), true),
        };
        member.replace_by(program);
        member.start(renamed)?;
        member.service_mut()?.ready().await?;
        let after = self.left().await?;
        eprintln!("{replica:?} is {release:?}: {left} left before, {after} after {:.1?}", began.elapsed());
        Ok(())
    }

    /// Returns the protocols of all executors' sessions, after the present leader has opened one with each.
    async fn ensure_spoken(&self, protocol: u32, what: &str) -> anyhow::Result<()> {
        let mut ticks = interval(Duration::from_millis(50));
        let deadline = Instant::now() + SOON;
        loop {
            ticks.tick().await;
            let term = held(&self.client).await?.term;
            let mut spoken = Vec::new();
            for executor in &self.replicas.executors {
                spoken.push(endings::session_open(&executor.service()?.process.output()));
            }
            if spoken.iter().all(|open| *open == Some((term, u64::from(protocol)))) {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "{what}: not protocol {protocol} in term {term}: {spoken:?}");
        }
    }

    /// Checks that every object is in the state that its owners' deletion demands, and that all others are unchanged.
    async fn ensure_right(&self) -> anyhow::Result<()> {
        until("all cascades end", SOON * 5, || self.left(), |left| *left == 0).await?;
        let found: Expected = list(&self.client, configmaps(SPACE))
            .await?
            .iter()
            .map(|object| (text(object, "/metadata/name"), (text(object, "/metadata/uid"), owners(object))))
            .collect();
        ensure!(found == self.expected, "{} objects are there, {} should be", found.len(), self.expected.len());
        ensure!(list(&self.client, configmaps("bystanders")).await? == self.bystanders, "a bystander was touched");
        ensure!(count(&self.client, &configmaps("bystanders")).await? == BYSTANDERS.0 * (BYSTANDERS.1 + 1));
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn releases_replace_each_other_during_cascades_and_nothing_is_lost_or_wrong() -> anyhow::Result<()> {
    let Some(mut world) = World::start().await? else { return Ok(()) };
    let (old, new) = (PROTOCOL, PROTOCOL + 1);
    world.ensure_spoken(old, "before").await?;
    // The upgrade replaces the graph services first. The leader goes first, so that a replica of the old release takes
    // over, and then one of the new release.
    let leads = held(&world.client).await?.holder.context("one of ours leads")?;
    let graphs = [Replica::Graph(leads), Replica::Graph(1 - leads)];
    let executors = [Replica::Executor(0), Replica::Executor(1)];
    world.replace(graphs[0], Release::Next).await?;
    world.ensure_spoken(old, "all but a standby are of the old release").await?;
    world.replace(graphs[1], Release::Next).await?;
    world.ensure_spoken(old, "new leader, old executors").await?;
    for executor in executors {
        world.replace(executor, Release::Next).await?;
    }
    world.ensure_spoken(new, "all are of the new release").await?;
    // The downgrade replaces replicas in the order in which executors of the new release meet a leader of the old one.
    let leads = held(&world.client).await?.holder.context("one of ours leads")?;
    world.replace(Replica::Graph(leads), Release::This).await?;
    world.ensure_spoken(new, "all but a standby are of the new release").await?;
    world.replace(Replica::Graph(1 - leads), Release::This).await?;
    world.ensure_spoken(old, "old leader, new executors").await?;
    for executor in executors {
        world.replace(executor, Release::This).await?;
    }
    world.ensure_spoken(old, "all are back").await?;
    world.ensure_right().await?;

    let endings = stream_endings(world.replicas.directory())?;
    eprintln!("how sessions of executors ended: {:?}", endings.sessions);
    eprintln!("refusals while no replica led: {:?}", endings.refusals);
    ensure!(endings.wrong.is_empty(), "{:#?}", endings.wrong);
    // Each of the four stopped graph services led, and had both executors. The last one had at least one executor.
    ensure!(endings.sessions.get("sent away").is_some_and(|&sent| sent >= 7), "{:?}", endings.sessions);
    ensure!(endings.sessions.get("drained").is_some_and(|&drained| drained == 4), "{:?}", endings.sessions);
    let mut followed = BTreeMap::new();
    for follower in std::mem::take(&mut world.followers) {
        let (what, endings) = follower.stop().await?;
        for ending in endings {
            *followed.entry(format!("{what}: {ending}")).or_insert(0) += 1;
        }
    }
    eprintln!("how streams of readers ended: {followed:?}");
    ensure!(followed.keys().all(|ending| ending.ends_with("told to go, and closed")), "{followed:?}");
    ensure!(followed.values().sum::<usize>() >= 4, "{followed:?}");
    Ok(())
}
