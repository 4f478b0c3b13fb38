//! `cargo bench -p tests --bench start`: measures the time from the start of the process to the complete graph of 100
//! 000 objects. Compares our collector, upstream's, and a client that reads the same data and discards them.
//! `OBJECTS=n` replaces the number of objects, `ROUNDS=n` the default of five rounds, and `JSON=FILE` writes every run
//! to a file.

use std::io::Write as _;
use tests::bench::{Rounds, begin, number, turns};
use tests::reader::Way;
use tests::service::Programs;
use tests::start::{Starter, World};

const OBJECTS: usize = 100_000;
const ROUNDS: usize = 5;
/// The number of workers has no effect before the graph is complete.
const WORKERS: u32 = 20;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let Some(binaries) = begin() else { return Ok(()) };
    let (objects, rounds) = (number("OBJECTS", OBJECTS)?, number("ROUNDS", ROUNDS)?);
    let programs = Programs::build_with("reader")?;
    let mut world = World::create(&binaries, &programs, objects).await?;
    let mut table = Rounds::default();
    let mut err = std::io::stderr();
    let readers = Way::ALL.map(Starter::Reader);
    let starters = [&readers[..], &[Starter::Upstream(WORKERS), Starter::Ours]].concat();
    for (round, starter) in turns(&starters, rounds) {
        let run = world.run(starter).await?;
        writeln!(err, "round {round}, {starter}: {:.2} s", run.everything)?;
        table.add(run);
    }
    let settings = vec![("OBJECTS", world.objects), ("ROUNDS", rounds)];
    table.report("start", settings)
}
