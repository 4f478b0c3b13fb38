//! The beginning and the results of benchmarks.

mod budget;
mod machine;
mod rounds;
mod samples;

use crate::controlplane::{Binaries, require};
use anyhow::{Context, ensure};
use serde_json::{Map, Value, json};
use std::fmt;
use std::path::Path;

pub use budget::{BUDGETS, Budget, Figure, Limit, budget};
pub use machine::Machine;
pub use rounds::{Rounds, Run};
pub use samples::Samples;

/// Returns the real control plane for a benchmark, or `None`. `cargo test --benches` also starts benchmarks, and must
/// not wait for them.
pub fn begin() -> Option<Binaries> {
    if wanted() { require() } else { None }
}

/// Returns whether this process measures.
pub fn wanted() -> bool {
    std::env::args().any(|argument| argument == "--bench")
}

/// Returns the number in an environment variable if it is above 0, and `otherwise` without one.
pub fn number(name: &str, otherwise: usize) -> anyhow::Result<usize> {
    let Ok(text) = std::env::var(name) else { return Ok(otherwise) };
    let number = text.parse().with_context(|| format!("{name} is {text:?}, and should be a number"))?;
    ensure!(number > 0, "{name} is 0");
    Ok(number)
}

/// Returns the words that an environment variable lists, separated by commas. Without the variable, returns all words.
pub fn words<'a>(name: &str, all: &[&'a str]) -> anyhow::Result<Vec<&'a str>> {
    let Ok(text) = std::env::var(name) else { return Ok(all.to_vec()) };
    let word = |word: &str| {
        let known = all.iter().find(|known| **known == word);
        known.copied().with_context(|| format!("{name} has {word:?}, which is none of {all:?}"))
    };
    text.split(',').map(word).collect()
}

/// Returns the order of the contenders in each round. Each contender begins once in every place, so that none always
/// follows the same other one.
pub fn turns<T: Copy>(contenders: &[T], rounds: usize) -> Vec<(usize, T)> {
    let places = contenders.len();
    let turn = |round| (0..places).map(move |turn| (round, contenders[(turn + round) % places]));
    (0..rounds).flat_map(turn).collect()
}

/// The result of a benchmark.
#[derive(Clone, Debug)]
pub struct Report {
    /// The name of the benchmark, and the variables of the run.
    pub bench: &'static str,
    pub settings: Vec<(&'static str, usize)>,
    /// The figures that have a budget.
    pub figures: Vec<Figure>,
    /// All measurements.
    pub runs: Value,
}

impl Report {
    /// Writes the result into the file that the variable `JSON` names, with machine, date and commit. A relative path
    /// starts at the top of the tree, because cargo runs benchmarks in the directory of their crate.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self) -> anyhow::Result<()> {
        let Some(path) = std::env::var_os("JSON") else { return Ok(()) };
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
        let settings = self.settings.iter().map(|(name, value)| ((*name).to_owned(), json!(value)));
        let figures: Vec<Value> = self.figures.iter().map(Figure::json).collect();
        let report = json!({
            "bench": self.bench, "settings": settings.collect::<Map<String, Value>>(), "machine": Machine::this().json(),
            "figures": figures, "runs": self.runs,
        });
        std::fs::write(&path, format!("{report:#}\n")).with_context(|| format!("writing {}", path.display()))
    }
}

/// The figures, each with its budget.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.figures.iter().try_for_each(|figure| writeln!(f, "{figure}"))
    }
}

#[cfg(test)]
mod tests {
    use super::turns;

    #[test]
    fn everybody_begins_once() {
        let turns = turns(&['a', 'b', 'c'], 3);
        let order: String = turns.iter().map(|(_, contender)| contender).collect();
        assert_eq!(order, "abcbcacab");
        assert_eq!(turns[3].0, 1);
    }
}
