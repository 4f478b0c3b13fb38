//! Runs the sandbox alone: `serve ADDRESS KUBECONFIG`.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Context;
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let address: SocketAddr =
        arguments.next().context("the argument ADDRESS is missing")?.parse().context("no address")?;
    let kubeconfig = PathBuf::from(arguments.next().context("the argument KUBECONFIG is missing")?);
    let listener = TcpListener::bind(address).await.with_context(|| format!("cannot listen on {address}"))?;
    sandbox::write_kubeconfig(&kubeconfig, listener.local_addr()?)
        .with_context(|| format!("cannot write {}", kubeconfig.display()))?;
    let stop = async { drop(tokio::signal::ctrl_c().await) };
    sandbox::Server::new(1).serve(listener, stop).await.context("the server ended")
}
