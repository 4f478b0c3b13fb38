use super::end::{Change, End, Held, Owner, State};
use super::execute::{Course, Writes};
use super::generate;
use super::judge::{Judgement, judge};
use super::law::breaches;
use super::world::{Flaw, Kind, Object, Operation, Program, Reference, Step};

/// ConfigMap 1 is owned by ConfigMap 0.
fn family() -> Program {
    let object = |name: &str| Object { kind: Kind::ConfigMap, namespace: Some("a".to_owned()), name: name.to_owned() };
    let reference = Reference { owner: 0, flaw: Flaw::None, blocking: Some(true) };
    let create =
        |slot, references| Step { operation: Operation::Create { slot, references, finalizer: false }, pause_ms: 0 };
    Program {
        seed: 0,
        early: true,
        objects: vec![object("owner"), object("dependent")],
        build: vec![create(0, Vec::new()), create(1, vec![reference])],
        cycles: Vec::new(),
        phases: Vec::new(),
    }
}

fn alive(references: Vec<Held>) -> State {
    State { incarnation: 0, terminating: false, finalizers: Vec::new(), references }
}

fn to_owner() -> Held {
    let (api_version, kind, name) = ("v1".to_owned(), "ConfigMap".to_owned(), "owner".to_owned());
    Held { owner: Owner::Slot(0, 0), api_version, kind, name, blocking: Some(true) }
}

#[test]
fn a_seed_stands_for_one_program() {
    for seed in 0..50 {
        assert_eq!(generate(seed).to_string(), generate(seed).to_string());
    }
    assert_ne!(generate(1).to_string(), generate(2).to_string());
}

/// A run that was quiet once, at its end.
fn to(end: &End) -> Course {
    Course { ends: vec![end.clone()], ..Course::default() }
}

fn judged(ours: &End, upstream: [&End; 2]) -> Judgement {
    judge(&family(), &to(ours), &upstream.map(to))
}

#[test]
fn an_object_that_upstream_keeps_may_not_be_gone() {
    let both = End::from([(0, alive(Vec::new())), (1, alive(vec![to_owner()]))]);
    let gone = End::from([(0, alive(Vec::new()))]);
    assert_eq!(judged(&gone, [&both, &both]).different, [1]);
    assert!(judged(&both, [&both, &both]).is_good());
    let racy = judged(&gone, [&both, &gone]);
    assert!(racy.is_good() && racy.racy);
}

#[test]
fn garbage_that_both_leave_is_unfinished() {
    let left = End::from([(1, alive(vec![to_owner()]))]);
    let judgement = judged(&left, [&left, &left]);
    assert!(judgement.different.is_empty());
    assert_eq!(judgement.unfinished.keys().copied().collect::<Vec<_>>(), [1]);
}

#[test]
fn a_terminating_object_may_keep_what_any_order_of_its_owners_leaves() {
    let held = |references: Vec<Held>| {
        End::from([(
            1,
            State { terminating: true, finalizers: vec!["example.com/held".to_owned()], ..alive(references) },
        )])
    };
    let other = |number: u64| Held { owner: Owner::Nobody(number.to_string()), ..to_owner() };
    let (all, one) = (held(vec![to_owner(), other(1), other(2)]), held(vec![to_owner()]));
    let between = held(vec![to_owner(), other(1)]);
    assert!(judged(&between, [&all, &one]).is_good());
    assert_eq!(judged(&between, [&all, &all]).different, [1]);
    assert_eq!(judged(&held(vec![other(1)]), [&all, &one]).different, [1]);
}

#[test]
fn a_deletion_that_no_rule_asks_for_is_a_breach() {
    let write = |slot, state| Change { revision: 0, slot, state };
    let begun = [write(0, Some(alive(Vec::new()))), write(1, Some(alive(vec![to_owner()])))];
    let is_breach = |rest: &[Change], by_user: &[usize]| {
        let changes = [&begun[..], rest].concat();
        let gone = by_user.iter().map(|&slot| (slot, 0)).collect();
        let by_user = Writes { removed: gone, ..Writes::default() };
        !breaches(&family(), &Course { changes, by_user, ..Course::default() }).is_empty()
    };
    assert!(is_breach(&[write(1, None)], &[]), "its owner is there");
    assert!(!is_breach(&[write(1, None)], &[1]), "a user deleted it");
    assert!(!is_breach(&[write(0, None), write(1, None)], &[0]), "its owner was gone");
    assert!(is_breach(&[write(1, Some(alive(Vec::new())))], &[]), "it lost an owner that is there");
    let terminating =
        |finalizer: &str| State { terminating: true, finalizers: vec![finalizer.to_owned()], ..alive(Vec::new()) };
    let by_user = |state| Change { revision: 7, slot: 0, state: Some(state) };
    let with = |change: Change, rest: &[Change]| {
        let changes = [&begun[..], &[change], rest].concat();
        let by_user = Writes { revisions: [7].into(), ..Writes::default() };
        breaches(&family(), &Course { changes, by_user, ..Course::default() })
    };
    let free = write(1, Some(alive(Vec::new())));
    let orphans = by_user(terminating("orphan"));
    assert!(!with(orphans.clone(), &[write(1, None)]).is_empty(), "its owner orphans");
    assert!(!with(orphans.clone(), &[write(0, None)]).is_empty(), "it has a dependent yet");
    assert!(with(orphans, &[free, write(0, None)]).is_empty());
    let waits = by_user(terminating("foregroundDeletion"));
    assert!(with(waits.clone(), &[write(1, None), write(0, None)]).is_empty());
    assert!(!with(waits, &[write(0, None)]).is_empty(), "it is blocked");
}
