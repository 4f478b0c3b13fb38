//! Hourly audits of collections, which detect changes that a watch has lost.

use super::*;

/// Returns the question of the hourly audit of configmaps, which contain `a` at 102 and stand at 102.
fn audited() -> (Bench, ProbeId) {
    let mut bench = Bench::synced();
    bench.seen("configmaps", object("configmaps", "a", 102));
    for _ in 0..90 {
        bench.pass(Duration::from_secs(60));
        let of_it =
            bench.probes.iter().find(|probe| probe.collection == collection("configmaps")).map(|probe| probe.id);
        if let Some(probe) = of_it {
            bench.probes.clear();
            return (bench, probe);
        }
        bench.probes.clear();
    }
    panic!("no audit within ninety minutes");
}

fn counts(bench: &mut Bench, probe: ProbeId, at: u64, count: u64) {
    let objects = vec![object("configmaps", "a", 102)];
    let remaining = Some(count - 1);
    let answer = ProbeAnswer { resource_version: version(at), objects, complete: count == 1, remaining };
    bench.input(Input::Probed { probe, answer: Ok(answer) });
}

/// Returns the next question to configmaps within this time.
fn asked_again(bench: &mut Bench, within: Duration) -> Option<ProbeId> {
    bench.pass(within);
    let asked = core::mem::take(&mut bench.probes);
    asked.iter().find(|probe| probe.collection == collection("configmaps")).map(|probe| probe.id)
}

#[test]
fn a_count_is_compared_with_what_the_watch_has_shown_up_to_its_version() {
    let (mut bench, probe) = audited();
    // Two objects were created and one was deleted before the count of the server. The watch shows the changes after
    // the count.
    counts(&mut bench, probe, 105, 2);
    bench.seen("configmaps", object("configmaps", "b", 103));
    bench.seen("configmaps", object("configmaps", "c", 104));
    bench.deleted("configmaps", "c", 105);
    bench.seen("configmaps", object("configmaps", "d", 106));
    assert_eq!((asked_again(&mut bench, Duration::from_secs(600)), bench.relists.len()), (None, 0));
}

#[test]
fn a_collection_is_counted_once_an_hour_however_often_it_was_listed() {
    let mut bench = Bench::synced();
    for position in 101..120 {
        bench.list("configmaps", position, vec![]);
    }
    bench.pass(Duration::from_secs(4000));
    let asked = bench.probes.iter().filter(|probe| probe.collection == collection("configmaps"));
    assert_eq!(asked.count(), 1);
}

#[test]
fn a_count_that_the_watch_has_gone_past_is_asked_for_again() {
    let (mut bench, probe) = audited();
    bench.seen("configmaps", object("configmaps", "b", 106));
    counts(&mut bench, probe, 105, 1);
    let probe = asked_again(&mut bench, Duration::from_secs(60)).expect("another try");
    counts(&mut bench, probe, 106, 2);
    assert_eq!((asked_again(&mut bench, Duration::from_secs(600)), bench.relists.len()), (None, 0));
}

#[test]
fn a_busy_collection_is_not_listed_anew() {
    let (mut bench, mut probe) = audited();
    for at in 0..5 {
        // At each question there is one more object than the watch has shown.
        bench.seen("configmaps", object("configmaps", &format!("b{at}"), 110 + 10 * at));
        counts(&mut bench, probe, 115 + 10 * at, 3 + at);
        bench.seen("configmaps", object("configmaps", &format!("c{at}"), 114 + 10 * at));
        bench.deleted("configmaps", &format!("c{at}"), 116 + 10 * at);
        if let Some(next) = asked_again(&mut bench, Duration::from_secs(3700)) {
            probe = next;
        }
    }
    assert_eq!(bench.relists, []);
}

#[test]
fn what_a_watch_has_lost_is_found_and_listed() {
    let (mut bench, probe) = audited();
    counts(&mut bench, probe, 105, 2);
    bench.bookmark("configmaps", 107);
    let probe = asked_again(&mut bench, Duration::from_secs(60)).expect("a second look");
    counts(&mut bench, probe, 107, 2);
    bench.pass(Duration::from_secs(1));
    assert_eq!(bench.relists, [collection("configmaps")]);
}

#[test]
fn a_forged_count_of_objects_is_a_difference_like_any_other() {
    let (mut bench, probe) = audited();
    let objects = vec![object("configmaps", "a", 102)];
    let answer = ProbeAnswer { resource_version: version(102), objects, complete: false, remaining: Some(u64::MAX) };
    bench.input(Input::Probed { probe, answer: Ok(answer) });
    assert!(asked_again(&mut bench, Duration::from_secs(60)).is_some());
}
