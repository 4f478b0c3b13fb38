//! Binds addresses, accepts connections, and serves those that carry one request over HTTP/1.1.

use std::error::Error;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use http::{Request, Response};
use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper::service::Service;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};

use crate::tasks::Jobs;

/// Pause after a failed accept. A lack of file descriptors is the usual cause, and an immediate retry would only spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Time from the first byte of a request to the end of its headers.
const HEADERS_WITHIN: Duration = Duration::from_secs(5);
/// A connection of [`answer_one`] carries one request, so this limits the slowest peer.
const CONNECTION_WITHIN: Duration = Duration::from_secs(60);

/// An address that cannot be bound: its flag, and the reason.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {flag} {address}: {reason}")]
pub struct ListenError {
    flag: &'static str,
    address: String,
    reason: String,
}

/// Listens on `address` (`HOST:PORT`; port 0 takes a free one). `flag` is its flag, for errors.
pub async fn bind(flag: &'static str, address: &str) -> Result<TcpListener, ListenError> {
    TcpListener::bind(address).await.map_err(|error| ListenError {
        flag,
        address: address.to_owned(),
        reason: reason(&error),
    })
}

/// Answers at most `max` connections at a time. Further ones wait in the kernel's queue. `server` names the server in
/// log lines. Never ends.
pub async fn answer_all<F>(
    listener: TcpListener,
    server: &'static str,
    max: usize,
    mut answer: impl FnMut(TcpStream, SocketAddr) -> F,
) -> anyhow::Result<()>
where
    F: Future<Output = ()> + Send + 'static,
{
    let mut connections: Jobs<(), ()> = Jobs::new(max);
    loop {
        tokio::select! {
            ((), _end) = connections.next() => {}
            accepted = listener.accept(), if connections.has_room() => match accepted {
                Ok((stream, from)) => connections.spawn((), answer(stream, from)),
                Err(error) => {
                    tracing::warn!(server, %error, "a server cannot accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
        }
    }
}

/// Answers the one request of a connection over HTTP/1.1, within a minute. `server` names the server in log lines.
pub async fn answer_one<IO, S, B>(stream: IO, server: &'static str, service: S)
where
    IO: AsyncRead + AsyncWrite + Unpin,
    S: Service<Request<Incoming>, Response = Response<B>>,
    S::Error: Into<Box<dyn Error + Send + Sync>>,
    B: Body<Error: Into<Box<dyn Error + Send + Sync>>> + 'static,
{
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS_WITHIN)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
    match tokio::time::timeout(CONNECTION_WITHIN, connection).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(server, %error, "a connection broke off"),
        Err(_) => tracing::debug!(server, "a connection took too long"),
    }
}

fn reason(error: &io::Error) -> String {
    let kind = error.kind();
    if kind == io::ErrorKind::AddrInUse {
        "the port is in use by another process; use another one, or :0 for any free one".to_owned()
    } else if kind == io::ErrorKind::AddrNotAvailable {
        "this machine does not have the address; use one of its own, such as 127.0.0.1 or 0.0.0.0".to_owned()
    } else if kind == io::ErrorKind::PermissionDenied {
        "this user may not use the port; use a port above 1023".to_owned()
    } else if kind == io::ErrorKind::InvalidInput {
        "this is not an address; write HOST:PORT, such as 127.0.0.1:8080".to_owned()
    } else {
        format!("{error}; write HOST:PORT, such as 127.0.0.1:8080")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_error_names_flag_address_and_cause() {
        let taken = bind("--listen", "127.0.0.1:0").await.unwrap();
        let address = taken.local_addr().unwrap().to_string();
        let error = bind("--admin-listen", &address).await.unwrap_err().to_string();
        assert!(
            error.starts_with(&format!("cannot listen on --admin-listen {address}: the port is in use")),
            "{error}"
        );
        for (address, part) in [
            ("8080", "write HOST:PORT"),
            ("127.0.0.1:port", "write HOST:PORT"),
            ("192.0.2.1:0", "does not have the address"),
        ] {
            let error = bind("--listen", address).await.unwrap_err().to_string();
            assert!(error.contains(address) && error.contains(part), "{error}");
        }
    }
}
