//! `cargo bench -p tests --bench lies`: the catalogue of wrong answers under upstream's collector and under ours, each on a control plane of
//! its own: how many combinations there are, and which dependents of owners that live are deleted. `COLLECTORS=ours` or `upstream` for one.

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
        writeln!(err, "{collector:?}\n{}\n", run(&stage, collector).await?)?;
    }
    Ok(())
}
