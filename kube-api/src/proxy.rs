//! Proxies on the way to the API server, chosen as kubectl chooses them.
//!
//! The `proxy-url` of the kubeconfig wins. Else the environment decides by the rules of Go's `httpproxy`. hyper-util's
//! `Matcher` follows curl instead: it sends loopback addresses to a proxy and knows no ports in `NO_PROXY`.

use std::fmt;
use std::net::IpAddr;

use http::uri::{PathAndQuery, Scheme};
use http::{HeaderValue, Uri};
use hyper_rustls::{HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::proxy::{SocksV5, Tunnel};
use hyper_util::client::proxy::matcher::Matcher;
use hyper_util::rt::TokioIo;
use ipnet::IpNet;
use rustls::ClientConfig;
use tokio::net::TcpStream;
use tower::util::BoxCloneSyncService;
use tower::{BoxError, ServiceExt as _};

/// Opens TCP connections to the API server, directly or by a proxy.
pub(super) type Connector = BoxCloneSyncService<Uri, MaybeHttpsStream<TokioIo<TcpStream>>, BoxError>;

/// A proxy. Its credentials appear in no message.
#[derive(Clone)]
pub(super) struct Proxy {
    /// Without credentials, with a port.
    address: Uri,
    /// The header for HTTP proxies.
    basic: Option<HeaderValue>,
    /// Name and password for SOCKS5.
    password: Option<(String, String)>,
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Proxy").field(&self.to_string()).finish()
    }
}

impl fmt::Display for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = self.address.scheme_str().unwrap_or_default();
        write!(f, "{scheme}://{}", self.address.authority().map_or("", |authority| authority.as_str()))
    }
}

/// The URL names no usable proxy. The text does not quote the URL, which may hold a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is not a URL such as http://proxy.example:3128 with the scheme http, https, socks5 or socks5h")]
pub(super) struct NotAProxy;

/// The scheme of a proxy and its default port.
const SCHEMES: [(&str, u16); 4] = [("http", 80), ("https", 443), ("socks5", 1080), ("socks5h", 1080)];

impl Proxy {
    pub(super) fn parse(url: &str) -> Result<Proxy, NotAProxy> {
        let uri: Uri = url.trim().parse().map_err(|_| NotAProxy)?;
        let scheme = uri.scheme_str().ok_or(NotAProxy)?;
        let (_, port) = SCHEMES.into_iter().find(|(known, _)| *known == scheme).ok_or(NotAProxy)?;
        // The matcher takes credentials out of the URL, and decodes them.
        let matcher = Matcher::builder().all(url.trim()).build();
        let proxy = matcher.intercept(&Uri::from_static("http://any")).ok_or(NotAProxy)?;
        let address = with_port(proxy.uri().clone(), port);
        address.host().filter(|host| !host.is_empty()).ok_or(NotAProxy)?;
        let password = proxy.raw_auth().map(|(name, password)| (name.to_owned(), password.to_owned()));
        Ok(Proxy { address, basic: proxy.basic_auth().cloned(), password })
    }

    fn is_socks(&self) -> bool {
        !matches!(self.address.scheme_str(), Some("http" | "https"))
    }
}

/// Adds the port, unless the address names one.
fn with_port(address: Uri, port: u16) -> Uri {
    let mut parts = address.clone().into_parts();
    let Some(host) = parts.authority.as_ref().filter(|authority| authority.port().is_none()) else { return address };
    let Ok(authority) = format!("{}:{port}", host.host()).parse() else { return address };
    parts.authority = Some(authority);
    parts.path_and_query.get_or_insert(PathAndQuery::from_static("/"));
    Uri::from_parts(parts).unwrap_or(address)
}

/// The port of an API server.
fn port_of(server: &Uri) -> u16 {
    let by_scheme = if server.scheme() == Some(&Scheme::HTTP) { 80 } else { 443 };
    server.port_u16().unwrap_or(by_scheme)
}

/// The variables about proxies, as values for tests. Upper case names win over lower case names, as in Go.
#[derive(Clone, Default)]
pub(super) struct Environment {
    https: Option<(&'static str, String)>,
    http: Option<(&'static str, String)>,
    /// For both schemes if their own variable is not set. Go ignores this variable, and curl reads it.
    all: Option<(&'static str, String)>,
    no: String,
}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The URLs may hold passwords.
        f.debug_struct("Environment").field("no", &self.no).finish_non_exhaustive()
    }
}

impl Environment {
    pub(super) fn of_this_process() -> Environment {
        Environment::read(|name| std::env::var(name).ok())
    }

