use super::*;
use crate::coverage::Coverage;
use alloc::collections::VecDeque;

fn kinds(count: usize) -> Vec<KindId> {
    let mut coverage = Coverage::default();
    (0..count).map(|number| coverage.kind_id("", &alloc::format!("Kind{number}"))).collect()
}

fn at(millis: u64) -> Time {
    Time::from_origin(Duration::from_millis(millis))
}

fn version(number: u64) -> Option<ResourceVersion> {
    Some(ResourceVersion::parse(&alloc::format!("{number}")))
}

fn passed(round: u64, namespace: &str) -> News {
    News { passed: BTreeMap::from([(round, BTreeSet::from([namespace.into()]))]), failed: false }
}

fn list(round: u64, namespace: &str, kind: KindId) -> List {
    List { round, namespace: namespace.into(), kind }
}

fn refused() -> Result<(), String> {
    Err("refused".into())
}

#[test]
fn a_round_that_began_before_does_not_count() {
    let kinds = kinds(1);
    let mut barrier = Barrier::default();
    let first = barrier.request(&"a".into());
    assert_eq!(barrier.begin(at(0), kinds.iter().map(|&kind| (kind, true, true))), [Wanted::Position(kinds[0])]);
    let second = barrier.request(&"a".into());
    assert!(second > first);
    barrier.positioned(at(0), kinds[0], version(5), true);
    assert_eq!(barrier.end(at(0)), passed(first, "a"));
    assert!(barrier.has_passed(&"a".into(), first));
    assert!(!barrier.has_passed(&"a".into(), second));
    barrier.begin(at(0), kinds.iter().map(|&kind| (kind, true, true)));
    barrier.positioned(at(0), kinds[0], version(6), true);
    barrier.end(at(0));
    assert!(barrier.has_passed(&"a".into(), second));
}

#[test]
fn a_quiet_watch_is_replaced_by_a_list_and_a_lively_one_is_not() {
    let kinds = kinds(2);
    let mut barrier = Barrier::default();
    barrier.request(&"a".into());
    barrier.begin(at(0), kinds.iter().map(|&kind| (kind, true, true)));
    for &kind in &kinds {
        assert_eq!(barrier.positioned(at(10), kind, version(100), false), []);
    }
    assert_eq!(barrier.deadline(), Some(at(260)));
    barrier.advanced(kinds[0], &ResourceVersion::parse("99"));
    barrier.advanced(kinds[0], &ResourceVersion::parse("100"));
    assert_eq!(barrier.tick(at(260)), [Wanted::List(list(1, "a", kinds[1]))]);
    assert_eq!(barrier.end(at(260)), News::default());
    barrier.listed(at(260), &list(1, "a", kinds[1]), Ok(()));
    assert_eq!(barrier.end(at(261)), passed(1, "a"));
}

#[test]
fn what_cannot_be_listed_holds_only_its_namespace_and_is_tried_again() {
    let kinds = kinds(1);
    let mut barrier = Barrier::default();
    let number = barrier.request(&"a".into());
    barrier.request(&"b".into());
    assert_eq!(barrier.begin(at(0), kinds.iter().map(|&kind| (kind, true, false))).len(), 2);
    barrier.listed(at(0), &list(number, "a", kinds[0]), refused());
    barrier.listed(at(0), &list(number, "b", kinds[0]), Ok(()));
    assert_eq!(barrier.end(at(0)), News { failed: true, ..passed(number, "b") });
    assert!(!barrier.has_passed(&"a".into(), number) && barrier.has_passed(&"b".into(), number));
    assert_eq!(barrier.deadline(), Some(at(2000)));
    for (time, lists) in [(1999, 0), (2000, 1)] {
        assert_eq!(barrier.end(at(time)), News::default());
        assert_eq!(barrier.begin(at(time), kinds.iter().map(|&kind| (kind, true, false))).len(), lists);
    }
}

#[test]
fn a_list_that_hangs_delays_only_its_namespace_and_is_asked_for_once() {
    let kinds = kinds(2);
    let mut barrier = Barrier::default();
    let watched = || kinds.iter().zip([true, false]).map(|(&kind, believed)| (kind, true, believed));
    let first = barrier.request(&"a".into());
    barrier.request(&"b".into());
    assert_eq!(barrier.begin(at(0), watched()).len(), 3);
    barrier.listed(at(0), &list(first, "b", kinds[1]), Ok(()));
    assert_eq!(barrier.end(at(0)), News::default(), "the first collection has not said where the store is");
    barrier.positioned(at(10), kinds[0], version(5), true);
    assert_eq!(barrier.end(at(10)), passed(first, "b"));

    // Another round does not wait for the list in the namespace `a`, and does not repeat it.
    let again = barrier.request(&"a".into());
    barrier.request(&"c".into());
    assert_eq!(
        barrier.begin(at(20), watched()),
        [Wanted::Position(kinds[0]), Wanted::List(list(first + 1, "c", kinds[1]))]
    );
    barrier.positioned(at(30), kinds[0], version(6), true);
    barrier.listed(at(30), &list(first + 1, "c", kinds[1]), Ok(()));
    assert_eq!(barrier.end(at(30)), passed(first + 1, "c"));
    assert!(!barrier.is_due(at(30_000)) && barrier.deadline().is_none());

    // The list proves what its own round asked for. The later request needs a later round.
    barrier.listed(at(30_000), &list(first, "a", kinds[1]), Ok(()));
    assert_eq!(barrier.end(at(30_000)), passed(first, "a"));
    assert!(barrier.has_passed(&"a".into(), first) && !barrier.has_passed(&"a".into(), again));
    assert_eq!(barrier.begin(at(30_000), watched()).len(), 2);
    barrier.unserved(kinds[1]);
    barrier.positioned(at(30_001), kinds[0], version(7), true);
    assert_eq!(barrier.end(at(30_001)), passed(again + 1, "a"));
    assert!(barrier.has_passed(&"a".into(), again));
}

