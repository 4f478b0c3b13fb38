//! Ten seconds of simulated worlds. `SEED=n` replays one; `cargo run --release -p tests --bin sim` goes on for ever.

use engine::work::{ActionKind, Outcome};
use std::io::Write;
use std::time::Duration;
use tests::sim::{self, Tally};

const SECONDS: u64 = 10;
const START_SEED: u64 = 1;
/// Worlds that a slow and busy machine gets done as well.
const WORLDS_MIN: u64 = 20;
/// Outcomes that a run of any use meets.
const OUTCOMES: [Outcome; 10] = [
    Outcome::Done,
    Outcome::Unchanged,
    Outcome::Gone,
    Outcome::Conflict,
    Outcome::Verified,
    Outcome::Forbidden,
    Outcome::AdmissionDenied,
    Outcome::Throttled,
    Outcome::Transient,
    Outcome::Unauthenticated,
];

fn told(result: Result<Tally, Box<sim::Failure>>) -> Tally {
    match result {
        Ok(tally) => {
            writeln!(std::io::stderr(), "{tally}").expect("stderr is open");
            tally
        }
        Err(failure) => {
            failure.tell(&mut std::io::stderr()).expect("stderr is open");
            panic!("{}", failure.why);
        }
    }
}

#[test]
fn worlds_come_to_what_the_semantics_ask_for() {
    if let Ok(seed) = std::env::var("SEED") {
        told(sim::examine(seed.parse().expect("SEED is a number"), true));
        return;
    }
    let tally = told(sim::search(START_SEED, Duration::from_secs(SECONDS), true));
    assert!(tally.worlds >= WORLDS_MIN, "{} worlds are too few to have shown anything", tally.worlds);
    for action in ActionKind::ALL {
        assert!(tally.action(action) > 0, "no {} was tried", action.as_str());
    }
    for outcome in OUTCOMES {
        assert!(tally.outcome(outcome) > 0, "no attempt ended as {}", outcome.as_str());
    }
}

#[test]
fn a_seed_gives_the_same_run_twice() {
    for seed in [1, 2, 3] {
        let options = sim::Options::draw(seed);
        assert_eq!(sim::run(seed, &options), sim::run(seed, &options));
    }
}
