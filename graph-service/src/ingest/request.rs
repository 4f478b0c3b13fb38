//! Raw requests to the API server, and their errors as sentences.

use super::Clients;
use bytes::Bytes;
pub(crate) use engine::follow::Failure;
use engine::object::clip;
use http::header::{ACCEPT, ACCEPT_ENCODING, CONNECTION};
use http::{HeaderValue, Request, StatusCode};
use kube_api::metadata::{self, Encoding, Page};
use kube_api::{Answer, CallError, Frames, Lines, Opened, Status, call, open_stream, parse_status};
use std::time::Duration;

#[cfg(test)]
mod tests;

/// Maximum size of a page of a list, or of a discovery document. A server that ignores the limit sends a whole
/// collection.
const BODY_MAX_BYTES: usize = 256 * 1024 * 1024;
/// Maximum size of an event of a watch. etcd holds no object above 1.5 MiB; escapes may double the size.
const EVENT_MAX_BYTES: usize = 16 * 1024 * 1024;
/// Time from the request to the last byte of a page.
const BODY_WITHIN: Duration = Duration::from_secs(60);
/// Time from the request to the head of a watch.
const HEAD_WITHIN: Duration = Duration::from_secs(30);
/// Maximum retry delay that a server can ask for.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(60);
/// Maximum number of bytes of text from outside in an error.
const MESSAGE_MAX_BYTES: usize = 300;

/// The error of a missing or interrupted answer.
pub(crate) fn transport(what: &str, error: &CallError) -> Failure {
    Failure::transport(format!("{what}: {error}"))
}

/// Whether the error concerns the encoding: the server supports none of the requested encodings, or does not know one
/// of them.
fn is_about_form(failure: &Failure) -> bool {
    matches!(failure.status, Some(406 | 415))
}

fn refused(what: &str, answer: &Answer) -> Failure {
    let status = parse_status(answer).or_else(|| metadata::protobuf_status(&answer.body));
    let message = match &status {
        Some(status) if !status.message.is_empty() => clip(&status.message, MESSAGE_MAX_BYTES),
        Some(_) => "no message".to_owned(),
        None => clip(String::from_utf8_lossy(&answer.body).trim(), MESSAGE_MAX_BYTES),
    };
    let asked = status.and_then(|status| status.details).map_or(0, |details| details.retry_after_seconds);
    let retry_after = answer.retry_after.or((asked > 0).then(|| Duration::from_secs(asked.into())));
    Failure {
        sentence: format!("{what}: the API server answers {}: {message}", answer.status.as_u16()),
        status: Some(answer.status.as_u16()),
        retry_after: retry_after.map(|wait| wait.min(RETRY_AFTER_MAX)),
    }
}

/// The error of an ERROR event.
pub(crate) fn error_event(what: &str, status: &Status) -> Failure {
    let expired = status.code == 410 || matches!(status.reason.as_str(), "Expired" | "Gone");
    Failure {
        sentence: format!(
            "{what}: the API server ended it with {} {}: {}",
            status.code,
            clip(&status.reason, MESSAGE_MAX_BYTES),
            clip(&status.message, MESSAGE_MAX_BYTES)
        ),
        status: Some(if expired { 410 } else { status.code.max(1) }),
        retry_after: None,
    }
}

/// Returns the body of a 200.
pub(crate) async fn get(clients: &Clients, what: &str, uri: &str, accept: &str) -> Result<Bytes, Failure> {
    answer(clients, what, uri, accept).await.map(|answer| answer.body)
}

/// Returns a 200.
pub(crate) async fn answer(clients: &Clients, what: &str, uri: &str, accept: &str) -> Result<Answer, Failure> {
    one(clients, what, uri, accept, false).await
}

/// Returns a 200. `fresh` means that the request uses a new connection.
pub(crate) async fn one(
    clients: &Clients,
    what: &str,
    uri: &str,
    accept: &str,
    fresh: bool,
) -> Result<Answer, Failure> {
    let first = any(clients, what, uri, accept, fresh).await.and_then(|answer| accepted(what, answer));
    match (first, without_protobuf(accept)) {
        (Err(failure), Some(accept)) if is_about_form(&failure) => {
            accepted(what, any(clients, what, uri, accept, fresh).await?)
        }
        (first, _) => first,
    }
}

