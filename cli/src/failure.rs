//! How a command ends other than well.

use runtime::visible::line;
use std::io::{self, Write as _};
use std::process::ExitCode;

const FAILED: u8 = 1;
/// A flag or a file is wrong: trying again will not help.
const BAD_USAGE: u8 = 2;
/// Something has to be done first.
const REFUSED: u8 = 3;
/// As timeout(1) has it.
const TIMED_OUT: u8 = 124;

/// Why a command ended. Printed as one sentence.
#[derive(Debug)]
pub(crate) enum Failure {
    /// A flag or a file that it names cannot be used.
    Usage(String),
    /// What was asked for cannot be, as things are.
    Refused(String),
    /// It has not come about in the time that was given.
    TimedOut(String),
    /// Anything else.
    Other(anyhow::Error),
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Failure {
        Failure::Other(error)
    }
}

impl Failure {
    pub(crate) fn usage(sentence: impl std::fmt::Display) -> Failure {
        Failure::Usage(sentence.to_string())
    }
}

/// Says on stderr what went wrong, and gives the code for it.
pub(crate) fn exit_code(ended: Result<(), Failure>) -> ExitCode {
    let (code, sentence) = match ended {
        Ok(()) => return ExitCode::SUCCESS,
        Err(Failure::Usage(sentence)) => (BAD_USAGE, sentence),
        Err(Failure::Refused(sentence)) => (REFUSED, sentence),
        Err(Failure::TimedOut(sentence)) => (TIMED_OUT, sentence),
        // Whoever reads the output has had enough of it: no news to anybody.
        Err(Failure::Other(error)) if is_broken_pipe(&error) => return ExitCode::from(FAILED),
        Err(Failure::Other(error)) => (FAILED, format!("{error:#}")),
    };
    // A stderr that cannot be written leaves no way to report that.
    let _closed = writeln!(io::stderr(), "ownergraph: {}", line(&sentence));
    ExitCode::from(code)
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .any(|link| link.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe))
}
