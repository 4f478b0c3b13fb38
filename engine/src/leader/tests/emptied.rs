//! Definitions that report the deletion of their instances.

use super::*;

/// The definition of things reports that its instances are gone. If `standing`, a finalizer keeps the definition, and
/// new instances can be created.
fn emptied(bench: &mut Bench, standing: bool) {
    let (group, kind) = ("example.com".into(), "Thing".into());
    bench.input(Input::KindEmptied { group, kind, crd: uid("crd"), standing });
}

/// Removes the definition and its kind.
fn end(bench: &mut Bench) {
    emptied(bench, false);
    bench.input(Input::KindUnserved(collection("things")));
}

fn child(bench: &mut Bench, name: &str, owner: &str, rv: u64) {
    bench.seen("configmaps", object("configmaps", name, rv).owned_by("things", owner));
}

#[test]
fn what_an_emptied_definition_leaves_behind_is_collected_a_moment_after_it() {
    let mut bench = Bench::synced();
    child(&mut bench, "a", "o", 101);
    emptied(&mut bench, true);
    bench.pass(Duration::from_secs(60));
    assert_eq!(bench.grants(), NOTHING, "the definition is still there");
    end(&mut bench);
    bench.pass(Duration::from_secs(4));
    assert_eq!(bench.grants(), NOTHING);
    bench.pass(Duration::from_secs(1));
    assert_eq!(bench.grants(), ["delete(Background) a"]);
}

#[test]
fn an_instance_that_is_made_after_the_definition_said_so_lives() {
    let mut bench = Bench::synced();
    child(&mut bench, "a", "old", 101);
    emptied(&mut bench, true);
    bench.seen("things", object("things", "o", 110));
    child(&mut bench, "b", "o", 111);
    end(&mut bench);
    bench.pass(Duration::from_secs(600));
    assert_eq!(bench.grants(), NOTHING);
    assert_eq!(bench.undecided(), [(Undecided::OwnerKindUnresolved, 2)]);
}

#[test]
fn one_that_came_and_went_again_is_no_proof_about_others() {
    let mut bench = Bench::synced();
    child(&mut bench, "a", "o", 101);
    emptied(&mut bench, true);
    bench.seen("things", object("things", "new", 110));
    bench.deleted("things", "new", 111);
    emptied(&mut bench, true);
    end(&mut bench);
    bench.pass(Duration::from_secs(600));
    assert_eq!(bench.grants(), NOTHING);
}

#[test]
fn an_instance_that_a_read_has_found_is_no_less_than_one_that_the_watch_shows() {
    let mut bench = Bench::synced();
    child(&mut bench, "a", "o", 101);
    emptied(&mut bench, true);
    bench.pass(Duration::from_secs(1));
    let sighting = Sighting { uid: uid("o"), resource_version: version(103), facts: Facts::default() };
    bench.found("o", FindingResult::Exists(sighting));
    end(&mut bench);
    bench.pass(Duration::from_secs(600));
    assert_eq!(bench.grants(), NOTHING);
}

#[test]
fn what_its_collection_still_shows_is_not_absent() {
    let mut bench = Bench::synced();
    bench.seen("things", object("things", "o", 101));
    child(&mut bench, "a", "o", 102);
    emptied(&mut bench, true);
    end(&mut bench);
    bench.pass(Duration::from_secs(600));
    assert_eq!(bench.grants(), NOTHING);
    assert_eq!(bench.undecided(), [(Undecided::OwnerKindUnresolved, 1)]);
}

#[test]
fn an_owner_that_was_first_named_after_the_definition_said_so_is_not_absent() {
    let mut bench = Bench::synced();
    emptied(&mut bench, true);
    child(&mut bench, "a", "o", 101);
    end(&mut bench);
    bench.pass(Duration::from_secs(600));
    assert_eq!(bench.grants(), NOTHING);
}

#[test]
fn a_definition_that_says_so_only_at_its_end_proves_nothing() {
    let mut bench = Bench::synced();
    child(&mut bench, "a", "o", 101);
    end(&mut bench);
    bench.pass(Duration::from_secs(600));
    assert_eq!(bench.grants(), NOTHING);
}

#[test]
fn a_collection_that_is_not_followed_shows_no_instance_and_proves_none_absent() {
    let lost =
        || Input::WatchLost { collection: collection("things"), end: WatchEnd::Refused, error: "ended".to_string() };
    for before in [true, false] {
        let mut bench = Bench::synced();
        child(&mut bench, "a", "o", 101);
        if before {
            bench.input(lost());
        }
        emptied(&mut bench, true);
        bench.input(if before { Input::WatchResumed { collection: collection("things") } } else { lost() });
        end(&mut bench);
        bench.pass(Duration::from_secs(600));
        assert_eq!(bench.grants(), NOTHING);
    }
}

#[test]
fn the_end_of_an_older_definition_says_nothing_of_the_instances_of_its_successor() {
    let mut bench = Bench::synced();
    child(&mut bench, "a", "o", 102);
    emptied(&mut bench, true);
    emptied(&mut bench, false);
    bench.pass(Duration::from_secs(20));
    assert_eq!(bench.grants(), NOTHING);
    // The same holds while the new kind is not served yet.
    end(&mut bench);
    bench.pass(Duration::from_secs(1));
    bench.serve("things");
    bench.list("things", 110, vec![object("things", "o", 101)]);
    bench.pass(Duration::from_secs(120));
    assert_eq!(bench.grants(), NOTHING);
}

#[test]
fn what_a_definition_said_in_a_history_that_the_store_has_lost_proves_nothing() {
    let mut bench = Bench::synced();
    child(&mut bench, "a", "o", 150);
    emptied(&mut bench, true);
    bench.bookmark("configmaps", 120);
    end(&mut bench);
    bench.list("configmaps", 121, vec![object("configmaps", "a", 101).owned_by("things", "o")]);
    bench.list("nodes", 121, vec![]);
    for _ in 0..60 {
        bench.pass(Duration::from_secs(10));
        bench.answer_probes(125, &[]);
    }
    assert_eq!(bench.grants(), NOTHING);
}
