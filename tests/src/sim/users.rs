//! The users of a world. They run random programs of creations, edits and deletions.

use super::kinds::{DEFINITIONS, KINDS, MIRROR, MIRRORED, NAMESPACES, PODS, STORED, UNWATCHED};
use super::options::Users;
use super::server::{DEFINITION_FINALIZER, Server};
use super::truth::{Life, short};
use crate::random::Random;
use engine::object::{FOREGROUND_FINALIZER, HOLD_ANNOTATION, ORPHAN_FINALIZER, OwnerReference, Uid};
use sandbox::model::Policy;
use serde_json::{Value, json};

/// The names per kind and namespace. There are few, so that users use names again.
const NAMES: u64 = 6;
const FOREIGN: &str = "example.com/foreign";

/// Carries out one operation of a user. Returns a description.
pub(super) fn act(server: &mut Server, now: u64, random: &mut Random, users: &Users) -> String {
    if random.percent(users.definitions) {
        return definitions(server, now, random);
    }
    if random.percent(users.bursts / 3) {
        return burst(server, now, random, users);
    }
    if random.percent(users.cycles) {
        return cycle(server, now, random);
    }
    if random.percent(users.second_deletes)
        && let Some(life) =
            any(server, random, |life| life.facts().terminating && (life.kind < DEFINITIONS || life.kind == PODS))
    {
        return delete(server, now, random, &life);
    }
    if random.percent(users.reparenting)
        && let Some(life) = any(server, random, |life| life.kind != DEFINITIONS)
    {
        return reparent(server, now, random, users, &life);
    }
    match random.below(10) {
        0..=4 => create(server, now, random, users),
        5..=7 => match any(server, random, |life| life.kind != DEFINITIONS) {
            Some(life) => delete(server, now, random, &life),
            None => create(server, now, random, users),
        },
        8 => match any(server, random, |life| life.kind != DEFINITIONS) {
            Some(life) => touch(server, now, random, users, &life),
            None => create(server, now, random, users),
        },
        _ => match any(server, random, |life| life.facts().has_finalizer(FOREIGN)) {
            Some(life) => release(server, now, &life),
            None => create(server, now, random, users),
        },
    }
}

/// Releases every object that users hold: removes foreign finalizers, and lets definitions in deletion go.
pub(super) fn let_go(server: &mut Server, now: u64) {
    let held = |life: &&Life| {
        life.exists() && (life.facts().has_finalizer(FOREIGN) || (life.kind == DEFINITIONS && life.facts().terminating))
    };
    for life in server.truth.lives.values().filter(held).cloned().collect::<Vec<_>>() {
        release(server, now, &life);
    }
}

fn any(server: &Server, random: &mut Random, wanted: impl Fn(&Life) -> bool) -> Option<Life> {
    let found: Vec<&Life> = server.truth.lives.values().filter(|life| life.exists() && wanted(life)).collect();
    random.pick(&found).map(|&life| life.clone())
}

fn kind(random: &mut Random) -> usize {
    loop {
        let kind = random.index(STORED);
        if kind != DEFINITIONS && (kind != UNWATCHED || random.percent(50)) {
            return kind;
        }
    }
}

pub(super) fn create(server: &mut Server, now: u64, random: &mut Random, users: &Users) -> String {
    let kind = kind(random);
    let namespace = if KINDS[kind].namespaced { NAMESPACES[random.index(NAMESPACES.len())] } else { "" };
    let count = [0, 0, 1, 1, 1, 2, 2, 3][random.index(8)];
    let owners = (0..count).filter_map(|_| reference(server, random, users, kind, namespace)).collect();
    create_as(server, now, random, users, kind, namespace, owners)
}

fn create_as(
    server: &mut Server,
    now: u64,
    random: &mut Random,
    users: &Users,
    kind: usize,
    namespace: &str,
    owners: Vec<Value>,
) -> String {
    let name = format!("{}-{}", KINDS[kind].plural, random.below(NAMES));
    let mut finalizers = Vec::new();
    if random.percent(users.foreign_finalizers) {
        finalizers.push(FOREIGN);
    }
    if random.once_in(40) && kind != UNWATCHED {
        finalizers.push(if random.percent(50) { ORPHAN_FINALIZER } else { FOREGROUND_FINALIZER });
    }
    let mut metadata = json!({ "name": name, "ownerReferences": owners, "finalizers": finalizers });
    if random.percent(users.holds) {
        metadata["annotations"] = json!({ HOLD_ANNOTATION: "" });
    }
    let done = server.create(now, kind, namespace, metadata.clone());
    format!("creates {} {namespace}/{name} {metadata}: {}", KINDS[kind].kind, told(&done))
}

