use super::*;

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
    let told = burn.summary(1);
    insta::assert_snapshot!(told, @r"
    Deployment web and its dependents: 1 deleted, 1 stay without a reference, 1 attempts failed, in 2m10s
    1 dependents stay
    1 went otherwise, or do not depend on it any more
    ");
    insta::assert_snapshot!(burn.document().item().to_string());
}
