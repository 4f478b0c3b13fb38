//! The three deletion policies, and the reasons that keep an object.

use super::*;
use crate::guard::HeldBy;
use crate::leader::InvalidReferences;
use crate::view::{ReasonCode, VerdictView};

#[test]
fn background_deletes_every_dependent_with_one_call() {
    let mut bench = Bench::synced();
    bench.seen("things", object("things", "o", 101));
    bench.seen("configmaps", object("configmaps", "a", 102).owned_by("things", "o"));
    bench.seen("configmaps", object("configmaps", "b", 103).owned_by("things", "o").with_finalizer("orphan"));
    assert_eq!(bench.grants(), NOTHING);
    bench.deleted("things", "o", 104);
    let lease = bench.granted.iter().find(|lease| &*lease.item.target.name == "a").unwrap().clone();
    let preconditions = lease.item.preconditions.clone();
    assert_eq!(preconditions.resource_version, version(102));
    assert_eq!(lease.item.target.uid, uid("a"));
    assert_eq!(bench.grants(), ["delete(Background) a", "delete(Orphan) b"], "the policy its own finalizers ask for");
    bench.report(&lease, Outcome::Done);
    bench.pass(Duration::from_secs(10));
    assert_eq!(bench.grants(), NOTHING, "the watch is awaited");
    bench.deleted("configmaps", "a", 105);
    let ten_seconds = Some(Duration::from_secs(10));
    let removed = |event: &Event| matches!(event, Event::Removed { caused_by_us: true, owner_gone, .. } if *owner_gone == ten_seconds);
    assert!(bench.events.iter().any(removed), "and the time since its owner went is told");
}

#[test]
fn another_living_owner_keeps_and_the_dead_reference_goes() {
    let mut bench = Bench::synced();
    bench.seen("things", object("things", "o", 101));
    bench.seen("things", object("things", "p", 102));
    bench.seen("configmaps", object("configmaps", "a", 103).owned_by("things", "o").owned_by("things", "p"));
    bench.deleted("things", "o", 104);
    assert_eq!(bench.grants(), ["remove o from a"]);
}

#[test]
fn two_references_of_one_uid_are_told_apart() {
    let mut bench = Bench::synced();
    bench.seen("things", object("things", "o", 101));
    let mut child = object("configmaps", "a", 102).owned_by("things", "o").owned_by("things", "o");
    child.facts.owners[1].name = "elsewhere".into();
    bench.seen("configmaps", child);
    bench.pass(Duration::from_secs(1));
    assert_eq!(bench.questions(), ["elsewhere by List"], "the other name is another node");
    let mut bench2 = Bench::synced();
    bench2.seen("things", object("things", "o", 101));
    let mut child = object("configmaps", "a", 102).owned_by("things", "o").owned_by("things", "o");
    child.facts.owners[1].name = "elsewhere".into();
    bench2.seen("configmaps", child);
    bench2.pass(Duration::from_secs(1));
    bench2.found_again("o", FindingResult::Absent(Some(version(110))));
    assert_eq!(bench2.grants(), ["remove Thing/elsewhere from a"], "exactly that entry, and the object stays");
}

#[test]
fn foreground_goes_leaves_first() {
    let mut bench = Bench::synced();
    bench.seen("things", object("things", "root", 101));
    bench.seen("configmaps", object("configmaps", "mid", 102).blocking("things", "root"));
    bench.seen("configmaps", object("configmaps", "leaf", 103).blocking("configmaps", "mid"));
    bench.seen("things", object("things", "root", 104).terminating("foregroundDeletion"));
    assert_eq!(bench.grants(), ["delete(Foreground) mid if root waits"]);
    let mid = object("configmaps", "mid", 105).blocking("things", "root").terminating("foregroundDeletion");
    bench.seen("configmaps", mid);
    assert_eq!(bench.grants(), ["delete(Background) leaf if mid waits"]);
    bench.deleted("configmaps", "leaf", 106);
    // The delete of mid is still in progress. Its report permits the next decision about mid.
    assert_eq!(bench.grants(), NOTHING);
}

