//! The connections of a client over HTTP/1.1.

use super::caller::{Caller, Secured};
use crate::cause::innermost;
use http::Uri;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use std::io;
use std::time::Duration;
use tokio::net::TcpStream;
use tower::ServiceExt as _;
use tower::util::BoxCloneSyncService;

const CONNECT_WITHIN: Duration = Duration::from_secs(5);

/// Connects hyper's client.
pub type Connector = BoxCloneSyncService<Uri, TokioIo<Secured<TcpStream>>, io::Error>;

impl Caller {
    /// TCP, and TLS with the current files.
    pub fn connector(&self) -> Connector {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(CONNECT_WITHIN));
        let caller = self.clone();
        BoxCloneSyncService::new(tower::service_fn(move |uri: Uri| {
            let (tcp, caller) = (tcp.clone(), caller.clone());
            async move {
                let host = uri.host().unwrap_or_default().to_owned();
                let address = uri.authority().map_or_else(|| host.clone(), ToString::to_string);
                let stream = tcp.oneshot(uri).await.map_err(|error| io::Error::other(innermost(&error)))?;
                caller.secure(stream.into_inner(), &address, &host).await.map(TokioIo::new)
            }
        }))
    }
}
