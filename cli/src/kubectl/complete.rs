//! `kubectl_complete-ownergraph`: completes a command line for kubectl. The output has the candidates, one per line,
//! and then a directive for the shell. Types, names, namespaces and contexts come from the cluster that the line names.

use super::ending::Problem;
use super::flags::{Asking, Connection, Output};
use super::line::ordered;
use clap::{Arg, ArgAction, ArgMatches, Args as _, Command, FromArgMatches as _, ValueHint};
use live::Live;
use runtime::visible::is_harmless;
use std::ffi::OsString;
use std::path::PathBuf;

mod live;
#[cfg(test)]
mod tests;

/// Directive: the shell must not complete file names.
const WORDS_ONLY: &str = ":4";
/// Directive: the shell completes file names.
const FILES: &str = ":0";

/// A candidate, with its description.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    word: String,
    about: String,
}

/// The candidates for the end of a line.
#[derive(Debug, PartialEq)]
enum Wanted {
    These(Vec<Candidate>),
    /// Candidates from the cluster or the kubeconfig, each with this text as a prefix.
    Live(Live, String),
    Files,
}

/// The answer to kubectl. `words` begin with the program, and end with the word to complete. `None` if there are no
/// candidates.
pub(crate) async fn complete(words: Vec<OsString>, plain: Command) -> Option<String> {
    answer(words, plain).await.ok()
}

async fn answer(words: Vec<OsString>, plain: Command) -> Result<String, Problem> {
    let mut program = Asking::augment_args(plain.clone());
    program.build();
    let (current, before) = words.split_last().ok_or_else(|| Problem::sentence("there is nothing to complete"))?;
    let current = current.to_string_lossy();
    let line = ordered(before.iter().cloned(), &plain).unwrap_or_else(|_| before.to_vec());
    let command = innermost(&program, &line);
    let found = match wanted(command, before.last().map(|word| word.to_string_lossy()).as_deref(), &current) {
        Wanted::Files => return Ok(format!("{FILES}\n")),
        Wanted::These(candidates) => candidates,
        Wanted::Live(what, prefix) => {
            let (asking, named) = context(&line, plain)?;
            let typed = current.strip_prefix(&prefix).unwrap_or_default();
            let mut words = live::words(what, asking, &named, typed).await?;
            words.iter_mut().for_each(|word| word.insert_str(0, &prefix));
            words.into_iter().map(|word| Candidate { word, about: String::new() }).collect()
        }
    };
    Ok(text(found, &current))
}

fn text(mut found: Vec<Candidate>, current: &str) -> String {
    // Terminal control characters cannot be typed, so such words are left out.
    found.retain(|candidate| candidate.word.starts_with(current) && candidate.word.chars().all(is_harmless));
    found.sort();
    found.dedup_by(|a, b| a.word == b.word);
    let line = |Candidate { word, about }: Candidate| {
        if about.is_empty() { format!("{word}\n") } else { format!("{word}\t{about}\n") }
    };
    found.into_iter().map(line).chain([format!("{WORDS_ONLY}\n")]).collect()
}

/// The innermost command of a line, with the index at which its flags begin.
fn innermost<'c>(program: &'c Command, line: &[OsString]) -> &'c Command {
    let mut at = program;
    let Some((_program, words)) = line.split_first() else { return at };
    for word in words.iter().filter_map(|word| word.to_str()) {
        match at.find_subcommand(word) {
            Some(found) => at = found,
            None => break,
        }
    }
    at
}

fn wanted(command: &Command, previous: Option<&str>, current: &str) -> Wanted {
    let takes = |flag: &&Arg| matches!(flag.get_action(), ArgAction::Set | ArgAction::Append);
    if let Some(flag) = previous.and_then(|word| flag(command, word)).filter(takes) {
        return values(flag, String::new());
    }
    if let Some((name, _)) = current.split_once('=')
        && let Some(flag) = flag(command, name).filter(takes)
    {
        return values(flag, format!("{name}="));
    }
    if current.starts_with('-') {
        return Wanted::These(command.get_arguments().filter_map(described).collect());
    }
    if command.has_subcommands() {
        let about = |of: &Command| of.get_about().map(ToString::to_string).unwrap_or_default();
        let shown = command.get_subcommands().filter(|of| !of.is_hide_set());
        let candidate = |of: &Command| Candidate { word: of.get_name().to_owned(), about: about(of) };
        return Wanted::These(shown.map(candidate).collect());
    }
    command.get_positionals().next().map_or(Wanted::These(Vec::new()), |positional| values(positional, String::new()))
}

