//! A network in memory. Hosts dial addresses. Each connection is a pipe with a carrier task in the middle. The task
//! copies the bytes until a test closes the road between the two hosts.

use futures::FutureExt;
use futures::future::BoxFuture;
use http::Uri;
use hyper::server::conn::http1;
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use kube_api::{Gated, gated};
use sandbox::Server;
use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf, ReadHalf, WriteHalf};
use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;

/// The maximum number of bytes in flight on each leg of one direction of a connection.
const PIPE_BYTES: usize = 64 * 1024;
/// The maximum number of connections that wait at one address.
const BACKLOG: usize = 512;
/// The host of the API server.
pub const API: &str = "api";

/// The state of the road between two hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Road {
    Open,
    /// Nothing arrives, and neither side gets an error.
    Frozen,
    /// Connections break, and new ones are refused.
    Closed,
}

/// The network. All clones are the same network.
#[derive(Clone, Default)]
pub struct Network(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    listeners: BTreeMap<String, mpsc::Sender<Accepted>>,
    /// The roads between two hosts. The lesser name is first.
    roads: BTreeMap<(String, String), watch::Sender<Road>>,
    carriers: JoinSet<()>,
    dials: Vec<Dial>,
}

/// An attempt to connect.
#[derive(Clone, Debug)]
pub struct Dial {
    pub at: Instant,
    pub from: String,
    pub to: String,
    pub reached: bool,
}

/// A connection, at the address that the host dialled.
#[derive(Debug)]
pub struct Accepted {
    pub from: String,
    pub pipe: Pipe,
    pub link: Link,
}

/// A handle that breaks one connection.
#[derive(Clone, Debug)]
pub struct Link(AbortHandle);

/// One end of a connection.
#[derive(Debug)]
pub struct Pipe(DuplexStream);

impl std::fmt::Debug for Network {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Network").finish_non_exhaustive()
    }
}

impl Network {
    /// Accepts connections at an address from now on, in place of a former listener.
    pub fn listen(&self, address: &str) -> mpsc::Receiver<Accepted> {
        let (sender, connections) = mpsc::channel(BACKLOG);
        self.state().listeners.insert(address.to_owned(), sender);
        connections
    }

    /// Opens a connection from a host to an address.
    pub async fn dial(&self, from: &str, to: &str) -> io::Result<(Pipe, Link)> {
        let mut road = self.road(from, host(to)).subscribe();
        // The sender lives as long as the network.
        drop(road.wait_for(|road| *road != Road::Frozen).await);
        let open = *road.borrow() == Road::Open;
        let listener = self.state().listeners.get(to).filter(|_| open).cloned();
        let opened = match listener {
            Some(listener) => self.connect(from, &listener, road),
            None => Err(io::Error::from(io::ErrorKind::ConnectionRefused)),
        };
        let dial = Dial { at: Instant::now(), from: from.to_owned(), to: to.to_owned(), reached: opened.is_ok() };
        self.state().dials.push(dial);
        opened
    }

    fn connect(
        &self,
        from: &str,
        listener: &mpsc::Sender<Accepted>,
        road: watch::Receiver<Road>,
    ) -> io::Result<(Pipe, Link)> {
        let (near, near_middle) = tokio::io::duplex(PIPE_BYTES);
        let (far_middle, far) = tokio::io::duplex(PIPE_BYTES);
        let link = {
            let mut state = self.state();
            while state.carriers.try_join_next().is_some() {}
            Link(state.carriers.spawn(carry(near_middle, far_middle, road)))
        };
        let accepted = Accepted { from: from.to_owned(), pipe: Pipe(far), link: link.clone() };
        let refused = |_| io::Error::from(io::ErrorKind::ConnectionRefused);
        listener.try_send(accepted).map_err(refused)?;
        Ok((Pipe(near), link))
    }

    /// Changes the road between two hosts.
    pub fn set_road(&self, one: &str, other: &str, to: Road) {
        self.road(one, other).send_replace(to);
    }

    /// Breaks all connections of a host, and removes its addresses. The host does not exist any more.
    pub fn remove(&self, name: &str) {
        let mut state = self.state();
        state.listeners.retain(|address, _| host(address) != name);
        for ((one, other), road) in &state.roads {
            if one == name || other == name {
                road.send_replace(Road::Closed);
            }
        }
    }

