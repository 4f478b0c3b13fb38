//! `cargo bench -p tests --bench asking`: how fast questions are answered about 100 000 objects, while others are deleted. `OBJECTS=n`
//! takes others.

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
