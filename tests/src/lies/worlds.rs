//! Every world of the catalogue at once: one control plane, and one collector for each question that is answered wrongly.

use super::answer::{Form, Wrong};
use super::teller::{Counts, DOMAIN, Facts, Lane, Phase, RESOURCE, Setting, Teller, Told, group_of};
use crate::controlplane::{CollectorOptions, UpstreamCollector};
use crate::load::{self, configmap, configmaps, create_all, get, list, reference_to, send, until};
use crate::process::Directory;
use crate::proxy::Proxy;
use crate::service::Service;
use crate::stage::Stage;
use anyhow::Context;
use futures::future::try_join_all;
use http::Method;
use kube::Client;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, interval};

/// Lies are told for so long at least,
const LIES_LAST: Duration = Duration::from_secs(40);
/// and until each was told twice, but no longer than this.
const LIES_LAST_MAX: Duration = Duration::from_secs(150);
/// In this time all garbage is collected once the lies have ended. Where a store went back, the first minute is for reads alone.
const TRUTH_WITHIN: Duration = Duration::from_secs(180);
const SERVED_WITHIN: Duration = Duration::from_secs(60);
const KNOWN_WITHIN: Duration = Duration::from_secs(240);
/// Dependents are changed so often while the lies last, so that they are judged anew.
const CHANGES: u32 = 2;
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// Who collects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Collector {
    Ours,
    Upstream,
}