/// Returns any answer.
pub(crate) async fn any(
    clients: &Clients,
    what: &str,
    uri: &str,
    accept: &str,
    fresh: bool,
) -> Result<Answer, Failure> {
    let mut request = request(what, uri, accept)?;
    if fresh {
        request.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    let client = if fresh { &clients.fresh } else { &clients.lists };
    call(client, request, BODY_MAX_BYTES, BODY_WITHIN).await.map_err(|error| transport(what, &error))
}

/// Accepts only a 200.
pub(crate) fn accepted(what: &str, answer: Answer) -> Result<Answer, Failure> {
    if answer.status == StatusCode::OK { Ok(answer) } else { Err(refused(what, &answer)) }
}

/// Reads a page of a list in its encoding. The error is a sentence without its subject.
pub(crate) fn page(answer: &Answer) -> Result<Page<'_>, String> {
    metadata::page(encoding(&answer.content_type)?, &answer.body)
}

pub(super) fn encoding(content_type: &str) -> Result<Encoding, String> {
    let other = || {
        format!("has the content type {:?}, which is neither JSON nor protobuf", clip(content_type, MESSAGE_MAX_BYTES))
    };
    Encoding::of(content_type).ok_or_else(other)
}

/// A page that claims to be a list of this kind.
pub(crate) fn page_of<'a>(answer: &'a Answer, group: &str, kind: &str) -> Result<Page<'a>, String> {
    let page = page(answer).map_err(|why| format!("the answer {why}"))?;
    page.check(group, kind).map_err(|why| format!("the answer {why}"))?;
    Ok(page)
}

/// The undecoded events of a watch.
#[derive(Debug)]
pub(crate) enum Events {
    Json(Lines),
    Protobuf(Frames),
}

impl Events {
    pub(crate) fn encoding(&self) -> Encoding {
        match self {
            Events::Json(_) => Encoding::Json,
            Events::Protobuf(_) => Encoding::Protobuf,
        }
    }

    /// The next event, or `None` at a regular end. Cancel safe.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, CallError> {
        match self {
            Events::Json(lines) => lines.next().await,
            Events::Protobuf(frames) => frames.next().await,
        }
    }
}

/// Returns the events of a 200.
pub(crate) async fn stream(clients: &Clients, what: &str, uri: &str, accept: &str) -> Result<Events, Failure> {
    let first = stream_to(clients, what, uri, accept).await;
    match (first, without_protobuf(accept)) {
        (Err(failure), Some(accept)) if is_about_form(&failure) => stream_to(clients, what, uri, accept).await,
        (first, _) => first,
    }
}

async fn stream_to(clients: &Clients, what: &str, uri: &str, accept: &str) -> Result<Events, Failure> {
    let request = request(what, uri, accept)?;
    match open_stream(&clients.watches, request, HEAD_WITHIN).await {
        Ok(Opened::Streaming { content_type, body }) => match encoding(&content_type) {
            Ok(Encoding::Json) => Ok(Events::Json(Lines::new(body, EVENT_MAX_BYTES))),
            Ok(Encoding::Protobuf) => Ok(Events::Protobuf(Frames::new(body, EVENT_MAX_BYTES))),
            Err(why) => Err(Failure::senseless(format!("{what}: the answer {why}"))),
        },
        Ok(Opened::Refused(answer)) => Err(refused(what, &answer)),
        Err(error) => Err(transport(what, &error)),
    }
}

/// The media types that remain for a server that rejects a request because of an unknown one; `None` if none remains.
fn without_protobuf(accept: &str) -> Option<&str> {
    let (first, rest) = accept.split_once(',')?;
    (Encoding::of(first) == Some(Encoding::Protobuf)).then_some(rest)
}

fn request(what: &str, uri: &str, accept: &str) -> Result<Request<Vec<u8>>, Failure> {
    Request::get(uri)
        .header(ACCEPT, accept)
        .header(ACCEPT_ENCODING, "identity")
        .body(Vec::new())
        .map_err(|error| Failure::senseless(format!("{what}: invalid request: {error}")))
}
