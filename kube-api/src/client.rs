//! Clients of one API server.

use std::sync::{Arc, Once};
use std::time::Duration;

use engine::jitter::Backoff;
use http::header::{ACCEPT, USER_AGENT};
use http::uri::Scheme;
use http::{HeaderValue, Request, StatusCode, Uri};
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::ConfigExt;
use kube::{Client, Config};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use serde::Deserialize;
use tower::{BoxError, ServiceBuilder};
use tracing::subscriber::{self, NoSubscriber};

use super::access::{self, Access, AccessError, DEFAULT_USER_AGENT, Found, Places};
use super::call::{CallError, call, lacks_credentials};
use super::gate::{Gated, gated};
use super::media;
use super::path::KUBE_SYSTEM;
use super::proxy::{self, Connector, Proxy};
use super::shown::Shown;
use super::status::parse_status;
use super::trust::Verifier;

/// Time for name resolution, TCP, a proxy and TLS.
const CONNECT_WITHIN: Duration = Duration::from_secs(10);
/// Idle time after which a TCP keepalive is sent. It finds a vanished peer after about a minute. A quiet watch has no
/// other sign of it.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(30);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEPALIVE_TRIES: u32 = 3;
/// Time to wait for the answer to an HTTP/2 ping. After it a connection with requests in flight counts as dead.
const PONG_WITHIN: Duration = Duration::from_secs(10);
/// API servers accept a hundred concurrent requests on one HTTP/2 connection. Further ones wait, possibly half a minute
/// behind a slow webhook.
pub const REQUESTS_PER_CONNECTION: usize = 64;
const IDLE_CONNECTION_FOR: Duration = Duration::from_secs(60);

const UID_WITHIN: Duration = Duration::from_secs(10);
const UID_ANSWER_MAX: usize = 1024 * 1024;

/// An API server with credentials for it.
#[derive(Clone)]
pub struct Cluster {
    /// HTTP/1.1 with one connection for each request in flight. No retries, no limit on the duration of an answer, no
    /// compression.
    pub client: Client,
    /// The context's name, or `in-cluster`, for messages.
    pub name: String,
    /// The server's address, for messages.
    pub url: String,
    /// The cluster's clients check the [`Gate`](super::Gate) of a request after the connection is open. Other clients
    /// do not check it.
    pub asks_gates: bool,
    /// The credentials that `client` shows.
    pub shown: Shown,
    /// `None` if the client was passed in.
    config: Option<Config>,
    proxy: Option<Proxy>,
    origin: String,
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cluster").field("name", &self.name).field("url", &self.url).finish_non_exhaustive()
    }
}

/// Finds credentials and builds a client. Sends nothing yet.
pub async fn connect(access: &Access) -> Result<Cluster, AccessError> {
    let found = access::find(access, Places::of_this_process()).await?;
    Cluster::build(found, &access.user_agent)
}

impl Cluster {
    /// A server without credentials, such as the sandbox.
    pub fn without_credentials(url: Uri) -> Result<Cluster, AccessError> {
        let origin = format!("the address {url}");
        let found = Found { origin, ..Found::of(Config::new(url)) };
        Cluster::build(found, DEFAULT_USER_AGENT)
    }

    /// Uses an existing client, such as one over a pipe within this process.
    pub fn of_client(client: Client, name: impl Into<String>) -> Cluster {
        let name = name.into();
        let (url, origin) = (name.clone(), name.clone());
        Cluster { client, url, origin, name, asks_gates: false, shown: Shown::default(), config: None, proxy: None }
    }

    /// The same cluster through another client, which passes requests to `client`.
    pub fn through(self, client: Client) -> Cluster {
        Cluster { client, asks_gates: false, config: None, proxy: None, ..self }
    }

    /// A client with its own connections and queue, so that short requests do not wait behind watches. For a cluster of
    /// [`Cluster::of_client`] it is a clone of the cluster's client.
    pub fn another_client(&self) -> Result<Client, AccessError> {
        self.build_another(Protocol::Http1)
    }

