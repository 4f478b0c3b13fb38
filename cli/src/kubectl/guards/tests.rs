use super::*;
use engine::guard::GuardKind;
use proto::admin::v1beta1::cascade::Total;
use proto::admin::v1beta1::guard::Kind;
use proto::admin::v1beta1::{ApprovalUsage, BudgetUsage};
use proto::r#type::v1beta1::GroupResource;

/// A cascade of a Deployment.
pub(super) fn cascade(name: &str, uid: &str, digest: &str) -> Cascade {
    let total = |resource: &str, count| Total {
        resource: Some(GroupResource { group: String::new(), resource: resource.to_owned() }),
        count,
    };
    let root = ObjectRef {
        group: "apps".to_owned(),
        resource: "deployments".to_owned(),
        kind: "Deployment".to_owned(),
        namespace: "shop".to_owned(),
        name: name.to_owned(),
        uid: uid.to_owned(),
        ..ObjectRef::default()
    };
    Cascade {
        root: Some(root),
        objects: 12,
        totals: vec![total("persistentvolumeclaims", 4), total("pods", 8)],
        digest: digest.to_owned(),
        complete: true,
    }
}

fn guard(name: &str, approval: Option<ApprovalUsage>) -> Guard {
    Guard {
        name: name.to_owned(),
        kind: Kind::Approval.into(),
        reason: "large".to_owned(),
        approval,
        ..Guard::default()
    }
}

/// Two Approvals that wait for one cascade, and further cascades.
pub(super) fn approvals() -> Vec<Guard> {
    let db = || cascade("db", "u-db", "00000000000000ff");
    let twice =
        |at: u32| Cascade { complete: false, ..cascade("twice", &format!("u-twice-{at}"), &format!("{at:016x}")) };
    let accepted = vec![cascade("old", "u-old", "0000000000000003")];
    vec![
        guard("approvals/large", Some(ApprovalUsage { waiting: vec![db(), twice(1), twice(2)], accepted })),
        guard("approvals/claims", Some(ApprovalUsage { waiting: vec![db()], accepted: vec![] })),
        Guard {
            expired: true,
            ..guard(
                "approvals/ended",
                Some(ApprovalUsage { waiting: vec![cascade("gone", "g", "04")], accepted: vec![] }),
            )
        },
    ]
}

#[test]
fn a_guard_is_named_as_kubectl_names_it() {
    for word in ["pause/a", "pauses/a", "ogp/a", "Pauses.ownergraph.dev/a"] {
        assert_eq!(guard_id(word), Some(GuardId { kind: GuardKind::Pause, name: "a".into() }), "{word}");
    }
    for word in ["", "/", "pause", "pod/a", "pauses.example.com/a", "pause-1"] {
        assert_eq!(guard_id(word), None, "{word}");
    }
}

#[test]
fn the_definitions_have_the_short_names() {
    for kind in GuardKind::ALL {
        let path = format!("{}/../deploy/crds/{}.yaml", env!("CARGO_MANIFEST_DIR"), kind.plural());
        let definition = std::fs::read_to_string(path).unwrap();
        assert!(definition.contains(&format!("shortNames: [{}]", short(kind))), "{kind:?}: {definition}");
    }
}

#[test]
fn each_hold_ends_by_a_command() {
    let pod = ObjectRef { kind: "Pod".into(), namespace: "shop".into(), name: "web".into(), ..ObjectRef::default() };
    let node = ObjectRef { kind: "Node".into(), name: "n 1".into(), ..ObjectRef::default() };
    let command = |code: Code, detail: &str, object: &ObjectRef| {
        let reason = Reason { code: code.into(), detail: detail.to_owned(), ..Reason::default() };
        release_command(&reason, object, &waiting(&approvals()))
    };
    for (code, detail, expected) in [
        (Code::Paused, "pauses/freeze: restore", Some("ownergraph release pause/freeze")),
        (Code::Protected, "protections/keep: it: is dear", Some("ownergraph release protection/keep")),
        (Code::OverBudget, "budgets/few: calm (9 deletions in its window)", Some("ownergraph release budget/few")),
        (
            Code::Gated,
            "gates/opa: ask (denied)",
            Some("ownergraph release gate/opa --for 10m --reason 'released by hand'"),
        ),
        (
            Code::AwaitingApproval,
            "approvals/large: big (Deployment shop/db takes 12 objects, digest 00000000000000ff)",
            Some("ownergraph approve deployment.apps/db -n shop --digest 00000000000000ff"),
        ),
        (Code::AwaitingApproval, "approvals/large: big (the cascade is being counted)", Some("ownergraph approve")),
        (Code::Protected, "protections/$(rm a): x", Some("ownergraph release 'protection/$(rm a)'")),
        (Code::HoldAnnotation, "ownergraph.dev/hold", Some("kubectl annotate pod/web -n shop ownergraph.dev/hold-")),
        (Code::Paused, "cannot read Pause objects: no answer", None),
        (Code::OverBudget, "the breaker: many pods lost their owners", None),
        (Code::SolidOwner, "pauses/a: b", None),
    ] {
        assert_eq!(command(code, detail, &pod).as_deref(), expected, "{detail}");
    }
    let told = command(Code::HoldAnnotation, "ownergraph.dev/hold", &node);
    assert_eq!(told.as_deref(), Some("kubectl annotate 'node/n 1' ownergraph.dev/hold-"));
}

#[test]
fn guards_stand_in_columns_with_what_is_wrong() {
    let mut guards = approvals();
    guards.push(Guard {
        name: "protections/keep".to_owned(),
        scope: "pods in shop".to_owned(),
        reason: "one\ntwo".to_owned(),
        actor: "jane".to_owned(),
        expire_time: Some(prost_types::Timestamp { seconds: 3600, nanos: 0 }),
        effective: true,
        held_items: 7,
        problem: "spec.scope.targets[0].foo: unknown field".to_owned(),
        ..Guard::default()
    });
    guards.push(Guard {
        name: "budgets/few".to_owned(),
        budget: Some(BudgetUsage { spent: 9, exceeded: true }),
        pending: "executors of an earlier leader may not know the guard".to_owned(),
        ..Guard::default()
    });
    let table = anstream::adapter::strip_str(&table(&guards)).to_string();
    insta::assert_snapshot!(format!("{table}\n{}", remarks(&guards).join("\n")));
}
