//! `ownergraph`: the whole collector in one program. `demo` shows it, `collect` runs it, `sandbox` is an API server for
//! tests, and `tree`, `why`, `plan` and other commands query it. Under the name `kubectl-ownergraph` the program is a
//! plug-in of kubectl, and under `kubectl_complete-ownergraph` it completes command lines of the plug-in.
//!
//! In reading order:
//!
//! * `name`: the name that this program was called by
//! * `args`, `examples`: the commands, their flags, and examples
//! * `sandbox_command`: the in-memory API server alone
//! * `collect`: graph service and executors against any API server
//! * `trial`: `ownergraph try`, which tests a collector
//! * `man`: the manual pages
//! * `demo`: all components together, with explanations
//! * `collector`, `pipe`: the two services in one process
//! * `kubectl`: the query commands, `pause`, `delete`, and the web console
//! * `remote`: the connection to a graph service in another process
//! * `failure`, `counted`: exit codes, numbers in texts

mod args;
mod collect;
mod collector;
mod counted;
mod demo;
mod examples;
mod failure;
mod kubectl;
mod man;
mod name;
mod pipe;
mod processors;
mod remote;
mod sandbox_command;
mod trial;

use args::{Args, Command};
use clap::{ArgMatches, FromArgMatches as _};
use kubectl::line;
use std::ffi::OsString;
use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;

/// The program, under each of its names.
pub fn main() -> ExitCode {
    let mut threads = Builder::new_multi_thread();
    if name::completes() {
        return run_on(&mut threads, complete);
    }
    match Invocation::read() {
        Ok(invocation) => {
            if invocation.shows_console() {
                processors::leave_one(&mut threads);
            }
            run_on(&mut threads, |runtime| runtime.block_on(run(invocation)))
        }
        Err(error) => kubectl::misused(&error),
    }
}

fn run_on(threads: &mut Builder, work: impl FnOnce(Runtime) -> ExitCode) -> ExitCode {
    match threads.enable_all().build() {
        Ok(runtime) => work(runtime),
        Err(error) => failure::exit_code(Err(anyhow::Error::from(error).context("starting threads").into())),
    }
}

/// A command line.
struct Invocation {
    program: clap::Command,
    found: ArgMatches,
    command: Command,
}

impl Invocation {
    /// Reads the command line of this process.
    fn read() -> Result<Invocation, clap::Error> {
        let program = args::command();
        let words = line::ordered(std::env::args_os(), &program)?;
        let found = program.clone().try_get_matches_from(&words).map_err(|error| as_typed(error, &program, &words))?;
        kubectl::remember(&found);
        let command = Args::from_arg_matches(&found)?.command;
        Ok(Invocation { program, found, command })
    }

    /// Whether this is a demo beside a browser. The demo takes all processors, and the page of the console must not
    /// stall.
    fn shows_console(&self) -> bool {
        matches!(&self.command, Command::Demo(flags) if flags.console)
    }
}

/// The same error with the usage of the words alone: clap counts a flag from a variable as a part of the line.
fn as_typed(error: clap::Error, program: &clap::Command, words: &[OsString]) -> clap::Error {
    match without_variables(program.clone()).try_get_matches_from(words) {
        Err(other) if error.use_stderr() && other.kind() == error.kind() => other,
        Ok(_) | Err(_) => error,
    }
}

fn without_variables(command: clap::Command) -> clap::Command {
    command.mut_args(|flag| flag.env(None)).mut_subcommands(without_variables)
}

async fn run(Invocation { program, found, command }: Invocation) -> ExitCode {
    let ended = match command {
        Command::Demo(flags) => demo::run(flags).await,
        Command::Sandbox(flags) => sandbox_command::run(flags).await,
        Command::Collect(flags) => collect::run(*flags, args::as_text(&program, &found)).await,
        Command::Try(flags) => trial::run(flags).await,
        Command::Man { directory } => man::run(&directory),
        Command::Ask(command) => return Box::pin(kubectl::run(*command, program)).await,
    };
    failure::exit_code(ended)
}

/// Completes a command line of `kubectl ownergraph` for kubectl. It prints what it knows within two seconds, or
/// nothing, because an error message would disturb the line that the user types.
fn complete(runtime: Runtime) -> ExitCode {
    const WITHIN: Duration = Duration::from_secs(2);
    let said = runtime.block_on(async {
        // A separate thread, because a plugin that fetches credentials may block it for any time.
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
