//! `cargo bench -p tests --bench asking`: how fast questions are answered about 100 000 objects, while others are deleted. `OBJECTS=n`
//! takes others.

use std::io::Write as _;
use tests::asking::run;
use tests::controlplane::require;
use tests::service::Programs;

const OBJECTS: usize = 100_000;

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
