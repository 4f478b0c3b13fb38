//! Runs every world of the catalogue at once, on one control plane. Each [`Lane`] has its own collector.

use super::answer::{Form, Wrong};
use super::document::Defect;
use super::members::{self, Row};
use super::teller::{
    Counts, DOMAIN, Facts, Lane, Phase, RESOURCE, Setting, Teller, Told, group_in, group_of, group_with,
};
use crate::controlplane::{CollectorOptions, UpstreamCollector};
use crate::load::{self, configmap, configmaps, create_all, get, list, reference_to, send, until};
use crate::process::Directory;
use crate::proxy::Proxy;
use crate::service::Service;
use crate::stage::Stage;
use anyhow::Context;
use futures::future::try_join_all;
use futures::{StreamExt, TryStreamExt, stream};
use http::Method;
use kube::Client;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, interval, timeout};

/// The minimum time of the lies. A collector asks more than once before it believes an answer. It takes most of a
/// minute to decide about a collection that stays behind the others.
const LIES_LAST: Duration = Duration::from_secs(60);
/// The maximum time of the lies, for a busy machine. They end earlier if the collectors were told enough of them.
const LIES_LAST_MAX: Duration = Duration::from_secs(400);
/// The maximum time from the end of the lies until all garbage is gone. After a rewind, the collector only reads for a
/// minute. For an owner whose kind lacks the list verb, it reads twice, two minutes apart.
const TRUTH_WITHIN: Duration = Duration::from_secs(400);
const SERVED_WITHIN: Duration = Duration::from_secs(60);
const KNOWN_WITHIN: Duration = Duration::from_secs(240);
/// The number of changes of each dependent during the lies. Each change makes the collector judge the dependent again.
const CHANGES: u32 = 2;
/// The number of new definitions during the lies. Each makes the collector read discovery again.
const DEFINITIONS_NEW: u32 = 12;
/// The number of collections that the test fills at the same time.
const FILLED_AT_ONCE: usize = 8;
/// The number of writes at the same time that keep the other store level with the right one.
const WRITES_AT_ONCE: usize = 16;
const LOOK_EVERY: Duration = Duration::from_secs(1);
const KEEP_UP_EVERY: Duration = Duration::from_millis(100);
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// The collector under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Collector {
    Ours,
    Upstream,
}

/// The result of the run of one collector.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub lane: Lane,
    pub worlds: usize,
    /// The worlds whose lie was not told, without those in which the collector need not ask.
    pub untold: Vec<String>,
    /// The worlds whose dependent was deleted although its owner exists.
    pub deleted: Vec<String>,
    /// The dependents of absent owners that still exist at the end.
    pub left: Vec<String>,
    /// The time from the end of the lies until all dependents of absent owners were gone.
    pub collected_in: Duration,
}

/// The outcomes of all collectors.
#[derive(Clone, Debug)]
pub struct Run {
    pub outcomes: Vec<Outcome>,
}

impl Run {
    pub fn worlds(&self) -> usize {
        self.outcomes.iter().map(|outcome| outcome.worlds).sum()
    }

    pub fn deleted(&self) -> usize {
        self.outcomes.iter().map(|outcome| outcome.deleted.len()).sum()
    }

    /// Returns the number of worlds that showed nothing, because their lie was not told.
    fn untold(&self) -> usize {
        self.outcomes.iter().map(|outcome| outcome.untold.len()).sum()
    }

    /// Whether the worlds that showed something are enough for a verdict.
    pub fn is_told(&self) -> bool {
        is_enough(self.untold(), self.worlds())
    }

    pub fn left(&self) -> usize {
        self.outcomes.iter().map(|outcome| outcome.left.len()).sum()
    }
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Outcome { lane, worlds, untold, deleted, left, collected_in } in &self.outcomes {
            let (name, deleted_number) = (lane.namespace(), deleted.len());
            write!(f, "{name:<14} {worlds:>5} combinations, {deleted_number:>5} wrong deletions, ")?;
            if let Some(first) = left.first() {
                writeln!(f, "{} dependents of absent owners left after {TRUTH_WITHIN:?}, such as {first}", left.len())?;
            } else {
                writeln!(f, "garbage gone {collected_in:.1?} after the lies")?;
            }
            for world in deleted {
                writeln!(f, "  {world}")?;
            }
            if !untold.is_empty() {
                writeln!(f, "  {} of the lies were not told in time, such as: {}", untold.len(), untold[0])?;
            }
        }
        write!(f, "together       {:>5} combinations, {:>5} wrong deletions", self.worlds(), self.deleted())
    }
}

