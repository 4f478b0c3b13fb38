//! Reorders the command line. kubectl accepts its flags before and after the command, so `-n shop tree deploy/web` is
//! read as `tree -n shop deploy/web`.
//!
//! The command is not guessed. The flags that all queries share say which of them take a value.

use super::flags::Asking;
use clap::{Arg, ArgAction, Args as _, Command};
use std::ffi::OsString;

/// Flags that are valid alone before a command.
const PLEAS: [(&str, char); 2] = [("help", 'h'), ("version", 'V')];

/// The words in the order in which flags follow their command. The first word is the program, and `program` has its
/// commands. An error concerns a flag before the command.
pub(crate) fn ordered(
    words: impl IntoIterator<Item = OsString>,
    program: &Command,
) -> Result<Vec<OsString>, clap::Error> {
    let mut words: Vec<OsString> = words.into_iter().collect();
    let mut rest = words.split_off(words.len().min(1));
    let mut flags = Vec::new();
    let mut commands: Vec<String> = Vec::new();
    let mut at = Some(program);
    while let Some(of) = at {
        let head = Head::of(&rest, program)?;
        flags.extend(rest.drain(..head.words));
        let Some(name) = head.command else {
            // Only the request for help is left.
            flags = head.plea.into_iter().collect();
            break;
        };
        rest.remove(0);
        at = of.find_subcommand(&name).filter(|found| found.has_subcommands());
        commands.push(name);
    }
    words.extend(commands.into_iter().map(OsString::from));
    words.append(&mut flags);
    words.append(&mut rest);
    Ok(words)
}

/// The part before a command.
struct Head {
    words: usize,
    command: Option<String>,
    /// The request for help or for the version.
    plea: Option<OsString>,
}

impl Head {
    fn of(words: &[OsString], program: &Command) -> Result<Head, clap::Error> {
        let plea = |(name, short)| Arg::new(name).long(name).short(short).action(ArgAction::SetTrue);
        let flags = Command::new("flags")
            .bin_name(program.get_bin_name().unwrap_or(program.get_name()))
            .no_binary_name(true)
            .disable_help_flag(true)
            .disable_help_subcommand(true)
            .disable_version_flag(true)
            .allow_external_subcommands(true)
            .override_usage(format!("{} [FLAGS] COMMAND", program.get_bin_name().unwrap_or(program.get_name())));
        let found = Asking::augment_args(flags).args(PLEAS.map(plea)).try_get_matches_from(words)?;
        let plea = PLEAS.into_iter().find(|(name, _)| found.get_flag(name)).map(|(name, _)| format!("--{name}").into());
        Ok(match found.subcommand() {
            Some((name, behind)) => {
                let behind = behind.get_many::<OsString>("").map_or(0, Iterator::count);
                Head { words: words.len() - behind - 1, command: Some(name.to_owned()), plea }
            }
            None => Head { words: words.len(), command: None, plea },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::ordered;

    fn read(line: &str) -> Result<String, clap::Error> {
        let program = crate::kubectl::questions();
        let words = ordered(line.split(' ').map(Into::into), &program)?;
        let words: Vec<String> = words.into_iter().map(|word| word.into_string().unwrap()).collect();
        Ok(words.join(" "))
    }

    #[test]
    fn flags_before_the_command_go_behind_it() {
        let cases = [
            ("p tree cm/a -n b", "p tree cm/a -n b"),
            ("p -n tree tree cm/a", "p tree -n tree cm/a"),
            ("p -A stuck", "p stuck -A"),
            ("p --context=x -c always -n b why cm/a --as me", "p why --context=x -c always -n b cm/a --as me"),
            ("p -nb plan -o json delete cm/a", "p plan delete -nb -o json cm/a"),
            ("p plan delete cm/a", "p plan delete cm/a"),
            ("p -n stuck tre cm/a", "p tre -n stuck cm/a"),
            ("p -n b --help", "p --help"),
            ("p -h", "p --help"),
            ("p -n b", "p"),
            ("p -n b plan", "p plan"),
            ("p --version", "p --version"),
            ("p help tree", "p help tree"),
        ];
        for (line, expected) in cases {
            assert_eq!(read(line).unwrap(), expected, "{line}");
        }
    }

    #[test]
    fn a_flag_that_no_question_has_is_named() {
        for (line, part) in [("p --frob tree cm/a", "--frob"), ("p --color=blue tree", "blue"), ("p -n", "--namespace")]
        {
            let error = read(line).unwrap_err().to_string();
            assert!(error.contains(part), "{line}: {error}");
        }
    }
}
