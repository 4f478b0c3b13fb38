//! `ownergraph`: the whole collector in one program, to see it (`demo`), to run it (`collect`), and to test against (`sandbox`).
//!
//! In reading order:
//!
//! * `args`: the commands and their flags
//! * `sandbox_command`: the in-memory API server alone
//! * `collect`: graph service and executors against any API server
//! * `pausing`, `status`: the brake and the state of a collector that runs somewhere
//! * `demo`: all of it together, telling what happens and why
//! * `collector`, `pipe`: the two services in one process
//! * `remote`: the way to a graph service somewhere else
//! * `table`: rows for people
//! * `failure`: exit codes

mod args;
mod collect;
mod collector;
mod demo;
mod failure;
mod pausing;
mod pipe;
mod remote;
mod sandbox_command;
mod status;
mod table;

use args::{Args, Command};
use clap::Parser as _;
use std::process::ExitCode;

#[tokio::main]
async fn main() -> ExitCode {
    let ended = match Args::parse().command {
        Command::Demo(flags) => demo::run(flags).await,
        Command::Sandbox(flags) => sandbox_command::run(flags).await,
        Command::Collect(flags) => collect::run(flags).await,
        Command::Pause(flags) => pausing::pause(flags).await,
        Command::Resume(flags) => pausing::resume(flags).await,
        Command::Status(flags) => status::run(flags).await,
        Command::Crds => pausing::crds(),
    };
    failure::exit_code(ended)
}
