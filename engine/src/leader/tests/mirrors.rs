//! One object that two groups serve under one uid is one owner.

use super::*;
use crate::guard::{Guard, GuardId, GuardKind};
use crate::scope::{Filter, Scope};

/// Creates a bench in which `things` and `mirrors` both show the owner `o`, and configmap `a` refers to it by
/// `resource`.
fn mirrored(resource: &str, blocks: bool) -> Bench {
    let mut bench = Bench::synced();
    bench.serve("mirrors");
    bench.list("mirrors", 100, vec![]);
    bench.pass(Duration::from_secs(1));
    bench.seen("mirrors", object("mirrors", "o", 101));
    bench.seen("things", object("things", "o", 101));
    let dependent = object("configmaps", "a", 102);
    bench
        .seen("configmaps", if blocks { dependent.blocking(resource, "o") } else { dependent.owned_by(resource, "o") });
    bench.grants();
    bench
}

#[test]
fn what_an_owner_orphans_lives_by_whichever_group_it_is_referred_to() {
    for resource in ["things", "mirrors"] {
        for first in ["things", "mirrors"] {
            let mut bench = mirrored(resource, false);
            let second = if first == "things" { "mirrors" } else { "things" };
            for group in [first, second] {
                bench.seen(group, object(group, "o", 103).terminating("orphan"));
            }
            bench.answer_probes(104, &[("configmaps", object("configmaps", "a", 102).owned_by(resource, "o"))]);
            bench.pass(Duration::from_secs(5));
            assert_eq!(bench.grants(), ["remove o from a"], "{resource}, {first} first: no finalizer goes before it");
            // The user releases the owner while the patch is in transit.
            for group in [first, second] {
                bench.deleted(group, "o", 105);
            }
            bench.pass(Duration::from_secs(60));
            bench.answer_probes(106, &[]);
            bench.pass(Duration::from_secs(60));
            // The action is granted again until the patch is shown.
            let grants = bench.grants();
            assert!(grants.iter().all(|grant| *grant == "remove o from a"), "{resource}, {first} first: {grants:?}");
        }
    }
}

#[test]
fn what_an_owner_orphans_lives_where_the_other_group_lags() {
    for resource in ["things", "mirrors"] {
        let mut bench = mirrored(resource, false);
        bench.seen("things", object("things", "o", 103).terminating("orphan"));
        // The other group shows an older state, and then only the deletion.
        bench.seen("mirrors", object("mirrors", "o", 102));
        bench.deleted("things", "o", 104);
        bench.deleted("mirrors", "o", 104);
        assert_eq!(bench.grants(), ["remove o from a"], "{resource}");
    }
}

#[test]
fn what_an_owner_orphans_lives_where_the_other_group_is_listed_only_afterwards() {
    let mut bench = Bench::synced();
    bench.serve("mirrors");
    bench.pass(Duration::from_secs(1));
    bench.seen("things", object("things", "o", 101));
    bench.seen("configmaps", object("configmaps", "a", 102).owned_by("mirrors", "o"));
    bench.seen("things", object("things", "o", 103).terminating("orphan"));
    bench.deleted("things", "o", 104);
    bench.list("mirrors", 105, vec![]);
    bench.pass(Duration::from_secs(1));
    let grants = bench.grants();
    assert!(grants.contains(&"remove o from a".to_string()), "{grants:?}");
    assert!(grants.iter().all(|grant| !grant.starts_with("delete")), "{grants:?}");
}

#[test]
fn a_foreground_owner_waits_for_dependents_by_every_group() {
    for resource in ["things", "mirrors"] {
        let mut bench = mirrored(resource, true);
        for group in ["things", "mirrors"] {
            bench.seen(group, object(group, "o", 103).terminating("foregroundDeletion"));
        }
        bench.pass(Duration::from_secs(1));
        let lease = bench.take("a");
        assert_eq!(describe(&lease), "delete(Background) a if o waits");
        assert_eq!(bench.grants(), NOTHING, "{resource}");
        bench.report(&lease, Outcome::Done);
        bench.deleted("configmaps", "a", 104);
        assert_eq!(bench.grants(), ["remove finalizer foregroundDeletion of o"], "{resource}");
    }
}

#[test]
fn an_owner_that_is_back_in_one_group_is_remembered_by_the_other() {
    let mut bench = mirrored("things", false);
    bench.seen("things", object("things", "o", 103).terminating("orphan"));
    bench.seen("mirrors", object("mirrors", "o", 104));
    bench.deleted("things", "o", 105);
    assert_eq!(bench.grants(), ["remove o from a"]);
}

#[test]
fn a_reference_by_a_kind_that_is_not_served_holds_an_owner_only_while_it_can_be_taken_away() {
    for finalizer in ["orphan", "foregroundDeletion"] {
        let mut bench = Bench::synced();
        bench.pass(Duration::from_secs(1));
        bench.seen("things", object("things", "o", 101));
        bench.seen("configmaps", object("configmaps", "a", 102).blocking("mirrors", "o"));
        bench.seen("things", object("things", "o", 103).terminating(finalizer));
        bench.answer_probes(104, &[("configmaps", object("configmaps", "a", 102).blocking("mirrors", "o"))]);
        bench.pass(Duration::from_secs(5));
        if finalizer == "orphan" {
            // If the kind were served again, the owner would be absent from it, and the object would be deleted.
            let lease = bench.take("a");
            assert_eq!(describe(&lease), "remove o from a");
            assert_eq!(bench.grants(), NOTHING, "the finalizer stays until then");
            bench.report(&lease, Outcome::Done);
            bench.seen("configmaps", object("configmaps", "a", 105));
            bench.answer_probes(106, &[]);
            bench.pass(Duration::from_secs(5));
        }
        assert_eq!(bench.grants(), [format!("remove finalizer {finalizer} of o")]);
    }
}

