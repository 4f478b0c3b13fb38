//! Sees to it that every error has a reason, also those that the transport finds by itself and those of services that are not ours.

use super::status;
use http::{HeaderMap, Response};
use http_body_util::BodyExt as _;
use tonic::body::Body;
use tonic::{Code, Status};

/// Adds a reason to a status without one, wherever in the answer it is: before the messages, or after them.
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
        // What cannot be written leaves the status as it was.
        let _unwritten = explained.add_header(headers);
    }
}
