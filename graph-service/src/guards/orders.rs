//! Merge patches of the spec of a guard, for a caller. Each has the uid as precondition, so that another guard with the
//! same name stays as it is.

use super::resource::{ACTOR_MAX_BYTES, APPROVED_MAX, BYPASS_MAX};
use super::status::{date, digest_text};
use engine::object::{GroupResource, Uid, clip};
use proto::convert::REASON_MAX_BYTES;
use runtime::visible;
use serde_json::{Value, json};
use std::time::Duration;

#[cfg(test)]
mod tests;

/// An approval of one cascade.
#[derive(Clone, Debug)]
pub(crate) struct Consent {
    pub(crate) root: Uid,
    /// The root by name, for people.
    pub(crate) resource: GroupResource,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) digest: u64,
    /// The end of the approval, since 1970.
    pub(crate) until: Duration,
    /// The user that approves.
    pub(crate) by: String,
}

/// Adds an approval to an Approval that was just read, and drops those that have ended. A merge patch replaces the whole
/// list, so the version is a precondition too: a conflict means that the Approval must be read again.
pub(crate) fn approve(approval: &Value, consent: &Consent, now: Duration) -> Result<Value, String> {
    let end = date(consent.until).ok_or("the approval has no end that can be written")?;
    let present = date(now).ok_or("the time of the API server cannot be written")?;
    let root = consent.root.to_string();
    let stands = |entry: &&Value| {
        // Times of one form in UTC are ordered as texts. Another form stays, because the reader of the guard judges it.
        let ended = entry["expireTime"].as_str().is_some_and(|end| end.len() == present.len() && *end <= *present);
        entry["rootUID"] != *root && !ended
    };
    let known = approval["spec"]["approved"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut approved: Vec<Value> = known.iter().filter(stands).cloned().collect();
    if approved.len() >= APPROVED_MAX {
        return Err(format!(
            "the Approval has {APPROVED_MAX} approvals that have not ended; remove some from spec.approved"
        ));
    }
    approved.push(json!({
        "rootUID": root,
        "root": {
            "group": &*consent.resource.group, "resource": &*consent.resource.resource,
            "namespace": consent.namespace, "name": consent.name,
        },
        "digest": digest_text(consent.digest),
        "expireTime": end,
        "by": line(&consent.by, ACTOR_MAX_BYTES),
    }));
    let metadata = &approval["metadata"];
    if metadata["uid"].as_str().is_none() || metadata["resourceVersion"].as_str().is_none() {
        return Err("the Approval has no uid or no resourceVersion".to_owned());
    }
    Ok(json!({
        "metadata": { "uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"] },
        "spec": { "approved": approved },
    }))
}

/// Bypasses a gate from now on, for at most a day.
pub(crate) fn bypass(gate: &Uid, lasts: Duration, reason: &str, by: &str, now: Duration) -> Result<Value, String> {
    if lasts.is_zero() || lasts > BYPASS_MAX {
        return Err("a bypass lasts at least a second and at most a day".to_owned());
    }
    if reason.trim().is_empty() {
        return Err("a bypass needs a reason".to_owned());
    }
    let until = date(now + lasts).ok_or("the end of the bypass cannot be written")?;
    let bypass =
        json!({ "untilTime": until, "reason": line(reason, REASON_MAX_BYTES), "by": line(by, ACTOR_MAX_BYTES) });
    Ok(spec(gate, &json!({ "bypass": bypass })))
}

/// Ends the bypass of a gate.
pub(crate) fn end_bypass(gate: &Uid) -> Value {
    spec(gate, &json!({ "bypass": null }))
}

/// Opens the window of a budget: deletions before the present do not count.
pub(crate) fn count_from(budget: &Uid, now: Duration) -> Result<Value, String> {
    let now = date(now).ok_or("the time of the API server cannot be written")?;
    Ok(spec(budget, &json!({ "countFrom": now })))
}

fn spec(uid: &Uid, spec: &Value) -> Value {
    json!({ "metadata": { "uid": uid.to_string() }, "spec": spec })
}

fn line(text: &str, max_bytes: usize) -> String {
    clip(&visible::line(text), max_bytes)
}