/// Whether at most one lie of a hundred was not told. A collection that is often asked in vain is asked at long
/// intervals.
fn is_enough(untold: usize, worlds: usize) -> bool {
    untold * 100 <= worlds
}

/// The world of one combination: an existing owner with a dependent, and garbage beside them.
struct World {
    lane: Lane,
    group: String,
    /// The owner's name. The names of the dependent and of the garbage end with it.
    owner: String,
    /// The prefix of the names of the dependent and of the garbage. It makes their place in the collection independent
    /// of the lie.
    place: u16,
    what: String,
    /// The collector need not ask about the owner, for example because the owner's collection shows it.
    unasked: bool,
}

fn worlds(named: &[Wrong], kinds: &[Wrong]) -> Vec<World> {
    let mut worlds = Vec::new();
    let mut add = |lane, group: String, owner: String, what: String, unasked| {
        let place = (worlds.len() as u32).wrapping_mul(0x9e37_79b1).to_be_bytes();
        worlds.push(World { lane, group, owner, place: u16::from_be_bytes([place[0], place[1]]), what, unasked });
    };
    let singles = Wrong::singles();
    for lane in Lane::all() {
        match lane.told {
            Told::Names => {
                for setting in Setting::ALL {
                    // Without the list verb, one or two minutes pass between two questions, so pairs would take too
                    // long.
                    let fits = |wrong: &Wrong| setting != Setting::OnlyGet || singles.contains(wrong);
                    let told = named.iter().enumerate().filter(|(_, wrong)| lane.has(wrong) && fits(wrong));
                    for (number, wrong) in told.filter(|(_, wrong)| !wrong.is_plausible(setting.form())) {
                        let what = format!("{setting:?}, question about the owner: {wrong}");
                        add(lane, setting.group(), format!("o-{number}"), what, setting == Setting::Open);
                    }
                }
            }
            Told::Members => {
                for row in Row::ALL {
                    for number in 0..members::OWNERS {
                        add(lane, group_in(row), format!("o-{number}"), format!("{row:?}, owner {number}"), true);
                    }
                }
            }
            Told::Document => {
                for defect in Defect::ALL {
                    add(lane, group_with(defect), "o".to_owned(), format!("Document: {defect:?}"), false);
                }
            }
            Told::Pages | Told::Again | Told::Initial | Told::Events | Told::All | Told::Resources => {
                for (number, wrong) in kinds.iter().enumerate().filter(|(_, wrong)| lane.has(wrong)) {
                    // In the other lanes, an honest answer about the owner makes up for a collection that hides it.
                    let plausible = match lane.told {
                        Told::Events => wrong.is_plausible(Form::Events),
                        Told::All => [Form::List, Form::Events].into_iter().any(|form| wrong.is_plausible(form)),
                        Told::Names
                        | Told::Pages
                        | Told::Again
                        | Told::Initial
                        | Told::Resources
                        | Told::Document
                        | Told::Members => false,
                    };
                    if !plausible {
                        add(lane, group_of(number), "o".to_owned(), format!("{:?}: {wrong}", lane.told), false);
                    }
                }
            }
        }
        if lane.told == Told::Resources {
            for defect in Defect::ALL.into_iter().filter(|defect| defect.is_of_groups()) {
                add(lane, group_with(defect), "o".to_owned(), format!("List of groups: {defect:?}"), false);
            }
        }
    }
    worlds
}

