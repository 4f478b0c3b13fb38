//! `executor-service`: leases work from the graph service and carries it out at the API server.

use anyhow::Context;
use clap::Parser;
use executor_service::{Edges, Exit, Options, StartError, serve};
use runtime::shutdown::Shutdown;
use runtime::{telemetry, visible};
use std::io::Write;
use std::process::ExitCode;

/// The allocator. Decisions are many small objects with different lifetimes, which fragment the heap of the C library.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let options = Options::parse();
    let name = options.config().name;
    match run(options) {
        Ok(Exit::Drained | Exit::DrainTimedOut { .. }) => ExitCode::SUCCESS,
        Ok(Exit::Superseded) => {
            fail(1, &format!("another process uses the executor name {name}; set a different --name for each executor"))
        }
        Ok(Exit::OtherCluster { ours, theirs }) => {
            let sentence = format!(
                "the graph service belongs to cluster {theirs}, but this executor's credentials belong to cluster {ours}"
            );
            fail(1, &sentence)
        }
        Ok(Exit::ProtocolUnsupported { min, max }) => {
            let ours = engine::work::Protocols::OURS;
            fail(
                1,
                &format!(
                    "the graph service supports protocol versions {min} to {max}, this executor {ours}; upgrade the older one"
                ),
            )
        }
        // A port in use may become free, so a restart helps. A wrong flag or file stays wrong.
        Err(error) if error.is::<StartError>() && !matches!(error.downcast_ref(), Some(StartError::Listen(_))) => {
            fail(2, &error.to_string())
        }
        Err(error) => fail(1, &format!("{error:#}")),
    }
}

fn run(options: Options) -> anyhow::Result<Exit> {
    // One thread. There is so little work between two answers of an API server that waking another thread costs more.
    let thread =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start the thread")?;
    thread.block_on(async {
        let shutdown = Shutdown::new();
        let signals = shutdown.clone().on_signals();
        options.check().map_err(StartError::from)?;
        telemetry::init(options.log_format, options.log_level.as_deref()).map_err(StartError::from)?;
        let edges = Edges::open(&options).await?;
        tokio::select! {
            exit = serve(options.config(), edges, shutdown) => exit,
            Err(error) = signals => Err(error),
        }
    })
}

fn fail(code: u8, sentence: &str) -> ExitCode {
    // If stderr is closed, the error cannot be reported.
    let _unread = writeln!(std::io::stderr(), "executor-service: {}", visible::line(sentence));
    ExitCode::from(code)
}
