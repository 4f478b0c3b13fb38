//! Objects with very many references.

use super::*;
use crate::object::REFERENCES_MAX;
use crate::view::{ReasonCode, VerdictView};

/// Returns a configmap with `references` references to objects that do not exist.
fn heavy(name: &str, rv: u64, references: usize) -> Object {
    let mut heavy = object("configmaps", name, rv);
    heavy.facts.owners = (0..references).map(|number| reference("things", &format!("ghost{number}"), None)).collect();
    heavy
}

#[test]
fn an_object_with_too_many_references_is_kept_and_said_to_be() {
    let mut bench = Bench::synced();
    bench.seen("configmaps", heavy("a", 101, REFERENCES_MAX + 1));
    bench.seen("configmaps", heavy("a", 102, REFERENCES_MAX + 2));
    bench.pass(Duration::from_secs(60));
    assert_eq!(bench.grants(), NOTHING);
    assert_eq!(bench.undecided(), [(Undecided::TooManyReferences, 1)]);
    let status = bench.leader.queries().status();
    assert_eq!((status.edges, status.virtual_nodes), (0, 0), "none of its references is kept");
    assert_eq!(status.excessive.iter().map(|object| &*object.name).collect::<Vec<_>>(), ["a"]);
    let why = bench.leader.queries().explain(&uid("a")).unwrap();
    assert_eq!((why.verdict, why.reasons[0].code), (VerdictView::Held, ReasonCode::TooManyReferences));
    assert!(why.reasons[0].detail.contains("5002"), "{:?}", why.reasons);
    let told = |event: &&Event| matches!(event, Event::TooManyReferences { count: 5001, .. });
    assert_eq!(bench.events.iter().filter(told).count(), 1);
    // The object has fewer references now, and is judged normally.
    bench.seen("configmaps", heavy("a", 103, 1));
    assert_eq!(
        (bench.undecided(), bench.leader.queries().status().excessive),
        (vec![(Undecided::OwnerUnverified, 1)], vec![])
    );
    assert_eq!(bench.leader.inconsistency(), None);
}

#[test]
fn too_many_references_that_were_seen_before_the_term_are_told_of_in_the_term() {
    let mut bench = Bench::synced();
    bench.input(Input::TermLost { leader_endpoint: String::new() });
    bench.seen("configmaps", heavy("a", 101, REFERENCES_MAX + 1));
    let told = |event: &&Event| matches!(event, Event::TooManyReferences { .. });
    assert_eq!(bench.events.iter().filter(told).count(), 0);
    bench.input(Input::TermGained(term(3)));
    assert_eq!(bench.events.iter().filter(told).count(), 1);
}

#[test]
fn an_owner_with_too_many_references_ends_its_own_deletion() {
    for finalizer in ["foregroundDeletion", "orphan"] {
        let mut bench = Bench::synced();
        bench.pass(Duration::from_secs(1));
        bench.seen("configmaps", heavy("a", 101, REFERENCES_MAX + 1).terminating(finalizer));
        bench.answer_probes(102, &[]);
        bench.pass(Duration::from_secs(1));
        let lease = bench.take("a");
        assert_eq!(describe(&lease), format!("remove finalizer {finalizer} of a"));
        let digest = heavy("a", 101, REFERENCES_MAX + 1).terminating(finalizer).facts.digest();
        assert_eq!(lease.item.preconditions.facts_digest, digest);
    }
}

#[test]
fn an_owner_does_not_wait_for_a_dependent_with_too_many_references() {
    let mut bench = Bench::synced();
    bench.seen("configmaps", heavy("a", 101, REFERENCES_MAX).blocking("things", "o"));
    bench.seen("things", object("things", "o", 102).terminating("foregroundDeletion"));
    assert_eq!(bench.grants(), ["remove finalizer foregroundDeletion of o"]);
}

#[test]
fn fifty_thousand_equal_references_are_one() {
    for finalizer in ["foregroundDeletion", "orphan"] {
        let mut bench = Bench::synced();
        bench.seen("things", object("things", "o", 101));
        let mut heavy = object("configmaps", "a", 102).blocking("things", "o");
        heavy.facts.owners = vec![heavy.facts.owners[0].clone(); 50_000].into();
        bench.seen("configmaps", heavy);
        assert_eq!(bench.leader.queries().status().edges, 1);
        bench.seen("things", object("things", "o", 103).terminating(finalizer));
        let expected = if finalizer == "orphan" { "remove o from a" } else { "delete(Background) a if o waits" };
        assert_eq!(bench.grants(), [expected]);
    }
}

