//! gRPC-Web. The page calls the services for readers. The answer goes through piece by piece.

use super::answers::Answer;
use super::backend::Backend;
use super::door::Refusal;
use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderName};
use http::{HeaderMap, Method, Request, StatusCode, Version};
use http_body_util::Full;
use std::convert::Infallible;
use std::sync::Arc;
use tonic::body::Body;
use tonic_web::GrpcWebLayer;
use tower::{Layer as _, ServiceExt as _};

const SERVICES: [&str; 3] = [
    "/ownergraph.graph.v1beta1.GraphService/",
    "/ownergraph.decision.v1beta1.DecisionService/",
    "/ownergraph.admin.v1beta1.AdminService/",
];
/// How the names of methods begin that only read. With --read-only the page may call these.
const READS: [&str; 9] = ["BatchGet", "Explain", "Export", "Find", "Get", "List", "Preview", "Wait", "Watch"];
const TYPE: &str = "application/grpc-web";
/// The headers that a call keeps. Credentials of a browser are not among them.
const HEADERS: [HeaderName; 6] = [
    ACCEPT,
    CONTENT_TYPE,
    HeaderName::from_static("grpc-timeout"),
    HeaderName::from_static("traceparent"),
    HeaderName::from_static("x-grpc-web"),
    HeaderName::from_static("x-user-agent"),
];

/// The headers that an answer keeps. A graph service, or a proxy before it, sets no other one at the page.
const ANSWERED: [HeaderName; 5] = [
    CONTENT_TYPE,
    HeaderName::from_static("grpc-encoding"),
    HeaderName::from_static("grpc-message"),
    HeaderName::from_static("grpc-status"),
    HeaderName::from_static("grpc-status-details-bin"),
];

/// Whether a path is that of a call.
pub(super) fn is_call(path: &str) -> bool {
    path.starts_with("/ownergraph.")
}

/// Why a call is refused.
pub(super) fn refusal<B>(request: &Request<B>, writes: bool) -> Option<Refusal> {
    let path = request.uri().path();
    let method = SERVICES.iter().find_map(|service| path.strip_prefix(service));
    let refused = |status, sentence: &str| Some((status, sentence.to_owned()));
    let Some(method) = method.filter(|name| name.bytes().all(|byte| byte.is_ascii_alphanumeric())) else {
        return refused(
            StatusCode::FORBIDDEN,
            "the console forwards GraphService, DecisionService and AdminService only",
        );
    };
    if !writes && !READS.iter().any(|verb| method.starts_with(verb)) {
        return Some((
            StatusCode::FORBIDDEN,
            format!("{method} is not called: the console was started with --read-only"),
        ));
    }
    if request.method() != Method::POST {
        return refused(StatusCode::METHOD_NOT_ALLOWED, "a call is a POST");
    }
    let given = request.headers().get(CONTENT_TYPE).and_then(|given| given.to_str().ok()).unwrap_or_default();
    if !given.starts_with(TYPE) {
        return refused(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "a call is one of gRPC-Web: send application/grpc-web+proto",
        );
    }
    None
}

/// Makes a call. What fails before the service answers is a status of gRPC, as the clients of gRPC expect.
pub(super) async fn forward(backend: Arc<Backend>, path: &str, headers: &HeaderMap, body: Bytes) -> Answer {
    let mut request = Request::new(Full::new(body));
    *request.method_mut() = Method::POST;
    // The path has passed `refusal`, so it is one.
    *request.uri_mut() = path.parse().unwrap_or_default();
    *request.headers_mut() = only(headers, HEADERS);
    let called = tower::service_fn(move |mut request: Request<Body>| {
        let backend = Arc::clone(&backend);
        *request.version_mut() = Version::HTTP_2;
        async move { Ok::<_, Infallible>(backend.call(request).await.unwrap_or_else(|status| status.into_http())) }
    });
    match GrpcWebLayer::new().layer(called).oneshot(request).await {
        Ok(mut answer) => {
            *answer.headers_mut() = only(answer.headers(), ANSWERED);
            answer
        }
        Err(never) => match never {},
    }
}

/// The headers of these names, each once.
fn only(headers: &HeaderMap, names: impl IntoIterator<Item = HeaderName>) -> HeaderMap {
    names.into_iter().filter_map(|name| headers.get(&name).cloned().map(|value| (name, value))).collect()
}
