use super::*;
use crate::guard::GuardKind;
use crate::object::ResourceVersion;
use crate::work::{ActionKind, PropagationPolicy};
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

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
        preconditions: Preconditions {
            resource_version: ResourceVersion::parse("1"),
            facts_digest: 0,
            must_be_terminating: false,
        },
        read_first: false,
        destroys: true,
    }
}

impl Queue {
    /// Adds a decision as the leader does.
    fn decide(&mut self, now: Time, draft: Draft, root: Option<Uid>, observe: bool) -> Put {
        let hold = everything(&self.holds, &draft);
        self.put(now, draft, hold, root, observe)
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
        queue.decide(at(0), draft("a", name), None, false);
    }
    for (namespace, name) in [("b", "b1"), ("c", "c1"), ("b", "b2")] {
        queue.decide(at(0), draft(namespace, name), None, false);
    }
    assert_eq!(drain(&mut queue), ["a1", "b1", "c1", "a2", "b2", "a3"]);
    assert!(!queue.has_ready());
}

#[test]
fn in_a_namespace_the_roots_of_cascades_take_turns() {
    let mut queue = Queue::default();
    for (name, root) in [("r1", "r"), ("r2", "r"), ("r3", "r"), ("s1", "s"), ("s2", "s")] {
        queue.decide(at(0), draft("a", name), Some(uid(root)), false);
    }
    queue.decide(at(0), draft("b", "b1"), Some(uid("r")), false);
    queue.decide(at(0), draft("a", "alone"), None, false);
    assert_eq!(drain(&mut queue), ["r1", "b1", "s1", "alone", "r2", "s2", "r3"]);
    assert_eq!(queue.inconsistency(), None);
}

#[test]
fn a_queue_that_empties_keeps_no_more_entries_than_one_that_is_empty() {
    let mut queue = Queue::default();
    let names: Vec<String> = (0..50).map(|number| alloc::format!("x{number}")).collect();
    for _ in 0..22 {
        for name in &names {
            queue.withdraw(&uid(name)).unwrap();
            queue.decide(at(0), draft("a", name), None, false);
        }
    }
    for name in &names {
        queue.withdraw(&uid(name)).unwrap();
        assert_eq!(queue.inconsistency(), None, "after {name}");
    }
}

#[test]
fn decisions_that_come_and_go_leave_nothing_behind_where_nothing_is_granted() {
    let mut queue = Queue::default();
    for round in 0..10_000_u32 {
        let name = alloc::format!("x{}", round % 7);
        queue.decide(at(0), draft(&alloc::format!("ns{}", round % 5), &name), None, false);
        queue.withdraw(&uid(&name)).unwrap();
    }
    assert!(queue.lanes.len() <= LANES_SPARE + 2, "{} entries for no item", queue.lanes.len());
    assert_eq!(queue.inconsistency(), None);
    queue.decide(at(0), draft("a", "x"), None, false);
    assert_eq!(drain(&mut queue), ["x"]);
}

#[test]
fn one_item_per_target_and_a_newer_decision_replaces_it() {
    let mut queue = Queue::default();
    assert_eq!(queue.decide(at(0), draft("a", "x"), None, false), Put::New);
    assert_eq!(queue.decide(at(0), draft("a", "x"), None, false), Put::Same);
    let mut other = draft("a", "x");
    other.action = Action::RemoveFinalizer { finalizer: "orphan".into() };
    assert_eq!(queue.decide(at(0), other.clone(), None, false), Put::Replaced);
    assert_eq!(queue.get(&uid("x")).unwrap().generation, 2);
    assert_eq!(drain(&mut queue), ["x"], "once, however often it was put");
    let lease = LeaseId { term: 1, number: 1 };
    queue.place(&uid("x"), ItemState::Leased(lease));
    assert_eq!(queue.decide(at(0), other, None, false), Put::Same);
    assert_eq!(queue.decide(at(0), draft("a", "x"), None, false), Put::Leased(lease));
    assert_eq!(queue.withdraw(&uid("x")).unwrap_err(), lease);
    assert_eq!((queue.len(), queue.leased()), (1, 1));
    queue.remove(&uid("x"));
    assert_eq!(
        (queue.len(), queue.leased(), queue.waits(Time::ZERO).iter().filter(|waits| waits.items > 0).count()),
        (0, 0, 0)
    );
}