#[test]
fn kinds_that_nothing_names_any_more_are_dropped() {
    let mut bench = Bench::synced();
    for round in 0..5 {
        let mut tenant = object("configmaps", "a", 101 + round);
        let strange = |number: u64| OwnerReference {
            api_version: format!("g{round}.example.com/v1").into(),
            kind: format!("Kind{number}").into(),
            ..reference("things", "ghost", None)
        };
        tenant.facts.owners = (0..1000).map(strange).collect();
        bench.seen("configmaps", tenant);
        assert_eq!(bench.leader.queries().status().edges, 1000);
    }
    let kinds = bench.leader.world.coverage().ids().count();
    assert!(kinds < 3000, "{kinds} kinds of 1003 that are named");
    bench.deleted("configmaps", "a", 200);
    bench.serve("mirrors");
    bench.list("mirrors", 201, vec![object("mirrors", "o", 150)]);
    bench.seen("configmaps", object("configmaps", "b", 202).owned_by("mirrors", "o"));
    bench.deleted("mirrors", "o", 203);
    assert_eq!(bench.grants(), ["delete(Background) b"], "places of dropped kinds are used again");
    assert_eq!(bench.leader.inconsistency(), None);
}

#[test]
fn a_deletion_rests_on_no_more_owners_than_one_item_can_check() {
    let mut bench = Bench::synced();
    let mut heavy = object("configmaps", "a", 101);
    for number in 0..60 {
        let owner = format!("o{number:02}");
        bench.seen("things", object("things", &owner, 102 + number));
        // Each owner occurs twice: the references differ, and the owner is the same.
        heavy = if number < 20 { heavy.owned_by("things", &owner) } else { heavy.blocking("things", &owner) };
        heavy.facts.owners.last_mut().unwrap().controller = Some(false);
        heavy = heavy.owned_by("things", &owner);
    }
    bench.seen("configmaps", heavy.clone());
    for number in 0..60 {
        let object = object("things", &format!("o{number:02}"), 200 + number).terminating("foregroundDeletion");
        bench.leader.handle(bench.now, Input::Seen { collection: collection("things"), object });
    }
    bench.drain();
    let lease = bench.take("a");
    let Action::RemoveOwnerReferences { owner_uids, entries, .. } = &lease.item.action else { panic!("{lease:?}") };
    assert_eq!((owner_uids.len(), entries.len()), (0, 20), "ten owners that it does not block, twice each");
    assert!(entries.iter().all(|entry| *entry.name < *"o20"), "{entries:?}");
    let left: Vec<OwnerReference> =
        heavy.facts.owners.iter().filter(|owner| !entries.contains(owner)).cloned().collect();
    let facts = Facts { owners: left.into(), ..Facts::default() };
    bench.report_with(&lease, |report| {
        report.observed = Some(Sighting { uid: uid("a"), resource_version: version(300), facts: facts.clone() });
    });
    assert!(!bench.grants().iter().any(|grant| grant.contains(" a")), "the word of an executor is no fact");
    bench.seen("configmaps", Object { resource_version: version(300), facts, ..heavy });
    let lease = bench.take("a");
    let Action::Delete { owner_checks, .. } = &lease.item.action else { panic!("{lease:?}") };
    assert_eq!(owner_checks.len(), 50);
}

#[test]
fn an_object_with_many_unknown_owners_is_decided_once() {
    let mut bench = Bench::synced();
    let mut heavy = heavy("a", 101, 300).owned_by("things", "alive");
    heavy.facts.owners.rotate_left(150);
    bench.seen("things", object("things", "alive", 100));
    bench.seen("configmaps", heavy);
    bench.pass(Duration::from_secs(1));
    let ids: Vec<_> = (0..300)
        .map(|number| bench.leader.world.graph().by_uid(&uid(&format!("ghost{number}"))).next().unwrap())
        .collect();
    let decided = |bench: &Bench| {
        let of = |event: &&Event| matches!(event, Event::Decided { action: ActionKind::RemoveOwnerReferences, .. });
        bench.events.iter().filter(of).count()
    };
    for &id in &ids {
        assert_eq!(decided(&bench), 0, "some owners are still being asked for");
        bench.leader.prove(id, crate::evidence::Proof::Listed { resource_version: version(110) });
        bench.drain();
    }
    assert_eq!(decided(&bench), 1);
}

