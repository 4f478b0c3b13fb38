//! The effect of a guard on the work in its scope, and the permissions that a person has given: approvals, bypasses and
//! the begin of a window.

use super::values::{Date, Digest, Most, Resource, Within, Word};
use super::{ACTOR_MAX_BYTES, DAY, Spec, parse};
use crate::gates::transport::{self, Transport};
use engine::guard::{
    Approval, Approved, Budget, FailurePolicy, Gate, GuardKind, Limit, OnExceeded, Recorded, Rule, Spending,
    TIMEOUT_MAX,
};
use engine::object::{GroupResource, Uid, clip};
use proto::convert::{CLOCK_AHEAD_MAX, REASON_MAX_BYTES, SCOPE_MAX};
use runtime::visible;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

/// Most objects that a rule counts.
const OBJECTS_MAX: u64 = 1_000_000_000;
/// Maximum number of approvals of one resource.
pub(crate) const APPROVED_MAX: usize = 100;
/// Maximum number of recorded entries of one budget.
const SPENDINGS_MAX: usize = 600;
/// The lifetime of the pause of a budget that names none, in seconds.
const PAUSE_SECONDS: u64 = 3600;
/// The longest timeout of a gate, in seconds.
const TIMEOUT_MAX_SECONDS: u64 = TIMEOUT_MAX.as_secs();
/// The longest bypass.
pub(crate) const BYPASS_MAX: Duration = Duration::from_secs(DAY);

/// Reads the rule of a guard, and the policy engine of a gate. If the rule cannot be read, it holds.
pub(super) fn read(
    kind: GuardKind,
    spec: &mut Spec,
    status: &Value,
    now: Option<Duration>,
) -> (Rule, Option<Transport>) {
    let rule = match kind {
        GuardKind::Pause | GuardKind::Protection => spec.rest().map(|Nothing {}| (Rule::Hold, None)),
        GuardKind::Budget => {
            let count_from = count_from(spec);
            spec.rest().and_then(|raw| budget(raw, count_from)).map(|budget| (Rule::Budget(budget), None))
        }
        GuardKind::Approval => {
            let approved = approved(spec, status, now);
            spec.rest().and_then(|raw| approval(raw, approved)).map(|approval| (Rule::Approval(approval), None))
        }
        GuardKind::Gate => {
            let bypass = bypass(spec, now);
            spec.rest().and_then(|raw| gate(raw, bypass)).map(|(gate, engine)| (Rule::Gate(gate), Some(engine)))
        }
    };
    rule.unwrap_or_else(|why| {
        spec.problem(&why, &format!("so the {} holds its scope", kind.as_str()));
        (Rule::Hold, None)
    })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct RawBudget {
    max_objects: Option<Within<1, OBJECTS_MAX>>,
    max_percent: Option<Within<1, 100>>,
    window_seconds: Within<1, DAY>,
    on_exceeded: RawOnExceeded,
    pause_seconds: Option<Within<1, DAY>>,
}

#[derive(Clone, Copy, Deserialize)]
enum RawOnExceeded {
    Hold,
    Pause,
    Approve,
}

fn budget(raw: RawBudget, count_from: Duration) -> Result<Budget, String> {
    let limit = match (raw.max_objects, raw.max_percent) {
        (Some(Within(objects)), None) => Limit::Objects(objects),
        (None, Some(Within(percent))) => Limit::Percent(u8::try_from(percent).unwrap_or(1)),
        _ => return Err("spec: exactly one of maxObjects and maxPercent is needed".to_owned()),
    };
    let on_exceeded = match (raw.on_exceeded, raw.pause_seconds) {
        (RawOnExceeded::Hold, None) => OnExceeded::Hold,
        (RawOnExceeded::Approve, None) => OnExceeded::Approve,
        (RawOnExceeded::Pause, seconds) => {
            OnExceeded::Pause(Duration::from_secs(seconds.map_or(PAUSE_SECONDS, |Within(seconds)| seconds)))
        }
        (RawOnExceeded::Hold | RawOnExceeded::Approve, Some(_)) => {
            return Err("spec.pauseSeconds: onExceeded is not Pause".to_owned());
        }
    };
    Ok(Budget { limit, window: Duration::from_secs(raw.window_seconds.0), on_exceeded, count_from })
}

/// Deletions that a leader has recorded in the status of a budget.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawSpending {
    since_time: Date,
    #[serde(default)]
    group: String,
    resource: Word,
    count: Within<1, OBJECTS_MAX>,
}

