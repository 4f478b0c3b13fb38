//! Queries for readers that follow objects, and for readers of very many objects.

use super::*;
use alloc::collections::BTreeSet;

/// Creates an owner with this number of dependents.
fn crowd(dependents: u64) -> Bench {
    let mut bench = Bench::synced();
    bench.seen("things", object("things", "o", 101));
    for number in 0..dependents {
        bench.seen("configmaps", object("configmaps", &format!("c{number:05}"), 102 + number).owned_by("things", "o"));
    }
    bench
}

fn down(max_depth: u32) -> DependentsOptions {
    DependentsOptions { max_depth, blocking_only: false, max_objects: 10_000 }
}

#[test]
fn a_walk_that_goes_on_later_finds_all_that_depend_on_the_owner_throughout() {
    let mut bench = crowd(100);
    let mut walk = DependentsWalk::new(uid("o"), down(1));
    let (mut found, mut rv) = (Vec::new(), 1000);
    let named = |number: u64| object("configmaps", &format!("c{number:05}"), 102 + number);
    while let Some(some) = walk.step(&bench.leader.queries(), 1, 1) {
        found.extend(some.into_iter().map(|found| found.node.object.name));
        // Some dependents are deleted, some are created, and some change their references and therefore their places.
        let turn = rv - 1000;
        bench.deleted("configmaps", &format!("c{:05}", (turn * 7) % 30), rv + 1);
        bench.seen("configmaps", object("configmaps", &format!("n{turn:05}"), rv + 2).owned_by("things", "o"));
        for number in (30..100).step_by(9) {
            let changed = Object { resource_version: version(rv + 3), ..named(number) };
            bench.seen("configmaps", changed.owned_by("things", "o").owned_by("things", &format!("x{turn}")));
        }
        rv += 4;
    }
    let stays: BTreeSet<String> = (30..100).map(|number| format!("c{number:05}")).collect();
    let seen: BTreeSet<String> = found.iter().map(ToString::to_string).collect();
    assert_eq!(seen.len(), found.len(), "each once");
    assert!(seen.is_superset(&stays), "{:?}", stays.difference(&seen));
}

#[test]
fn a_walk_leaves_out_what_depends_on_the_owner_no_more_also_where_another_object_has_its_node() {
    let mut bench = crowd(10);
    let mut walk = DependentsWalk::new(uid("o"), down(1));
    let first = walk.step(&bench.leader.queries(), 100, 1).unwrap();
    assert_eq!(first[0].node.object.name.to_string(), "c00000");
    bench.seen("configmaps", object("configmaps", "c00005", 1000));
    bench.deleted("configmaps", "c00006", 1001);
    bench.seen("configmaps", object("configmaps", "stranger", 1002));
    let mut rest = BTreeSet::new();
    while let Some(found) = walk.step(&bench.leader.queries(), 100, 1) {
        rest.extend(found.into_iter().map(|found| found.node.object.name.to_string()));
    }
    let stays = [1, 2, 3, 4, 7, 8, 9].map(|number: u64| format!("c{number:05}"));
    assert_eq!(rest, BTreeSet::from(stays));
}

#[test]
fn one_step_takes_no_more_than_its_budget_of_a_crowd() {
    let bench = crowd(5_000);
    let mut walk = DependentsWalk::new(uid("o"), down(9));
    let (mut steps, mut all) = (0, 0);
    while let Some(found) = walk.step(&bench.leader.queries(), 100, usize::MAX) {
        steps += 1;
        all += found.len();
    }
    assert_eq!(all, 5_000);
    assert!(steps >= 50, "{steps}");
}

#[test]
fn who_pages_through_dependents_misses_none_that_stays() {
    let mut bench = crowd(100);
    let mut rv = 1000;
    let (mut found, mut before) = (BTreeSet::new(), None);
    loop {
        let (some, rest) = bench.leader.queries().dependents_of(&uid("o"), before, 10);
        found.extend(some);
        let Some(rest) = rest else { break };
        before = Some(rest);
        // Each removed dependent changes the place of another dependent.
        for number in [0, 50] {
            rv += 1;
            let gone = u64::try_from(100 - rest).unwrap() / 10 + number;
            bench.deleted("configmaps", &format!("c{gone:05}"), rv);
        }
    }
    let left = bench.leader.queries().uids_from(0, 1000).0.into_iter().filter(|other| *other != uid("o"));
    let missed: Vec<Uid> = left.filter(|other| !found.contains(other)).collect();
    assert_eq!(missed, []);
}