#[test]
fn a_long_cycle_of_foreground_deletions_ends() {
    let mut bench = Bench::synced();
    const LENGTH: u64 = 3000;
    let name = |number: u64| format!("m{:05}", number % LENGTH);
    for number in 0..LENGTH {
        let member = object("configmaps", &name(number), 101 + number).blocking("configmaps", &name(number + 1));
        bench.seen("configmaps", member);
    }
    // All objects are marked before any object is judged.
    for number in 0..LENGTH {
        let member = object("configmaps", &name(number), 5000 + number).blocking("configmaps", &name(number + 1));
        let object = member.terminating("foregroundDeletion");
        bench.leader.handle(bench.now, Input::Seen { collection: collection("configmaps"), object });
    }
    bench.drain();
    let unblocks: Vec<String> = bench.grants();
    let unblocked = unblocks.iter().filter(|grant| grant.starts_with("unblock")).count();
    assert_eq!(unblocked, 1000.min(unblocks.len()), "all that the window has room for: {:?}", unblocks.first());
}

#[test]
fn very_many_claims_to_one_uid_are_told_apart() {
    let mut bench = Bench::synced();
    let claims = |resource: &str, dependent: &str, rv: u64| {
        let mut claims = object("configmaps", dependent, rv);
        let claim = |number| OwnerReference { name: format!("o{number}").into(), ..reference(resource, "o", None) };
        claims.facts.owners = (0..2000).map(claim).collect();
        claims
    };
    for (dependent, rv) in [("a", 101), ("b", 102)] {
        bench.seen("configmaps", claims("things", dependent, rv));
    }
    bench.seen("things", object("things", "o", 103));
    bench.seen("configmaps", object("configmaps", "c", 104).owned_by("things", "o"));
    let status = bench.leader.queries().status();
    assert_eq!((status.edges, status.virtual_nodes, status.nodes), (4001, 2000, 2004));
    assert_eq!(bench.leader.inconsistency(), None);
    bench.deleted("things", "o", 105);
    assert_eq!(bench.leader.inconsistency(), None);
    assert!(bench.grants().contains(&"delete(Background) c".to_string()));
    for dependent in ["a", "b", "c"] {
        bench.deleted("configmaps", dependent, 106);
    }
    assert_eq!(bench.leader.queries().status().nodes, 0);
    assert_eq!(bench.leader.inconsistency(), None);
}

#[test]
fn what_is_told_of_a_decision_names_the_first_owners_and_counts_the_others() {
    let mut bench = Bench::synced();
    let ghost = |number: u64| format!("ghost{number}");
    let mut heavy = heavy("a", 130, 25);
    let waits = reference("things", "waits", Some(true));
    heavy.facts.owners = [&*heavy.facts.owners, &[waits]].concat().into();
    for number in 0..25 {
        bench.seen("things", object("things", &ghost(number), 101 + number));
    }
    bench.seen("configmaps", heavy);
    bench.seen("things", object("things", "waits", 131).terminating("foregroundDeletion"));
    for number in 0..25 {
        bench.deleted("things", &ghost(number), 132 + number);
    }
    bench.pass(Duration::from_secs(1));
    let granted = |event: &Event| if let Event::Granted { grounds, .. } = event { Some(grounds.clone()) } else { None };
    let grounds = bench.events.iter().find_map(granted).unwrap();
    assert_eq!((grounds.owners.len(), grounds.owner_count, grounds.cause_count), (20, 26, 26));
    assert_eq!(grounds.owners[19].owner.name.as_ref(), "ghost19");
    assert_eq!(grounds.causes.len(), 20);
    assert!(matches!(&grounds.causes[0], Cause::OwnerWaiting { name, .. } if &**name == "waits"));
}
