//! `ownergraph sandbox`: the in-memory API server alone.

use crate::args::Sandbox;
use crate::failure::Failure;
use crate::kubectl::console;
use crate::kubectl::flags::Connection;
use crate::name::quoted;
use anyhow::Context as _;
use kube_api::Cluster;
use runtime::listen;
use runtime::shutdown::Shutdown;
use sandbox::{Server, write_kubeconfig};
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

/// Maximum time from the request to stop to the exit, even with requests in flight.
const STOP_WITHIN: Duration = Duration::from_secs(5);

/// Serves until SIGTERM or SIGINT.
pub(crate) async fn run(flags: Sandbox) -> Result<(), Failure> {
    if !flags.listen.ip().is_loopback() && !flags.insecure {
        return Err(Failure::Usage(format!(
            "--listen {} is not a loopback address, and the sandbox has no authentication: use a loopback address, or allow it with --insecure",
            flags.listen
        )));
    }
    let listener = listen::bind("--listen", &flags.listen.to_string()).await.map_err(anyhow::Error::from)?;
    let address = listener.local_addr().context("the socket has no address")?;
    let kubeconfig = flags.write_kubeconfig.as_deref();
    if let Some(path) = kubeconfig {
        write_kubeconfig(path, address).map_err(|error| {
            Failure::Usage(format!("--write-kubeconfig {} cannot be written: {error}", path.display()))
        })?;
    }
    announce(address, kubeconfig).context("stdout cannot be written")?;

    let shutdown = Shutdown::new();
    let stop = shutdown.clone();
    let server = Server::new(seed());
    let served = async move { server.serve(listener, async move { stop.requested().await }).await };
    let late = async {
        shutdown.requested().await;
        tokio::time::sleep(STOP_WITHIN).await;
    };
    let shown = async {
        if !flags.console {
            return std::future::pending().await;
        }
        let url = format!("http://{address}").parse().context("the socket has no address")?;
        let cluster = Cluster::without_credentials(url).context("the sandbox cannot be reached")?;
        Ok(console::serve(cluster, Connection::direct(), console::Start::here(!flags.no_browser)).await?)
    };
    tokio::select! {
        ended = shown => ended,
        ended = served => Ok(ended.context("the sandbox failed")?),
        () = late => Ok(()),
        Err(error) = shutdown.clone().on_signals() => Err(error.into()),
    }
}

fn announce(address: SocketAddr, kubeconfig: Option<&Path>) -> io::Result<()> {
    let mut out = anstream::stdout();
    let how = match kubeconfig {
        Some(path) => format!("export KUBECONFIG={}", quoted(&std::path::absolute(path)?.display().to_string())),
        None => format!("kubectl --server http://{address}"),
    };
    writeln!(out, "sandbox listens on http://{address}; use it with: {how}")?;
    out.flush()
}

/// The seed of uids. It is random, because two sandboxes must never have a uid in common.
fn seed() -> u64 {
    uuid::Uuid::new_v4().as_u64_pair().0
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn paths_are_quoted_where_a_shell_would_split_them() {
        assert_eq!(quoted("/tmp/k8s.yaml"), "/tmp/k8s.yaml");
        assert_eq!(quoted("/tmp/it's mine"), r"'/tmp/it'\''s mine'");
    }
}