#[test]
fn dependents_of_namespaced_owners_are_not_looked_for_among_cluster_scoped_objects() {
    let kinds = kinds(1);
    let mut barrier = Barrier::default();
    barrier.request(&"a".into());
    assert_eq!(barrier.begin(at(0), kinds.iter().map(|&kind| (kind, false, true))), []);
    assert_eq!(barrier.end(at(0)), passed(1, "a"), "nothing to wait for");
    barrier.request(&"".into());
    assert_eq!(barrier.begin(at(0), kinds.iter().map(|&kind| (kind, false, true))), [Wanted::Position(kinds[0])]);
}

#[test]
fn each_failure_of_a_namespace_doubles_its_delay_and_only_the_first_one_is_news() {
    let kinds = kinds(1);
    let mut barrier = Barrier::default();
    let (mut now, mut delays) = (0, Vec::new());
    barrier.request(&"a".into());
    for round in 1..=7 {
        barrier.begin(at(now), kinds.iter().map(|&kind| (kind, true, false)));
        barrier.listed(at(now), &list(round, "a", kinds[0]), refused());
        assert_eq!(barrier.end(at(now)).failed, round == 1);
        assert_eq!(barrier.failing(&"a".into()).unwrap().since, at(0));
        let rested = barrier.deadline().unwrap();
        delays.push(rested.since(at(now)).as_secs());
        now += delays.last().unwrap() * 1000;
        assert_eq!(barrier.end(rested), News::default());
    }
    assert_eq!(delays, [2, 4, 8, 16, 32, 32, 32]);
    barrier.begin(at(now), kinds.iter().map(|&kind| (kind, true, false)));
    barrier.listed(at(now), &list(8, "a", kinds[0]), Ok(()));
    assert_eq!(barrier.end(at(now)), passed(8, "a"));
    assert_eq!(barrier.failing(&"a".into()), None);
}

#[test]
fn a_watch_that_reaches_the_position_replaces_the_lists_that_wait_for_it() {
    let kinds = kinds(1);
    let mut barrier = Barrier::default();
    let watched = || kinds.iter().map(|&kind| (kind, true, true));
    for (round, namespace, position) in [(1, "a", 100), (2, "b", 200)] {
        barrier.request(&namespace.into());
        barrier.begin(at(0), watched());
        barrier.positioned(at(0), kinds[0], version(position), false);
        assert_eq!(barrier.tick(at(1000)), [Wanted::List(list(round, namespace, kinds[0]))]);
        assert_eq!(barrier.end(at(1000)), News::default());
    }
    barrier.advanced(kinds[0], &ResourceVersion::parse("100"));
    assert_eq!(barrier.end(at(1000)), passed(1, "a"));

    // The answer of the first round says nothing about a later round of the same namespace.
    let later = barrier.request(&"a".into());
    barrier.begin(at(2000), watched());
    barrier.positioned(at(2000), kinds[0], version(300), false);
    assert_eq!(barrier.tick(at(3000)), [Wanted::List(list(later, "a", kinds[0]))]);
    barrier.listed(at(3000), &list(1, "a", kinds[0]), Ok(()));
    assert_eq!(barrier.end(at(3000)), News::default());
    barrier.advanced(kinds[0], &ResourceVersion::parse("200"));
    assert_eq!(barrier.end(at(3000)), passed(2, "b"));
    barrier.advanced(kinds[0], &ResourceVersion::parse("300"));
    assert_eq!(barrier.end(at(3000)), passed(later, "a"));
}

#[test]
fn many_lists_wait_for_places_in_flight_and_none_fails_for_that() {
    let kinds = kinds(60);
    let mut barrier = Barrier::default();
    let namespaces: Vec<Name> = (0..200).map(|at| alloc::format!("n{at}").into()).collect();
    for namespace in &namespaces {
        barrier.request(namespace);
    }
    let mut asked: VecDeque<_> = barrier.begin(at(0), kinds.iter().map(|&kind| (kind, true, false))).into();
    let (mut lists, mut passed) = (0, 0);
    while let Some(wanted) = asked.pop_front() {
        assert!(asked.len() < LISTS_MAX);
        let Wanted::List(list) = wanted else { panic!("{wanted:?}") };
        asked.extend(barrier.listed(at(0), &list, Ok(())));
        lists += 1;
        passed += barrier.end(at(0)).passed.values().map(BTreeSet::len).sum::<usize>();
        assert!(passed + 2 >= lists / kinds.len(), "one namespace follows another");
    }
    assert_eq!((lists, passed), (12_000, 200));
}

#[test]
fn a_cluster_scoped_collection_is_listed_once_for_all_namespaces() {
    let kinds = kinds(1);
    let mut barrier = Barrier::default();
    for namespace in ["", "a", "b"] {
        barrier.request(&namespace.into());
    }
    let wanted = barrier.begin(at(0), kinds.iter().map(|&kind| (kind, false, false)));
    assert_eq!(wanted, [Wanted::List(list(1, "", kinds[0]))]);
}

#[test]
fn the_rounds_of_gone_namespaces_are_forgotten() {
    let mut barrier = Barrier::default();
    for at_round in 0..3 * PASSED_MAX as u64 {
        let namespace = alloc::format!("n{at_round}").as_str().into();
        let round = barrier.request(&namespace);
        barrier.begin(at(at_round), core::iter::empty());
        barrier.end(at(at_round));
        assert!(barrier.has_passed(&namespace, round));
        assert!(barrier.passed.len() <= PASSED_MAX + 1);
    }
}
