//! `cargo bench -p tests --bench latency`: measures the time from the end of an owner to the end of the last of its
//! hundred dependents, on an idle cluster. Compares a bare client that deletes the dependents itself, upstream's
//! collector and ours. `FAMILIES=n` replaces the default of 100 families per round, `IN_FLIGHT=n` the default of 20
//! requests in flight, `ROUNDS=n` the default of three rounds, and `JSON=FILE` writes every run to a file.

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
