//! Namespaces and definitions, and their contents, in plans and explanations.

use super::*;
use crate::guard::{Guard, Recorded};
use crate::plan::PlanOptions;
use crate::scope::Scope;
use crate::view::{Effect, Plan, ReasonCode, VerdictView};
use crate::work::PropagationPolicy;

const DEFINITION: &str = "things.example.com";

/// Creates a bench with namespaces and definitions synced, namespace `ns`, and the definition of things.
fn bench() -> Bench {
    let mut bench = Bench::synced();
    for resource in ["namespaces", "customresourcedefinitions"] {
        bench.serve(resource);
    }
    bench.list("namespaces", 100, vec![object("namespaces", "ns", 50), object("namespaces", "other", 51)]);
    let definition = object("customresourcedefinitions", DEFINITION, 52);
    bench.list("customresourcedefinitions", 100, vec![definition]);
    bench
}

pub(super) fn plan(bench: &Bench, target: &str) -> Plan {
    let options = PlanOptions {
        targets: vec![uid(target)],
        propagation_policy: Some(PropagationPolicy::Background),
        assume_gone: vec![],
        ignore_holds: false,
        max_objects: 1000,
    };
    let mut planning = Planning::new(options);
    while !planning.step(&bench.leader.queries(), 1) {}
    planning.finish(bench.leader.queries().frame())
}

fn steps(plan: &Plan) -> Vec<String> {
    plan.entries.iter().map(|entry| format!("{} {:?} {}", entry.step, entry.effect, entry.object.name)).collect()
}

fn codes(plan: &Plan, name: &str) -> Vec<ReasonCode> {
    let entry = plan.entries.iter().find(|entry| &*entry.object.name == name).unwrap();
    entry.reasons.iter().map(|reason| reason.code).collect()
}

#[test]
fn a_plan_of_a_namespace_has_all_that_is_in_it_and_what_depends_on_that() {
    let mut bench = bench();
    bench.seen("things", object("things", "owner", 110));
    bench.seen("configmaps", object("configmaps", "owned", 111).owned_by("things", "owner"));
    bench.seen("configmaps", object("configmaps", "alone", 112));
    let elsewhere = Object { namespace: "other".into(), ..object("configmaps", "elsewhere", 113) };
    bench.seen("configmaps", elsewhere);
    bench.seen("nodes", object("nodes", "outside", 114).owned_by("namespaces", "ns"));
    let before = plan(&bench, "ns");
    assert_eq!(
        steps(&before),
        ["2 Delete alone", "2 Delete owned", "2 Delete owner", "3 Delete ns", "4 Delete outside"],
        "{before:?}"
    );
    bench.seen("configmaps", object("configmaps", "more", 115));
    assert_ne!(plan(&bench, "ns").digest, before.digest, "what is in it counts");
}

#[test]
fn what_stays_in_a_namespace_holds_it_and_the_plan_says_so() {
    let mut bench = bench();
    bench.seen("configmaps", object("configmaps", "stays", 110).with_finalizer("example.com/f"));
    bench.seen("configmaps", object("configmaps", "goes", 111));
    let plan = plan(&bench, "ns");
    assert_eq!(steps(&plan), ["1 Waits ns", "2 Delete goes", "2 Waits stays"]);
    assert_eq!(codes(&plan, "ns"), [ReasonCode::ContentsRemain]);
    assert_eq!(&*plan.entries[0].reasons[0].related[0].name, "stays");
    assert_eq!(codes(&plan, "stays"), [ReasonCode::FinalizerPresent]);
}

#[test]
fn a_plan_of_a_definition_has_its_instances_everywhere_and_what_depends_on_them() {
    let mut bench = bench();
    bench.seen("things", object("things", "one", 110));
    let two = Object { namespace: "other".into(), ..object("things", "two", 111) };
    bench.seen("things", two);
    bench.seen("configmaps", object("configmaps", "child", 112).owned_by("things", "one"));
    bench.seen("configmaps", object("configmaps", "stranger", 113));
    assert_eq!(
        steps(&plan(&bench, DEFINITION)),
        ["2 Delete one", "2 Delete two", "3 Delete child", &format!("3 Delete {DEFINITION}")]
    );
    let going = object("customresourcedefinitions", DEFINITION, 109);
    bench.seen("customresourcedefinitions", going.terminating("customresourcecleanup.apiextensions.k8s.io"));
    assert_eq!(plan(&bench, DEFINITION).entries.len(), 4, "its own finalizer comes with its first DELETE");
    bench.seen("things", object("things", "one", 114).terminating("foregroundDeletion"));
    bench.seen("configmaps", object("configmaps", "child", 115).blocking("things", "one").with_finalizer("f/f"));
    let plan = plan(&bench, DEFINITION);
    assert_eq!(
        codes(&plan, DEFINITION),
        [ReasonCode::ContentsRemain],
        "an instance keeps how it wants to go: {plan:?}"
    );
}

