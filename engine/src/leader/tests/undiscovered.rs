//! Kinds that exist and that discovery does not show.

use super::*;
use crate::view::ReasonCode;

fn hidden(group: &str, resource: Option<&str>) -> Undiscovered {
    Undiscovered { group: group.into(), resource: resource.map(Into::into), why: "its server is down".to_string() }
}

/// Creates a bench with a group whose server is down from the start of the collector.
fn with_hidden(policy: &[(&str, &str)], hidden: Undiscovered) -> Bench {
    let mut config = config();
    let assumed = |&(group, resource): &(&str, &str)| GroupResource { group: group.into(), resource: resource.into() };
    config.policy.assume_no_dependents = policy.iter().map(assumed).collect();
    let mut bench = Bench::synced_as(config);
    bench.input(Input::Undiscovered(vec![hidden]));
    bench.seen("things", object("things", "o", 106).terminating("foregroundDeletion"));
    bench.seen("things", object("things", "p", 107).terminating("orphan"));
    settle(&mut bench);
    bench
}

/// Answers all questions for ten seconds.
fn settle(bench: &mut Bench) {
    settle_at(bench, 130);
}

fn settle_at(bench: &mut Bench, position: u64) {
    for _ in 0..20 {
        bench.answer_probes(position, &[]);
        bench.pass(Duration::from_millis(500));
    }
}

const BOTH: [&str; 2] = ["remove finalizer foregroundDeletion of o", "remove finalizer orphan of p"];

#[test]
fn owners_in_deletion_wait_for_a_group_that_discovery_cannot_show_and_say_so() {
    let mut bench = with_hidden(&[], hidden("remote.example.com", None));
    assert_eq!(bench.grants(), NOTHING);
    assert_eq!(bench.undecided(), [(Undecided::DependentsUnseen, 2)]);
    for owner in ["o", "p"] {
        let reasons = bench.leader.queries().explain(&uid(owner)).unwrap().reasons;
        let named = |reason: &crate::view::Reason| {
            reason.code == ReasonCode::CollectionUnsynced
                && reason.detail == "discovery does not show *.remote.example.com: its server is down"
        };
        assert!(reasons.iter().any(named), "{owner}: {reasons:?}");
    }
    let (blockers, _) = bench.leader.queries().blockers(10);
    assert_eq!((&*blockers[0].what, blockers[0].items), ("undiscovered: *.remote.example.com", 2));
    assert_eq!(&*bench.leader.queries().status().hidden[0].what, "*.remote.example.com");
}

#[test]
fn they_go_on_by_themselves_when_the_definition_goes_away() {
    let mut bench = with_hidden(&[], hidden("remote.example.com", None));
    bench.input(Input::Undiscovered(vec![]));
    settle(&mut bench);
    assert_eq!(bench.grants(), BOTH);
    assert_eq!((bench.leader.queries().status().hidden, bench.leader.queries().blockers(10)), (vec![], (vec![], 0)));
}

#[test]
fn what_was_hidden_is_asked_before_they_go_on() {
    let mut bench = with_hidden(&[], hidden("batch", Some("jobs")));
    assert_eq!(bench.grants(), NOTHING);
    bench.serve("jobs");
    bench.input(Input::Undiscovered(vec![]));
    settle(&mut bench);
    bench.grants();
    bench.list("jobs", 135, vec![object("jobs", "a", 90).owned_by("things", "p")]);
    settle_at(&mut bench, 140);
    assert!(bench.grants().contains(&"remove p from a".to_string()), "it is stripped of its owner");
}

#[test]
fn the_administrator_releases_them_by_resource_or_by_group() {
    let group = || hidden("remote.example.com", None);
    let resource = || hidden("example.com", Some("others"));
    for (flag, hidden, released) in [
        (("remote.example.com", "*"), group(), true),
        (("remote.example.com", "remotes"), group(), false),
        (("example.com", "*"), group(), false),
        (("example.com", "*"), resource(), true),
        (("example.com", "others"), resource(), true),
        (("example.com", "things"), resource(), false),
    ] {
        let mut bench = with_hidden(&[flag], hidden.clone());
        let expected: &[&str] = if released { &BOTH } else { &[] };
        assert_eq!(bench.grants(), expected, "{flag:?} and {hidden}");
        assert_eq!(bench.leader.queries().status().hidden.is_empty(), released);
    }
}

#[test]
fn the_flag_for_a_group_releases_what_of_it_cannot_be_listed_too() {
    let mut config = config();
    config.policy.assume_no_dependents =
        vec![GroupResource { group: "remote.example.com".into(), resource: "*".into() }];
    let mut bench = Bench::synced_as(config);
    bench.serve("remotes");
    bench.input(Input::ListFailed { collection: collection("remotes"), error: "503".to_string(), broke: false });
    bench.seen("things", object("things", "o", 106).terminating("foregroundDeletion"));
    settle(&mut bench);
    assert_eq!(bench.grants(), BOTH[..1]);
}

#[test]
fn an_owner_that_orphaned_is_remembered_until_what_was_hidden_has_shown_its_dependents() {
    let mut bench = Bench::synced();
    bench.seen("things", object("things", "p", 107).terminating("orphan"));
    settle(&mut bench);
    let lease = bench.take("p");
    bench.report(&lease, Outcome::Done);
    // The change arrives before the end of the second round.
    bench.input(Input::Undiscovered(vec![hidden("batch", None)]));
    bench.deleted("things", "p", 131);
    settle_at(&mut bench, 132);
    bench.serve("jobs");
    bench.input(Input::Undiscovered(vec![]));
    bench.list("jobs", 135, vec![object("jobs", "a", 90).owned_by("things", "p")]);
    settle_at(&mut bench, 140);
    assert_eq!(bench.grants(), ["remove p from a"]);
}

#[test]
fn a_new_reason_for_the_same_group_changes_nothing() {
    let mut bench = with_hidden(&[], hidden("remote.example.com", None));
    let since = bench.leader.queries().status().hidden[0].since;
    bench.pass(Duration::from_secs(60));
    let why = "its server is down still".to_string();
    bench.input(Input::Undiscovered(vec![Undiscovered { why: why.clone(), ..hidden("remote.example.com", None) }]));
    let shown = bench.leader.queries().status().hidden.remove(0);
    assert_eq!((shown.why, shown.since), (why, since));
    settle(&mut bench);
    assert_eq!(bench.grants(), NOTHING);
}
