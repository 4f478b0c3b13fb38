//! Queries for readers: walks, reasons and plans.

use super::*;
use crate::plan::PlanOptions;
use crate::view::{Effect, OwnerStanding, Plan, ReasonCode, VerdictView};
use crate::work::PropagationPolicy;

fn down(bench: &Bench, start: &str, max_depth: u32, blocking_only: bool) -> (Vec<Found>, DependentsWalk) {
    let options = DependentsOptions { max_depth, blocking_only, max_objects: 100 };
    let mut walk = DependentsWalk::new(uid(start), options);
    let mut all = Vec::new();
    while let Some(found) = walk.step(&bench.leader.queries(), 1, 1) {
        all.extend(found);
    }
    (all, walk)
}

/// Returns lines of `depth name <- owners of the walk`, in order.
fn lines(found: &[Found]) -> Vec<String> {
    let line = |found: &Found| {
        let edges: Vec<&str> = found.edges.iter().map(|edge| &*edge.reference.name).collect();
        format!("{} {} <- {}", found.depth, found.node.object.name, edges.join(" "))
    };
    found.iter().map(line).collect()
}

/// Creates root <- mid <- leaf, root <- both, mid <- both, other <- both.
fn family() -> Bench {
    let mut bench = Bench::synced();
    bench.seen("things", object("things", "root", 101));
    bench.seen("things", object("things", "other", 102));
    bench.seen("configmaps", object("configmaps", "mid", 103).blocking("things", "root"));
    bench.seen("configmaps", object("configmaps", "leaf", 104).owned_by("configmaps", "mid"));
    let both = object("configmaps", "both", 105).owned_by("configmaps", "mid").owned_by("things", "root");
    bench.seen("configmaps", both.owned_by("things", "other"));
    bench
}

#[test]
fn a_walk_finds_each_object_once_at_its_smallest_depth() {
    let bench = family();
    let (found, walk) = down(&bench, "root", 10, false);
    assert_eq!(lines(&found), ["1 mid <- root", "1 both <- mid root", "2 leaf <- mid"]);
    assert!(!walk.is_cut() && !walk.is_depth_limited());
    let (found, walk) = down(&bench, "root", 1, false);
    assert_eq!((found.len(), walk.is_depth_limited()), (2, true));
    let mut up = OwnersWalk::new(uid("leaf"), 10, 100);
    while !up.step(&bench.leader.queries(), 1) {}
    assert_eq!(lines(&up.finish().found), ["1 mid <- mid", "2 root <- root"]);
}

#[test]
fn a_walk_ends_in_a_cycle_and_at_its_bound() {
    let mut bench = Bench::synced();
    bench.seen("things", object("things", "a", 101).owned_by("things", "b"));
    bench.seen("things", object("things", "b", 102).owned_by("things", "a"));
    assert_eq!(lines(&down(&bench, "a", 10, false).0), ["1 b <- a"]);
    for number in 0..150 {
        bench.seen("configmaps", object("configmaps", &format!("c{number}"), 103 + number).owned_by("things", "a"));
    }
    let (found, walk) = down(&bench, "a", 10, false);
    assert_eq!((found.len(), walk.is_cut()), (100, true), "{:?}", lines(&found));
}

#[test]
fn a_walk_along_blocking_references_leaves_the_others_out() {
    let bench = family();
    assert_eq!(lines(&down(&bench, "root", 9, true).0), ["1 mid <- root"]);
}

fn why(bench: &Bench, name: &str) -> (VerdictView, Vec<ReasonCode>) {
    let explanation = bench.leader.queries().explain(&uid(name)).unwrap();
    (explanation.verdict, explanation.reasons.iter().map(|reason| reason.code).collect())
}

