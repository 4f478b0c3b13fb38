//! Tests of the effect of guards on a plan: the objects that they hold, ask about, and let wait.

use super::consent::{MINUTE, NOON, approval, budget, gate, guard};
use super::*;
use crate::guard::{Approval, Approved, Budget, FailurePolicy, Gate, Guard, GuardId, Limit, OnExceeded, Rule};
use crate::plan::PlanOptions;
use crate::scope::{Filter, Scope};
use crate::view::{Effect, GuardDoes, Plan, PlanGuard};
use crate::work::PropagationPolicy;

const HOUR: Duration = Duration::from_secs(3600);

/// A bench with owner `o` of the configmaps `d0` to `d3`.
fn bench() -> Bench {
    let mut bench = Bench::synced();
    bench.seen("things", object("things", "o", 101));
    for name in ["d0", "d1", "d2", "d3"] {
        bench.seen("configmaps", object("configmaps", name, 102).owned_by("things", "o"));
    }
    bench
}

fn plan(bench: &Bench) -> Plan {
    places::plan(bench, "o")
}

/// Each guard of the plan, in short.
fn guards(plan: &Plan) -> Vec<String> {
    let told = |guard: &PlanGuard| {
        let does = match &guard.does {
            GuardDoes::Hold => "holds".to_string(),
            GuardDoes::Await(cascade) => format!("awaits approval of {} for", cascade.root.name),
            GuardDoes::Ask => "asks about".to_string(),
            GuardDoes::Exceed { of } => format!("of {of}, has no room for"),
        };
        format!("{}/{} {does} {}", guard.kind.as_str(), guard.name, guard.objects)
    };
    plan.guards.iter().map(told).collect()
}

fn named(names: &[&str]) -> Scope {
    let names = names.iter().map(|&name| name.into()).collect();
    Scope { targets: vec![Filter { names, ..Filter::default() }] }
}

fn approved(cascade: &crate::guard::Cascade) -> Approved {
    Approved {
        root: cascade.root.uid.clone(),
        digest: cascade.digest,
        until: NOON + HOUR,
        actor: "alice".to_string(),
        accepted: false,
    }
}

#[test]
fn a_plan_names_the_guards_of_all_kinds_with_their_numbers() {
    let mut bench = bench();
    assert_eq!(guards(&plan(&bench)), NOTHING);
    let id = |kind, name: &str| GuardId { kind, name: name.into() };
    bench.guard(Guard { scope: named(&["d0"]), ..pauses::pause("p", 1) });
    let protection = pauses::pause("keep", 1);
    bench.guard(Guard {
        id: id(GuardKind::Protection, "keep"),
        scope: named(&["d0", "d1"]),
        lifetime: None,
        ..protection
    });
    bench.guard(guard(GuardKind::Approval, 1, Rule::Approval(approval(3))));
    let asked = guard(GuardKind::Gate, 1, Rule::Gate(gate(FailurePolicy::Hold)));
    bench.guard(Guard { scope: named(&["d2", "elsewhere"]), ..asked });
    bench.guard(guard(GuardKind::Budget, 1, Rule::Budget(budget(1, OnExceeded::Hold))));
    let plan = plan(&bench);
    assert_eq!(
        guards(&plan),
        [
            "pause/p holds 1",
            "protection/keep holds 1",
            "approval/g awaits approval of o for 4",
            "gate/g asks about 1",
            "budget/g of 2, has no room for 1",
        ]
    );
    assert!(plan.guards.iter().all(|guard| guard.reason == "because"), "{:?}", plan.guards);
    let until: Vec<bool> = plan.guards.iter().map(|guard| guard.until.is_some()).collect();
    assert_eq!(until, [true, false, false, false, false]);
    let held = plan.entries.iter().filter(|entry| entry.effect == Effect::Held).count();
    assert_eq!(held, 2, "what is asked at the grant is not called held");
}

