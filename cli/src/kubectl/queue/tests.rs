use super::*;
use proto::graph::v1beta1::Reason;
use proto::r#type::v1beta1::ObjectRef;

fn event(kind: &str, namespace: &str, phase: Phase, at: i64, rooted: bool) -> DecisionEvent {
    let object = |kind: &str, name: &str| ObjectRef {
        kind: kind.into(),
        namespace: namespace.into(),
        name: name.into(),
        ..Default::default()
    };
    DecisionEvent {
        phase: phase.into(),
        target: Some(object(kind, "a")),
        root: rooted.then(|| object("Deployment", "web")),
        event_time: Some(prost_types::Timestamp { seconds: at, nanos: 0 }),
        ..Default::default()
    }
}

#[test]
fn open_decisions_are_counted_by_kind_namespace_and_root() {
    let open = [
        event("Pod", "shop", Phase::Proposed, 40, true),
        event("Pod", "shop", Phase::Leased, 90, true),
        event("Pod", "shop", Phase::Held, 10, false),
        event("Secret", "bank", Phase::Failed, 100, false),
        event("Node", "", Phase::Parked, 100, false),
    ];
    let told = |by| anstream::adapter::strip_str(&table(&open, by, 100)).to_string();
    insta::assert_snapshot!(told(Group::Kind), @r"
    KIND    WAITING  HELD  LEASED  RETRYING  PARKED  OLDEST
    Pod     1        1     1       -         -       90s
    Node    -        -     -       -         1       0s
    Secret  -        -     -       1         -       0s
    ");
    insta::assert_snapshot!(told(Group::Namespace), @r"
    NAMESPACE  WAITING  HELD  LEASED  RETRYING  PARKED  OLDEST
    shop       1        1     1       -         -       90s
    (cluster)  -        -     -       -         1       0s
    bank       -        -     -       1         -       0s
    ");
    insta::assert_snapshot!(told(Group::Root), @r"
    ROOT                 WAITING  HELD  LEASED  RETRYING  PARKED  OLDEST
    (no deletion)        -        1     -       1         1       90s
    Deployment shop/web  1        -     1       -         -       60s
    ");
}

#[test]
fn guards_are_named_with_the_command_that_releases_them() {
    let found = |code: Code, detail: &str| Stuck {
        reasons: vec![Reason { code: code.into(), detail: detail.to_owned(), ..Reason::default() }],
        ..Stuck::default()
    };
    let stuck = [
        found(Code::Protected, "protections/keep: dear"),
        found(Code::AwaitingApproval, "approvals/big: large (the cascade is being counted)"),
        found(Code::Protected, "protections/keep: dear"),
        found(Code::HoldAnnotation, "ownergraph.dev/hold"),
        found(Code::FinalizerPresent, "a/b: c"),
    ];
    let expected = [
        "1 object is held by approvals/big; release: ownergraph approve",
        "2 objects are held by protections/keep; release: ownergraph release protection/keep",
    ];
    assert_eq!(held_by(&stuck, &[]), expected);
}

#[test]
fn the_document_keeps_its_fields() {
    let value = document(&[event("Pod", "shop", Phase::Leased, 0, true)], Group::Root).with_incomplete(&[]);
    insta::assert_snapshot!(crate::kubectl::document::yaml(&value).unwrap());
}
