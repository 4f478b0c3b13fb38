//! `cargo bench -p tests --bench fairness`: measures how long ten objects wait during a cascade of 100 000 others, in
//! another namespace and in the same one, with upstream's collector and with ours. `OBJECTS=n` replaces the number of
//! objects, `ROUNDS=n` the default of three rounds, and `JSON=FILE` writes every run to a file.

use std::io::Write as _;
use tests::bench::{Rounds, begin, number, turns};
use tests::contender::Contender;
use tests::fairness::run;
use tests::service::Programs;

const OBJECTS: usize = 100_000;
const ROUNDS: usize = 3;
const CONTENDERS: [Contender; 2] = [Contender::Upstream(64), Contender::Adaptive];

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let Some(binaries) = begin() else { return Ok(()) };
    let (objects, rounds) = (number("OBJECTS", OBJECTS)?, number("ROUNDS", ROUNDS)?);
    let programs = Programs::build()?;
    let mut table = Rounds::default();
    let mut err = std::io::stderr();
    for (round, contender) in turns(&CONTENDERS, rounds) {
        let one = run(&binaries, &programs, contender, objects).await?;
        writeln!(err, "round {round}, {contender}: {:.2} s and {:.2} s", one.other_namespace, one.same_namespace)?;
        table.add(one);
    }
    let settings = vec![("OBJECTS", objects), ("ROUNDS", rounds)];
    table.report("fairness", settings)
}
