//! Actions that are undone at once. The leader repeats them with growing delays, and reports them.

use super::*;
use crate::view::ReasonCode;

/// Reports a grant as done, and shows the result in the watch.
fn shown(bench: &mut Bench, lease: &WorkLease, observed: Sighting) {
    let Sighting { uid, resource_version, facts } = observed.clone();
    bench.report_with(lease, |report| report.observed = Some(observed));
    let ObjectRef { namespace, name, .. } = lease.item.target.clone();
    let object = Object { uid, namespace, name, resource_version, facts, marks: Default::default() };
    bench.input(Input::Seen { collection: lease.item.target.group_resource(), object });
}

/// Reports every grant as done, and shows the target in its earlier state at a newer version. Returns the number of
/// grants in this time.
fn undo_everything(bench: &mut Bench, span: Duration, facts: &Facts) -> usize {
    let (end, mut tries) = (bench.now + span, 0);
    while bench.now < end {
        for lease in core::mem::take(&mut bench.granted) {
            tries += 1;
            let at = 1000 + bench.now.since_origin().as_secs();
            let uid = lease.item.target.uid.clone();
            let observed = Sighting { uid, resource_version: version(at), facts: facts.clone() };
            shown(bench, &lease, observed);
        }
        bench.pass(Duration::from_millis(100));
    }
    tries
}

fn undone(bench: &Bench) -> Vec<(ActionKind, u32)> {
    let undone = |event: &Event| {
        let Event::Undone { action, times, .. } = event else { return None };
        Some((*action, *times))
    };
    bench.events.iter().filter_map(undone).collect()
}

#[test]
fn a_reference_that_is_put_back_is_removed_again_after_one_two_and_four_seconds() {
    let mut bench = Bench::synced();
    let dependent = object("configmaps", "d", 102).owned_by("things", "o");
    bench.seen("configmaps", dependent.clone());
    bench.seen("things", object("things", "o", 103).terminating("orphan"));
    assert_eq!(bench.granted.len(), 1);
    assert_eq!(
        undo_everything(&mut bench, Duration::from_secs(10), &dependent.facts),
        4,
        "at once, and after 1, 3, 7 s"
    );
    assert_eq!(
        undone(&bench),
        [1, 2, 3, 4].map(|times| (ActionKind::RemoveOwnerReferences, times)),
        "each time with the object"
    );
    let reason = bench.leader.queries().explain(&uid("d")).unwrap().reasons.remove(0);
    assert_eq!(reason.code, ReasonCode::Undone);
    assert_eq!(reason.detail, "remove_owner_references was carried out 4 times, and undone each time");
    let tries = undo_everything(&mut bench, Duration::from_secs(3600), &dependent.facts);
    assert!((50..=70).contains(&tries), "{tries} in an hour: once a minute in the end");
    // The other client stops undoing the action.
    let lease = loop {
        if let Some(lease) = bench.granted.pop() {
            break lease;
        }
        bench.pass(Duration::from_secs(1));
    };
    let observed = Sighting { uid: uid("d"), resource_version: version(90_000), facts: Facts::default() };
    shown(&mut bench, &lease, observed);
    bench.pass(Duration::from_secs(60));
    assert_eq!(bench.leader.queries().explain(&uid("d")).unwrap().item, None);
}

#[test]
fn an_object_that_a_server_deletes_by_word_alone_is_deleted_again_less_and_less_often() {
    let mut bench = Bench::synced();
    bench.seen("things", object("things", "o", 101));
    let dependent = object("configmaps", "d", 102).owned_by("things", "o");
    bench.seen("configmaps", dependent.clone());
    bench.deleted("things", "o", 103);
    let tries = undo_everything(&mut bench, Duration::from_secs(600), &dependent.facts);
    assert!((10..=20).contains(&tries), "{tries} in ten minutes");
    assert!(undone(&bench).len() >= 9);
}

#[test]
fn what_is_decided_again_long_after_it_was_done_is_done_at_once() {
    let mut bench = Bench::synced();
    let held = |rv| object("configmaps", "d", rv).owned_by("things", "o");
    bench.seen("things", object("things", "o", 102).terminating("orphan"));
    for rv in [110, 120] {
        bench.seen("configmaps", held(rv));
        let lease = bench.take("d");
        let observed = Sighting { uid: uid("d"), resource_version: version(rv + 1), facts: Facts::default() };
        bench.report_with(&lease, |report| report.observed = Some(observed));
        bench.pass(Duration::from_secs(61));
    }
    assert_eq!(undone(&bench), [] as [(ActionKind, u32); 0]);
}
