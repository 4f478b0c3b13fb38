//! `ownergraph`: the whole collector in one program, to see it (`demo`), to run it (`collect`), to test against (`sandbox`), and to ask
//! it (`tree`, `why`, `plan` and so on). Under the name `kubectl-ownergraph` it is a plug-in of kubectl, and under
//! `kubectl_complete-ownergraph` it completes the lines of that.
//!
//! In reading order:
//!
//! * `name`: what this program was called as
//! * `args`, `examples`: the commands, their flags, and how they are used
//! * `sandbox_command`: the in-memory API server alone
//! * `collect`: graph service and executors against any API server
//! * `trial`: objects for a collector that runs somewhere
//! * `demo`: all of it together, telling what happens and why
//! * `collector`, `pipe`: the two services in one process
//! * `kubectl`: the questions, the brake, and the deletion by plan
//! * `remote`: the way to a graph service somewhere else
//! * `failure`: exit codes

mod args;
mod collect;
mod collector;
mod demo;
mod examples;
mod failure;
mod kubectl;
mod name;
mod pipe;
mod remote;
mod sandbox_command;
mod trial;

use args::{Args, Command};
use clap::FromArgMatches as _;
use kubectl::line::Line;
use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;

/// The program, under each of its names.
pub fn main() -> ExitCode {
    match Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) if name::completes() => complete(runtime),
        Ok(runtime) => runtime.block_on(run()),
        Err(error) => failure::exit_code(Err(anyhow::Error::from(error).context("starting threads").into())),
    }
}

async fn run() -> ExitCode {
    let program = args::command();
    let line = match Line::read(std::env::args_os(), &program) {
        Ok(line) => line,
        Err(error) => return kubectl::misused(&error, true),
    };
    let read = program.clone().try_get_matches_from(line.words).and_then(|found| Args::from_arg_matches(&found));
    let command = match read {
        Ok(args) => args.command,
        Err(error) => {
            // An unknown command gets the codes of queries: 2 means findings.
            let is_question = |name: String| kubectl::is_question(&name) || program.find_subcommand(name).is_none();
            return kubectl::misused(&error, line.command.is_some_and(is_question));
        }
    };
    let ended = match command {
        Command::Demo(flags) => demo::run(flags).await,
        Command::Sandbox(flags) => sandbox_command::run(flags).await,
        Command::Collect(flags) => collect::run(*flags).await,
        Command::Try(flags) => trial::run(flags).await,
        Command::Ask(command) => return Box::pin(kubectl::run(*command, program)).await,
    };
    failure::exit_code(ended)
}

/// What kubectl runs to complete a line of `kubectl ownergraph`. In two seconds it has said what it knows, or it says nothing: an error has
/// no place on a line that is being written.
fn complete(runtime: Runtime) -> ExitCode {
    const WITHIN: Duration = Duration::from_secs(2);
    let said = runtime.block_on(async {
        // A thread of its own: a plugin that fetches credentials may block it for any time.
        let mut task = JoinSet::new();
        task.spawn(kubectl::complete(std::env::args_os().collect(), args::command()));
        tokio::time::timeout(WITHIN, task.join_next()).await
    });
    runtime.shutdown_background();
    let written = match said {
        Ok(Some(Ok(Some(text)))) => std::io::stdout().write_all(text.as_bytes()).is_ok(),
        Ok(Some(Ok(None) | Err(_)) | None) | Err(_) => false,
    };
    if written { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
