use super::*;
use crate::work::PropagationPolicy;

fn uid(text: &str) -> Uid {
    Uid::parse(text).unwrap()
}

fn draft(namespace: &str, name: &str) -> Draft {
    Draft {
        target: ObjectRef {
            group: "".into(),
            version: "v1".into(),
            resource: "configmaps".into(),
            kind: "ConfigMap".into(),
            namespace: namespace.into(),
            name: name.into(),
            uid: uid(name),
        },
        action: Action::Delete { propagation_policy: PropagationPolicy::Background, owner_checks: Vec::new() },
        preconditions: None,
        read_first: false,
    }
}

fn drain(queue: &mut Queue) -> Vec<String> {
    core::iter::from_fn(|| queue.pop()).map(|uid| alloc::format!("{uid}")).collect()
}

fn at(seconds: u64) -> Time {
    Time::from_origin(Duration::from_secs(seconds))
}

#[test]
fn namespaces_take_turns() {
    let mut queue = Queue::default();
    for name in ["a1", "a2", "a3"] {
        queue.put(at(0), draft("a", name), false);
    }
    for (namespace, name) in [("b", "b1"), ("c", "c1"), ("b", "b2")] {
        queue.put(at(0), draft(namespace, name), false);
    }
    assert_eq!(drain(&mut queue), ["a1", "b1", "c1", "a2", "b2", "a3"]);
    assert!(!queue.has_ready());
}

#[test]
fn one_item_per_target_and_a_newer_decision_replaces_it() {
    let mut queue = Queue::default();
    assert_eq!(queue.put(at(0), draft("a", "x"), false), Put::New);
    assert_eq!(queue.put(at(0), draft("a", "x"), false), Put::Same);
    let mut other = draft("a", "x");
    other.action = Action::RemoveFinalizer { finalizer: "orphan".into() };
    assert_eq!(queue.put(at(0), other.clone(), false), Put::Replaced);
    assert_eq!(queue.get(&uid("x")).unwrap().generation, 2);
    assert_eq!(drain(&mut queue), ["x"], "once, however often it was put");
    let lease = LeaseId { term: 1, number: 1 };
    queue.place(&uid("x"), Place::Leased(lease));
    assert_eq!(queue.put(at(0), other, false), Put::Same);
    assert_eq!(queue.put(at(0), draft("a", "x"), false), Put::Leased(lease));
    assert_eq!(queue.withdraw(&uid("x")).unwrap_err(), lease);
    assert_eq!((queue.len(), queue.leased()), (1, 1));
    queue.remove(&uid("x"));
    assert_eq!((queue.len(), queue.leased(), queue.oldest()), (0, 0, None));
}

#[test]
fn what_stands_behind_a_blocker_shares_one_probe() {
    let mut queue = Queue::default();
    let blocker = Blocker::Webhook { name: "w".into() };
    for name in ["x", "y", "z"] {
        queue.put(at(0), draft("a", name), false);
        queue.pop();
    }
    assert!(queue.block(&uid("x"), blocker.clone(), at(5)), "the first has its probe timed");
    assert!(!queue.block(&uid("y"), blocker.clone(), at(5)));
    assert!(!queue.block(&uid("z"), blocker.clone(), at(5)));
    assert_eq!(queue.waiting(), 3);
    assert!(queue.probe(&blocker, at(10)));
    assert_eq!(drain(&mut queue), ["x"]);
    assert!(!queue.block(&uid("x"), blocker.clone(), at(11)), "the probe failed, and the next one is timed already");
    assert!(!queue.is_due(&blocker, at(9)), "a timer of an earlier blocker of that name");
    assert!(queue.is_due(&blocker, at(10)));
    assert!(queue.probe(&blocker, at(10)));
    assert_eq!(drain(&mut queue), ["x"]);
    queue.remove(&uid("x"));
    queue.passed(&uid("x"), None);
    assert_eq!(drain(&mut queue), ["y", "z"]);
    assert_eq!((queue.waiting(), queue.len()), (0, 2));
    assert!(!queue.probe(&blocker, at(10)), "nothing is left of it");
}

#[test]
fn items_that_would_meet_a_known_blocker_do_not_try() {
    let mut queue = Queue::default();
    queue.put(at(0), draft("a", "x"), false);
    queue.pop();
    let blocker = Blocker::Throttled { collection: draft("a", "x").target.group_resource() };
    queue.block(&uid("x"), blocker.clone(), at(5));
    queue.put(at(0), draft("b", "y"), false);
    assert_eq!(drain(&mut queue), [] as [&str; 0]);
    queue.lift(&blocker);
    assert_eq!(drain(&mut queue), ["x", "y"]);
}

#[test]
fn a_probe_that_was_dropped_makes_room_for_the_next() {
    let mut queue = Queue::default();
    let blocker = Blocker::Webhook { name: "w".into() };
    for name in ["x", "y"] {
        queue.put(at(0), draft("a", name), false);
        queue.pop();
        queue.block(&uid(name), blocker.clone(), at(5));
    }
    queue.probe(&blocker, at(10));
    queue.remove(&uid("x"));
    assert!(queue.probe(&blocker, at(10)));
    assert_eq!(drain(&mut queue), ["y"]);
}

#[test]
fn in_observe_nothing_is_ever_ready() {
    let mut queue = Queue::default();
    queue.put(at(0), draft("a", "x"), true);
    assert_eq!(drain(&mut queue), [] as [&str; 0]);
    assert_eq!((queue.len(), queue.waiting()), (1, 0));
}

#[test]
fn a_probe_that_came_to_nothing_is_not_waited_for() {
    let mut queue = Queue::default();
    let blocker = Blocker::Forbidden {
        collection: draft("a", "x").target.group_resource(),
        namespace: "a".into(),
        action: ActionKind::Delete,
    };
    queue.put(at(0), draft("a", "x"), false);
    queue.pop();
    queue.block(&uid("x"), blocker.clone(), at(5));
    queue.probe(&blocker, at(10));
    assert_eq!(drain(&mut queue), ["x"]);
    // Its lease ended without a report that says anything about the blocker.
    queue.make_ready(&uid("x"));
    assert_eq!(drain(&mut queue), [] as [&str; 0]);
    assert!(queue.probe(&blocker, at(15)));
    assert_eq!(drain(&mut queue), ["x"]);
    // The same where the item was dropped meanwhile and another decision about the same target took its place.
    queue.remove(&uid("x"));
    queue.put(at(12), draft("a", "x"), false);
    assert_eq!(drain(&mut queue), [] as [&str; 0]);
    assert!(queue.probe(&blocker, at(20)));
    assert_eq!(drain(&mut queue), ["x"]);
}
