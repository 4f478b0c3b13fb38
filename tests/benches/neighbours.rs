//! `cargo bench -p tests --bench neighbours`: measures the latency of another client's GET and CREATE during a cascade
//! of 100 000 objects. Compares the floor, upstream's collector and ours, and also the floor and ours at half of our
//! rate. `OBJECTS=n` replaces the number of objects, `ROUNDS=n` the default of three rounds, `SECONDS=n` the default of
//! ten idle seconds before each cascade, and `JSON=FILE` writes every run to a file.

use std::io::Write as _;
use std::time::Duration;
use tests::bench::{Rounds, begin, number, turns};
use tests::contender::Contender;
use tests::neighbours::run;
use tests::service::Programs;

const OBJECTS: usize = 100_000;
const ROUNDS: usize = 3;
const IDLE_SECONDS: usize = 10;
const IN_FLIGHT: u32 = 64;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let Some(binaries) = begin() else { return Ok(()) };
    let (objects, rounds) = (number("OBJECTS", OBJECTS)?, number("ROUNDS", ROUNDS)?);
    let seconds = number("SECONDS", IDLE_SECONDS)?;
    let idle = Duration::from_secs(seconds as u64);
    let programs = Programs::build_with("floor")?;
    let mut table = Rounds::default();
    let mut err = std::io::stderr();
    // This run gives our rate, and counts as a result. The last two contenders may use half of this rate.
    let first = run(&binaries, &programs, Contender::Ours(IN_FLIGHT), objects, idle).await?;
    let half = (first.rate / 2.0).ceil() as u32;
    table.add(first);
    let contenders = [
        Contender::Floor(IN_FLIGHT),
        Contender::Upstream(IN_FLIGHT),
        Contender::Ours(IN_FLIGHT),
        Contender::Adaptive,
        Contender::FloorHeld(half),
        Contender::Held(half),
    ];
    for (round, contender) in turns(&contenders, rounds) {
        let one = run(&binaries, &programs, contender, objects, idle).await?;
        writeln!(err, "round {round}, {contender}: {:.0} objects/s", one.rate)?;
        table.add(one);
    }
    let settings = vec![("OBJECTS", objects), ("ROUNDS", rounds), ("SECONDS", seconds)];
    table.report("neighbours", settings)
}
