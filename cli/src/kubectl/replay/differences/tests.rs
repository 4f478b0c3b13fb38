use super::*;
use proto::graph::v1beta1::reason::Code;
use proto::graph::v1beta1::{Edge, OwnerStanding, Reason};

fn object(kind: &str, name: &str) -> ObjectRef {
    ObjectRef { kind: kind.into(), namespace: "shop".into(), name: name.into(), uid: name.into(), ..Default::default() }
}

/// The decision to delete a pod, whose owner is gone.
fn event(id: u64, name: &str) -> DecisionEvent {
    let owner = object("ReplicaSet", "web");
    let code = Code::OwnersAbsent.into();
    let reason = Reason { code, related: vec![owner.clone()], related_count: 1, ..Default::default() };
    DecisionEvent {
        decision_id: proto::convert::decision_id(id),
        phase: Phase::Proposed.into(),
        kind: ItemKind::Delete.into(),
        propagation_policy: PropagationPolicy::Background.into(),
        event_time: Some(prost_types::Timestamp { seconds: 1, nanos: 0 }),
        target: Some(object("Pod", name)),
        reasons: vec![reason],
        owners: vec![Edge { owner: Some(owner), standing: OwnerStanding::Dangling.into(), ..Default::default() }],
        owner_count: 1,
        ..Default::default()
    }
}

fn explained(differences: Differences) -> Explained {
    differences.explained(None, || panic!("a second replay explains only what the file has")).unwrap()
}

#[test]
fn a_decision_of_this_version_alone_has_its_reasons_and_owners() {
    let mut differences = Differences::default();
    differences.take(&event(1, "a"));
    let explained = explained(differences);
    let text = "0 decisions in both
only here: delete (background) Pod shop/a at 1970-01-01T00:00:01Z
      because  ReplicaSet shop/web is gone
      owner    ReplicaSet shop/web (dangling)
";
    assert_eq!(explained.text(Path::new("other")), text);
    let value = explained.document(&Schema::load().unwrap()).unwrap().with_incomplete(&[]);
    let event = &value["onlyHere"][0]["event"];
    assert_eq!(event["reasons"][0]["related"][0]["name"], "web", "{value}");
    assert_eq!(event["owners"][0]["owner"]["name"], "web", "{value}");
}

#[test]
fn as_many_decisions_are_explained_as_are_listed() {
    let mut differences = Differences::default();
    let decided = LISTED_MAX as u64 + 50;
    // The order of the ids is another one than that of the replay.
    (0..decided).rev().for_each(|id| differences.take(&event(id, &format!("pod-{id}"))));
    differences.take(&event(0, "pod-0"));
    let text = explained(differences).text(Path::new("other"));
    assert_eq!(text.matches("only here: delete").count(), LISTED_MAX, "{text}");
    assert_eq!(text.matches("because").count(), LISTED_MAX, "{text}");
    assert!(text.ends_with("only here: 50 more\n"), "{text}");
}
