//! Channels to a graph service: over the network or a pipe, in plaintext or TLS, with or without a token.

use crate::address::{self, is_loopback};
use futures::future::BoxFuture;
use http::header::AUTHORIZATION;
use http::{HeaderValue, Request, Response, Uri};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use runtime::cause::innermost;
use runtime::tls::{Caller, Complaint};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tonic::ConnectError;
use tonic::body::Body;
use tonic::transport::{self, Endpoint};
use tower::{BoxError, Service};

/// Time for name resolution, TCP and TLS.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// HTTP/2 windows. They are large enough that one unread stream does not stop the connection.
const STREAM_WINDOW_BYTES: u32 = 1024 * 1024;
const CONNECTION_WINDOW_BYTES: u32 = 16 * 1024 * 1024;
/// Interval of HTTP/2 pings. The client detects a vanished peer after at most this interval and the timeout below.
const KEEPALIVE_EVERY: Duration = Duration::from_secs(20);
const KEEPALIVE_WITHIN: Duration = Duration::from_secs(10);

/// A connection to a graph service, reopened if it breaks. Requests carry the caller's token.
#[derive(Clone, Debug)]
pub struct Channel {
    channel: transport::Channel,
    /// The caller whose token is sent.
    caller: Caller,
    /// The credentials that are sent instead of those of the caller.
    authorization: Option<HeaderValue>,
    /// The error of a broken connection.
    complaint: Complaint,
}

/// Opens channels to addresses of a graph service. Clones share it.
#[derive(Clone)]
pub struct Connector(Way);

#[derive(Clone)]
enum Way {
    Network(Caller),
    Through(Arc<dyn Fn(String) -> BoxFuture<'static, Result<Channel, String>> + Send + Sync>),
}

impl Connector {
    /// HTTP/2 over TCP with this caller's credentials and the windows and keepalives of the protocol.
    pub(crate) fn network(caller: Caller) -> Connector {
        Connector(Way::Network(caller))
    }

    /// Another transport, such as a pipe within this process. The error is a sentence that names the address.
    pub fn through<C: Into<Channel> + 'static>(
        open: impl Fn(String) -> BoxFuture<'static, Result<C, String>> + Send + Sync + 'static,
    ) -> Connector {
        Connector(Way::Through(Arc::new(move |address| {
            let opening = open(address);
            Box::pin(async move { opening.await.map(Into::into) })
        })))
    }

    /// `name` is the name in the certificate, if it is not the host of the address.
    pub(crate) async fn open(&self, address: &str, name: Option<&str>) -> Result<Channel, String> {
        match &self.0 {
            Way::Network(caller) => dial(caller, address, name).await,
            Way::Through(open) => open(address.to_owned()).await,
        }
    }
}

impl std::fmt::Debug for Connector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connector").finish_non_exhaustive()
    }
}

impl From<transport::Channel> for Channel {
    /// A channel without a token.
    fn from(channel: transport::Channel) -> Channel {
        Channel { channel, caller: Caller::plaintext(), authorization: None, complaint: Complaint::default() }
    }
}

impl Channel {
    /// The same connection for requests with this `authorization` header. The connection must be TLS or loopback, so
    /// that no other machine can read the header.
    pub fn authorized(&self, authorization: HeaderValue) -> Channel {
        Channel { authorization: Some(authorization), ..self.clone() }
    }
}

impl Service<Request<Body>> for Channel {
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.channel.poll_ready(context).map_err(|error| why(&self.complaint, error))
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        // The clone that reported ready is the one to call.
        let another = self.channel.clone();
        let mut channel = std::mem::replace(&mut self.channel, another);
        let (caller, complaint) = (self.caller.clone(), self.complaint.clone());
        let given = self.authorization.clone();
        Box::pin(async move {
            let token = if given.is_some() { given } else { caller.authorization().await };
            if let Some(token) = token {
                request.headers_mut().insert(AUTHORIZATION, token);
            }
            channel.call(request).await.map_err(|error| why(&complaint, error))
        })
    }
}

/// The status of a failed call. If the failure was in TLS, there was no connection: the status is `UNAVAILABLE`, with
/// the sentence.
fn why(complaint: &Complaint, error: transport::Error) -> BoxError {
    complaint.take().map_or_else(|| error.into(), |sentence| ConnectError(sentence.into()).into())
}

