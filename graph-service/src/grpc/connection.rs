//! Sources of connections: a socket, or a pipe within the process.

use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use http::Extensions;
use runtime::shutdown::Shutdown;
use runtime::tasks::{JobEnd, Jobs};
use runtime::tls::{Peer, Protocol, ServerTls};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Sleep, sleep};
use tonic::transport::server::Connected;

/// Maximum number of open connections. Further ones wait in the kernel's queue.
const CONNECTIONS_MAX: usize = 1024;
/// Pause after a failed accept. A lack of file descriptors is the usual cause.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Maximum number of concurrent TLS handshakes. Further ones wait in the kernel's queue. Each handshake ends within a
/// few seconds.
const HANDSHAKES_MAX: usize = 256;
const _: () = assert!(HANDSHAKES_MAX < CONNECTIONS_MAX, "handshakes leave room for connections");

/// Time for a new connection to send the HTTP/2 preface. No other timeout covers it.
const PREFACE_WITHIN: Duration = Duration::from_secs(10);
/// Length of the preface.
const PREFACE_BYTES: usize = 24;

/// New connections. The stream ends when no further connection can come.
pub type Incoming = BoxStream<'static, io::Result<Connection>>;

/// One connection.
pub struct Connection {
    io: Pin<Box<dyn Duplex>>,
    /// Set until the peer has sent the preface.
    silence: Option<Silence>,
    link: Link,
    is_cut: Pin<Box<dyn Future<Output = ()> + Send + Sync>>,
    _place: Option<OwnedSemaphorePermit>,
}

/// The connection of a request, in the extensions of the request.
#[derive(Clone, Debug)]
pub struct Link {
    pub(crate) cut: Cut,
    pub peer: Peer,
    /// Whether the other end is in this process.
    pub(crate) within: bool,
}

impl Link {
    /// Whether a call comes from this process.
    pub(super) fn is_within(extensions: &Extensions) -> bool {
        extensions.get::<Link>().is_some_and(|link| link.within)
    }

    /// The handle that closes the connection of a call.
    pub(super) fn cut_of(extensions: &Extensions) -> Option<Cut> {
        extensions.get::<Link>().map(|link| link.cut.clone())
    }
}

/// The handle that closes one connection.
#[derive(Clone, Debug)]
pub(crate) struct Cut {
    wanted: Shutdown,
    id: u64,
}

impl Default for Cut {
    fn default() -> Cut {
        static CONNECTIONS: AtomicU64 = AtomicU64::new(0);
        Cut { wanted: Shutdown::default(), id: CONNECTIONS.fetch_add(1, Ordering::Relaxed) }
    }
}

impl Cut {
    pub(crate) fn cut(&self) {
        self.wanted.request();
    }

    /// The number of the connection in this process.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }
}

/// State of a connection before the preface.
struct Silence {
    ends: Pin<Box<Sleep>>,
    missing: usize,
}

/// A byte pipe in both directions.
trait Duplex: AsyncRead + AsyncWrite + Send + Sync {}

impl<T: AsyncRead + AsyncWrite + Send + Sync> Duplex for T {}

impl Connection {
    /// A connection over any pipe, such as `tokio::io::duplex`.
    pub fn new(io: impl AsyncRead + AsyncWrite + Send + Sync + 'static) -> Connection {
        let silence = Silence { ends: Box::pin(sleep(PREFACE_WITHIN)), missing: PREFACE_BYTES };
        let cut = Cut::default();
        let requested = cut.wanted.clone();
        let is_cut = Box::pin(async move { requested.requested().await });
        let link = Link { cut, peer: Peer::Plaintext, within: false };
        Connection { io: Box::pin(io), silence: Some(silence), link, is_cut, _place: None }
    }

    /// A pipe whose other end is in this process.
    pub fn within_process(io: impl AsyncRead + AsyncWrite + Send + Sync + 'static) -> Connection {
        let mut connection = Connection::new(io);
        connection.link.within = true;
        connection
    }

