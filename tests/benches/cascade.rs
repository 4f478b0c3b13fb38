//! `cargo bench -p tests --bench cascade`: the floor, upstream's collector and ours on the same cascades, in turns. `OBJECTS=n` takes others
//! than 10 000, `ROUNDS=n` others than three, `POLICIES=Background,Orphan` some policies only, `JSON=FILE` writes every run there.

use std::io::Write as _;
use tests::bench::{begin, number, words};
use tests::cascade::{Contender, Table, run};
use tests::service::Programs;

const OBJECTS: usize = 10_000;
const ROUNDS: usize = 3;
const POLICIES: [&str; 3] = ["Background", "Foreground", "Orphan"];
const CONTENDERS: [Contender; 6] = [
    Contender::Floor(20),
    Contender::Upstream(20),
    Contender::Ours(20),
    Contender::Floor(64),
    Contender::Upstream(64),
    Contender::Ours(64),
];

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let Some(binaries) = begin() else { return Ok(()) };
    let (objects, rounds) = (number("OBJECTS", OBJECTS)?, number("ROUNDS", ROUNDS)?);
    let programs = Programs::build_with("tests")?;
    let mut table = Table::default();
    let mut err = std::io::stderr();
    for policy in words("POLICIES", &POLICIES)? {
        for round in 0..rounds {
            for turn in 0..CONTENDERS.len() {
                // Each begins once in every place, so that no one always comes after the same other.
                let contender = CONTENDERS[(turn + round) % CONTENDERS.len()];
                let one = run(&binaries, &programs, contender, policy, objects).await?;
                writeln!(err, "{policy}, round {round}, {contender}: {:.0} objects/s", one.rate())?;
                table.add(one);
            }
        }
    }
    write!(err, "{table}")?;
    if let Some(path) = std::env::var_os("JSON") {
        std::fs::write(&path, format!("{:#}\n", table.json()))?;
    }
    Ok(())
}