#[test]
fn a_protection_by_resource_holds_an_object_whichever_group_is_seen_first() {
    for order in [["things", "mirrors"], ["mirrors", "things"]] {
        for protected in order {
            let mut bench = Bench::synced();
            let scope = Scope { targets: vec![Filter { resources: vec![collection(protected)], ..Filter::default() }] };
            let id = GuardId { kind: GuardKind::Protection, name: "keep".into() };
            bench.input(Input::GuardSeen(Guard { id, scope, lifetime: None, ..pauses::pause("keep", 1) }));
            bench.serve("mirrors");
            bench.list("mirrors", 100, vec![]);
            bench.seen("configmaps", object("configmaps", "o", 101));
            for group in order {
                bench.seen(group, object(group, "d", 102).owned_by("configmaps", "o"));
            }
            bench.deleted("configmaps", "o", 103);
            assert_eq!(bench.grants(), NOTHING, "{order:?}, {protected} is protected");
        }
    }
}

#[test]
fn a_decision_by_one_group_ends_when_the_other_group_acts() {
    for [first, acting] in [["things", "mirrors"], ["mirrors", "things"]] {
        for known_before in [false, true] {
            let mut bench = Bench::synced();
            bench.input(Input::Message { stream: STREAM, message: ToLeader::Window { max_outstanding: 0 } });
            bench.serve("mirrors");
            bench.list("mirrors", 100, vec![]);
            bench.pass(Duration::from_secs(1));
            if known_before {
                let kept = object("configmaps", "kept", 102).owned_by(acting, "o").owned_by("nodes", "n");
                bench.seen("nodes", object("nodes", "n", 101));
                bench.seen("configmaps", kept);
            }
            bench.seen(first, object(first, "o", 103).terminating("foregroundDeletion"));
            bench.pass(Duration::from_secs(1));
            // The other group shows an older state first.
            bench.seen(acting, object(acting, "o", 101));
            bench.seen("configmaps", object("configmaps", "a", 104).blocking(first, "o"));
            bench.seen(acting, object(acting, "o", 103).terminating("foregroundDeletion"));
            let item = bench.leader.queries().explain(&uid("o")).unwrap().item;
            assert!(item.is_none(), "{first} first, known before: {known_before}; a blocks it");
        }
    }
}

#[test]
fn a_pause_by_resource_stops_a_write_to_an_object_whichever_group_acts() {
    let orders = [["configmaps", "mirrors"], ["mirrors", "configmaps"]];
    for (order, late) in orders.into_iter().flat_map(|order| [(order, false), (order, true)]) {
        for paused in order {
            let mut bench = Bench::cascade(0, 4);
            bench.serve("mirrors");
            bench.list("mirrors", 100, vec![]);
            bench.seen("things", object("things", "p", 104));
            let shown = |bench: &mut Bench, group| bench.seen(group, object(group, "d", 105).owned_by("things", "p"));
            shown(&mut bench, order[0]);
            if !late {
                shown(&mut bench, order[1]);
            }
            bench.pass(Duration::from_secs(1));
            bench.deleted("things", "p", 106);
            let lease = bench.take("d");
            bench.start(&lease);
            bench.stopped();
            if late {
                shown(&mut bench, order[1]);
                bench.stopped();
            }
            bench.press(pauses::of_resources(&[paused], pauses::pause("p", 1)));
            assert_eq!(bench.stopped(), [lease.id], "{order:?}, {paused} paused, late: {late}");
            assert!(!bench.pause_view("p").effective, "{order:?}, {paused} paused, late: {late}");
            bench.report(&lease, Outcome::Abandoned);
            assert!(bench.pause_view("p").effective, "{order:?}, {paused} paused, late: {late}");
        }
    }
}

#[test]
fn a_pause_is_not_effective_while_a_write_leaves_that_turns_out_to_be_in_its_scope() {
    let mut bench = Bench::cascade(0, 4);
    bench.serve("mirrors");
    bench.list("mirrors", 100, vec![]);
    bench.seen("things", object("things", "p", 104));
    bench.seen("configmaps", object("configmaps", "d", 105).owned_by("things", "p"));
    bench.pass(Duration::from_secs(1));
    bench.press(pauses::of_resources(&["mirrors"], pauses::pause("p", 1)));
    bench.pass(Duration::from_secs(1));
    assert!(bench.pause_view("p").effective);
    bench.deleted("things", "p", 106);
    let lease = bench.take("d");
    bench.start(&lease);
    bench.stopped();
    bench.seen("mirrors", object("mirrors", "d", 105).owned_by("things", "p"));
    assert_eq!((bench.stopped(), bench.pause_view("p").effective), (vec![lease.id], false));
    bench.report(&lease, Outcome::Abandoned);
    assert!(bench.pause_view("p").effective);
}

#[test]
fn an_owner_that_another_group_shows_to_orphan_stops_a_started_deletion() {
    let mut bench = Bench::synced();
    bench.serve("mirrors");
    bench.list("mirrors", 100, vec![]);
    let lease = bench.started_deletion();
    bench.seen("mirrors", object("mirrors", "o", 110).terminating("orphan"));
    assert_eq!(bench.stopped(), [lease.id], "a keeps living");
}
