//! Every world of the catalogue at once: one control plane, and one collector for each question that is answered wrongly.

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

/// Lies are told for so long at least: what is believed is asked for more than once, and a collection that stays behind the others is
/// looked at for most of a minute.
const LIES_LAST: Duration = Duration::from_secs(60);
/// They are told until each was told, but no longer than this.
const LIES_LAST_MAX: Duration = Duration::from_secs(100);
/// In this time all garbage is collected once the lies have ended: where a store went back, the first minute is for reads alone, and what can
/// only be read is read twice with two minutes between.
const TRUTH_WITHIN: Duration = Duration::from_secs(180);
const SERVED_WITHIN: Duration = Duration::from_secs(60);
const KNOWN_WITHIN: Duration = Duration::from_secs(240);
/// Dependents are changed so often while the lies last, so that they are judged again.
const CHANGES: u32 = 2;
/// Discovery is asked for again so often meanwhile.
const DEFINITIONS_NEW: u32 = 12;
/// Collections that are filled at a time.
const FILLED_AT_ONCE: usize = 8;
/// Writes at a time that keep one store where another is.
const WRITES_AT_ONCE: usize = 16;
const LOOK_EVERY: Duration = Duration::from_secs(1);
const KEEP_UP_EVERY: Duration = Duration::from_millis(100);
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// The collector.
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
    /// The worlds of which no lie was told. An owner that its collection shows is not asked for.
    pub untold: Vec<String>,
    /// The worlds whose dependent was deleted although its owner lives.
    pub deleted: Vec<String>,
    /// Dependents of owners that are gone, which are still there at the end.
    pub left: Vec<String>,
    /// From the end of the lies until all of them were gone.
    pub collected_in: Duration,
}

/// All outcomes.
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

    /// Worlds that showed nothing, because no lie was told.
    pub fn untold(&self) -> usize {
        self.outcomes.iter().map(|outcome| outcome.untold.len()).sum()
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

/// One owner that lives, in the world of one combination.
struct World {
    lane: Lane,
    group: String,
    /// The owner's name; its dependent and the garbage beside it have names that end with it.
    owner: String,
    /// Its dependent and the garbage beside it stand at a place in their collection that does not follow from the lie.
    place: u16,
    what: String,
    /// The question for the owner is not expected: its collection shows it.
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
                    // Where there is a minute or two between two questions, pairs would take too long.
                    let fits = |wrong: &Wrong| setting != Setting::OnlyGet || singles.contains(wrong);
                    let told = named.iter().enumerate().filter(|(_, wrong)| lane.has(wrong) && fits(wrong));
                    for (number, wrong) in told.filter(|(_, wrong)| !wrong.is_plausible(setting.form())) {
                        let what = format!("{setting:?}, question for the owner: {wrong}");
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
                    // An honest answer to the question for the owner makes up for a collection that hides it.
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

/// Plants every world, lets a collector of this sort live through its lies, and says what became of the dependents.
pub async fn run(stage: &Stage, collector: Collector) -> anyhow::Result<Run> {
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
    eprintln!("everything is there after {:.0?}", begun.elapsed());

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
    eprintln!("collectors are there after {:.0?}", begun.elapsed());

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
            // A definition that is new makes a collector ask for discovery.
            define(client, &HashSet::from([format!("new{number}.{DOMAIN}").as_str()])).await?;
        }
        anyhow::Ok(())
    };
    // A machine that is too busy for all of them leaves some out.
    if let Ok(done) = timeout(LIES_LAST_MAX, futures::future::try_join(changes, definitions)).await {
        done?;
    }
    tokio::time::sleep_until(lies + LIES_LAST).await;
    let asked = worlds.iter().filter(|world| !world.unasked);
    let quiet = || async { Ok(asked.clone().filter(|world| world.told(&counts) == 0).count()) };
    let rest = LIES_LAST_MAX.saturating_sub(lies.elapsed());
    // What was not told by then is in the outcome.
    let _told = until("every lie was told", rest, quiet, |quiet| *quiet == 0).await;
    let untold: HashSet<&str> =
        asked.clone().filter(|world| world.told(&counts) == 0).map(|world| world.what.as_str()).collect();
    eprintln!("lies were told for {:.0?}", lies.elapsed());
    phase.send_replace(Phase::Truth);

    let outcomes = try_join_all(lanes.iter().map(|&lane| truth(client, lane, &worlds, &untold))).await?;
    eprintln!("all is over after {:.0?}", begun.elapsed());
    Ok(Run { outcomes })
}

/// The outcome of one collector's worlds once the lies have ended.
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

/// The other store lacks every second owner of each [`Row`].
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

/// Writes to the other store whenever it stands behind the right one.
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
            // One that fails is made up for in the next round.
            futures::future::join_all(writes).await;
            number += WRITES_AT_ONCE as u64;
        }
    }
}

/// A collector behind a proxy, while it lives.
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
            // Not ready: a collector that is told of another history of the store stops, and says so.
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
    /// How often its lie was told. A lie about a whole kind is told without the owner's name, or about it.
    fn told(&self, counts: &[(Lane, Counts)]) -> usize {
        let counts = counts.iter().find(|(lane, _)| *lane == self.lane).map(|(_, counts)| counts);
        let key = (self.group.clone(), self.owner.clone());
        counts.and_then(|counts| counts.lock().unwrap_or_else(PoisonError::into_inner).get(&key).copied()).unwrap_or(0)
    }

    /// The name of its dependent, or of its garbage.
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
        // 404 at first, and 429 while its storage begins.
        let path = format!("/apis/{group}/v1/{RESOURCE}");
        let ask = || async { Ok(matches!(get(client, path.as_str()).await, Ok(Some(_)))) };
        until("the kind is served", SERVED_WITHIN, ask, |served| *served).await?;
    }
    Ok(())
}

/// Creates owners, their dependents, and beside each a dependent of an owner that never was. Gives the owners' uids.
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

/// Changes every dependent that is there.
async fn touch(client: &Client, worlds: &[World], change: u32) -> anyhow::Result<()> {
    let patch = json!({ "metadata": { "annotations": { "lies.test/change": change.to_string() } } });
    for some in worlds.chunks(24) {
        let all = some.iter().map(|world| async {
            let path = format!("{}/{}", configmaps(&world.lane.namespace()), world.named("dependent"));
            // One that was deleted wrongly is counted at the end.
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