#[test]
fn a_dependent_that_does_not_block_goes_before_the_finalizer_does() {
    for outcome in [Outcome::Done, Outcome::AdmissionDenied] {
        let mut bench = Bench::synced();
        bench.seen("things", object("things", "root", 101).with_finalizer("example.com/wait"));
        bench.seen("configmaps", object("configmaps", "free", 102).owned_by("things", "root"));
        let root = object("things", "root", 103).with_finalizer("example.com/wait");
        bench.seen("things", root.terminating("foregroundDeletion"));
        let lease = bench.take("free");
        assert_eq!(bench.grants(), NOTHING, "without its finalizer, root would keep what it owns");
        bench.report(&lease, outcome);
        assert_eq!(bench.grants(), ["remove finalizer foregroundDeletion of root"], "after {outcome:?}");
    }
}

#[test]
fn a_deletion_that_is_taken_back_does_not_keep_its_waiting_owner_waiting() {
    for leased in [false, true] {
        let mut bench = if leased { Bench::synced() } else { Bench::without_executor() };
        if !leased {
            for resource in ["configmaps", "things"] {
                bench.serve(resource);
                bench.list(resource, 100, vec![]);
            }
        }
        bench.seen("things", object("things", "root", 101));
        bench.seen("configmaps", object("configmaps", "free", 102).owned_by("things", "root"));
        bench.seen("things", object("things", "root", 103).terminating("foregroundDeletion"));
        let mut held = object("configmaps", "free", 104).owned_by("things", "root");
        held.facts.hold = true;
        bench.seen("configmaps", held);
        if leased {
            let lease = bench.take("free");
            assert_eq!(bench.grants(), NOTHING, "it may be sent any moment");
            let returned = WorkReturn { lease: lease.id, cause: ReturnCause::NotStarted };
            bench.message(STREAM, ToLeader::Reports { reports: vec![], returns: vec![returned] });
        } else {
            bench.hello(STREAM, hello("e1", "i1"));
        }
        assert_eq!(bench.grants(), ["remove finalizer foregroundDeletion of root"], "leased: {leased}");
    }
}

#[test]
fn the_foreground_finalizer_goes_when_nothing_blocks() {
    let mut bench = Bench::synced();
    bench.seen("things", object("things", "root", 101));
    bench.seen("configmaps", object("configmaps", "leaf", 102).blocking("things", "root"));
    bench.seen("configmaps", object("configmaps", "free", 103).owned_by("things", "root"));
    bench.seen("things", object("things", "root", 104).terminating("foregroundDeletion"));
    let leaf = bench.take("leaf");
    bench.report(&leaf, Outcome::Done);
    let free = bench.take("free");
    assert_eq!(describe(&free), "delete(Background) free if root waits");
    bench.deleted("configmaps", "leaf", 105);
    assert_eq!(bench.grants(), NOTHING, "its deletion is on its way");
    bench.report(&free, Outcome::Done);
    assert_eq!(
        bench.grants(),
        ["remove finalizer foregroundDeletion of root"],
        "what does not block is not waited for"
    );
}

#[test]
fn a_cycle_is_unblocked_where_it_closes_and_only_inside() {
    let mut bench = Bench::synced();
    bench.seen("things", object("things", "outer", 101).terminating("foregroundDeletion"));
    bench.seen(
        "configmaps",
        object("configmaps", "a", 102).blocking("configmaps", "c").terminating("foregroundDeletion"),
    );
    let c = || object("configmaps", "c", 103).blocking("configmaps", "b");
    bench.seen("configmaps", c());
    bench.grants();
    let b = |rv| object("configmaps", "b", rv).blocking("configmaps", "a").blocking("things", "outer");
    bench.seen("configmaps", b(104));
    assert_eq!(bench.grants(), ["delete(Foreground) b if a and outer waits"], "the deletion goes round first");
    bench.seen("configmaps", b(105).terminating("foregroundDeletion"));
    let lease = bench.take("c");
    assert_eq!(describe(&lease), "unblock b in c", "a waits for b, b for c, and c would wait for a");
    bench.report_with(&lease, |report| {
        let facts = object("configmaps", "c", 106).owned_by("configmaps", "b").facts;
        report.observed = Some(Sighting { uid: uid("c"), resource_version: version(106), facts });
    });
    assert!(!bench.grants().iter().any(|grant| grant.contains(" c")), "the word of an executor is no fact");
    bench.seen("configmaps", object("configmaps", "c", 106).owned_by("configmaps", "b"));
    assert!(bench.grants().contains(&"delete(Foreground) c if b waits".to_string()));
}

