//! Mode `observe` beside another collector: what agrees, and what does not.

use super::*;
use crate::leader::contract::BreakerMode;
use crate::parity::{Audited, AuditedVerb, Class, Counts, Outcome as Side};

mod earlier;
mod flattery;
mod races;
mod requests;
mod telling;

const A_MOMENT: Duration = Duration::from_secs(2);

fn observing() -> Bench {
    let policy = Policy { breaker: BreakerMode::Off, ..Policy::default() };
    Bench::synced_as(Config { mode: Mode::Observe, policy, ..config() })
}

/// A family: `things/o` owns `configmaps/a`.
fn family() -> Bench {
    let mut bench = observing();
    bench.seen("things", object("things", "o", 101));
    bench.seen("configmaps", child(102));
    bench
}

fn child(rv: u64) -> Object {
    object("configmaps", "a", rv).owned_by("things", "o")
}

impl Bench {
    fn counts(&self) -> Counts {
        self.leader.queries().parity(None).expect("it observes").counts
    }

    /// Agreed, theirs first, ours only, theirs only, unattributed.
    fn sums(&self) -> [u64; 5] {
        let counts = self.counts();
        let sum = |by_class: &[u64]| by_class.iter().sum();
        [counts.agreed, counts.theirs_first, sum(&counts.ours_only), sum(&counts.theirs_only), counts.unattributed]
    }

    /// The kept disagreements as text, the newest first.
    fn disagreements(&self) -> Vec<String> {
        let word = |side: Side| side.as_str();
        let kept = self.leader.queries().disagreements(None);
        kept.map(|kept| {
            let action = kept.action.as_str();
            format!("{} {action} {}: {}", word(kept.outcome), kept.target.name, kept.class.as_str())
        })
        .collect()
    }

    /// An answered request of now, without the version of its object.
    fn request(&self, verb: AuditedVerb, name: &str, user: &str) -> Audited {
        Audited {
            verb,
            collection: collection("configmaps"),
            namespace: "ns".into(),
            name: name.into(),
            uid: None,
            resource_version: None,
            at: self.now,
            user: user.into(),
            by_collector: user == "collector",
            status: 200,
            id: "id".into(),
        }
    }

    fn logged(&mut self, audited: Audited) {
        self.input(Input::Audited(alloc::boxed::Box::new(audited)));
    }

    fn audited(&mut self, verb: AuditedVerb, name: &str, user: &str) {
        self.logged(self.request(verb, name, user));
    }

    /// The log shows that it has passed the changes of before.
    fn log_moves_on(&mut self) {
        self.pass(A_MOMENT);
        self.audited(AuditedVerb::Change, "other", "bob");
        self.pass(A_MOMENT);
    }
}

#[test]
fn a_deletion_that_follows_the_decision_agrees() {
    let mut bench = family();
    bench.deleted("things", "o", 103);
    assert_eq!((bench.sums(), bench.leader.queries().parity(None).unwrap().open), ([0; 5], 1));
    bench.pass(Duration::from_millis(100));
    bench.deleted("configmaps", "a", 104);
    assert_eq!((bench.sums(), bench.counts().withdrawn), ([1, 0, 0, 0, 0], 0));
    assert_eq!(bench.counts().delay(990), Duration::from_millis(128), "rounded up");
    bench.pass(Duration::from_secs(3600));
    assert_eq!((bench.sums(), bench.disagreements()), ([1, 0, 0, 0, 0], vec![]));
}

#[test]
fn a_deletion_mark_is_a_deletion_and_counts_once() {
    let mut bench = family();
    bench.deleted("things", "o", 103);
    bench.seen("configmaps", child(104).terminating("example.com/slow"));
    assert_eq!(bench.sums(), [1, 0, 0, 0, 0]);
    bench.deleted("configmaps", "a", 105);
    bench.pass(Duration::from_secs(300));
    assert_eq!(bench.sums(), [1, 0, 0, 0, 0]);
}

#[test]
fn events_in_another_order_agree_once_the_owner_is_seen_gone() {
    let mut bench = family();
    bench.deleted("configmaps", "a", 104);
    bench.pass(A_MOMENT);
    assert_eq!((bench.sums(), bench.leader.queries().parity(None).unwrap().unsettled), ([0; 5], 1));
    bench.deleted("things", "o", 103);
    bench.pass(A_MOMENT);
    assert_eq!(bench.sums(), [0, 1, 0, 0, 0]);
}

