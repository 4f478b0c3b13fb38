//! Policy engines: each question of a gate goes to the engine of that gate, and its answer comes back.
//!
//! In reading order:
//!
//! * [`transport`]: how a gate reaches its engine, as its resource states it
//! * [`router`]: the open questions of all gates
//! * [`inbox`]: answers and changes, for the task that decides
//! * [`cel`]: expressions, evaluated in this process
//! * [`webhook`]: HTTPS requests; [`review`]: their bodies
//! * [`instance`]: one instance of an engine; [`stream`]: the instances that are connected by
//!   `GateService.StreamVerdicts`
//!
//! The deciding task owns every timeout and every failure policy. A question that no engine can answer fails at once.
//! A question has at most one answer: each further answer to its number is counted and dropped.

use engine::guard::Answer;
use engine::object::clip;
use std::time::Duration;

mod cel;
pub(crate) mod fuzzing;
pub(crate) mod inbox;
mod instance;
mod review;
pub(crate) mod router;
pub(crate) mod stream;
#[cfg(test)]
pub(crate) mod tests;
pub(crate) mod transport;
mod webhook;

pub(crate) use router::Router;

/// Maximum length of a message of a policy, and of the name of a policy.
const TEXT_MAX_BYTES: usize = 1024;
/// Maximum number of questions of one gate that wait for an answer.
const QUESTIONS_MAX: usize = 10_000;
/// Maximum number of questions of one batch.
pub(crate) const BATCH_MAX: usize = 100;
/// Bounds of the time after which a held question is asked again.
const AGAIN_MIN: Duration = Duration::from_secs(1);
const AGAIN_MAX: Duration = Duration::from_secs(60 * 60);
/// Maximum time that an answer may be used again.
const VALID_MAX: Duration = Duration::from_secs(60 * 60);

/// An answer to the question with this number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    number: u64,
    answer: Answer,
    by: String,
    message: String,
    valid_for: Duration,
}

impl Reply {
    /// An answer of a policy. Texts and times are cut to their bounds.
    pub(crate) fn new(number: u64, answer: Answer, by: &str, message: &str, valid_for: Duration) -> Reply {
        let answer = match answer {
            Answer::Hold { again_after } => Answer::Hold { again_after: again_after.clamp(AGAIN_MIN, AGAIN_MAX) },
            other @ (Answer::Allow | Answer::Deny | Answer::Abstain | Answer::Failed) => other,
        };
        let [by, message] = [by, message].map(|text| clip(text, TEXT_MAX_BYTES));
        Reply { number, answer, by, message, valid_for: valid_for.min(VALID_MAX) }
    }

    fn failed(number: u64, why: &str) -> Reply {
        Reply::new(number, Answer::Failed, "", why, Duration::ZERO)
    }
}

/// Why an answer does not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unmatched {
    /// The question has ended.
    Late,
    /// The question has been answered.
    Twice,
    /// The engine was not asked this question.
    Unknown,
}

impl Unmatched {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Unmatched::Late => "late",
            Unmatched::Twice => "twice",
            Unmatched::Unknown => "unknown",
        }
    }
}
