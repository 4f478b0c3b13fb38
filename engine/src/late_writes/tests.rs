use super::*;
use crate::leader::{Grounds, StreamId};
use crate::lease::Leases;
use crate::object::{GroupResource, Uid};
use crate::work::{Hello, Origin, Term};
use alloc::string::String;
use core::time::Duration;

const ONE: SessionId = SessionId(1);

fn at(seconds: u64) -> Time {
    Time::from_origin(Duration::from_secs(seconds))
}

fn id(number: u64) -> LeaseId {
    LeaseId { term: 1, number }
}

fn lease(namespace: &str) -> Lease {
    let collection = Some(GroupResource { group: "".into(), resource: "pods".into() });
    let destroys = Some(Target { collection, namespace: namespace.into() });
    let target = Uid::parse("x").unwrap();
    let grounds = Grounds::unknown(1);
    Lease {
        session: ONE,
        target,
        destroys,
        item: 1,
        attempt: 1,
        granted: Time::ZERO,
        started: None,
        recalled: false,
        gone: None,
        grounds,
    }
}

fn scope(namespace: &str) -> Scope {
    let filter = crate::scope::Filter {
        resources: Vec::new(),
        namespaces: alloc::vec![namespace.into()],
        ..crate::scope::Filter::default()
    };
    Scope { targets: alloc::vec![filter] }
}

#[test]
fn a_write_without_an_answer_is_in_transit_for_a_time() {
    let mut late_writes = LateWrites::default();
    let place = |namespace: &str| lease(namespace).destroys.unwrap();
    late_writes.unanswered(Some(place("a")), at(10));
    late_writes.unanswered(Some(place("a")), at(20));
    let count = |late_writes: &LateWrites, namespace| late_writes.writers(&scope(namespace)).unanswered;
    assert_eq!((count(&late_writes, "a"), count(&late_writes, "b")), (1, 0));
    late_writes.tick(at(19));
    assert_eq!(count(&late_writes, "a"), 1);
    for number in 0..PLACES_MAX {
        late_writes.unanswered(Some(place(&alloc::format!("n{number}"))), at(30));
    }
    late_writes.tick(at(20));
    assert_eq!((count(&late_writes, "a"), count(&late_writes, "b")), (1, 1), "one stands for those beyond the bound");
    late_writes.tick(at(30));
    assert_eq!((count(&late_writes, "a"), count(&late_writes, "n1")), (0, 0));

    late_writes.give_up(id(1), &lease("a"));
    assert_eq!(late_writes.ended(SessionId(2), id(1)), Ended::Other, "another session");
    assert_eq!(late_writes.ended(ONE, id(1)), Ended::GivenUp(place("a")));
}

fn with_session<T>(then: impl FnOnce(&Session) -> T) -> T {
    let hello = Hello {
        executor: "e".into(),
        incarnation: "i".into(),
        min_protocol: 1,
        max_protocol: 1,
        kinds: Vec::new(),
        window: 1,
        held: Vec::new(),
        known_term: None,
        first_session: None,
        version: String::new(),
        cluster_uid: "c".into(),
        origin: Origin::default(),
    };
    let mut leases = Leases::default();
    let term = Term { election: "election".into(), number: 1 };
    let id = leases.open(Time::ZERO, StreamId(1), &term, &hello);
    then(leases.session(id).unwrap())
}

#[test]
fn a_lease_that_was_given_up_counts_in_its_scope_until_its_executor_speaks() {
    let mut late_writes = LateWrites::default();
    late_writes.give_up(id(1), &lease("a"));
    late_writes.give_up(id(2), &Lease { destroys: None, ..lease("a") });
    assert_eq!((late_writes.writers(&scope("a")).count(), late_writes.writers(&scope("b")).count()), (1, 0));
    late_writes.ended(SessionId(2), id(1));
    assert_eq!(late_writes.writers(&scope("a")).count(), 1, "another executor's word is not its own");
    late_writes.ended(ONE, id(1));
    assert_eq!(late_writes.writers(&scope("a")).count(), 0);
}

#[test]
fn what_an_executor_names_beside_its_leases_counts_everywhere() {
    let mut late_writes = LateWrites::default();
    late_writes.give_up(id(1), &lease("a"));
    with_session(|session| late_writes.hello(ONE, session, &BTreeSet::from([id(7)]), BTreeSet::from([id(7)])));
    assert_eq!((late_writes.writers(&scope("b")).count(), late_writes.of_session(ONE)), (1, alloc::vec![id(7)]));
    let mut other = LateWrites::default();
    with_session(|session| other.hello(ONE, session, &BTreeSet::from([id(7)]), BTreeSet::from([id(7)])));
    assert_eq!(other.ended(ONE, id(7)), Ended::Foreign, "without an answer, its place counts on");
    with_session(|session| late_writes.session_ended(ONE, session, core::iter::empty(), at(50)));
    assert_eq!(late_writes.writers(&scope("b")), Writers { departed: 1, ..Writers::default() });
    late_writes.tick(at(49));
    assert_eq!(late_writes.writers(&scope("b")).count(), 1);
    late_writes.tick(at(50));
    assert_eq!(late_writes.writers(&scope("b")).count(), 0);
}

#[test]
fn a_departed_executor_that_is_back_speaks_for_itself() {
    let mut late_writes = LateWrites::default();
    with_session(|session| late_writes.session_ended(ONE, session, [lease("a")].iter(), at(50)));
    assert_eq!(late_writes.writers(&scope("a")).count(), 1);
    with_session(|session| late_writes.hello(SessionId(2), session, &BTreeSet::new(), BTreeSet::new()));
    assert_eq!(late_writes.writers(&scope("a")).count(), 0);
}

#[test]
fn beyond_the_bounds_everything_counts() {
    let mut late_writes = LateWrites::default();
    for number in 0..=GIVEN_UP_MAX as u64 {
        late_writes.give_up(id(number), &lease("a"));
    }
    assert_eq!(late_writes.writers(&scope("b")).count(), 1, "one of them is not remembered by its place");
    let mut late_writes = LateWrites::default();
    with_session(|session| {
        for number in 0..=DEPARTED_MAX as u64 {
            late_writes.session_ended(SessionId(number + 10), session, [lease("a")].iter(), at(number));
        }
    });
    assert_eq!(late_writes.writers(&scope("b")).departed, 1, "the last stands for those beyond");
}
