use super::*;
use crate::kubectl::naming::Served;
use proto::graph::v1beta1::{Reason, reason::Code};
use proto::r#type::v1beta1::{GroupResource, ObjectRef, ResponseMeta};

fn object(kind: &str, name: &str) -> ObjectRef {
    let (kind, namespace, name) = (kind.to_owned(), "shop".to_owned(), name.to_owned());
    ObjectRef { kind, namespace, name, ..Default::default() }
}

fn entry(kind: &str, name: &str, effect: Effect, reasons: Vec<Reason>) -> Entry {
    Entry { r#ref: Some(object(kind, name)), effect: effect.into(), step: 0, reasons }
}

fn plan() -> PreviewDeletionResponse {
    let kept = Reason {
        code: Code::SolidOwner.into(),
        related: vec![object("Database", "billing")],
        related_count: 1,
        ..Default::default()
    };
    let waits =
        Reason { code: Code::FinalizerPresent.into(), detail: "backup.example.com/s3".into(), ..Default::default() };
    PreviewDeletionResponse {
        entries: vec![
            entry("Database", "orders", Effect::Delete, vec![]),
            entry("Pod", "orders-0", Effect::Delete, vec![]),
            entry("Pod", "orders-1", Effect::Delete, vec![]),
            entry("Secret", "shared-ca", Effect::ReferenceRemoved, vec![kept]),
            entry("Backup", "nightly", Effect::Waits, vec![waits]),
        ],
        digest: "9f2c41d0a1b2c3d4".to_owned(),
        ..Default::default()
    }
}

/// Guards of all kinds, with their effects on the plan.
fn guards() -> Vec<Guard> {
    let guard = |name: &str, effect: GuardEffect, count, reason: &str| Guard {
        guard: name.to_owned(),
        effect: effect.into(),
        count,
        reason: reason.to_owned(),
        ..Default::default()
    };
    let root = ObjectRef { group: "example.com".into(), resource: "databases".into(), ..object("Database", "orders") };
    let cascade = |name: &str| Guard {
        root: Some(root.clone()),
        cascade_digest: "00000000000000ff".to_owned(),
        ..guard(name, GuardEffect::AwaitsApproval, 12, "look first")
    };
    let until = Some(prost_types::Timestamp { seconds: 3600, nanos: 0 });
    vec![
        Guard { until, ..guard("pauses/deploy", GuardEffect::Held, 1, "one\ntwo") },
        guard("protections/data", GuardEffect::Held, 2, "data stays"),
        Guard { more: true, ..cascade("approvals/claims") },
        cascade("approvals/large"),
        guard("gates/policy", GuardEffect::Asked, 5, "rules"),
        Guard { in_scope_count: 50, ..guard("budgets/calm", GuardEffect::OverBudget, 40, "no surprises") },
    ]
}

fn orders() -> Named {
    let served = Served {
        group: "example.com".into(),
        resource: "databases".into(),
        kind: "Database".into(),
        namespaced: true,
        ..Default::default()
    };
    let found = Found::There { uid: "u".into(), resource_version: "1".into() };
    Named { served, namespace: "shop".into(), name: "orders".into(), found }
}

#[test]
fn a_plan_says_what_goes_what_stays_and_how_to_run_it() {
    let told = text(&plan(), &[orders()], Cascade::Foreground);
    insta::assert_snapshot!(anstream::adapter::strip_str(&told).to_string(), @r"
    PLAN  delete Database shop/orders (foreground)
      delete     3  Pod 2, Database 1
      keep       1  Secret shop/shared-ca  Database shop/billing owns it
      waits      1  Backup shop/nightly  finalizer backup.example.com/s3
    digest 9f2c41d0a1b2c3d4
    ");
    let fields = Schema::load().unwrap().value("PreviewDeletionResponse", &plan()).unwrap();
    let value = Document::new(Kind::DeletionPlan).with_fields(fields).with_incomplete(&[]);
    insta::assert_snapshot!(crate::kubectl::document::json(&value).unwrap());
}

#[test]
fn a_plan_names_the_guards_and_the_command_that_approves_the_cascade() {
    let guarded = PreviewDeletionResponse { guards: guards(), omitted_guards: 3, ..plan() };
    assert_eq!(doubts(&guarded), Vec::<String>::new(), "what may wait is certain");
    let told = format!("{}{}", text(&guarded, &[orders()], Cascade::Foreground), approvals(&guarded));
    insta::assert_snapshot!(anstream::adapter::strip_str(&told).to_string(), @r"
    PLAN  delete Database shop/orders (foreground)
      delete     3  Pod 2, Database 1
      keep       1  Secret shop/shared-ca  Database shop/billing owns it
      waits      1  Backup shop/nightly  finalizer backup.example.com/s3
    guards
      pauses/deploy     holds 1 object, until 1970-01-01T01:00:00Z: one\ntwo
      protections/data  holds 2 objects: data stays
      approvals/claims  holds more than 12 objects until a person approves the cascade: look first
      approvals/large   holds 12 objects until a person approves the cascade: look first
      gates/policy      is asked about 5 objects, and its answer is not known: rules
      budgets/calm      has no room now for 40 objects of 50 in its scope: no surprises
      and 3 more guards
    digest 9f2c41d0a1b2c3d4
    then   ownergraph approve database.example.com/orders -n shop --digest 00000000000000ff
    ");
    let fields = Schema::load().unwrap().value("PreviewDeletionResponse", &guarded).unwrap();
    assert_eq!(fields["guards"][2]["cascadeDigest"], "00000000000000ff");
    assert_eq!(fields["guards"][5]["effect"], "GUARD_EFFECT_OVER_BUDGET");
}

#[test]
fn a_plan_with_held_objects_names_the_commands_that_release_them() {
    let held = |name: &str, code: Code, detail: &str| {
        entry(
            "Pod",
            name,
            Effect::Held,
            vec![Reason { code: code.into(), detail: detail.into(), ..Default::default() }],
        )
    };
    let entries = vec![
        held("a", Code::Protected, "protections/keys: keys stay"),
        held("b", Code::Protected, "protections/keys: keys stay"),
        held("c", Code::HoldAnnotation, ""),
        entry("Pod", "d", Effect::Delete, vec![]),
    ];
    let plan = PreviewDeletionResponse { entries, ..plan() };
    let annotate = "kubectl annotate pod/c -n shop ownergraph.dev/hold-";
    assert_eq!(releases(&plan, &[]), [annotate, "ownergraph release protection/keys"]);
    assert_eq!(held_by(&plan).count(), 3);
}

#[test]
fn whatever_is_not_certain_is_a_doubt() {
    assert_eq!(doubts(&plan()), Vec::<String>::new());
    let pods = GroupResource { group: String::new(), resource: "pods".into() };
    let unsynced = PreviewDeletionResponse {
        meta: Some(ResponseMeta { unsynced: vec![pods.clone()], ..Default::default() }),
        ..plan()
    };
    let undecided = PreviewDeletionResponse { undecided_by: vec![pods], ..plan() };
    let missing = PreviewDeletionResponse { missing_uids: vec!["u".into()], ..plan() };
    let held = PreviewDeletionResponse { entries: vec![entry("Pod", "a", Effect::Held, vec![])], ..plan() };
    let unknown = PreviewDeletionResponse { entries: vec![entry("Pod", "a", Effect::Unknown, vec![])], ..plan() };
    let redacted = PreviewDeletionResponse { redacted_count: 2, ..plan() };
    for doubtful in [unsynced, undecided, missing, held, unknown, redacted] {
        assert_eq!(doubts(&doubtful).len(), 1, "{doubtful:?}");
    }
}