/// What the run of one collector came to.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub lane: Lane,
    pub worlds: usize,
    /// The worlds of which no lie was told. An owner that its collection shows is not asked for.
    pub untold: Vec<String>,
    /// The worlds whose dependent was deleted although its owner lives.
    pub deleted: Vec<String>,
    /// Dependents of owners that are gone, which are still there at the end.
    pub left: usize,
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
        self.outcomes.iter().map(|outcome| outcome.left).sum()
    }
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Outcome { lane, worlds, untold, deleted, left, collected_in } in &self.outcomes {
            let (name, deleted_number) = (lane.namespace(), deleted.len());
            write!(f, "{name:<14} {worlds:>5} combinations, {deleted_number:>5} wrong deletions, ")?;
            if *left > 0 {
                writeln!(f, "{left} dependents of absent owners left after {TRUTH_WITHIN:?}")?;
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
    what: String,
    /// The question for the owner is not expected: its collection shows it.
    unasked: bool,
}

fn worlds(named: &[Wrong], kinds: &[Wrong]) -> Vec<World> {
    let mut worlds = Vec::new();
    for lane in Lane::all().into_iter().filter(|lane| lane.told == Told::Names) {
        for setting in Setting::ALL {
            let told = named.iter().enumerate().filter(|(_, wrong)| lane.has(wrong));
            for (number, wrong) in told.filter(|(_, wrong)| !wrong.is_plausible(setting.form())) {
                let what = format!("{setting:?}, question for the owner: {wrong}");
                worlds.push(World {
                    lane,
                    group: setting.group(),
                    owner: format!("o-{number}"),
                    what,
                    unasked: setting == Setting::Open,
                });
            }
        }
    }
    for lane in Lane::all().into_iter().filter(|lane| lane.told != Told::Names) {
        for (number, wrong) in kinds.iter().enumerate().filter(|(_, wrong)| lane.has(wrong)) {
            // An honest answer to the question for the owner makes up for a collection that hides it.
            let plausible = match lane.told {
                Told::Events => wrong.is_plausible(Form::Events),
                Told::All => [Form::List, Form::Events].into_iter().any(|form| wrong.is_plausible(form)),
                Told::Names | Told::Pages | Told::Again | Told::Initial | Told::Resources => false,
            };
            if !plausible {
                let what = format!("{:?}: {wrong}", lane.told);
                worlds.push(World { lane, group: group_of(number), owner: "o".to_owned(), what, unasked: false });
            }
        }
    }
    worlds
}

/// Plants every world, lets a collector of this sort live through its lies, and says what became of the dependents.
pub async fn run(stage: &Stage, collector: Collector) -> anyhow::Result<Run> {
    let Stage { plane, client, .. } = stage;
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

    let (phase, phases) = watch::channel(Phase::Start);
    let (mut running, mut counts) = (Vec::new(), Vec::new());
    for &lane in &lanes {
        let directory = Directory::create()?;
        let proxy = Proxy::start(plane.client().await?, directory.path()).await?;
        let count = Counts::default();
        let teller = Teller::new(lane, Arc::clone(&facts), other.client().await?, phases.clone(), Arc::clone(&count));
        counts.push((lane, count));
        proxy.respond(Arc::new(move |parts, upstream| teller.respond(parts, upstream)));
        running.push((proxy, directory));
    }
    let collectors = try_join_all(running.iter().map(|(proxy, directory)| start(stage, collector, proxy, directory)));
    let _collectors = collectors.await?;

    phase.send_replace(Phase::Lies);
    let begun = Instant::now();
    let mut looks = interval(LIES_LAST / CHANGES);
    for change in 0..CHANGES {
        looks.tick().await;
        touch(client, &worlds, change).await?;
        // A definition that is new makes a collector ask for discovery.
        define(client, &HashSet::from([format!("new{change}.{DOMAIN}").as_str()])).await?;
    }
    tokio::time::sleep_until(begun + LIES_LAST).await;
    let asked = worlds.iter().filter(|world| !world.unasked);
    let rarely = || async { Ok(asked.clone().filter(|world| world.told(&counts) < 2).count()) };
    let rest = LIES_LAST_MAX.saturating_sub(begun.elapsed());
    // What was not told by then is in the outcome.
    let _told = until("every lie was told twice", rest, rarely, |rarely| *rarely == 0).await;
    let untold: HashSet<&str> =
        asked.clone().filter(|world| world.told(&counts) == 0).map(|world| world.what.as_str()).collect();
    eprintln!("lies were told for {:.0?}", begun.elapsed());
    phase.send_replace(Phase::Truth);
    let truth = Instant::now();

    let mut outcomes = Vec::new();
    for lane in lanes {
        let maps = configmaps(&lane.namespace());
        let garbage = || async {
            let names = names(&list(client, maps.as_str()).await?);
            Ok(names.iter().filter(|name| name.starts_with("garbage-")).count())
        };
        let within = TRUTH_WITHIN.saturating_sub(truth.elapsed());
        let gone = until("the garbage is gone", within, garbage, |left| *left == 0).await;
        let left = if gone.is_ok() { 0 } else { garbage().await? };
        let collected_in = truth.elapsed();
        outcomes.push(Outcome { lane, worlds: 0, untold: Vec::new(), deleted: Vec::new(), left, collected_in });
    }
    for outcome in &mut outcomes {
        let there = names(&list(client, configmaps(&outcome.lane.namespace())).await?);
        let of_this = || worlds.iter().filter(|world| world.lane == outcome.lane);
        let deleted = of_this().filter(|world| !there.contains(&world.dependent()));
        outcome.deleted = deleted.map(|world| world.what.clone()).collect();
        let quiet = of_this().filter(|world| untold.contains(world.what.as_str()));
        outcome.untold = quiet.map(|world| world.what.clone()).collect();
        outcome.worlds = of_this().count();
    }
    Ok(Run { outcomes })
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

    fn dependent(&self) -> String {
        format!("dependent-{}-{}", self.group, self.owner)
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
    for ((group, namespace), worlds) in by_collection {
        let owner = |world: &&World| json!({ "apiVersion": format!("{group}/v1"), "kind": "Thing", "metadata": { "name": world.owner } });
        let created = create_all(client, &things(&group, &namespace), worlds.iter().map(owner).collect()).await?;
        for owner in created {
            let name = owner["metadata"]["name"].as_str().context("an owner has a name")?;
            let uid = owner["metadata"]["uid"].as_str().context("an owner has a uid")?;
            let mut gone = reference_to(&owner);
            gone["name"] = json!(format!("gone-{}", name.trim_start_matches("o-")));
            gone["uid"] = json!(uuid::Uuid::new_v4().to_string());
            let of_both = [("dependent", reference_to(&owner)), ("garbage", gone)];
            let maps = of_both.map(|(what, reference)| configmap(&format!("{what}-{group}-{name}"), &[reference]));
            dependents.entry(namespace.clone()).or_default().extend(maps);
            uids.insert((group.clone(), namespace.clone(), name.to_owned()), uid.to_owned());
        }
    }
    for (namespace, maps) in dependents {
        create_all(client, &configmaps(&namespace), maps).await?;
    }
    Ok(uids)
}

/// Changes every dependent that is there.
async fn touch(client: &Client, worlds: &[World], change: u32) -> anyhow::Result<()> {
    let patch = json!({ "metadata": { "annotations": { "lies.test/change": change.to_string() } } });
    for some in worlds.chunks(24) {
        let all = some.iter().map(|world| async {
            let path = format!("{}/{}", configmaps(&world.lane.namespace()), world.dependent());
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