/// Creates every world, runs this collector in each lane during the lies, and returns the outcome for the dependents.
/// Drops `machine` when the lies end: the collectors then wait most of the time.
pub async fn run<T>(stage: &Stage, collector: Collector, machine: T) -> anyhow::Result<Run> {
    let Stage { plane, client, .. } = stage;
    let begun = Instant::now();
    let (named, kinds) = (Wrong::singles_and_pairs(), Wrong::singles_and_positions());
    let worlds = worlds(&named, &kinds);
    let groups: HashSet<&str> = worlds.iter().map(|world| world.group.as_str()).collect();
    define(client, &groups).await?;
    let lanes = Lane::all();
    for lane in &lanes {
        load::namespace(client, &lane.namespace()).await?;
    }
    let other = plane.copy().await?;
    let below = position(client).await?;
    let uids = plant(client, &worlds).await?;
    let facts = Arc::new(Facts { named, kinds, uids, below });
    let lacking = plane.copy().await?;
    let lacks = lacking.client().await?;
    lose_owners(&lacks).await?;
    let mut keeping = JoinSet::new();
    keeping.spawn(keep_up(client.clone(), lacks.clone()));
    eprintln!("all worlds exist after {:.0?}", begun.elapsed());

    let (phase, phases) = watch::channel(Phase::Start);
    let (mut running, mut counts) = (Vec::new(), Vec::new());
    for &lane in &lanes {
        let directory = Directory::create()?;
        let proxy = Proxy::start(plane.client().await?, directory.path()).await?;
        let count = Counts::default();
        let others = [other.client().await?, lacks.clone()];
        let teller = Teller::new(lane, Arc::clone(&facts), others, phases.clone(), Arc::clone(&count));
        counts.push((lane, count));
        proxy.respond(Arc::new(move |parts, upstream| teller.respond(parts, upstream)));
        running.push((proxy, directory));
    }
    let collectors = try_join_all(running.iter().map(|(proxy, directory)| start(stage, collector, proxy, directory)));
    let _collectors = collectors.await?;
    eprintln!("all collectors have started after {:.0?}", begun.elapsed());

    phase.send_replace(Phase::Lies);
    let lies = Instant::now();
    let changes = async {
        let mut looks = interval(LIES_LAST / CHANGES);
        for change in 0..CHANGES {
            looks.tick().await;
            touch(client, &worlds, change).await?;
        }
        anyhow::Ok(())
    };
    let definitions = async {
        let mut looks = interval(LIES_LAST / DEFINITIONS_NEW);
        for number in 0..DEFINITIONS_NEW {
            looks.tick().await;
            // A new definition makes a collector read discovery.
            define(client, &HashSet::from([format!("new{number}.{DOMAIN}").as_str()])).await?;
        }
        anyhow::Ok(())
    };
    // On a slow machine, the time limit cuts off the last changes and definitions.
    if let Ok(done) = timeout(LIES_LAST_MAX, futures::future::try_join(changes, definitions)).await {
        done?;
    }
    tokio::time::sleep_until(lies + LIES_LAST).await;
    let asked = worlds.iter().filter(|world| !world.unasked);
    let quiet = || async { Ok(asked.clone().filter(|world| world.told(&counts) == 0).count()) };
    let rest = LIES_LAST_MAX.saturating_sub(lies.elapsed());
    // The outcome names the lies that were not told in time.
    let _told = until("the lies were told", rest, quiet, |&quiet| is_enough(quiet, worlds.len())).await;
    let untold: HashSet<&str> =
        asked.clone().filter(|world| world.told(&counts) == 0).map(|world| world.what.as_str()).collect();
    eprintln!("lies were told for {:.0?}", lies.elapsed());
    phase.send_replace(Phase::Truth);
    drop(machine);

    let outcomes = try_join_all(lanes.iter().map(|&lane| truth(client, lane, &worlds, &untold))).await?;
    eprintln!("the run has ended after {:.0?}", begun.elapsed());
    Ok(Run { outcomes })
}

/// Waits until the garbage of one lane is gone. Returns the outcome of its worlds.
async fn truth(client: &Client, lane: Lane, worlds: &[World], untold: &HashSet<&str>) -> anyhow::Result<Outcome> {
    let truth = Instant::now();
    let maps = configmaps(&lane.namespace());
    let garbage = || async {
        let names = names(&list(client, maps.as_str()).await?);
        anyhow::Ok(names.into_iter().filter(|name| name.contains("-garbage-")).collect::<Vec<_>>())
    };
    let mut looks = interval(LOOK_EVERY);
    let mut left = garbage().await?;
    while !left.is_empty() && truth.elapsed() < TRUTH_WITHIN {
        looks.tick().await;
        left = garbage().await?;
    }
    left.sort();
    let collected_in = truth.elapsed();
    let there = names(&list(client, maps.as_str()).await?);
    let of_this = || worlds.iter().filter(|world| world.lane == lane);
    let deleted = of_this().filter(|world| !there.contains(&world.named("dependent")));
    let deleted = deleted.map(|world| world.what.clone()).collect();
    let quiet = of_this().filter(|world| untold.contains(world.what.as_str())).map(|world| world.what.clone());
    Ok(Outcome { lane, worlds: of_this().count(), untold: quiet.collect(), deleted, left, collected_in })
}