fn webhook() -> (Blocker, Row) {
    let blocker = Blocker::Webhook { name: "w".into() };
    (blocker.clone(), Row::Alone(blocker))
}

fn forbidden(namespace: &str) -> Blocker {
    Blocker::Forbidden {
        collection: draft("a", "x").target.group_resource(),
        namespace: namespace.into(),
        action: ActionKind::Delete,
    }
}

fn forbidden_row() -> Row {
    Row::Forbidden { collection: draft("a", "x").target.group_resource(), action: ActionKind::Delete }
}

const WAIT: Duration = PROBE_EVERY;

#[test]
fn what_stands_behind_a_blocker_shares_one_probe() {
    let mut queue = Queue::default();
    let (blocker, row) = webhook();
    for name in ["x", "y", "z"] {
        queue.decide(at(0), draft("a", name), None, false);
        queue.pop();
    }
    assert_eq!(
        queue.block(at(0), &uid("x"), blocker.clone(), WAIT),
        Some(row.clone()),
        "the first has its probe timed"
    );
    assert_eq!(queue.block(at(0), &uid("y"), blocker.clone(), WAIT), None);
    assert_eq!(queue.block(at(0), &uid("z"), blocker.clone(), WAIT), None);
    assert_eq!(queue.waiting(), 3);
    assert_eq!(queue.probe(&row, at(5)), Some(at(10)));
    assert_eq!(drain(&mut queue), ["x"]);
    let known = queue.block(at(6), &uid("x"), blocker.clone(), WAIT);
    assert_eq!(known, None, "the probe failed, and the next one is timed already");
    assert!(!queue.is_due(&row, at(9)), "a timer of an earlier blocker of that name");
    assert!(queue.is_due(&row, at(10)));
    assert_eq!(queue.probe(&row, at(10)), Some(at(15)));
    assert_eq!(drain(&mut queue), ["y"], "another one: what was refused may have been refused for itself");
    assert_eq!(queue.passed(at(11), &uid("y"), None, true), None, "no other item is in the row");
    queue.remove(&uid("y"));
    assert_eq!(drain(&mut queue), ["x", "z"]);
    assert_eq!((queue.waiting(), queue.len()), (0, 2));
    assert_eq!(queue.probe(&row, at(15)), None, "nothing is left of it");
}

#[test]
fn probes_of_a_blocker_take_turns_by_lane_and_in_a_lane_by_arrival() {
    let mut queue = Queue::default();
    let (blocker, row) = webhook();
    for (namespace, name) in [("a", "a1"), ("a", "a2"), ("z", "z1")] {
        queue.decide(at(0), draft(namespace, name), None, false);
        queue.pop();
        queue.block(at(0), &uid(name), blocker.clone(), WAIT);
    }
    let mut tried = Vec::new();
    for turn in 1..=6 {
        queue.probe(&row, at(5 * turn));
        let probe = queue.pop().unwrap();
        tried.push(alloc::format!("{probe}"));
        queue.block(at(5 * turn + 1), &probe, blocker.clone(), WAIT);
    }
    assert_eq!(tried, ["a1", "z1", "a2", "z1", "a1", "z1"]);
    assert_eq!(queue.inconsistency(), None);
}

#[test]
fn an_item_that_is_refused_where_others_passed_waits_alone() {
    let mut queue = Queue::default();
    let (blocker, row) = (forbidden("a"), forbidden_row());
    for name in ["x", "y", "z"] {
        queue.decide(at(0), draft("a", name), None, false);
    }
    queue.pop();
    assert!(!queue.is_refused_alone(&uid("x"), &blocker, false), "nothing shows that it is about this item");
    queue.block(at(0), &uid("x"), blocker.clone(), WAIT);
    assert_eq!(drain(&mut queue), [] as [&str; 0]);
    queue.probe(&row, at(5));
    assert_eq!(drain(&mut queue), ["x"]);
    queue.block(at(5), &uid("x"), blocker.clone(), WAIT);
    queue.probe(&row, at(10));
    assert_eq!(drain(&mut queue), ["y"]);
    queue.passed(at(10), &uid("y"), None, true);
    queue.remove(&uid("y"));
    assert_eq!(drain(&mut queue), ["x", "z"]);
    assert!(queue.is_refused_alone(&uid("x"), &blocker, false));
    queue.place(&uid("x"), ItemState::Backoff { until: at(20), why: Delay::Refused(blocker.clone()) });
    queue.decide(at(11), draft("a", "w"), None, false);
    assert_eq!(drain(&mut queue), ["w"], "no item waits behind an individual refusal");
    // A rule for one item may come: when one item that waits alone passes, all of them are tried.
    queue.make_ready(&uid("x"));
    queue.decide(at(12), draft("a", "v"), None, false);
    queue.place(&uid("v"), ItemState::Backoff { until: at(20), why: Delay::Refused(blocker.clone()) });
    assert_eq!(drain(&mut queue), ["x"]);
    queue.passed(at(13), &uid("x"), None, true);
    assert_eq!(drain(&mut queue), ["v"]);
    assert_eq!(queue.inconsistency(), None);
}

