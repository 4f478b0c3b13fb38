//! `cargo bench -p tests --bench scaling`: from one executor to eight, in the middle of 10 000 objects. `OBJECTS=n` takes others.

use std::io::Write as _;
use tests::controlplane::require;
use tests::scaling::run;
use tests::service::Programs;

const OBJECTS: usize = 10_000;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    // `cargo test --benches` starts benchmarks too, and wants none of their time.
    if !std::env::args().any(|argument| argument == "--bench") {
        return Ok(());
    }
    let Some(binaries) = require() else { return Ok(()) };
    let objects = std::env::var("OBJECTS").ok().and_then(|number| number.parse().ok()).unwrap_or(OBJECTS);
    let figures = run(&binaries, &Programs::build()?, objects).await?;
    write!(std::io::stderr(), "{figures}")?;
    Ok(())
}
