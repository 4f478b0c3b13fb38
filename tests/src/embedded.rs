//! The sandbox as an API server on loopback, for tests that need no real one.

use anyhow::Context;
use sandbox::Server;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// A sandbox that is served on loopback while this value lives.
#[allow(missing_debug_implementations, reason = "a client shows nothing")]
pub struct Api {
    pub server: Server,
    pub address: SocketAddr,
    pub kubeconfig: PathBuf,
    /// The same, as a flag's value.
    pub flag: String,
    pub client: kube::Client,
    _task: JoinSet<()>,
}

impl Api {
    /// Starts one and writes its kubeconfig into `directory`.
    pub async fn start(directory: &Path) -> anyhow::Result<Api> {
        let server = Server::new(1);
        let listener = TcpListener::bind("127.0.0.1:0").await.context("a free port on loopback")?;
        let address = listener.local_addr()?;
        let kubeconfig = directory.join("kubeconfig");
        sandbox::write_kubeconfig(&kubeconfig, address)?;
        let mut task = JoinSet::new();
        let serving = server.clone();
        task.spawn(async move {
            // It ends with the test; a failure to serve shows as unanswered requests.
            let _ended = serving.serve(listener, std::future::pending()).await;
        });
        let client = kube::Client::new(server.router(), "default");
        let flag = kubeconfig.display().to_string();
        Ok(Api { server, address, kubeconfig, flag, client, _task: task })
    }
}