#[test]
fn items_that_would_meet_a_known_blocker_do_not_try() {
    let mut queue = Queue::default();
    queue.decide(at(0), draft("a", "x"), None, false);
    queue.pop();
    let blocker = Blocker::Throttled { collection: draft("a", "x").target.group_resource() };
    queue.block(at(0), &uid("x"), blocker.clone(), WAIT);
    queue.decide(at(0), draft("b", "y"), None, false);
    assert_eq!(drain(&mut queue), [] as [&str; 0]);
    queue.lift(&blocker);
    assert_eq!(drain(&mut queue), ["x", "y"]);
}

#[test]
fn an_item_that_a_lane_names_twice_waits_once_behind_what_stands_in_its_way() {
    let mut queue = Queue::default();
    queue.decide(at(0), draft("a", "x"), None, false);
    queue.place(&uid("x"), ItemState::Backoff { until: at(1), why: Delay::Failed });
    queue.make_ready(&uid("x"));
    queue.raise(at(1), forbidden("a"));
    assert_eq!(queue.pop(), None);
    assert_eq!((queue.waiting(), queue.inconsistency()), (1, None));
}

#[test]
fn a_probe_that_was_dropped_makes_room_for_the_next() {
    let mut queue = Queue::default();
    let (blocker, row) = webhook();
    for name in ["x", "y"] {
        queue.decide(at(0), draft("a", name), None, false);
        queue.pop();
        queue.block(at(0), &uid(name), blocker.clone(), WAIT);
    }
    queue.probe(&row, at(5));
    queue.remove(&uid("x"));
    assert!(queue.probe(&row, at(10)).is_some());
    assert_eq!(drain(&mut queue), ["y"]);
}

#[test]
fn in_observe_nothing_is_ever_ready() {
    let mut queue = Queue::default();
    queue.decide(at(0), draft("a", "x"), None, true);
    assert_eq!(drain(&mut queue), [] as [&str; 0]);
    assert_eq!((queue.len(), queue.waiting()), (1, 0));
}

#[test]
fn a_probe_that_came_to_nothing_is_not_waited_for() {
    let mut queue = Queue::default();
    let (blocker, row) = (forbidden("a"), forbidden_row());
    queue.decide(at(0), draft("a", "x"), None, false);
    queue.pop();
    queue.block(at(0), &uid("x"), blocker, WAIT);
    queue.probe(&row, at(5));
    assert_eq!(drain(&mut queue), ["x"]);
    // Its lease ended without a report about the blocker.
    queue.make_ready(&uid("x"));
    assert_eq!(drain(&mut queue), [] as [&str; 0]);
    assert!(queue.probe(&row, at(10)).is_some());
    assert_eq!(drain(&mut queue), ["x"]);
    // The same if the item was dropped meanwhile, and another decision about the target replaced it.
    queue.remove(&uid("x"));
    queue.decide(at(12), draft("a", "x"), None, false);
    assert_eq!(drain(&mut queue), [] as [&str; 0]);
    assert!(queue.probe(&row, at(15)).is_some());
    assert_eq!(drain(&mut queue), ["x"]);
}

/// `count` namespaces with one refused item each.
fn refused_everywhere(count: usize) -> Queue {
    let mut queue = Queue::default();
    for number in 0..count {
        let namespace = alloc::format!("ns{number:04}");
        queue.decide(at(0), draft(&namespace, &alloc::format!("x{number:04}")), None, false);
    }
    while let Some(uid) = queue.pop() {
        let namespace = queue.get(&uid).unwrap().draft.target.namespace.clone();
        queue.block(at(0), &uid, forbidden(&namespace), WAIT);
    }
    queue
}