/// Deletes every second owner of each [`Row`] from the other store.
async fn lose_owners(lacks: &Client) -> anyhow::Result<()> {
    let namespace = Lane { told: Told::Members, leaps: false }.namespace();
    for row in Row::ALL {
        for number in (1..members::OWNERS).step_by(2) {
            load::delete(lacks, &format!("{}/o-{number}", things(&group_in(row), &namespace)), "Background").await?;
        }
    }
    load::create(lacks, &configmaps("default"), &configmap("ahead", &[])).await?;
    Ok(())
}

/// Writes to the other store whenever its position is behind the position of the right one.
async fn keep_up(right: Client, other: Client) {
    let path = format!("{}/ahead", configmaps("default"));
    let mut number = 0_u64;
    let mut looks = interval(KEEP_UP_EVERY);
    loop {
        looks.tick().await;
        let stand = |text: anyhow::Result<String>| text.ok().and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
        let behind = stand(position(&right).await).saturating_sub(stand(position(&other).await));
        for _ in 0..behind.div_ceil(WRITES_AT_ONCE as u64) {
            let writes = (0..WRITES_AT_ONCE as u64).map(|at| {
                let patch = json!({ "data": { "number": (number + at).to_string() } });
                let (other, path) = (&other, &path);
                async move { send(other, Method::PATCH, path, Some(&patch)).await.is_ok() }
            });
            // The next round makes up for a failed write.
            futures::future::join_all(writes).await;
            number += WRITES_AT_ONCE as u64;
        }
    }
}

/// A running collector behind a proxy. Dropping it ends it.
enum Running {
    Ours(#[expect(dead_code, reason = "it runs while it is kept")] Service),
    Upstream(#[expect(dead_code, reason = "it runs while it is kept")] UpstreamCollector),
}

async fn start(stage: &Stage, collector: Collector, proxy: &Proxy, directory: &Directory) -> anyhow::Result<Running> {
    match collector {
        Collector::Ours => {
            let kubeconfig = proxy.kubeconfig().display().to_string();
            let flags = ["collect", "--kubeconfig", &kubeconfig];
            let service = Service::start(&stage.programs, "ownergraph", "collect", directory.path(), &flags)?;
            // The condition is not readiness: a collector that suspects another history of the store is not ready.
            let known = || async { Ok(service.get("/readyz?verbose").await.map(|(_, body)| body).unwrap_or_default()) };
            let listed = |body: &String| body.contains("collection: configmaps synced");
            until("the dependents are known", KNOWN_WITHIN, known, listed).await?;
            Ok(Running::Ours(service))
        }
        Collector::Upstream => {
            let options = CollectorOptions {
                requests_per_second: Some(1_000),
                kubeconfig: Some(proxy.kubeconfig().to_owned()),
                begins_unsynced: true,
                ..CollectorOptions::default()
            };
            Ok(Running::Upstream(stage.plane.start_upstream_collector(&options).await?))
        }
    }
}

impl World {
    /// Returns how often the world's lie was told. A lie about a whole kind counts for its one owner.
    fn told(&self, counts: &[(Lane, Counts)]) -> usize {
        let counts = counts.iter().find(|(lane, _)| *lane == self.lane).map(|(_, counts)| counts);
        let key = (self.group.clone(), self.owner.clone());
        counts.and_then(|counts| counts.lock().unwrap_or_else(PoisonError::into_inner).get(&key).copied()).unwrap_or(0)
    }

    /// Returns the name of the dependent or of the garbage.
    fn named(&self, what: &str) -> String {
        format!("{:04x}-{what}-{}-{}", self.place, self.group, self.owner)
    }
}

fn things(group: &str, namespace: &str) -> String {
    format!("/apis/{group}/v1/namespaces/{namespace}/{RESOURCE}")
}

/// Defines the kind `Thing` in each group, and waits until all are served.
async fn define(client: &Client, groups: &HashSet<&str>) -> anyhow::Result<()> {
    let definition = |group: &&str| {
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": { "name": format!("{RESOURCE}.{group}") },
            "spec": {
                "group": group, "scope": "Namespaced",
                "names": { "plural": RESOURCE, "singular": "thing", "kind": "Thing", "listKind": "ThingList" },
                "versions": [{ "name": "v1", "served": true, "storage": true,
                    "schema": { "openAPIV3Schema": { "type": "object" } } }],
            },
        })
    };
    create_all(client, DEFINITIONS, groups.iter().map(definition).collect()).await?;
    for group in groups {
        // While the API server prepares the storage, a new kind answers 404, and then 429.
        let path = format!("/apis/{group}/v1/{RESOURCE}");
        let ask = || async { Ok(matches!(get(client, path.as_str()).await, Ok(Some(_)))) };
        until("the kind is served", SERVED_WITHIN, ask, |served| *served).await?;
    }
    Ok(())
}