#[test]
fn the_digest_that_a_plan_shows_is_the_one_that_the_approval_needs() {
    for (more_than, resources, waits) in [
        (Some(3), vec![], true),
        (Some(4), vec![], false),
        (None, vec![collection("configmaps")], true),
        (None, vec![collection("nodes")], false),
    ] {
        let mut bench = bench();
        let rule = Approval { more_than, resources, approved: vec![] };
        bench.guard(guard(GuardKind::Approval, 1, Rule::Approval(rule.clone())));
        let before = plan(&bench);
        assert_eq!(before.guards.len(), usize::from(waits), "{rule:?}: {before:?}");
        if !waits {
            continue;
        }
        let GuardDoes::Await(cascade) = &before.guards[0].does else { panic!("{:?}", before.guards) };
        assert_eq!(cascade.totals, [(collection("configmaps"), 4)]);
        bench.deleted("things", "o", 103);
        bench.pass(Duration::from_millis(10));
        let needed = bench.events.iter().find_map(|event| {
            let Event::ApprovalNeeded { extent, .. } = event else { return None };
            Some(extent.clone())
        });
        assert_eq!(Some(cascade), needed.as_ref());
        assert_eq!(bench.granted.len(), 0);
        let rule = Approval { approved: vec![approved(cascade)], ..rule };
        bench.guard(guard(GuardKind::Approval, 2, Rule::Approval(rule)));
        bench.pass(Duration::from_millis(10));
        assert_eq!(bench.granted.len(), 4, "the digest of the plan approves the cascade");
    }
}

#[test]
fn an_entry_for_the_root_and_the_digest_lets_the_cascade_go() {
    let mut bench = bench();
    let rule = approval(3);
    bench.guard(guard(GuardKind::Approval, 1, Rule::Approval(rule.clone())));
    let before = plan(&bench);
    let GuardDoes::Await(cascade) = &before.guards[0].does else { panic!("{:?}", before.guards) };
    let entry = approved(cascade);
    let other = Approved { root: uid("d0"), ..entry.clone() };
    let changed = Approved { digest: entry.digest + 1, ..entry.clone() };
    let ended = Approved { until: NOON, ..entry.clone() };
    for (number, (entry, waits)) in [(other, 1), (changed, 1), (ended, 1), (entry, 0)].into_iter().enumerate() {
        let rule = Approval { approved: vec![entry.clone()], ..rule.clone() };
        bench.guard(guard(GuardKind::Approval, 2 + number as u64, Rule::Approval(rule)));
        let after = plan(&bench);
        assert_eq!(after.guards.len(), waits, "{entry:?}");
        assert_eq!(after.digest, before.digest, "the approval applies, whether it is given or not");
    }
}

#[test]
fn the_room_of_a_budget_is_what_its_window_has_left() {
    let mut bench = Bench::synced();
    bench.guard(guard(GuardKind::Budget, 1, Rule::Budget(budget(5, OnExceeded::Hold))));
    bench.delete_owner_of(3);
    assert_eq!(bench.granted.len(), 3);
    bench.seen("things", object("things", "p", 110));
    for name in ["e0", "e1", "e2", "e3"] {
        bench.seen("configmaps", object("configmaps", name, 111).owned_by("things", "p"));
    }
    let of = |bench: &Bench| places::plan(bench, "p");
    let before = of(&bench);
    assert_eq!(guards(&before), ["budget/g of 4, has no room for 2"]);
    for lease in core::mem::take(&mut bench.granted) {
        bench.report(&lease, Outcome::Done);
        bench.deleted("configmaps", &lease.item.target.name, 112);
    }
    assert_eq!(guards(&of(&bench)), ["budget/g of 4, has no room for 2"], "they count when they are gone, too");
    bench.pass(MINUTE + Duration::from_secs(2));
    let after = of(&bench);
    assert_eq!(guards(&after), NOTHING, "the window has moved");
    assert_eq!(after.digest, before.digest, "the room moves, and the plan is the same");
    let from_now = Budget { count_from: NOON, ..budget(1, OnExceeded::Hold) };
    bench.guard(guard(GuardKind::Budget, 2, Rule::Budget(from_now)));
    assert_eq!(guards(&of(&bench)), ["budget/g of 4, has no room for 3"]);
}

#[test]
fn a_percentage_has_room_in_each_collection() {
    let mut bench = Bench::synced();
    bench.seen("things", object("things", "o", 101));
    for number in 0..10 {
        bench.seen("configmaps", object("configmaps", &format!("d{number}"), 102).owned_by("things", "o"));
    }
    bench.seen("things", object("things", "t", 103).owned_by("things", "o"));
    let rule = Budget { limit: Limit::Percent(20), ..budget(0, OnExceeded::Hold) };
    bench.guard(guard(GuardKind::Budget, 1, Rule::Budget(rule)));
    assert_eq!(guards(&plan(&bench)), ["budget/g of 11, has no room for 8"], "two of ten, and one of a small one");
}