#[test]
fn an_owner_that_lives_at_the_deletion_shows_that_no_collector_deleted() {
    let mut bench = family();
    bench.deleted("configmaps", "a", 104);
    bench.pass(A_MOMENT);
    bench.deleted("things", "o", 105);
    bench.pass(A_MOMENT);
    assert_eq!(bench.sums(), [0, 0, 0, 0, 1]);
    let mut bench = family();
    bench.deleted("configmaps", "a", 104);
    bench.bookmark("things", 110);
    bench.pass(A_MOMENT);
    assert_eq!(bench.sums(), [0, 0, 0, 0, 1]);
}

#[test]
fn an_owner_that_goes_after_the_deletion_lived_even_if_its_place_stays_known() {
    let mut bench = family();
    bench.seen("configmaps", object("configmaps", "b", 103).owned_by("things", "o"));
    bench.deleted("configmaps", "a", 104);
    bench.pass(A_MOMENT);
    bench.deleted("things", "o", 105);
    bench.pass(A_MOMENT);
    assert_eq!(bench.sums(), [0, 0, 0, 0, 1], "b keeps the node of the owner");
}

#[test]
fn an_owner_that_waits_after_the_deletion_lived() {
    for (moved, expected) in [(103, [0, 1, 0, 0, 0]), (106, [0, 0, 0, 0, 1])] {
        let mut bench = family();
        bench.seen("configmaps", object("configmaps", "b", 102).blocking("things", "o"));
        bench.deleted("configmaps", "a", 105);
        bench.seen("things", object("things", "o", moved).terminating("foregroundDeletion"));
        bench.pass(A_MOMENT);
        assert_eq!(bench.sums(), expected, "{moved}");
    }
}

#[test]
fn a_list_without_an_object_is_compared_with_owners_that_are_seen_after_it() {
    let mut bench = family();
    bench.pass(A_MOMENT);
    bench.input(Input::ListBegun { collection: collection("configmaps"), selectors: 0 });
    bench.list("configmaps", 110, vec![]);
    bench.pass(A_MOMENT);
    assert_eq!(bench.sums(), [0; 5], "the owner may be gone too");
    bench.bookmark("things", 110);
    bench.pass(A_MOMENT);
    assert_eq!(bench.sums(), [0, 0, 0, 0, 1]);
}

#[test]
fn versions_of_another_store_are_not_compared() {
    for (owner_goes, expected) in [(false, [0, 0, 0, 0, 1]), (true, [0, 1, 0, 0, 0])] {
        let mut bench = observing();
        bench.serve("remotes");
        bench.list("remotes", 900, vec![]);
        bench.seen("remotes", object("remotes", "o", 901));
        bench.seen("configmaps", object("configmaps", "a", 102).owned_by("remotes", "o"));
        bench.pass(A_MOMENT);
        bench.deleted("configmaps", "a", 104);
        bench.pass(A_MOMENT);
        assert_eq!(bench.sums(), [0; 5], "901 is not after 104");
        if owner_goes {
            bench.deleted("remotes", "o", 902);
        } else {
            bench.bookmark("remotes", 902);
        }
        bench.pass(A_MOMENT);
        assert_eq!(bench.sums(), expected, "{owner_goes}");
    }
}

#[test]
fn facts_that_never_come_are_a_matter_of_timing() {
    let mut bench = family();
    bench.deleted("configmaps", "a", 104);
    bench.pass(Duration::from_secs(200));
    assert_eq!(bench.disagreements(), ["theirs_only delete a: timing"]);
}

#[test]
fn a_decision_that_is_not_followed_is_ours_only_until_it_is_followed() {
    let mut bench = family();
    bench.deleted("things", "o", 103);
    bench.pass(Duration::from_secs(29));
    assert_eq!(bench.sums(), [0; 5]);
    bench.pass(A_MOMENT);
    assert_eq!(bench.disagreements(), ["ours_only delete a: unknown"]);
    assert!(bench.events.iter().any(|event| matches!(event, Event::Disagreed(told) if told.class == Class::Unknown)));
    bench.deleted("configmaps", "a", 104);
    assert_eq!((bench.sums(), bench.counts().late, bench.disagreements()), ([1, 0, 0, 0, 0], 1, vec![]));
}

