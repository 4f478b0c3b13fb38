//! Objects with very many references.

use super::*;
use crate::object::REFERENCES_MAX;
use crate::view::{ReasonCode, VerdictView};

/// A configmap that refers to so many objects that do not exist.
fn heavy(name: &str, rv: u64, references: usize) -> Object {
    let mut heavy = object("configmaps", name, rv);
    heavy.facts.owners = (0..references).map(|number| reference("things", &format!("ghost{number}"), None)).collect();
    heavy
}

#[test]
fn an_object_with_too_many_references_is_kept_and_said_to_be() {
    let mut bench = Bench::synced();
    bench.seen("configmaps", heavy("a", 101, REFERENCES_MAX + 1));
    bench.seen("configmaps", heavy("a", 102, REFERENCES_MAX + 2));
    bench.pass(Duration::from_secs(60));
    assert_eq!(bench.grants(), NOTHING);
    assert_eq!(bench.undecided(), [(Undecided::TooManyReferences, 1)]);
    let status = bench.leader.status();
    assert_eq!((status.edges, status.virtual_nodes), (0, 0), "none of its references is kept");
    assert_eq!(status.excessive.iter().map(|object| &*object.name).collect::<Vec<_>>(), ["a"]);
    let why = bench.leader.explain(&uid("a")).unwrap();
    assert_eq!((why.verdict, why.reasons[0].code), (VerdictView::Held, ReasonCode::TooManyReferences));
    assert!(why.reasons[0].detail.contains("5002"), "{:?}", why.reasons);
    let told = |event: &&Event| matches!(event, Event::TooManyReferences { count: 5001, .. });
    assert_eq!(bench.events.iter().filter(told).count(), 1);
    // It has fewer now, and is judged as any other.
    bench.seen("configmaps", heavy("a", 103, 1));
    assert_eq!((bench.undecided(), bench.leader.status().excessive), (vec![(Undecided::OwnerUnverified, 1)], vec![]));
    assert_eq!(bench.leader.inconsistency(), None);
}

#[test]
fn an_owner_with_too_many_references_ends_its_own_deletion() {
    for finalizer in ["foregroundDeletion", "orphan"] {
        let mut bench = Bench::synced();
        bench.pass(Duration::from_secs(1));
        bench.seen("configmaps", heavy("a", 101, REFERENCES_MAX + 1).terminating(finalizer));
        bench.answer_probes(102, &[]);
        bench.pass(Duration::from_secs(1));
        let lease = bench.take("a");
        assert_eq!(describe(&lease), format!("remove finalizer {finalizer} of a"));
        let digest = heavy("a", 101, REFERENCES_MAX + 1).terminating(finalizer).facts.digest();
        assert_eq!(lease.item.preconditions.map(|known| known.facts_digest), Some(digest));
    }
}

#[test]
fn an_owner_does_not_wait_for_a_dependent_with_too_many_references() {
    let mut bench = Bench::synced();
    bench.seen("configmaps", heavy("a", 101, REFERENCES_MAX).blocking("things", "o"));
    bench.seen("things", object("things", "o", 102).terminating("foregroundDeletion"));
    assert_eq!(bench.grants(), ["remove finalizer foregroundDeletion of o"]);
}

#[test]
fn fifty_thousand_equal_references_are_one() {
    for finalizer in ["foregroundDeletion", "orphan"] {
        let mut bench = Bench::synced();
        bench.seen("things", object("things", "o", 101));
        let mut heavy = object("configmaps", "a", 102).blocking("things", "o");
        heavy.facts.owners = vec![heavy.facts.owners[0].clone(); 50_000].into();
        bench.seen("configmaps", heavy);
        assert_eq!(bench.leader.status().edges, 1);
        bench.seen("things", object("things", "o", 103).terminating(finalizer));
        let expected = if finalizer == "orphan" { "remove o from a" } else { "delete(Background) a if o waits" };
        assert_eq!(bench.grants(), [expected]);
    }
}
