//! `cargo bench -p tests --bench asking`: measures the latency of a graph service's answers about 100 000 objects,
//! during deletions. `OBJECTS=n` replaces the number of objects.

use std::io::Write as _;
use tests::asking::run;
use tests::bench::{begin, number};
use tests::service::Programs;

const OBJECTS: usize = 100_000;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let Some(binaries) = begin() else { return Ok(()) };
    let figures = run(&binaries, &Programs::build()?, number("OBJECTS", OBJECTS)?).await?;
    write!(std::io::stderr(), "{figures}")?;
    Ok(())
}