#[test]
fn a_cycle_whose_members_are_all_in_foreground_deletion_ends() {
    for last in ["a", "b", "c"] {
        let mut bench = Bench::synced();
        let ring = [("a", "c"), ("b", "a"), ("c", "b")];
        for (name, owner) in ring {
            bench.seen("configmaps", object("configmaps", name, 101).blocking("configmaps", owner));
        }
        // The grants on the way are never carried out, because the user is faster.
        for (at, (name, owner)) in ring.iter().filter(|(name, _)| *name != last).enumerate() {
            let terminating = object("configmaps", name, 102 + at as u64).blocking("configmaps", owner);
            bench.seen("configmaps", terminating.terminating("foregroundDeletion"));
        }
        for lease in core::mem::take(&mut bench.granted) {
            bench.report(&lease, Outcome::Conflict);
        }
        let (name, owner) = ring[ring.iter().position(|(name, _)| *name == last).unwrap()];
        let terminating = object("configmaps", name, 110).blocking("configmaps", owner);
        bench.seen("configmaps", terminating.terminating("foregroundDeletion"));
        bench.pass(Duration::from_secs(1));
        assert!(bench.grants().contains(&"unblock c in a".to_string()), "{last} came last");
    }
}

#[test]
fn orphaning_takes_references_first_and_the_finalizer_after_the_barrier() {
    let mut bench = Bench::synced();
    bench.pass(Duration::from_secs(1));
    bench.seen("things", object("things", "o", 101));
    bench.seen("configmaps", object("configmaps", "a", 102).owned_by("things", "o"));
    bench.seen("things", object("things", "o", 103).terminating("orphan"));
    assert_eq!(bench.grants(), ["remove o from a"]);
    bench.seen("configmaps", object("configmaps", "a", 104));
    // The watch has not shown this dependent yet. A list replaces the quiet watch of configmaps.
    let late = object("configmaps", "late", 104).owned_by("things", "o");
    assert_eq!(bench.probes.len(), 2, "dependents of a namespaced owner are namespaced: {:?}", bench.probes);
    bench.answer_probes(
        105,
        &[
            ("configmaps", late.clone()),
            ("configmaps", object("configmaps", "a", 104)),
            ("things", object("things", "o", 103)),
        ],
    );
    bench.pass(Duration::from_millis(249));
    assert_eq!(bench.probes, []);
    bench.pass(Duration::from_millis(1));
    assert_eq!(bench.probes.len(), 1, "{:?}", bench.probes);
    assert_eq!(bench.grants(), NOTHING, "no finalizer goes before the list has answered");
    bench.answer_probes(106, &[("configmaps", late), ("configmaps", object("configmaps", "a", 104))]);
    let lease = bench.take("late");
    assert_eq!(describe(&lease), "remove o from late");
    bench.report_with(&lease, |report| {
        report.observed = Some(Sighting { uid: uid("late"), resource_version: version(107), facts: Facts::default() });
    });
    assert_eq!(bench.grants(), NOTHING, "the word of an executor is no fact");
    bench.seen("configmaps", object("configmaps", "late", 107));
    // The report about a arrives after the watch has shown the new version.
    assert_eq!(bench.grants(), ["remove finalizer orphan of o"]);
}

