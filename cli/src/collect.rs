//! `ownergraph collect`: the collector on a cluster, in one process.

use crate::args::Collect;
use crate::collector::{self, Executors, Setup};
use crate::failure::Failure;
use crate::name;
use crate::remote::{LOCAL, NAME_FLAG};
use anyhow::Context as _;
use engine::work::{Protocols, Term};
use graph_service::options::{NotOpened, advertised};
use graph_service::{Access as Callers, Config, Election, Flags, LeaseOptions, Reviewed};
use kube_api::{Cluster, connect};
use runtime::shutdown::Shutdown;
use runtime::tls::{Caller, CallerFlags, ServerFlags, ServerTls};
use runtime::version::user_agent;
use runtime::{listen, telemetry};
use std::io::{self, IsTerminal as _, Write as _};
use std::net::SocketAddr;
use tokio::net::TcpListener;
use uuid::Uuid;

/// Runs until SIGTERM or SIGINT, then drains.
pub(crate) async fn run(flags: Collect, text: Flags) -> Result<(), Failure> {
    check(&flags)?;
    telemetry::init(flags.log_format, flags.log_level.as_deref()).map_err(Failure::usage)?;
    let tls = ServerTls::open(&flags.tls).await.map_err(Failure::usage)?;
    let caller = caller(&flags).await?;
    let audit = flags.audit.open().await.map_err(|error| match error {
        NotOpened::Token(_) => Failure::usage(error),
        NotOpened::Listen(_) => anyhow::Error::from(error).into(),
    })?;
    let cluster = connect(&flags.access.access(user_agent("ownergraph"))).await.map_err(Failure::usage)?;
    let (listener, grpc) = bind("--listen", flags.listen.unwrap_or(LOCAL)).await?;
    let (admin, admin_at) = bind("--admin-listen", flags.admin_listen).await?;
    announce(&flags, &cluster, admin_at, grpc).context("stderr cannot be written")?;
    let host = runtime::host::name().to_owned();
    let setup = Setup {
        cluster,
        graph: Config {
            mode: flags.mode.into(),
            replica: host.clone(),
            advertise: if flags.listen.is_some() { advertised(grpc) } else { String::new() },
            ignore: flags.ignore_resources,
            policy: flags.policy.into(),
            decision_log: flags.decision_log.into(),
            protocols: Protocols::OURS,
            web_origins: Vec::new(),
            traces: flags.traces.settings(),
            record: flags.record.into(),
            flags: text,
        },
        election: election(flags.elect),
        admin: Some(admin),
        listener: Some(listener),
        access: match &tls {
            Some(_) => Callers::Reviewed(Reviewed { audience: flags.token_audience, ..Reviewed::default() }),
            None => Callers::Open,
        },
        tls,
        audit,
        executors: Executors {
            count: flags.executors,
            concurrency: flags.concurrency.concurrency(),
            prefix: format!("{}-{}", runtime::host::dns_name(), std::process::id()),
            far: caller.is_tls() || (flags.insecure && !caller.has_token()),
            caller,
        },
    };
    let shutdown = Shutdown::new();
    let ended = tokio::select! {
        ended = collector::run(setup, None, shutdown.clone()) => ended,
        Err(error) = shutdown.clone().on_signals() => Err(error),
    };
    Ok(ended?)
}

/// Checks rules that involve several flags.
fn check(flags: &Collect) -> Result<(), Failure> {
    let listen = flags.listen.unwrap_or(LOCAL);
    for (flag, address) in [("--listen", listen), ("--admin-listen", flags.admin_listen)] {
        if !address.ip().is_loopback() && !flags.tls.is_tls() && !flags.insecure {
            return Err(Failure::Usage(format!(
                "{flag} {address} is not a loopback address and the connection is plaintext: use a loopback address, serve TLS with --tls-cert and --tls-key, or allow it with --insecure"
            )));
        }
    }
    flags.tls.check().map_err(Failure::usage)?;
    flags.decision_log.check(flags.insecure).map_err(Failure::Usage)?;
    flags.traces.check().map_err(Failure::usage)?;
    flags.audit.check(flags.mode, flags.tls.is_tls()).map_err(Failure::Usage)?;
    let webhook = flags.audit.audit_webhook.map(|address| ("--audit-webhook", address));
    let addresses = [("--listen", listen), ("--admin-listen", flags.admin_listen)].into_iter().chain(webhook);
    let addresses: Vec<(&str, SocketAddr)> = addresses.collect();
    for (at, (flag, address)) in addresses.iter().enumerate() {
        if let Some((other, _)) = addresses[..at].iter().find(|(_, other)| other == address && other.port() != 0) {
            return Err(Failure::Usage(format!(
                "{other} and {flag} are both {address}: they need different addresses"
            )));
        }
    }
    Ok(())
}

