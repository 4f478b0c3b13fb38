//! The questions: what depends on what, why, and what a deletion would do; and the brake. Asking and writing the answer are kept apart: a command asks,
//! and hands plain values to functions that make text of them.
//!
//! In reading order:
//!
//! * [`flags`]: the commands and their flags
//! * `ending`: exit codes
//! * `requests`: the way to the API server, with each request said where that is asked for
//! * `printer`: formats, templates and colours
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

use clap::error::ErrorKind;
use ending::{Answered, Ending, Problem};
use flags::{Command, Connection, Plan};
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
pub(crate) mod document;
mod ending;
mod export;
pub(crate) mod flags;
mod globs;
mod jsonpath;
pub(crate) mod line;
mod naming;
mod narrow;
mod path;
mod pausing;
mod picture;
mod plan;
pub(crate) mod printer;
mod progress;
mod questions;
mod queue;
mod references;
mod requests;
mod selector;
mod service;
mod session;
mod snapshot;
mod status;
mod stuck;
mod targets;
mod tree;
mod version;
mod why;

/// How kubectl starts completion.
const INSTALL: &str = "this is for the program by the name that was called; for `kubectl ownergraph`, give it its two other names: \
     for name in kubectl-ownergraph kubectl_complete-ownergraph; do ln -s \"$(command -v ownergraph)\" /usr/local/bin/$name; done";

/// The connection to the collector that the flags name. It needs a cluster only if no address is given.
async fn way(connection: Connection) -> Result<Way, Problem> {
    if connection.from_file.is_some() {
        return Err(Problem::sentence("--from-file reads a graph only; this is about a collector that runs"));
    }
    let cluster = if connection.is_named() {
        Err("--server says where it is".to_owned())
    } else {
        requests::connect(&connection).await.map_err(|problem| problem.to_string())
    };
    Ok(Way::new(connection, cluster))
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
        Command::Status(flags) => status::run(flags).await,
        Command::Pause(flags) => pausing::pause(flags).await,
        Command::Resume(flags) => pausing::resume(flags).await,
        Command::Crds => pausing::crds(),
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

/// The query commands only.
pub(crate) fn questions() -> clap::Command {
    <Command as clap::Subcommand>::augment_subcommands(clap::Command::new("questions"))
}

/// Help and version go to stdout; what cannot be parsed is said on stderr.
pub(crate) fn misused(error: &clap::Error, question: bool) -> ExitCode {
    // If both streams cannot be written, the error cannot be reported.
    let _closed = error.print();
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        ExitCode::SUCCESS
    } else if question {
        ExitCode::from(ending::FAILED)
    } else {
        ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(ending::FAILED))
    }
}
