//! The form of a Pause at the API server. If a part cannot be read, the pause holds more, never less.

use engine::guard::{Guard, GuardId, GuardKind, Rule};
use engine::object::{GroupResource, ResourceVersion, Uid, clip};
use engine::scope::{Filter, Scope};
use engine::view::GuardView;
use k8s_openapi::jiff::Timestamp;
use k8s_openapi::jiff::fmt::rfc2822;
use kube_api::Answer;
use proto::convert::{LIFETIME_MAX, PauseOrder, REASON_MAX_BYTES, SCOPE_MAX};
use runtime::visible;
use serde::Deserialize;
use serde_json::{Value, json};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

#[cfg(test)]
mod tests;

/// Annotation with the id of the request that created the pause.
pub(crate) const REQUEST_ID: &str = "ownergraph.dev/request-id";
/// Annotation with the user that requested the pause.
pub(crate) const PRESSED_BY: &str = "ownergraph.dev/pressed-by";
/// Longest user name that is written or read.
const ACTOR_MAX_BYTES: usize = 256;
/// Maximum difference between the clocks of two API servers. A pause must not end early because of it.
const CLOCK_AHEAD_MAX: Duration = Duration::from_secs(10);
/// Longest summary of a scope in a status.
const SUMMARY_MAX_BYTES: usize = 200;

/// How a pause was first seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sight {
    /// The pause was just created, so its whole lifetime is left.
    Fresh,
    /// The pause was found. The API server's clock gives the rest of its lifetime: the time of its answer since 1970,
    /// compared with the creation time. Without that time, the whole lifetime is left.
    Found { now: Option<Duration> },
}

/// One Pause.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    Standing(Guard),
    /// The pause is being deleted. It counts as gone, because the deletion is the order to resume.
    Leaving {
        name: String,
        uid: Uid,
    },
}

/// Reads a guard. The error says why the text is none.
pub(crate) fn read(kind: GuardKind, json: &str, sight: Sight) -> Result<Seen, String> {
    if kind != GuardKind::Pause {
        return Err(format!("a {}, which this build cannot read", kind.as_kind()));
    }
    let raw: RawPause = serde_json::from_str(json).map_err(|error| format!("an unreadable pause: {error}"))?;
    let metadata = raw.metadata;
    let uid = Uid::parse(&metadata.uid).ok_or("a pause without a uid")?;
    if metadata.name.is_empty() {
        return Err("a pause without a name".to_owned());
    }
    if metadata.deletion_timestamp.is_some() {
        return Ok(Seen::Leaving { name: metadata.name, uid });
    }
    let mut problems: Vec<String> = Vec::new();
    let scope = match raw.spec.get("scope").map_or(Ok(Scope::default()), scope) {
        Ok(scope) => scope,
        Err(why) => {
            problems.push(format!("its scope cannot be read, so the pause holds everything: {why}"));
            Scope::default()
        }
    };
    let lifetime = match lifetime(&raw.spec["lifetimeSeconds"]) {
        Ok(lifetime) => lifetime,
        Err(why) => {
            problems.push(format!("its lifetimeSeconds {why}, so the pause has the longest allowed lifetime"));
            LIFETIME_MAX
        }
    };
    let created = created(&metadata.creation_timestamp);
    let elapsed = match (sight, created) {
        (Sight::Fresh | Sight::Found { now: None }, _) | (Sight::Found { .. }, None) => Duration::ZERO,
        (Sight::Found { now: Some(now) }, Some(created)) => now.saturating_sub(created).saturating_sub(CLOCK_AHEAD_MAX),
    };
    Ok(Seen::Standing(Guard {
        id: GuardId { kind, name: Arc::from(metadata.name) },
        rule: Rule::Hold,
        uid,
        resource_version: ResourceVersion::parse(&metadata.resource_version),
        generation: metadata.generation,
        scope,
        actor: actor(&metadata.annotations, &metadata.managed_fields),
        reason: clip(raw.spec["reason"].as_str().unwrap_or_default(), REASON_MAX_BYTES),
        created: created.unwrap_or_default(),
        lifetime: Some(lifetime),
        elapsed,
        read_at: Duration::ZERO,
        problem: clip(&problems.join("; "), REASON_MAX_BYTES),
    }))
}

/// The time of an answer since 1970, from the header `Date`.
pub(crate) fn date(answer: &Answer) -> Option<Duration> {
    let seconds = rfc2822::DateTimeParser::new().parse_timestamp(answer.date.as_ref()?).ok()?.as_second();
    u64::try_from(seconds).ok().map(Duration::from_secs)
}

fn lifetime(value: &Value) -> Result<Duration, String> {
    let longest = LIFETIME_MAX.as_secs();
    match value.as_u64() {
        Some(seconds @ 1..) if seconds <= longest => Ok(Duration::from_secs(seconds)),
        Some(_) => Err(format!("is not from 1 to {longest}")),
        None => Err("is not a number".to_owned()),
    }
}

fn created(text: &str) -> Option<Duration> {
    let seconds = Timestamp::from_str(text).ok()?.as_second();
    u64::try_from(seconds).ok().map(Duration::from_secs)
}

fn scope(value: &Value) -> Result<Scope, String> {
    let raw = RawScope::deserialize(value).map_err(|error| clip(&error.to_string(), SUMMARY_MAX_BYTES))?;
    let filter = |raw: RawFilter| {
        at_most("resources", raw.resources.len())?;
        at_most("namespaces", raw.namespaces.len())?;
        let resource =
            |raw: RawResource| GroupResource { group: Arc::from(raw.group), resource: Arc::from(raw.resource) };
        Ok(Filter {
            resources: raw.resources.into_iter().map(resource).collect(),
            namespaces: raw.namespaces.into_iter().map(Arc::from).collect(),
            ..Filter::default()
        })
    };
    at_most("targets", raw.targets.len())?;
    Ok(Scope { targets: raw.targets.into_iter().map(filter).collect::<Result<_, String>>()? })
}

