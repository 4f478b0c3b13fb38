//! Reads after a store went back, until the history is trusted again.

use super::restores::{answered, breaks, rewinds};
use super::*;
use crate::leader::probing::Purpose;

#[test]
fn an_answer_about_a_kind_that_ceases_to_be_served_does_not_keep_the_store_unsettled() {
    let mut bench = Bench::synced();
    breaks(&mut bench, "nodes");
    bench.answer_probes(40, &[]);
    assert_eq!(rewinds(&bench), 1);
    for resource in ["configmaps", "nodes", "things"] {
        bench.list(resource, 50, vec![]);
    }
    let mut unserved = false;
    for _ in 0..120 {
        bench.pass(Duration::from_secs(1));
        bench.answer_reads(&Ok(GuardAnswer::NotServed));
        for probe in core::mem::take(&mut bench.probes) {
            let stale = !unserved;
            if stale {
                bench.input(Input::KindUnserved(probe.collection.clone()));
                unserved = true;
            }
            let resource_version = version(if stale { 40 } else { 60 });
            let answer = ProbeAnswer { resource_version, objects: vec![], complete: true, remaining: None };
            bench.input(Input::Probed { probe: probe.id, answer: Ok(answer) });
        }
    }
    assert_eq!((rewinds(&bench), bench.leader.queries().status().stopped), (1, None));
}

#[test]
fn reads_go_on_where_the_last_one_from_behind_was_of_a_kind_that_ceases_to_be_served() {
    let mut bench = Bench::synced();
    breaks(&mut bench, "nodes");
    bench.answer_probes(40, &[]);
    for resource in ["configmaps", "nodes", "things"] {
        bench.list(resource, 50, vec![]);
    }
    // The list shows the store further on than any collection stands.
    bench.input(Input::ListBegun { collection: collection("things"), selectors: 0 });
    bench.input(Input::Listed { collection: collection("things"), object: object("things", "o", 200) });
    let mut reads = 0;
    for _ in 0..120 {
        bench.pass(Duration::from_secs(1));
        bench.answer_reads(&Ok(GuardAnswer::NotServed));
        for probe in core::mem::take(&mut bench.probes) {
            let asked = bench.leader.prober.under_way().get(&probe.id).and_then(|asked| asked.purpose.as_ref());
            reads += usize::from(matches!(asked, Some(Purpose::Settle)));
            if reads == 3 {
                bench.input(Input::KindUnserved(probe.collection.clone()));
            }
            let resource_version = version(if reads <= 3 { 60 } else { 210 });
            let answer = ProbeAnswer { resource_version, objects: vec![], complete: true, remaining: None };
            bench.input(Input::Probed { probe: probe.id, answer: Ok(answer) });
        }
    }
    assert_eq!((rewinds(&bench), bench.leader.queries().status().stopped), (1, None), "{reads} reads");
}

#[test]
fn a_watch_of_a_lost_history_proves_nothing() {
    let mut bench = Bench::synced();
    bench.seen("things", object("things", "o", 101));
    bench.seen("configmaps", object("configmaps", "a", 102).owned_by("things", "o"));
    bench.bookmark("nodes", 90);
    bench.deleted("things", "o", 103);
    bench.list("nodes", 95, vec![]);
    bench.list("configmaps", 95, vec![object("configmaps", "a", 80).owned_by("things", "o")]);
    bench.input(Input::ListFailed { collection: collection("things"), error: "500".to_string(), broke: false });
    answered(&mut bench, 14, 96);
    assert_eq!(bench.leader.queries().status().stopped, None);
    assert_eq!(bench.grants(), NOTHING, "o may live in the store as it is now");
    bench.list("things", 97, vec![object("things", "o", 70)]);
    assert_eq!(bench.grants(), NOTHING);
    bench.deleted("things", "o", 98);
    assert_eq!(bench.grants(), ["delete(Background) a"]);
}

#[test]
fn an_answer_of_a_lost_history_is_no_part_of_a_proof() {
    let mut bench = Bench::synced();
    bench.input(Input::KindServed(ServedKind { access: Access::ReadOnly, ..served("roles") }));
    bench.seen("configmaps", object("configmaps", "a", 102).owned_by("roles", "o"));
    bench.pass(Duration::from_secs(1));
    bench.found("o", FindingResult::Absent(None));
    bench.bookmark("nodes", 90);
    for (resource, objects) in [
        ("nodes", vec![]),
        ("things", vec![]),
        ("configmaps", vec![object("configmaps", "a", 80).owned_by("roles", "o")]),
    ] {
        bench.list(resource, 95, objects);
    }
    answered(&mut bench, 14, 96);
    assert_eq!(bench.leader.queries().status().stopped, None);
    let mut answers = 0;
    while bench.granted.is_empty() {
        bench.pass(Duration::from_secs(1));
        answers += u32::from(bench.found_if_asked("o", &FindingResult::Absent(None)));
    }
    assert_eq!((answers, bench.grants()), (2, vec!["delete(Background) a".to_string()]), "both of this history");
}
