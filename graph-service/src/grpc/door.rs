//! Refuses requests that are not gRPC calls, and calls from web pages.
//!
//! A browser sends the content type of gRPC to another origin only after a preflight request. This protects only if the
//! server checks the content type. A web page calls by gRPC-Web, from an origin that the administrator has named
//! ([`Origins`]). Calls of gRPC with the headers of a web page are refused.

use super::status;
use super::web::{Origins, Web};
use futures::future::{Either, Ready, ready};
use http::header::{CONTENT_TYPE, ORIGIN, TE};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, Version};
use std::task::{Context, Poll};
use tonic::body::Body;
use tower::{Layer, Service};

/// The content types of gRPC. Parameters may follow.
const CALLS: [&str; 2] = ["application/grpc", "application/grpc+proto"];
/// A header that only browsers send.
const FETCHED_FOR: &str = "sec-fetch-site";

/// The layer.
#[derive(Clone, Debug)]
pub(super) struct DoorLayer(pub(super) Origins);

impl<S: Clone> Layer<S> for DoorLayer {
    type Service = Door<S>;

    fn layer(&self, inner: S) -> Door<S> {
        Door { web: self.0.front(inner.clone()), inner, origins: self.0.clone() }
    }
}

/// Admits gRPC calls, and calls of gRPC-Web from known origins.
#[derive(Clone, Debug)]
pub(super) struct Door<S> {
    inner: S,
    /// `None` if there are no origins.
    web: Option<Web<S>>,
    origins: Origins,
}

impl<S> Service<Request<Body>> for Door<S>
where
    S: Service<Request<Body>, Response = Response<Body>>,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future =
        Either<Either<S::Future, <Web<S> as Service<Request<Body>>>::Future>, Ready<Result<Response<Body>, S::Error>>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        if let Some(web) = &mut self.web {
            std::task::ready!(Service::<Request<Body>>::poll_ready(web, context))?;
        }
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let refused = |refusal| Either::Right(ready(Ok(refusal)));
        if let Some(web) = &mut self.web
            && Origins::concern(&request)
        {
            return match self.origins.refusal(&request) {
                Some((code, why)) => refused(http(code, why)),
                None => Either::Left(Either::Right(web.call(request))),
            };
        }
        if request.version() != Version::HTTP_2 {
            return refused(http(StatusCode::HTTP_VERSION_NOT_SUPPORTED, "gRPC needs HTTP/2\n"));
        }
        match refusal(request.headers()) {
            Some(refusal) => refused(refusal),
            None => Either::Left(Either::Left(self.inner.call(request))),
        }
    }
}

fn refusal(headers: &HeaderMap) -> Option<Response<Body>> {
    let given = headers.get(CONTENT_TYPE).and_then(|given| given.to_str().ok()).unwrap_or_default();
    let kind = given.split(';').next().unwrap_or_default().trim();
    if !CALLS.iter().any(|call| kind.eq_ignore_ascii_case(call)) {
        return Some(http(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "this port serves gRPC: the content type must be application/grpc or application/grpc+proto\n",
        ));
    }
    if headers.contains_key(ORIGIN) || headers.contains_key(FETCHED_FOR) {
        return Some(http(StatusCode::FORBIDDEN, "calls from web pages are not allowed\n"));
    }
    let lists_trailers = |given: &HeaderValue| {
        given.to_str().is_ok_and(|given| given.split(',').any(|one| one.trim().eq_ignore_ascii_case("trailers")))
    };
    let takes_trailers = headers.get_all(TE).iter().any(lists_trailers);
    (!takes_trailers).then(|| status::not_grpc().into_http())
}

/// A plain HTTP answer to a request that is not a gRPC call.
fn http(code: StatusCode, why: &'static str) -> Response<Body> {
    let mut response = Response::new(Body::new(http_body_util::Full::from(why)));
    *response.status_mut() = code;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(headers: &[(&'static str, &'static str)]) -> Option<StatusCode> {
        let parse = |&(name, value): &(&'static str, &'static str)| {
            (http::HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        refusal(&headers.iter().map(parse).collect()).map(|response| response.status())
    }

    #[test]
    fn only_calls_that_no_web_page_made_come_in() {
        let te = ("te", "trailers");
        for kind in ["application/grpc", "application/grpc+proto", "Application/gRPC; charset=utf-8"] {
            assert_eq!(refused(&[("content-type", kind), te]), None, "{kind}");
            assert_eq!(refused(&[("content-type", kind), ("te", "gzip, Trailers")]), None, "{kind}");
            assert_eq!(refused(&[("content-type", kind)]), Some(StatusCode::OK), "an error of gRPC: no te");
            for from in [("origin", "https://evil.example"), ("sec-fetch-site", "cross-site")] {
                assert_eq!(refused(&[("content-type", kind), te, from]), Some(StatusCode::FORBIDDEN));
            }
        }
        for kind in
            ["text/plain", "application/json", "application/grpc-web", "application/grpc+json", "", "application"]
        {
            assert_eq!(refused(&[("content-type", kind), te]), Some(StatusCode::UNSUPPORTED_MEDIA_TYPE), "{kind}");
        }
        assert_eq!(refused(&[te]), Some(StatusCode::UNSUPPORTED_MEDIA_TYPE));
    }
}