#[test]
fn whatever_may_look_different_is_among_the_changes() {
    let mut bench = crowd(2);
    let changed = |bench: &mut Bench, change: &dyn Fn(&mut Bench)| -> BTreeSet<Uid> {
        let from = bench.leader.queries().next_change();
        change(bench);
        bench.leader.queries().changed(from, 1000).unwrap().into_iter().collect()
    };
    let [o, first, second] = ["o", "c00000", "c00001"].map(uid);
    // The object's own state changes, and the number of its owner's dependents.
    let seen = changed(&mut bench, &|bench| bench.seen("configmaps", object("configmaps", "c00000", 200)));
    assert!(seen.contains(&first) && seen.contains(&o) && !seen.contains(&second), "{seen:?}");
    // The standing of references to the object changes.
    let seen = changed(&mut bench, &|bench| {
        bench.seen("things", object("things", "o", 201).terminating("foregroundDeletion"))
    });
    assert!(seen.contains(&o) && seen.contains(&second), "{seen:?}");
    let seen = changed(&mut bench, &|bench| bench.deleted("configmaps", "c00001", 202));
    assert!(seen.contains(&second) && seen.contains(&o), "{seen:?}");
    assert!(bench.leader.queries().linked(&second).is_none() && bench.leader.queries().linked(&first).is_some());
    assert_eq!(bench.leader.queries().owners_of(&first), Some(Vec::new()));
}

#[test]
fn what_only_has_a_new_version_is_told_of_and_not_judged_again() {
    let mut bench = crowd(1);
    let dependent = |rv| object("configmaps", "c00000", rv).owned_by("things", "o");
    let from = bench.leader.queries().next_change();
    let mut see = |object: Object| {
        bench.leader.handle(bench.now, Input::Seen { collection: collection("configmaps"), object });
        let waits = bench.leader.world.has_marked();
        bench.drain();
        waits
    };
    assert!(!see(dependent(200)));
    assert!(see(dependent(201).with_finalizer("example.com/f")), "something else is new too");
    assert!(!see(dependent(202).with_finalizer("example.com/f")));
    assert!(see(dependent(203)));
    let id = bench.leader.world.graph().primary(&uid("c00000")).unwrap();
    assert_eq!(bench.leader.world.graph().node(id).resource_version(), Some(version(203)));
    let told = bench.leader.queries().changed(from, 1000).unwrap();
    assert_eq!(told.iter().filter(|told| **told == uid("c00000")).count(), 4);
}

#[test]
fn what_is_decided_goes_by_the_last_version() {
    let mut bench = Bench::without_executor();
    for resource in ["configmaps", "things"] {
        bench.serve(resource);
        bench.list(resource, 100, vec![]);
    }
    let dependent = |rv| object("configmaps", "c", rv).owned_by("things", "o");
    bench.seen("things", object("things", "o", 101));
    bench.seen("configmaps", dependent(102));
    bench.deleted("things", "o", 103);
    bench.seen("configmaps", dependent(104));
    bench.hello(STREAM, hello("e1", "i1"));
    let lease = bench.take("c");
    assert_eq!(lease.item.preconditions.resource_version, version(104));
}

#[test]
fn how_fresh_the_graph_is_can_be_asked_for() {
    let mut bench = crowd(2);
    let configmaps = collection("configmaps");
    let reached = bench.leader.queries().reached(&configmaps).unwrap();
    assert_eq!((reached.state, reached.position), (crate::coverage::State::Synced, Some(version(103))));
    assert!(bench.leader.queries().reached(&GroupResource { group: "".into(), resource: "nobodies".into() }).is_none());
    let both = [(uid("c00000"), version(102)), (uid("c00001"), version(103))];
    assert!(bench.leader.queries().shows(&configmaps, &both));
    assert!(!bench.leader.queries().shows(&configmaps, &both[..1]));
    assert!(!bench.leader.queries().shows(&configmaps, &[both[0].clone(), (uid("c00001"), version(104))]));
    assert!(!bench.leader.queries().shows(&collection("things"), &both));
    assert_eq!(bench.leader.queries().histories(), 0);
    // The store is rewound. No position is known until the collections are listed again.
    bench.seen("configmaps", object("configmaps", "c00000", 50));
    assert_eq!(bench.leader.queries().histories(), 1);
    assert_eq!(bench.leader.queries().reached(&configmaps).unwrap().position, None);
    assert!(bench.leader.queries().positions().is_empty());
}
