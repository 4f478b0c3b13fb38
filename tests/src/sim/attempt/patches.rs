//! Patches of owner references and finalizers.

use super::{Ending, Form, RETRIES_MAX, Request, Run, Step, What, Written, end, refusal, seen};
use engine::object::{Object, OwnerReference, ResourceVersion, Uid};
use engine::work::Outcome;
use serde_json::{Value, json};

impl Run {
    fn patch(&self, form: Form, what: What, body: Value) -> Request {
        let decided_at = self.version().ok();
        Request::Patch { target: self.target().clone(), form, body, what, decided_at }
    }

    fn guarded(&self, version: Option<&ResourceVersion>, field: &str, list: Value) -> Value {
        let mut metadata = json!({ "uid": self.target().uid.to_string() });
        if let Some(version) = version {
            metadata["resourceVersion"] = Value::from(version.to_string());
        }
        metadata[field] = list;
        json!({ "metadata": metadata })
    }

    pub(super) async fn remove(
        &self,
        goes: &dyn Fn(&OwnerReference) -> bool,
        by_uid: Option<&[Uid]>,
    ) -> Step<Box<Ending>> {
        let known_version = self.version()?;
        let mut known = None;
        if self.reads_first() {
            let live = self.read_target().await?;
            if !live.facts.owners.iter().any(goes) {
                return Ok(seen(Outcome::Unchanged, live));
            }
            self.as_decided(live.clone())?;
            known = Some(live);
        }
        if let Some(uids) = by_uid {
            let list = uids.iter().map(|uid| json!({ "$patch": "delete", "uid": uid.to_string() })).collect();
            let body = self.guarded(None, "ownerReferences", Value::Array(list));
            match self.write(self.patch(Form::Strategic, What::References, body)).await? {
                Written::Accepted(object) => {
                    let moved = object.as_ref().is_none_or(|seen| seen.resource_version != known_version);
                    let outcome = if moved { Outcome::Done } else { Outcome::Unchanged };
                    return Ok(Box::new(Ending { observed: object, ..*end(outcome) }));
                }
                Written::Conflict(refused) => {
                    let live = self.after_conflict(&known_version, refused).await?;
                    return Ok(seen(Outcome::Conflict, live));
                }
                Written::Refused(refused) => {
                    let live = self.read_target().await?;
                    return Ok(Box::new(Ending { observed: Some(live), ..*refusal(refused) }));
                }
                Written::UnknownPatch => {}
            }
        }
        let keep = |owner: &OwnerReference| (!goes(owner)).then(|| written(owner, false));
        self.rewrite(known, false, goes, &keep).await
    }

    pub(super) async fn unblock(&self, entries: &[OwnerReference]) -> Step<Box<Ending>> {
        let live = self.read_target().await?;
        let blocks = |owner: &OwnerReference| owner.blocks() && entries.contains(owner);
        if !live.facts.owners.iter().any(blocks) {
            return Ok(seen(Outcome::Unchanged, live));
        }
        self.as_decided(live.clone())?;
        let change = |owner: &OwnerReference| Some(written(owner, blocks(owner)));
        self.rewrite(Some(live), true, &blocks, &change).await
    }

    async fn rewrite(
        &self,
        known: Option<Object>,
        rests_on_facts: bool,
        meant: &dyn Fn(&OwnerReference) -> bool,
        change: &dyn Fn(&OwnerReference) -> Option<Value>,
    ) -> Step<Box<Ending>> {
        let mut live = match known {
            Some(live) => live,
            None => self.read_target().await?,
        };
        for _ in 0..=RETRIES_MAX {
            if !live.facts.owners.iter().any(meant) {
                return Ok(seen(Outcome::Unchanged, live));
            }
            if rests_on_facts && live.facts.digest() != self.digest()? {
                return Ok(seen(Outcome::Conflict, live));
            }
            let list: Vec<Value> = live.facts.owners.iter().filter_map(change).collect();
            let list = if list.is_empty() { Value::Null } else { Value::Array(list) };
            let version = live.resource_version.clone();
            let body = self.guarded(Some(&version), "ownerReferences", list);
            live = match self.write(self.patch(Form::Merge, What::References, body)).await? {
                Written::Accepted(object) => return Ok(Box::new(Ending { observed: object, ..*end(Outcome::Done) })),
                Written::UnknownPatch => return Ok(end(Outcome::Transient)),
                Written::Conflict(refused) => self.after_conflict(&version, refused).await?,
                Written::Refused(refused) => {
                    let fresh = self.read_target().await?;
                    if fresh.resource_version == version {
                        return Ok(Box::new(Ending { observed: Some(fresh), ..*refusal(refused) }));
                    }
                    fresh
                }
            };
        }
        Ok(seen(Outcome::Conflict, live))
    }

    pub(super) async fn remove_finalizer(&self, finalizer: &str) -> Step<Box<Ending>> {
        let mut live = self.read_target().await?;
        for _ in 0..=RETRIES_MAX {
            if !live.facts.has_finalizer(finalizer) {
                return Ok(seen(Outcome::Unchanged, live));
            }
            if !live.facts.terminating {
                return Ok(seen(Outcome::Conflict, live));
            }
            let rest: Vec<String> = live
                .facts
                .finalizers
                .iter()
                .filter(|name| ***name != *finalizer)
                .map(|name| name.to_string())
                .collect();
            let rest = if rest.is_empty() { Value::Null } else { json!(rest) };
            let version = live.resource_version.clone();
            let body = self.guarded(Some(&version), "finalizers", rest);
            let what = What::Finalizer(finalizer.to_owned());
            let refused = match self.write(self.patch(Form::Merge, what, body)).await? {
                Written::Accepted(object) => {
                    let observed = object.filter(|object| object.resource_version != version);
                    return Ok(Box::new(Ending { observed, ..*end(Outcome::Done) }));
                }
                Written::Conflict(refused) => refused,
                Written::UnknownPatch => return Ok(end(Outcome::Transient)),
                Written::Refused(refused) => {
                    let live = self.read_target().await?;
                    return Ok(Box::new(Ending { observed: Some(live), ..*refusal(refused) }));
                }
            };
            live = self.after_conflict(&version, refused).await?;
        }
        Ok(seen(Outcome::Conflict, live))
    }
}

/// A reference as it goes back to the server.
fn written(owner: &OwnerReference, unblock: bool) -> Value {
    let mut value = json!({
        "apiVersion": &*owner.api_version, "kind": &*owner.kind, "name": &*owner.name, "uid": owner.uid.to_string(),
    });
    if let Some(controller) = owner.controller {
        value["controller"] = Value::from(controller);
    }
    if let Some(blocks) = owner.block_owner_deletion {
        value["blockOwnerDeletion"] = Value::from(blocks && !unblock);
    }
    value
}