/// The flag that a word is: `--name`, `-n`, or the last of `-wn`.
fn flag<'c>(command: &'c Command, word: &str) -> Option<&'c Arg> {
    let is = |arg: &&Arg| match word.strip_prefix("--") {
        Some(long) => arg.get_long() == Some(long),
        None => word.starts_with('-') && word.len() > 1 && arg.get_short() == word.chars().last(),
    };
    command.get_arguments().find(is)
}

fn described(flag: &Arg) -> Option<Candidate> {
    let word = format!("--{}", flag.get_long()?);
    Some(Candidate { word, about: flag.get_help().map(ToString::to_string).unwrap_or_default() })
}

/// The possible values of a flag or a positional argument.
fn values(of: &Arg, prefix: String) -> Wanted {
    let possible = of.get_possible_values();
    if !possible.is_empty() {
        let candidate = |value: &clap::builder::PossibleValue| Candidate {
            word: format!("{prefix}{}", value.get_name()),
            about: value.get_help().map(ToString::to_string).unwrap_or_default(),
        };
        return Wanted::These(possible.iter().filter(|value| !value.is_hide_set()).map(candidate).collect());
    }
    match (of.get_id().as_str(), of.get_value_hint()) {
        ("object" | "objects", _) => Wanted::Live(Live::Objects, prefix),
        ("guards", _) => Wanted::Live(Live::Guards, prefix),
        ("root", _) => Wanted::Live(Live::Roots, prefix),
        ("kind", _) => Wanted::Live(Live::Types, prefix),
        ("owner", _) => Wanted::Live(Live::Objects, prefix),
        ("namespace" | "port_forward_namespace", _) => Wanted::Live(Live::Namespaces, prefix),
        ("context", _) => Wanted::Live(Live::Contexts, prefix),
        (_, ValueHint::FilePath | ValueHint::AnyPath | ValueHint::DirPath) => Wanted::Files,
        (_, _) => Wanted::These(Vec::new()),
    }
}

/// The connection to the cluster, and the objects that the line already names. The line may be incomplete.
fn context(line: &[OsString], plain: Command) -> Result<(Asking, Vec<String>), Problem> {
    // The same flags are valid before the command.
    let program = Asking::augment_args(plain).ignore_errors(true);
    let mut found = program.try_get_matches_from(line).map_err(|error| Problem::sentence(error.to_string()))?;
    while let Some((_, behind)) = found.remove_subcommand() {
        found = behind;
    }
    let asking = asking(&found).map_err(|error| Problem::sentence(error.to_string()))?;
    let named = ["object", "objects"].into_iter().filter_map(|id| found.try_get_many::<String>(id).ok().flatten());
    Ok((asking, named.flatten().cloned().collect()))
}

/// The flags that the command has. Some commands have a part of them only.
fn asking(found: &ArgMatches) -> Result<Asking, clap::Error> {
    let text = |id| found.try_get_many::<String>(id).ok().flatten().and_then(|mut all| all.next_back().cloned());
    // A flag with a default value is in all matches of a command that has the flag.
    let connection = if matches!(found.try_contains_id("verbosity"), Ok(true)) {
        Connection::from_arg_matches(found)?
    } else {
        let kubeconfig = found.try_get_one::<PathBuf>("kubeconfig").ok().flatten().cloned();
        Connection { kubeconfig, context: text("context"), ..Connection::direct() }
    };
    let all_namespaces = found.try_get_one("all_namespaces").ok().flatten().copied().unwrap_or_default();
    Ok(Asking { namespace: text("namespace"), all_namespaces, connection, output: Output::default() })
}