#[test]
fn every_state_of_an_object_has_its_reason() {
    let mut bench = family();
    assert_eq!(why(&bench, "root"), (VerdictView::Unowned, vec![]));
    assert_eq!(why(&bench, "mid"), (VerdictView::Kept, vec![ReasonCode::SolidOwner]));
    bench.seen("things", object("things", "x", 110).with_finalizer("example.com/f").owned_by("things", "nobody"));
    assert_eq!(why(&bench, "x"), (VerdictView::Undecided, vec![ReasonCode::OwnerUnverified]));
    assert_eq!(
        why(&bench, "nobody"),
        (VerdictView::Undecided, vec![ReasonCode::OwnerUnverified, ReasonCode::NeverObserved])
    );
    let mut stopped = object("things", "x", 111).with_finalizer("example.com/f");
    stopped.facts.terminating = true;
    bench.seen("things", stopped);
    assert_eq!(why(&bench, "x"), (VerdictView::Blocked, vec![ReasonCode::FinalizerPresent]));
    bench.seen("things", object("things", "root", 112).terminating("foregroundDeletion"));
    assert_eq!(why(&bench, "root"), (VerdictView::Blocked, vec![ReasonCode::BlockingDependents]));
    bench.seen("things", object("things", "other", 113).terminating("orphan"));
    assert_eq!(why(&bench, "other"), (VerdictView::InProgress, vec![ReasonCode::DependentsToOrphan]));
    let mut held = object("things", "held", 114).owned_by("things", "gone");
    held.facts.hold = true;
    bench.seen("things", object("things", "gone", 113));
    bench.seen("things", held);
    bench.seen("configmaps", object("configmaps", "orphan", 115).owned_by("things", "gone"));
    bench.deleted("things", "gone", 116);
    assert_eq!(why(&bench, "held"), (VerdictView::Held, vec![ReasonCode::HoldAnnotation]));
    assert_eq!(why(&bench, "orphan"), (VerdictView::Collectable, vec![ReasonCode::OwnersAbsent]));
    let explanation = bench.leader.queries().explain(&uid("orphan")).unwrap();
    assert!(matches!(explanation.item.unwrap().place, crate::view::PlaceView::Leased { .. }));
    assert_eq!(explanation.owners[0].standing, OwnerStanding::Dangling);
    assert_eq!(why(&bench, "gone"), (VerdictView::Gone, vec![ReasonCode::Deleted]));
    assert_eq!(bench.leader.queries().explain(&uid("never")), None);
}

#[test]
fn without_executors_a_decision_says_what_it_waits_for() {
    let mut bench = Bench::without_executor();
    bench.serve("things");
    bench.list("things", 100, vec![object("things", "o", 90), object("things", "a", 91).owned_by("things", "o")]);
    bench.deleted("things", "o", 101);
    assert_eq!(why(&bench, "a"), (VerdictView::Collectable, vec![ReasonCode::NoExecutor, ReasonCode::OwnersAbsent]));
    bench.input(Input::TermLost { leader_endpoint: "there:1".to_string() });
    assert_eq!(why(&bench, "a").1.first(), Some(&ReasonCode::NotLeading));
}

fn plan(bench: &Bench, target: &str, policy: PropagationPolicy) -> Plan {
    plan_of(bench, target, Some(policy))
}

fn plan_of(bench: &Bench, target: &str, propagation_policy: Option<PropagationPolicy>) -> Plan {
    let options = PlanOptions {
        targets: vec![uid(target)],
        propagation_policy,
        assume_gone: vec![],
        ignore_holds: false,
        max_objects: 100,
    };
    let mut planning = Planning::new(options);
    while !planning.step(&bench.leader.queries(), 1) {}
    planning.finish(bench.leader.queries().frame())
}

/// Returns lines of `step effect name`, in order.
fn steps(plan: &Plan) -> Vec<String> {
    plan.entries.iter().map(|entry| format!("{} {:?} {}", entry.step, entry.effect, entry.object.name)).collect()
}

#[test]
fn a_plan_says_what_goes_and_what_stays_by_each_policy() {
    let bench = family();
    let background = plan(&bench, "root", PropagationPolicy::Background);
    assert_eq!(
        steps(&background),
        ["1 Delete root", "2 ReferenceRemoved both", "2 Delete mid", "3 Delete leaf"],
        "{background:?}"
    );
    assert_eq!(background.entries[1].reasons[0].code, ReasonCode::SolidOwner);
    let foreground = plan(&bench, "root", PropagationPolicy::Foreground);
    assert_eq!(steps(&foreground), ["2 ReferenceRemoved both", "3 Delete leaf", "3 Delete mid", "4 Delete root"]);
    let orphan = plan(&bench, "root", PropagationPolicy::Orphan);
    assert_eq!(steps(&orphan), ["2 Orphaned both", "2 Orphaned mid", "3 Delete root"]);
}

#[test]
fn a_job_orphans_its_dependents_without_a_policy() {
    let mut bench = family();
    bench.serve("jobs");
    bench.list("jobs", 110, vec![object("jobs", "j", 90)]);
    bench.seen("configmaps", object("configmaps", "c", 106).owned_by("jobs", "j"));
    assert_eq!(steps(&plan_of(&bench, "j", None)), ["2 Orphaned c", "3 Delete j"]);
    assert_eq!(steps(&plan_of(&bench, "j", Some(PropagationPolicy::Background))), ["1 Delete j", "2 Delete c"]);
    let others = steps(&plan_of(&bench, "other", None));
    assert_eq!(others[0], "1 Delete other");
}

