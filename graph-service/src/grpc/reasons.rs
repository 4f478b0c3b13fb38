//! Adds a reason to every error, also to those of the transport and of third-party services.

use super::status;
use http::{HeaderMap, Response};
use http_body_util::BodyExt as _;
use tonic::body::Body;
use tonic::{Code, Status};

/// Adds a reason to a status without one, in the headers or in the trailers.
pub(super) fn complete(response: Response<Body>) -> Response<Body> {
    let (mut head, body) = response.into_parts();
    explain(&mut head.headers);
    let body = body.map_frame(|mut frame| {
        if let Some(trailers) = frame.trailers_mut() {
            explain(trailers);
        }
        frame
    });
    Response::from_parts(head, Body::new(body))
}

fn explain(headers: &mut HeaderMap) {
    let Some(found) = Status::from_header_map(headers) else { return };
    if found.code() != Code::Ok && found.details().is_empty() {
        let explained = status::of_transport(found.code(), found.message());
        // If the reason cannot be encoded, the status stays as it is.
        let _unwritten = explained.add_header(headers);
    }
}