/// The recorded window of a budget. An entry that cannot be read does not count.
pub(super) fn recorded(kind: GuardKind, status: &Value) -> Recorded {
    if kind != GuardKind::Budget {
        return Recorded::default();
    }
    let entries = status["deletions"].as_array().map(Vec::as_slice).unwrap_or_default().iter().take(SPENDINGS_MAX);
    let spending = |entry| {
        let RawSpending { since_time, group, resource, count } = RawSpending::deserialize(entry).ok()?;
        let collection = GroupResource { group: group.into(), resource: resource.0 };
        Some(Spending { since: since_time.0, collection, count: count.0 })
    };
    let exceeded_from = Date::deserialize(&status["exceededFrom"]).ok().map(|Date(from)| from);
    Recorded { deletions: entries.filter_map(spending).collect(), exceeded_from }
}

fn count_from(spec: &mut Spec) -> Duration {
    let from = spec.field("countFrom").map(|from| from.map(|Date(from)| from));
    from.unwrap_or_else(|why| {
        spec.problem(&why, "so all deletions of the window count");
        None
    })
    .unwrap_or_default()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct RawApproval {
    more_than: Option<Within<0, OBJECTS_MAX>>,
    #[serde(default)]
    resources: Most<Resource, SCOPE_MAX>,
}

fn approval(raw: RawApproval, approved: Vec<Approved>) -> Result<Approval, String> {
    if raw.more_than.is_none() && raw.resources.0.is_empty() {
        return Err("spec: moreThan or resources is needed".to_owned());
    }
    Ok(Approval {
        more_than: raw.more_than.map(|Within(objects)| objects),
        resources: raw.resources.0.into_iter().map(GroupResource::from).collect(),
        approved,
    })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct RawApproved {
    #[serde(rename = "rootUID")]
    root_uid: Word,
    digest: Digest,
    expire_time: Date,
    #[serde(default)]
    by: String,
    /// For people.
    #[serde(rename = "root")]
    _root: Option<IgnoredAny>,
}

/// An entry that a leader has accepted.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawAccepted {
    #[serde(rename = "rootUID")]
    root_uid: Word,
    digest: Digest,
}

/// The approvals that count now. One that cannot be read approves nothing.
fn approved(spec: &mut Spec, status: &Value, now: Option<Duration>) -> Vec<Approved> {
    const EFFECT: &str = "so it approves nothing";
    let entries: Vec<Value> = match spec.field("approved") {
        Ok(entries) => entries.unwrap_or_default(),
        Err(why) => {
            spec.problem(&why, EFFECT);
            return Vec::new();
        }
    };
    if entries.len() > APPROVED_MAX {
        spec.problem(&format!("spec.approved: has {} entries, more than {APPROVED_MAX}", entries.len()), EFFECT);
        return Vec::new();
    }
    let accepted = status["approved"].as_array().map(Vec::as_slice).unwrap_or_default();
    let accepted: Vec<RawAccepted> =
        accepted.iter().take(APPROVED_MAX).filter_map(|entry| RawAccepted::deserialize(entry).ok()).collect();
    let mut found = Vec::new();
    for (at, entry) in entries.into_iter().enumerate() {
        let path = format!("spec.approved[{at}]");
        match parse::<RawApproved>(entry, &path).and_then(|raw| approved_one(raw, &accepted, now, &path)) {
            Ok(one) => found.extend(one),
            Err(why) => spec.problem(&why, EFFECT),
        }
    }
    found
}

/// The approval of one entry; `None` if it has ended.
fn approved_one(
    raw: RawApproved,
    accepted: &[RawAccepted],
    now: Option<Duration>,
    path: &str,
) -> Result<Option<Approved>, String> {
    let now = now.ok_or_else(|| format!("{path}.expireTime: the time of the API server is unknown"))?;
    let root = Uid::parse(&raw.root_uid.0).ok_or_else(|| format!("{path}.rootUID: is empty"))?;
    let is_it = |known: &RawAccepted| known.root_uid.0 == raw.root_uid.0 && known.digest == raw.digest;
    let until = raw.expire_time.0.saturating_sub(CLOCK_AHEAD_MAX);
    Ok((until > now).then(|| Approved {
        root,
        digest: raw.digest.0,
        until,
        actor: clip(&visible::line(&raw.by), ACTOR_MAX_BYTES),
        accepted: accepted.iter().any(is_it),
    }))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct RawGate {
    cel: Option<RawCel>,
    webhook: Option<RawWebhook>,
    stream: Option<Nothing>,
    #[serde(default)]
    roots_only: bool,
    #[serde(default = "timeout")]
    timeout_seconds: Within<1, TIMEOUT_MAX_SECONDS>,
    failure_policy: RawFailurePolicy,
    max_hold_seconds: Within<1, DAY>,
    after_max_hold: RawAfterMaxHold,
    #[serde(default)]
    observe_only: bool,
}

fn timeout() -> Within<1, TIMEOUT_MAX_SECONDS> {
    Within(2)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawCel {
    expression: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct RawWebhook {
    url: String,
    ca_bundle: Option<String>,
}

#[derive(Clone, Copy, Deserialize)]
enum RawFailurePolicy {
    Allow,
    Hold,
    Deny,
}

#[derive(Clone, Copy, Deserialize)]
enum RawAfterMaxHold {
    Allow,
    Deny,
}

fn gate(raw: RawGate, bypass: Bypass) -> Result<(Gate, Transport), String> {
    let given = |word: &str, value: Option<Value>| value.map(|value| (word.to_owned(), value));
    let engine = [
        given("cel", raw.cel.map(|RawCel { expression }| json!({ "expression": expression }))),
        given(
            "webhook",
            raw.webhook.map(|raw| json!({ "url": raw.url, "caBundle": raw.ca_bundle.unwrap_or_default() })),
        ),
        given("stream", raw.stream.map(|Nothing {}| json!({}))),
    ];
    let engine = Value::Object(engine.into_iter().flatten().collect());
    let mut digest = DefaultHasher::new();
    engine.to_string().hash(&mut digest);
    let engine = transport::read(&engine)?;
    let gate = Gate {
        roots_only: raw.roots_only,
        observe_only: raw.observe_only,
        timeout: Duration::from_secs(raw.timeout_seconds.0),
        failure_policy: match raw.failure_policy {
            RawFailurePolicy::Allow => FailurePolicy::Allow,
            RawFailurePolicy::Hold => FailurePolicy::Hold,
            RawFailurePolicy::Deny => FailurePolicy::Deny,
        },
        max_hold: Duration::from_secs(raw.max_hold_seconds.0),
        allow_after_max_hold: matches!(raw.after_max_hold, RawAfterMaxHold::Allow),
        engine: digest.finish(),
        bypass_until: bypass.until,
        bypass: bypass.reason,
        bypass_by: bypass.by,
    };
    Ok((gate, engine))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct RawBypass {
    until_time: Date,
    reason: String,
    #[serde(default)]
    by: String,
}

/// A bypass that counts now; empty without one.
#[derive(Default)]
struct Bypass {
    until: Duration,
    reason: String,
    by: String,
}

/// A bypass that cannot be read bypasses nothing.
fn bypass(spec: &mut Spec, now: Option<Duration>) -> Bypass {
    let bypass = spec.field::<RawBypass>("bypass").and_then(|raw| raw.map_or(Ok(None), |raw| bypassed(&raw, now)));
    match bypass {
        Ok(bypass) => bypass.unwrap_or_default(),
        Err(why) => {
            spec.problem(&why, "so it bypasses nothing");
            <_>::default()
        }
    }
}

/// `None` for a bypass that has ended.
fn bypassed(raw: &RawBypass, now: Option<Duration>) -> Result<Option<Bypass>, String> {
    let now = now.ok_or("spec.bypass.untilTime: the time of the API server is unknown")?;
    if raw.until_time.0 > now + BYPASS_MAX + CLOCK_AHEAD_MAX {
        return Err("spec.bypass.untilTime: is more than a day ahead".to_owned());
    }
    if raw.reason.trim().is_empty() {
        return Err("spec.bypass.reason: is empty".to_owned());
    }
    let by = clip(&visible::line(&raw.by), ACTOR_MAX_BYTES);
    let reason = clip(&visible::line(&raw.reason), REASON_MAX_BYTES);
    let until = raw.until_time.0.saturating_sub(CLOCK_AHEAD_MAX);
    Ok((until > now).then_some(Bypass { until, reason, by }))
}
