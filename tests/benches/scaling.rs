//! `cargo bench -p tests --bench scaling`: measures one executor, then eight, then one again, in a cascade of 10 000
//! objects. `OBJECTS=n` replaces the number of objects.

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