/// Creates an owner, and a dependent with a foreign finalizer. Half of the owners have the unwatched kind.
pub(super) fn owner_to_lose(server: &mut Server, now: u64, random: &mut Random, name: &str) -> Option<Uid> {
    let kind = if random.percent(50) { UNWATCHED } else { random.index(2) };
    let namespace = NAMESPACES[random.index(NAMESPACES.len())];
    server.create(now, kind, namespace, json!({ "name": name })).ok()?;
    server.commit(now, super::truth::Actor::User);
    let is_it = |life: &&Life| life.exists() && life.kind == kind && *life.object.name == *name;
    let uid = server.truth.lives.values().find(is_it)?.object.uid.clone();
    let of = KINDS[kind];
    let owner = json!({ "apiVersion": of.api_version(), "kind": of.kind, "name": name, "uid": uid.to_string() });
    let metadata = json!({ "name": name, "ownerReferences": [owner], "finalizers": [FOREIGN] });
    server.create(now, random.index(3), namespace, metadata).ok()?;
    Some(uid)
}

/// The reference in the form in which a user writes it.
pub(super) fn written(reference: &OwnerReference) -> Value {
    let mut value = json!({
        "apiVersion": &*reference.api_version, "kind": &*reference.kind, "name": &*reference.name,
        "uid": reference.uid.to_string(),
    });
    if let Some(blocks) = reference.block_owner_deletion {
        value["blockOwnerDeletion"] = Value::from(blocks);
    }
    value
}

/// The references of an object in the stored form.
pub(super) fn references_of(life: &Life) -> Vec<Value> {
    life.facts().owners.iter().map(written).collect()
}

pub(super) fn reference_to(owner: &Life, blocks: bool) -> Value {
    let of = KINDS[owner.kind];
    json!({
        "apiVersion": of.api_version(), "kind": of.kind, "name": &*owner.object.name,
        "uid": owner.object.uid.to_string(), "blockOwnerDeletion": blocks,
    })
}

/// Draws a reference to a wanted owner in the first namespace.
pub(super) fn owner_reference(server: &Server, random: &mut Random, wanted: impl Fn(&Life) -> bool) -> Option<Value> {
    any(server, random, |life| wanted(life) && *life.object.namespace == *NAMESPACES[0])
        .map(|life| reference_to(&life, false))
}

/// Draws a reference for an object of this kind and namespace. The reference may be wrong.
fn reference(server: &Server, random: &mut Random, users: &Users, kind: usize, namespace: &str) -> Option<Value> {
    let near = |life: &&Life| !KINDS[life.kind].namespaced || *life.object.namespace == *namespace;
    let wrong = random.percent(users.wrong_references);
    let late = random.percent(users.late_dependents);
    let all: Vec<&Life> =
        server.truth.lives.values().filter(|life| life.kind != DEFINITIONS || random.clone().percent(5)).collect();
    let fitting: Vec<&Life> = all
        .iter()
        .copied()
        .filter(|life| wrong || near(life))
        .filter(|life| {
            if late { life.facts().terminating || !life.exists() } else { life.exists() || random.clone().percent(3) }
        })
        .collect();
    let owner = random.pick(&fitting).copied()?;
    // The reference names one of the two groups.
    let mirrored = owner.kind == MIRRORED && server.truth.perils.mirror && random.percent(50);
    let of = KINDS[if mirrored { MIRROR } else { owner.kind }];
    let mut value = json!({
        "apiVersion": of.api_version(), "kind": of.kind, "name": &*owner.object.name, "uid": owner.object.uid.to_string(),
    });
    match random.below(4) {
        0 => value["blockOwnerDeletion"] = Value::from(false),
        1 => {}
        _ => value["blockOwnerDeletion"] = Value::from(true),
    }
    if wrong {
        match random.below(6) {
            0 => value["name"] = Value::from("another-name"),
            1 => value["kind"] = Value::from(if of.kind == "Thing" { "Widget" } else { "Secret" }),
            2 => value["uid"] = Value::from(format!("{:08x}-0000-4000-8000-000000000000", random.below(50))),
            3 => value["kind"] = Value::from("Unheard"),
            4 => value["apiVersion"] = Value::from("unknown.example.com/v1"),
            _ => {}
        }
    }
    // The owner may be the object itself, by chance.
    let _ = kind;
    Some(value)
}

fn reparent(server: &mut Server, now: u64, random: &mut Random, users: &Users, life: &Life) -> String {
    let namespace = life.object.namespace.to_string();
    let mut owners: Vec<Value> = server
        .model
        .get(&KINDS[life.kind].resource(), &namespace, &life.object.name)
        .ok()
        .and_then(|object| object["metadata"]["ownerReferences"].as_array().cloned())
        .unwrap_or_default();
    match random.below(4) {
        0 => owners.clear(),
        1 if !owners.is_empty() => {
            let at = random.index(owners.len());
            let blocks = owners[at]["blockOwnerDeletion"] == true;
            owners[at]["blockOwnerDeletion"] = Value::from(!blocks);
        }
        2 if !owners.is_empty() => {
            owners.remove(random.index(owners.len()));
            owners.extend(reference(server, random, users, life.kind, &namespace));
        }
        _ => owners.extend(reference(server, random, users, life.kind, &namespace)),
    }
    let done = server.merge(now, life, json!({ "metadata": { "ownerReferences": owners } }));
    format!("gives {} owners {}: {}", life.named(), Value::Array(owners), told(&done))
}

