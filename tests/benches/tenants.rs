//! `cargo bench -p tests --bench tenants`: measures cascades of three dependents, alone and next to a tenant with ten
//! objects of 20 000 references each, with upstream's collector and with ours. `CASCADES=n` replaces the default of 20
//! cascades, `ROUNDS=n` the default of one round, and `JSON=FILE` writes every run to a file.

use std::io::Write as _;
use tests::bench::{Rounds, begin, number, turns};
use tests::contender::Contender;
use tests::service::Programs;
use tests::tenants::run;

const CASCADES: usize = 20;
const ROUNDS: usize = 1;
const CASES: [(Contender, bool); 4] = [
    (Contender::Upstream(64), false),
    (Contender::Adaptive, false),
    (Contender::Upstream(64), true),
    (Contender::Adaptive, true),
];

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let Some(binaries) = begin() else { return Ok(()) };
    let (cascades, rounds) = (number("CASCADES", CASCADES)?, number("ROUNDS", ROUNDS)?);
    let programs = Programs::build()?;
    let mut table = Rounds::default();
    let mut err = std::io::stderr();
    for (round, (contender, tenant)) in turns(&CASES, rounds) {
        let one = run(&binaries, &programs, contender, tenant, cascades).await?;
        let most = one.cascades.most();
        writeln!(err, "round {round}, {contender}, tenant: {tenant}: at most {most:.0} ms, stuck: {}", one.stuck)?;
        table.add(one);
    }
    table.report("tenants", vec![("CASCADES", cascades), ("ROUNDS", rounds)])
}