/// The credentials for a leader in another process. The executors of this process present the certificate that this
/// process serves.
async fn caller(flags: &Collect) -> Result<Caller, Failure> {
    let ServerFlags { tls_cert, tls_key, .. } = flags.tls.clone();
    let (tls_ca, token_file) = (flags.tls_ca.clone(), flags.token_file.clone());
    let is_tls = tls_ca.is_some();
    let caller = CallerFlags { tls_ca, tls_cert, tls_key, token_file };
    let name = (NAME_FLAG, flags.server_name.as_deref());
    Caller::open(&caller, is_tls, name).await.map_err(Failure::usage)
}

async fn bind(flag: &'static str, address: SocketAddr) -> Result<(TcpListener, SocketAddr), Failure> {
    let listener = listen::bind(flag, &address.to_string()).await.map_err(anyhow::Error::from)?;
    let at = listener.local_addr().with_context(|| format!("{flag} {address} has no address"))?;
    Ok((listener, at))
}

/// Prints lines on a terminal, and a log line otherwise.
fn announce(flags: &Collect, cluster: &Cluster, admin: SocketAddr, grpc: SocketAddr) -> io::Result<()> {
    if !io::stderr().is_terminal() {
        tracing::info!(server = cluster.url, %admin, %grpc, executors = flags.executors, elect = flags.elect, "collecting");
        return Ok(());
    }
    let bold = anstyle::Style::new().bold();
    let mode = match flags.mode {
        graph_service::options::Mode::Enforce => "collecting",
        graph_service::options::Mode::Observe => "mode observe: nothing will be deleted,",
    };
    let mut out = anstream::stderr();
    writeln!(out, "{bold}{mode} at {}{bold:#} (context {})", cluster.url, cluster.name)?;
    writeln!(
        out,
        "  executors  {}, each with at most {} items at once",
        flags.executors,
        flags.concurrency.concurrency()
    )?;
    let scheme = if flags.tls.is_tls() { "https" } else { "http" };
    writeln!(out, "  admin      {scheme}://{admin}/readyz?verbose, also /livez, /metrics, /debug/graph")?;
    writeln!(out, "  gRPC       {grpc}{}", if flags.tls.is_tls() { ", TLS" } else { "" })?;
    let server = if grpc == LOCAL { String::new() } else { format!(" --server {grpc}") };
    writeln!(out, "  query      {} status{server}, also why, tree, stuck, pause", name::command())?;
    writeln!(out, "  Ctrl-C finishes work in flight and exits; a second Ctrl-C aborts")
}

/// Without an election the term gets a random election id, so that the terms of two processes never compare equal.
pub(crate) fn election(elect: bool) -> Election {
    if !elect {
        return Election::Fixed(Term { election: Uuid::new_v4().to_string().into(), number: 1 });
    }
    Election::Lease(LeaseOptions::default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Args, Command};
    use clap::Parser as _;

    fn checked(flags: &[&str]) -> Result<(), Failure> {
        let program = ["ownergraph", "collect"].iter().chain(flags);
        let Command::Collect(flags) = Args::try_parse_from(program).unwrap().command else { panic!("not collect") };
        check(&flags)
    }

    #[test]
    fn the_audit_log_is_for_mode_observe() {
        checked(&["--mode", "observe", "--audit-log", "a", "--audit-webhook", "127.0.0.1:7453"]).unwrap();
        let cases: [(&[&str], &str); 3] = [
            (&["--audit-log", "a"], "--audit-log needs --mode observe"),
            (&["--mode", "observe", "--audit-webhook", "0.0.0.0:7453"], "is not a loopback address"),
            (
                &["--mode", "observe", "--audit-webhook", "127.0.0.1:7451"],
                "--admin-listen and --audit-webhook are both",
            ),
        ];
        for (flags, expected) in cases {
            let Err(Failure::Usage(why)) = checked(flags) else { panic!("{flags:?}") };
            assert!(why.contains(expected), "{why}");
        }
    }

    #[test]
    fn every_process_without_an_election_has_a_term_of_its_own() {
        assert_ne!(election(false), election(false));
    }
}