fn at_most(what: &str, count: usize) -> Result<(), String> {
    if count > SCOPE_MAX { Err(format!("it has {count} {what}, more than {SCOPE_MAX}")) } else { Ok(()) }
}

/// The user that requested a pause: from the annotation, or else the field manager that created it.
fn actor(annotations: &Value, managed_fields: &Value) -> String {
    let plain = |text: &str| clip(&visible::line(text), ACTOR_MAX_BYTES);
    match annotations[PRESSED_BY].as_str().filter(|user| !user.is_empty()) {
        Some(user) => plain(user),
        None => {
            let manager = managed_fields[0]["manager"].as_str().filter(|manager| !manager.is_empty());
            manager.map_or_else(String::new, |manager| plain(&format!("manager {manager}")))
        }
    }
}

/// A new Pause, requested by this user if known.
pub(crate) fn write(name: &str, order: &PauseOrder, user: Option<&str>) -> Value {
    let mut annotations = json!({ REQUEST_ID: order.request_id });
    if let Some(user) = user {
        annotations[PRESSED_BY] = clip(&visible::line(user), ACTOR_MAX_BYTES).into();
    }
    let target = |filter: &Filter| {
        let resource = |at: &GroupResource| json!({ "group": &*at.group, "resource": &*at.resource });
        let mut target = serde_json::Map::new();
        if !filter.resources.is_empty() {
            target.insert("resources".to_owned(), filter.resources.iter().map(resource).collect());
        }
        if !filter.namespaces.is_empty() {
            target.insert("namespaces".to_owned(), filter.namespaces.iter().map(|name| json!(&**name)).collect());
        }
        Value::Object(target)
    };
    let mut spec = json!({ "reason": order.reason, "lifetimeSeconds": order.lifetime.as_secs() });
    if !order.scope.targets.is_empty() {
        spec["scope"] = json!({ "targets": order.scope.targets.iter().map(target).collect::<Vec<_>>() });
    }
    json!({
        "apiVersion": "ownergraph.dev/v1alpha1",
        "kind": "Pause",
        "metadata": { "name": name, "annotations": annotations },
        "spec": spec,
    })
}

/// The status of a Pause as the leader sees it. A condition of `before`, the previous status, keeps its time if it has
/// not changed.
pub(crate) fn status(view: &GuardView, before: &Value, now: Timestamp) -> Value {
    let (state, why) = match (view.over, view.effective) {
        (true, _) => ("Expired", "LifetimeOver"),
        (false, true) => ("Effective", "NoWriteRemains"),
        (false, false) => ("Pending", "WritesRemain"),
    };
    let message = [&view.problem, &view.pending].map(String::as_str).into_iter().filter(|part| !part.is_empty());
    let message = message.collect::<Vec<_>>().join("; ");
    let condition = |kind: &str, is: bool, why: &str, message: &str| {
        let is = if is { "True" } else { "False" };
        let known = before["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
        let known = known.iter().find(|known| known["type"] == kind && known["status"] == is);
        let since = known.and_then(|known| known["lastTransitionTime"].as_str().map(str::to_owned));
        let now = || Timestamp::from_second(now.as_second()).unwrap_or(now).to_string();
        json!({
            "type": kind, "status": is, "reason": why, "message": message, "observedGeneration": view.generation,
            "lastTransitionTime": since.unwrap_or_else(now),
        })
    };
    let mut conditions = vec![
        condition("Effective", state == "Effective", why, &message),
        condition("Expired", view.over, if view.over { why } else { "LifetimeLeft" }, ""),
    ];
    if state == "Pending" {
        // The name that kstatus knows: without it, Flux and Helm take a pending pause for ready.
        conditions.push(condition("Reconciling", true, why, &message));
    }
    let expires = i64::try_from((view.created + view.lifetime.unwrap_or_default()).as_secs())
        .ok()
        .filter(|_| !view.created.is_zero() && view.lifetime.is_some());
    let expires = expires.and_then(|seconds| Timestamp::from_second(seconds).ok());
    json!({
        "state": state,
        "scope": clip(&view.scope.to_string(), SUMMARY_MAX_BYTES),
        "expireTime": expires.map(|time| time.to_string()),
        "message": message,
        "observedGeneration": view.generation,
        "conditions": conditions,
    })
}

#[derive(Deserialize)]
struct RawPause {
    metadata: RawMetadata,
    #[serde(default)]
    spec: Value,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawMetadata {
    #[serde(default)]
    name: String,
    #[serde(default)]
    uid: String,
    #[serde(default)]
    resource_version: String,
    #[serde(default)]
    generation: u64,
    #[serde(default)]
    creation_timestamp: String,
    deletion_timestamp: Option<serde::de::IgnoredAny>,
    #[serde(default)]
    annotations: Value,
    #[serde(default)]
    managed_fields: Value,
}

/// An unknown field makes the scope invalid, because it may narrow or widen the scope.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawScope {
    #[serde(default)]
    targets: Vec<RawFilter>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawFilter {
    #[serde(default)]
    resources: Vec<RawResource>,
    #[serde(default)]
    namespaces: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawResource {
    #[serde(default)]
    group: String,
    resource: String,
}
