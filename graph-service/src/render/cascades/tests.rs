use super::*;
use engine::guard::{GuardId, GuardKind, HeldBy};
use engine::leader::{AttemptEnd, Cause};
use engine::object::ResourceVersion;
use engine::work::Term;

fn object(resource: &str, name: &str) -> ObjectRef {
    ObjectRef {
        group: "".into(),
        version: "v1".into(),
        resource: resource.into(),
        kind: resource.into(),
        namespace: "shop".into(),
        name: name.into(),
        uid: Uid::parse(name).unwrap(),
    }
}

fn grounds(root: Option<&str>) -> Box<Grounds> {
    let chain = root.map(|name| object("things", name)).into_iter().collect();
    Box::new(Grounds { chain, ..*Grounds::unknown(1) })
}

fn decided(name: &str, root: &str, action: ActionKind) -> Event {
    Event::Decided {
        item: 1,
        generation: 1,
        target: object("pods", name),
        action,
        causes: vec![Cause::NoDependents],
        grounds: Some(grounds(Some(root))),
        repeated: false,
    }
}

fn attempted(target: ObjectRef, root: &str, action: ActionKind, outcome: Outcome) -> Event {
    Event::Attempted {
        item: 1,
        age: Duration::ZERO,
        end: AttemptEnd {
            target,
            action,
            outcome,
            executor: "e".into(),
            http_status: 200,
            message: String::new(),
            audit_id: String::new(),
            api_calls: 1,
            attempt: 1,
            grounds: grounds(Some(root)),
        },
    }
}

fn confirmed(name: &str) -> Event {
    Event::Confirmed { target: object("pods", name), resource_version: None, grounds: grounds(None) }
}

fn withdrawn(name: &str, replaced: bool) -> Event {
    let (target, action) = (object("pods", name), ActionKind::Delete);
    Event::Withdrawn { item: 1, target, action, replaced, grounds: grounds(None) }
}

fn held(name: &str, by: Option<&str>) -> Event {
    let id = |name: &str| HeldBy::Guard(GuardId { kind: GuardKind::Budget, name: name.into() });
    let (target, action) = (object("pods", name), ActionKind::Delete);
    Event::Held { target, action, by: by.map(id), grounds: grounds(None) }
}

fn deleted(cascades: &mut Cascades, name: &str, root: &str) {
    cascades.follow(&decided(name, root, ActionKind::Delete));
    cascades.follow(&attempted(object("pods", name), root, ActionKind::Delete, Outcome::Done));
    cascades.follow(&confirmed(name));
}

#[tokio::test(start_paused = true)]
async fn a_cascade_ends_without_the_objects_that_stay() {
    let mut cascades = Cascades::default();
    for name in ["a", "b"] {
        deleted(&mut cascades, name, "root");
    }
    let protection = HeldBy::Guard(GuardId { kind: GuardKind::Protection, name: "keep".into() });
    for (name, by) in [("c", HeldBy::Annotation), ("d", protection)] {
        cascades.follow(&decided(name, "root", ActionKind::Delete));
        let (target, action) = (object("pods", name), ActionKind::Delete);
        cascades.follow(&Event::Held { target, action, by: Some(by), grounds: grounds(None) });
    }
    let told = finished(&mut cascades, 30).await;
    assert_eq!(told.len(), 1);
    assert!(told[0].contains("2 objects held by a protection, an annotation or an invalid reference"), "{told:?}");
}

async fn finished(cascades: &mut Cascades, after: u64) -> Vec<String> {
    tokio::time::advance(Duration::from_secs(after)).await;
    cascades.finished().0.into_iter().map(|about| format!("{}: {}", about.object.name, about.message)).collect()
}

const NONE: [&str; 0] = [];

#[tokio::test(start_paused = true)]
async fn a_finished_cascade_has_one_event_on_its_root() {
    let mut cascades = Cascades::default();
    for name in ["a", "b", "c"] {
        cascades.follow(&decided(name, "root", ActionKind::Delete));
    }
    assert_eq!(finished(&mut cascades, 3600).await, NONE, "its decisions are open");
    cascades.follow(&held("a", Some("calm")));
    cascades.follow(&held("a", Some("other")));
    cascades.follow(&held("a", None));
    cascades.follow(&attempted(object("pods", "a"), "root", ActionKind::Delete, Outcome::Forbidden));
    for name in ["a", "b", "c"] {
        let target = object(if name == "c" { "secrets" } else { "pods" }, name);
        cascades.follow(&attempted(target, "root", ActionKind::Delete, Outcome::Done));
    }
    for name in ["a", "b"] {
        cascades.follow(&confirmed(name));
    }
    assert_eq!(finished(&mut cascades, 30).await, NONE, "one of the objects is there");
    let finalizers = vec!["example.com/wait".into()];
    cascades.follow(&Event::AwaitingFinalizers {
        target: object("pods", "c"),
        resource_version: ResourceVersion::parse("7"),
        finalizers,
        grounds: grounds(None),
    });
    assert_eq!(finished(&mut cascades, 9).await, NONE, "the next level may follow");
    tokio::time::advance(Duration::from_secs(2)).await;
    let (abouts, dropped) = cascades.finished();
    let [about] = abouts.as_slice() else { panic!("{abouts:?}") };
    assert_eq!(
        (about.object.clone(), about.reason, about.is_warning),
        (object("things", "root"), "CascadeCollected", false)
    );
    let text = "Collected 3 objects in 3630 s: pods 2, secrets 1; 1 object waited for finalizers of other controllers; \
        1 object waited for guards; 1 attempt failed";
    assert_eq!((about.message.as_str(), dropped), (text, 0));
    assert_eq!(finished(&mut cascades, 3600).await, NONE, "once");
}

