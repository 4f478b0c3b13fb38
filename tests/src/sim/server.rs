//! The API server of a world: the model of the sandbox, and the record of its changes.

use super::attempt::{Answer, Refused, Request, live};
use super::kinds::{KINDS, NAMESPACES, PODS, by_resource, observe, stored};
use super::law::{self, Judge};
use super::perils::Member;
use super::truth::{Actor, Life, Moment, Truth};
use crate::random::Random;
use engine::attempt::Patch as Change;
use engine::object::{Facts, Name, Object, ObjectRef, OwnerReference, ResourceVersion, Uid};
use engine::work::PropagationPolicy;
use executor_service::{PatchForm, patch_body};
use sandbox::model::{ApiError, DeleteOptions, Deleted, Model, Now, ObjectKey, Patch, Policy, Reason, WriteOptions};
use serde_json::{Value, json};

/// The reading of the model's clock at the origin, in milliseconds.
const ORIGIN_MS: u64 = 1_700_000_000_000;
/// The finalizer that keeps a definition until a user removes it, so that its last state is seen.
pub(super) const DEFINITION_FINALIZER: &str = "example.com/definition";

#[derive(Debug)]
pub(super) struct Server {
    pub(super) model: Model,
    pub(super) truth: Truth,
    /// The number of writes that only a lost history permits.
    pub(super) late_writes: u64,
    /// The answers per thousand that are lists with a version that is no position.
    pub(super) foreign: u64,
    /// By kind: the kind has its own backend, for which no member of the main API server answers.
    pub(super) apart: Vec<bool>,
    /// The member that answers some of the reads.
    pub(super) member: Option<Member>,
    /// The objects from which the collector removed references, with these references, since the last call of
    /// `follow_perils`.
    pub(super) stripped: Vec<(Uid, Vec<OwnerReference>)>,
    fate: Random,
}

pub(super) fn at(now: u64) -> Now {
    Now(ORIGIN_MS + now / 1_000_000)
}

impl Server {
    pub(super) fn new(seed: u64) -> Server {
        let mut server = Server {
            model: Model::new(seed, at(0)),
            truth: Truth::new(),
            late_writes: 0,
            foreign: 0,
            apart: vec![false; KINDS.len()],
            member: None,
            stripped: Vec::new(),
            fate: Random::new(seed, 11),
        };
        for (kind, of) in KINDS.iter().enumerate() {
            if of.custom {
                // The model refuses no first definition.
                let _created = server.define(0, kind);
            }
        }
        server.commit(0, Actor::User);
        debug_assert!(NAMESPACES.iter().all(|name| sandbox::model::FIRST_NAMESPACES.contains(name)));
        server
    }

    /// Runs the model's own controllers, and records the changes.
    pub(super) fn commit(&mut self, now: u64, actor: Actor) {
        self.truth.follow(&self.model, now, actor);
        self.model.settle(at(now));
        self.truth.follow(&self.model, now, Actor::User);
    }

