//! Users that create families, delete their owners, and check the results.

use super::oracle::{Fate, Oracle, Policy};
use crate::load::{configmaps, create, create_all, delete, list, reference_to, send};
use crate::random::Random;
use anyhow::{Context, ensure};
use http::Method;
use kube::Client;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;
use tokio::time::{Duration, Instant, interval};

/// The label of the objects of a family.
pub(super) const FAMILY: &str = "family";
/// The namespaces of the families. There are several, so that each cascade has neighbours.
pub(super) const NAMESPACES: [&str; 4] = ["chaos-a", "chaos-b", "chaos-c", "chaos-d"];
/// The number of objects in work from which users pause.
const PENDING_MAX: usize = 1_500;
/// The number of settled families that a user keeps, so that late writes to them are noticed.
const REMAINS_MAX: usize = 6;
/// The interval of checks for room for another family, and for settled families.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The oracle, which users and watches share.
#[derive(Clone, Debug, Default)]
pub(super) struct Shared(Arc<Mutex<Oracle>>);

impl Shared {
    pub(super) fn oracle(&self) -> MutexGuard<'_, Oracle> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One user, with its own random numbers.
pub(super) struct User {
    pub(super) client: Client,
    pub(super) shared: Shared,
    pub(super) draw: Random,
    /// The number of the first family, and the step to the next one. No two users share a number.
    pub(super) first: usize,
    pub(super) step: usize,
}

struct Family {
    number: usize,
    namespace: &'static str,
    policy: Policy,
    owner: Value,
    late: usize,
}

impl User {
    /// Creates and dooms families until `stop`, and then returns without a wait.
    pub(super) async fn run(mut self, stop: watch::Receiver<bool>) -> anyhow::Result<Vec<Remains>> {
        let mut number = self.first;
        let mut doomed: VecDeque<Remains> = VecDeque::new();
        let mut settled: VecDeque<Remains> = VecDeque::new();
        let mut looks = interval(LOOK_EVERY);
        while !*stop.borrow() {
            let pending = self.shared.oracle().pending();
            if pending < PENDING_MAX {
                let family = self.make(number).await?;
                doomed.push_back(Remains { number, namespace: family.namespace });
                self.doom(family).await?;
                number += self.step;
            } else {
                looks.tick().await;
            }
            let oracle = self.shared.clone();
            let (done, waiting) = doomed.into_iter().partition(|family| oracle.oracle().is_settled(family.number));
            doomed = waiting;
            let done: VecDeque<Remains> = done;
            settled.extend(done);
            while settled.len() > REMAINS_MAX
                && let Some(oldest) = settled.pop_front()
            {
                oldest.check(&self.client, &self.shared).await?;
                oldest.clear(&self.client, &self.shared).await?;
            }
        }
        settled.extend(doomed);
        Ok(settled.into())
    }

    async fn make(&mut self, number: usize) -> anyhow::Result<Family> {
        let namespace = self.draw.pick(&NAMESPACES).copied().context("there are namespaces")?;
        let policy = self.draw.pick(&Policy::ALL).copied().context("there are policies")?;
        let maps = configmaps(namespace);
        let prefix = format!("{}-{number}", policy.as_str().to_lowercase());
        let object = |kind: &str, name: String, owners: &[&Value]| labelled(kind, number, &name, owners);
        let owner = create(&self.client, &maps, &object("ConfigMap", format!("{prefix}-owner"), &[])).await?;
        let keeper = create(&self.client, &maps, &object("ConfigMap", format!("{prefix}-keeper"), &[])).await?;
        {
            let mut oracle = self.shared.oracle();
            oracle.family(number, policy, uid(&owner), &name(&owner));
            oracle.bystander(number, uid(&keeper), &name(&keeper), BTreeSet::new());
        }
        let children = 20 + self.draw.index(131);
        let shared = self.draw.index(children / 5 + 1);
        let make_child = |child: usize| {
            let owners: &[&Value] = if child < shared { &[&owner, &keeper] } else { &[&owner] };
            object("ConfigMap", format!("{prefix}-child-{child}"), owners)
        };
        let made = create_all(&self.client, &maps, (0..children).map(make_child).collect()).await?;
        let goes = policy != Policy::Orphan;
        let mut survives = BTreeMap::new();
        {
            let mut oracle = self.shared.oracle();
            for child in &made {
                let is_shared = child["metadata"]["ownerReferences"].as_array().is_some_and(|owners| owners.len() > 1);
                let fate = match (is_shared, goes) {
                    (true, _) => Fate::Stays(BTreeSet::from([uid(&keeper)])),
                    (false, false) => Fate::Stays(BTreeSet::new()),
                    (false, true) => Fate::Goes,
                };
                survives.insert(uid(child), fate != Fate::Goes);
                oracle.member(number, uid(child), &name(child), fate, true);
            }
        }
        let grandchildren = made.iter().filter(|_| self.draw.percent(15));
        let grandchildren = grandchildren.map(|child| object("Secret", format!("{}-secret", name(child)), &[child]));
        let secrets = format!("/api/v1/namespaces/{namespace}/secrets");
        let grandchildren = create_all(&self.client, &secrets, grandchildren.collect()).await?;
        let mut oracle = self.shared.oracle();
        for grandchild in &grandchildren {
            let parent = grandchild["metadata"]["ownerReferences"][0]["uid"].as_str().unwrap_or_default().to_owned();
            if survives.get(&parent) == Some(&true) {
                oracle.bystander(number, uid(grandchild), &name(grandchild), BTreeSet::from([parent]));
            } else {
                oracle.member(number, uid(grandchild), &name(grandchild), Fate::Goes, false);
            }
        }
        let late = if policy == Policy::Background { self.draw.index(4) } else { 0 };
        Ok(Family { number, namespace, policy, owner, late })
    }