    /// Adds the identity of the peer.
    pub fn with_peer(mut self, peer: Peer) -> Connection {
        self.link.peer = peer;
        self
    }
}

/// The connections of a socket, at most `CONNECTIONS_MAX` at a time, without Nagle's delay.
pub fn accept(listener: TcpListener) -> Incoming {
    let socket = Socket { listener, places: Arc::new(Semaphore::new(CONNECTIONS_MAX)) };
    futures::stream::unfold(socket, |socket| async move {
        let (stream, _, place) = socket.next().await;
        Some((Ok(Connection { _place: Some(place), ..Connection::new(stream) }), socket))
    })
    .boxed()
}

/// TLS connections of a socket, after their handshakes.
pub fn accept_tls(listener: TcpListener, tls: Arc<ServerTls>) -> Incoming {
    let socket = Socket { listener, places: Arc::new(Semaphore::new(CONNECTIONS_MAX)) };
    let handshakes: Jobs<(), Option<Connection>> = Jobs::new(HANDSHAKES_MAX);
    futures::stream::unfold((socket, handshakes, tls), |(socket, mut handshakes, tls)| async move {
        loop {
            tokio::select! {
                ((), ended) = handshakes.next() => match ended {
                    JobEnd::Done(Some(connection)) => return Some((Ok(connection), (socket, handshakes, tls))),
                    JobEnd::Done(None) | JobEnd::Aborted => {}
                    JobEnd::Panicked(panic) => tracing::error!(panic, "a TLS handshake panicked"),
                },
                (stream, from, place) = socket.next(), if handshakes.has_room() => {
                    let tls = Arc::clone(&tls);
                    handshakes.spawn((), async move {
                        let (stream, peer) = tls.handshake(stream, Some(from), Protocol::Http2).await?;
                        Some(Connection { _place: Some(place), ..Connection::new(stream).with_peer(peer) })
                    });
                }
            }
        }
    })
    .boxed()
}

struct Socket {
    listener: TcpListener,
    places: Arc<Semaphore>,
}

impl Socket {
    /// Waits for a free place and the next connection. Cancel safe.
    async fn next(&self) -> (TcpStream, SocketAddr, OwnedSemaphorePermit) {
        let place = Arc::clone(&self.places).acquire_owned().await;
        let place = place.expect("the semaphore of a socket is never closed");
        loop {
            let accepted = self.listener.accept().await;
            match accepted.and_then(|(stream, from)| stream.set_nodelay(true).map(|()| (stream, from))) {
                Ok((stream, from)) => return (stream, from, place),
                Err(error) => {
                    tracing::warn!(%error, "the gRPC server cannot accept a connection");
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
}

impl Connection {
    /// Ends the reads from a peer that sends nothing, with the reason. Pending until then.
    fn ended(&mut self, context: &mut Context<'_>) -> Poll<io::Error> {
        if self.is_cut.poll_unpin(context).is_ready() {
            return Poll::Ready(io::Error::new(io::ErrorKind::ConnectionAborted, "the peer does not read its data"));
        }
        let Some(silence) = &mut self.silence else { return Poll::Pending };
        ready!(silence.ends.as_mut().poll(context));
        let why = format!("the peer did not begin HTTP/2 within {} s", PREFACE_WITHIN.as_secs());
        Poll::Ready(io::Error::new(io::ErrorKind::TimedOut, why))
    }
}

impl Connected for Connection {
    type ConnectInfo = Link;

    fn connect_info(&self) -> Link {
        self.link.clone()
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        match self.io.as_mut().poll_read(context, buffer) {
            Poll::Pending => self.ended(context).map(Err),
            Poll::Ready(read) => {
                if let Some(silence) = &mut self.silence {
                    silence.missing = silence.missing.saturating_sub(buffer.filled().len() - before);
                    if silence.missing == 0 {
                        self.silence = None;
                    }
                }
                Poll::Ready(read)
            }
        }
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
