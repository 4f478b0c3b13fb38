//! `ownergraph`: the whole collector in one program, to see it (`demo`), to run it (`collect`), to test against (`sandbox`), and to ask
//! it (`tree`, `why`, `plan` and so on). The questions alone are `kubectl-ownergraph`.
//!
//! In reading order:
//!
//! * `args`: the commands and their flags
//! * `line`: flags before the command
//! * `sandbox_command`: the in-memory API server alone
//! * `collect`: graph service and executors against any API server
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
mod kubectl;
mod line;
mod pausing;
mod pipe;
mod remote;
mod sandbox_command;
mod status;
mod table;

use args::{Args, Command};
use clap::{CommandFactory as _, Parser as _};
use kubectl::flags::Plugin;
use line::Line;
use std::process::ExitCode;

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
        Command::Collect(flags) => collect::run(flags).await,
        Command::Pause(flags) => pausing::pause(&flags.remote, flags.flags).await,
        Command::Resume(flags) => pausing::resume(&flags.remote, flags.flags).await,
        Command::Status(flags) => status::run(&flags.remote, flags.output).await,
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
