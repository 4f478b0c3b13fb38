use super::*;

fn event(id: &str, uid: &str, phase: Phase, kind: ItemKind, root: &str) -> Record {
    let object = |uid: &str| ObjectRef { kind: "Pod".into(), name: uid.into(), uid: uid.into(), ..Default::default() };
    Record::of(DecisionEvent {
        decision_id: id.into(),
        phase: phase.into(),
        kind: kind.into(),
        target: Some(object(uid)),
        root: Some(object(root)),
        ..Default::default()
    })
}

#[test]
fn a_cascade_is_counted_from_what_is_open_to_what_was_done() {
    let root = ObjectRef { kind: "Deployment".into(), name: "web".into(), uid: "root".into(), ..Default::default() };
    let mut burn = Burn::new(&root, BTreeSet::from(["a".to_owned(), "b".to_owned(), "c".to_owned()]), 0);
    burn.take(event("1", "a", Phase::Proposed, ItemKind::Delete, "root"));
    burn.take(event("2", "b", Phase::Leased, ItemKind::Delete, "root"));
    burn.take(event("3", "x", Phase::Proposed, ItemKind::Delete, "another"));
    burn.take(event("4", "late", Phase::Failed, ItemKind::RemoveOwnerReferences, "root"));
    assert_eq!(burn.line(), "0 deleted, 1 waiting, 1 leased, 1 retrying");
    burn.take(event("1", "a", Phase::Succeeded, ItemKind::Delete, "root"));
    burn.take(event("2", "b", Phase::Superseded, ItemKind::Delete, "root"));
    burn.take(event("4", "late", Phase::Succeeded, ItemKind::RemoveOwnerReferences, "root"));
    assert_eq!((burn.line().as_str(), burn.open.len()), ("1 deleted", 0));
    let told = burn.summary(130);
    insta::assert_snapshot!(told, @r"
    Deployment web and its dependents: 1 deleted, 1 stay without a reference, 1 attempts failed, in 2m10s
    2 dependents stay, or another client deleted them
    ");
    insta::assert_snapshot!(burn.document().item().to_string());
}
