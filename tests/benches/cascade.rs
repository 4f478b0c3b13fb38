//! `cargo bench -p tests --bench cascade`: the floor, upstream's collector and ours on the same cascades, in turns. `OBJECTS=n` takes others
//! than 10 000, `ROUNDS=n` others than three, `POLICIES=Background,Orphan` some policies only, `JSON=FILE` writes every run there.
//! `SLOW=50` lets every request take 50 ms longer, with 16 in flight on all sides.

use std::io::Write as _;
use std::time::Duration;
use tests::bench::{Rounds, begin, number, turns, words};
use tests::cascade::{Task, run};
use tests::contender::Contender;
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
const SLOWED: [Contender; 3] = [Contender::Floor(16), Contender::Upstream(16), Contender::Ours(16)];

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let Some(binaries) = begin() else { return Ok(()) };
    let (objects, rounds) = (number("OBJECTS", OBJECTS)?, number("ROUNDS", ROUNDS)?);
    let slow = if std::env::var_os("SLOW").is_some() { number("SLOW", 0)? } else { 0 };
    let contenders = if slow > 0 { &SLOWED[..] } else { &CONTENDERS[..] };
    let programs = Programs::build_with("tests")?;
    let mut table = Rounds::default();
    let mut err = std::io::stderr();
    for policy in words("POLICIES", &POLICIES)? {
        let task = Task { policy, objects, slow: Duration::from_millis(slow as u64) };
        for (round, contender) in turns(contenders, rounds) {
            let one = run(&binaries, &programs, contender, task).await?;
            writeln!(err, "{policy}, round {round}, {contender}: {:.0} objects/s", one.rate())?;
            table.add(one);
        }
    }
    let settings = vec![("OBJECTS", objects), ("ROUNDS", rounds), ("SLOW", slow)];
    table.report("cascade", settings)
}