/// Creates the owners, their dependents, and beside each a dependent of an owner that never existed. Returns the uids
/// of the owners.
async fn plant(client: &Client, worlds: &[World]) -> anyhow::Result<HashMap<(String, String, String), String>> {
    let mut by_collection: BTreeMap<(String, String), Vec<&World>> = BTreeMap::new();
    for world in worlds {
        by_collection.entry((world.group.clone(), world.lane.namespace())).or_default().push(world);
    }
    let mut uids = HashMap::new();
    let mut dependents: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    let filled = stream::iter(by_collection).map(|((group, namespace), worlds)| async move {
        let owner = |world: &&World| json!({ "apiVersion": format!("{group}/v1"), "kind": "Thing", "metadata": { "name": world.owner } });
        let created = create_all(client, &things(&group, &namespace), worlds.iter().map(owner).collect()).await?;
        anyhow::Ok((group, namespace, worlds, created))
    });
    let filled: Vec<_> = filled.buffer_unordered(FILLED_AT_ONCE).try_collect().await?;
    for (group, namespace, worlds, created) in filled {
        let created: HashMap<&str, &Value> =
            created.iter().filter_map(|owner| Some((owner["metadata"]["name"].as_str()?, owner))).collect();
        for world in worlds {
            let owner = created.get(world.owner.as_str()).context("an owner has a name")?;
            let uid = owner["metadata"]["uid"].as_str().context("an owner has a uid")?;
            let mut gone = reference_to(owner);
            gone["name"] = json!(format!("gone-{}", world.owner.trim_start_matches("o-")));
            gone["uid"] = json!(uuid::Uuid::new_v4().to_string());
            let of_both = [("dependent", reference_to(owner)), ("garbage", gone)];
            let maps = of_both.map(|(what, reference)| configmap(&world.named(what), &[reference]));
            dependents.entry(namespace.clone()).or_default().extend(maps);
            uids.insert((group.clone(), namespace.clone(), world.owner.clone()), uid.to_owned());
        }
    }
    let all = dependents
        .into_iter()
        .map(|(namespace, maps)| async move { create_all(client, &configmaps(&namespace), maps).await });
    try_join_all(all).await?;
    Ok(uids)
}

/// Changes every dependent that still exists.
async fn touch(client: &Client, worlds: &[World], change: u32) -> anyhow::Result<()> {
    let patch = json!({ "metadata": { "annotations": { "lies.test/change": change.to_string() } } });
    for some in worlds.chunks(24) {
        let all = some.iter().map(|world| async {
            let path = format!("{}/{}", configmaps(&world.lane.namespace()), world.named("dependent"));
            // The outcome counts a wrongly deleted dependent.
            let _gone = send(client, Method::PATCH, &path, Some(&patch)).await;
        });
        futures::future::join_all(all).await;
    }
    Ok(())
}

async fn position(client: &Client) -> anyhow::Result<String> {
    let answer = send(client, Method::GET, "/api/v1/namespaces?limit=1", None).await?;
    Ok(answer["metadata"]["resourceVersion"].as_str().context("a list has a position")?.to_owned())
}

fn names(items: &[Value]) -> HashSet<String> {
    items.iter().filter_map(|item| item["metadata"]["name"].as_str().map(str::to_owned)).collect()
}
