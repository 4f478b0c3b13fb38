//! The query commands, `pause` and `delete`. Queries and output are separate: a command queries, and passes plain
//! values to functions that format them.
//!
//! In reading order:
//!
//! * [`flags`]: the commands and their flags
//! * `ending`: exit codes
//! * `requests`: the client of the API server, which prints each request at a high verbosity
//! * `printer`: formats, templates and colours
//! * `session`: credentials, the terminal, and the list of missing information
//! * `naming`: TYPE/NAME, as in kubectl
//! * `targets`: the targets of a deletion
//! * `reviews`: what the API server says about the caller
//! * `service`, `direct`, `rights`: the graph service, or a graph that this process lists itself with the caller's
//!   rights
//! * `snapshot`: a graph in a file
//! * `bundle`: a file for a bug report
//! * `questions`: the calls of the graph service, with all pages of the answers
//! * `conditions`: the state of the shown objects, from the API server
//! * `selector`, `globs`, `narrow`: filters
//! * `columns`, `document`, `jsonpath`, `picture`: tables, JSON and YAML, templates, DOT and Mermaid
//! * `guards`: guards at the API server, what they hold, and the commands that release it
//! * `confirm`: confirmation at the terminal
//! * `complete`: completion of command lines
//! * one module per command

use crate::failure::FAILED;
use crate::name;
use clap::error::ErrorKind;
use clap::{ArgMatches, Args as _};
use ending::{Answered, Ending, Problem};
use flags::{Command, Connection, Plan};
use service::Way;
use std::io::Write as _;
use std::process::ExitCode;

pub(crate) use complete::complete;

mod bundle;
mod columns;
mod complete;
mod conditions;
mod confirm;
pub(crate) mod console;
mod cycles;
mod decisions;
mod delete;
mod direct;
pub(crate) mod document;
mod ending;
mod export;
pub(crate) mod flags;
mod globs;
mod guards;
mod jsonpath;
pub(crate) mod line;
mod naming;
mod narrow;
mod parity;
mod path;
mod pausing;
mod picture;
mod plan;
pub(crate) mod printer;
mod progress;
mod questions;
mod queue;
mod references;
mod replay;
mod requests;
mod reviews;
mod rights;
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
const INSTALL: &str = "this script completes the program under the name that it was called by; to use it as `kubectl ownergraph`, create two links: for name in kubectl-ownergraph kubectl_complete-ownergraph; do ln -s \"$(command -v ownergraph)\" /usr/local/bin/$name; done";

/// The connection to the collector that the flags name. It needs access to a cluster only if no address is given.
async fn way(connection: Connection) -> Result<Way, Problem> {
    if connection.from_file.is_some() {
        return Err(Problem::sentence("--from-file has only a graph; this command needs a running collector"));
    }
    if connection.direct {
        return Err(Problem::sentence("--direct only reads; this command needs a graph service"));
    }
    let cluster = if connection.is_named() {
        Err("--server already names the graph service".to_owned())
    } else {
        requests::connect(&connection).await.map_err(|problem| problem.to_string())
    };
    Ok(Way::new(connection, cluster))
}

/// Keeps the flags of this call that say how to reach things, for printed commands.
pub(crate) fn remember(found: &ArgMatches) {
    name::remember(found, &Connection::augment_args(clap::Command::new("connection")));
}

/// Runs a query command. `program` is the command line for completion scripts.
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
        Command::Progress(flags) => Box::pin(progress::run(flags)).await,
        Command::Parity(flags) => parity::run(flags).await,
        Command::Status(flags) => status::run(flags).await,
        Command::Pause(flags) => pausing::pause(flags).await,
        Command::Resume(flags) => pausing::resume(flags).await,
        Command::Protect(flags) => guards::create::protect(*flags).await,
        Command::Budget(flags) => guards::create::budget(*flags).await,
        Command::Approve(flags) => guards::approve::run(flags).await,
        Command::Release(flags) => guards::release::run(flags).await,
        Command::Gates(flags) => guards::gates::run(flags).await,
        Command::Console(flags) => console::run(flags).await,
        Command::Crds => pausing::crds(),
        Command::Export(flags) => export::run(flags).await,
        Command::Replay(flags) => replay::run(&flags),
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

/// The query commands only.
#[cfg(test)]
pub(crate) fn questions() -> clap::Command {
    <Command as clap::Subcommand>::augment_subcommands(clap::Command::new("questions"))
}

/// Prints help and version to stdout, and parse errors to stderr. As with kubectl, a flag that cannot be used is an
/// error like others: 2 means findings.
pub(crate) fn misused(error: &clap::Error) -> ExitCode {
    // If both streams cannot be written, the error cannot be reported.
    let _closed = error.print();
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(FAILED)
    }
}