#[test]
fn a_disagreement_that_the_list_dropped_is_taken_back_too() {
    let mut bench = observing();
    bench.seen("things", object("things", "o", 101));
    for number in 0..1001 {
        bench.seen("configmaps", object("configmaps", &format!("a{number:04}"), 102 + number).owned_by("things", "o"));
    }
    bench.deleted("things", "o", 2000);
    bench.pass(Duration::from_secs(40));
    assert_eq!((bench.sums(), bench.disagreements().len()), ([0, 0, 1001, 0, 0], 1000));
    for number in 0..1001 {
        bench.deleted("configmaps", &format!("a{number:04}"), 2001 + number);
    }
    let rows = bench.leader.queries().parity(None).unwrap().collections;
    assert_eq!((bench.sums(), bench.disagreements().len()), ([1001, 0, 0, 0, 0], 0));
    assert!(rows.iter().all(|(_, row)| row.ours_only == 0 && row.unknown == 0), "{rows:?}");
}

#[test]
fn the_wait_follows_the_pace_of_the_other_collector() {
    let mut bench = observing();
    for number in 0..200u64 {
        let (owner, dependent) = (format!("o{number}"), format!("a{number}"));
        let rv = 1000 + number * 10;
        bench.seen("things", object("things", &owner, rv));
        bench.seen("configmaps", object("configmaps", &dependent, rv + 1).owned_by("things", &owner));
        bench.deleted("things", &owner, rv + 2);
        bench.pass(Duration::from_secs(6));
        bench.deleted("configmaps", &dependent, rv + 3);
    }
    let wait = bench.leader.queries().parity(None).unwrap().wait;
    assert_eq!(wait, Duration::from_millis(81_920), "ten times the delay, rounded up");
}

#[test]
fn a_removed_reference_instead_of_a_deletion_is_unknown() {
    let mut bench = family();
    bench.deleted("things", "o", 103);
    bench.seen("configmaps", object("configmaps", "a", 104));
    bench.pass(A_MOMENT);
    assert_eq!(bench.disagreements(), ["theirs_only remove_owner_references a: unknown"]);
}

#[test]
fn a_deletion_instead_of_a_removed_reference_is_unattributed_without_the_audit_log() {
    let two_owners = |rv| child(rv).owned_by("things", "p");
    for (user, expected) in [("", [0, 0, 0, 0, 1]), ("collector", [0, 0, 0, 1, 0]), ("alice", [0, 0, 0, 0, 1])] {
        let mut bench = observing();
        bench.seen("things", object("things", "o", 101));
        bench.seen("things", object("things", "p", 102));
        bench.seen("configmaps", two_owners(103));
        bench.deleted("things", "o", 104);
        bench.deleted("configmaps", "a", 105);
        if !user.is_empty() {
            bench.audited(AuditedVerb::Delete, "a", user);
            bench.log_moves_on();
        }
        bench.bookmark("things", 110);
        bench.pass(A_MOMENT);
        assert_eq!(bench.sums(), expected, "{user}");
        let unknown: &[&str] = if user == "collector" { &["theirs_only delete a: unknown"] } else { &[] };
        assert_eq!(bench.disagreements(), unknown);
    }
}

#[test]
fn the_dangling_reference_beside_a_living_owner_goes() {
    let mut bench = observing();
    bench.seen("things", object("things", "o", 101));
    bench.seen("things", object("things", "p", 102));
    bench.seen("configmaps", child(103).owned_by("things", "p"));
    bench.deleted("things", "o", 104);
    bench.seen("configmaps", object("configmaps", "a", 105).owned_by("things", "p"));
    assert_eq!(bench.sums(), [1, 0, 0, 0, 0]);
    // A controller releases its object.
    bench.seen("configmaps", object("configmaps", "a", 106));
    bench.bookmark("things", 110);
    bench.pass(A_MOMENT);
    assert_eq!(bench.sums(), [1, 0, 0, 0, 1]);
}