/// A plaintext endpoint with the settings of the protocol. The error says what is wrong with the address.
pub fn endpoint(address: &str) -> Result<Endpoint, String> {
    let uri = address::uri(address).map_err(|why| format!("{address:?} is not an address: {why}"))?;
    Ok(transport::Channel::builder(uri)
        .connect_timeout(CONNECT_WITHIN)
        .tcp_nodelay(true)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .http2_keep_alive_interval(KEEPALIVE_EVERY)
        .keep_alive_timeout(KEEPALIVE_WITHIN)
        .keep_alive_while_idle(true))
}

/// Opens a channel over TCP. The certificate must have `name`, or else the host of the address. The error is a sentence
/// that names the address.
pub async fn dial(caller: &Caller, address: &str, name: Option<&str>) -> Result<Channel, String> {
    let endpoint = endpoint_of(caller, address)?;
    let host = name.map_or_else(|| endpoint.uri().host().unwrap_or_default().to_owned(), str::to_owned);
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    let (calling, shown, complaint) = (caller.clone(), address.to_owned(), Complaint::default());
    let complaining = complaint.clone();
    let connect = move |uri: Uri| {
        let (connecting, caller, address, host) = (tcp.call(uri), calling.clone(), shown.clone(), host.clone());
        let complaint = complaining.clone();
        async move {
            let stream = connecting.await.map_err(|error| std::io::Error::other(innermost(&error)))?;
            let secured = caller.secure(stream.into_inner(), &address, &host).await?;
            Ok::<_, std::io::Error>(TokioIo::new(secured.complaining(complaint)))
        }
    };
    let connect = tower::service_fn(connect);
    let connected = endpoint.connect_with_connector(connect).await;
    let channel = connected.map_err(|error| format!("{address} cannot be reached: {}", innermost(&error)))?;
    // The token is sent only if no other machine can read it.
    let is_private = caller.is_tls() || is_loopback(address);
    let caller = if is_private { caller.clone() } else { Caller::plaintext() };
    Ok(Channel { channel, caller, authorization: None, complaint })
}

/// A channel over an open byte pipe, such as one within this process, in plaintext and without a token. `address` is
/// the host of requests. The error is a sentence that names it.
pub async fn connect_over(
    address: &str,
    pipe: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
) -> Result<transport::Channel, String> {
    over(endpoint(address)?, address, pipe).await
}

/// A channel over an open byte pipe, with TLS if the caller has it: the certificate must have `host`, and the token is
/// sent over TLS only. `shown` names the peer in errors.
pub async fn connect_through(
    caller: &Caller,
    address: &str,
    (shown, host): (&str, &str),
    pipe: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
) -> Result<Channel, String> {
    let secured = caller.secure(pipe, shown, host).await;
    let complaint = Complaint::default();
    let pipe = secured.map_err(|error| format!("{shown} cannot be reached: {error}"))?.complaining(complaint.clone());
    let channel = over(endpoint_of(caller, address)?, shown, pipe).await?;
    let caller = if caller.is_tls() { caller.clone() } else { Caller::plaintext() };
    Ok(Channel { channel, caller, authorization: None, complaint })
}

async fn over(
    endpoint: Endpoint,
    shown: &str,
    pipe: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
) -> Result<transport::Channel, String> {
    let mut pipe = Some(pipe);
    let once = tower::service_fn(move |_| {
        std::future::ready(pipe.take().map(TokioIo::new).ok_or("the pipe was already used"))
    });
    let connected = endpoint.connect_with_connector(once).await;
    connected.map_err(|error| format!("{shown} cannot be reached: {}", innermost(&error)))
}

/// The endpoint keeps the scheme of the address, and the connector does TLS.
fn endpoint_of(caller: &Caller, address: &str) -> Result<Endpoint, String> {
    let endpoint = endpoint(address)?;
    let secure = endpoint.uri().authority().filter(|_| caller.is_tls()).map(|authority| format!("https://{authority}"));
    match secure.map(|origin| origin.parse()) {
        Some(Ok(origin)) => Ok(endpoint.origin(origin)),
        Some(Err(_)) | None => Ok(endpoint),
    }
}
