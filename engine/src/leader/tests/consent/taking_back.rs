//! Tests of the messages of a policy engine besides answers: it needs more time, and takes answers back.

use super::*;
use crate::scope::Objects;

const SECOND: Duration = Duration::from_secs(1);

impl Bench {
    /// A gate, and `o` with dependents that it is asked about.
    fn with_questions(rule: Gate, dependents: usize) -> (Bench, Vec<Question>) {
        let mut bench = Bench::synced();
        bench.guard(guard(GuardKind::Gate, 1, Rule::Gate(rule)));
        bench.delete_owner_of(dependents);
        bench.pass(Duration::from_millis(5));
        let asked = core::mem::take(&mut bench.asked);
        (bench, asked)
    }

    fn needs(&mut self, question: &Question, extra: Duration) {
        let (gate, number) = (question.gate.clone(), question.number);
        self.input(Input::GateNeedsTime { gate, number, extra });
    }

    fn takes_back(&mut self, targets: Vec<Objects>) {
        self.input(Input::GateInvalidated { gate: "g".into(), targets });
        self.pass(Duration::from_millis(1));
    }

    fn rejected(&self) -> Vec<&str> {
        let rejected = self.events.iter().filter_map(|event| match event {
            Event::Rejected { why } => Some(why.as_str()),
            _ => None,
        });
        rejected.collect()
    }

    /// The names of the objects that are asked about since the last call.
    fn asked_names(&mut self) -> Vec<String> {
        let mut names: Vec<String> =
            core::mem::take(&mut self.asked).iter().map(|question| question.target.name.to_string()).collect();
        names.sort();
        names
    }
}

#[test]
fn a_question_gets_extra_time_once_and_within_ten_seconds() {
    for (extra, ends_after) in [(1, 3), (8, 10), (3600, 10)] {
        let (mut bench, asked) = Bench::with_questions(gate(FailurePolicy::Deny), 1);
        bench.needs(&asked[0], extra * SECOND);
        bench.needs(&asked[0], 5 * SECOND);
        bench.pass((ends_after * 1000 - 20) * SECOND / 1000);
        assert_eq!(bench.cancelled, [0_u64; 0], "{extra} s more");
        bench.pass(40 * SECOND / 1000);
        assert_eq!(bench.cancelled, [asked[0].number], "{extra} s more");
        assert_eq!(bench.rejected(), ["gate g asks again for more time for a question"]);
    }
}

#[test]
fn an_answer_within_the_extra_time_counts() {
    let (mut bench, asked) = Bench::with_questions(gate(FailurePolicy::Deny), 2);
    bench.needs(&asked[0], 3 * SECOND);
    bench.pass(4 * SECOND);
    assert_eq!(bench.cancelled, [asked[1].number], "the other question has no extra time");
    bench.answer(&asked[0], Answer::Allow);
    let names: Vec<&str> = bench.granted.iter().map(|lease| &*lease.item.target.name).collect();
    assert_eq!(names, [&*asked[0].target.name]);
}

#[test]
fn more_time_for_a_question_that_is_not_open_changes_nothing() {
    let (mut bench, asked) = Bench::with_questions(gate(FailurePolicy::Deny), 2);
    bench.answer(&asked[0], Answer::Allow);
    bench.needs(&asked[0], SECOND);
    bench.needs(&Question { number: 99, ..asked[1].clone() }, SECOND);
    bench.needs(&Question { gate: "other".into(), ..asked[1].clone() }, SECOND);
    let open = "a question that is not open";
    let why = ["g", "g", "other"].map(|gate| format!("gate {gate} asks for more time for {open}"));
    assert_eq!(bench.rejected(), why);
    bench.pass(3 * SECOND);
    assert_eq!(bench.cancelled, [asked[1].number], "it ends in time");
}

