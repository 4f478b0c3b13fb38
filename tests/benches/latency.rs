//! `cargo bench -p tests --bench latency`: on an idle cluster, from the end of an owner to the end of the last of its hundred dependents:
//! the bare client's, which deletes them itself, upstream's and ours. `FAMILIES=n` takes others than 100 families a round, `ROUNDS=n`
//! others than three, `JSON=FILE` writes every run there.

use std::io::Write as _;
use tests::bench::{Rounds, begin, number, turns};
use tests::contender::Contender;
use tests::latency::run;
use tests::service::Programs;

const FAMILIES: usize = 100;
const ROUNDS: usize = 3;
const CONTENDERS: [Contender; 3] = [Contender::Floor(20), Contender::Upstream(20), Contender::Ours(20)];

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let Some(binaries) = begin() else { return Ok(()) };
    let (families, rounds) = (number("FAMILIES", FAMILIES)?, number("ROUNDS", ROUNDS)?);
    let programs = Programs::build()?;
    let mut table = Rounds::default();
    let mut err = std::io::stderr();
    for (round, contender) in turns(&CONTENDERS, rounds) {
        let one = run(&binaries, &programs, contender, families).await?;
        writeln!(err, "round {round}, {contender}: p99 {:.1} ms", one.last.percentile(99))?;
        table.add(one);
    }
    let settings = vec![("FAMILIES", families), ("ROUNDS", rounds)];
    table.report("latency", settings)
}
