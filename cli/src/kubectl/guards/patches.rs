//! Merge patches of the spec of a guard. Each has the uid as precondition, so that another guard with the same name
//! stays as it is.

use engine::object::{Uid, clip};
use proto::convert::{CLOCK_AHEAD_MAX, LIFETIME_MAX, REASON_MAX_BYTES};
use proto::r#type::v1beta1::ObjectRef;
use runtime::visible;
use serde_json::{Value, json};
use std::time::Duration;

/// Maximum length of the name of a user, as in the definitions.
const ACTOR_MAX_BYTES: usize = 256;
/// Maximum number of approvals in one Approval, as in its definition.
const APPROVED_MAX: usize = 100;

/// An approval of one cascade.
#[derive(Clone, Debug)]
pub(super) struct Consent {
    pub(super) root: ObjectRef,
    /// 16 hexadecimal digits.
    pub(super) digest: String,
    /// The end of the approval, since 1970.
    pub(super) until: Duration,
    /// The user that approves; empty if unknown.
    pub(super) by: String,
}

/// Adds an approval to an Approval that was just read, and drops those that have ended. A merge patch replaces the
/// whole list, so the version is a precondition too: a conflict means that the Approval must be read again.
pub(super) fn approve(approval: &Value, consent: &Consent, now: Duration) -> Result<Value, String> {
    let ObjectRef { group, resource, namespace, name, uid, .. } = &consent.root;
    let is_hex = consent.digest.len() == 16 && consent.digest.bytes().all(|byte| byte.is_ascii_hexdigit());
    if uid.is_empty() || !is_hex {
        return Err("the graph service names no uid of the root, or no usable digest".to_owned());
    }
    let (end, present) = (date(consent.until), date(now));
    let stands = |entry: &&Value| {
        // Times of one form in UTC are ordered as texts. Another form stays, because the reader of the guard judges it.
        let ended = entry["expireTime"].as_str().is_some_and(|end| end.len() == present.len() && *end <= *present);
        entry["rootUID"] != **uid && !ended
    };
    let known = approval["spec"]["approved"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut approved: Vec<Value> = known.iter().filter(stands).cloned().collect();
    if approved.len() >= APPROVED_MAX {
        return Err(format!(
            "the Approval has {APPROVED_MAX} approvals that have not ended; remove some from spec.approved"
        ));
    }
    approved.push(json!({
        "rootUID": uid,
        "root": { "group": group, "resource": resource, "namespace": namespace, "name": name },
        "digest": consent.digest,
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
pub(super) fn bypass(gate: &Uid, lasts: Duration, reason: &str, by: &str, now: Duration) -> Result<Value, String> {
    if lasts <= CLOCK_AHEAD_MAX || lasts > LIFETIME_MAX {
        return Err("give more than 10s and at most 24h: a bypass ends 10 s early, because clocks differ".to_owned());
    }
    if reason.trim().is_empty() {
        return Err("a bypass needs a reason".to_owned());
    }
    let bypass = json!({
        "untilTime": date(now + lasts),
        "reason": line(reason, REASON_MAX_BYTES),
        "by": line(by, ACTOR_MAX_BYTES),
    });
    Ok(spec(gate, &json!({ "bypass": bypass })))
}

/// Begins a new window of a budget: deletions before the present do not count. `before` is the begin of the window so
/// far. The next begin is at least a second after it, because an equal one would be no change.
pub(super) fn count_from(budget: &Uid, now: Duration, before: Option<&str>) -> Value {
    let before = before.and_then(|text| text.parse::<prost_types::Timestamp>().ok());
    let next = before.and_then(|before| u64::try_from(before.seconds.saturating_add(1)).ok());
    spec(budget, &json!({ "countFrom": date(now.max(Duration::from_secs(next.unwrap_or_default()))) }))
}

fn spec(uid: &Uid, spec: &Value) -> Value {
    json!({ "metadata": { "uid": uid.to_string() }, "spec": spec })
}

/// A time since 1970 as text.
fn date(since: Duration) -> String {
    let seconds = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
    prost_types::Timestamp { seconds, nanos: 0 }.to_string()
}

fn line(text: &str, max_bytes: usize) -> String {
    clip(&visible::line(text), max_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kubectl::guards::tests::cascade;

    /// 2026-01-01T12:00:00Z.
    const NOON: Duration = Duration::from_secs(1_767_268_800);
    const HOUR: Duration = Duration::from_secs(3600);

    fn consent(uid: &str, digest: &str) -> Consent {
        let root = cascade("db", uid, digest).root.unwrap();
        Consent { root, digest: digest.to_owned(), until: NOON + HOUR, by: "jane\n".to_owned() }
    }

    fn approval(approved: Value) -> Value {
        json!({ "metadata": { "uid": "a", "resourceVersion": "7" }, "spec": { "reason": "r", "approved": approved } })
    }

    #[test]
    fn an_approval_names_root_digest_end_and_user() {
        let patch = approve(&approval(Value::Null), &consent("u-db", "00000000000000ff"), NOON).unwrap();
        insta::assert_snapshot!(crate::kubectl::document::json(&patch).unwrap());
        for (uid, digest) in [("", "00000000000000ff"), ("u", "digest"), ("u", ""), ("u", "00000000000000fg")] {
            assert!(approve(&approval(Value::Null), &consent(uid, digest), NOON).is_err(), "{uid:?} {digest:?}");
        }
    }

    #[test]
    fn an_approval_keeps_those_that_stand_and_drops_those_that_have_ended() {
        let entry = |root: &str, end: &str| json!({ "rootUID": root, "digest": "0", "expireTime": end });
        let known = json!([
            entry("ended", "2026-01-01T12:00:00Z"),
            entry("stands", "2026-01-01T12:30:00Z"),
            entry("u", "2026-01-01T12:30:00Z"),
            entry("odd", "soon"),
        ]);
        let patch = approve(&approval(known), &consent("u", "00000000000000ff"), NOON).unwrap();
        let approved = patch["spec"]["approved"].as_array().unwrap();
        let roots: Vec<&str> = approved.iter().filter_map(|entry| entry["rootUID"].as_str()).collect();
        assert_eq!(roots, ["stands", "odd", "u"]);

        let full: Vec<Value> = (0..100).map(|at| entry(&format!("r{at}"), "2026-01-01T12:30:00Z")).collect();
        let full = approval(full.into());
        let why = approve(&full, &consent("u", "00000000000000ff"), NOON).unwrap_err();
        assert!(why.contains("100 approvals") && why.contains("spec.approved"), "{why}");
        assert!(approve(&full, &consent("r5", "00000000000000ff"), NOON).is_ok(), "it replaces the one of its root");
        let unnamed = approve(&json!({ "spec": {} }), &consent("u", "00000000000000ff"), NOON).unwrap_err();
        assert!(unnamed.contains("no uid"), "{unnamed}");
    }

    #[test]
    fn a_bypass_has_an_end_and_a_reason() {
        let gate = Uid::parse("g").unwrap();
        let patch = bypass(&gate, HOUR, "it\nhangs", "jane", NOON).unwrap();
        let expected = json!({ "untilTime": "2026-01-01T13:00:00Z", "reason": "it\\nhangs", "by": "jane" });
        assert_eq!(patch, json!({ "metadata": { "uid": "g" }, "spec": { "bypass": expected } }));
        for (lasts, reason) in [(Duration::ZERO, "r"), (HOUR / 7200, "r"), (HOUR * 25, "r"), (HOUR, " ")] {
            assert!(bypass(&gate, lasts, reason, "", NOON).is_err(), "{lasts:?} {reason:?}");
        }
        let from = json!({ "metadata": { "uid": "g" }, "spec": { "countFrom": "2026-01-01T12:00:00Z" } });
        assert_eq!(count_from(&gate, NOON, None), from);
        assert_eq!(count_from(&gate, NOON, Some("2026-01-01T11:59:59Z")), from);
        // A second release within a second begins another window, too.
        let next = count_from(&gate, NOON, Some("2026-01-01T12:00:00Z"));
        assert_eq!(next["spec"]["countFrom"], "2026-01-01T12:00:01Z");
    }
}
