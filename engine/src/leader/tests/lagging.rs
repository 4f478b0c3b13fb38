//! A server of the store that lags for a long time, and answers with an earlier state of the store.

use super::restores::{answered, rewinds};
use super::*;

const BUMPED: u64 = 1_000_000_110;

fn wrote(bench: &mut Bench, at: u64) {
    bench.input(Input::Wrote { collection: collection("nodes"), resource_version: version(at) });
}

/// Returns an object in its grace period without finalizers.
fn ending(name: &str, at: u64) -> Object {
    let mut object = object("things", name, at);
    object.facts.terminating = true;
    object
}

#[test]
fn an_owner_that_had_orphaned_before_the_store_seemed_to_go_back_still_has() {
    let child = || object("configmaps", "a", 115).owned_by("things", "o");
    let mut bench = Bench::synced();
    bench.seen("things", object("things", "o", 101));
    bench.seen("things", object("things", "o", 110).terminating("orphan"));
    bench.seen("things", ending("o", 112));
    bench.bookmark("nodes", 90);
    assert_eq!(rewinds(&bench), 1);
    for (resource, objects) in [("nodes", vec![]), ("things", vec![ending("o", 112)]), ("configmaps", vec![child()])] {
        bench.list(resource, 125, objects);
    }
    answered(&mut bench, 12, 126);
    bench.input(Input::Deleted { collection: collection("things"), object: ending("o", 130) });
    assert_eq!(bench.grants(), ["remove o from a"]);
}

#[test]
fn an_orphaning_that_began_and_ended_while_the_watch_was_lost_counts() {
    let child = || object("configmaps", "a", 115).owned_by("things", "o");
    let mut bench = Bench::synced();
    bench.seen("things", object("things", "o", 101));
    bench.seen("things", object("things", "o", 110).terminating("orphan"));
    bench.bookmark("nodes", 90);
    // A lagging server shows the owner from before its deletion.
    for (resource, objects) in
        [("nodes", vec![]), ("things", vec![object("things", "o", 101)]), ("configmaps", vec![child()])]
    {
        bench.list(resource, 125, objects);
    }
    bench.list("things", 126, vec![ending("o", 112)]);
    answered(&mut bench, 12, 126);
    bench.input(Input::Deleted { collection: collection("things"), object: ending("o", 130) });
    assert_eq!(bench.grants(), ["remove o from a"]);
}

#[test]
fn a_list_from_before_a_write_of_our_own_proves_nothing() {
    let mut bench = Bench::synced();
    bench.seen("configmaps", object("configmaps", "a", 102).owned_by("things", "o"));
    wrote(&mut bench, 150);
    for _ in 0..20 {
        bench.pass(Duration::from_secs(5));
        bench.found_if_asked("o", &FindingResult::Absent(Some(version(149))));
        bench.answer_probes(151, &[]);
    }
    assert_eq!(bench.grants(), NOTHING);
    for _ in 0..20 {
        bench.pass(Duration::from_secs(5));
        bench.found_if_asked("o", &FindingResult::Absent(Some(version(151))));
        bench.answer_probes(151, &[]);
    }
    assert!(bench.grants().contains(&"delete(Background) a".to_string()));
}

#[test]
fn a_store_that_is_written_to_further_on_has_not_settled_where_it_seems_to_have_gone_back_to() {
    let mut bench = Bench::synced();
    bench.bookmark("nodes", 90);
    for resource in ["nodes", "things", "configmaps"] {
        bench.list(resource, 95, vec![]);
    }
    for second in 0..60 {
        wrote(&mut bench, 150 + second);
        answered(&mut bench, 1, 95);
        assert!(bench.leader.queries().status().stopped.is_some(), "after {second} answers");
        for resource in core::mem::take(&mut bench.relists) {
            bench.list(&resource.resource, 95, vec![]);
        }
    }
    answered(&mut bench, 3, 300);
    for resource in core::mem::take(&mut bench.relists) {
        bench.list(&resource.resource, 300, vec![]);
    }
    answered(&mut bench, 20, 301);
    assert_eq!(bench.leader.queries().status().stopped, None);
}

#[test]
fn a_write_that_was_answered_after_the_store_went_back_stops_nothing_for_good() {
    let mut bench = Bench::synced();
    bench.bookmark("nodes", 90);
    for resource in ["things", "configmaps", "nodes"] {
        bench.list(resource, 95, vec![]);
    }
    // The message was sent to the earlier store.
    wrote(&mut bench, 5000);
    for _ in 0..60 {
        answered(&mut bench, 1, 96);
        for resource in core::mem::take(&mut bench.relists) {
            bench.list(&resource.resource, 96, vec![]);
        }
    }
    assert_eq!(bench.leader.queries().status().stopped, None);
}

#[test]
fn a_kind_that_a_lagging_server_showed_before_it_ceased_to_be_served_delays_no_other() {
    let mut bench = Bench::synced();
    bench.bookmark("nodes", BUMPED);
    assert_eq!(rewinds(&bench), 1);
    bench.list("nodes", 54, vec![]);
    bench.input(Input::KindUnserved(collection("nodes")));
    for resource in ["things", "configmaps"] {
        bench.list(resource, BUMPED, vec![]);
    }
    answered(&mut bench, 20, BUMPED);
    bench.seen("configmaps", object("configmaps", "a", BUMPED + 1).owned_by("things", "o"));
    for _ in 0..60 {
        bench.pass(Duration::from_secs(5));
        bench.found_if_asked("o", &FindingResult::Absent(Some(version(BUMPED + 2))));
        bench.answer_probes(
            BUMPED + 2,
            &[("configmaps", object("configmaps", "a", BUMPED + 1).owned_by("things", "o"))],
        );
        for resource in core::mem::take(&mut bench.relists) {
            let objects = if *resource.resource == *"configmaps" {
                vec![object("configmaps", "a", BUMPED + 1).owned_by("things", "o")]
            } else {
                vec![]
            };
            bench.list(&resource.resource, BUMPED + 2, objects);
        }
    }
    assert!(bench.grants().contains(&"delete(Background) a".to_string()));
}
