//! The process of the graph service.

use clap::{CommandFactory as _, FromArgMatches as _};
use graph_service::options::{NotOpened, Options};
use graph_service::{
    Access as Callers, Config, Edges, Election, Flags, ReaderThreads, Reviewed, accept, accept_tls, serve,
};
use kube_api::connect;
use prometheus_client::registry::Registry;
use runtime::shutdown::Shutdown;
use runtime::tls::ServerTls;
use runtime::version::user_agent;
use runtime::{listen, telemetry, visible};
use std::io::Write as _;
use std::process::ExitCode;
use std::sync::Arc;

/// The allocator. Decisions are many small objects with different lifetimes, which fragment the heap of the C library.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Exit code for a wrong flag, file or certificate. A retry does not help.
const BAD_START: u8 = 2;
const FAILED: u8 = 1;

fn main() -> ExitCode {
    let command = Options::command();
    let found = command.clone().get_matches();
    let flags = Flags::of(&command, &found);
    let options = Options::from_arg_matches(&found).unwrap_or_else(|error| error.exit());
    // One thread reads the watches, decides and answers. There is so little work between these steps that waking
    // another thread costs more. Long work runs on other threads (large answers, streams of readers) or in steps.
    let ended = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(thread) => thread.block_on(run(&options, flags)),
        Err(error) => Err(Failure::Other(anyhow::Error::new(error).context("cannot start the thread"))),
    };
    let (code, error) = match ended {
        Ok(()) => return ExitCode::SUCCESS,
        Err(Failure::Bad(error)) => (BAD_START, error),
        Err(Failure::Other(error)) => (FAILED, error),
    };
    // If stderr cannot be written, the error cannot be reported.
    let _closed = writeln!(std::io::stderr(), "graph-service: {}", visible::line(&format!("{error:#}")));
    ExitCode::from(code)
}

enum Failure {
    Bad(anyhow::Error),
    Other(anyhow::Error),
}

async fn run(options: &Options, flags: Flags) -> Result<(), Failure> {
    let shutdown = Shutdown::new();
    let signals = shutdown.clone().on_signals();
    let bad = |error: anyhow::Error| Failure::Bad(error);
    options.check().map_err(|error| bad(error.into()))?;
    telemetry::init(options.log_format, options.log_level.as_deref()).map_err(|error| bad(error.into()))?;
    let tls = ServerTls::open(&options.tls).await.map_err(|error| bad(error.into()))?;
    let audit = options.audit.open().await.map_err(|error| match error {
        NotOpened::Token(_) => Failure::Bad(error.into()),
        NotOpened::Listen(_) => Failure::Other(error.into()),
    })?;
    let cluster =
        connect(&options.access.access(user_agent("graph-service"))).await.map_err(|error| bad(error.into()))?;
    let other = |error: anyhow::Error| Failure::Other(error);
    let grpc = listen::bind("--listen", &options.listen.to_string()).await.map_err(|error| other(error.into()))?;
    let admin =
        listen::bind("--admin-listen", &options.admin_listen.to_string()).await.map_err(|error| other(error.into()))?;
    let listening = grpc.local_addr().map_err(|error| other(error.into()))?;
    let admin_listening = admin.local_addr().map_err(|error| other(error.into()))?;
    if tls.is_none() && !(listening.ip().is_loopback() && admin_listening.ip().is_loopback()) {
        tracing::warn!(grpc = %listening, admin = %admin_listening, "the connections are plaintext: every client that reaches these addresses has full access");
    }
    tracing::info!(grpc = %listening, admin = %admin_listening, tls = tls.is_some(), "listening");

    let access = match &tls {
        Some(_) => Callers::Reviewed(Reviewed {
            audience: options.token_audience.clone(),
            api_server_tokens: options.api_server_tokens,
            cluster_client_ca: options.cluster_client_ca,
            publish_ca: options.publish_ca.clone(),
        }),
        None => Callers::Open,
    };
    let edges = Edges {
        grpc: match &tls {
            Some(tls) => accept_tls(grpc, Arc::clone(tls)),
            None => accept(grpc),
        },
        admin: Some(admin),
        tls,
        registry: Registry::default(),
        cluster,
        election: Election::Lease(options.lease()),
        access,
        readers: ReaderThreads::of_machine(),
        audit,
        observer: None,
        progress: true,
    };
    let config = Config { flags, ..options.config(listening) };
    let ended = tokio::select! {
        ended = serve(config, edges, shutdown) => ended,
        Err(error) = signals => Err(error),
    };
    ended.map_err(other)
}
