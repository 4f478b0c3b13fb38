//! `cargo bench -p tests --bench scaling`: from one executor to eight, in the middle of 10 000 objects. `OBJECTS=n` takes others.

use std::io::Write as _;
use tests::bench::{begin, number};
use tests::scaling::run;
use tests::service::Programs;

const OBJECTS: usize = 10_000;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let Some(binaries) = begin() else { return Ok(()) };
    let figures = run(&binaries, &Programs::build()?, number("OBJECTS", OBJECTS)?).await?;
    write!(std::io::stderr(), "{figures}")?;
    Ok(())
}