#[test]
fn a_dependent_that_shows_up_after_its_orphaning_owner_went_lives() {
    let mut bench = Bench::synced();
    bench.pass(Duration::from_secs(1));
    bench.seen("things", object("things", "o", 101).terminating("orphan"));
    bench.answer_probes(102, &[]);
    let lease = bench.take("o");
    assert_eq!(describe(&lease), "remove finalizer orphan of o");
    bench.report(&lease, Outcome::Done);
    bench.deleted("things", "o", 103);
    bench.seen("configmaps", object("configmaps", "late", 104).owned_by("things", "o"));
    bench.pass(Duration::from_secs(1));
    let lease = bench.take("late");
    assert_eq!(describe(&lease), "remove o from late");
    // A second round passes while the reference remains. The owner is still remembered.
    bench.answer_probes(105, &[]);
    bench.pass(Duration::from_secs(60));
    assert!(bench.grants().iter().all(|grant| !grant.starts_with("delete")));
}

#[test]
fn an_owner_that_orphaned_is_forgotten_with_the_last_reference_that_has_its_uid_and_name() {
    for name in ["o", "another"] {
        let mut bench = Bench::synced();
        bench.pass(Duration::from_secs(1));
        bench.seen("things", object("things", "o", 101));
        // The group may be served again and show the same object.
        let mut junk = object("configmaps", "junk", 102).owned_by("things", "o");
        junk.facts.owners[0].api_version = "nosuch.example.com/v1".into();
        junk.facts.owners[0].name = name.into();
        bench.seen("configmaps", junk);
        bench.seen("things", object("things", "o", 103).terminating("orphan"));
        bench.deleted("things", "o", 104);
        for _ in 0..2 {
            bench.pass(Duration::from_secs(1));
            bench.answer_probes(105, &[]);
        }
        bench.pass(Duration::from_secs(40));
        assert_eq!(bench.leader.world.graph().has_orphaned(&uid("o")), name == "o");
        bench.deleted("configmaps", "junk", 110);
        assert!(!bench.leader.world.graph().has_orphaned(&uid("o")));
    }
}

#[test]
fn an_owner_that_orphaned_is_forgotten_with_the_last_reference_to_it() {
    let mut bench = Bench::synced();
    bench.pass(Duration::from_secs(1));
    bench.seen("things", object("things", "o", 101));
    bench.seen("configmaps", object("configmaps", "a", 102).owned_by("things", "o"));
    bench.seen("things", object("things", "o", 103).terminating("orphan"));
    bench.deleted("things", "o", 104);
    for _ in 0..2 {
        bench.pass(Duration::from_secs(1));
        bench.answer_probes(105, &[]);
    }
    assert!(
        bench.leader.world.graph().has_orphaned(&uid("o")),
        "the round has passed, and a dependent refers to it yet"
    );
    bench.seen("configmaps", object("configmaps", "a", 106));
    assert!(!bench.leader.world.graph().has_orphaned(&uid("o")), "no other round has to pass");
}

#[test]
fn dependents_of_an_orphaning_owner_stay_whichever_client_removes_its_finalizer() {
    for second in [false, true] {
        let mut bench = Bench::synced();
        bench.pass(Duration::from_secs(1));
        bench.seen("things", object("things", "o", 101));
        bench.seen("configmaps", object("configmaps", "a", 102).owned_by("things", "o"));
        bench.seen("configmaps", object("configmaps", "late", 103).owned_by("things", "o"));
        bench.seen("things", object("things", "o", 104).terminating("orphan"));
        // The user removes the finalizer, or requests another deletion mode, before any dependent has lost its
        // reference.
        if second {
            bench.seen("things", object("things", "o", 105).terminating("example.com/held"));
        }
        bench.deleted("things", "o", 106);
        for name in ["a", "late"] {
            let lease = bench.take(name);
            assert_eq!(describe(&lease), format!("remove o from {name}"));
        }
        bench.answer_probes(107, &[]);
        bench.pass(Duration::from_secs(60));
        assert!(bench.grants().iter().all(|grant| !grant.starts_with("delete")));
    }
}