    pub(super) fn define(&mut self, now: u64, kind: usize) -> bool {
        let of = KINDS[kind];
        let scope = if of.namespaced { "Namespaced" } else { "Cluster" };
        let definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": { "name": format!("{}.{}", of.plural, of.group), "finalizers": [DEFINITION_FINALIZER] },
            "spec": {
                "group": of.group, "scope": scope, "names": { "plural": of.plural, "kind": of.kind },
                "versions": [{ "name": of.version, "served": true, "storage": true }],
            },
        });
        let Value::Object(definition) = definition else { return false };
        let resource = KINDS[super::kinds::DEFINITIONS].resource();
        self.model.create(at(now), &resource, "", definition, &WriteOptions::default()).is_ok()
    }

    pub(super) fn create(&mut self, now: u64, kind: usize, namespace: &str, metadata: Value) -> Result<(), ApiError> {
        let of = KINDS[kind];
        let mut object = json!({ "apiVersion": of.api_version(), "kind": of.kind, "metadata": metadata });
        if kind == PODS {
            // Only a pod on a node has a grace period.
            object["spec"] = json!({ "nodeName": "node" });
        }
        let Value::Object(object) = object else { return Ok(()) };
        self.model.create(at(now), &of.resource(), namespace, object, &WriteOptions::default()).map(drop)
    }

    pub(super) fn merge(&mut self, now: u64, life: &Life, patch: Value) -> Result<(), ApiError> {
        let resource = KINDS[life.kind].resource();
        let patch = Patch::Merge(patch);
        self.model.patch(at(now), &resource, &key(&life.object), &patch, &WriteOptions::default()).map(drop)
    }

    pub(super) fn delete(&mut self, now: u64, life: &Life, policy: Option<Policy>) -> Result<(), ApiError> {
        let resource = KINDS[life.kind].resource();
        let options = DeleteOptions { propagation_policy: policy, ..DeleteOptions::default() };
        self.model.delete(at(now), &resource, &key(&life.object), &options).map(drop)
    }

    /// Deletes a pod after its grace period. A finalizer may still keep it.
    pub(super) fn end_pod(&mut self, now: u64, life: &Life) -> bool {
        let options = DeleteOptions {
            uid: Some(life.object.uid.to_string()),
            grace_period_seconds: Some(0),
            ..DeleteOptions::default()
        };
        self.model.delete(at(now), &KINDS[life.kind].resource(), &key(&life.object), &options).is_ok()
    }

    /// Answers a request of the collector that left at `sent`. `Err` is a violation of the law.
    pub(super) fn serve(&mut self, now: u64, sent: u64, request: &Request, judge: Judge<'_>) -> Result<Answer, String> {
        match request {
            Request::Get(object) => {
                let kind = by_resource(&object.group, &object.resource).unwrap_or_default();
                let found = self.reader(now, kind, u64::MAX).get(&resource(object), &object.namespace, &object.name);
                Ok(found.map_or_else(refuse, |found| live(&found).map_or(Answer::Nothing, Answer::Object)))
            }
            Request::Delete { target, version, policy, checked } => {
                let sent = Moment { now: sent, checked_since: *checked };
                self.collect(now, sent, target, version, *policy, judge)
            }
            Request::Patch { .. } => self.change(now, Moment::unchecked(sent), request, judge),
        }
    }

    /// Returns the store that answers a read or a probe about a kind. The caller has the main store up to `known`.
    pub(super) fn reader(&mut self, now: u64, kind: usize, known: u64) -> &Model {
        let may = |member: &Member| now < member.until && member.is_behind(known);
        match &self.member {
            Some(member) if may(member) && !self.apart[kind] && self.fate.percent(member.share) => {
                self.truth.stale_reads = Some((member.of, member.until));
                &member.model
            }
            Some(_) | None => &self.model,
        }
    }

    /// Returns the store that answers a list or watch of a collection. The revision is the end of the store of a
    /// member.
    pub(super) fn lister(&mut self, now: u64, kind: usize, known: u64) -> (&Model, Option<u64>) {
        let may = |member: &Member| now < member.until && member.lists && member.is_behind(known);
        match &self.member {
            Some(member) if may(member) && !self.apart[kind] && self.fate.percent(member.share) => {
                (&member.model, Some(member.model.revision()))
            }
            Some(_) | None => (&self.model, None),
        }
    }

    /// Draws a list of nothing whose version is no position.
    pub(super) fn foreign_version(&mut self) -> Option<ResourceVersion> {
        let strikes = self.fate.below(1000) < self.foreign;
        strikes.then(|| ResourceVersion::parse(["0", "abc", ""][self.fate.index(3)]))
    }

    /// Returns the current object at these coordinates.
    fn present(&self, target: &ObjectRef) -> Option<Life> {
        let kind = stored(by_resource(&target.group, &target.resource)?);
        let here = |life: &&Life| {
            life.exists()
                && life.kind == kind
                && life.object.namespace == target.namespace
                && life.object.name == target.name
        };
        self.truth.lives.values().find(here).cloned()
    }

    fn collect(
        &mut self,
        now: u64,
        sent: Moment,
        target: &ObjectRef,
        version: &ResourceVersion,
        policy: PropagationPolicy,
        judge: Judge<'_>,
    ) -> Result<Answer, String> {
        let before = self.present(target);
        let options = DeleteOptions {
            uid: Some(target.uid.to_string()),
            resource_version: Some(version.to_string()),
            propagation_policy: Some(match policy {
                PropagationPolicy::Background => Policy::Background,
                PropagationPolicy::Foreground => Policy::Foreground,
                PropagationPolicy::Orphan => Policy::Orphan,
            }),
            ..DeleteOptions::default()
        };
        let key = ObjectKey::new(&target.namespace, &target.name);
        let answer = match self.model.delete(at(now), &resource(target), &key, &options) {
            Ok(Deleted::Removed(_)) => Answer::Accepted(None),
            Ok(Deleted::Kept(object)) => Answer::Accepted(live(&object)),
            Err(error) => return Ok(refuse(error)),
        };
        let before = before.ok_or_else(|| format!("deletes {target}, which does not exist"))?;
        let late = judge.judge(&self.truth, sent, |truth, at, shown| law::delete(truth, at, &before, policy, shown))?;
        self.late_writes += u64::from(late);
        self.commit(now, Actor::Collector);
        Ok(answer)
    }

    fn change(&mut self, now: u64, sent: Moment, request: &Request, judge: Judge<'_>) -> Result<Answer, String> {
        let Request::Patch { target, patch: change, decided_at } = request else { return Ok(Answer::Nothing) };
        let before = self.present(target);
        let patch = match patch_body(target, change) {
            (PatchForm::StrategicMerge, body) => Patch::Strategic(body),
            (PatchForm::Merge, body) => Patch::Merge(body),
            (PatchForm::Json, operations) => Patch::Json(operations),
        };
        let key = ObjectKey::new(&target.namespace, &target.name);
        let written = match self.model.patch(at(now), &resource(target), &key, &patch, &WriteOptions::default()) {
            Ok(written) => written,
            Err(error) => return Ok(refuse(error)),
        };
        let before = before.ok_or_else(|| format!("patches {target}, which does not exist"))?;
        let object = observe(&written.object);
        if object.uid != target.uid {
            return Err(format!("patches {target}, which is another object"));
        }
        let late = match change {
            Change::DropReferences { .. }
            | Change::UnblockReferences { .. }
            | Change::ReplaceReferences { .. }
            | Change::RemoveReferencesAt { .. }
            | Change::UnblockReferencesAt { .. } => {
                let gone = |owner: &&OwnerReference| !object.facts.owners.iter().any(|left| left.uid == owner.uid);
                let removed: Vec<_> = before.facts().owners.iter().filter(gone).cloned().collect();
                if !removed.is_empty() {
                    self.stripped.push((object.uid.clone(), removed));
                }
                let as_decided = decided_at.as_ref() == Some(&before.object.resource_version);
                judge.judge(&self.truth, sent, |truth, at, shown| {
                    law::references(truth, at, &before, &object.facts, as_decided, shown)
                })?
            }
            Change::DropFinalizer { .. } | Change::ReplaceFinalizers { .. } => {
                let stays = |name: &Name| object.facts.has_finalizer(name);
                let gone: Vec<_> = before.facts().finalizers.iter().filter(|name| !stays(name)).collect();
                let [finalizer] = gone[..] else {
                    return Err(format!("takes {gone:?} from {}", before.named()));
                };
                unchanged_but(&before, &object.facts, finalizer)?;
                let late = judge.judge(&self.truth, sent, |truth, _, shown| {
                    law::finalizer(truth, &before, finalizer, decided_at.as_ref(), shown)
                })?;
                if late {
                    self.truth.orphans_perhaps(&object.uid);
                }
                late
            }
        };
        self.late_writes += u64::from(late);
        self.commit(now, Actor::Collector);
        Ok(Answer::Accepted(live(&written.object)))
    }
}

fn unchanged_but(before: &Life, after: &Facts, finalizer: &str) -> Result<(), String> {
    let rest: Vec<_> = before.facts().finalizers.iter().filter(|name| ***name != *finalizer).cloned().collect();
    if rest == after.finalizers.to_vec() && before.facts().owners == after.owners {
        return Ok(());
    }
    Err(format!("takes more than {finalizer} from {}", before.named()))
}

pub(super) fn key(object: &Object) -> ObjectKey {
    ObjectKey::new(&object.namespace, &object.name)
}

fn resource(object: &ObjectRef) -> sandbox::model::GroupResource {
    match by_resource(&object.group, &object.resource) {
        Some(kind) => KINDS[kind].resource(),
        None => sandbox::model::GroupResource::new(&object.group, &object.resource),
    }
}

fn refuse(error: ApiError) -> Answer {
    let names_object = error.reason == Reason::NotFound && !error.details.name.is_empty();
    Answer::Refused(Refused { code: error.code(), names_object, ..Refused::default() })
}
