//! The flags of `parity`.

use super::Asking;
use super::spans::lifetime;
use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use engine::parity;
use proto::decision::v1beta1::disagreement::{Class, Outcome};
use std::time::Duration;

/// The longest time that the numbers can be narrowed to. The leader counts quarters of an hour for seven days.
const SINCE_MAX: Duration = Duration::from_secs(7 * 86_400);

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Parity {
    /// Only the last part of the time, such as 1h or 1d, rounded up to quarters of an hour; at most 7d. The numbers by
    /// collection are always those of the whole term. Default: since the comparison began.
    #[arg(long, value_name = "DURATION", value_parser = since)]
    pub(crate) since: Option<Duration>,
    /// List only disagreements of this class; may be repeated. The numbers stay those of all.
    #[arg(long = "class", value_name = "CLASS", value_delimiter = ',', value_parser = PossibleValuesParser::new(parity::Class::ALL.map(parity::Class::as_str)).map(|word| class(&word)))]
    pub(crate) classes: Vec<Class>,
    /// List only disagreements with this outcome; may be repeated. The numbers stay those of all.
    #[arg(long = "outcome", value_name = "OUTCOME", value_delimiter = ',', value_parser = PossibleValuesParser::new(OUTCOMES.map(parity::Outcome::as_str)).map(|word| outcome(&word)))]
    pub(crate) outcomes: Vec<Outcome>,
    #[command(flatten)]
    pub(crate) asking: Asking,
}

const OUTCOMES: [parity::Outcome; 2] = [parity::Outcome::OursOnly, parity::Outcome::TheirsOnly];

fn since(text: &str) -> Result<Duration, String> {
    lifetime(text).and_then(|since| match since <= SINCE_MAX {
        true => Ok(since),
        false => Err("the numbers reach back 7d at most".to_owned()),
    })
}

fn class(word: &str) -> Class {
    Class::from_str_name(&format!("CLASS_{}", word.to_uppercase())).unwrap_or_default()
}

fn outcome(word: &str) -> Outcome {
    Outcome::from_str_name(&format!("OUTCOME_{}", word.to_uppercase())).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_word_of_a_metric_is_one_of_the_api() {
        for of in parity::Class::ALL {
            assert_ne!(class(of.as_str()), Class::Unspecified, "{of:?}");
        }
        for of in OUTCOMES {
            assert_ne!(outcome(of.as_str()), Outcome::Unspecified, "{of:?}");
        }
    }

    #[test]
    fn the_numbers_reach_back_seven_days() {
        assert_eq!(since("7d"), Ok(SINCE_MAX));
        assert!(since("7d1s").is_err() && since("0s").is_err());
    }
}
