//! Budgets, approvals and gates: what they hold at the grant, and what releases it.

#![expect(clippy::wildcard_enum_match_arm, reason = "each test picks the few events that it is about")]

use super::*;
use crate::guard::{
    Answer, Answered, Approval, Approved, Budget, FailurePolicy, Gate, Guard, GuardId, Limit, OnExceeded, Recorded,
    Rule,
};
use crate::scope::{Filter, Scope};
use crate::view::ReasonCode;

mod answers;
mod approvals;
mod inheriting;
mod taking_back;

pub(super) const MINUTE: Duration = Duration::from_secs(60);
pub(super) const NOON: Duration = Duration::from_secs(1_000_000);

pub(super) fn guard(kind: GuardKind, version: u64, rule: Rule) -> Guard {
    let id = GuardId { kind, name: "g".into() };
    Guard { id, rule, lifetime: None, read_at: NOON, ..pauses::pause("g", version) }
}

pub(super) fn budget(objects: u64, on_exceeded: OnExceeded) -> Budget {
    Budget { limit: Limit::Objects(objects), window: MINUTE, on_exceeded, count_from: Duration::ZERO }
}

pub(super) fn approval(more_than: u64) -> Approval {
    Approval { more_than: Some(more_than), resources: Vec::new(), approved: Vec::new() }
}

pub(super) fn gate(failure_policy: FailurePolicy) -> Gate {
    Gate {
        roots_only: false,
        observe_only: false,
        timeout: Duration::from_secs(2),
        failure_policy,
        max_hold: Duration::from_secs(10),
        allow_after_max_hold: false,
        engine: 0,
        bypass_until: Duration::ZERO,
        bypass: String::new(),
        bypass_by: String::new(),
    }
}

impl Bench {
    pub(super) fn guard(&mut self, guard: Guard) {
        self.input(Input::GuardSeen(guard));
    }

    /// Lists `o` with dependents `d0`… and deletes it.
    pub(super) fn delete_owner_of(&mut self, dependents: usize) {
        self.seen("things", object("things", "o", 101));
        for number in 0..dependents {
            self.seen("configmaps", object("configmaps", &format!("d{number}"), 102).owned_by("things", "o"));
        }
        self.deleted("things", "o", 103);
        self.pass(Duration::from_millis(1));
    }

    /// Reports all granted deletions as done, and lets the watch show them. Returns the number of them.
    fn carry_out(&mut self, rv: u64) -> usize {
        let leases = core::mem::take(&mut self.granted);
        for lease in &leases {
            self.report(lease, Outcome::Done);
            self.deleted("configmaps", &lease.item.target.name, rv);
        }
        self.pass(Duration::from_millis(1));
        leases.len()
    }

    fn answer(&mut self, question: &Question, answer: Answer) {
        self.answer_for(question, answer, Duration::ZERO);
    }

    /// An answer that may be used again for this time.
    fn answer_for(&mut self, question: &Question, answer: Answer, valid_for: Duration) {
        self.input(Input::GateAnswered(Answered {
            gate: question.gate.clone(),
            number: question.number,
            answer,
            by: "policy".to_string(),
            message: "says so".to_string(),
            valid_for,
        }));
        self.pass(Duration::from_millis(1));
    }

    fn first_reason(&self, name: &str) -> (ReasonCode, String) {
        let reason = self.leader.queries().explain(&uid(name)).unwrap().reasons.remove(0);
        (reason.code, reason.detail)
    }
}

