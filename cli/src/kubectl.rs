//! The questions: what depends on what, why, and what a deletion would do. Asking and writing the answer are kept apart: a command asks,
//! and hands plain values to functions that make text of them.
//!
//! In reading order:
//!
//! * [`flags`]: the commands and their flags
//! * `ending`: exit codes
//! * `session`: credentials, the terminal, and what could not be seen
//! * `naming`: TYPE/NAME, as kubectl reads it
//! * `service`, `direct`: the graph service, or a graph that is listed from here
//! * `questions`: its calls, all pages of them
//! * `conditions`: what the API server itself says of the objects on screen
//! * `columns`, `document`, `picture`: tables, JSON and YAML, DOT and Mermaid
//! * one module per command

use clap::error::ErrorKind;
use ending::{Answered, Ending, Problem};
use flags::{Command, Plan};
use std::io::Write as _;
use std::process::ExitCode;

mod columns;
mod conditions;
mod cycles;
mod delete;
mod direct;
mod document;
mod ending;
mod export;
pub(crate) mod flags;
mod naming;
mod path;
mod picture;
mod plan;
mod questions;
mod references;
mod service;
mod session;
mod stuck;
mod tree;
mod version;
mod why;

/// Answers a question. `program` is the command line that it came from, for completion scripts.
pub(crate) async fn run(command: Command, program: clap::Command) -> ExitCode {
    ending::exit_code(Box::pin(answer(command, program)).await)
}

async fn answer(command: Command, mut program: clap::Command) -> Answered {
    match command {
        Command::Tree(flags) => tree::run(flags).await,
        Command::Owners(flags) => tree::run(flags.into()).await,
        Command::Path(flags) => path::run(flags).await,
        Command::Why(flags) => why::run(flags).await,
        Command::Plan(Plan::Delete(flags)) => plan::run(flags).await,
        Command::Delete(flags) => delete::run(flags).await,
        Command::Stuck(flags) => stuck::run(flags).await,
        Command::Cycles(flags) => cycles::run(flags).await,
        Command::Orphans(flags) => references::orphans(flags).await,
        Command::Check(flags) => references::check(flags).await,
        Command::Export(flags) => export::run(flags).await,
        Command::Completion { shell } => {
            let name = program.get_name().to_owned();
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut program, name, &mut script);
            std::io::stdout().write_all(&script).map_err(|error| Problem::Other(error.into()))?;
            Ok(Ending::Fine)
        }
        Command::Version(flags) => version::run(flags).await,
    }
}

/// Whether a command line asks a question: then 2 means findings, and a flag that cannot be used is an error like others.
pub(crate) fn is_question(mut arguments: impl Iterator<Item = String>) -> bool {
    use clap::CommandFactory as _;
    let first = arguments.find(|argument| !argument.starts_with('-')).unwrap_or_default();
    flags::Plugin::command().get_subcommands().any(|command| command.get_name() == first)
}

/// Help and version go to stdout; what cannot be parsed is said on stderr.
pub(crate) fn misused(error: &clap::Error, question: bool) -> ExitCode {
    // Where neither stream can be written there is nobody to tell.
    let _closed = error.print();
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        ExitCode::SUCCESS
    } else if question {
        ExitCode::from(ending::FAILED)
    } else {
        ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(ending::FAILED))
    }
}
