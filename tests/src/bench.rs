//! How the benchmarks begin.

use crate::controlplane::{Binaries, require};
use anyhow::{Context, ensure};

/// The real control plane, where a benchmark is to run on it: `cargo test --benches` starts benchmarks too, and wants none of their time.
pub fn begin() -> Option<Binaries> {
    if std::env::args().any(|argument| argument == "--bench") { require() } else { None }
}

/// The number above 0 in an environment variable, or this one.
pub fn number(name: &str, otherwise: usize) -> anyhow::Result<usize> {
    let Ok(text) = std::env::var(name) else { return Ok(otherwise) };
    let number = text.parse().with_context(|| format!("{name} is {text:?}, and should be a number"))?;
    ensure!(number > 0, "{name} is 0");
    Ok(number)
}

/// Those of the words that an environment variable has, separated by commas, or all.
pub fn words<'a>(name: &str, all: &[&'a str]) -> anyhow::Result<Vec<&'a str>> {
    let Ok(text) = std::env::var(name) else { return Ok(all.to_vec()) };
    let word = |word: &str| {
        let known = all.iter().find(|known| **known == word);
        known.copied().with_context(|| format!("{name} has {word:?}, which is none of {all:?}"))
    };
    text.split(',').map(word).collect()
}
