//! The executor service of the next release: the present one with the next protocol. Tests of upgrades replace this
//! release's service with it.

use anyhow::{Context as _, bail};
use clap::Parser as _;
use engine::work::{PROTOCOL, Protocols};
use executor_service::{Config, Edges, Exit, Options, serve};
use runtime::shutdown::Shutdown;
use runtime::telemetry;

fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    let thread = tokio::runtime::Builder::new_current_thread().enable_all().build().context("starting the thread")?;
    let exit = thread.block_on(run(&options))?;
    match exit {
        Exit::Drained => Ok(()),
        exit @ (Exit::DrainTimedOut { .. }
        | Exit::Superseded
        | Exit::OtherCluster { .. }
        | Exit::ProtocolUnsupported { .. }) => bail!("{exit:?}"),
    }
}

async fn run(options: &Options) -> anyhow::Result<Exit> {
    let shutdown = Shutdown::new();
    let signals = shutdown.clone().on_signals();
    options.check()?;
    telemetry::init(options.log_format, options.log_level.as_deref())?;
    let edges = Edges::open(options).await?;
    let config = Config { protocols: Protocols::of_release(PROTOCOL + 1), ..options.config() };
    tokio::select! {
        exit = serve(config, edges, shutdown) => exit,
        Err(error) = signals => Err(error),
    }
}