#[test]
fn a_plan_names_waiting_objects_and_unknown_effects() {
    let mut bench = family();
    bench.seen(
        "configmaps",
        object("configmaps", "stays", 120).owned_by("things", "root").with_finalizer("example.com/f"),
    );
    bench
        .seen("configmaps", object("configmaps", "maybe", 121).owned_by("things", "root").owned_by("things", "unseen"));
    let mut held = object("configmaps", "held", 122).owned_by("things", "root");
    held.facts.hold = true;
    bench.seen("configmaps", held);
    let plan = plan(&bench, "root", PropagationPolicy::Background);
    let effect = |name: &str| {
        let entry = plan.entries.iter().find(|entry| &*entry.object.name == name);
        entry.map(|entry| (entry.effect, entry.reasons[0].code))
    };
    assert_eq!(effect("stays"), Some((Effect::Waits, ReasonCode::FinalizerPresent)));
    assert_eq!(effect("maybe"), Some((Effect::Unknown, ReasonCode::OwnerUnverified)));
    assert_eq!(effect("held"), Some((Effect::Held, ReasonCode::HoldAnnotation)));
}

#[test]
fn a_plan_of_a_foreground_deletion_waits_for_collections_that_may_hide_dependents() {
    let mut bench = family();
    bench.input(Input::ListFailed { collection: collection("configmaps"), error: "no".to_string(), broke: false });
    let plan = plan(&bench, "other", PropagationPolicy::Foreground);
    assert_eq!(steps(&plan), ["1 Waits other", "2 ReferenceRemoved both"]);
    assert_eq!(plan.entries[0].reasons[0].code, ReasonCode::CollectionUnsynced);
    assert_eq!(plan.unsynced, [collection("configmaps")]);
}

#[test]
fn a_plan_names_what_discovery_does_not_show() {
    let mut bench = family();
    let before = plan(&bench, "other", PropagationPolicy::Foreground).digest;
    let hidden = Undiscovered { group: "x.io".into(), resource: None, why: "its server is down".to_string() };
    bench.input(Input::Undiscovered(vec![hidden]));
    let unsynced = [GroupResource { group: "x.io".into(), resource: "*".into() }];
    for policy in [PropagationPolicy::Foreground, PropagationPolicy::Background] {
        let plan = plan(&bench, "other", policy);
        assert_eq!(plan.unsynced, unsynced, "{policy:?}");
        let first = match policy {
            PropagationPolicy::Foreground => "1 Waits other",
            PropagationPolicy::Background | PropagationPolicy::Orphan => "1 Delete other",
        };
        assert_eq!(steps(&plan)[0], first);
        assert_ne!(plan.digest, before);
    }
}

#[test]
fn a_plan_deletes_what_two_groups_serve_once_and_what_refers_to_it_by_either() {
    let mut bench = family();
    bench.serve("mirrors");
    bench.list("mirrors", 106, vec![]);
    bench.seen("mirrors", object("mirrors", "m", 110));
    bench.seen("things", object("things", "m", 110));
    bench.seen("configmaps", object("configmaps", "a", 111).blocking("things", "m"));
    bench.seen("configmaps", object("configmaps", "b", 112).blocking("mirrors", "m"));
    let background = plan(&bench, "m", PropagationPolicy::Background);
    assert_eq!(steps(&background), ["1 Delete m", "2 Delete a", "2 Delete b"]);
    let foreground = plan(&bench, "m", PropagationPolicy::Foreground);
    assert_eq!(steps(&foreground), ["2 Delete a", "2 Delete b", "3 Delete m"]);
    let orphan = plan(&bench, "m", PropagationPolicy::Orphan);
    assert_eq!(steps(&orphan), ["2 Orphaned a", "2 Orphaned b", "3 Delete m"]);
}

#[test]
fn the_digest_moves_with_the_facts_and_with_nothing_else() {
    let mut bench = family();
    let digest = |bench: &Bench| plan(bench, "root", PropagationPolicy::Background).digest;
    let before = digest(&bench);
    bench.seen("configmaps", object("configmaps", "leaf", 130).owned_by("configmaps", "mid"));
    assert_eq!(digest(&bench), before, "only a version");
    assert_ne!(plan(&bench, "root", PropagationPolicy::Orphan).digest, before);
    bench.seen("configmaps", object("configmaps", "new", 131).owned_by("configmaps", "leaf"));
    let after = digest(&bench);
    assert_ne!(after, before, "one more dependent");
    bench.seen(
        "configmaps",
        object("configmaps", "new", 132).owned_by("configmaps", "leaf").with_finalizer("example.com/f"),
    );
    assert_ne!(digest(&bench), after, "a finalizer");
}

