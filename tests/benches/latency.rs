//! `cargo bench -p tests --bench latency`: on an idle cluster, from the end of an owner to the end of the last of its hundred dependents:
//! the bare client's, which deletes them itself, upstream's and ours. `FAMILIES=n` takes others than 100 families a round, `IN_FLIGHT=n`
//! others than 20 requests at once, `ROUNDS=n` others than three, `JSON=FILE` writes every run there.

use std::io::Write as _;
use tests::bench::{Rounds, begin, number, turns};
use tests::contender::Contender;
use tests::latency::run;
use tests::service::Programs;

const FAMILIES: usize = 100;
const ROUNDS: usize = 3;
const IN_FLIGHT: usize = 20;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let Some(binaries) = begin() else { return Ok(()) };
    let (families, rounds) = (number("FAMILIES", FAMILIES)?, number("ROUNDS", ROUNDS)?);
    let in_flight = number("IN_FLIGHT", IN_FLIGHT)?;
    let number = u32::try_from(in_flight)?;
    let contenders = [Contender::Floor(number), Contender::Upstream(number), Contender::Ours(number)];
    let programs = Programs::build()?;
    let mut table = Rounds::default();
    let mut err = std::io::stderr();
    for (round, contender) in turns(&contenders, rounds) {
        let one = run(&binaries, &programs, contender, families).await?;
        writeln!(err, "round {round}, {contender}: p99 {:.1} ms", one.last.percentile(99))?;
        table.add(one);
    }
    let settings = vec![("FAMILIES", families), ("IN_FLIGHT", in_flight), ("ROUNDS", rounds)];
    table.report("latency", settings)
}
