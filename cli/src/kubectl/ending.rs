//! The end of a query command.

use crate::failure::{FAILED, Failure, REFUSED, report, sentence};
use runtime::visible::line;
use std::io::{self, Write as _};
use std::process::ExitCode;

const FINDINGS: u8 = 2;

/// The command printed an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// Everything is fine, or nothing was found.
    Fine,
    /// The named object does not exist, which is an error as in kubectl. The answer says so.
    Absent,
    /// Findings that may need action.
    Findings,
    /// The answer is not certain enough to act on.
    Refused,
}

/// Why there is no answer. Each problem is printed as one sentence.
#[derive(Debug)]
pub(crate) enum Problem {
    Refused(String),
    TimedOut(String),
    Other(anyhow::Error),
}

pub(super) type Answered = Result<Ending, Problem>;

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Problem::Refused(sentence) | Problem::TimedOut(sentence) => f.write_str(sentence),
            Problem::Other(error) => f.write_str(&sentence(error)),
        }
    }
}

impl Problem {
    pub(super) fn sentence(text: impl Into<String>) -> Problem {
        Problem::Other(anyhow::Error::msg(text.into()))
    }

    /// Whether the output cannot take the answer. Another question would not help.
    pub(super) fn is_unwritten(&self) -> bool {
        matches!(self, Problem::Other(error) if error.is::<Unwritten>())
    }
}

#[derive(Debug, thiserror::Error)]
#[error("the answer cannot be written")]
struct Unwritten;

impl From<anyhow::Error> for Problem {
    fn from(error: anyhow::Error) -> Problem {
        Problem::Other(error)
    }
}

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Failure {
        match problem {
            Problem::Refused(sentence) => Failure::Refused(sentence),
            Problem::TimedOut(sentence) => Failure::TimedOut(sentence),
            Problem::Other(error) => Failure::Other(error),
        }
    }
}

impl From<Failure> for Problem {
    fn from(failure: Failure) -> Problem {
        match failure {
            Failure::Usage(sentence) => Problem::sentence(sentence),
            Failure::Refused(sentence) => Problem::Refused(sentence),
            Failure::TimedOut(sentence) => Problem::TimedOut(sentence),
            Failure::Other(error) => Problem::Other(error),
        }
    }
}

impl From<io::Error> for Problem {
    fn from(error: io::Error) -> Problem {
        Problem::Other(anyhow::Error::from(error).context(Unwritten))
    }
}

/// Prints the error to stderr, and returns its exit code.
pub(super) fn exit_code(answered: Answered) -> ExitCode {
    match answered {
        Ok(Ending::Fine) => ExitCode::SUCCESS,
        Ok(Ending::Absent) => ExitCode::from(FAILED),
        Ok(Ending::Findings) => ExitCode::from(FINDINGS),
        Ok(Ending::Refused) => ExitCode::from(REFUSED),
        Err(problem) => report("error", problem.into()),
    }
}

/// Prints a note that is not part of the answer.
pub(super) fn note(text: &str) {
    // If stderr cannot be written, the note is lost.
    let _closed = writeln!(io::stderr(), "note: {}", line(text));
}
