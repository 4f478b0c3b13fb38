//! The questions: what depends on what, why, and what a deletion would do. Asking and writing the answer are kept apart: a command asks,
//! and hands plain values to functions that make text of them.
//!
//! In reading order:
//!
//! * [`flags`]: the commands and their flags
//! * `ending`: exit codes
//! * `requests`: the way to the API server, with each request said where that is asked for
//! * `session`: credentials, the terminal, and what could not be seen
//! * `naming`: TYPE/NAME, as kubectl reads it
//! * `targets`: what a deletion begins with
//! * `service`, `direct`: the graph service, or a graph that is listed from here
//! * `snapshot`: a graph in a file
//! * `questions`: its calls, all pages of them
//! * `conditions`: what the API server itself says of the objects on screen
//! * `selector`, `globs`, `narrow`: what is left out
//! * `columns`, `document`, `jsonpath`, `picture`: tables, JSON and YAML, templates, DOT and Mermaid
//! * `complete`: what could come next on a line
//! * one module per command

use crate::failure::Failure;
use crate::{pausing, status};
use clap::error::ErrorKind;
use ending::{Answered, Ending, Problem};
use flags::{Command, Connection, Plan, PluginCommand};
use service::Way;
use std::io::Write as _;
use std::process::ExitCode;

pub(crate) use complete::complete;

mod columns;
mod complete;
mod conditions;
mod cycles;
mod decisions;
mod delete;
mod direct;
mod document;
mod ending;
mod export;
pub(crate) mod flags;
mod globs;
mod jsonpath;
pub(crate) mod line;
mod naming;
mod narrow;
mod path;
mod picture;
mod plan;
mod progress;
mod questions;
mod queue;
mod references;
mod requests;
mod selector;
mod service;
mod session;
mod snapshot;
mod stuck;
mod targets;
mod tree;
mod version;
mod why;

/// How kubectl itself comes to complete.
const INSTALL: &str = "this is for the program by its own name; for `kubectl ownergraph`, put its companion on the PATH: \
     ln -s \"$(dirname \"$(realpath \"$(command -v kubectl-ownergraph)\")\")/kubectl_complete-ownergraph\" /usr/local/bin/";

/// What `kubectl ownergraph` does.
pub(crate) async fn plugin(command: PluginCommand, program: clap::Command) -> ExitCode {
    let ended = match command {
        PluginCommand::Ask(command) => return Box::pin(run(*command, program)).await,
        PluginCommand::Status(flags) => {
            brake(flags.connection, async |way| status::run(way, flags.output, flags.watch).await).await
        }
        PluginCommand::Pause(flags) => {
            brake(flags.connection, async |way| pausing::pause(way, flags.flags).await).await
        }
        PluginCommand::Resume(flags) => {
            brake(flags.connection, async |way| pausing::resume(way, flags.flags).await).await
        }
        PluginCommand::Crds => pausing::crds().map_err(Problem::from),
    };
    ending::exit_code(ended.map(|()| Ending::Fine))
}

/// Does something by way of the cluster that the flags name.
async fn brake(connection: Connection, act: impl AsyncFnOnce(&Way) -> Result<(), Failure>) -> Result<(), Problem> {
    if connection.from_file.is_some() {
        return Err(Problem::sentence("--from-file reads a graph only; this is about a collector that runs"));
    }
    let cluster = requests::connect(&connection).await?;
    Ok(act(&Way::new(connection, cluster)).await?)
}

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
        Command::Decisions(flags) => decisions::run(flags).await,
        Command::Queue(flags) => queue::run(flags).await,
        Command::Progress(flags) => progress::run(flags).await,
        Command::Export(flags) => export::run(flags).await,
        Command::Completion { shell } => {
            let name = program.get_name().to_owned();
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut program, name, &mut script);
            std::io::stdout().write_all(&script).map_err(|error| Problem::Other(error.into()))?;
            ending::note(INSTALL);
            Ok(Ending::Fine)
        }
        Command::Version(flags) => version::run(flags).await,
    }
}

/// Whether a command asks a question: then 2 means findings, and a flag that cannot be used is an error like others.
pub(crate) fn is_question(command: &str) -> bool {
    questions().find_subcommand(command).is_some()
}

/// The questions alone.
pub(crate) fn questions() -> clap::Command {
    <Command as clap::Subcommand>::augment_subcommands(clap::Command::new("questions"))
}

/// Help and version go to stdout; what cannot be parsed is said on stderr.
pub(crate) fn misused(error: &clap::Error, question: bool) -> ExitCode {
    // Two streams that cannot be written leave no way to report that.
    let _closed = error.print();
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        ExitCode::SUCCESS
    } else if question {
        ExitCode::from(ending::FAILED)
    } else {
        ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(ending::FAILED))
    }
}