#[test]
fn a_budget_lets_so_many_go_and_the_next_ones_when_the_window_moves() {
    let mut bench = Bench::synced();
    bench.guard(guard(GuardKind::Budget, 1, Rule::Budget(budget(3, OnExceeded::Hold))));
    bench.delete_owner_of(10);
    assert_eq!(bench.granted.len(), 3, "leases count before they are carried out");
    assert_eq!(bench.carry_out(104), 3);
    assert_eq!(bench.granted.len(), 0);
    let (code, text) = bench.first_reason("d9");
    assert_eq!((code, text.as_str()), (ReasonCode::OverBudget, "budgets/g: because (3 deletions in its window)"));
    assert_eq!(bench.leader.queries().guards()[0].held, 7);
    bench.pass(MINUTE + Duration::from_secs(2));
    assert_eq!(bench.granted.len(), 3, "the window has moved");
    let exceeded = bench.events.iter().filter(|event| matches!(event, Event::BudgetExceeded { .. })).count();
    assert_eq!(exceeded, 1, "once until nothing waits");
    let mut gone = 3;
    for minute in 0..4 {
        gone += bench.carry_out(110 + minute);
        bench.pass(MINUTE + Duration::from_secs(2));
    }
    assert_eq!((gone, bench.leader.queries().guards()[0].held), (10, 0));
}

#[test]
fn a_replica_that_starts_in_the_middle_of_a_window_knows_its_earlier_part() {
    let mut bench = Bench::synced();
    let rule = Rule::Budget(budget(3, OnExceeded::Hold));
    bench.guard(guard(GuardKind::Budget, 1, rule.clone()));
    bench.delete_owner_of(2);
    assert_eq!(bench.carry_out(104), 2);
    let record = bench.record();
    assert_eq!(
        record.deletions.iter().map(|part| (part.since.as_secs(), part.count)).collect::<Vec<_>>(),
        [(NOON.as_secs(), 2)]
    );

    // Another process reads the status half a minute after that.
    let mut next = Bench::synced();
    let late = NOON + MINUTE / 2;
    next.guard(Guard { read_at: late, recorded: record.clone(), ..guard(GuardKind::Budget, 1, rule.clone()) });
    next.delete_owner_of(3);
    assert_eq!(next.granted.len(), 1, "two are spent");
    assert_eq!(next.record().deletions, record.deletions);
    // The leader's own writes of the status change nothing.
    next.guard(Guard { read_at: late, recorded: record.clone(), ..guard(GuardKind::Budget, 2, rule.clone()) });
    assert_eq!(next.leader.queries().guards()[0].held, 2);
    assert_eq!(next.carry_out(104), 1);
    next.pass(MINUTE / 2 + Duration::from_secs(2));
    assert_eq!(next.granted.len(), 2, "the recorded part has left the window");

    // Without the time of the API server, the record counts as new. A window that a person began has no older part.
    let begun = |count_from| Rule::Budget(Budget { count_from, ..budget(3, OnExceeded::Hold) });
    for (read_at, rule, granted) in [
        (Duration::ZERO, rule, 1),
        (late, begun(NOON + Duration::from_secs(1)), 3),
        (NOON + 3 * MINUTE, begun(NOON), 3),
    ] {
        let mut next = Bench::synced();
        next.guard(Guard { read_at, recorded: record.clone(), ..guard(GuardKind::Budget, 1, rule) });
        next.delete_owner_of(3);
        assert_eq!(next.granted.len(), granted, "read at {read_at:?}");
    }
}

#[test]
fn a_lease_that_fails_gives_its_share_back() {
    let mut bench = Bench::synced();
    bench.guard(guard(GuardKind::Budget, 1, Rule::Budget(budget(1, OnExceeded::Hold))));
    bench.delete_owner_of(2);
    let leases = core::mem::take(&mut bench.granted);
    assert_eq!(leases.len(), 1);
    bench.report(&leases[0], Outcome::Transient);
    bench.pass(Duration::from_millis(1));
    assert_eq!(bench.granted.len(), 1, "the other one");
}

