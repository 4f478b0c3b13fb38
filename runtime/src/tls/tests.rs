use super::*;
use crate::admin::encode;
use crate::metrics::Book;
use crate::tasks::Tasks;
use certificates::{Authority, Files, Leaf};
use prometheus_client::registry::Registry;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, DuplexStream};

pub(crate) mod certificates;
mod files;
mod handshakes;
mod rotation;

const HOST: &str = "graph.test";
const ADDRESS: &str = "graph.test:7450";

/// The result of one connection at both ends.
struct Met {
    /// The data that the caller has read: the user that the server has seen, or the error.
    caller: io::Result<String>,
    server: Option<(Peer, Ends)>,
}

/// Both ends of a connection that stays open.
struct Ends {
    server: tokio_rustls::server::TlsStream<DuplexStream>,
    caller: Option<Secured<DuplexStream>>,
}

impl Ends {
    /// Whether data of one end reaches the other.
    async fn carry(&mut self) -> bool {
        let caller = self.caller.as_mut().expect("the caller is connected");
        self.server.write_all(b"still there").await.unwrap();
        self.server.flush().await.unwrap();
        let mut heard = [0; 11];
        caller.read_exact(&mut heard).await.is_ok() && &heard == b"still there"
    }
}

/// Connects a caller to a server, which sends back the user it has seen.
async fn meet(server: &ServerTls, caller: &Caller, host: &str) -> Met {
    let (near, far) = tokio::io::duplex(64 * 1024);
    let serve = async {
        let (mut stream, peer) = server.handshake(far, None, Protocol::Http2).await?;
        let user = peer.certificate().map_or("nobody", |certificate| &certificate.user).to_owned();
        stream.write_all(format!("{user}\n").as_bytes()).await.ok()?;
        stream.flush().await.ok()?;
        Some((stream, peer))
    };
    let call = async {
        let mut stream = caller.secure(near, ADDRESS, host).await?;
        let heard = line(&mut stream).await?;
        Ok((heard, stream))
    };
    let (served, called) = tokio::join!(serve, call);
    let (caller, connected) = match called {
        Ok((heard, stream)) => (Ok(heard), Some(stream)),
        Err(error) => (Err(error), None),
    };
    Met { caller, server: served.map(|(server, peer)| (peer, Ends { server, caller: connected })) }
}

async fn line(from: &mut (impl AsyncRead + AsyncWrite + Unpin)) -> io::Result<String> {
    let mut text = String::new();
    loop {
        match from.read_u8().await? {
            b'\n' => return Ok(text),
            byte => text.push(char::from(byte)),
        }
    }
}

/// The value of the metric line with this prefix.
fn counted(server: &ServerTls, line: &str) -> Option<u64> {
    let mut registry = Registry::default();
    server.metrics().register(&mut Book::new(&mut registry));
    let text = encode(&registry);
    text.lines().find_map(|found| found.strip_prefix(line)?.trim().parse().ok())
}

fn refused(server: &ServerTls, reason: &str) -> u64 {
    counted(server, &format!("ownergraph_tls_handshakes_refused_total{{reason=\"{reason}\"}}")).unwrap_or(0)
}

/// A server and a caller that trust each other.
async fn both(files: &Files, authority: &Authority) -> (Arc<ServerTls>, Caller) {
    let server = files.serve(authority, &authority.leaf(Leaf::server(HOST))).await.unwrap();
    let caller = files.call(authority, Some(&authority.leaf(Leaf::client("executor-1", "ownergraph:executors")))).await;
    (server, caller.unwrap())
}
