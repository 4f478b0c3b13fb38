//! What a policy engine says besides answers.

use super::*;

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
}

#[test]
fn asking_again_does_not_make_the_longest_hold_longer() {
    let again = Input::GateReopened { gate: "g".into() };
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