#[test]
fn a_lease_whose_write_may_have_taken_effect_keeps_its_share() {
    for lost in [false, true] {
        let mut bench = Bench::synced();
        bench.guard(guard(GuardKind::Budget, 1, Rule::Budget(budget(1, OnExceeded::Hold))));
        bench.delete_owner_of(2);
        let lease = bench.granted.remove(0);
        bench.start(&lease);
        if lost {
            bench.input(Input::StreamClosed { stream: STREAM });
            bench.pass(MINUTE);
            bench.hello(STREAM, hello("e2", "i2"));
        } else {
            bench.report(&lease, Outcome::Ambiguous);
        }
        bench.pass(MINUTE / 2);
        assert!(!bench.granted.is_empty(), "lost: {lost}");
        assert!(bench.granted.iter().all(|again| again.item.target == lease.item.target), "the same one again");
        bench.carry_out(104);
        bench.pass(MINUTE / 4);
        assert_eq!(bench.granted.len(), 0, "one of one");
    }
}

#[test]
fn an_object_in_deletion_counts_although_no_report_says_so() {
    for ambiguous in [false, true] {
        let mut bench = Bench::synced();
        bench.guard(guard(GuardKind::Budget, 1, Rule::Budget(budget(1, OnExceeded::Hold))));
        bench.delete_owner_of(2);
        let lease = bench.granted.remove(0);
        bench.start(&lease);
        if ambiguous {
            bench.report(&lease, Outcome::Ambiguous);
        }
        let mut target = object("configmaps", &lease.item.target.name, 104).owned_by("things", "o");
        target.facts.terminating = true;
        bench.seen("configmaps", target);
        bench.pass(Duration::from_millis(1));
        if !ambiguous {
            bench.input(Input::StreamClosed { stream: STREAM });
            bench.pass(Duration::from_secs(30));
            bench.hello(STREAM, hello("e2", "i2"));
        }
        bench.pass(Duration::from_secs(1));
        assert_eq!(bench.granted.len(), 0, "one of one; ambiguous: {ambiguous}");
    }
}

#[test]
fn a_released_item_that_is_withdrawn_does_not_end_the_release() {
    let mut bench = Bench::synced();
    bench.guard(guard(GuardKind::Budget, 1, Rule::Budget(budget(1, OnExceeded::Hold))));
    bench.delete_owner_of(3);
    let lease = bench.granted.remove(0);
    bench.start(&lease);
    bench.seen("things", object("things", "other", 104));
    let names = (0..3).map(|number| format!("d{number}"));
    let next = names.filter(|name| **name != *lease.item.target.name).min_by_key(|name| uid(name)).unwrap();
    // In one round: the attempt fails, which releases the next item, and that one only loses a reference.
    let report = WorkReport { outcome: Outcome::AdmissionDenied, ..done(&lease) };
    let reports = ToLeader::Reports { reports: vec![report], returns: Vec::new() };
    bench.leader.handle(bench.now, Input::Message { stream: STREAM, message: reports });
    bench.seen("configmaps", object("configmaps", &next, 105).owned_by("things", "o").owned_by("things", "other"));
    bench.pass(Duration::from_secs(5));
    let others = bench.granted.iter().filter(|granted| granted.item.target != lease.item.target);
    let deletes = others.filter(|granted| granted.item.action.kind() == ActionKind::Delete);
    assert_eq!(deletes.count(), 1, "the third does not wait for a window without deletions");
}

#[test]
fn a_lease_that_ends_outside_the_scope_leaves_nothing_in_the_budget() {
    let mut bench = Bench::synced();
    bench.guard(guard(GuardKind::Budget, 1, Rule::Budget(budget(2, OnExceeded::Hold))));
    bench.delete_owner_of(1);
    let elsewhere = Filter { namespaces: vec!["elsewhere".into()], ..Filter::default() };
    let narrow = guard(GuardKind::Budget, 2, Rule::Budget(budget(2, OnExceeded::Hold)));
    bench.guard(Guard { scope: Scope { targets: vec![elsewhere] }, ..narrow });
    assert_eq!(bench.carry_out(104), 1);
    let crate::view::GuardUsage::Budget { spent, .. } = bench.leader.queries().guards()[0].usage else { panic!() };
    assert_eq!(spent, 0);
}