    /// Deletes the owner. Dependents that appear after a background deletion go too.
    async fn doom(&self, family: Family) -> anyhow::Result<()> {
        let Family { number, namespace, policy, owner, late } = family;
        let maps = configmaps(namespace);
        self.shared.oracle().doom(number, Instant::now());
        delete(&self.client, &format!("{maps}/{}", name(&owner)), policy.as_str()).await?;
        for late in 0..late {
            let object = labelled("ConfigMap", number, &format!("{}-late-{late}", name(&owner)), &[&owner]);
            let object = create(&self.client, &maps, &object).await?;
            self.shared.oracle().member(number, uid(&object), &name(&object), Fate::Goes, false);
        }
        Ok(())
    }
}

/// A doomed family, for a last check of its objects.
#[derive(Clone, Debug)]
pub(super) struct Remains {
    pub(super) number: usize,
    namespace: &'static str,
}

impl Remains {
    fn collections(&self) -> [String; 2] {
        [configmaps(self.namespace), format!("/api/v1/namespaces/{}/secrets", self.namespace)]
    }

    /// Returns whether exactly the expected objects exist, in the expected state.
    pub(super) async fn check(&self, client: &Client, shared: &Shared) -> anyhow::Result<()> {
        let wanted = shared.oracle().remains(self.number);
        let mut found = BTreeMap::new();
        for collection in self.collections() {
            for object in list(client, format!("{collection}?labelSelector={FAMILY}%3D{}", self.number)).await? {
                let content = &object["data"];
                let same = content.is_null() == collection.ends_with("secrets");
                ensure!(same && (content.is_null() || *content == data(&name(&object))), "changed: {object}");
                found.insert(name(&object), (uid(&object), owners(&object)));
            }
        }
        ensure!(found == wanted, "family {} has left {found:?}, and should have left {wanted:?}", self.number);
        Ok(())
    }

    async fn clear(&self, client: &Client, shared: &Shared) -> anyhow::Result<()> {
        shared.oracle().clear(self.number);
        for collection in self.collections() {
            let path = format!("{collection}?labelSelector={FAMILY}%3D{}", self.number);
            let options = json!({ "kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background" });
            send(client, Method::DELETE, &path, Some(&options)).await?;
        }
        Ok(())
    }
}

fn labelled(kind: &str, family: usize, name: &str, owners: &[&Value]) -> Value {
    let owners: Vec<Value> = owners.iter().map(|owner| reference_to(owner)).collect();
    let mut object = json!({
        "apiVersion": "v1", "kind": kind,
        "metadata": { "name": name, "labels": { FAMILY: family.to_string() }, "ownerReferences": owners },
    });
    if kind == "ConfigMap" {
        object["data"] = data(name);
    }
    object
}

/// The content of an object. It shows that another object with the same name has replaced the object.
fn data(name: &str) -> Value {
    json!({ "is": name })
}

pub(super) fn uid(object: &Value) -> String {
    object["metadata"]["uid"].as_str().unwrap_or_default().to_owned()
}

pub(super) fn name(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap_or_default().to_owned()
}

/// Returns the uids of an object's owners.
pub(super) fn owners(object: &Value) -> BTreeSet<String> {
    let references = object["metadata"]["ownerReferences"].as_array().into_iter().flatten();
    references.filter_map(|reference| reference["uid"].as_str().map(str::to_owned)).collect()
}
