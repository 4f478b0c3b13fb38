//! `cargo bench -p tests --bench slow`: measures one foreground deletion with forty dependents, with upstream's
//! collector and with ours. Every request has a delay of 0.1, 1.1, 2 or 5 s. `ROUNDS=n` replaces the default of one
//! round, and `JSON=FILE` writes every run to a file.

use std::io::Write as _;
use std::time::Duration;
use tests::bench::{Rounds, begin, number, turns};
use tests::contender::Contender;
use tests::service::Programs;
use tests::slow::{UPSTREAM_WORKERS, run};

const ROUNDS: usize = 1;
const DELAYS_MS: [u64; 4] = [100, 1_100, 2_000, 5_000];
/// The first contender is upstream with its default number of workers.
const CONTENDERS: [Contender; 3] =
    [Contender::Upstream(UPSTREAM_WORKERS), Contender::Upstream(64), Contender::Adaptive];

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let Some(binaries) = begin() else { return Ok(()) };
    let rounds = number("ROUNDS", ROUNDS)?;
    let programs = Programs::build()?;
    let mut table = Rounds::default();
    let mut err = std::io::stderr();
    for delay in DELAYS_MS.map(Duration::from_millis) {
        for (round, contender) in turns(&CONTENDERS, rounds) {
            let one = run(&binaries, &programs, contender, delay).await?;
            writeln!(
                err,
                "round {round}, {delay:?} a request, {contender}: {:.1} s, ended: {}",
                one.seconds, one.ended
            )?;
            table.add(one);
        }
    }
    table.report("slow", vec![("ROUNDS", rounds)])
}
