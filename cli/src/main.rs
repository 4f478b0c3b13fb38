//! `ownergraph`: the whole collector in one program, to see it (`demo`), to run it (`collect`), and to test against (`sandbox`).
//!
//! In reading order:
//!
//! * `args`: the commands and their flags
//! * `sandbox_command`: the in-memory API server alone
//! * `collect`: graph service and executors against any API server
//! * `demo`: all of it together, telling what happens and why
//! * `collector`, `pipe`: the two services in one process
//! * `failure`: exit codes

mod args;
mod collect;
mod collector;
mod demo;
mod failure;
mod pipe;
mod sandbox_command;

use args::{Args, Command};
use clap::Parser as _;
use std::process::ExitCode;

#[tokio::main]
async fn main() -> ExitCode {
    let ended = match Args::parse().command {
        Command::Demo(flags) => demo::run(flags).await,
        Command::Sandbox(flags) => sandbox_command::run(flags).await,
        Command::Collect(flags) => collect::run(flags).await,
    };
    failure::exit_code(ended)
}