#[test]
fn a_budget_that_waits_for_a_person_has_no_room() {
    let mut bench = Bench::synced();
    bench.guard(guard(GuardKind::Budget, 1, Rule::Budget(budget(2, OnExceeded::Approve))));
    bench.delete_owner_of(3);
    bench.pass(MINUTE + MINUTE);
    bench.seen("things", object("things", "p", 110));
    bench.seen("configmaps", object("configmaps", "e0", 111).owned_by("things", "p"));
    assert_eq!(guards(&places::plan(&bench, "p")), ["budget/g of 1, has no room for 1"]);
}

#[test]
fn the_digest_of_a_plan_covers_which_guards_apply() {
    let apart = Guard { scope: named(&["elsewhere"]), ..pauses::pause("x", 1) };
    for rule in [
        Rule::Approval(approval(3)),
        Rule::Gate(gate(FailurePolicy::Hold)),
        Rule::Budget(budget(100, OnExceeded::Hold)),
    ] {
        let mut bench = bench();
        let kind = match &rule {
            Rule::Approval(_) => GuardKind::Approval,
            Rule::Gate(_) => GuardKind::Gate,
            Rule::Budget(_) => GuardKind::Budget,
            Rule::Hold => GuardKind::Pause,
        };
        let before = plan(&bench).digest;
        let other = GuardId { kind, name: "x".into() };
        bench.guard(Guard { id: other, rule: rule.clone(), ..apart.clone() });
        assert_eq!(plan(&bench).digest, before, "{kind:?} about other objects");
        bench.guard(guard(kind, 1, rule));
        assert_ne!(plan(&bench).digest, before, "{kind:?}");
        let mut planning = Planning::new(PlanOptions {
            targets: vec![uid("o")],
            propagation_policy: Some(PropagationPolicy::Background),
            assume_gone: vec![],
            ignore_holds: true,
            max_objects: 1000,
        });
        while !planning.step(&bench.leader.queries(), 1) {}
        assert_eq!(guards(&planning.finish(bench.leader.queries().frame())), NOTHING, "{kind:?}, ignored");
    }
}

#[test]
fn a_gate_that_nothing_waits_for_is_not_named() {
    let mut bench = bench();
    for (version, rule) in [
        Gate { observe_only: true, ..gate(FailurePolicy::Hold) },
        Gate { bypass_until: NOON + HOUR, ..gate(FailurePolicy::Hold) },
    ]
    .into_iter()
    .enumerate()
    {
        bench.guard(guard(GuardKind::Gate, version as u64 + 1, Rule::Gate(rule)));
        assert_eq!(guards(&plan(&bench)), NOTHING);
    }
    let roots = Gate { roots_only: true, ..gate(FailurePolicy::Hold) };
    bench.guard(guard(GuardKind::Gate, 3, Rule::Gate(roots)));
    assert_eq!(guards(&plan(&bench)), ["gate/g asks about 4"]);
}

#[test]
fn guards_hold_what_the_collector_does_and_not_what_users_do() {
    let mut bench = bench();
    bench.guard(guard(GuardKind::Budget, 1, Rule::Budget(budget(1, OnExceeded::Hold))));
    bench.guard(guard(GuardKind::Gate, 1, Rule::Gate(gate(FailurePolicy::Hold))));
    let orphan = PlanOptions {
        targets: vec![uid("o")],
        propagation_policy: Some(PropagationPolicy::Orphan),
        assume_gone: vec![],
        ignore_holds: false,
        max_objects: 1000,
    };
    let mut planning = Planning::new(orphan);
    while !planning.step(&bench.leader.queries(), 1) {}
    let plan = planning.finish(bench.leader.queries().frame());
    assert_eq!(
        guards(&plan),
        ["gate/g asks about 4"],
        "an orphaned object is no deletion, and its owner goes by itself"
    );
}

#[test]
fn unknown_guards_are_named_by_their_kind() {
    let mut bench = bench();
    bench.input(Input::GuardsLost { kind: GuardKind::Pause, error: "cut".to_string() });
    for _ in 0..15 {
        bench.pass(Duration::from_secs(1));
        bench.answer_reads(&Err("no answer".to_string()));
    }
    let plan = plan(&bench);
    let [unknown] = plan.guards.as_slice() else { panic!("{:?}", plan.guards) };
    assert_eq!((unknown.kind, &*unknown.name, unknown.objects), (GuardKind::Pause, "", 4));
    assert_eq!(unknown.reason, "cannot read Pause objects: no answer");
}
