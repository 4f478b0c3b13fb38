//! How long answers of policy engines count, and which items are asked about next.

use super::*;

fn gated(version: u64, rule: Gate) -> Guard {
    guard(GuardKind::Gate, version, Rule::Gate(rule))
}

impl Bench {
    /// The only question since the last call.
    fn question(&mut self) -> Question {
        assert_eq!(self.asked.len(), 1, "{:?}", self.asked);
        self.asked.remove(0)
    }

    fn hold(&mut self, name: &str, rv: u64, hold: bool) {
        let mut object = object("configmaps", name, rv).owned_by("things", "o");
        object.facts.hold = hold;
        self.seen("configmaps", object);
        self.pass(Duration::from_millis(1));
    }
}

#[test]
fn an_allowance_ends_with_the_term() {
    let mut bench = Bench::synced();
    bench.guard(gated(1, gate(FailurePolicy::Deny)));
    bench.guard(guard(GuardKind::Budget, 1, Rule::Budget(budget(0, OnExceeded::Hold))));
    bench.delete_owner_of(1);
    let question = bench.question();
    bench.answer(&question, Answer::Allow);
    assert_eq!(bench.granted.len(), 0, "the budget has no room");
    // Another replica leads, and its engine may have denied the deletion.
    bench.input(Input::TermLost { leader_endpoint: String::new() });
    bench.input(Input::TermGained(term(3)));
    bench.guard(gated(2, gate(FailurePolicy::Deny)));
    for read in core::mem::take(&mut bench.reads) {
        let list = |guards| Ok(GuardAnswer::Served(GuardList { position: version(9), guards, more: false }));
        let guards = if read.kind == GuardKind::Gate { vec![gated(2, gate(FailurePolicy::Deny))] } else { Vec::new() };
        bench.input(Input::GuardsRead { read, answer: list(guards) });
    }
    bench.hello(STREAM, hello("e1", "i2"));
    bench.pass(Duration::from_millis(1));
    assert_eq!((bench.asked.len(), bench.granted.len()), (1, 0), "it is asked again");
}

#[test]
fn an_allowance_ends_with_the_decision_unless_it_may_be_used_again() {
    for (valid_for, asked_again) in [(Duration::ZERO, 1), (MINUTE, 0)] {
        let mut bench = Bench::synced();
        bench.guard(gated(1, gate(FailurePolicy::Deny)));
        bench.guard(guard(GuardKind::Budget, 1, Rule::Budget(budget(0, OnExceeded::Hold))));
        bench.delete_owner_of(1);
        let question = bench.question();
        bench.answer_for(&question, Answer::Allow, valid_for);
        assert_eq!(bench.granted.len(), 0, "the budget has no room");
        bench.hold("d0", 104, true);
        bench.hold("d0", 105, false);
        assert_eq!(bench.asked.len(), asked_again, "valid for {valid_for:?}");
    }
}

#[test]
fn another_engine_is_asked_anew() {
    let mut bench = Bench::synced();
    bench.guard(gated(1, gate(FailurePolicy::Allow)));
    bench.delete_owner_of(2);
    let asked = core::mem::take(&mut bench.asked);
    bench.answer(&asked[0], Answer::Deny);
    bench.guard(gated(2, Gate { engine: 1, ..gate(FailurePolicy::Allow) }));
    bench.pass(Duration::from_millis(1));
    assert_eq!(bench.cancelled, [asked[1].number], "the question to the former engine");
    assert_eq!((bench.asked.len(), bench.granted.len()), (2, 0));
    bench.answer_for(&asked[1], Answer::Allow, Duration::ZERO);
    assert_eq!(bench.granted.len(), 0, "the former engine answers late");
}

#[test]
fn a_denied_item_does_not_keep_others_from_being_asked_about() {
    const ITEMS: usize = 1_200;
    let mut bench = Bench::synced();
    bench.guard(gated(1, Gate { timeout: Duration::from_secs(10), ..gate(FailurePolicy::Deny) }));
    bench.delete_owner_of(ITEMS);
    let mut asked = core::mem::take(&mut bench.asked);
    assert_eq!(asked.len(), 1_000, "the window");
    asked.sort_by_key(|question| question.target.uid.clone());
    let mut count = asked.len();
    while let Some(question) = asked.pop() {
        // The first uids are denied.
        bench.answer(&question, if asked.len() < 500 { Answer::Deny } else { Answer::Allow });
        count += bench.asked.len();
        asked.splice(0..0, core::mem::take(&mut bench.asked));
    }
    assert_eq!(count, ITEMS);
}

