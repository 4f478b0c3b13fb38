//! The runs of all contenders of a benchmark.

use super::{Figure, Report, Samples};
use serde_json::Value;
use std::fmt;
use std::io::Write as _;

/// The result of one run of a benchmark.
pub trait Run: Sized {
    /// The contender of the run.
    type Who: Copy + PartialEq;

    fn who(&self) -> Self::Who;

    /// All measurements.
    fn json(&self) -> Value;

    /// The quantities with a budget.
    fn figures(rounds: &Rounds<Self>) -> Vec<Figure>;

    /// Returns medians and spread as text for people.
    fn table(rounds: &Rounds<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result;
}

/// All runs, in the order of their ends.
#[derive(Clone, Debug)]
pub struct Rounds<R>(Vec<R>);

impl<R> Default for Rounds<R> {
    fn default() -> Rounds<R> {
        Rounds(Vec::new())
    }
}

impl<R: Run> Rounds<R> {
    pub fn add(&mut self, run: R) {
        self.0.push(run);
    }

    pub fn all(&self) -> &[R] {
        &self.0
    }

    /// Returns the runs of one contender.
    pub fn of(&self, who: R::Who) -> impl Iterator<Item = &R> {
        self.0.iter().filter(move |run| run.who() == who)
    }

    /// Returns one figure of each run of a contender.
    pub fn samples(&self, who: R::Who, figure: impl Fn(&R) -> f64) -> Samples {
        self.of(who).map(figure).collect()
    }

    /// Returns each contender once, in the order of first runs.
    pub fn everybody(&self) -> Vec<R::Who> {
        let mut everybody = Vec::new();
        for run in &self.0 {
            if !everybody.contains(&run.who()) {
                everybody.push(run.who());
            }
        }
        everybody
    }

    /// Writes the table and the comparison with the budgets to standard error, and everything to the file that `JSON`
    /// names.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn report(&self, bench: &'static str, settings: Vec<(&'static str, usize)>) -> anyhow::Result<()> {
        let runs = self.0.iter().map(R::json).collect();
        let report = Report { bench, settings, figures: R::figures(self), runs };
        write!(std::io::stderr(), "{self}\n{report}")?;
        report.write()
    }
}

impl<R: Run> fmt::Display for Rounds<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        R::table(self, f)
    }
}
