//! The status of a guard at the API server, for people and for tools that wait.

use engine::guard::{GuardKind, Recorded, Spending};
use engine::object::{Uid, clip};
use engine::scope::Scope;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use std::time::Duration;

#[cfg(test)]
mod tests;

/// Longest summary of a scope.
const SUMMARY_MAX_BYTES: usize = 200;

/// A guard as the leader sees it.
#[derive(Clone, Debug)]
pub(crate) struct State {
    pub(crate) kind: GuardKind,
    /// The generation that the leader applies.
    pub(crate) generation: u64,
    pub(crate) phase: Phase,
    /// Why it is pending; empty if it is not.
    pub(crate) pending: String,
    /// The error in the resource; empty if there is none.
    pub(crate) problem: String,
    pub(crate) scope: Scope,
    /// How many objects it covers; `None` while they are counted.
    pub(crate) covers: Option<u64>,
    /// How many decisions it holds.
    pub(crate) held: u64,
    /// Of a budget.
    pub(crate) recorded: Recorded,
    /// Of an approval: the roots, with the digests that the leader has compared.
    pub(crate) approved: Vec<(Uid, u64)>,
    /// The end of its lifetime since 1970.
    pub(crate) expires: Option<Duration>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Pending,
    Effective,
    Expired,
}

/// The status, for a merge patch. A condition of `before`, the previous status, keeps its time if it has not changed.
pub(crate) fn status(of: &State, before: &Value, now: Timestamp) -> Value {
    let (phase, why) = match of.phase {
        Phase::Pending => ("Pending", "WritesRemain"),
        Phase::Effective => ("Effective", "NoWriteRemains"),
        Phase::Expired => ("Expired", "LifetimeOver"),
    };
    let condition = |kind: &str, is: bool, why: &str, message: &str| {
        let is = if is { "True" } else { "False" };
        let known = before["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
        let known = known.iter().find(|known| known["type"] == kind && known["status"] == is);
        let since = known.and_then(|known| known["lastTransitionTime"].as_str().map(str::to_owned));
        let now = || Timestamp::from_second(now.as_second()).unwrap_or(now).to_string();
        json!({
            "type": kind, "status": is, "reason": why, "message": message, "observedGeneration": of.generation,
            "lastTransitionTime": since.unwrap_or_else(now),
        })
    };
    let (accepted, expired) = (of.problem.is_empty(), of.phase == Phase::Expired);
    let mut conditions = vec![
        condition("Accepted", accepted, if accepted { "Valid" } else { "Invalid" }, &of.problem),
        condition("Effective", of.phase == Phase::Effective, why, &of.pending),
        condition("Expired", expired, if expired { why } else { "LifetimeLeft" }, ""),
    ];
    if of.kind == GuardKind::Budget {
        let exceeded = of.recorded.exceeded_from.is_some();
        let why = if exceeded { "LimitReached" } else { "WithinLimit" };
        conditions.push(condition("Exceeded", exceeded, why, ""));
    }
    if of.phase == Phase::Pending {
        // The name that kstatus knows: without it, Flux and Helm take a pending guard for ready.
        conditions.push(condition("Reconciling", true, why, &of.pending));
    }
    let message = [&of.problem, &of.pending].map(String::as_str).into_iter().filter(|part| !part.is_empty());
    let mut status = json!({
        "state": phase,
        "scope": clip(&of.scope.to_string(), SUMMARY_MAX_BYTES),
        "covers": of.covers,
        "held": of.held,
        "expireTime": of.expires.and_then(date),
        "message": message.collect::<Vec<_>>().join("; "),
        "observedGeneration": of.generation,
        "conditions": conditions,
    });
    if of.kind == GuardKind::Budget {
        let entry = |Spending { since, collection, count }: &Spending| {
            // The next leader does not let a deletion leave the window early.
            let since = date(*since + Duration::from_millis(999))?;
            Some(json!({
                "sinceTime": since, "group": *collection.group, "resource": *collection.resource,
                "count": count,
            }))
        };
        status["deletions"] = of.recorded.deletions.iter().filter_map(entry).collect();
        status["exceededFrom"] = of.recorded.exceeded_from.and_then(date).into();
    }
    if of.kind == GuardKind::Approval {
        let entry =
            |(root, digest): &(Uid, u64)| json!({ "rootUID": root.to_string(), "digest": digest_text(*digest) });
        status["approved"] = of.approved.iter().map(entry).collect();
    }
    status
}

/// A digest of a cascade or of a plan, as text.
pub(crate) fn digest_text(digest: u64) -> String {
    format!("{digest:016x}")
}

/// A time since 1970 as text; `None` for a time that the calendar does not have.
pub(crate) fn date(since: Duration) -> Option<String> {
    let seconds = i64::try_from(since.as_secs()).ok()?;
    Some(Timestamp::from_second(seconds).ok()?.to_string())
}
