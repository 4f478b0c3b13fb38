//! Answers over HTTP, with the headers that bind the page.

use bytes::Bytes;
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, HeaderValue, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS,
};
use http::{Response, StatusCode};
use http_body_util::Full;
use serde_json::{Value, json};
use tonic::body::Body;

pub(super) type Answer = Response<Body>;

const JSON: &str = "application/json";
/// The page loads only what this server serves, calls only this server, and cannot stand in another page. No answer is
/// kept: files of another version of this program must not meet this one.
const HEADERS: [(HeaderName, HeaderValue); 5] = [
    (
        CONTENT_SECURITY_POLICY,
        HeaderValue::from_static(
            "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data: blob:; font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        ),
    ),
    (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    (REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
    (HeaderName::from_static("cross-origin-opener-policy"), HeaderValue::from_static("same-origin")),
    (CACHE_CONTROL, HeaderValue::from_static("no-store")),
];

/// The answer with the headers of every answer. They replace those of the same names.
pub(super) fn secured(mut answer: Answer) -> Answer {
    for (name, value) in HEADERS {
        answer.headers_mut().insert(name, value);
    }
    answer
}

pub(super) fn bytes(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Body::new(Full::new(body.into())));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    answer
}

pub(super) fn json(status: StatusCode, value: &Value) -> Answer {
    bytes(status, JSON, value.to_string())
}

/// Why there is no other answer: one sentence.
pub(super) fn refusal(status: StatusCode, sentence: &str) -> Answer {
    json(status, &json!({ "error": sentence }))
}