#[test]
fn cluster_scoped_dependents_of_namespaced_owners_never_go() {
    let mut bench = Bench::synced();
    bench.seen("nodes", object("nodes", "n", 101).owned_by("things", "o"));
    bench.pass(Duration::from_secs(600));
    assert_eq!(bench.grants(), NOTHING);
    assert_eq!(bench.undecided(), []);
}

#[test]
fn the_hold_annotation_keeps() {
    let mut bench = Bench::synced();
    bench.seen("things", object("things", "o", 101));
    let mut held = object("configmaps", "a", 102).owned_by("things", "o");
    held.facts.hold = true;
    bench.seen("configmaps", held);
    bench.deleted("things", "o", 103);
    assert_eq!(bench.grants(), NOTHING);
    bench.seen("configmaps", object("configmaps", "a", 104).owned_by("things", "o"));
    assert_eq!(bench.grants(), ["delete(Background) a"]);
}

/// A bench without an executor, whose policy holds objects with invalid references.
fn holding_invalid() -> Bench {
    let policy = Policy { invalid_references: InvalidReferences::Hold, ..Policy::default() };
    let mut bench = Bench::configured(Config { policy, ..config() }, 7);
    for resource in ["configmaps", "nodes", "things"] {
        bench.serve(resource);
        bench.list(resource, 100, vec![]);
    }
    bench
}

#[test]
fn a_lease_is_recalled_when_another_object_makes_a_reference_invalid() {
    let mut bench = holding_invalid();
    bench.hello(STREAM, hello("e1", "i1"));
    bench.seen("things", object("things", "o", 101));
    bench.seen("configmaps", object("configmaps", "a", 102).owned_by("things", "o"));
    bench.deleted("things", "o", 103);
    let lease = bench.take("a");
    bench.seen("nodes", object("nodes", "o", 104));
    let recalled = |(_, message): &(StreamId, ToExecutor)| matches!(message, ToExecutor::Revoke { leases, .. } if leases.contains(&lease.id));
    assert!(bench.sent.iter().any(recalled), "the uid of its owner belongs to another object");
}

#[test]
fn an_owner_does_not_wait_for_an_object_whose_reference_becomes_invalid() {
    let mut bench = holding_invalid();
    bench.seen("things", object("things", "gone", 101));
    bench.seen("things", object("things", "root", 101));
    let dependent = object("configmaps", "a", 102).owned_by("things", "root").owned_by("things", "gone");
    bench.seen("configmaps", dependent);
    bench.deleted("things", "gone", 103);
    bench.seen("things", object("things", "root", 104).terminating("foregroundDeletion"));
    bench.seen("nodes", object("nodes", "gone", 105));
    bench.hello(STREAM, hello("e1", "i1"));
    assert_eq!(bench.grants(), ["remove finalizer foregroundDeletion of root"]);
}

#[test]
fn in_observe_objects_are_held_and_say_so() {
    let mut bench = Bench::synced();
    bench.leader.cx.config.mode = Mode::Observe;
    bench.seen("things", object("things", "o", 101));
    let mut held = object("configmaps", "a", 102).owned_by("things", "o");
    held.facts.hold = true;
    bench.seen("configmaps", held);
    bench.deleted("things", "o", 103);
    assert!(bench.events.iter().any(|event| matches!(event, Event::Held { by: Some(HeldBy::Annotation), .. })));
    let explained = |bench: &Bench, of: &str| bench.leader.queries().explain(&uid(of)).unwrap();
    assert_eq!(explained(&bench, "a").verdict, VerdictView::Held);
    bench.seen("configmaps", object("configmaps", "b", 104).owned_by("things", "o"));
    assert_eq!(explained(&bench, "b").verdict, VerdictView::Collectable);
    bench.input(Input::GuardSeen(pauses::pause("p", 1)));
    let held = explained(&bench, "b");
    assert_eq!(held.verdict, VerdictView::Held);
    let codes: Vec<_> = held.reasons.iter().map(|reason| reason.code).collect();
    assert!(codes.contains(&ReasonCode::Paused) && codes.contains(&ReasonCode::ObserveOnly), "{codes:?}");
}

