//! How decisions end, and what is told of it.

use super::*;

/// The decision, causes and owners that each step told of, by phase.
fn told(bench: &Bench, of: &str) -> Vec<(&'static str, u64, usize, usize)> {
    let step = |event: &Event| {
        let (phase, target, grounds) = match event {
            Event::Decided { target, grounds: Some(grounds), .. } => ("decided", target, grounds),
            Event::Granted { target, grounds, .. } => ("granted", target, grounds),
            Event::Attempted { target, grounds, .. } => ("attempted", target, grounds),
            Event::Withdrawn { target, grounds, .. } => ("withdrawn", target, grounds),
            _ => return None,
        };
        let told = (phase, grounds.decision, grounds.causes.len(), grounds.owners.len());
        (*target.name == *of).then_some(told)
    };
    bench.events.iter().filter_map(step).collect()
}

fn phases(bench: &Bench, of: &str) -> Vec<&'static str> {
    told(bench, of).into_iter().map(|(phase, ..)| phase).collect()
}

/// A dependent of an owner that went, and the lease of its deletion.
fn leased() -> (Bench, WorkLease) {
    let mut bench = Bench::synced();
    bench.seen("things", object("things", "o", 101));
    bench.seen("configmaps", object("configmaps", "a", 102).owned_by("things", "o"));
    bench.deleted("things", "o", 103);
    let lease = bench.take("a");
    (bench, lease)
}

#[test]
fn what_an_attempt_came_to_is_told_with_what_it_rested_on_however_fast_the_watch_was() {
    for outcome in [Outcome::Done, Outcome::Conflict, Outcome::Invalid] {
        let (mut bench, lease) = leased();
        bench.deleted("configmaps", "a", 104);
        bench.report(&lease, outcome);
        let told = told(&bench, "a");
        let id = told[0].1;
        let step = |phase| (phase, id, 1, 1);
        assert_eq!(told[..3], [step("decided"), step("granted"), step("attempted")], "{outcome:?}");
    }
}

#[test]
fn of_very_many_owners_a_lease_keeps_a_few() {
    let mut bench = Bench::synced();
    let names: Vec<String> = (0..50).map(|number| format!("o{number}")).collect();
    let mut owned = object("configmaps", "a", 102);
    for name in &names {
        bench.seen("things", object("things", name, 101));
        owned = owned.owned_by("things", name);
    }
    bench.seen("configmaps", owned);
    for name in &names {
        bench.deleted("things", name, 103);
    }
    let lease = bench.take("a");
    bench.report(&lease, Outcome::Done);
    let of_attempt = |event: &Event| match event {
        Event::Attempted { grounds, .. } => {
            Some((grounds.owners.len(), grounds.owner_count, grounds.causes.len(), grounds.cause_count))
        }
        _ => None,
    };
    assert_eq!(bench.events.iter().find_map(of_attempt), Some((20, 50, 20, 50)));
}

#[test]
fn a_decision_that_no_longer_holds_says_what_it_rested_on() {
    let mut bench = Bench::synced();
    bench.input(Input::Withhold { why: Some("test".to_string()) });
    bench.seen("things", object("things", "o", 101));
    bench.seen("configmaps", object("configmaps", "a", 102).owned_by("things", "o"));
    bench.deleted("things", "o", 103);
    bench.deleted("configmaps", "a", 104);
    let told = told(&bench, "a");
    let id = told[0].1;
    assert_eq!(told, [("decided", id, 1, 1), ("withdrawn", id, 1, 1)]);
}

#[test]
fn a_decision_that_another_one_replaces_ends() {
    let mut bench = Bench::synced();
    bench.input(Input::Withhold { why: Some("test".to_string()) });
    bench.seen("things", object("things", "o", 101));
    bench.seen("configmaps", object("configmaps", "a", 102).owned_by("things", "o"));
    bench.deleted("things", "o", 103);
    bench.seen("configmaps", object("configmaps", "a", 104).owned_by("things", "o").with_finalizer("orphan"));
    let told = told(&bench, "a");
    let (first, second) = (told[0].1, told[2].1);
    assert_eq!(told, [("decided", first, 1, 1), ("withdrawn", first, 1, 1), ("decided", second, 1, 1)]);
    assert_ne!(first, second);
}

#[test]
fn a_decision_that_is_overtaken_while_an_executor_has_it_ends_when_it_comes_back() {
    let (mut bench, lease) = leased();
    bench.deleted("configmaps", "a", 104);
    let returned = WorkReturn { lease: lease.id, cause: ReturnCause::NotStarted };
    bench.message(STREAM, ToLeader::Reports { reports: vec![], returns: vec![returned] });
    assert_eq!(phases(&bench, "a"), ["decided", "granted", "withdrawn"]);
    assert_eq!(told(&bench, "a")[2].3, 1, "with what it rested on");
}

#[test]
fn what_a_store_that_went_back_makes_void_ends() {
    let mut bench = Bench::synced();
    for name in ["o", "p"] {
        bench.seen("things", object("things", name, 101));
    }
    bench.seen("configmaps", object("configmaps", "a", 102).owned_by("things", "o"));
    bench.deleted("things", "o", 103);
    let _held = bench.take("a");
    bench.input(Input::Withhold { why: Some("test".to_string()) });
    bench.seen("configmaps", object("configmaps", "b", 104).owned_by("things", "p"));
    bench.deleted("things", "p", 105);
    bench.list("things", 50, vec![]);
    assert_eq!((phases(&bench, "a").last(), phases(&bench, "b").last()), (Some(&"withdrawn"), Some(&"withdrawn")));
}