#[test]
fn a_plan_unblocks_a_cycle_as_the_judge_does() {
    let mut bench = Bench::synced();
    bench.seen("things", object("things", "a", 101).blocking("things", "b"));
    bench.seen("things", object("things", "b", 102).blocking("things", "a"));
    let plan = plan(&bench, "a", PropagationPolicy::Foreground);
    let gone: Vec<&str> =
        plan.entries.iter().filter(|entry| entry.effect == Effect::Delete).map(|entry| &*entry.object.name).collect();
    assert_eq!(gone.len(), 2, "{:?}", steps(&plan));
}

#[test]
fn what_went_is_remembered_with_its_cause_for_a_while() {
    let mut bench = Bench::synced();
    bench.seen("things", object("things", "o", 101));
    bench.seen("configmaps", object("configmaps", "a", 102).owned_by("things", "o"));
    bench.deleted("things", "o", 103);
    let lease = bench.take("a");
    bench.report(&lease, Outcome::Done);
    bench.deleted("configmaps", "a", 104);
    let tombstone = bench.leader.queries().tombstone(&uid("a")).unwrap().clone();
    assert!(tombstone.caused_by_us && matches!(tombstone.causes[..], [Cause::OwnerAbsent { .. }]), "{tombstone:?}");
    assert!(!bench.leader.queries().tombstone(&uid("o")).unwrap().caused_by_us);
    let order: Vec<&str> = bench.leader.queries().tombstones().map(|tombstone| &*tombstone.object.name).collect();
    assert_eq!(order, ["a", "o"]);
    bench.pass(Duration::from_secs(601));
    assert_eq!((bench.leader.queries().tombstone(&uid("a")), bench.leader.queries().tombstones().count()), (None, 0));
}

#[test]
fn what_goes_slowly_after_a_delete_of_ours_went_by_us() {
    for shows_first in [false, true] {
        let mut bench = Bench::synced();
        bench.seen("things", object("things", "o", 101));
        bench
            .seen("configmaps", object("configmaps", "a", 102).owned_by("things", "o").with_finalizer("example.com/f"));
        bench.deleted("things", "o", 103);
        let lease = bench.take("a");
        let going = object("configmaps", "a", 104).owned_by("things", "o").terminating("example.com/f");
        if shows_first {
            bench.seen("configmaps", going.clone());
        }
        let facts = going.facts.clone();
        bench.report_with(&lease, |report| {
            report.observed = Some(Sighting { uid: uid("a"), resource_version: version(104), facts });
        });
        bench.seen("configmaps", going.clone());
        bench.pass(Duration::from_secs(300));
        bench.deleted("configmaps", "a", 105);
        let tombstone = bench.leader.queries().tombstone(&uid("a")).unwrap();
        assert!(tombstone.caused_by_us && !tombstone.causes.is_empty(), "shows first: {shows_first}; {tombstone:?}");
    }
}

