//! References that return to objects whose owner orphaned them.

use super::*;
use crate::graph::Forgotten;
use crate::leader::world::readopting::FORMER_MAX;

const HOUR: Duration = Duration::from_secs(3600);

/// Lets `o` orphan `a`, and deletes `o`.
fn orphaned(bench: &mut Bench) {
    bench.pass(Duration::from_secs(1));
    bench.seen("things", object("things", "o", 101));
    bench.seen("configmaps", object("configmaps", "a", 102).owned_by("things", "o"));
    bench.seen("things", object("things", "o", 103).terminating("orphan"));
    bench.seen("configmaps", object("configmaps", "a", 104));
    bench.deleted("things", "o", 105);
}

/// Lets barrier rounds pass while no object refers to `o`.
fn forgotten(bench: &mut Bench) {
    for _ in 0..2 {
        bench.pass(Duration::from_secs(1));
        bench.answer_probes(106, &[]);
    }
    assert!(!bench.leader.world.graph().has_orphaned(&uid("o")), "nothing refers to it");
    bench.grants();
}

/// Writes the reference to `o` again, as an outdated controller does.
fn readopt(bench: &mut Bench, name: &str, rv: u64) {
    bench.seen("configmaps", object("configmaps", name, rv).owned_by("things", "o"));
}

fn carry_out(bench: &mut Bench, rv: u64) {
    let lease = bench.take("a");
    assert_eq!(describe(&lease), "remove o from a");
    let now = object("configmaps", "a", rv);
    let sighting = Sighting { uid: uid("a"), resource_version: version(rv), facts: now.facts.clone() };
    bench.report_with(&lease, |report| report.observed = Some(sighting));
    bench.seen("configmaps", now);
}

/// Returns for each event whether it was the first of its reference.
fn told(bench: &Bench) -> Vec<bool> {
    let told = |event: &Event| {
        let Event::Readopted { dependent, owner, first, .. } = event else { return None };
        assert_eq!((&*dependent.name, &*owner.name, &*owner.kind), ("a", "o", "Thing"));
        Some(*first)
    };
    bench.events.iter().filter_map(told).collect()
}

#[test]
fn a_reference_that_comes_back_within_an_hour_is_taken_away_again() {
    for after in [Duration::from_secs(30), Duration::from_secs(59 * 60)] {
        let mut bench = Bench::synced();
        orphaned(&mut bench);
        forgotten(&mut bench);
        bench.pass(after);
        readopt(&mut bench, "a", 107);
        assert_eq!(told(&bench), [true], "after {after:?}");
        carry_out(&mut bench, 108);
        bench.pass(Duration::from_secs(59 * 60));
        readopt(&mut bench, "a", 109);
        assert_eq!(told(&bench), [true, false], "the hour begins anew with each");
        carry_out(&mut bench, 110);
        assert!(bench.grants().is_empty());
    }
}

#[test]
fn a_reference_that_comes_back_before_the_owner_is_forgotten_is_told_too() {
    let mut bench = Bench::synced();
    orphaned(&mut bench);
    readopt(&mut bench, "a", 106);
    assert_eq!(told(&bench), [true]);
    bench.seen("configmaps", object("configmaps", "a", 107).owned_by("things", "o").with_finalizer("example.com/x"));
    assert_eq!(told(&bench), [true], "it has not come again");
}

#[test]
fn a_reference_that_comes_back_after_more_than_an_hour_leads_nowhere() {
    let mut bench = Bench::synced();
    orphaned(&mut bench);
    forgotten(&mut bench);
    bench.pass(HOUR);
    readopt(&mut bench, "a", 107);
    bench.pass(Duration::from_secs(1));
    assert_eq!((told(&bench).len(), bench.grants()), (0, Vec::new()));
    bench.found_again("o", FindingResult::Absent(Some(version(108))));
    assert_eq!(bench.grants(), ["delete(Background) a"]);
}

#[test]
fn what_is_made_after_its_owner_orphaned_and_went_is_collected() {
    let mut bench = Bench::synced();
    orphaned(&mut bench);
    forgotten(&mut bench);
    bench.pass(Duration::from_secs(30));
    readopt(&mut bench, "late", 107);
    bench.pass(Duration::from_secs(1));
    bench.found_again("o", FindingResult::Absent(Some(version(108))));
    assert_eq!(bench.grants(), ["delete(Background) late"]);
    assert_eq!(told(&bench), [false; 0]);
}