#[test]
fn what_cannot_be_seen_of_a_namespace_or_a_definition_makes_its_plan_unknown() {
    let mut bench = bench();
    bench.input(Input::ListFailed { collection: collection("things"), error: "no".to_string(), broke: false });
    for target in ["ns", DEFINITION] {
        let plan = plan(&bench, target);
        assert_eq!(steps(&plan), [format!("1 Unknown {target}")]);
        assert_eq!(codes(&plan, target), [ReasonCode::CollectionUnsynced]);
        assert_eq!(plan.unsynced, [collection("things")]);
    }
    let mut bench = self::bench();
    let ignored = ServedKind { access: Access::Listed, ..served("jobs") };
    bench.input(Input::KindServed(ignored.clone()));
    assert_eq!(plan(&bench, "ns").entries[0].effect, Effect::Unknown, "ignored, and can be deleted");
    bench.input(Input::KindServed(ServedKind { deletable: false, ..ignored }));
    assert_eq!(plan(&bench, "ns").entries[0].effect, Effect::Delete, "nothing to delete there");
    let events = GroupResource { group: "".into(), resource: "events".into() };
    let events = ServedKind { group_resource: events, kind: "Event".into(), access: Access::Listed, ..served("jobs") };
    bench.input(Input::KindServed(events));
    assert_eq!(plan(&bench, "ns").entries[0].effect, Effect::Delete, "records of what happened hold nothing");
    bench.input(Input::KindUnserved(collection("things")));
    assert_eq!(plan(&bench, DEFINITION).entries[0].effect, Effect::Unknown, "not served: the effect is unknown");
}

#[test]
fn a_plan_under_a_pause_says_what_is_held_by_what_and_until_when() {
    let mut bench = bench();
    bench.seen("things", object("things", "root", 110));
    bench.seen("configmaps", object("configmaps", "held", 111).owned_by("things", "root"));
    bench.seen("configmaps", object("configmaps", "below", 112).owned_by("configmaps", "held"));
    let free = plan(&bench, "root");
    assert_eq!(steps(&free), ["1 Delete root", "2 Delete held", "3 Delete below"]);
    let pause = |name: &str| Guard {
        id: pauses::pause_id(name),
        uid: uid(name),
        resource_version: version(120),
        generation: 1,
        scope: Scope::default(),
        reason: "because".to_string(),
        actor: String::new(),
        created: Duration::ZERO,
        lifetime: Some(Duration::from_secs(600)),
        elapsed: Duration::ZERO,
        read_at: Duration::ZERO,
        recorded: Recorded::default(),
        problem: String::new(),
        rule: crate::guard::Rule::Hold,
    };
    bench.input(Input::GuardSeen(pause("brake")));
    let held = plan(&bench, "root");
    assert_eq!(steps(&held), ["1 Held held", "1 Delete root"], "a person's own DELETE is not held");
    let reason = &held.entries[0].reasons[0];
    assert_eq!((reason.code, reason.detail.as_str()), (ReasonCode::Paused, "pauses/brake: because"));
    assert_eq!(reason.until, Some(bench.now + Duration::from_secs(600)));
    assert_ne!(held.digest, free.digest);
    assert!(
        plan(&bench, "ns").entries.iter().all(|entry| entry.effect == Effect::Delete),
        "no pause holds the namespace controller"
    );
    let orphaning = PlanOptions {
        targets: vec![uid("root")],
        propagation_policy: Some(PropagationPolicy::Orphan),
        assume_gone: vec![],
        ignore_holds: false,
        max_objects: 100,
    };
    let of = |options: PlanOptions| {
        let mut planning = Planning::new(options);
        while !planning.step(&bench.leader.queries(), 1) {}
        steps(&planning.finish(bench.leader.queries().frame()))
    };
    assert_eq!(of(orphaning.clone()), ["1 Held held", "1 Waits root"]);
    assert_eq!(of(PlanOptions { ignore_holds: true, ..orphaning }), ["2 Orphaned held", "3 Delete root"]);
}

#[test]
fn a_namespace_that_goes_says_that_it_is_not_empty_and_never_that_it_goes_by_itself() {
    let mut bench = bench();
    let mut going = object("namespaces", "ns", 110);
    going.facts.terminating = true;
    bench.seen("namespaces", going);
    bench.seen("configmaps", object("configmaps", "stays", 111).terminating("example.com/f"));
    bench.seen("configmaps", object("configmaps", "more", 112));
    let told = bench.leader.queries().explain(&uid("ns")).unwrap();
    assert_eq!(told.verdict, VerdictView::Blocked);
    assert_eq!(told.reasons[0].code, ReasonCode::ContentsRemain);
    bench.input(Input::ListFailed { collection: collection("things"), error: "no".to_string(), broke: false });
    let told = bench.leader.queries().explain(&uid("ns")).unwrap();
    let codes: Vec<ReasonCode> = told.reasons.iter().map(|reason| reason.code).collect();
    assert_eq!(codes, [ReasonCode::ContentsRemain, ReasonCode::CollectionUnsynced]);

    let mut look = ContentsLook::of(&bench.leader.queries(), [uid("ns")]);
    while !look.step(&bench.leader.queries(), 1) {}
    let found = look.finish().remove(&uid("ns")).unwrap();
    assert_eq!((found.detail.as_str(), found.count), ("ConfigMap 2", 2));
    assert_eq!(found.related.iter().map(|at| &*at.name).collect::<Vec<_>>(), ["stays"], "what holds it is named");
}

#[test]
fn what_an_annotation_holds_is_found_among_what_does_not_move() {
    let mut bench = bench();
    let mut held = object("configmaps", "held", 110).owned_by("things", "gone");
    held.facts.hold = true;
    let mut free = object("configmaps", "free", 111);
    free.facts.hold = true;
    bench.seen("things", object("things", "gone", 109));
    bench.seen("configmaps", held);
    bench.seen("configmaps", free);
    bench.deleted("things", "gone", 112);
    let mut scan = Scan::default();
    let mut found = Vec::new();
    while let Some(stuck) = scan.stuck(&bench.leader.queries(), 1) {
        found.extend(stuck.into_iter().map(|told| (told.object.object.name.to_string(), told.verdict)));
    }
    assert_eq!(found, [("held".to_string(), VerdictView::Held)]);
}
