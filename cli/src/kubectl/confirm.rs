//! Confirmation at the terminal: the user types a word.

use super::ending::Problem;
use anstream::AutoStream;
use anyhow::Context as _;
use std::io::{self, BufRead, Read as _, Write};

/// Maximum length of a typed answer.
const WORD_MAX_BYTES: u64 = 1 << 10;

/// Shows a text on the terminal, and asks the question, if there is one, whose word agrees. `nothing` says what was not
/// done.
pub(super) fn confirmed(shown: &str, asked: Option<(&str, &str)>, nothing: &str) -> Result<(), Problem> {
    let mut terminal = AutoStream::auto(io::stderr().lock());
    terminal.write_all(shown.as_bytes())?;
    match asked {
        Some(asked) => agreed(asked, nothing, &mut io::stdin().lock(), &mut terminal),
        None => Ok(()),
    }
}

fn agreed(
    (question, word): (&str, &str),
    nothing: &str,
    typed: &mut impl BufRead,
    terminal: &mut impl Write,
) -> Result<(), Problem> {
    terminal.write_all(question.as_bytes())?;
    terminal.flush()?;
    let mut line = String::new();
    typed.take(WORD_MAX_BYTES).read_line(&mut line).context("the typed answer cannot be read from the terminal")?;
    if line.trim() == word {
        return Ok(());
    }
    Err(Problem::Refused(format!("{:?} is not {word:?}; {nothing}", line.trim())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_word_that_is_asked_for_is_agreement() {
        let asked = |word: &str, typed: &str| {
            let mut terminal = Vec::new();
            let agreed = agreed(("Type it: ", word), "nothing was deleted", &mut typed.as_bytes(), &mut terminal);
            assert_eq!(terminal, b"Type it: ");
            agreed.map_err(|problem| problem.to_string())
        };
        assert_eq!(asked("web", " web \n"), Ok(()));
        for wrong in ["", "\n", "y\n", "yes\n", "Web\n", "web web\n", "webx"] {
            let why = asked("web", wrong).unwrap_err();
            assert!(why.ends_with("is not \"web\"; nothing was deleted"), "{wrong:?}: {why}");
        }
    }
}
