use super::*;
use crate::coverage::Coverage;

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

fn passed(round: u64, namespace: &str) -> BTreeMap<u64, BTreeSet<Name>> {
    BTreeMap::from([(round, BTreeSet::from([namespace.into()]))])
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
    assert_eq!(barrier.tick(at(260)), [Wanted::Namespace(kinds[1], "a".into())]);
    assert_eq!(barrier.end(at(260)), BTreeMap::new());
    barrier.listed(kinds[1], &"a".into(), true);
    assert_eq!(barrier.end(at(261)), passed(1, "a"));
}

#[test]
fn what_cannot_be_listed_holds_only_its_namespace_and_is_tried_again() {
    let kinds = kinds(1);
    let mut barrier = Barrier::default();
    let number = barrier.request(&"a".into());
    barrier.request(&"b".into());
    assert_eq!(barrier.begin(at(0), kinds.iter().map(|&kind| (kind, true, false))).len(), 2);
    barrier.listed(kinds[0], &"a".into(), false);
    barrier.listed(kinds[0], &"b".into(), true);
    assert_eq!(barrier.end(at(0)), passed(number, "b"));
    assert!(!barrier.has_passed(&"a".into(), number) && barrier.has_passed(&"b".into(), number));
    assert_eq!(barrier.deadline(), Some(at(2000)));
    for (time, lists) in [(1999, 0), (2000, 1)] {
        assert_eq!(barrier.end(at(time)), BTreeMap::new());
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
    barrier.listed(kinds[1], &"b".into(), true);
    assert_eq!(barrier.end(at(0)), BTreeMap::new(), "the first collection has not said where the store is");
    barrier.positioned(at(10), kinds[0], version(5), true);
    assert_eq!(barrier.end(at(10)), passed(first, "b"));

    // Another round does not wait for the list in the namespace `a`, and does not repeat it.
    let again = barrier.request(&"a".into());
    barrier.request(&"c".into());
    assert_eq!(barrier.begin(at(20), watched()), [Wanted::Position(kinds[0]), Wanted::Namespace(kinds[1], "c".into())]);
    barrier.positioned(at(30), kinds[0], version(6), true);
    barrier.listed(kinds[1], &"c".into(), true);
    assert_eq!(barrier.end(at(30)), passed(first + 1, "c"));
    assert!(!barrier.is_due(at(30_000)) && barrier.deadline().is_none());

    // The list proves what its own round asked for. The later request needs a later round.
    barrier.listed(kinds[1], &"a".into(), true);
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