#[test]
fn answers_that_are_taken_back_are_asked_for_again() {
    let of_uid = |name: &str| Objects { uids: [uid(name)].into(), ..Objects::default() };
    let of = |resource: &str| Objects { resources: [collection(resource)].into(), ..Objects::default() };
    let of_both = Objects { uids: [uid("d0")].into(), ..of("nodes") };
    let elsewhere = Objects { namespaces: ["elsewhere".into()].into(), ..Objects::default() };
    let all = ["d0", "d1"];
    for (targets, again) in [
        (vec![], &all[..]),
        (vec![of("configmaps")], &all[..]),
        (vec![of_uid("d0")], &all[..1]),
        (vec![of("nodes"), of_uid("d1")], &all[1..]),
        (vec![of("nodes")], &[]),
        (vec![of_both], &[]),
        (vec![elsewhere], &[]),
    ] {
        for answer in [Answer::Deny, Answer::Hold { again_after: 5 * SECOND }] {
            let (mut bench, asked) = Bench::with_questions(gate(FailurePolicy::Deny), 2);
            for question in &asked {
                bench.answer(question, answer.clone());
            }
            bench.takes_back(targets.clone());
            assert_eq!(bench.asked_names(), again, "{answer:?} {targets:?}");
            assert_eq!(bench.granted.len(), 0);
        }
    }
}

#[test]
fn an_answer_that_may_be_used_again_is_void_when_it_is_taken_back() {
    for (valid_for, takes_back, asked_again) in
        [(MINUTE, false, 0), (MINUTE, true, 1), (Duration::ZERO, false, 0), (Duration::ZERO, true, 1)]
    {
        let (mut bench, asked) = Bench::with_questions(gate(FailurePolicy::Deny), 1);
        bench.answer_for(&asked[0], Answer::Allow, valid_for);
        let lease = bench.granted.pop().unwrap();
        if takes_back {
            bench.takes_back(vec![Objects { uids: [uid("d0")].into(), ..Objects::default() }]);
        }
        bench.report(&lease, Outcome::Transient);
        bench.pass(5 * SECOND);
        assert_eq!((bench.asked.len(), bench.granted.len()), (asked_again, 1 - asked_again));
    }
}

#[test]
fn a_cascade_is_asked_about_again_when_its_root_is_meant() {
    let (mut bench, asked) = Bench::with_questions(Gate { roots_only: true, ..gate(FailurePolicy::Deny) }, 3);
    bench.answer(&asked[0], Answer::Deny);
    bench.takes_back(vec![Objects { resources: [collection("configmaps")].into(), ..Objects::default() }]);
    assert_eq!(bench.asked.len(), 0, "the question is about the root");
    bench.takes_back(vec![Objects { resources: [collection("things")].into(), ..Objects::default() }]);
    assert_eq!(bench.asked.len(), 1);
    let again = bench.asked.pop().unwrap();
    bench.answer(&again, Answer::Allow);
    assert_eq!(bench.granted.len(), 3);
}

#[test]
fn asking_again_does_not_make_the_longest_hold_longer() {
    let taken_back = Input::GateInvalidated { gate: "g".into(), targets: Vec::new() };
    for again in [Input::GateReopened { gate: "g".into() }, taken_back] {
        let rule = Gate { allow_after_max_hold: true, ..gate(FailurePolicy::Hold) };
        let (mut bench, asked) = Bench::with_questions(rule, 1);
        bench.answer(&asked[0], Answer::Hold { again_after: 60 * SECOND });
        for second in 0..10 {
            assert_eq!(bench.granted.len(), 0, "after {second} s");
            bench.input(again.clone());
            bench.pass(SECOND);
            for question in core::mem::take(&mut bench.asked) {
                bench.answer(&question, Answer::Hold { again_after: 60 * SECOND });
            }
        }
        assert_eq!(bench.granted.len(), 1, "the longest hold is ten seconds");
    }
}

#[test]
fn the_time_of_a_denial_is_no_hold() {
    let rule = Gate { allow_after_max_hold: true, ..gate(FailurePolicy::Hold) };
    let (mut bench, asked) = Bench::with_questions(rule, 1);
    bench.answer(&asked[0], Answer::Deny);
    bench.pass(60 * SECOND);
    bench.takes_back(Vec::new());
    let again = bench.asked.pop().unwrap();
    bench.answer(&again, Answer::Hold { again_after: 5 * SECOND });
    assert_eq!(bench.granted.len(), 0);
}

#[test]
fn an_engine_takes_back_only_answers_of_its_own_gate() {
    let (mut bench, asked) = Bench::with_questions(gate(FailurePolicy::Deny), 1);
    bench.answer(&asked[0], Answer::Deny);
    bench.input(Input::GateInvalidated { gate: "other".into(), targets: Vec::new() });
    bench.pass(SECOND);
    assert_eq!(bench.asked.len(), 0);
}
