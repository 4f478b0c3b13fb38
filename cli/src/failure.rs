//! How a command fails.

use http::StatusCode;
use kube::core::Status;
use runtime::visible::line;
use std::io::{self, Write as _};
use std::process::ExitCode;

pub(crate) const FAILED: u8 = 1;
/// A precondition is not met.
pub(crate) const REFUSED: u8 = 3;
/// The code of timeout(1).
pub(crate) const TIMED_OUT: u8 = 124;

/// The reason why a command ended. It is printed as one sentence.
#[derive(Debug)]
pub(crate) enum Failure {
    /// A flag or a file that it names cannot be used. A retry fails again.
    Usage(String),
    /// The current state does not allow the request.
    Refused(String),
    /// The condition was not met within the time limit.
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

/// Prints the error to stderr, and returns its exit code.
pub(crate) fn exit_code(ended: Result<(), Failure>) -> ExitCode {
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => report("ownergraph", failure),
    }
}

/// Prints an error to stderr, after this word, and returns its exit code.
pub(crate) fn report(word: &str, failure: Failure) -> ExitCode {
    let (code, sentence) = match failure {
        Failure::Usage(sentence) => (FAILED, sentence),
        Failure::Refused(sentence) => (REFUSED, sentence),
        Failure::TimedOut(sentence) => (TIMED_OUT, sentence),
        // The reader closed the pipe, so print nothing.
        Failure::Other(error) if is_broken_pipe(&error) => return ExitCode::from(FAILED),
        Failure::Other(error) => (FAILED, sentence(&error)),
    };
    // If stderr cannot be written, the error cannot be reported.
    let _closed = writeln!(io::stderr(), "{word}: {}", line(&sentence));
    ExitCode::from(code)
}

/// An error with its causes. The text of kube's error has a dump of the whole answer in it.
pub(crate) fn sentence(error: &anyhow::Error) -> String {
    let mut words = Vec::new();
    for link in error.chain() {
        if let Some(kube::Error::Api(status)) = link.downcast_ref() {
            words.push(refusal(status));
            break;
        }
        words.push(link.to_string());
    }
    words.join(": ")
}

/// Returns the explanation of the API server, or says that the API server gave none.
pub(crate) fn refusal(status: &Status) -> String {
    let reason = StatusCode::from_u16(status.code).ok().and_then(|code| code.canonical_reason());
    match status.message.as_str() {
        "" => format!("the answer is {} {} without an explanation", status.code, reason.unwrap_or_default()),
        message => message.to_owned(),
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .any(|link| link.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe))
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context as _;

    #[test]
    fn an_answer_of_the_api_server_is_one_sentence() {
        let said = |message: &str| {
            let status = Status { code: 403, message: message.to_owned(), ..Status::default() };
            let error = Err::<(), _>(kube::Error::Api(Box::new(status))).context("pods cannot be listed");
            sentence(&error.unwrap_err())
        };
        assert_eq!(said("pods is forbidden"), "pods cannot be listed: pods is forbidden");
        assert_eq!(said(""), "pods cannot be listed: the answer is 403 Forbidden without an explanation");
    }
}
