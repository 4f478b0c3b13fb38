//! The tests that need other programs, such as a control plane or a NATS server, and do not depend on their speed. They
//! run side by side, because a test mostly waits.

mod access;
mod bad_input;
mod browser;
mod chart;
mod conformance;
mod containers;
mod controlplane;
mod differential;
mod encodings;
mod flowcontrol;
mod freshness;
mod fuzz;
mod guarded;
mod kubectl;
mod metrics;
mod observe;
mod parity;
mod policy;
mod previews;
mod recordings;
mod reference;
mod scenarios;
mod sink;
mod subscribers;
mod tasks;
mod traces;
mod upgrade;
mod wire;

use anyhow::{Context as _, ensure};
use std::fs;
use tests::chart::root;
use tests::performance::folded;

/// Compares a file of the tree with its sources, or writes the file with `BLESS=1`.
fn same(file: &str, made: &str) -> anyhow::Result<()> {
    let path = root().join(file);
    let made = if file.ends_with(".md") { &folded(made) } else { made };
    if std::env::var_os("BLESS").is_some_and(|bless| bless == "1") {
        return fs::write(&path, made).with_context(|| format!("writing {file}"));
    }
    let there = fs::read_to_string(&path).with_context(|| format!("reading {file}"))?;
    let differs = there.lines().zip(made.lines()).position(|(one, other)| one != other);
    ensure!(there == made, "{file} is not what it is made from (line {differs:?}); BLESS=1 writes it again");
    Ok(())
}
