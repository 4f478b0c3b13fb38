//! Requests with bodies in JSON.

use http::header::{ACCEPT, CONTENT_TYPE};
use http::{Method, Request};
use serde_json::Value;

use super::media;

/// A request with this body, or without one if it is null. The body of a PATCH is a merge patch.
pub fn request(method: Method, uri: &str, accept: &str, body: &Value) -> Result<Request<Vec<u8>>, http::Error> {
    let content_type = if method == Method::PATCH { media::MERGE_PATCH } else { media::JSON };
    let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    Request::builder().method(method).uri(uri).header(ACCEPT, accept).header(CONTENT_TYPE, content_type).body(body)
}