#[test]
fn a_gate_that_is_repaired_asks_about_what_waited() {
    let mut bench = Bench::synced();
    bench.guard(gated(1, gate(FailurePolicy::Deny)));
    bench.delete_owner_of(1);
    let lost = bench.question();
    bench.guard(guard(GuardKind::Gate, 2, Rule::Hold));
    bench.answer_for(&lost, Answer::Failed, Duration::ZERO);
    bench.pass(MINUTE);
    bench.guard(gated(3, gate(FailurePolicy::Deny)));
    bench.pass(Duration::from_millis(1));
    let question = bench.question();
    bench.answer(&question, Answer::Allow);
    assert_eq!(bench.granted.len(), 1);
}

#[test]
fn the_longest_hold_begins_with_the_hold() {
    let mut bench = Bench::synced();
    bench.guard(gated(1, Gate { allow_after_max_hold: true, ..gate(FailurePolicy::Hold) }));
    bench.guard(guard(GuardKind::Budget, 1, Rule::Budget(budget(0, OnExceeded::Hold))));
    bench.delete_owner_of(1);
    let question = bench.question();
    bench.answer_for(&question, Answer::Allow, Duration::from_secs(1));
    bench.pass(MINUTE);
    // The budget is gone, and the allowance has ended.
    let id = GuardId { kind: GuardKind::Budget, name: "g".into() };
    bench.input(Input::GuardGone { id, uid: pauses::pause("g", 1).uid });
    bench.pass(Duration::from_millis(1));
    let question = bench.asked.pop().expect("it is asked again");
    bench.answer(&question, Answer::Hold { again_after: Duration::from_secs(5) });
    assert_eq!(bench.granted.len(), 0, "the gate holds it from now on");
}

#[test]
fn a_release_soon_after_another_is_not_lost() {
    let mut bench = Bench::synced();
    bench.guard(gated(1, Gate { roots_only: true, ..gate(FailurePolicy::Deny) }));
    bench.delete_owner_of(40_000);
    bench.pass(Duration::from_millis(40));
    let question = bench.question();
    bench.answer(&question, Answer::Allow);
    assert_eq!(bench.granted.len(), 0, "all have just been released to be asked about");
    bench.pass(Duration::from_millis(100));
    assert!(!bench.granted.is_empty());
}

#[test]
fn a_root_without_a_question_is_asked_about_when_the_item_that_waited_for_it_is_gone() {
    const ROOTS: usize = 1_000;
    let mut bench = Bench::synced();
    bench.guard(gated(1, Gate { roots_only: true, timeout: Duration::from_secs(10), ..gate(FailurePolicy::Deny) }));
    for root in 0..=ROOTS {
        let owner = format!("o{root:04}");
        bench.seen("things", object("things", &owner, 101));
        for part in ["a", "b"] {
            bench.seen("configmaps", object("configmaps", &format!("{part}{root:04}"), 102).owned_by("things", &owner));
        }
    }
    for root in 0..=ROOTS {
        bench.deleted("things", &format!("o{root:04}"), 200 + root as u64);
    }
    bench.pass(Duration::from_secs(1));
    let asked = core::mem::take(&mut bench.asked);
    assert_eq!(asked.len(), ROOTS, "the window");
    let root_of = |question: &Question| question.cascade.as_ref().map(|cascade| cascade.root.uid.clone());
    let roots: Vec<Uid> = asked.iter().filter_map(root_of).collect();
    let left = (0..=ROOTS).map(|root| format!("{root:04}")).find(|root| !roots.contains(&uid(&format!("o{root}"))));
    let left = left.unwrap();
    // Its items are asked for in the order of their uids, and the last one waits for the root.
    bench.deleted("configmaps", &format!("b{left}"), 3_000);
    bench.answer(&asked[0], Answer::Deny);
    bench.pass(Duration::from_secs(2));
    let asked: Vec<Uid> = bench.asked.iter().filter_map(root_of).collect();
    assert!(asked.contains(&uid(&format!("o{left}"))), "{asked:?}");
}