    /// A client for many concurrent short requests. They share one connection if the server supports HTTP/2, which
    /// takes a third less processor time than one connection each. Use at most [`REQUESTS_PER_CONNECTION`] on one.
    pub fn sharing_client(&self) -> Result<Client, AccessError> {
        self.build_another(Protocol::Negotiated)
    }

    fn build_another(&self, protocol: Protocol) -> Result<Client, AccessError> {
        match &self.config {
            Some(config) => {
                let built = build_client(config, self.proxy.as_ref(), protocol);
                built.map(|(client, _)| client).map_err(|error| unusable(&self.origin, &error))
            }
            None => Ok(self.client.clone()),
        }
    }

    pub(super) fn build(found: Found, user_agent: &str) -> Result<Cluster, AccessError> {
        let Found { mut config, proxy, name, origin } = found;
        let user_agent = HeaderValue::from_str(user_agent).map_err(|_| AccessError::Unusable {
            origin: format!("the user agent {user_agent:?}"),
            cause: "it is not a valid header value".to_owned(),
        })?;
        config.headers.push((USER_AGENT, user_agent));
        if config.cluster_url.scheme() == Some(&Scheme::HTTP) {
            // Without TLS no certificate is verified, and the machine may have no certificates to load.
            config.root_cert.get_or_insert_default();
        }
        let (client, shown) =
            build_client(&config, proxy.as_ref(), Protocol::Http1).map_err(|error| unusable(&origin, &error))?;
        let url = config.cluster_url.to_string();
        Ok(Cluster { client, name, url, asks_gates: true, shown, config: Some(config), proxy, origin })
    }
}

/// Why the identity of the cluster is unknown.
#[derive(Debug, thiserror::Error)]
pub enum ClusterUidError {
    #[error(transparent)]
    Call(#[from] CallError),
    #[error("the API server answers {} to a read of namespace kube-system: {message}{}", .status.as_u16(), advice(*.status))]
    Refused { status: StatusCode, message: String },
    #[error("the API server's namespace kube-system has no uid")]
    NoUid,
}

fn advice(status: StatusCode) -> &'static str {
    match status {
        StatusCode::UNAUTHORIZED => "; it refuses these credentials",
        StatusCode::FORBIDDEN => "; these credentials need the right to get the namespace",
        _ => "",
    }
}

/// The identity of the cluster: the uid of its namespace kube-system, which lives as long as its storage.
pub async fn cluster_uid(client: &Client) -> Result<String, ClusterUidError> {
    let request = Request::get(KUBE_SYSTEM)
        .header(ACCEPT, media::METADATA)
        .body(Vec::new())
        .expect("the path and the header are constants");
    let answer = call(client, request, UID_ANSWER_MAX, UID_WITHIN).await?;
    if answer.status != StatusCode::OK {
        let message = match parse_status(&answer) {
            Some(status) if !status.message.is_empty() => status.message,
            Some(_) | None => format!("no explanation ({})", answer.content_type),
        };
        return Err(ClusterUidError::Refused { status: answer.status, message });
    }
    let object: Identified = serde_json::from_slice(&answer.body).map_err(|_| ClusterUidError::NoUid)?;
    if object.metadata.uid.is_empty() { Err(ClusterUidError::NoUid) } else { Ok(object.metadata.uid) }
}

/// Reads the identity of the cluster until the API server answers. `waiting` gets each reason why the API server does
/// not answer. A new reason is a warning in the log.
pub async fn await_cluster_uid(
    client: &Client,
    url: &str,
    mut backoff: Backoff,
    mut waiting: impl FnMut(&str),
) -> String {
    let mut warned = String::new();
    loop {
        let why = match cluster_uid(client).await {
            Ok(uid) => return uid,
            Err(error) => format!("cannot read the identity of the cluster at {url}: {error}"),
        };
        let retry_in = backoff.next_delay();
        let retry_in_ms = retry_in.as_millis();
        if warned == why {
            tracing::debug!(why, retry_in_ms, "cannot reach the API server; retrying");
        } else {
            tracing::warn!(why, retry_in_ms, "cannot reach the API server; retrying");
        }
        waiting(&why);
        warned = why;
        tokio::time::sleep(retry_in).await;
    }
}