#[test]
fn orphaning_agrees_reference_by_reference_and_at_the_finalizer() {
    let mut bench = family();
    bench.seen("things", object("things", "o", 103).terminating("orphan"));
    bench.seen("configmaps", object("configmaps", "a", 104));
    assert_eq!(bench.sums(), [1, 0, 0, 0, 0]);
    bench.deleted("things", "o", 105);
    bench.pass(A_MOMENT);
    let [agreed, first, rest @ ..] = bench.sums();
    assert_eq!((agreed + first, rest), (2, [0; 3]), "whether or not the round ended in time");
}

#[test]
fn a_foreground_owner_whose_dependents_are_seen_going_after_it_agrees() {
    let mut bench = observing();
    bench.seen("things", object("things", "o", 101));
    bench.seen("configmaps", object("configmaps", "a", 102).blocking("things", "o"));
    bench.seen("things", object("things", "o", 103).terminating("foregroundDeletion"));
    bench.deleted("things", "o", 105);
    bench.pass(A_MOMENT);
    assert_eq!(bench.sums(), [0; 5], "the dependent is still there");
    bench.deleted("configmaps", "a", 104);
    bench.pass(A_MOMENT);
    assert_eq!(bench.sums(), [1, 1, 0, 0, 0]);
}

#[test]
fn what_holds_an_object_here_is_an_intended_difference() {
    let mut bench = family();
    let mut held = child(103);
    held.facts.hold = true;
    bench.seen("configmaps", held);
    bench.deleted("things", "o", 104);
    bench.pass(Duration::from_secs(100));
    assert_eq!(bench.sums(), [0; 5], "a held decision waits for nothing");
    bench.deleted("configmaps", "a", 105);
    bench.pass(A_MOMENT);
    assert_eq!(bench.disagreements(), ["theirs_only delete a: held"]);
    assert_eq!((bench.counts().comparable(), bench.counts().withdrawn), (0, 0));
}

#[test]
fn an_annotation_holds_only_deletions() {
    let mut bench = observing();
    bench.seen("things", object("things", "o", 101));
    bench.seen("things", object("things", "p", 102));
    let mut held = child(103).owned_by("things", "p");
    held.facts.hold = true;
    bench.seen("configmaps", held);
    bench.deleted("things", "o", 104);
    let mut released = object("configmaps", "a", 105).owned_by("things", "p");
    released.facts.hold = true;
    bench.seen("configmaps", released);
    bench.pass(A_MOMENT);
    assert_eq!((bench.sums(), bench.disagreements()), ([1, 0, 0, 0, 0], vec![]));
}

#[test]
fn a_late_dependent_of_an_orphaning_owner_stays_by_intent() {
    let mut bench = observing();
    bench.seen("things", object("things", "o", 101).terminating("orphan"));
    bench.seen("configmaps", child(102));
    bench.pass(Duration::from_secs(40));
    assert_eq!(bench.disagreements(), ["ours_only remove_owner_references a: orphaned"]);
    bench.deleted("configmaps", "a", 104);
    bench.pass(A_MOMENT);
    let expected = ["theirs_only delete a: orphaned", "ours_only remove_owner_references a: orphaned"];
    assert_eq!(bench.disagreements(), expected);
}

#[test]
fn a_decision_whose_facts_change_is_withdrawn() {
    let mut bench = family();
    bench.seen("things", object("things", "p", 103));
    bench.deleted("things", "o", 104);
    bench.seen("configmaps", child(105).owned_by("things", "p"));
    let counts = bench.counts();
    assert_eq!((bench.sums(), counts.withdrawn), ([0; 5], 0), "another decision about the object follows");
    bench.pass(Duration::from_secs(11));
    bench.deleted("configmaps", "a", 106);
    bench.bookmark("things", 110);
    bench.pass(A_MOMENT);
    assert_eq!((bench.sums(), bench.counts().withdrawn), ([0, 0, 0, 0, 1], 1));
}

#[test]
fn another_term_counts_anew_and_takes_the_open_decisions() {
    let mut bench = family();
    bench.input(Input::TermLost { leader_endpoint: String::new() });
    assert!(bench.leader.queries().parity(None).is_none());
    bench.deleted("things", "o", 103);
    bench.input(Input::TermGained(term(2)));
    assert_eq!(bench.leader.queries().parity(None).unwrap().open, 1);
    bench.deleted("configmaps", "a", 104);
    assert_eq!(bench.sums(), [1, 0, 0, 0, 0]);
}

