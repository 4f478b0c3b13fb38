//! New executors get work at once, and leave no trace when they go. `cargo bench -p tests --bench scaling` gives the
//! figures.

use anyhow::ensure;
use std::io::{self, Write as _};
use tests::controlplane::require;
use tests::scaling::run;
use tests::service::Programs;

const OBJECTS: usize = 1_500;

#[tokio::test(flavor = "multi_thread")]
async fn eight_executors_have_eight_times_as_many_writes_under_way() -> anyhow::Result<()> {
    let _turn = crate::turn().await?;
    let Some(binaries) = require() else { return Ok(()) };
    let figures = run(&binaries, &Programs::build()?, OBJECTS).await?;
    write!(io::stderr(), "{figures}")?;
    ensure!(figures.writes_alone == 4 && figures.writes_together == 32, "writes at a time: {figures}");
    ensure!(figures.attempts.iter().all(|attempts| *attempts > 0.0), "all had work: {figures}");
    Ok(())
}