    /// Creates a host with that name again.
    pub fn restore(&self, name: &str) {
        for ((one, other), road) in &self.state().roads {
            if one == name || other == name {
                road.send_replace(Road::Open);
            }
        }
    }

    /// Returns every attempt to connect so far, in order.
    pub fn dials(&self) -> Vec<Dial> {
        self.state().dials.clone()
    }

    /// Serves the sandbox at its host, until the future is dropped.
    pub async fn serve_api(self, server: Server) {
        let mut connections = self.listen(API);
        let mut serving = JoinSet::new();
        loop {
            tokio::select! {
                Some(accepted) = connections.recv() => {
                    let service = TowerToHyperService::new(server.router());
                    let mut http = http1::Builder::new();
                    http.timer(TokioTimer::new());
                    // The call fails if the client leaves during a request.
                    serving.spawn(http.serve_connection(TokioIo::new(accepted.pipe), service).map(drop));
                }
                Some(_ended) = serving.join_next() => {}
            }
        }
    }

    /// Returns a Kubernetes client on a host: HTTP/1.1 to the API server's host, one connection per request in flight.
    pub fn api_client(&self, from: &str) -> kube::Client {
        let (network, from) = (self.clone(), from.to_owned());
        let connector = tower::service_fn(move |_: Uri| {
            let (network, from) = (network.clone(), from.clone());
            async move { network.dial(&from, API).await.map(|(pipe, _)| TokioIo::new(pipe)) }.boxed()
        });
        let http: HttpClient<_, Gated> = HttpClient::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(Duration::from_secs(60))
            .build(connector);
        let base = kube::client::middleware::BaseUriLayer::new(Uri::from_static("http://api"));
        kube::Client::new(tower::ServiceBuilder::new().layer(base).map_request(gated).service(http), "default")
    }

    /// Returns the dialler of an executor's channels on a host.
    pub fn connector(&self, from: &str) -> executor_service::Connector {
        let (network, from) = (self.clone(), from.to_owned());
        executor_service::Connector::through(move |address| {
            let (network, from) = (network.clone(), from.clone());
            let channel: BoxFuture<'static, Result<_, String>> = async move {
                let dialled = network.dial(&from, &address).await;
                let (pipe, _) = dialled.map_err(|error| format!("{address} cannot be reached: {error}"))?;
                executor_service::connect_over(&address, pipe).await
            }
            .boxed();
            channel
        })
    }

    fn road(&self, one: &str, other: &str) -> watch::Sender<Road> {
        let ends = (one.min(other).to_owned(), one.max(other).to_owned());
        self.state().roads.entry(ends).or_insert_with(|| watch::Sender::new(Road::Open)).clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Link {
    /// Shows each end that the other end is gone.
    pub fn cut(&self) {
        self.0.abort();
    }
}

/// Returns the host of an address `HOST:PORT`.
fn host(address: &str) -> &str {
    address.split_once(':').map_or(address, |(host, _)| host)
}

async fn carry(near: DuplexStream, far: DuplexStream, road: watch::Receiver<Road>) {
    let mut closing = road.clone();
    let (from_near, to_near) = tokio::io::split(near);
    let (from_far, to_far) = tokio::io::split(far);
    let both = async { tokio::try_join!(one_way(from_near, to_far, road.clone()), one_way(from_far, to_near, road)) };
    tokio::select! {
        _ = both => {}
        _ = closing.wait_for(|road| *road == Road::Closed) => {}
    }
}

/// Runs until the sender has finished. An error means that the receiver is gone.
async fn one_way(
    mut from: ReadHalf<DuplexStream>,
    mut to: WriteHalf<DuplexStream>,
    mut road: watch::Receiver<Road>,
) -> Result<(), ()> {
    let mut bytes = vec![0; PIPE_BYTES];
    loop {
        let taken = from.read(&mut bytes).await.map_err(drop)?;
        road.wait_for(|road| *road == Road::Open).await.map_err(drop)?;
        if taken == 0 {
            return to.shutdown().await.map_err(drop);
        }
        to.write_all(&bytes[..taken]).await.map_err(drop)?;
    }
}

impl Connection for Pipe {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl tonic::transport::server::Connected for Pipe {
    type ConnectInfo = ();

    fn connect_info(&self) {}
}

impl AsyncRead for Pipe {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl AsyncWrite for Pipe {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}
