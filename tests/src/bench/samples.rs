//! The figures of several rounds.

use serde_json::{Value, json};
use std::fmt;

/// The figures of one quantity, in the order of their measurement.
#[derive(Clone, Debug, Default)]
pub struct Samples(Vec<f64>);

impl Samples {
    fn sorted(&self) -> Vec<f64> {
        let mut sorted = self.0.clone();
        sorted.sort_unstable_by(f64::total_cmp);
        sorted
    }

    /// Returns the figure that this percentage stays below. The result is not a number if there are no figures.
    pub fn percentile(&self, percent: usize) -> f64 {
        let sorted = self.sorted();
        let at = (sorted.len() * percent / 100).min(sorted.len().saturating_sub(1));
        sorted.get(at).copied().unwrap_or(f64::NAN)
    }

    /// Returns the median. Of an even number of figures, this is the mean of the two in the middle.
    pub fn median(&self) -> f64 {
        let sorted = self.sorted();
        let (lower, upper) = (sorted.get(sorted.len().saturating_sub(1) / 2), sorted.get(sorted.len() / 2));
        lower.zip(upper).map_or(f64::NAN, |(lower, upper)| f64::midpoint(*lower, *upper))
    }

    pub fn least(&self) -> f64 {
        self.percentile(0)
    }

    pub fn most(&self) -> f64 {
        self.percentile(100)
    }

    /// Returns the ratio of each figure to the other's figure of the same round.
    pub fn over(&self, other: &Samples) -> Samples {
        self.0.iter().zip(&other.0).map(|(ours, theirs)| ours / theirs).collect()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn push(&mut self, sample: f64) {
        self.0.push(sample);
    }

    /// Returns median and spread.
    pub fn json(&self) -> Value {
        json!({ "median": self.median(), "least": self.least(), "most": self.most(), "samples": self.len() })
    }
}

impl FromIterator<f64> for Samples {
    fn from_iter<I: IntoIterator<Item = f64>>(samples: I) -> Samples {
        Samples(samples.into_iter().collect())
    }
}

/// Formats the median, with the least and the greatest figure in brackets.
impl fmt::Display for Samples {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = f.precision().unwrap_or(2);
        write!(f, "{:.digits$} ({:.digits$}-{:.digits$})", self.median(), self.least(), self.most())
    }
}

#[cfg(test)]
mod tests {
    use super::Samples;

    #[test]
    fn the_middle_and_the_ends() {
        let samples: Samples = [3.0, 1.0, 2.0].into_iter().collect();
        assert_eq!((samples.least(), samples.median(), samples.most()), (1.0, 2.0, 3.0));
        assert_eq!(samples.percentile(99), 3.0);
        assert_eq!(format!("{samples:.1}"), "2.0 (1.0-3.0)");
        assert_eq!(samples.over(&[1.0, 1.0, 4.0].into_iter().collect()).median(), 1.0);
        assert_eq!([1.0, 4.0, 2.0, 8.0].into_iter().collect::<Samples>().median(), 3.0);
        assert!(Samples::default().median().is_nan());
    }
}
