//! The graph service of the next release: the present one with the next protocol. Tests of upgrades replace this
//! release's service with it.

use anyhow::{Context as _, ensure};
use clap::Parser as _;
use engine::work::{PROTOCOL, Protocols};
use graph_service::options::Options;
use graph_service::{Access as Callers, Config, Edges, Election, ReaderThreads, accept, serve};
use kube_api::{Access, connect};
use prometheus_client::registry::Registry;
use runtime::shutdown::Shutdown;
use runtime::tls::ServerTls;
use runtime::{listen, telemetry};

fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    let thread = tokio::runtime::Builder::new_current_thread().enable_all().build().context("starting the thread")?;
    thread.block_on(run(&options))
}

async fn run(options: &Options) -> anyhow::Result<()> {
    let shutdown = Shutdown::new();
    let signals = shutdown.clone().on_signals();
    options.check()?;
    telemetry::init(options.log_format, options.log_level.as_deref())?;
    ensure!(ServerTls::open(&options.tls).await?.is_none(), "this one serves plaintext only");
    let access = Access { kubeconfig: options.access.kubeconfig.clone(), ..Access::default() };
    let cluster = connect(&access).await?;
    let grpc = listen::bind("--listen", &options.listen.to_string()).await?;
    let admin = listen::bind("--admin-listen", &options.admin_listen.to_string()).await?;
    let config = Config { protocols: Protocols::of_release(PROTOCOL + 1), ..options.config(grpc.local_addr()?) };
    let edges = Edges {
        grpc: accept(grpc),
        admin: Some(admin),
        tls: None,
        registry: Registry::default(),
        cluster,
        election: Election::Lease(options.lease()),
        access: Callers::Open,
        readers: ReaderThreads::of_machine(),
        audit: graph_service::AuditSources::default(),
        observer: None,
        progress: false,
    };
    tokio::select! {
        ended = serve(config, edges, shutdown) => ended,
        Err(error) = signals => Err(error),
    }
}
