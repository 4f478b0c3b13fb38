//! The connection from the executors of this process to its graph service: pipes in memory, which no other process can
//! use.

use executor_service::{Channel, Connector, connect_over, dial};
use futures::{FutureExt as _, StreamExt as _};
use graph_service::{Connection, Incoming};
use runtime::tls::Caller;
use tokio::io::DuplexStream;
use tokio::sync::mpsc;

/// The buffer of each direction of one connection.
const PIPE_BYTES: usize = 256 * 1024;
/// Maximum number of connections that wait to be accepted.
const WAITING_MAX: usize = 16;
/// The host in requests over a pipe. It is never resolved.
const HOST: &str = "localhost:7450";

/// The connections for the graph service of this process, and the connector that opens them. The connector uses a pipe
/// for the address `home`. It calls any other address, that of a leader in another process, with the credentials of
/// `caller`.
pub(crate) fn pipes(home: String, caller: Caller) -> (Incoming, Connector) {
    let (opened, waiting) = mpsc::channel::<DuplexStream>(WAITING_MAX);
    let incoming = futures::stream::unfold(waiting, |mut waiting| async move {
        let far = waiting.recv().await?;
        Some((Ok(Connection::within_process(far)), waiting))
    });
    let connector = Connector::through(move |address| {
        let (opened, here, caller) = (opened.clone(), address == home, caller.clone());
        async move {
            if !here {
                return dial(&caller, &address, None).await;
            }
            let (near, far) = tokio::io::duplex(PIPE_BYTES);
            opened.send(far).await.map_err(|_| "the graph service of this process has stopped".to_owned())?;
            let connected = connect_over(HOST, near).await.map(Channel::from);
            connected.map_err(|error| format!("the graph service of this process: {error}"))
        }
        .boxed()
    });
    // The stream never ends, because an executor may open a new connection at any time.
    (incoming.chain(futures::stream::pending()).boxed(), connector)
}