#[test]
fn a_percentage_is_of_each_collection_as_it_was() {
    let mut bench = Bench::synced();
    let rule = Budget { limit: Limit::Percent(20), ..budget(0, OnExceeded::Hold) };
    bench.guard(guard(GuardKind::Budget, 1, Rule::Budget(rule)));
    bench.delete_owner_of(10);
    let mut gone = 0;
    for rv in 104..110 {
        gone += bench.carry_out(rv);
    }
    assert_eq!(gone, 2);
}

#[test]
fn an_exhausted_breaker_wants_a_pause_once() {
    let mut bench = Bench::synced();
    bench.guard(guard(GuardKind::Budget, 1, Rule::Budget(budget(1, OnExceeded::Pause(MINUTE)))));
    bench.delete_owner_of(5);
    assert_eq!(bench.pauses_wanted.len(), 1, "{:?}", bench.pauses_wanted);
    assert!(bench.pauses_wanted[0].starts_with("budget/g: budget g is exhausted"), "{:?}", bench.pauses_wanted);
}

#[test]
fn a_budget_that_asks_a_person_stays_closed_until_the_person_moves_its_beginning() {
    let mut bench = Bench::synced();
    let rule = budget(1, OnExceeded::Approve);
    bench.guard(guard(GuardKind::Budget, 1, Rule::Budget(rule.clone())));
    bench.delete_owner_of(3);
    assert_eq!(bench.carry_out(104), 1);
    bench.pass(10 * MINUTE);
    assert_eq!(bench.granted.len(), 0, "the window alone releases nothing");
    bench.seen("things", object("things", "o2", 201));
    bench.seen("configmaps", object("configmaps", "new", 202).owned_by("things", "o2"));
    bench.deleted("things", "o2", 203);
    assert_eq!(bench.granted.len(), 0, "nor does it let a new decision pass");
    bench.guard(guard(GuardKind::Budget, 2, Rule::Budget(Budget { count_from: NOON, ..rule })));
    assert_eq!(bench.granted.len(), 1);
}

#[test]
fn each_decision_is_asked_about_once_and_goes_when_it_is_allowed() {
    let mut bench = Bench::synced();
    bench.guard(guard(GuardKind::Gate, 1, Rule::Gate(gate(FailurePolicy::Hold))));
    bench.delete_owner_of(2);
    let asked = core::mem::take(&mut bench.asked);
    assert_eq!((asked.len(), bench.granted.len()), (2, 0));
    assert_eq!(asked[0].chain.last().unwrap().uid, uid("o"));
    bench.answer(&asked[0], Answer::Allow);
    bench.answer(&asked[0], Answer::Deny);
    bench.answer(&asked[1], Answer::Deny);
    assert_eq!(bench.carry_out(104), 1, "a second answer changes nothing");
    bench.pass(MINUTE);
    assert_eq!((bench.granted.len(), bench.asked.len()), (0, 0), "denied, and not asked again");
    let denied = &*asked[1].target.name;
    assert_eq!(bench.first_reason(denied), (ReasonCode::Gated, "gates/g: because (denied: says so)".to_string()));
    bench.input(Input::GateReopened { gate: "g".into() });
    assert_eq!(bench.asked.len(), 1, "the policy has changed");
}

#[test]
fn a_gate_that_fails_does_what_its_policy_says() {
    for (policy, allow_after, granted_at_once, granted_after) in [
        (FailurePolicy::Allow, false, 1, 1),
        (FailurePolicy::Deny, true, 0, 0),
        (FailurePolicy::Hold, true, 0, 1),
        (FailurePolicy::Hold, false, 0, 0),
    ] {
        let mut bench = Bench::synced();
        let rule = Gate { allow_after_max_hold: allow_after, ..gate(policy) };
        bench.guard(guard(GuardKind::Gate, 1, Rule::Gate(rule)));
        bench.delete_owner_of(1);
        let number = bench.asked[0].number;
        bench.pass(Duration::from_secs(2));
        assert!(bench.cancelled.contains(&number), "the engine gives up after the timeout");
        assert_eq!(bench.granted.len(), granted_at_once, "{policy:?}");
        bench.pass(Duration::from_secs(12));
        assert_eq!(bench.granted.len(), granted_after, "{policy:?} {allow_after}");
        assert!(bench.asked.len() < 20, "{}", bench.asked.len());
    }
}

