//! `cargo bench -p tests --bench lies`: runs the catalogue of wrong answers with upstream's collector and with ours,
//! each on its own control plane. Prints the number of combinations, and the deleted dependents of owners that exist.
//! `COLLECTORS=ours` or `upstream` selects one.

use std::io::Write as _;
use tests::bench::{begin, words};
use tests::lies::{Collector, run};
use tests::stage::Stage;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    if begin().is_none() {
        return Ok(());
    }
    let mut err = std::io::stderr();
    for name in words("COLLECTORS", &["upstream", "ours"])? {
        let collector = if name == "ours" { Collector::Ours } else { Collector::Upstream };
        let Some(stage) = Stage::start().await? else { return Ok(()) };
        writeln!(err, "{collector:?}\n{}\n", run(&stage, collector, ()).await?)?;
    }
    Ok(())
}
