//! `cargo bench -p tests --bench readers`: one cascade on the sandbox as API server, followed by nobody, by ten and a hundred readers of
//! everything, and by twenty readers of sixteen expressions. `OBJECTS=n` takes others than 10 000, `ROUNDS=n` others than three,
//! `JSON=FILE` writes every run there.

use std::io::Write as _;
use tests::bench::{Rounds, number, turns, wanted};
use tests::readers::{Readers, run};
use tests::service::Programs;

const OBJECTS: usize = 10_000;
const ROUNDS: usize = 3;
const WHO: [Readers; 4] = [
    Readers { count: 0, expressions: 0 },
    Readers { count: 10, expressions: 0 },
    Readers { count: 100, expressions: 0 },
    Readers { count: 20, expressions: 16 },
];

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    if !wanted() {
        return Ok(());
    }
    let (objects, rounds) = (number("OBJECTS", OBJECTS)?, number("ROUNDS", ROUNDS)?);
    let programs = Programs::build()?;
    let mut table = Rounds::default();
    let mut err = std::io::stderr();
    for (round, readers) in turns(&WHO, rounds) {
        let one = run(&programs, readers, objects).await?;
        writeln!(err, "round {round}, {readers}: {:.1} s, told after {:.1} s", one.cascade, one.told)?;
        table.add(one);
    }
    table.report("readers", vec![("OBJECTS", objects), ("ROUNDS", rounds)])
}
