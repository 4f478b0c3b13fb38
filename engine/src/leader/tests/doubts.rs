//! A collection with a broken connection that does not report its position: the decisions that wait for the collection,
//! and the decisions that do not.

use super::*;
use crate::view::ReasonCode;

fn breaks(bench: &mut Bench, resource: &str) {
    bench.input(Input::WatchLost {
        collection: collection(resource),
        end: WatchEnd::Transport,
        error: "reset".to_string(),
    });
}

/// Answers all questions for ten seconds, and fails those that match `fails`.
fn answer(bench: &mut Bench, fails: fn(&Probe) -> bool) {
    for _ in 0..20 {
        for probe in core::mem::take(&mut bench.probes) {
            let complete = probe.limit.is_none();
            let answer = ProbeAnswer { resource_version: version(110), objects: Vec::new(), complete, remaining: None };
            let answer = if fails(&probe) { Err(Failure::transport("broken".to_string())) } else { Ok(answer) };
            bench.input(Input::Probed { probe: probe.id, answer });
        }
        bench.pass(Duration::from_millis(500));
    }
}

fn is_of(probe: &Probe, resource: &str) -> bool {
    &*probe.collection.resource == resource
}

/// Puts `things/o` in foreground deletion and `things/p` in orphaning deletion, both without dependents, while the
/// connection of configmaps is broken.
fn owners_in_deletion(mut bench: Bench) -> Bench {
    breaks(&mut bench, "configmaps");
    bench.seen("things", object("things", "o", 106).terminating("foregroundDeletion"));
    bench.seen("things", object("things", "p", 107).terminating("orphan"));
    bench
}

const BOTH: [&str; 2] = ["remove finalizer foregroundDeletion of o", "remove finalizer orphan of p"];

#[test]
fn a_finalizer_does_not_wait_for_a_kind_whose_namespace_list_shows_that_it_hides_nothing() {
    let mut bench = owners_in_deletion(Bench::synced());
    answer(&mut bench, |probe| is_of(probe, "configmaps") && probe.namespace.is_none());
    assert_eq!(bench.grants(), BOTH);
}

#[test]
fn the_same_once_the_list_of_that_kind_has_failed() {
    let mut bench = owners_in_deletion(Bench::synced());
    bench.input(Input::ListBegun { collection: collection("configmaps"), selectors: 0 });
    bench.input(Input::ListFailed {
        collection: collection("configmaps"),
        error: "no conversion".to_string(),
        broke: false,
    });
    answer(&mut bench, |probe| is_of(probe, "configmaps") && probe.namespace.is_none());
    assert_eq!(bench.grants(), BOTH);
}

#[test]
fn a_finalizer_waits_for_no_kind_that_is_assumed_to_hold_no_dependents() {
    let mut config = config();
    config.policy.assume_no_dependents.push(collection("configmaps"));
    let mut bench = owners_in_deletion(Bench::synced_as(config));
    answer(&mut bench, |probe| is_of(probe, "configmaps"));
    assert_eq!(bench.grants(), BOTH);
}

#[test]
fn an_owner_waits_by_name_for_a_kind_that_cannot_even_list_its_namespace() {
    let mut bench = owners_in_deletion(Bench::synced());
    answer(&mut bench, |probe| is_of(probe, "configmaps"));
    assert_eq!(bench.grants(), NOTHING);
    assert_eq!(bench.undecided(), [(Undecided::DependentsUnseen, 2)]);
    for owner in ["o", "p"] {
        let reasons = bench.leader.queries().explain(&uid(owner)).unwrap().reasons;
        let named = |reason: &crate::view::Reason| {
            reason.code == ReasonCode::CollectionUnsynced && reason.detail.contains("configmaps")
        };
        assert!(reasons.iter().any(named), "{owner}: {reasons:?}");
    }
    answer(&mut bench, |_| false);
    assert_eq!(bench.grants(), BOTH);
}

