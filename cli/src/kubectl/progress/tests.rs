use super::*;
use crate::kubectl::questions::Found;

/// The first event is at second 0, the fourth 130 s after it.
fn event(id: &str, uid: &str, phase: Phase, kind: ItemKind, root: &str) -> Record {
    let seconds = if id == "4" { 130 } else { 0 };
    let object = |uid: &str| ObjectRef { kind: "Pod".into(), name: uid.into(), uid: uid.into(), ..Default::default() };
    Record::of(DecisionEvent {
        decision_id: id.into(),
        phase: phase.into(),
        kind: kind.into(),
        target: Some(object(uid)),
        root: Some(object(root)),
        event_time: Some(prost_types::Timestamp { seconds, nanos: 0 }),
        ..Default::default()
    })
}

#[test]
fn a_cascade_is_counted_from_what_is_open_to_what_was_done() {
    let root = ObjectRef { kind: "Deployment".into(), name: "web".into(), uid: "root".into(), ..Default::default() };
    let mut burn = Burn::new(&root, BTreeSet::from(["a".to_owned(), "b".to_owned(), "c".to_owned()]));
    let began = Instant::now();
    burn.begin(began);
    burn.take(event("1", "a", Phase::Proposed, ItemKind::Delete, "root"));
    burn.take(event("2", "b", Phase::Leased, ItemKind::Delete, "root"));
    burn.take(event("3", "x", Phase::Proposed, ItemKind::Delete, "another"));
    burn.take(event("4", "late", Phase::Failed, ItemKind::RemoveOwnerReferences, "root"));
    assert_eq!(burn.line(), "0 of 3 deleted, 1 waiting, 1 leased, 1 retrying");
    assert_eq!(burn.pace(began + Duration::from_secs(2)), "", "no pace without a deletion");
    burn.take(event("1", "a", Phase::Succeeded, ItemKind::Delete, "root"));
    burn.take(event("2", "b", Phase::Superseded, ItemKind::Delete, "root"));
    burn.take(event("4", "late", Phase::Succeeded, ItemKind::RemoveOwnerReferences, "root"));
    assert_eq!((burn.line().as_str(), burn.open.len()), ("1 of 3 deleted", 0));
    assert_eq!(burn.pace(began + Duration::from_secs(2)), ", 0/s, about 4s left");
    insta::assert_snapshot!(burn.summary(), @r"
    Deployment web and its dependents: 1 of 3 deleted, 1 stays without a reference, 1 attempt failed, in 2m10s
    2 went otherwise, or do not depend on it any more
    ");
    insta::assert_snapshot!(burn.document().item().to_string());
}

#[test]
fn a_deleted_object_that_is_still_there_is_left() {
    let root = ObjectRef { kind: "Deployment".into(), name: "web".into(), uid: "root".into(), ..Default::default() };
    let mut burn = Burn::new(&root, BTreeSet::from(["a".to_owned(), "b".to_owned()]));
    for uid in ["a", "b"] {
        burn.take(event(uid, uid, Phase::Succeeded, ItemKind::Delete, "root"));
    }
    burn.take(event("c", "freed", Phase::Succeeded, ItemKind::RemoveOwnerReferences, "root"));
    assert_eq!(burn.line(), "2 of 2 deleted");
    let of = |(uid, state): (&str, NodeState)| {
        let object = ObjectRef {
            kind: "Pod".into(),
            namespace: "shop".into(),
            name: uid.into(),
            uid: uid.into(),
            ..Default::default()
        };
        let node = Node { r#ref: Some(object), state: state.into(), ..Default::default() };
        Found { node, depth: 1, edges: vec![] }
    };
    let found = [
        ("kept", NodeState::Live),
        ("a", NodeState::Terminating),
        ("gone", NodeState::Gone),
        ("freed", NodeState::Live),
    ];
    burn.look(&Walked { found: found.map(of).into(), ..Default::default() });
    insta::assert_snapshot!(burn.summary(), @r"
    Deployment web and its dependents: 1 of 3 deleted, 1 terminating, 1 stays without a reference, in 0s
    1 stays without being deleted
    for the reason, run ownergraph why pod/a -n shop
    ");
    let told = burn.document().item();
    assert_eq!((&told["left"], &told["terminating"], &told["deleted"]), (&2.into(), &1.into(), &1.into()));
}
