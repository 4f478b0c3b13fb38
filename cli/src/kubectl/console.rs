//! `console`: a web server for the console. It serves the built page, and forwards its calls: on this machine with the
//! credentials of the command line, for other users with the token of each request.
//!
//! In reading order:
//!
//! * `server`: connections, and what answers each path
//! * `door`: who may call: the token, and the headers `Host` and `Origin`
//! * `bearer`: the token of a request, in a console for other users
//! * `others`: a console for other users
//! * `files`: the page in this program
//! * `calls`: gRPC-Web
//! * `actions`: the paths below `/console`, which ask and change the API server
//! * `events`: the Kubernetes Events about an object
//! * `status`: the status of an object
//! * `backend`: the connections that the calls and actions use
//! * `answers`: answers over HTTP

use super::ending::{Answered, Ending, Problem, note};
use super::flags::{Asking, Connection, Console, Format, Output};
use super::printer::Printer;
use super::requests;
use super::session::Session;
use anyhow::Context as _;
use backend::Backend;
use door::Door;
use kube_api::Cluster;
use runtime::listen;
use runtime::shutdown::Shutdown;
use server::Site;
use std::io::{self, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::Stdio;
use tokio::process::Command;

mod actions;
mod answers;
mod backend;
mod bearer;
mod calls;
mod door;
mod events;
mod files;
mod others;
mod server;
mod status;
#[cfg(test)]
mod tests;

/// How a console starts.
#[derive(Clone, Debug)]
pub(crate) struct Start {
    /// 0 takes a free port.
    pub(crate) port: u16,
    /// Whether a browser shows the page.
    pub(crate) browser: bool,
    /// Whether the page may change anything.
    pub(crate) writes: bool,
    /// Where the page begins. `None` for all namespaces.
    pub(crate) namespace: Option<String>,
}

impl Start {
    /// For a cluster of this process.
    pub(crate) fn here(browser: bool) -> Start {
        Start { port: 0, browser, writes: true, namespace: None }
    }
}

/// Serves until SIGTERM or SIGINT.
pub(super) async fn run(flags: Console) -> Answered {
    let Console { port, no_browser, namespace, read_only, others, connection } = flags;
    let shutdown = Shutdown::new();
    let signals = shutdown.clone().on_signals();
    let served = async {
        let cluster = requests::connect(&connection).await?;
        if let Some(address) = &others.listen {
            return others::serve(cluster, connection, (address, &others), !read_only).await;
        }
        let (browser, writes) = (!no_browser, !read_only);
        serve(cluster, connection, Start { port, browser, writes, namespace }).await
    };
    tokio::select! {
        ended = served => ended.map(|()| Ending::Fine),
        () = shutdown.requested() => Ok(Ending::Fine),
        ended = signals => ended.map(|()| Ending::Fine).map_err(Problem::Other),
    }
}

/// Serves the console of a cluster. Ends only with an error.
pub(crate) async fn serve(cluster: Cluster, connection: Connection, start: Start) -> Result<(), Problem> {
    let backend = Backend::new(session(cluster, connection, start.namespace)?, start.writes);
    // An error of the flags or of the cluster belongs on the terminal, and not into the page.
    backend.service().await?;
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, start.port));
    let listener = listen::bind("--port", &address.to_string()).await.map_err(anyhow::Error::from)?;
    let port = listener.local_addr().context("the socket has no address")?.port();
    let door = Door::new(port).map_err(|error| anyhow::anyhow!("no random token can be drawn: {error}"))?;
    let site = Site::new(door, backend);
    let link = site.link();
    writeln!(io::stdout(), "{link}")?;
    note("this address lets its holder act with your credentials, until Ctrl-C ends the console");
    if start.browser
        && let Err(error) = open(&link)
    {
        note(&format!("no browser can be started ({error}): open the address yourself"));
    }
    Ok(server::serve(listener, site, None).await?)
}

fn session(cluster: Cluster, connection: Connection, namespace: Option<String>) -> Result<Session, Problem> {
    let asking = Asking { namespace, all_namespaces: false, connection, output: Output::default() };
    let printer = Printer::of(asking.output.clone(), &[Format::Json])?;
    Ok(Session::over(cluster, asking, printer))
}

/// Starts a browser, and does not wait for it.
fn open(link: &str) -> io::Result<()> {
    let (program, arguments): (&str, &[&str]) = if cfg!(target_os = "macos") {
        ("open", &[])
    } else if cfg!(windows) {
        // Not `start`, which is a word of a shell.
        ("rundll32", &["url.dll,FileProtocolHandler"])
    } else {
        ("xdg-open", &[])
    };
    let mut command = Command::new(program);
    command.args(arguments).arg(link).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().map(drop)
}
