//! `cargo bench -p tests --bench lease`: measures the rate of leases from a graph service to executors that report at
//! once, without an API server and without a gate, with a gate that asks about each object, and with one elsewhere
//! whose engine never answers. `OBJECTS=n` replaces the default of 200 000 objects, `ROUNDS=n` the default of three
//! rounds, and `JSON=FILE` writes every run to a file.

use std::io::Write as _;
use tests::bench::{Rounds, number, turns, wanted};
use tests::lease::{Gated, run};
use tests::service::Programs;

const OBJECTS: usize = 200_000;
const ROUNDS: usize = 3;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    if !wanted() {
        return Ok(());
    }
    let (objects, rounds) = (number("OBJECTS", OBJECTS)?, number("ROUNDS", ROUNDS)?);
    let programs = Programs::build()?;
    let mut table = Rounds::default();
    let mut err = std::io::stderr();
    for (round, gated) in turns(&Gated::ALL, rounds) {
        let one = run(&programs, gated, objects).await?;
        writeln!(err, "round {round}, {gated}: {:.0} leases/s", one.rate())?;
        table.add(one);
    }
    let settings = vec![("OBJECTS", objects), ("ROUNDS", rounds)];
    table.report("lease", settings)
}
