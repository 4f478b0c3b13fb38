//! Where connections come from: a socket, or a pipe within the process.

use futures::StreamExt;
use futures::stream::BoxStream;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpListener;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::transport::server::Connected;

/// Connections at a time. Further ones wait in the kernel's queue.
const CONNECTIONS_MAX: usize = 1024;
/// Pause after a failed accept, most often for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Connections as they come. It ends only where no more can come.
pub type Incoming = BoxStream<'static, io::Result<Connection>>;

/// One connection.
pub struct Connection {
    io: Pin<Box<dyn Duplex>>,
    _place: Option<OwnedSemaphorePermit>,
}

/// A byte pipe in both directions.
trait Duplex: AsyncRead + AsyncWrite + Send + Sync {}

impl<T: AsyncRead + AsyncWrite + Send + Sync> Duplex for T {}

impl Connection {
    /// A connection over any pipe, such as `tokio::io::duplex`.
    pub fn new(io: impl AsyncRead + AsyncWrite + Send + Sync + 'static) -> Connection {
        Connection { io: Box::pin(io), _place: None }
    }
}

/// The connections of a socket, each without Nagle's delay, a bounded number at a time.
pub fn accept(listener: TcpListener) -> Incoming {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    futures::stream::unfold((listener, places), |(listener, places)| async move {
        let place = Arc::clone(&places).acquire_owned().await.ok()?;
        loop {
            let accepted = listener.accept().await.and_then(|(stream, _)| stream.set_nodelay(true).map(|()| stream));
            match accepted {
                Ok(stream) => {
                    let connection = Connection { io: Box::pin(stream), _place: Some(place) };
                    return Some((Ok(connection), (listener, places)));
                }
                Err(error) => {
                    tracing::warn!(%error, "the gRPC server cannot accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    })
    .boxed()
}

impl Connected for Connection {
    type ConnectInfo = ();

    fn connect_info(&self) {}
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.io.as_mut().poll_read(context, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        self.io.as_mut().poll_write(context, data)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.io.as_mut().poll_write_vectored(context, data)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.io.as_mut().poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.io.as_mut().poll_shutdown(context)
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Connection")
    }
}
