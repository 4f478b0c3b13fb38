use super::*;
use crate::coverage::Coverage;

fn kinds(count: usize) -> alloc::vec::Vec<KindId> {
    let mut coverage = Coverage::default();
    (0..count).map(|number| coverage.kind_id("", &alloc::format!("Kind{number}"))).collect()
}

fn at(millis: u64) -> Time {
    Time::from_origin(Duration::from_millis(millis))
}

fn version(number: u64) -> Option<ResourceVersion> {
    Some(ResourceVersion::parse(&alloc::format!("{number}")))
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
    assert_eq!(barrier.end(at(0)).map(|(number, _)| number), Some(first));
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
    assert_eq!(barrier.end(at(260)), None);
    barrier.listed(kinds[1], &"a".into(), true);
    assert!(barrier.end(at(261)).is_some());
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
    assert!(barrier.end(at(0)).is_some());
    assert!(!barrier.has_passed(&"a".into(), number) && barrier.has_passed(&"b".into(), number));
    assert_eq!(barrier.begin(at(1999), kinds.iter().map(|&kind| (kind, true, false))), []);
    assert_eq!(barrier.begin(at(2000), kinds.iter().map(|&kind| (kind, true, false))).len(), 1);
}

#[test]
fn dependents_of_namespaced_owners_are_not_looked_for_among_cluster_scoped_objects() {
    let kinds = kinds(1);
    let mut barrier = Barrier::default();
    barrier.request(&"a".into());
    assert_eq!(barrier.begin(at(0), kinds.iter().map(|&kind| (kind, false, true))), []);
    assert!(barrier.end(at(0)).is_some(), "nothing to wait for");
    barrier.request(&"".into());
    assert_eq!(barrier.begin(at(0), kinds.iter().map(|&kind| (kind, false, true))), [Wanted::Position(kinds[0])]);
}