#[derive(Deserialize)]
struct Identified {
    metadata: Identity,
}

#[derive(Deserialize)]
struct Identity {
    #[serde(default)]
    uid: String,
}

/// The connections of requests.
#[derive(Clone, Copy, Debug)]
enum Protocol {
    /// One connection for each request in flight.
    Http1,
    /// HTTP/2 if the server and TLS offer it, else the same as `Http1`.
    Negotiated,
}

/// Adds TLS to the connector. kube's own function offers only HTTP/1.1.
fn secured(
    config: &Config,
    protocol: Protocol,
    tls: ClientConfig,
    tcp: Connector,
) -> Result<HttpsConnector<Connector>, kube::Error> {
    let mut builder = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http();
    if let Some(name) = &config.tls_server_name {
        let name = ServerName::try_from(name.clone()).map_err(|error| kube::Error::Service(error.into()))?;
        builder = builder.with_server_name_resolver(FixedServerNameResolver::new(name));
    }
    Ok(match protocol {
        Protocol::Http1 => builder.enable_http1().wrap_connector(tcp),
        Protocol::Negotiated => builder.enable_all_versions().wrap_connector(tcp),
    })
}

/// Each process builds several clients of one server.
static UNVERIFIED: Once = Once::new();

/// Builds the HTTP stack. It replaces kube's own stack, which leaves Nagle's algorithm on, retries by itself, logs
/// every 5xx as an error, and may ask for gzip.
fn build_client(config: &Config, proxy: Option<&Proxy>, protocol: Protocol) -> Result<(Client, Shown), kube::Error> {
    // This fails only if another client or the embedding program has already installed a provider.
    let _installed = rustls::crypto::ring::default_provider().install_default();
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_keepalive(Some(KEEPALIVE_AFTER));
    tcp.set_keepalive_interval(Some(KEEPALIVE_INTERVAL));
    tcp.set_keepalive_retries(Some(KEEPALIVE_TRIES));
    if config.accept_invalid_certs {
        UNVERIFIED.call_once(|| tracing::warn!("the certificate of the API server is not verified"));
    }
    // kube says the same for each client.
    let mut tls = subscriber::with_default(NoSubscriber::new(), || config.rustls_client_config())?;
    if let Some(verifier) = Verifier::of(config)? {
        tls.dangerous().set_certificate_verifier(Arc::new(verifier));
    }
    let shown = Shown::of(&config.auth_info, Arc::clone(&tls.client_auth_cert_resolver));
    let own = config.auth_layer()?;
    // Without credentials of its own, a client may carry those of others, which must not outlive their request.
    let noted = own.is_some().then(|| shown.clone());
    let tcp = proxy::connector(proxy, &tls, tcp);
    let mut connector = TimeoutConnector::new(secured(config, protocol, tls, tcp)?);
    connector.set_connect_timeout(Some(CONNECT_WITHIN));
    // hyper repeats a request only if the pooled connection was closed before the first byte of it was written.
    let http: hyper_util::client::legacy::Client<_, Gated> =
        hyper_util::client::legacy::Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_CONNECTION_FOR)
            .timer(TokioTimer::new())
            .http2_keep_alive_interval(KEEPALIVE_INTERVAL)
            .http2_keep_alive_timeout(PONG_WITHIN)
            .build(connector);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(own)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .map_request(move |request| {
            if let Some(noted) = &noted {
                noted.note(&request);
            }
            gated(request)
        })
        .service(http);
    Ok((Client::new(service, config.default_namespace.clone()), shown))
}

fn unusable(origin: &str, error: &kube::Error) -> AccessError {
    let inferred = if let kube::Error::InferKubeconfig(inner) = error { Some(inner.to_string()) } else { None };
    let cause = inferred.or_else(|| lacks_credentials(error)).unwrap_or_else(|| error.to_string());
    AccessError::Unusable { origin: origin.to_owned(), cause }
}

#[cfg(test)]
mod tests;