#[test]
fn a_window_has_the_numbers_of_its_time() {
    let mut bench = family();
    bench.deleted("things", "o", 103);
    bench.deleted("configmaps", "a", 104);
    bench.pass(Duration::from_secs(7200));
    bench.seen("things", object("things", "p", 105));
    bench.seen("configmaps", object("configmaps", "b", 106).owned_by("things", "p"));
    bench.deleted("things", "p", 107);
    bench.deleted("configmaps", "b", 108);
    let agreed = |window: u64| {
        let view = bench.leader.queries().parity(Some(Duration::from_secs(window))).unwrap();
        (view.counts.agreed, view.since)
    };
    let back = |span: u64| Time::from_origin(bench.now.since_origin() - Duration::from_secs(span));
    assert_eq!(agreed(3600), (1, back(3600)));
    assert_eq!(agreed(36_000), (2, Time::ZERO));
}

#[test]
fn an_active_collector_compares_nothing() {
    let mut bench = Bench::synced();
    bench.seen("things", object("things", "o", 101));
    bench.seen("configmaps", child(102));
    bench.seen("configmaps", object("configmaps", "b", 103).owned_by("things", "o"));
    bench.deleted("things", "o", 104);
    bench.deleted("configmaps", "b", 105);
    bench.audited(AuditedVerb::Delete, "b", "alice");
    bench.pass(Duration::from_secs(200));
    assert!(bench.leader.queries().parity(None).is_none());
    assert_eq!(bench.leader.queries().disagreements(None).count(), 0);
    assert!(!bench.leader.parity.waits() && !bench.leader.parity.is_audited());
    assert!(!bench.events.iter().any(|event| matches!(event, Event::Compared(_) | Event::Disagreed(_))));
}

#[test]
fn a_restored_store_is_not_the_work_of_a_collector() {
    let mut bench = family();
    bench.seen("configmaps", object("configmaps", "b", 103).owned_by("things", "o"));
    bench.bookmark("configmaps", 90);
    // The restored store has a without its reference, and b not at all.
    for (resource, objects) in
        [("configmaps", vec![object("configmaps", "a", 80)]), ("things", vec![]), ("nodes", vec![])]
    {
        bench.list(resource, 90, objects);
    }
    bench.pass(Duration::from_secs(200));
    let view = bench.leader.queries().parity(None).unwrap();
    assert_eq!((bench.sums(), view.unsettled), ([0; 5], 0));
}

#[test]
fn a_change_after_the_end_of_its_comparison_is_not_unknown() {
    let mut bench = family();
    bench.deleted("things", "o", 103);
    bench.leader.parity.end(&uid("a"));
    bench.deleted("configmaps", "a", 104);
    bench.pass(A_MOMENT);
    assert_eq!(bench.disagreements(), Vec::<String>::new());
}

#[test]
fn an_object_whose_own_references_change_is_not_judged_by_the_other_collector() {
    let mut bench = observing();
    bench.seen("things", object("things", "o", 101).terminating("foregroundDeletion"));
    bench.seen("configmaps", child(102));
    bench.seen("things", object("things", "p", 103));
    bench.seen("things", object("things", "q", 104));
    bench.seen("configmaps", object("configmaps", "b", 105).owned_by("things", "p").owned_by("things", "q"));
    bench.seen("things", object("things", "q", 106).terminating("foregroundDeletion"));
    bench.pass(A_MOMENT);
    bench.seen("configmaps", object("configmaps", "b", 107).owned_by("things", "q"));
    bench.pass(Duration::from_secs(40));
    let ours = bench.disagreements();
    for object in ["a", "b"] {
        assert!(ours.contains(&format!("ours_only delete {object}: own_change")), "{ours:?}");
    }
}