/// The items that tried. Each gets a 403 again.
fn try_in_vain(queue: &mut Queue, now: Time) -> Vec<String> {
    let mut tried = Vec::new();
    while let Some(uid) = queue.pop() {
        let namespace = queue.get(&uid).unwrap().draft.target.namespace.clone();
        queue.block(now, &uid, forbidden(&namespace), WAIT);
        tried.push(alloc::format!("{uid}"));
    }
    tried
}

#[test]
fn an_item_that_moved_while_it_was_blocked_leaves_nothing_behind() {
    let mut queue = Queue::default();
    let (blocker, _) = webhook();
    queue.decide(at(0), draft("a", "x"), None, false);
    queue.pop();
    queue.block(at(0), &uid("x"), blocker.clone(), WAIT);
    // Another node of this uid, in another namespace, with a decision of the same kind.
    queue.decide(at(1), draft("b", "x"), None, false);
    queue.place(&uid("x"), ItemState::Backoff { until: at(2), why: Delay::Failed });
    queue.lift(&blocker);
    assert_eq!(queue.waiting(), 1);
    queue.remove(&uid("x"));
    assert_eq!(queue.waiting(), 0);
}

#[test]
fn what_is_forbidden_everywhere_is_tried_in_one_namespace_after_the_other() {
    let mut queue = refused_everywhere(3);
    let mut tried = Vec::new();
    let mut now = at(5);
    for _ in 0..4 {
        let next = queue.probe(&forbidden_row(), now).unwrap();
        assert_eq!(queue.probe(&forbidden_row(), now), Some(next), "one at a time");
        tried.extend(try_in_vain(&mut queue, now));
        now = next;
    }
    assert_eq!(tried, ["x0000", "x0001", "x0002", "x0000"]);
    assert_eq!(now.since(at(5)), 4 * (PROBE_EVERY / 3), "each namespace as often as if it were alone");
    // At most one a second, for any number.
    let mut queue = refused_everywhere(2000);
    assert_eq!(queue.probe(&forbidden_row(), at(5)), Some(at(6)));
    assert_eq!(try_in_vain(&mut queue, at(5)).len(), 1);
}

#[test]
fn a_rule_that_comes_back_for_all_is_found_in_a_few_steps() {
    let mut queue = refused_everywhere(1000);
    queue.probe(&forbidden_row(), at(5));
    let mut rounds = 0;
    while queue.waiting() > 0 || queue.has_ready() {
        let tried: Vec<Uid> = core::iter::from_fn(|| queue.pop()).collect();
        assert!(!tried.is_empty(), "{} wait for a timer", queue.waiting());
        for uid in tried {
            if let Some(row) = queue.passed(at(5), &uid, None, true) {
                queue.probe(&row, at(5));
            }
            queue.remove(&uid);
        }
        rounds += 1;
    }
    assert!(rounds < 30, "{rounds} round trips");
}

#[test]
fn a_success_says_nothing_of_the_other_namespaces() {
    let mut queue = refused_everywhere(3);
    queue.decide(at(0), draft("ns0000", "y"), None, false);
    queue.probe(&forbidden_row(), at(5));
    let probe = queue.pop().unwrap();
    let row = queue.passed(at(5), &probe, None, true).unwrap();
    queue.remove(&probe);
    queue.probe(&row, at(5));
    assert_eq!(drain(&mut queue), ["y", "x0001", "x0002"], "its own namespace is free, the others have one try each");
    queue.block(at(6), &uid("x0001"), forbidden("ns0001"), WAIT);
    queue.block(at(6), &uid("x0002"), forbidden("ns0002"), WAIT);
    queue.probe(&row, at(10));
    assert_eq!(try_in_vain(&mut queue, at(10)).len(), 1, "a failure ends the hurry");
}

#[test]
fn a_rule_that_changed_has_its_namespace_tried_first() {
    let mut queue = refused_everywhere(100);
    queue.probe(&forbidden_row(), at(5));
    try_in_vain(&mut queue, at(5));
    assert_eq!(queue.rules_changed(at(5), Some(&"ns0070".into())), [], "the next turn is as near as it can be");
    queue.probe(&forbidden_row(), at(6));
    assert_eq!(try_in_vain(&mut queue, at(6)), ["x0070"]);
    let mut alone = refused_everywhere(1);
    assert_eq!(alone.rules_changed(at(1), None), [(forbidden_row(), at(2))]);
    assert_eq!(alone.rules_changed(at(1), Some(&"elsewhere".into())), []);
}

