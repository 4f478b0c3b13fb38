//! Protections: which objects they hold, and what readers say of them.

#![expect(clippy::wildcard_enum_match_arm, reason = "each test picks the few events that it is about")]

use super::*;
use crate::guard::{Budget, Guard, GuardId, Limit, OnExceeded, Rule};
use crate::scope::{Filter, Labelled, OwnerScope, Requirement, Scope, Test};
use crate::selectors::{Matcher, SELECTORS_MAX};
use crate::view::{Collecting, Effect, Explanation, ReasonCode, VerdictView, Waiting};

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
fn a_protection_of_a_subtree_holds_below_an_owner_whose_references_only_a_read_has_shown() {
    for protected in [true, false] {
        let mut bench = Bench::synced();
        if protected {
            bench.input(Input::GuardSeen(protection("keep", below("things", "top"))));
        }
        bench.input(Input::KindServed(ServedKind { access: Access::Listed, ..served("mirrors") }));
        bench.seen("things", object("things", "top", 101));
        bench.seen("configmaps", object("configmaps", "leaf", 102).owned_by("mirrors", "middle"));
        bench.pass(Duration::from_secs(1));
        let middle = object("mirrors", "middle", 103).owned_by("things", "top").terminating("foregroundDeletion");
        let sighting = Sighting { uid: uid("middle"), resource_version: version(103), facts: middle.facts };
        bench.found("middle", FindingResult::Exists(sighting));
        let expected: &[&str] = if protected { &[] } else { &["leaf"] };
        assert_eq!(deleted(&mut bench), expected);
    }
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

/// Returns the holders of decisions, as the events name them. Empty after a hold has ended.
fn holders(bench: &Bench) -> Vec<String> {
    let holder = |event: &Event| match event {
        Event::Held { by, .. } => Some(by.as_ref().map_or_else(String::new, ToString::to_string)),
        _ => None,
    };
    bench.events.iter().filter_map(holder).collect()
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
    assert_eq!(holders(&bench), ["pause/p", "protection/keep"]);
}

fn label(key: &str) -> Requirement {
    Requirement { of: Labelled::Label, key: key.into(), test: Test::Exists }
}

fn labelled(resources: &[&str], key: &str) -> Filter {
    let resources = resources.iter().map(|resource| collection(resource)).collect();
    Filter { resources, marks: vec![label(key)], ..Filter::default() }
}

/// An object with labels, matched as the caller does.
fn with_labels(bench: &Bench, object: Object, keys: &[&str]) -> Object {
    let mut matcher = Matcher::new(bench.table.clone());
    for key in keys {
        let Some(key) = matcher.wants(Labelled::Label, key) else { continue };
        matcher.take(key, "");
    }
    Object { marks: matcher.finish(), ..object }
}

/// Lists a collection with the present selectors.
fn list_anew(bench: &mut Bench, resource: &str, position: u64, objects: Vec<Object>) {
    let selectors = bench.table.generation();
    bench.relists.retain(|listed| *listed != collection(resource));
    bench.input(Input::ListBegun { collection: collection(resource), selectors });
    for object in objects {
        bench.input(Input::Listed { collection: collection(resource), object });
    }
    bench.input(Input::ListEnded { collection: collection(resource), resource_version: version(position) });
}

#[test]
fn objects_are_held_until_they_are_listed_with_the_selector_and_then_only_marked_ones() {
    let mut bench = Bench::synced();
    bench.seen("things", object("things", "o", 101));
    let dependents = ["d0", "d1"].map(|name| object("configmaps", name, 102).owned_by("things", "o"));
    for dependent in &dependents {
        bench.seen("configmaps", dependent.clone());
    }
    bench.input(Input::GuardSeen(protection("keep", labelled(&["configmaps"], "keep"))));
    assert_eq!(bench.relists, [collection("configmaps")]);
    bench.deleted("things", "o", 103);
    assert_eq!(deleted(&mut bench), [""; 0], "their labels are unknown");
    let view = bench.leader.queries().guards().remove(0);
    assert!(
        !view.effective && view.pending.ends_with("configmaps are being listed for its labels"),
        "{}",
        view.pending
    );
    let [free, kept] = dependents;
    let listed = vec![with_labels(&bench, free, &[]), with_labels(&bench, kept.clone(), &["keep"])];
    list_anew(&mut bench, "configmaps", 104, listed);
    bench.pass(Duration::from_millis(1));
    assert_eq!(deleted(&mut bench), ["d0"]);
    assert!(!bench.leader.queries().guards().remove(0).pending.contains("listed"));
    let unmarked = with_labels(&bench, Object { resource_version: version(105), ..kept }, &[]);
    bench.seen("configmaps", unmarked);
    bench.pass(Duration::from_secs(2));
    assert_eq!(deleted(&mut bench), ["d1"], "its label is removed");
}

#[test]
fn a_label_that_is_added_with_unchanged_facts_holds_a_waiting_decision() {
    let mut bench = Bench::synced();
    bench.input(Input::GuardSeen(protection("keep", labelled(&["configmaps"], "keep"))));
    bench.input(Input::GuardSeen(pauses::pause("p", 1)));
    bench.seen("things", object("things", "o", 101));
    let dependent = object("configmaps", "d", 102).owned_by("things", "o");
    let bare = with_labels(&bench, dependent.clone(), &[]);
    list_anew(&mut bench, "configmaps", 102, vec![bare]);
    bench.deleted("things", "o", 103);
    let labelled = with_labels(&bench, Object { resource_version: version(104), ..dependent }, &["keep"]);
    bench.seen("configmaps", labelled);
    bench.input(Input::GuardGone { id: pauses::pause_id("p"), uid: uid("uid-p") });
    bench.pass(Duration::from_secs(2));
    assert_eq!(deleted(&mut bench), [""; 0]);
    assert_eq!(bench.leader.queries().guards().remove(0).held, 1);
}

#[test]
fn a_decision_that_depends_on_labels_has_a_digest_that_no_read_has() {
    // The executor reads the objects of an aggregated API before each write, and does not know labels either.
    for resource in ["configmaps", "remotes"] {
        let mut bench = Bench::synced();
        bench.serve("remotes");
        bench.input(Input::GuardSeen(protection("keep", labelled(&[resource], "keep"))));
        bench.seen("things", object("things", "o", 101));
        let dependent = object(resource, "d", 102).owned_by("things", "o");
        let bare = with_labels(&bench, dependent.clone(), &[]);
        list_anew(&mut bench, "remotes", 102, vec![]);
        list_anew(&mut bench, resource, 102, vec![bare]);
        bench.deleted("things", "o", 103);
        let digest = bench.granted[0].item.preconditions.facts_digest;
        assert_eq!(digest, dependent.facts.digest_beyond_facts(), "{resource}");
    }
}

#[test]
fn a_selector_of_namespaces_holds_the_objects_of_marked_and_of_unknown_namespaces() {
    let mut bench = Bench::synced();
    bench.serve("namespaces");
    let filter = Filter { namespace_marks: vec![label("keep")], ..Filter::default() };
    bench.input(Input::GuardSeen(protection("keep", filter)));
    let named = |name: &str, rv| object("namespaces", name, rv);
    let listed = vec![with_labels(&bench, named("ns", 101), &[]), with_labels(&bench, named("kept", 101), &["keep"])];
    list_anew(&mut bench, "namespaces", 101, listed);
    bench.seen("things", object("things", "o", 101));
    for (at, space) in (110..).step_by(10).zip(["ns", "kept", "unseen"]) {
        let dependent = object("configmaps", space, at + 1).owned_by("things", "o");
        let owned = |mut dependent: Object| {
            dependent.namespace = space.into();
            dependent.uid = uid(&format!("in {space}"));
            dependent
        };
        let owner = Object { namespace: space.into(), uid: uid(&format!("o in {space}")), ..object("things", "o", at) };
        bench.seen("things", owner.clone());
        let mut dependent = owned(dependent);
        dependent.facts.owners[0].uid = owner.uid.clone();
        bench.seen("configmaps", dependent);
        let gone = Object { resource_version: version(at + 2), ..owner };
        bench.input(Input::Deleted { collection: collection("things"), object: gone });
    }
    assert_eq!(deleted(&mut bench), ["ns"]);
    let unmarked = with_labels(&bench, named("kept", 140), &[]);
    bench.seen("namespaces", unmarked);
    bench.pass(Duration::from_secs(2));
    assert_eq!(deleted(&mut bench), ["kept"], "{:?}", bench.leader.queries().explain(&uid("in kept")));
}

#[test]
fn a_namespace_that_gains_the_label_stops_the_writes_that_were_granted_before() {
    let mut bench = Bench::synced();
    bench.serve("namespaces");
    let filter = Filter { namespace_marks: vec![label("keep")], ..Filter::default() };
    bench.input(Input::GuardSeen(protection("keep", filter)));
    let unmarked = with_labels(&bench, object("namespaces", "ns", 101), &[]);
    list_anew(&mut bench, "namespaces", 101, vec![unmarked]);
    bench.seen("things", object("things", "o", 102));
    bench.seen("configmaps", object("configmaps", "a", 103).owned_by("things", "o"));
    bench.pass(Duration::from_secs(60));
    bench.deleted("things", "o", 104);
    let lease = bench.take("a");
    bench.pass(Duration::from_millis(1));
    assert!(bench.leader.queries().guards()[0].effective, "the write is out of its scope");
    let elsewhere = with_labels(&bench, object("namespaces", "elsewhere", 105), &["keep"]);
    bench.seen("namespaces", elsewhere);
    bench.pass(Duration::from_millis(1));
    assert!(bench.leader.queries().guards()[0].effective, "no write there can leave");
    let marked = with_labels(&bench, object("namespaces", "ns", 106), &["keep"]);
    bench.seen("namespaces", marked);
    let stops = |(_, message): &(StreamId, ToExecutor)| matches!(message, ToExecutor::Revoke { leases, mode: RevokeMode::Stop, .. } if leases.contains(&lease.id));
    assert!(bench.sent.iter().any(stops));
    bench.pass(Duration::from_millis(1));
    assert!(!bench.leader.queries().guards()[0].effective);
    bench.report(&lease, Outcome::Abandoned);
    bench.pass(Duration::from_millis(1));
    assert!(bench.leader.queries().guards()[0].effective);
    assert_eq!(deleted(&mut bench), [""; 0]);
}

#[test]
fn an_object_without_the_label_leaves_a_budget_that_held_it() {
    for by_namespace in [false, true] {
        let mut bench = Bench::synced();
        bench.serve("namespaces");
        let of_namespace = Filter { namespace_marks: vec![label("keep")], ..Filter::default() };
        let filter = if by_namespace { of_namespace } else { labelled(&["configmaps"], "keep") };
        let id = GuardId { kind: GuardKind::Budget, name: "keep".into() };
        let limit = Limit::Objects(0);
        let rule = Budget {
            limit,
            window: Duration::from_secs(60),
            on_exceeded: OnExceeded::Hold,
            count_from: Duration::ZERO,
        };
        bench.input(Input::GuardSeen(Guard { id, rule: Rule::Budget(rule), ..protection("keep", filter) }));
        let space = object("namespaces", "ns", 101);
        let dependent = object("configmaps", "d", 102).owned_by("things", "o");
        let marked = [&space, &dependent].map(|object| with_labels(&bench, object.clone(), &["keep"]));
        let [marked_space, marked_dependent] = marked;
        list_anew(&mut bench, "namespaces", 101, vec![marked_space]);
        bench.seen("things", object("things", "o", 101));
        list_anew(&mut bench, "configmaps", 102, vec![marked_dependent]);
        bench.deleted("things", "o", 103);
        bench.pass(Duration::from_secs(2));
        assert_eq!(deleted(&mut bench), [""; 0]);
        let (kind, changed) = if by_namespace { ("namespaces", space) } else { ("configmaps", dependent) };
        let changed = Object { resource_version: version(110), ..changed };
        let changed = with_labels(&bench, changed, &[]);
        bench.seen(kind, changed);
        bench.pass(Duration::from_secs(2));
        assert_eq!(deleted(&mut bench), ["d"], "{:?}", bench.leader.queries().explain(&uid("d")));
    }
}

#[test]
fn a_selector_beyond_the_bound_holds_objects_with_any_labels() {
    let mut bench = Bench::synced();
    let targets = (0..=SELECTORS_MAX).map(|number| labelled(&["things"], &format!("k{number}"))).collect();
    let everywhere = protection("keep", Filter::default());
    bench.input(Input::GuardSeen(Guard { scope: Scope { targets }, ..everywhere }));
    let view = bench.leader.queries().guards().remove(0);
    assert!(view.problem.starts_with("there are too many selectors"), "{}", view.problem);
    bench.seen("things", object("things", "o", 101));
    let dependent = object("things", "d", 102).owned_by("things", "o");
    let listed = vec![with_labels(&bench, object("things", "o", 101), &[]), with_labels(&bench, dependent, &[])];
    list_anew(&mut bench, "things", 103, listed);
    bench.deleted("things", "o", 104);
    assert_eq!(deleted(&mut bench), [""; 0]);
}

#[test]
fn the_annotation_holds_a_decision_as_a_guard_does() {
    let mut bench = Bench::synced();
    bench.seen("things", object("things", "o", 101));
    let dependent = |version, hold| {
        let mut object = object("configmaps", "d", version).owned_by("things", "o");
        object.facts.hold = hold;
        object
    };
    bench.seen("configmaps", dependent(102, true));
    bench.deleted("things", "o", 103);
    assert_eq!(deleted(&mut bench), [""; 0]);
    let explained = |bench: &Bench| bench.leader.queries().explain(&uid("d")).unwrap();
    let held = explained(&bench);
    assert_eq!((held.verdict, held.reasons[0].code), (VerdictView::Held, ReasonCode::HoldAnnotation));
    assert_eq!(held.reasons.iter().filter(|reason| reason.code == ReasonCode::HoldAnnotation).count(), 1);
    assert_eq!(held.object.collecting, Some(Collecting::Held));
    let waits = bench.leader.queries().queue_waits(Time::ZERO);
    let counted: Vec<_> = waits.iter().filter(|waits| waits.items > 0).map(|waits| (waits.at, waits.items)).collect();
    assert_eq!(counted, [(Waiting::Protected, 1)]);
    // A protection is named beside the annotation, and holds alone after it.
    let keep = protection("keep", Filter::default());
    bench.input(Input::GuardSeen(keep.clone()));
    let codes = |explained: &Explanation| explained.reasons.iter().map(|reason| reason.code).collect::<Vec<_>>();
    let both = codes(&explained(&bench));
    assert!(both.contains(&ReasonCode::HoldAnnotation) && both.contains(&ReasonCode::Protected), "{both:?}");
    bench.seen("configmaps", dependent(104, false));
    assert_eq!(deleted(&mut bench), [""; 0]);
    assert_eq!(codes(&explained(&bench))[0], ReasonCode::Protected);
    bench.input(Input::GuardGone { id: keep.id, uid: keep.uid });
    assert_eq!(deleted(&mut bench), ["d"]);
    assert_eq!(holders(&bench), ["annotation/ownergraph.dev/hold", "protection/keep", ""]);
}

#[test]
fn a_protection_of_a_subtree_outlives_the_definition_of_its_owner() {
    // An unserved kind has no resource. The leader of the second case has never seen the kind served.
    for is_seen in [true, false] {
        let mut bench = Bench::synced();
        bench.input(Input::GuardSeen(protection("keep", below("things", "top"))));
        bench.input(Input::GuardSeen(protection("other", below("things", "another"))));
        if is_seen {
            bench.seen("things", object("things", "top", 101));
            bench.seen("configmaps", object("configmaps", "leaf", 102).owned_by("things", "top"));
            bench.deleted("things", "top", 103);
            bench.input(Input::KindUnserved(collection("things")));
        } else {
            bench.input(Input::KindUnserved(collection("things")));
            bench.seen("configmaps", object("configmaps", "leaf", 102).owned_by("things", "top"));
        }
        bench.pass(Duration::from_secs(60));
        assert_eq!(deleted(&mut bench), [""; 0], "seen: {is_seen}");
    }
}
