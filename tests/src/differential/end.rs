//! How a world ends: each object's existence, references, finalizers and deletion mark, with names in the place of uids.

use super::user::User;
use super::world::{Kind, Program, Slot, flag};
use anyhow::Context;
use http::Request;
use kube::Client;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Whose uid a reference carries.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Owner {
    /// This incarnation of the slot, counted from 0.
    Slot(Slot, usize),
    Nobody(String),
}

/// A reference as it stands in the end.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Held {
    pub owner: Owner,
    pub api_version: String,
    pub kind: String,
    pub name: String,
    pub blocking: Option<bool>,
}

impl Held {
    /// The same without the flag.
    pub fn unflagged(&self) -> Held {
        Held { blocking: None, ..self.clone() }
    }
}

/// An object that is there in the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// Which incarnation, counted from 0.
    pub incarnation: usize,
    pub terminating: bool,
    pub finalizers: Vec<String>,
    /// Sorted: a patch may change their order, which means nothing.
    pub references: Vec<Held>,
}

impl State {
    pub fn has_finalizer(&self, finalizer: &str) -> bool {
        self.finalizers.iter().any(|present| present == finalizer)
    }
}

/// A seed's end: what is there, by slot.
pub type End = BTreeMap<Slot, State>;

impl fmt::Display for Held {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Held { owner, api_version, kind, name, blocking } = self;
        match owner {
            Owner::Slot(slot, 0) => write!(formatter, "[{slot}]")?,
            Owner::Slot(slot, incarnation) => write!(formatter, "[{slot}]#{incarnation}")?,
            Owner::Nobody(uid) => write!(formatter, "{uid}")?,
        }
        write!(formatter, " as {api_version} {kind} {name} (blocking {})", flag(*blocking))
    }
}

impl fmt::Display for State {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let terminating = if self.terminating { "terminating" } else { "alive" };
        write!(formatter, "{terminating}, incarnation {}", self.incarnation)?;
        if !self.finalizers.is_empty() {
            write!(formatter, ", finalizers {}", self.finalizers.join(" "))?;
        }
        let owners: Vec<String> = self.references.iter().map(Held::to_string).collect();
        write!(formatter, ", owners: {}", if owners.is_empty() { "none".to_owned() } else { owners.join(", ") })
    }
}

/// All objects of the kinds that take part, as the server lists them now: metadata only.
#[derive(Clone, Debug, Default)]
pub(super) struct Snapshot {
    objects: BTreeMap<(Kind, Option<String>, String), Value>,
}

impl Snapshot {
    pub(super) async fn take(client: &Client) -> anyhow::Result<Snapshot> {
        let lists = Kind::ALL.map(|kind| async move { anyhow::Ok((kind, list(client, kind).await?)) });
        let mut objects = BTreeMap::new();
        for (kind, items) in futures::future::try_join_all(lists).await? {
            for item in items {
                let metadata = item["metadata"].clone();
                let namespace = metadata["namespace"].as_str().map(str::to_owned);
                let name = metadata["name"].as_str().unwrap_or_default().to_owned();
                objects.insert((kind, namespace, name), metadata);
            }
        }
        Ok(Snapshot { objects })
    }

    /// Changes with every write of any object, by whomever.
    pub(super) fn versions(&self) -> BTreeSet<(String, String)> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        self.objects.values().map(|metadata| (text(&metadata["uid"]), text(&metadata["resourceVersion"]))).collect()
    }

    pub(super) fn end_of(&self, user: &User<'_>) -> anyhow::Result<End> {
        let program: &Program = user.program;
        let mut end = End::new();
        for (slot, object) in program.objects.iter().enumerate() {
            let key = (object.kind, object.namespace.clone(), object.name.clone());
            let Some(metadata) = self.objects.get(&key) else { continue };
            let whose = |uid: &str| whose(user, uid);
            let uid = metadata["uid"].as_str().unwrap_or_default();
            let Owner::Slot(of, incarnation) = whose(uid) else {
                anyhow::bail!("seed {}: {object} has a uid that its user does not know", program.seed);
            };
            anyhow::ensure!(of == slot, "seed {}: {object} has the uid of [{of}]", program.seed);
            let array = |field: &str| metadata[field].as_array().cloned().unwrap_or_default();
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let mut references: Vec<Held> = array("ownerReferences")
                .iter()
                .map(|entry| Held {
                    owner: whose(entry["uid"].as_str().unwrap_or_default()),
                    api_version: text(&entry["apiVersion"]),
                    kind: text(&entry["kind"]),
                    name: text(&entry["name"]),
                    blocking: entry["blockOwnerDeletion"].as_bool(),
                })
                .collect();
            references.sort();
            let state = State {
                incarnation,
                terminating: !metadata["deletionTimestamp"].is_null(),
                finalizers: array("finalizers").iter().map(text).collect(),
                references,
            };
            end.insert(slot, state);
        }
        Ok(end)
    }
}

fn whose(user: &User<'_>, uid: &str) -> Owner {
    user.uids
        .iter()
        .find_map(|(slot, uids)| uids.iter().position(|known| known == uid).map(|at| Owner::Slot(*slot, at)))
        .unwrap_or_else(|| Owner::Nobody(uid.to_owned()))
}

async fn list(client: &Client, kind: Kind) -> anyhow::Result<Vec<Value>> {
    let path = kind.collection(None);
    let request = Request::get(&path)
        .header("accept", "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io")
        .body(Vec::new())?;
    let answer: Value = client.request(request).await.with_context(|| format!("GET {path}"))?;
    anyhow::ensure!(answer["kind"] == "PartialObjectMetadataList", "GET {path} is no list of metadata: {answer}");
    // An empty list is written as null.
    Ok(answer["items"].as_array().cloned().unwrap_or_default())
}