#[tokio::test(start_paused = true)]
async fn the_levels_of_a_cascade_are_one_cascade() {
    let mut cascades = Cascades::default();
    for (at, name) in ["a", "b", "c"].iter().enumerate() {
        deleted(&mut cascades, name, "root");
        assert_eq!(finished(&mut cascades, 8).await, NONE, "level {at}");
    }
    assert_eq!(finished(&mut cascades, 8).await, ["root: Collected 3 objects in 16 s: pods 3"]);
    deleted(&mut cascades, "d", "root");
    deleted(&mut cascades, "e", "root");
    assert_eq!(
        finished(&mut cascades, 30).await,
        ["root: Collected 2 objects in 0 s: pods 2"],
        "what follows counts anew"
    );
}

#[tokio::test(start_paused = true)]
async fn small_cascades_and_decisions_without_effect_have_no_event() {
    let mut cascades = Cascades::default();
    deleted(&mut cascades, "a", "one");
    for name in ["b", "c"] {
        cascades.follow(&decided(name, "none", ActionKind::Delete));
        cascades.follow(&withdrawn(name, false));
    }
    for name in ["d", "e"] {
        cascades.follow(&decided(name, "others", ActionKind::Delete));
        cascades.follow(&attempted(object("pods", name), "others", ActionKind::Delete, Outcome::Gone));
    }
    for name in ["f", "g"] {
        let mut itself = decided(name, name, ActionKind::Delete);
        if let Event::Decided { grounds, .. } = &mut itself {
            *grounds = None;
        }
        cascades.follow(&itself);
    }
    assert_eq!(finished(&mut cascades, 3600).await, NONE);
    assert_eq!((cascades.followed.len(), cascades.by_root.len(), cascades.open.len()), (0, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn orphaned_objects_count_and_a_replaced_decision_is_one() {
    let mut cascades = Cascades::default();
    for name in ["a", "b"] {
        cascades.follow(&decided(name, "root", ActionKind::Delete));
        cascades.follow(&withdrawn(name, true));
        let action = ActionKind::RemoveOwnerReferences;
        cascades.follow(&decided(name, "root", action));
        cascades.follow(&attempted(object("pods", name), "root", action, Outcome::Done));
    }
    let text = "root: Collected 0 objects in 0 s; 2 objects lost the reference to an owner that orphans its dependents";
    assert_eq!(finished(&mut cascades, 30).await, [text]);
}

#[tokio::test(start_paused = true)]
async fn only_the_leader_follows_cascades() {
    let mut cascades = Cascades::default();
    cascades.follow(&decided("a", "root", ActionKind::Delete));
    cascades.follow(&Event::TermLost);
    cascades.follow(&attempted(object("pods", "a"), "root", ActionKind::Delete, Outcome::Done));
    assert_eq!(finished(&mut cascades, 3600).await, NONE);
    cascades.follow(&Event::TermGained(Term { election: "e".into(), number: 2 }));
    for name in ["b", "c"] {
        deleted(&mut cascades, name, "root");
    }
    assert_eq!(finished(&mut cascades, 30).await, ["root: Collected 2 objects in 0 s: pods 2"], "from this term on");
}

#[tokio::test(start_paused = true)]
async fn a_further_root_takes_the_place_of_the_oldest() {
    let mut cascades = Cascades::default();
    for name in ["a", "b"] {
        deleted(&mut cascades, name, "done");
    }
    cascades.follow(&decided("c", "open", ActionKind::Delete));
    for number in 0..ROOTS_MAX {
        cascades.follow(&decided(&format!("x{number}"), &format!("root-{number}"), ActionKind::Delete));
    }
    assert_eq!((cascades.followed.len(), cascades.by_root.len()), (ROOTS_MAX, ROOTS_MAX));
    let (abouts, dropped) = cascades.finished();
    assert_eq!((abouts.len(), dropped), (1, 1), "one was finished before its time, and one was open");
    // The end of a decision of the dropped cascade is none of the new one.
    cascades.follow(&decided("d", "open", ActionKind::Delete));
    cascades.follow(&confirmed("c"));
    assert!(cascades.followed.values().all(|cascade| cascade.open == 1));
}

#[tokio::test(start_paused = true)]
async fn decisions_beyond_the_bound_are_counted_when_they_end() {
    let mut cascades = Cascades::default();
    for number in 0..=OPEN_MAX {
        cascades.follow(&decided(&format!("x{number}"), "root", ActionKind::Delete));
    }
    assert_eq!(cascades.open.len(), OPEN_MAX);
    for number in 0..=OPEN_MAX {
        let target = object("pods", &format!("x{number}"));
        cascades.follow(&attempted(target, "root", ActionKind::Delete, Outcome::Done));
    }
    assert_eq!(finished(&mut cascades, 30).await, NONE);
    assert_eq!(finished(&mut cascades, 31).await, ["root: Collected 100001 objects in 0 s: pods 100001"]);
}

#[tokio::test(start_paused = true)]
async fn many_collections_are_told_together() {
    let mut cascades = Cascades::default();
    for number in 0..COLLECTIONS_MAX + 5 {
        let name = format!("x{number}");
        cascades.follow(&decided(&name, "root", ActionKind::Delete));
        let target = ObjectRef { resource: format!("r{number}").into(), ..object("pods", &name) };
        cascades.follow(&attempted(target, "root", ActionKind::Delete, Outcome::Done));
        cascades.follow(&confirmed(&name));
    }
    let told = finished(&mut cascades, 30).await;
    assert!(told[0].ends_with(", others 5"), "{told:?}");
}