#[test]
fn cycles_are_found_and_looked_at_again() {
    let mut bench = Bench::synced();
    for (name, owner, rv) in
        [("a", "b", 101), ("b", "c", 102), ("c", "a", 103), ("tail", "a", 104), ("self", "self", 105)]
    {
        bench.seen("things", object("things", name, rv).blocking("things", owner));
    }
    bench.seen("things", object("things", "x", 106).owned_by("things", "y"));
    bench.seen("things", object("things", "y", 107).owned_by("things", "x"));
    let search = |bench: &Bench, blocking_only: bool| {
        let mut search = CycleSearch::new(blocking_only);
        while !search.step(&bench.leader.queries(), 2) {}
        search.components()
    };
    let names = |groups: &[Vec<Uid>]| -> Vec<String> {
        groups.iter().map(|group| group.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")).collect()
    };
    assert_eq!(names(&search(&bench, true)), ["a b c", "self"]);
    let all = search(&bench, false);
    assert_eq!(names(&all), ["a b c", "self", "x y"]);
    assert!(!bench.leader.queries().cycle(&all[0]).unwrap().deadlocked);
    for (name, owner, rv) in [("a", "b", 111), ("b", "c", 112), ("c", "a", 113)] {
        let waiting = object("things", name, rv).blocking("things", owner).terminating("foregroundDeletion");
        bench.seen("things", waiting);
    }
    let cycle = bench.leader.queries().cycle(&all[0]).unwrap();
    assert_eq!((cycle.deadlocked, cycle.unblock.to_string()), (true, "a".to_string()));
    assert_eq!(why(&bench, "a").1, [ReasonCode::Cycle, ReasonCode::BlockingDependents]);
    bench.deleted("things", "c", 120);
    assert_eq!(bench.leader.queries().cycle(&all[0]), None);
}

#[test]
fn what_does_not_move_is_found_with_what_has_to_move_first() {
    let mut bench = Bench::synced();
    bench.seen("things", object("things", "root", 101));
    bench.seen("configmaps", object("configmaps", "mid", 102).blocking("things", "root"));
    bench.seen("configmaps", object("configmaps", "leaf", 103).blocking("configmaps", "mid"));
    let mut leaf = object("configmaps", "leaf", 104).blocking("configmaps", "mid").with_finalizer("example.com/f");
    leaf.facts.terminating = true;
    bench.seen("configmaps", leaf);
    bench.seen(
        "configmaps",
        object("configmaps", "mid", 105).blocking("things", "root").terminating("foregroundDeletion"),
    );
    bench.seen("things", object("things", "root", 106).terminating("foregroundDeletion"));
    let mut scan = Scan::default();
    let mut stuck = Vec::new();
    while let Some(found) = scan.stuck(&bench.leader.queries(), 1) {
        stuck.extend(found.into_iter().map(|explanation| explanation.object.object.name.to_string()));
    }
    stuck.sort();
    assert_eq!(stuck, ["leaf", "mid", "root"]);
    let blockers: Vec<String> =
        bench.leader.queries().root_blockers(&uid("root")).iter().map(|at| at.name.to_string()).collect();
    assert_eq!(blockers, ["leaf"]);
    let find = |namespace: &str, name: &str| bench.leader.queries().uids_at("", "ConfigMap", namespace, name, 10);
    assert_eq!(find("ns", "leaf"), [uid("leaf")]);
    assert_eq!((find("ns", "other"), find("", "leaf")), (Vec::new(), Vec::new()));
}

#[test]
fn a_decision_tells_what_it_rests_on_back_to_the_root() {
    let mut bench = Bench::synced();
    bench.seen("things", object("things", "root", 101));
    bench.seen("configmaps", object("configmaps", "mid", 102).owned_by("things", "root"));
    bench.seen("configmaps", object("configmaps", "leaf", 103).owned_by("configmaps", "mid"));
    bench.deleted("things", "root", 104);
    let lease = bench.take("mid");
    bench.report(&lease, Outcome::Done);
    bench.deleted("configmaps", "mid", 105);
    let lease = bench.take("leaf");
    bench.deleted("configmaps", "leaf", 106);
    bench.report(&lease, Outcome::Done);
    let mut told = Vec::new();
    for event in &bench.events {
        let (phase, target, grounds) = if let Event::Decided { target, grounds: Some(grounds), .. } = event {
            ("decided", target, grounds)
        } else if let Event::Granted { target, grounds, .. } = event {
            ("granted", target, grounds)
        } else if let Event::Attempted { end, .. } = event {
            ("attempted", &end.target, &end.grounds)
        } else {
            continue;
        };
        if *target.name == *"leaf" {
            let chain: Vec<&str> = grounds.chain.iter().map(|at| &*at.name).collect();
            told.push((phase, grounds.decision, chain.join(" "), grounds.causes.len()));
        }
    }
    let id = told[0].1;
    let whole = |phase| (phase, id, "mid root".to_string(), 1);
    assert_eq!(told, [whole("decided"), whole("granted"), whole("attempted")], "one decision from first to last");
}

/// The uid of the reference is that of an object in another namespace, which lives and began nothing.
#[test]
fn a_wrong_reference_has_no_root() {
    let mut bench = Bench::synced();
    bench.seen("things", Object { namespace: "other".into(), ..object("things", "o", 101) });
    bench.seen("configmaps", object("configmaps", "a", 102).owned_by("things", "o"));
    bench.pass(Duration::from_secs(1));
    bench.found_again("o", FindingResult::Absent(Some(version(110))));
    bench.take("a");
    let granted = bench
        .events
        .iter()
        .find_map(|event| if let Event::Granted { grounds, .. } = event { Some(grounds) } else { None });
    let grounds = granted.expect("the dependent is granted");
    assert_eq!((grounds.causes.len(), grounds.chain.as_slice()), (1, &[][..]));
}