#[test]
fn what_is_let_go_at_a_pace_comes_from_every_namespace_in_turn() {
    let mut queue = Queue::default();
    let blocker = Blocker::Throttled { collection: draft("a", "x").target.group_resource() };
    queue.raise(at(0), blocker.clone());
    for (namespace, name) in [("a", "a1"), ("a", "a2"), ("a", "a3"), ("b", "b1"), ("c", "c1")] {
        queue.decide(at(0), draft(namespace, name), None, false);
    }
    assert_eq!((drain(&mut queue).len(), queue.behind(&blocker)), (0, 5));
    queue.release(&blocker, 2);
    assert_eq!(drain(&mut queue), ["a1", "b1"]);
    queue.release(&blocker, 2);
    assert_eq!(drain(&mut queue), ["c1", "a2"]);
    assert_eq!(queue.behind(&blocker), 1);
    queue.lift(&blocker);
    assert_eq!(drain(&mut queue), ["a3"]);
    assert_eq!(queue.waiting(), 0);
}

/// The hold of an unreadable kind of guards.
fn everything(holds: &Holds, draft: &Draft) -> Option<Hold> {
    holds.blind().filter(|_| draft.destroys)
}

fn pause_everything(queue: &mut Queue) {
    queue.holds.set_unknown(GuardKind::Pause, true);
    queue.rehold(everything);
}

#[test]
fn what_is_held_leaves_its_blocker_to_others() {
    let mut queue = Queue::default();
    let (blocker, row) = webhook();
    for name in ["x", "y", "z"] {
        // `z` is not a deletion, and so never held.
        queue.decide(at(0), Draft { destroys: name != "z", ..draft("a", name) }, None, false);
        queue.pop();
        queue.block(at(0), &uid(name), blocker.clone(), WAIT);
    }
    queue.probe(&row, at(5));
    pause_everything(&mut queue);
    assert_eq!((queue.held(), queue.waiting()), (2, 1), "also the probe, before it has tried");
    assert!(queue.probe(&row, at(10)).is_some());
    assert_eq!(drain(&mut queue), ["z"]);
    queue.block(at(10), &uid("z"), blocker.clone(), WAIT);
    assert_eq!((queue.held(), queue.waiting()), (2, 1));
    // An item in progress meets the blocker, and is held meanwhile.
    queue.decide(at(10), draft("b", "w"), None, false);
    queue.block(at(10), &uid("w"), blocker.clone(), WAIT);
    assert_eq!((queue.held(), queue.waiting()), (3, 1));
    queue.probe(&row, at(15));
    assert_eq!(drain(&mut queue), ["z"]);
    queue.passed(at(15), &uid("z"), None, true);
    queue.remove(&uid("z"));
    queue.holds.set_unknown(GuardKind::Pause, false);
    queue.rehold(everything);
    assert_eq!(drain(&mut queue), ["w", "x", "y"]);
    assert_eq!((queue.held(), queue.waiting()), (0, 0));
}

#[test]
fn a_decision_that_becomes_another_one_is_held_or_released() {
    let mut queue = Queue::default();
    pause_everything(&mut queue);
    let repair =
        Draft { action: Action::RemoveFinalizer { finalizer: "orphan".into() }, destroys: false, ..draft("a", "x") };
    queue.decide(at(0), repair.clone(), None, false);
    assert!(queue.get(&uid("x")).unwrap().state == ItemState::Ready);
    queue.decide(at(0), draft("a", "x"), None, false);
    assert_eq!((queue.held(), drain(&mut queue).len()), (1, 0));
    queue.decide(at(0), repair, None, false);
    assert_eq!((queue.held(), drain(&mut queue)), (0, alloc::vec!["x".into()]));
    queue.place(&uid("x"), ItemState::Backoff { until: at(1), why: Delay::Failed });
    queue.decide(at(0), draft("a", "x"), None, false);
    assert_eq!((queue.held(), drain(&mut queue).len()), (1, 0));
    queue.remove(&uid("x"));
    assert_eq!((queue.held(), queue.len()), (0, 0));
}
