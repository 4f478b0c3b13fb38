//! `cargo bench -p tests --bench cascade`: measures the floor, upstream's collector and ours, in turns, on the same
//! cascades.
//!
//! `OBJECTS=n` replaces the default of 10 000 objects, and `ROUNDS=n` the default of three rounds.
//! `POLICIES=Background,Orphan` selects policies. `IN_FLIGHT=64` selects numbers of requests in flight. `JSON=FILE`
//! writes every run to a file. Ours runs with each of these numbers, and once more with a number that it adapts to the
//! API server. `OBSERVED=1` compares ours with and without scrapes and traces, `GATED=1` with and
//! without a gate about roots, and `RECORDED=1` with and without a recording, which is then replayed. `SLOW=50` delays
//! every request by 50 ms, with 16 requests in flight for each contender.

use anyhow::ensure;
use std::io::Write as _;
use std::time::Duration;
use tests::bench::{Rounds, begin, number, turns, words};
use tests::cascade::{Task, run};
use tests::contender::Contender;
use tests::service::Programs;

const OBJECTS: usize = 10_000;
const ROUNDS: usize = 3;
const POLICIES: [&str; 3] = ["Background", "Foreground", "Orphan"];
/// The numbers of requests in flight, or of upstream's workers.
const IN_FLIGHT: [&str; 2] = ["20", "64"];
/// Ours with this number of requests in flight.
type Ours = fn(u32) -> Contender;

/// The variables that compare ours with another ours.
const BESIDE: [(&str, Ours); 3] =
    [("OBSERVED", Contender::Observed), ("GATED", Contender::Gated), ("RECORDED", Contender::Recorded)];
/// The number with `SLOW`. The delay then outweighs the time that the API server itself needs.
const SLOWED: [&str; 1] = ["16"];

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let Some(binaries) = begin() else { return Ok(()) };
    let (objects, rounds) = (number("OBJECTS", OBJECTS)?, number("ROUNDS", ROUNDS)?);
    let slow = if std::env::var_os("SLOW").is_some() { number("SLOW", 0)? } else { 0 };
    let in_flight = words("IN_FLIGHT", if slow > 0 { &SLOWED } else { &IN_FLIGHT })?;
    let mut beside = None;
    for (name, contender) in BESIDE {
        if std::env::var_os(name).is_some() && number(name, 0)? > 0 {
            ensure!(beside.is_none(), "{name}: a run compares ours with one other");
            beside = Some((name, contender));
        }
    }
    let mut contenders = Vec::new();
    for number in in_flight {
        let number = number.parse()?;
        contenders.extend(match beside {
            Some((_, beside)) => vec![Contender::Ours(number), beside(number)],
            None => vec![Contender::Floor(number), Contender::Upstream(number), Contender::Ours(number)],
        });
    }
    if beside.is_none() && slow == 0 {
        contenders.push(Contender::Adaptive);
    }
    let programs = Programs::build_with("floor")?;
    let mut table = Rounds::default();
    let mut err = std::io::stderr();
    for policy in words("POLICIES", &POLICIES)? {
        let task = Task { policy, objects, slow: Duration::from_millis(slow as u64) };
        for (round, contender) in turns(&contenders, rounds) {
            let one = run(&binaries, &programs, contender, task).await?;
            writeln!(err, "{policy}, round {round}, {contender}: {:.0} objects/s", one.rate())?;
            table.add(one);
        }
    }
    let mut settings = vec![("OBJECTS", objects), ("ROUNDS", rounds), ("SLOW", slow)];
    settings.extend(beside.map(|(name, _)| (name, 1)));
    table.report("cascade", settings)
}