    fn read(get: impl Fn(&str) -> Option<String>) -> Environment {
        let first = |names: [&'static str; 2]| {
            names.into_iter().find_map(|name| Some((name, get(name).filter(|value| !value.is_empty())?)))
        };
        Environment {
            https: first(["HTTPS_PROXY", "https_proxy"]),
            http: first(["HTTP_PROXY", "http_proxy"]),
            all: first(["ALL_PROXY", "all_proxy"]),
            no: first(["NO_PROXY", "no_proxy"]).map(|(_, list)| list).unwrap_or_default(),
        }
    }

    /// The proxy for the API server. An error names the variable.
    pub(super) fn proxy_for(&self, server: &Uri) -> Result<Option<Proxy>, (&'static str, NotAProxy)> {
        let own = if server.scheme() == Some(&Scheme::HTTP) { &self.http } else { &self.https };
        let Some((name, url)) = own.as_ref().or(self.all.as_ref()) else { return Ok(None) };
        if server.host().is_none_or(|host| self.is_direct(host, port_of(server))) {
            return Ok(None);
        }
        let url = if url.contains("://") { url.clone() } else { format!("http://{url}") };
        Proxy::parse(&url).map(Some).map_err(|error| (*name, error))
    }

    /// Whether the host is loopback or stands in `NO_PROXY`.
    fn is_direct(&self, host: &str, port: u16) -> bool {
        let host = host.trim_matches(['[', ']']).to_ascii_lowercase();
        let ip: Option<IpAddr> = host.parse().ok().map(|ip: IpAddr| ip.to_canonical());
        host == "localhost"
            || ip.is_some_and(|ip| ip.is_loopback())
            || self.no.split(',').any(|entry| exempts(&entry.trim().to_ascii_lowercase(), &host, ip, port))
    }
}

/// Whether an entry of `NO_PROXY` matches. `example.com` matches itself and what is below, `.example.com` and
/// `*.example.com` match only what is below.
fn exempts(entry: &str, host: &str, ip: Option<IpAddr>, port: u16) -> bool {
    if entry == "*" {
        return true;
    }
    if let Ok(net) = entry.parse::<IpNet>() {
        return ip.is_some_and(|ip| net.contains(&ip));
    }
    let (name, only) = split_port(entry);
    if only.is_some_and(|only| only.parse() != Ok(port)) {
        return false;
    }
    if let Ok(named) = name.trim_matches(['[', ']']).parse::<IpAddr>() {
        return ip == Some(named.to_canonical());
    }
    let name = name.strip_prefix('*').filter(|rest| rest.starts_with('.')).unwrap_or(name);
    match name.strip_prefix('.') {
        _ if name.is_empty() => false,
        Some(_) => host.ends_with(name),
        None => host.strip_suffix(name).is_some_and(|below| below.is_empty() || below.ends_with('.')),
    }
}

/// Splits `host:port` and `[address]:port`. An IPv6 address without brackets has no port.
fn split_port(entry: &str) -> (&str, Option<&str>) {
    match entry.rsplit_once(':') {
        Some((host, port)) if !host.contains(':') || host.ends_with(']') => {
            (host, Some(port).filter(|port| !port.is_empty()))
        }
        Some(_) | None => (entry, None),
    }
}

/// A proxy that opens no connection to the API server.
#[derive(Debug, thiserror::Error)]
#[error("the proxy {proxy} opens no connection to the API server")]
struct Closed {
    proxy: Proxy,
    source: BoxError,
}

/// Connects by the proxy, or directly. HTTP proxies get CONNECT, also for an API server without TLS. SOCKS5 proxies
/// resolve the server's name themselves, as with kubectl. `tls` is for proxies with the scheme https.
pub(super) fn connector(proxy: Option<&Proxy>, tls: &ClientConfig, tcp: HttpConnector) -> Connector {
    let Some(proxy) = proxy.cloned() else {
        return BoxCloneSyncService::new(tcp.map_response(MaybeHttpsStream::Http).map_err(BoxError::from));
    };
    let address = proxy.address.clone();
    let with_port = |server: Uri| {
        let port = port_of(&server);
        with_port(server, port)
    };
    let connector: Connector = if proxy.is_socks() {
        let mut socks = SocksV5::new(address, tcp);
        if let Some((name, password)) = proxy.password.clone() {
            socks = socks.with_auth(name, password);
        }
        let socks = socks.map_request(with_port).map_response(MaybeHttpsStream::Http);
        BoxCloneSyncService::new(socks.map_err(BoxError::from))
    } else {
        let builder = HttpsConnectorBuilder::new().with_tls_config(tls.clone()).https_or_http();
        let mut tunnel = Tunnel::new(address, builder.enable_http1().wrap_connector(tcp));
        if let Some(basic) = proxy.basic.clone() {
            tunnel = tunnel.with_auth(basic);
        }
        BoxCloneSyncService::new(tunnel.map_request(with_port).map_err(BoxError::from))
    };
    BoxCloneSyncService::new(connector.map_err(move |source| BoxError::from(Closed { proxy: proxy.clone(), source })))
}

#[cfg(test)]
mod tests;
