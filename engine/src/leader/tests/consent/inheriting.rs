//! Tests of the values that the next leader takes over from the status of budgets and approvals.

use super::approvals::approved_entry;
use super::*;
use crate::guard::Spending;
use crate::leader::tests::places;
use crate::view::{GuardDoes, GuardUsage};

impl Bench {
    /// The window of the only budget, as a leader writes it to the status.
    pub(super) fn record(&self) -> Recorded {
        match &self.leader.queries().guards()[0].usage {
            GuardUsage::Budget { window, exceeded_from, .. } => {
                Recorded { deletions: window.clone(), exceeded_from: *exceeded_from }
            }
            other => panic!("{other:?}"),
        }
    }

    /// This replica follows another leader until that one has written this guard, and then leads.
    fn leads_after(&mut self, written: &Guard) {
        self.input(Input::TermLost { leader_endpoint: String::new() });
        self.reads.clear();
        self.guard(written.clone());
        self.input(Input::TermGained(term(3)));
        self.hello(STREAM, hello("e1", "i2"));
    }

    /// The API server answers the reads of guards with this one.
    fn guards_are_read(&mut self, stands: &Guard) {
        for read in core::mem::take(&mut self.reads) {
            let guards = (read.kind == stands.id.kind).then(|| stands.clone()).into_iter().collect();
            let list = GuardList { position: version(99), guards, more: false };
            self.input(Input::GuardsRead { read, answer: Ok(GuardAnswer::Served(list)) });
        }
        self.pass(Duration::from_millis(5));
    }
}

fn deletions(count: u64) -> Vec<Spending> {
    vec![Spending { since: NOON, collection: collection("configmaps"), count }]
}

#[test]
fn a_standby_counts_what_only_the_earlier_leader_has_seen() {
    for (recorded, seen, granted) in [(3, 0, 0), (2, 2, 1), (2, 1, 1), (1, 2, 1), (0, 0, 3)] {
        let mut bench = Bench::synced();
        let rule = || Rule::Budget(budget(3, OnExceeded::Hold));
        bench.guard(guard(GuardKind::Budget, 1, rule()));
        bench.delete_owner_of(seen);
        assert_eq!(bench.carry_out(104), seen);
        let written = Guard {
            recorded: Recorded { deletions: deletions(recorded), exceeded_from: None },
            ..guard(GuardKind::Budget, 2, rule())
        };
        bench.leads_after(&written);
        assert!(!bench.leader.queries().guards()[0].known, "its keeper leaves the status alone");
        bench.guards_are_read(&written);
        assert!(bench.leader.queries().guards()[0].known);
        bench.seen("things", object("things", "o2", 201));
        for number in 0..3 {
            bench.seen("configmaps", object("configmaps", &format!("e{number}"), 202).owned_by("things", "o2"));
        }
        bench.deleted("things", "o2", 203);
        bench.pass(Duration::from_millis(1));
        assert_eq!(bench.granted.len(), granted, "{recorded} recorded, {seen} seen");
    }
}

#[test]
fn a_budget_that_waits_for_a_person_waits_under_the_next_leader() {
    let rule = |count_from| Rule::Budget(Budget { count_from, ..budget(1, OnExceeded::Approve) });
    let mut bench = Bench::synced();
    bench.guard(guard(GuardKind::Budget, 1, rule(Duration::ZERO)));
    bench.delete_owner_of(2);
    assert_eq!(bench.carry_out(104), 1);
    let recorded = bench.record();
    assert_eq!(recorded.exceeded_from, Some(Duration::ZERO));
    // The window has passed. Then another replica leads; later a person approves.
    let long_after = NOON + 10 * MINUTE;
    let written = |version: u64, count_from: Duration| Guard {
        recorded: recorded.clone(),
        read_at: long_after,
        ..guard(GuardKind::Budget, version, rule(count_from))
    };
    let mut next = Bench::synced();
    next.guard(written(1, Duration::ZERO));
    next.delete_owner_of(1);
    assert_eq!(next.granted.len(), 0, "a new process");
    bench.pass(10 * MINUTE);
    bench.leads_after(&written(2, Duration::ZERO));
    bench.guards_are_read(&written(2, Duration::ZERO));
    assert_eq!(bench.granted.len(), 0, "a standby");
    for one in [&mut bench, &mut next] {
        one.guard(written(3, long_after));
        one.pass(Duration::from_millis(1));
        assert_eq!(one.granted.len(), 1);
    }
}

