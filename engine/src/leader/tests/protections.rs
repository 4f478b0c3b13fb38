//! Protections: which objects they hold, and what readers say of them.

#![expect(clippy::wildcard_enum_match_arm, reason = "each test picks the few events that it is about")]

use super::*;
use crate::guard::{Guard, GuardId};
use crate::scope::{Filter, OwnerScope, Scope};
use crate::view::{Effect, ReasonCode};

fn protection(name: &str, filter: Filter) -> Guard {
    let id = GuardId { kind: GuardKind::Protection, name: name.into() };
    let scope = Scope { targets: vec![filter] };
    Guard { id, scope, lifetime: None, ..pauses::pause(name, 1) }
}

fn below(resource: &str, name: &str) -> Filter {
    let owner = OwnerScope { resource: collection(resource), namespace: "ns".into(), name: name.into(), uid: None };
    Filter { owner: Some(owner), ..Filter::default() }
}

/// Returns the names of the granted deletions since the last call.
fn deleted(bench: &mut Bench) -> Vec<String> {
    let granted = core::mem::take(&mut bench.granted);
    let mut names: Vec<String> = granted.iter().map(|lease| lease.item.target.name.to_string()).collect();
    names.sort();
    names
}

#[test]
fn a_protection_by_name_holds_that_object_alone_and_does_not_expire() {
    let mut bench = Bench::synced();
    bench.input(Input::GuardSeen(protection("keep", Filter { names: vec!["d1".into()], ..Filter::default() })));
    bench.seen("things", object("things", "o", 101));
    for name in ["d0", "d1", "d2"] {
        bench.seen("configmaps", object("configmaps", name, 102).owned_by("things", "o"));
    }
    bench.deleted("things", "o", 103);
    assert_eq!(deleted(&mut bench), ["d0", "d2"]);
    let view = bench.leader.queries().guards().remove(0);
    assert_eq!((view.until, view.held, view.over), (None, 1, false));
    let explained = bench.leader.queries().explain(&uid("d1")).unwrap();
    let reason = &explained.reasons[0];
    assert_eq!((reason.code, reason.detail.as_str()), (ReasonCode::Protected, "protections/keep: because"));
    bench.input(Input::GuardGone {
        id: GuardId { kind: GuardKind::Protection, name: "keep".into() },
        uid: uid("uid-keep"),
    });
    bench.pass(Duration::from_millis(1));
    assert_eq!(deleted(&mut bench), ["d1"]);
}

#[test]
fn a_protection_of_a_subtree_holds_what_is_below_also_after_the_owner_is_gone() {
    let mut bench = Bench::synced();
    bench.input(Input::GuardSeen(protection("keep", below("things", "top"))));
    bench.seen("things", object("things", "top", 101));
    bench.seen("things", object("things", "other", 101));
    bench.seen("configmaps", object("configmaps", "middle", 102).owned_by("things", "top"));
    bench.seen("configmaps", object("configmaps", "leaf", 103).owned_by("configmaps", "middle"));
    bench.seen("configmaps", object("configmaps", "free", 103).owned_by("things", "other"));
    bench.deleted("things", "top", 104);
    bench.deleted("things", "other", 105);
    assert_eq!(deleted(&mut bench), ["free"]);
    // Another client deletes the middle one. No reference leads from the leaf to the protected owner any more, as with
    // the pods of a ReplicaSet that its controller deletes.
    bench.deleted("configmaps", "middle", 106);
    assert_eq!(deleted(&mut bench), ["leaf"]);
}

#[test]
fn a_plan_names_the_protection_and_its_digest_changes_with_it() {
    let mut bench = Bench::synced();
    bench.seen("things", object("things", "o", 101));
    bench.seen("configmaps", object("configmaps", "d", 102).owned_by("things", "o"));
    let plan = |bench: &Bench| places::plan(bench, "o");
    let before = plan(&bench);
    bench.input(Input::GuardSeen(protection("keep", below("things", "o"))));
    let after = plan(&bench);
    assert_ne!(before.digest, after.digest);
    let held = after.entries.iter().find(|entry| *entry.object.name == *"d").unwrap();
    assert_eq!((held.effect, held.reasons[0].detail.as_str()), (Effect::Held, "protections/keep: because"));
}

#[test]
fn two_guards_that_hold_one_object_are_both_named() {
    let mut bench = Bench::synced();
    bench.input(Input::GuardSeen(protection("keep", Filter::default())));
    bench.input(Input::GuardSeen(pauses::pause("p", 2)));
    bench.seen("things", object("things", "o", 101));
    bench.seen("configmaps", object("configmaps", "d", 102).owned_by("things", "o"));
    bench.deleted("things", "o", 103);
    let reasons = |bench: &Bench| -> Vec<ReasonCode> {
        bench.leader.queries().explain(&uid("d")).unwrap().reasons.iter().map(|reason| reason.code).collect()
    };
    assert_eq!(reasons(&bench)[..2], [ReasonCode::Paused, ReasonCode::Protected]);
    bench.input(Input::GuardGone { id: pauses::pause_id("p"), uid: uid("uid-p") });
    assert_eq!(deleted(&mut bench), [""; 0]);
    assert_eq!(reasons(&bench)[0], ReasonCode::Protected);
    let told: Vec<String> = bench
        .events
        .iter()
        .filter_map(|event| match event {
            Event::Held { by, .. } => Some(by.as_ref().map_or_else(String::new, ToString::to_string)),
            _ => None,
        })
        .collect();
    assert_eq!(told, ["pause/p", "protection/keep"]);
}
