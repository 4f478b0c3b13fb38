use super::end::{End, Held, Owner, State};
use super::generate;
use super::judge::judge;
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

#[test]
fn an_object_that_upstream_keeps_may_not_be_gone() {
    let both = End::from([(0, alive(Vec::new())), (1, alive(vec![to_owner()]))]);
    let gone = End::from([(0, alive(Vec::new()))]);
    assert_eq!(judge(&family(), &gone, &[&both, &both]).different, [1]);
    assert!(judge(&family(), &both, &[&both, &both]).is_good());
    let racy = judge(&family(), &gone, &[&both, &gone]);
    assert!(racy.is_good() && racy.racy);
}

#[test]
fn garbage_that_both_leave_is_unfinished() {
    let left = End::from([(1, alive(vec![to_owner()]))]);
    let judgement = judge(&family(), &left, &[&left, &left]);
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
    assert!(judge(&family(), &between, &[&all, &one]).is_good());
    assert_eq!(judge(&family(), &between, &[&all, &all]).different, [1]);
    assert_eq!(judge(&family(), &held(vec![other(1)]), &[&all, &one]).different, [1]);
}
