//! `cargo bench -p tests --bench readers`: measures one cascade on the sandbox without readers, with ten and a hundred
//! readers of all decisions, and with twenty readers with sixteen expressions. For comparison, it measures none, ten
//! and a hundred watchers of deletions on kube-apiserver. `OBJECTS=n` replaces the default of 10 000 objects,
//! `ROUNDS=n` the default of three rounds, and `JSON=FILE` writes every run to a file.

use std::io::Write as _;
use tests::bench::{Rounds, begin, number, turns};
use tests::readers::{Readers, run, run_watch_cache};
use tests::service::Programs;

const OBJECTS: usize = 10_000;
const ROUNDS: usize = 3;
const fn who(count: usize, expressions: usize, watch_cache: bool) -> Readers {
    Readers { count, expressions, watch_cache }
}

const WHO: [Readers; 7] = [
    who(0, 0, false),
    who(10, 0, false),
    who(100, 0, false),
    who(20, 16, false),
    who(0, 0, true),
    who(10, 0, true),
    who(100, 0, true),
];

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let Some(binaries) = begin() else { return Ok(()) };
    let (objects, rounds) = (number("OBJECTS", OBJECTS)?, number("ROUNDS", ROUNDS)?);
    let programs = Programs::build()?;
    let mut table = Rounds::default();
    let mut err = std::io::stderr();
    for (round, readers) in turns(&WHO, rounds) {
        let one = match readers.watch_cache {
            true => run_watch_cache(&binaries, readers, objects).await?,
            false => run(&programs, readers, objects).await?,
        };
        writeln!(err, "round {round}, {readers}: {:.1} s, told after {:.1} s", one.cascade, one.told)?;
        table.add(one);
    }
    table.report("readers", vec![("OBJECTS", objects), ("ROUNDS", rounds)])
}
