//! `ownergraph`: the whole collector in one program, to see it (`demo`), to run it (`collect`), to test against (`sandbox`), and to ask
//! it (`tree`, `why`, `plan` and so on). The questions alone are `kubectl-ownergraph`, and
//! `kubectl_complete-ownergraph` completes them.
//!
//! In reading order:
//!
//! * `args`, `flags`: the commands and their flags
//! * `sandbox_command`: the in-memory API server alone
//! * `collect`: graph service and executors against any API server
//! * `trial`: objects for a collector that runs somewhere
//! * `pausing`, `status`: the brake and the state of a collector that runs somewhere
//! * `demo`: all of it together, telling what happens and why
//! * `collector`, `pipe`: the two services in one process
//! * `kubectl`: the questions, and the deletion by plan
//! * `remote`: the way to a graph service somewhere else
//! * `table`: rows for people
//! * `failure`: exit codes

mod args;
mod collect;
mod collector;
mod demo;
mod failure;
mod flags;
mod kubectl;
mod pausing;
mod pipe;
mod remote;
mod sandbox_command;
mod status;
mod table;
mod trial;

use args::{Args, Command};
use clap::{CommandFactory as _, Parser as _};
use kubectl::flags::Plugin;
use kubectl::line::Line;
use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;
use tokio::task::JoinSet;

/// The program `ownergraph`.
pub async fn ownergraph() -> ExitCode {
    let line = match Line::read(std::env::args_os(), &Args::command()) {
        Ok(line) => line,
        Err(error) => return kubectl::misused(&error, true),
    };
    let command = match Args::try_parse_from(line.words) {
        Ok(args) => args.command,
        Err(error) => return kubectl::misused(&error, line.command.is_some_and(|name| kubectl::is_question(&name))),
    };
    let ended = match command {
        Command::Demo(flags) => demo::run(flags).await,
        Command::Sandbox(flags) => sandbox_command::run(flags).await,
        Command::Collect(flags) => collect::run(*flags).await,
        Command::Try(flags) => trial::run(flags).await,
        Command::Pause(flags) => pausing::pause(&flags.remote, flags.flags).await,
        Command::Resume(flags) => pausing::resume(&flags.remote, flags.flags).await,
        Command::Status(flags) => status::run(&flags.remote, flags.output, flags.watch).await,
        Command::Crds => pausing::crds(),
        Command::Ask(command) => return Box::pin(kubectl::run(*command, Args::command())).await,
    };
    failure::exit_code(ended)
}

/// The program `kubectl-ownergraph`, which kubectl runs for `kubectl ownergraph`.
pub async fn kubectl_plugin() -> ExitCode {
    let line = Line::read(std::env::args_os(), &Plugin::command());
    match line.and_then(|line| Plugin::try_parse_from(line.words)) {
        Ok(plugin) => Box::pin(kubectl::plugin(plugin.command, Plugin::command())).await,
        Err(error) => kubectl::misused(&error, true),
    }
}

/// The program `kubectl_complete-ownergraph`, which kubectl runs to complete a line of `kubectl ownergraph`. In two seconds it has said
/// what it knows, or it says nothing: an error has no place on a line that somebody is writing.
pub fn kubectl_complete() -> ExitCode {
    const WITHIN: Duration = Duration::from_secs(2);
    let Ok(runtime) = tokio::runtime::Builder::new_multi_thread().enable_all().build() else {
        return ExitCode::FAILURE;
    };
    let said = runtime.block_on(async {
        // On a thread of its own: a plugin that fetches credentials holds it for as long as it likes.
        let mut task = JoinSet::new();
        task.spawn(kubectl::complete(std::env::args_os().collect()));
        tokio::time::timeout(WITHIN, task.join_next()).await
    });
    runtime.shutdown_background();
    let written = match said {
        Ok(Some(Ok(Some(text)))) => std::io::stdout().write_all(text.as_bytes()).is_ok(),
        Ok(Some(Ok(None) | Err(_)) | None) | Err(_) => false,
    };
    if written { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
