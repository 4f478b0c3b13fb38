//! The sandbox as an API server on loopback, for tests that need no real API server.

use anyhow::Context;
use sandbox::Server;
use sandbox::model::{On, Right};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// The group in every certificate of [`crate::certificates`].
const GROUP: &str = "ownergraph:tests";

/// The rights with which a graph service may ask about its callers.
fn all_rights(subject: &str) -> Vec<Right> {
    let resources = [
        ("lease", "workitems"),
        ("get", "status"),
        ("list", "executors"),
        ("list", "collections"),
        ("update", "pauses"),
        ("get", "graphobjects"),
        ("list", "graphobjects"),
        ("watch", "graphobjects"),
        ("get", "decisions"),
        ("list", "decisions"),
        ("watch", "decisions"),
    ];
    let resource = |(verb, resource): (&str, &str)| {
        let (group, resource) = ("ownergraph.dev".to_owned(), resource.to_owned());
        Right {
            subject: subject.to_owned(),
            verb: verb.to_owned(),
            on: On::Resource { group, resource, namespace: None },
        }
    };
    let path =
        |path: &str| Right { subject: subject.to_owned(), verb: "get".to_owned(), on: On::Path(path.to_owned()) };
    let paths = ["/metrics", "/readyz", "/debug/graph"];
    resources.into_iter().map(resource).chain(paths.into_iter().map(path)).collect()
}

/// A sandbox that serves on loopback as long as this value exists.
#[allow(missing_debug_implementations, reason = "a client shows nothing")]
pub struct Api {
    pub server: Server,
    pub address: SocketAddr,
    pub kubeconfig: PathBuf,
    /// The address as the value of a flag.
    pub flag: String,
    pub client: kube::Client,
    _task: JoinSet<()>,
}

impl Api {
    /// Starts a sandbox, and writes its kubeconfig into `directory`.
    pub async fn start(directory: &Path) -> anyhow::Result<Api> {
        let server = Server::new(1);
        server.with_model(|model| model.callers_mut().rights.extend(all_rights(GROUP)));
        let listener = TcpListener::bind("127.0.0.1:0").await.context("a free port on loopback")?;
        let address = listener.local_addr()?;
        let kubeconfig = directory.join("kubeconfig");
        sandbox::write_kubeconfig(&kubeconfig, address)?;
        let mut task = JoinSet::new();
        let serving = server.clone();
        task.spawn(async move {
            // The task ends with the test. If it fails, requests stay unanswered.
            let _ended = serving.serve(listener, std::future::pending()).await;
        });
        let client = kube::Client::new(server.router(), "default");
        let flag = kubeconfig.display().to_string();
        Ok(Api { server, address, kubeconfig, flag, client, _task: task })
    }
}