#[test]
fn terminating_objects_are_never_sent_a_delete() {
    let mut bench = Bench::synced();
    bench.seen("things", object("things", "o", 101));
    bench.seen("configmaps", object("configmaps", "a", 102).owned_by("things", "o").terminating("example.com/x"));
    bench.deleted("things", "o", 103);
    bench.pass(Duration::from_secs(60));
    assert_eq!(bench.grants(), NOTHING);
}

#[test]
fn in_observe_questions_are_asked_and_nothing_is_granted() {
    let mut bench = Bench::synced();
    bench.leader.cx.config.mode = Mode::Observe;
    bench.seen("things", object("things", "o", 101));
    bench.seen("configmaps", object("configmaps", "a", 102).owned_by("things", "o"));
    bench.seen("configmaps", object("configmaps", "b", 103).owned_by("things", "ghost"));
    bench.deleted("things", "o", 104);
    bench.pass(Duration::from_secs(1));
    assert_eq!((bench.grants(), bench.questions()), (vec![], vec!["ghost by List".to_string()]));
    assert!(bench.events.iter().any(|event| matches!(event, Event::Decided { action: ActionKind::Delete, .. })));
}

#[test]
fn ten_objects_do_not_wait_behind_a_thousand_of_another_root_in_their_namespace() {
    let mut bench = Bench::synced();
    bench.input(Input::StreamClosed { stream: STREAM });
    bench.hello(STREAM, Hello { window: 4, ..hello("e1", "i1") });
    bench.seen("things", object("things", "large", 101));
    bench.seen("things", object("things", "small", 102));
    let mut rv = 102;
    let mut family = |bench: &mut Bench, root: &str, count: usize| {
        for middle in 0..count / 10 {
            let owner = format!("{root}-{middle}");
            rv += 1;
            bench.seen("configmaps", object("configmaps", &owner, rv).owned_by("things", root));
            for leaf in 0..9 {
                rv += 1;
                let name = format!("{owner}-{leaf}");
                bench.seen("configmaps", object("configmaps", &name, rv).owned_by("configmaps", &owner));
            }
        }
        rv
    };
    let last = family(&mut bench, "large", 1000).max(family(&mut bench, "small", 10));
    bench.deleted("things", "large", last + 1);
    bench.deleted("things", "small", last + 2);
    // Each granted object is deleted at once, and its dependents are decided next.
    let (mut granted, mut small) = (0, 0);
    for at in 0.. {
        let lease = bench.granted.remove(0);
        let name = lease.item.target.name.to_string();
        bench.report(&lease, Outcome::Done);
        bench.deleted("configmaps", &name, last + 3 + at);
        granted += 1;
        small += usize::from(name.starts_with("small"));
        if small == 10 {
            break;
        }
    }
    assert!(granted <= 30, "the ten were done after {granted} of the thousand");
}

#[test]
fn a_finalizer_that_is_decided_on_waits_for_a_list_that_begins_before_it_is_granted() {
    let mut bench = Bench::without_executor();
    for resource in ["configmaps", "nodes", "things"] {
        bench.serve(resource);
        bench.list(resource, 100, vec![]);
    }
    bench.seen("things", object("things", "o", 101).terminating("foregroundDeletion"));
    bench.pass(Duration::from_secs(1));
    bench.input(Input::ListBegun { collection: collection("configmaps"), selectors: 0 });
    bench.hello(STREAM, hello("e1", "i1"));
    bench.pass(Duration::from_secs(1));
    assert_eq!(bench.grants(), NOTHING, "the list may show a dependent");
    let ended = Input::ListEnded { collection: collection("configmaps"), resource_version: version(102) };
    bench.input(ended);
    bench.pass(Duration::from_secs(1));
    assert_eq!(bench.grants(), ["remove finalizer foregroundDeletion of o"]);
}