#[test]
fn a_list_of_the_namespace_from_before_the_connection_broke_says_nothing() {
    let mut bench = Bench::synced();
    bench.input(Input::ListBegun { collection: collection("configmaps"), selectors: 0 });
    bench.input(Input::ListFailed {
        collection: collection("configmaps"),
        error: "no conversion".to_string(),
        broke: false,
    });
    bench.input(Input::Message { stream: STREAM, message: ToLeader::Window { max_outstanding: 0 } });
    bench.seen("things", object("things", "o", 106).terminating("foregroundDeletion"));
    answer(&mut bench, |probe| is_of(probe, "configmaps") && probe.namespace.is_none());
    breaks(&mut bench, "configmaps");
    bench.input(Input::Message { stream: STREAM, message: ToLeader::Window { max_outstanding: 100 } });
    answer(&mut bench, |probe| is_of(probe, "configmaps"));
    assert_eq!(bench.grants(), NOTHING);
}

#[test]
fn what_rests_on_a_collection_in_doubt_says_so() {
    let mut bench = Bench::synced();
    bench.seen("things", object("things", "o", 101));
    bench.seen("configmaps", object("configmaps", "a", 102).owned_by("things", "o"));
    breaks(&mut bench, "configmaps");
    bench.deleted("things", "o", 105);
    answer(&mut bench, |probe| is_of(probe, "configmaps"));
    let reason = bench.leader.queries().explain(&uid("a")).unwrap().reasons.remove(0);
    assert_eq!(reason.code, ReasonCode::CollectionInDoubt);
    assert_eq!(reason.detail, "the position of configmaps is unknown since its connection broke");
    let (blockers, _) = bench.leader.queries().blockers(10);
    assert_eq!((&*blockers[0].what, blockers[0].items, blockers[0].next_probe), ("in_doubt: configmaps", 1, None));
    assert_eq!(bench.leader.queries().status().blocked, [("in_doubt", 1)]);
    answer(&mut bench, |_| false);
    assert_eq!(bench.grants(), ["delete(Background) a"]);
    assert_eq!(bench.leader.queries().status().blocked, []);
}

#[test]
fn a_late_answer_does_not_keep_a_kind_in_doubt_that_was_seen_further_before_it_ceased_to_be_served() {
    let mut bench = Bench::synced();
    breaks(&mut bench, "configmaps");
    let asked = core::mem::take(&mut bench.probes);
    bench.seen("things", object("things", "t", 120));
    bench.seen("configmaps", object("configmaps", "o", 121).owned_by("things", "t").terminating("foregroundDeletion"));
    bench.input(Input::KindUnserved(collection("things")));
    for probe in asked {
        let answer =
            ProbeAnswer { resource_version: version(110), objects: Vec::new(), complete: true, remaining: None };
        bench.input(Input::Probed { probe: probe.id, answer: Ok(answer) });
    }
    for _ in 0..20 {
        for probe in core::mem::take(&mut bench.probes) {
            let answer =
                ProbeAnswer { resource_version: version(130), objects: Vec::new(), complete: true, remaining: None };
            bench.input(Input::Probed { probe: probe.id, answer: Ok(answer) });
        }
        bench.pass(Duration::from_millis(500));
    }
    assert_eq!(bench.leader.queries().status().blocked, []);
    assert_eq!(bench.grants(), ["remove finalizer foregroundDeletion of o"]);
}

/// The position of configmaps is ahead of their quiet watch, and their list fails in each namespace.
#[test]
fn an_orphaning_owner_waits_by_name_for_a_list_that_fails_although_all_is_synced() {
    let mut bench = Bench::synced();
    bench.seen("things", object("things", "p", 107).terminating("orphan"));
    answer(&mut bench, |probe| is_of(probe, "configmaps") && probe.namespace.is_some());
    assert_eq!(bench.grants(), NOTHING);
    assert_eq!(bench.undecided(), [(Undecided::DependentsUnseen, 1)]);
    let (owner, mut stuck) = (uid("p"), Vec::new());
    let reasons = bench.leader.queries().explain(&owner).unwrap().reasons;
    let details: Vec<&str> = reasons.iter().map(|reason| &*reason.detail).collect();
    assert_eq!(details, ["cannot list configmaps to find its dependents: broken"]);
    let mut scan = Scan::default();
    while let Some(found) = scan.stuck(&bench.leader.queries(), 100) {
        stuck.extend(found.into_iter().map(|explanation| explanation.object.object.uid));
    }
    assert_eq!(stuck, [owner]);
    answer(&mut bench, |_| false);
    assert_eq!(bench.grants(), ["remove finalizer orphan of p"]);
    assert_eq!(bench.undecided(), []);
}