#[test]
fn a_gate_about_roots_is_asked_once_for_a_cascade() {
    let mut bench = Bench::synced();
    let rule = Gate { roots_only: true, ..gate(FailurePolicy::Deny) };
    bench.guard(guard(GuardKind::Gate, 1, Rule::Gate(rule)));
    bench.delete_owner_of(50);
    bench.pass(Duration::from_millis(5));
    assert_eq!((bench.asked.len(), bench.granted.len()), (1, 0));
    let question = bench.asked.remove(0);
    let cascade = question.cascade.clone().unwrap();
    assert_eq!((cascade.objects, cascade.totals, cascade.complete), (50, vec![(collection("configmaps"), 50)], true));
    bench.answer(&question, Answer::Allow);
    let mut gone = 0;
    for rv in 104..120 {
        gone += bench.carry_out(rv);
    }
    assert_eq!((gone, bench.asked.len()), (50, 0));
}

#[test]
fn a_bypass_and_a_gate_that_only_observes_hold_nothing() {
    let mut bench = Bench::synced();
    let rule = Gate { observe_only: true, ..gate(FailurePolicy::Deny) };
    bench.guard(guard(GuardKind::Gate, 1, Rule::Gate(rule)));
    bench.delete_owner_of(2);
    assert_eq!((bench.asked.len(), bench.granted.len()), (2, 2));
    let mut bench = Bench::synced();
    let rule = Gate { bypass_until: NOON + MINUTE, ..gate(FailurePolicy::Deny) };
    bench.guard(guard(GuardKind::Gate, 1, Rule::Gate(rule)));
    bench.delete_owner_of(1);
    assert_eq!((bench.asked.len(), bench.carry_out(104)), (0, 1));
    bench.pass(2 * MINUTE);
    bench.seen("things", object("things", "o2", 201));
    bench.seen("configmaps", object("configmaps", "late", 202).owned_by("things", "o2"));
    bench.deleted("things", "o2", 203);
    bench.pass(Duration::from_millis(1));
    assert_eq!((bench.asked.len(), bench.granted.len()), (1, 0), "the bypass has ended");
}

#[test]
fn a_bypass_is_told_once_with_its_author_and_its_end() {
    let mut bench = Bench::synced();
    bench.guard(guard(GuardKind::Gate, 1, Rule::Gate(gate(FailurePolicy::Deny))));
    let second = Duration::from_secs(1);
    let bypassed = |seconds: u32, why: &str| Gate {
        bypass_until: NOON + seconds * second,
        bypass: why.to_string(),
        bypass_by: "jane".to_string(),
        ..gate(FailurePolicy::Deny)
    };
    for (version, rule) in [
        (2, bypassed(60, "it hangs")),
        (3, Gate { roots_only: true, ..bypassed(60, "it hangs") }),
        (4, bypassed(90, "it still hangs")),
        (5, gate(FailurePolicy::Deny)),
    ] {
        bench.guard(guard(GuardKind::Gate, version, Rule::Gate(rule)));
    }
    let told = bench.events.iter().filter_map(|event| match event {
        Event::GateBypassed { id, until, reason, actor } => Some((id.to_string(), *until, reason.as_str(), &**actor)),
        _ => None,
    });
    let id = || "gate/g".to_string();
    let expected =
        [(id(), NOON + 60 * second, "it hangs", "jane"), (id(), NOON + 90 * second, "it still hangs", "jane")];
    assert_eq!(told.collect::<Vec<_>>(), expected);
}