#[test]
fn another_name_with_the_uid_of_an_owner_that_orphaned_is_not_remembered() {
    let mut bench = Bench::synced();
    orphaned(&mut bench);
    forgotten(&mut bench);
    let mut other = object("configmaps", "a", 107);
    other.facts.owners = [OwnerReference { name: "p".into(), ..reference("things", "o", None) }].into();
    bench.seen("configmaps", other);
    bench.pass(Duration::from_secs(1));
    assert_eq!((told(&bench).len(), bench.grants()), (0, Vec::new()));
}

#[test]
fn a_replica_that_comes_to_lead_remembers_what_it_watched() {
    for crowded in [false, true] {
        let mut bench = Bench::synced();
        bench.input(Input::TermLost { leader_endpoint: String::new() });
        if crowded {
            bench.leader.world.former_mut().graph_max = 0;
        }
        orphaned(&mut bench);
        assert_eq!(bench.leader.world.graph().has_orphaned(&uid("o")), !crowded, "no round passes without a term");
        bench.input(Input::TermGained(term(2)));
        bench.answer_reads(&Ok(GuardAnswer::NotServed));
        bench.hello(STREAM, hello("e1", "i1"));
        forgotten(&mut bench);
        bench.pass(Duration::from_secs(30));
        readopt(&mut bench, "a", 107);
        assert_eq!(told(&bench), [true]);
        carry_out(&mut bench, 108);
    }
}

#[test]
fn of_too_many_owners_that_orphaned_the_first_is_forgotten_early() {
    let mut bench = Bench::synced();
    bench.pass(Duration::from_secs(1));
    let now = bench.now;
    for number in 0..FORMER_MAX {
        let owner = Forgotten { uid: uid(&format!("u{number}")), address: 0, lost: false };
        assert_eq!(bench.leader.world.former_mut().put(now, owner), None);
    }
    orphaned(&mut bench);
    forgotten(&mut bench);
    let early = |event: &&Event| matches!(event, Event::OrphaningForgotten { .. });
    assert_eq!(bench.events.iter().filter(early).count(), 1);
    bench.pass(HOUR);
    let owner = Forgotten { uid: uid("v"), address: 0, lost: false };
    assert_eq!(bench.leader.world.former_mut().put(bench.now, owner), None, "an hour later there is room");
}

#[test]
fn a_group_that_is_served_again_forgets_no_orphaning_that_it_missed() {
    for comes_back in [true, false] {
        let mut bench = Bench::synced();
        bench.serve("mirrors");
        bench.list("mirrors", 100, vec![]);
        bench.pass(Duration::from_secs(1));
        bench.seen("mirrors", object("mirrors", "o", 101));
        bench.seen("things", object("things", "o", 101));
        bench.input(Input::KindUnserved(collection("mirrors")));
        bench.seen("configmaps", object("configmaps", "a", 102).owned_by("mirrors", "o"));
        bench.seen("things", object("things", "o", 103).terminating("orphan"));
        if comes_back {
            bench.seen("configmaps", object("configmaps", "a", 104));
        }
        bench.deleted("things", "o", 106);
        if comes_back {
            bench.seen("configmaps", object("configmaps", "a", 105).owned_by("mirrors", "o"));
        }
        // One barrier round passes.
        for _ in 0..5 {
            assert!(
                bench.leader.world.graph().has_orphaned(&uid("o")),
                "a reference is left that names it by a hidden group"
            );
            bench.answer_probes(106, &[]);
            bench.pass(Duration::from_secs(1));
        }
        bench.serve("mirrors");
        bench.list("mirrors", 107, vec![]);
        for _ in 0..20 {
            bench.answer_probes(108, &[]);
            bench.pass(Duration::from_secs(1));
        }
        let grants = bench.grants();
        assert!(grants.iter().all(|grant| grant == "remove o from a"), "{comes_back}: {grants:?}");
        assert!(!grants.is_empty());
    }
}
