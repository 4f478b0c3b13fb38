//! gRPC-Web: calls of web pages whose origins the administrator has named.
//!
//! The door gives such a call to the translation, and a call of gRPC to the services as it is. Behind the translation
//! are the layers of every call, so that authentication, rights, bounds and deadlines are the same. Without origins the
//! door refuses all calls of web pages.

use http::header::{ACCESS_CONTROL_REQUEST_METHOD, AUTHORIZATION, CONTENT_TYPE, HeaderName, HeaderValue, ORIGIN};
use http::{HeaderMap, Method, Request, StatusCode, Uri};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;
use tonic_web::{GrpcWebLayer, GrpcWebService};
use tower::Layer as _;
use tower_http::cors::{Cors, CorsLayer};

/// The content types of gRPC-Web, exactly as tonic-web knows them. It passes others to the services as they are.
const CALLS: [&str; 4] = [
    "application/grpc-web",
    "application/grpc-web+proto",
    "application/grpc-web-text",
    "application/grpc-web-text+proto",
];
/// The services for web pages. WorkService is not among them: its callers carry out writes, its only call is a stream
/// in both directions, which gRPC-Web does not have, and no page is an executor.
const SERVICES: [&str; 3] = [
    "/ownergraph.graph.v1beta1.GraphService/",
    "/ownergraph.decision.v1beta1.DecisionService/",
    "/ownergraph.admin.v1beta1.AdminService/",
];
/// The headers that a page may send.
const REQUEST_HEADERS: [HeaderName; 6] = [
    AUTHORIZATION,
    CONTENT_TYPE,
    HeaderName::from_static("grpc-timeout"),
    HeaderName::from_static("traceparent"),
    HeaderName::from_static("x-grpc-web"),
    HeaderName::from_static("x-user-agent"),
];
/// The headers that a page may read: the status of a call that ends before its first message.
const RESPONSE_HEADERS: [HeaderName; 4] = [
    HeaderName::from_static("grpc-message"),
    HeaderName::from_static("grpc-retry-pushback-ms"),
    HeaderName::from_static("grpc-status"),
    HeaderName::from_static("grpc-status-details-bin"),
];
/// Time for which a browser need not ask again whether it may call.
const PREFLIGHT_AGE: Duration = Duration::from_secs(3600);

/// The origin of a web page, in the form in which browsers send it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin(HeaderValue);

impl FromStr for Origin {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Origin, &'static str> {
        const WANTED: &str = "expected the origin of a web page as browsers send it: http:// or https://, a host in lower case, and :PORT unless it is the default, such as https://console.example";
        let uri: Uri = text.parse().map_err(|_| WANTED)?;
        let (scheme, host) = (uri.scheme_str().unwrap_or_default(), uri.host().unwrap_or_default());
        let default = match scheme {
            "http" => 80,
            "https" => 443,
            _ => return Err(WANTED),
        };
        let port = uri.port_u16().filter(|port| *port != default).map(|port| format!(":{port}")).unwrap_or_default();
        // Without a wildcard, user, path, query, upper case or default port.
        let exact = format!("{scheme}://{}{port}", host.to_ascii_lowercase());
        if text != exact || host.is_empty() || host.contains('*') {
            return Err(WANTED);
        }
        HeaderValue::from_str(text).map(Origin).map_err(|_| WANTED)
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(self.0.as_bytes()))
    }
}

/// The origins whose pages may call.
#[derive(Clone, Debug)]
pub(crate) struct Origins(Arc<[Origin]>);

impl Origins {
    pub(crate) fn new(origins: Vec<Origin>) -> Origins {
        Origins(origins.into())
    }

    pub(super) fn are_given(&self) -> bool {
        !self.0.is_empty()
    }

    /// Translates calls of gRPC-Web for a service of gRPC, and answers the questions of browsers. `None` without
    /// origins.
    pub(super) fn front<S>(&self, inner: S) -> Option<Web<S>> {
        // Without access-control-allow-credentials: a page sends a token of its own. The certificate and the cookies of
        // its user do not go with a call.
        let origins: Vec<HeaderValue> = self.0.iter().map(|origin| origin.0.clone()).collect();
        let cors = CorsLayer::new()
            .allow_methods([Method::POST])
            .allow_headers(REQUEST_HEADERS)
            .expose_headers(RESPONSE_HEADERS)
            .max_age(PREFLIGHT_AGE);
        self.are_given().then(|| cors.allow_origin(origins).layer(GrpcWebLayer::new().layer(inner)))
    }

    /// Whether a request belongs to gRPC-Web.
    pub(super) fn concern<B>(request: &Request<B>) -> bool {
        request.method() == Method::OPTIONS || is_call(request.headers())
    }

    /// Why a request of gRPC-Web is refused.
    pub(super) fn refusal<B>(&self, request: &Request<B>) -> Option<(StatusCode, &'static str)> {
        let headers = request.headers();
        let mut given = headers.get_all(ORIGIN).iter();
        let origin = given.next().filter(|_| given.next().is_none());
        if !origin.is_some_and(|origin| self.0.iter().any(|known| known.0 == *origin)) {
            return Some((StatusCode::FORBIDDEN, "--grpc-web-origins does not name the origin of this web page\n"));
        }
        if !SERVICES.iter().any(|service| request.uri().path().starts_with(service)) {
            let why = "web pages may call GraphService, DecisionService and AdminService only\n";
            return Some((StatusCode::FORBIDDEN, why));
        }
        let is_question = request.method() == Method::OPTIONS && headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD);
        let is_post = request.method() == Method::POST && is_call(headers);
        (!is_question && !is_post).then_some((StatusCode::METHOD_NOT_ALLOWED, "a call is a POST\n"))
    }
}

/// A service for web pages in front of one of gRPC.
pub(super) type Web<S> = Cors<GrpcWebService<S>>;

fn is_call(headers: &HeaderMap) -> bool {
    let mut given = headers.get_all(CONTENT_TYPE).iter();
    let kind = given.next().filter(|_| given.next().is_none()).and_then(|kind| kind.to_str().ok());
    kind.is_some_and(|kind| CALLS.contains(&kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_what_a_browser_sends() {
        for good in ["https://console.example", "http://localhost:5173", "http://127.0.0.1:8080", "http://[::1]:8080"] {
            assert_eq!(good.parse::<Origin>().map(|origin| origin.to_string()).as_deref(), Ok(good));
        }
        for bad in [
            "",
            "*",
            "null",
            "console.example",
            "https://",
            "https://*.example",
            "https://*",
            "https://console.example/",
            "https://console.example/path",
            "https://Console.example",
            "https://console.example:443",
            "http://console.example:80",
            "https://user@console.example",
            "ftp://console.example",
            "file:///tmp/page.html",
            "https://console.example?x",
        ] {
            assert!(bad.parse::<Origin>().is_err(), "{bad}");
        }
    }
}
