use super::super::resource::{Seen, Sight, read};
use super::*;
use engine::guard::{Guard, GuardKind, Rule};

/// 2026-01-01T12:00:00Z.
const NOON: Duration = Duration::from_secs(1_767_268_800);
const HOUR: Duration = Duration::from_secs(3600);

fn consent(root: &str) -> Consent {
    Consent {
        root: Uid::parse(root).unwrap(),
        resource: GroupResource { group: "apps".into(), resource: "deployments".into() },
        namespace: "shop".to_owned(),
        name: "db".to_owned(),
        digest: 255,
        until: NOON + HOUR,
        by: "jane\n".to_owned(),
    }
}

/// What an object becomes by a merge patch, as the API server reads it. The preconditions must hold.
fn patched(object: &Value, patch: &Value) -> Value {
    for (field, value) in patch["metadata"].as_object().unwrap() {
        assert_eq!(object["metadata"][field], *value);
    }
    let mut object = object.clone();
    for (field, value) in patch["spec"].as_object().unwrap() {
        object["spec"][field] = value.clone();
    }
    object["spec"].as_object_mut().unwrap().retain(|_, value| !value.is_null());
    object
}

fn guard(kind: GuardKind, object: &Value) -> Guard {
    match read(kind, &object.to_string(), Sight::Found { now: Some(NOON) }) {
        Ok(Seen::Standing(standing)) => standing.guard,
        other => panic!("{object}: {other:?}"),
    }
}

fn object(spec: &Value) -> Value {
    json!({ "metadata": { "name": "g", "uid": "u", "resourceVersion": "7" }, "spec": spec })
}

#[test]
fn an_approval_that_is_written_is_read_again_and_one_that_has_ended_goes() {
    let entry = |root: &str, end: &str| json!({ "rootUID": root, "digest": "0000000000000001", "expireTime": end });
    let object = object(&json!({ "reason": "why", "moreThan": 1, "approved": [
        entry("ended", "2026-01-01T12:00:00Z"), entry("stands", "2026-01-01T12:30:00Z"),
        entry("root", "2026-01-01T12:30:00Z"), entry("odd", "soon"),
    ] }));
    let patch = approve(&object, &consent("root"), NOON).unwrap();
    assert_eq!(patch["metadata"], json!({ "uid": "u", "resourceVersion": "7" }));
    let written = patched(&object, &patch);
    let roots: Vec<&str> =
        written["spec"]["approved"].as_array().unwrap().iter().filter_map(|entry| entry["rootUID"].as_str()).collect();
    assert_eq!(roots, ["stands", "odd", "root"]);
    let Rule::Approval(approval) = guard(GuardKind::Approval, &written).rule else { panic!("{written}") };
    let last = approval.approved.last().unwrap();
    assert_eq!((last.root.to_string().as_str(), last.digest, last.accepted), ("root", 255, false));
    assert!(last.actor.starts_with("jane") && !last.actor.contains('\n'), "{:?}", last.actor);

    let full: Vec<Value> = (0..100).map(|at| entry(&format!("r{at}"), "2026-01-01T12:30:00Z")).collect();
    let full = self::object(&json!({ "moreThan": 1, "approved": full }));
    let why = approve(&full, &consent("root"), NOON).unwrap_err();
    assert!(why.contains("100 approvals") && why.contains("spec.approved"), "{why}");
    assert!(approve(&full, &consent("r5"), NOON).is_ok(), "it replaces an approval of the same root");
    let unnamed = approve(&json!({ "spec": {} }), &consent("root"), NOON).unwrap_err();
    assert!(unnamed.contains("no uid"), "{unnamed}");
}

#[test]
fn a_bypass_and_a_begin_of_the_window_are_read_again() {
    let uid = Uid::parse("u").unwrap();
    let gate = object(&json!({
        "reason": "why", "stream": {}, "failurePolicy": "Hold", "maxHoldSeconds": 60, "afterMaxHold": "Deny",
    }));
    let bypassed = patched(&gate, &bypass(&uid, HOUR, "it hangs", "jane", NOON).unwrap());
    let Rule::Gate(read) = guard(GuardKind::Gate, &bypassed).rule else { panic!("{bypassed}") };
    assert_eq!(((read.bypass_until - NOON).as_secs(), read.bypass.as_str()), (3590, "jane: it hangs"));
    assert_eq!(patched(&bypassed, &end_bypass(&uid)), gate);
    for (lasts, reason, expected) in [
        (Duration::ZERO, "why", "at most a day"),
        (BYPASS_MAX + Duration::from_secs(1), "why", "at most a day"),
        (HOUR, " ", "needs a reason"),
    ] {
        let why = bypass(&uid, lasts, reason, "jane", NOON).unwrap_err();
        assert!(why.contains(expected), "{why}");
    }
    let budget = object(&json!({ "reason": "why", "maxObjects": 1, "windowSeconds": 60, "onExceeded": "Approve" }));
    let counted = patched(&budget, &count_from(&uid, NOON).unwrap());
    let Rule::Budget(read) = guard(GuardKind::Budget, &counted).rule else { panic!("{counted}") };
    assert_eq!(read.count_from, NOON);
}