fn delete(server: &mut Server, now: u64, random: &mut Random, life: &Life) -> String {
    let policy = [None, Some(Policy::Background), Some(Policy::Foreground), Some(Policy::Orphan)][random.index(4)];
    // The collector never removes the finalizers of an object of the unwatched kind.
    let policy = if life.kind == UNWATCHED { Some(Policy::Background) } else { policy };
    let done = server.delete(now, life, policy);
    format!("deletes {} with {policy:?}: {}", life.named(), told(&done))
}

fn touch(server: &mut Server, now: u64, random: &mut Random, users: &Users, life: &Life) -> String {
    let patch = if random.percent(users.holds * 4) {
        let value = if life.facts().hold { Value::Null } else { Value::from("") };
        json!({ "metadata": { "annotations": { HOLD_ANNOTATION: value } } })
    } else {
        json!({ "metadata": { "labels": { "touched": random.below(1000).to_string() } } })
    };
    let done = server.merge(now, life, patch.clone());
    format!("touches {} {patch}: {}", life.named(), told(&done))
}

fn release(server: &mut Server, now: u64, life: &Life) -> String {
    let kept = |name: &&engine::object::Name| ***name != *FOREIGN && ***name != *DEFINITION_FINALIZER;
    let rest: Vec<String> = life.facts().finalizers.iter().filter(kept).map(|name| name.to_string()).collect();
    let done = server.merge(now, life, json!({ "metadata": { "finalizers": rest } }));
    format!("takes foreign finalizers from {}: {}", life.named(), told(&done))
}

fn cycle(server: &mut Server, now: u64, random: &mut Random) -> String {
    let Some(first) = any(server, random, |life| life.kind < DEFINITIONS) else { return String::from("nothing") };
    let near = |life: &Life| {
        life.kind < DEFINITIONS
            && life.object.namespace == first.object.namespace
            && life.object.uid != first.object.uid
    };
    let Some(second) = any(server, random, near) else { return String::from("nothing") };
    for (from, to) in [(&first, &second), (&second, &first)] {
        let of = KINDS[to.kind];
        let owner = json!([{
            "apiVersion": of.api_version(), "kind": of.kind, "name": &*to.object.name, "uid": to.object.uid.to_string(),
            "blockOwnerDeletion": true,
        }]);
        let _ = server.merge(now, from, json!({ "metadata": { "ownerReferences": owner } }));
    }
    format!("ties {} and {} to each other", first.named(), second.named())
}

/// Creates an owner and dependents, and deletes the owner at once.
fn burst(server: &mut Server, now: u64, random: &mut Random, users: &Users) -> String {
    let owner = create(server, now, random, users);
    server.commit(now, super::truth::Actor::User);
    let Some(life) = any(server, random, |life| life.kind != DEFINITIONS && !life.facts().terminating) else {
        return owner;
    };
    let mirrored = life.kind == MIRRORED && server.truth.perils.mirror && random.percent(50);
    let of = KINDS[if mirrored { MIRROR } else { life.kind }];
    let value = json!({
        "apiVersion": of.api_version(), "kind": of.kind, "name": &*life.object.name, "uid": life.object.uid.to_string(),
        "blockOwnerDeletion": random.percent(60),
    });
    for _ in 0..random.between(1, 4) {
        let kind = if of.namespaced { random.index(3) + random.index(2) * 4 } else { random.index(7) };
        let kind = if of.namespaced && (!KINDS[kind].namespaced || random.once_in(4)) { PODS } else { kind };
        let namespace = match (KINDS[kind].namespaced, of.namespaced) {
            (true, true) => life.object.namespace.to_string(),
            (true, false) => NAMESPACES[random.index(2)].to_owned(),
            (false, _) => String::new(),
        };
        create_as(server, now, random, users, kind, &namespace, vec![value.clone()]);
    }
    server.commit(now, super::truth::Actor::User);
    if random.percent(60) {
        delete(server, now, random, &life);
    }
    format!("makes dependents of {} and perhaps deletes it", life.named())
}

fn definitions(server: &mut Server, now: u64, random: &mut Random) -> String {
    let kind = 4 + random.index(3);
    let name = format!("{}.{}", KINDS[kind].plural, KINDS[kind].group);
    let known = server
        .truth
        .lives
        .values()
        .find(|life| life.kind == DEFINITIONS && life.exists() && *life.object.name == *name)
        .cloned();
    match known {
        None => format!("defines {}: {}", KINDS[kind].kind, server.define(now, kind)),
        Some(life) if life.facts().terminating => release(server, now, &life),
        Some(life) => {
            let done = server.delete(now, &life, None);
            format!("deletes definition {} ({}): {}", KINDS[kind].kind, short(&life.object.uid), told(&done))
        }
    }
}

fn told(done: &Result<(), sandbox::model::ApiError>) -> String {
    match done {
        Ok(()) => String::from("ok"),
        Err(error) => error.to_string(),
    }
}
