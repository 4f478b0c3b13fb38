//! The sandbox as an API server on loopback, for tests that need no real one.

use anyhow::Context;
use sandbox::Server;
use sandbox::model::{On, Right};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// The group in every certificate of [`crate::certificates`].
const GROUP: &str = "ownergraph:tests";

/// What a graph service asks about its callers, all of it.
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
        server.with_model(|model| model.callers_mut().rights.extend(all_rights(GROUP)));
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