#[test]
fn entries_that_an_earlier_leader_has_accepted_stay_in_the_status() {
    let mut bench = Bench::synced();
    let entry = Approved { accepted: true, ..approved_entry(7) };
    let rule = Rule::Approval(Approval { approved: vec![entry], ..approval(1) });
    bench.guard(guard(GuardKind::Approval, 1, rule));
    let listed = |bench: &Bench| match &bench.leader.queries().guards()[0].usage {
        GuardUsage::Approval { accepted, inherited, .. } => (accepted.len(), inherited.clone()),
        other => panic!("{other:?}"),
    };
    assert_eq!(listed(&bench), (0, vec![(uid("o"), 7)]), "no item of the root is known yet");
    bench.delete_owner_of(3);
    assert_eq!((bench.granted.len(), listed(&bench)), (3, (1, Vec::new())));
}

#[test]
fn an_entry_of_an_earlier_leader_counts_once_however_many_roots_come_between() {
    let mut bench = Bench::synced();
    let entry = Approved { accepted: true, ..approved_entry(7) };
    let rule = Rule::Approval(Approval { approved: vec![entry], ..approval(1) });
    bench.guard(guard(GuardKind::Approval, 1, rule));
    bench.delete_owner_of(3);
    assert_eq!(bench.carry_out(110), 3);
    // The cascade has no items any more, so that it is forgotten when room is needed.
    bench.leader.make_room_for_cascades();
    for at in 3..6 {
        bench.seen("configmaps", object("configmaps", &format!("d{at}"), 120 + at).owned_by("things", "o"));
    }
    bench.pass(Duration::from_secs(1));
    bench.found_again("o", FindingResult::Absent(Some(version(130))));
    bench.pass(Duration::from_secs(5));
    assert_eq!(bench.leader.queries().status().queued, 3, "the deletions are decided");
    assert_eq!(bench.granted.len(), 0, "the new dependents need an approval of their digest");
}

#[test]
fn a_plan_counts_an_entry_that_an_earlier_leader_has_accepted() {
    let mut bench = Bench::synced();
    bench.seen("things", object("things", "o", 101));
    for at in 0..3 {
        bench.seen("configmaps", object("configmaps", &format!("d{at}"), 102).owned_by("things", "o"));
    }
    let rule = |accepted| {
        let approved = vec![Approved { accepted, ..approved_entry(7) }];
        Rule::Approval(Approval { approved, ..approval(1) })
    };
    for (accepted, asks) in [(false, 1), (true, 0)] {
        bench.guard(guard(GuardKind::Approval, 1 + u64::from(accepted), rule(accepted)));
        let plan = places::plan(&bench, "o");
        assert_eq!(
            plan.guards.iter().filter(|guard| matches!(guard.does, GuardDoes::Await(_))).count(),
            asks,
            "{:?}",
            plan.guards
        );
    }
}

#[test]
fn forged_counts_of_a_window_can_be_added_up() {
    let mut bench = Bench::synced();
    let most = |of: &str| Spending { since: NOON, collection: collection(of), count: u64::MAX };
    let recorded = vec![most("configmaps"), most("configmaps"), most("things")];
    bench.guard(Guard {
        recorded: Recorded { deletions: recorded, exceeded_from: None },
        ..guard(GuardKind::Budget, 1, Rule::Budget(budget(3, OnExceeded::Hold)))
    });
    bench.delete_owner_of(1);
    assert_eq!(bench.carry_out(104), 0, "the budget is exhausted");
}
