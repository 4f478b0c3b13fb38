//! The user of one seed. It runs the program on an API server, and remembers the uids of the objects.

use super::end::{Change, Held, Owner, State, Writes};
use super::record::Event;
use super::world::Object;
use super::world::{Flaw, Kind, Operation, Policy, Program, Reference, Slot, Step, UNSERVED_VERSION};
use crate::load;
use http::Method;
use kube::Client;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// The finalizer that only the program removes.
pub(super) const FOREIGN_FINALIZER: &str = "example.com/held";

/// The maximum number of attempts to change an object while other clients write it.
const WRITE_TRIES_MAX: usize = 20;

pub(super) struct User<'a> {
    pub(super) program: &'a Program,
    client: Client,
    wait: Duration,
    /// The uids of each slot's incarnations, in order.
    uids: BTreeMap<Slot, Vec<String>>,
    pub(super) writes: Writes,
    /// The result of each operation, in order.
    pub(super) outcomes: Vec<String>,
}

/// The outcome of one request.
enum Answer {
    Done(Value),
    Refused(u16),
}

impl<'a> User<'a> {
    /// Returns a user that waits for this time after each operation, in addition to the pauses of the program.
    pub(super) fn new(program: &'a Program, client: Client, wait: Duration) -> User<'a> {
        User { program, client, wait, uids: BTreeMap::new(), writes: Writes::default(), outcomes: Vec::new() }
    }

    pub(super) async fn make_namespaces(&self) -> anyhow::Result<()> {
        for namespace in Program::namespaces(self.program.seed) {
            load::namespace(&self.client, &namespace).await?;
        }
        Ok(())
    }

    pub(super) async fn perform(&mut self, steps: &[Step]) -> anyhow::Result<()> {
        for step in steps {
            let outcome = self.operate(&step.operation).await?;
            self.outcomes.push(format!("{}: {outcome}", self.program.describe(&step.operation)));
            let pause = Duration::from_millis(step.pause_ms) + self.wait;
            if !pause.is_zero() {
                // The pause is part of the program: it decides how far the collector comes before the next operation.
                tokio::time::sleep(pause).await;
            }
        }
        Ok(())
    }

    async fn operate(&mut self, operation: &Operation) -> anyhow::Result<String> {
        match operation {
            Operation::Create { slot, references, finalizer } => self.create(*slot, references, *finalizer).await,
            Operation::Delete { slot, policy } => self.delete(*slot, *policy).await,
            Operation::AddReference { slot, reference } => {
                let entry = self.entry(reference);
                self.change(*slot, "ownerReferences", |list| {
                    if !list.iter().any(|present| present["uid"] == entry["uid"]) {
                        list.push(entry.clone());
                    }
                })
                .await
            }
            Operation::RemoveReferences { slot, owner } => {
                let uid = self.uid(*owner);
                self.change(*slot, "ownerReferences", |list| list.retain(|entry| entry["uid"] != uid.as_str())).await
            }
            Operation::SetBlocking { slot, owner, blocking } => {
                let uid = self.uid(*owner);
                self.change(*slot, "ownerReferences", |list| {
                    for entry in list.iter_mut().filter(|entry| entry["uid"] == uid.as_str()) {
                        set_blocking(entry, *blocking);
                    }
                })
                .await
            }
            Operation::AddFinalizer { slot } => {
                self.change(*slot, "finalizers", |list| {
                    if !list.iter().any(|finalizer| finalizer == FOREIGN_FINALIZER) {
                        list.push(json!(FOREIGN_FINALIZER));
                    }
                })
                .await
            }
            Operation::RemoveFinalizer { slot } => {
                self.change(*slot, "finalizers", |list| list.retain(|finalizer| finalizer != FOREIGN_FINALIZER)).await
            }
        }
    }

    async fn create(&mut self, slot: Slot, references: &[Reference], finalizer: bool) -> anyhow::Result<String> {
        let object = &self.program.objects[slot];
        let mut body = body_of(object.kind);
        let entries: Vec<Value> = references.iter().map(|reference| self.entry(reference)).collect();
        body["apiVersion"] = json!(object.kind.api_version());
        body["kind"] = json!(object.kind.name());
        body["metadata"] = json!({ "name": object.name, "ownerReferences": entries });
        if finalizer {
            body["metadata"]["finalizers"] = json!([FOREIGN_FINALIZER]);
        }
        let collection = object.kind.collection(object.namespace.as_deref());
        match self.request(Method::POST, &collection, Some(&body)).await? {
            Answer::Done(created) => {
                self.writes.revisions.extend(revision(&created));
                let uid = created["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
                self.uids.entry(slot).or_default().push(uid);
                Ok("done".to_owned())
            }
            Answer::Refused(code) => Ok(code.to_string()),
        }
    }

    /// Returns the incarnation with this uid.
    pub(super) fn whose(&self, uid: &str) -> Owner {
        let incarnation = |uids: &Vec<String>| uids.iter().position(|known| known == uid);
        self.uids
            .iter()
            .find_map(|(slot, uids)| incarnation(uids).map(|at| Owner::Slot(*slot, at)))
            .unwrap_or_else(|| Owner::Unknown(uid.to_owned()))
    }

    async fn delete(&mut self, slot: Slot, policy: Option<Policy>) -> anyhow::Result<String> {
        let mut options = json!({ "kind": "DeleteOptions", "apiVersion": "v1" });
        if let Some(policy) = policy {
            options["propagationPolicy"] = json!(format!("{policy:?}"));
        }
        let path = self.program.objects[slot].path();
        Ok(match self.request(Method::DELETE, &path, Some(&options)).await? {
            Answer::Done(left) => {
                let at = (slot, self.uids.get(&slot).map_or(0, Vec::len).saturating_sub(1));
                self.writes.deleted.insert(at);
                if left["metadata"]["finalizers"].is_array() {
                    self.writes.revisions.extend(revision(&left));
                } else {
                    self.writes.removed.insert(at);
                }
                "done".to_owned()
            }
            Answer::Refused(code) => code.to_string(),
        })
    }

    /// Reads a list of the metadata, edits it, and writes it if the edit changed it. Starts again if another client
    /// wrote in between.
    async fn change(&mut self, slot: Slot, field: &str, edit: impl Fn(&mut Vec<Value>)) -> anyhow::Result<String> {
        let path = self.program.objects[slot].path();
        for _ in 0..WRITE_TRIES_MAX {
            let object = match self.request(Method::GET, &path, None).await? {
                Answer::Done(object) => object,
                Answer::Refused(code) => return Ok(format!("read {code}")),
            };
            let before = object["metadata"][field].as_array().cloned().unwrap_or_default();
            let mut after = before.clone();
            edit(&mut after);
            if after == before {
                return Ok("nothing to change".to_owned());
            }
            let mut metadata = Map::new();
            metadata.insert("resourceVersion".to_owned(), object["metadata"]["resourceVersion"].clone());
            metadata.insert(field.to_owned(), if after.is_empty() { Value::Null } else { json!(after) });
            match self.request(Method::PATCH, &path, Some(&json!({ "metadata": metadata }))).await? {
                Answer::Done(changed) => {
                    self.writes.revisions.extend(revision(&changed));
                    return Ok("done".to_owned());
                }
                Answer::Refused(409) => {}
                Answer::Refused(code) => return Ok(code.to_string()),
            }
        }
        Ok("409 again and again".to_owned())
    }

    async fn request(&self, method: Method, path: &str, body: Option<&Value>) -> anyhow::Result<Answer> {
        match load::send(&self.client, method, path, body).await {
            Ok(value) => Ok(Answer::Done(value)),
            Err(error) => match error.downcast_ref::<kube::Error>() {
                Some(kube::Error::Api(status)) if (400..500).contains(&status.code) => Ok(Answer::Refused(status.code)),
                _ => Err(error),
            },
        }
    }

    /// Returns the latest uid of a slot.
    fn uid(&self, slot: Slot) -> String {
        self.uids.get(&slot).and_then(|uids| uids.last().cloned()).unwrap_or_else(|| format!("never-created-{slot}"))
    }

    fn entry(&self, reference: &Reference) -> Value {
        let owner = &self.program.objects[reference.owner];
        let (seed, uid) = (self.program.seed, self.uid(reference.owner));
        let (kind, api_version) = (owner.kind.name(), owner.kind.api_version());
        let unserved = match owner.kind.group() {
            "" => UNSERVED_VERSION.to_owned(),
            group => format!("{group}/{UNSERVED_VERSION}"),
        };
        let (api_version, kind, name, uid) = match reference.flaw {
            Flaw::None => (api_version, kind, owner.name.clone(), uid),
            Flaw::WrongName => (api_version, kind, format!("{}-wrong", owner.name), uid),
            Flaw::WrongKind(wrong) => (wrong.api_version(), wrong.name(), owner.name.clone(), uid),
            Flaw::UnknownUid => (api_version, kind, owner.name.clone(), format!("unknown-{seed}-{}", reference.owner)),
            Flaw::UnknownKind => (
                "unknown.example.com/v1",
                "Unknown",
                owner.name.clone(),
                format!("unknown-kind-{seed}-{}", reference.owner),
            ),
            Flaw::UnservedVersion => (unserved.as_str(), kind, owner.name.clone(), uid),
        };
        let mut entry = json!({ "apiVersion": api_version, "kind": kind, "name": name, "uid": uid });
        set_blocking(&mut entry, reference.blocking);
        entry
    }
}

fn revision(object: &Value) -> Option<u64> {
    object["metadata"]["resourceVersion"].as_str()?.parse().ok()
}

fn set_blocking(entry: &mut Value, blocking: Option<bool>) {
    let Some(entry) = entry.as_object_mut() else { return };
    match blocking {
        Some(blocking) => entry.insert("blockOwnerDeletion".to_owned(), json!(blocking)),
        None => entry.remove("blockOwnerDeletion"),
    };
}

/// Returns the smallest body that the server accepts. No Pod is ever scheduled, so a deleted Pod goes at once.
fn body_of(kind: Kind) -> Value {
    let pod = json!({ "containers": [{ "name": "only", "image": "none" }] });
    match kind {
        Kind::Pod => json!({ "spec": pod }),
        Kind::ReplicationController => json!({ "spec": {
            "replicas": 0, "selector": { "app": "none" },
            "template": { "metadata": { "labels": { "app": "none" } }, "spec": pod },
        } }),
        Kind::PriorityClass => json!({ "value": 1 }),
        Kind::ConfigMap | Kind::Secret | Kind::ServiceAccount | Kind::Widget | Kind::ClusterRole | Kind::Realm => {
            json!({})
        }
    }
}

/// Returns the changes of the objects of one user's program, in order.
pub(super) fn changes(user: &User<'_>, events: &[Event]) -> anyhow::Result<Vec<Change>> {
    let program = user.program;
    let mut changes = Vec::new();
    for event in events {
        let field = |name: &str| event.metadata[name].as_str();
        let is_at = |object: &Object| {
            (object.kind, object.namespace.as_deref(), Some(object.name.as_str()))
                == (event.kind, field("namespace"), field("name"))
        };
        let Some(slot) = program.objects.iter().position(is_at) else { continue };
        let uid = field("uid").unwrap_or_default();
        let Owner::Slot(of, incarnation) = user.whose(uid) else {
            anyhow::bail!("seed {}: [{slot}] has a uid that its user does not know", program.seed);
        };
        anyhow::ensure!(of == slot, "seed {}: [{slot}] has the uid of [{of}]", program.seed);
        let state = (!event.gone).then(|| state(user, incarnation, &event.metadata));
        changes.push(Change { revision: event.revision, slot, state });
    }
    Ok(changes)
}

fn state(user: &User<'_>, incarnation: usize, metadata: &Value) -> State {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let list = |field: &str| metadata[field].as_array().into_iter().flatten();
    let mut references: Vec<Held> = list("ownerReferences")
        .map(|entry| Held {
            owner: user.whose(entry["uid"].as_str().unwrap_or_default()),
            api_version: text(&entry["apiVersion"]),
            kind: text(&entry["kind"]),
            name: text(&entry["name"]),
            blocking: entry["blockOwnerDeletion"].as_bool(),
        })
        .collect();
    references.sort();
    State {
        incarnation,
        terminating: !metadata["deletionTimestamp"].is_null(),
        finalizers: list("finalizers").map(text).collect(),
        references,
    }
}