#[test]
fn a_decision_that_was_just_withdrawn_counts_as_followed() {
    // The finalizer of the owner agrees in both cases.
    for (pause, agreed, unattributed) in [(1, 2, 0), (11, 1, 1)] {
        let mut bench = family();
        bench.seen("things", object("things", "o", 103).terminating("foregroundDeletion").with_finalizer("held"));
        let mut released = object("things", "o", 104);
        released.facts.terminating = true;
        bench.seen("things", released.with_finalizer("held"));
        bench.pass(Duration::from_secs(pause));
        bench.deleted("configmaps", "a", 105);
        bench.bookmark("things", 110);
        bench.pass(A_MOMENT);
        let counts = bench.counts();
        assert_eq!((counts.agreed + counts.theirs_first, counts.unattributed), (agreed, unattributed), "{pause} s");
        assert_eq!(counts.withdrawn, u64::from(pause > 10), "{pause} s");
    }
}

#[test]
fn an_owner_that_orphans_for_a_moment_is_remembered_for_the_changes_of_that_moment() {
    let mut bench = observing();
    let owner = |rv: u64, finalizers: &[&str]| {
        let mut owner = object("things", "o", rv);
        owner.facts.terminating = true;
        finalizers.iter().fold(owner, |owner, finalizer| owner.with_finalizer(finalizer))
    };
    bench.seen("things", owner(101, &["held"]));
    bench.seen("configmaps", child(102));
    bench.audited(AuditedVerb::Change, "a", "collector");
    bench.seen("configmaps", object("configmaps", "a", 104));
    bench.seen("things", owner(103, &["held", "orphan"]));
    bench.seen("things", owner(105, &["held"]));
    bench.log_moves_on();
    assert_eq!((bench.sums(), bench.disagreements()), ([0, 1, 0, 0, 0], vec![]), "the finalizer awaits its request");
}

#[test]
fn an_owner_that_waits_and_then_orphans_is_remembered_as_such() {
    let mut bench = observing();
    bench.seen("things", object("things", "o", 101).terminating("foregroundDeletion"));
    bench.seen("configmaps", child(102).terminating("example.com/slow"));
    bench.audited(AuditedVerb::Change, "a", "collector");
    bench.seen("configmaps", object("configmaps", "a", 104).terminating("example.com/slow"));
    bench.seen("things", object("things", "o", 103).terminating("orphan"));
    bench.log_moves_on();
    assert_eq!((bench.sums(), bench.disagreements()), ([0, 1, 0, 0, 0], vec![]));
}

#[test]
fn a_last_reference_that_goes_just_after_others_is_a_matter_of_timing() {
    let moments = [(true, 0, "timing"), (true, 20, "unknown"), (false, 0, "unknown")];
    for (other, seconds, expected) in moments {
        let mut bench = observing();
        bench.seen("things", object("things", "o", 101));
        bench.seen("things", object("things", "p", 101));
        let two = object("configmaps", "a", 102).blocking("things", "o").owned_by("things", "p");
        let one = |rv| object("configmaps", "a", rv).blocking("things", "o");
        bench.seen("configmaps", if other { two } else { one(102) });
        bench.seen("configmaps", one(104));
        bench.pass(Duration::from_secs(seconds));
        bench.seen("things", object("things", "o", 103).terminating("foregroundDeletion"));
        bench.seen("configmaps", object("configmaps", "a", 105));
        bench.bookmark("things", 106);
        bench.pass(A_MOMENT);
        let told = format!("theirs_only remove_owner_references a: {expected}");
        assert_eq!(bench.disagreements(), [told], "{seconds} s after the other one");
    }
}

#[test]
fn a_deletion_just_after_a_living_owner_stopped_to_wait_is_a_matter_of_timing() {
    for (seconds, expected) in [(0, &["theirs_only delete a: timing"][..]), (20, &[])] {
        let mut bench = observing();
        bench.seen("things", object("things", "o", 101));
        bench.seen("configmaps", object("configmaps", "a", 102).owned_by("things", "unseen").owned_by("things", "o"));
        bench.seen("things", object("things", "o", 103).terminating("foregroundDeletion"));
        bench.seen("things", object("things", "o", 104).terminating("example.com/held"));
        bench.pass(Duration::from_secs(seconds));
        bench.deleted("configmaps", "a", 105);
        bench.bookmark("things", 106);
        bench.pass(Duration::from_secs(200));
        assert_eq!(bench.disagreements(), expected, "{seconds} s after the finalizer went");
    }
}
