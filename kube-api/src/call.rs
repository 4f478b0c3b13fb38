//! One request, one answer; or one request and a stream. What matters most is what a failure proves.

use std::error::Error as StdError;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::{Stream, TryStreamExt};
use http::header::{ACCEPT_ENCODING, CONTENT_TYPE, DATE, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyDataStream, BodyExt};
use kube::Client;
use kube::client::{AuthError, Body};

use super::gate::Withheld;

const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");

/// The most an answer other than 200 to [`open_stream`] may hold.
const REFUSAL_MAX: usize = 1024 * 1024;
/// How much of what a credential plugin complains about is passed on.
const EXEC_WORDS_MAX: usize = 300;

/// A complete answer, whatever its status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    pub status: StatusCode,
    /// Empty where the server gave none.
    pub content_type: String,
    pub body: Bytes,
    /// Only the form in seconds: API servers send no other.
    pub retry_after: Option<Duration>,
    /// The entry in the API server's audit log.
    pub audit_id: Option<String>,
    /// What day and time it was at the server.
    pub date: Option<String>,
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// Nothing of the request has left this process: it has had no effect.
    #[error("the API server cannot be reached: {cause}")]
    NotSent { cause: String },
    /// The credentials themselves could not be got, so nothing was sent: an exec plugin failed, or a token file cannot be read.
    #[error("no credentials for the API server: {cause}")]
    NoCredentials { cause: String },
    /// It may have been carried out.
    #[error("no complete answer from the API server: {cause}")]
    Ambiguous { cause: String },
    /// The server has answered, so the request was carried out or refused; which of the two, nobody has read.
    #[error("the API server's answer is larger than {limit_bytes} bytes")]
    TooLarge { limit_bytes: usize },
}

/// What came of [`open_stream`].
#[derive(Debug)]
pub enum Opened {
    /// 200, and the body as it comes.
    Streaming { content_type: String, body: BodyStream },
    /// Any other status, read to its end.
    Refused(Answer),
}

/// Sends a request and reads the whole answer, at most `limit_bytes` of it and for at most `within`. The URI is path and
/// query alone.
pub async fn call(
    client: &Client,
    request: Request<Vec<u8>>,
    limit_bytes: usize,
    within: Duration,
) -> Result<Answer, CallError> {
    let answer = async { read(send(client, request).await?, limit_bytes).await };
    tokio::time::timeout(within, answer).await.unwrap_or_else(|_| Err(too_late(within)))
}

/// Sends a request whose answer has no end, such as a watch. `within` bounds the wait for the answer's head (and for all
/// of an answer that is not 200); between chunks there is no limit.
pub async fn open_stream(
    client: &Client,
    mut request: Request<Vec<u8>>,
    within: Duration,
) -> Result<Opened, CallError> {
    // A compressed watch is one gzip member per flush, which common decoders stop after.
    request.headers_mut().insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    let opened = async {
        let response = send(client, request).await?;
        if response.status() != StatusCode::OK {
            return read(response, REFUSAL_MAX).await.map(Opened::Refused);
        }
        let content_type = text(response.headers(), &CONTENT_TYPE).unwrap_or_default();
        Ok(Opened::Streaming { content_type, body: BodyStream { data: response.into_body().into_data_stream() } })
    };
    tokio::time::timeout(within, opened).await.unwrap_or_else(|_| Err(too_late(within)))
}

/// The chunks of an endless answer, as they arrive; an error is the last item. Dropping it closes the connection.
#[derive(Debug)]
pub struct BodyStream {
    data: BodyDataStream<Body>,
}

impl Stream for BodyStream {
    type Item = Result<Bytes, CallError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Pin::new(&mut self.data).poll_next(context).map_err(|error| broken_off(&error))
    }
}

async fn send(client: &Client, request: Request<Vec<u8>>) -> Result<Response<Body>, CallError> {
    client.send(request.map(Body::from)).await.map_err(|error| match was_not_sent(&error) {
        _ if let Some(cause) = lacks_credentials(&error) => CallError::NoCredentials { cause },
        true => CallError::NotSent { cause: cause(&error) },
        false => CallError::Ambiguous { cause: cause(&error) },
    })
}

async fn read(response: Response<Body>, limit_bytes: usize) -> Result<Answer, CallError> {
    let (head, body) = response.into_parts();
    let mut data = body.into_data_stream();
    let mut collected = BytesMut::new();
    while let Some(chunk) = data.try_next().await.map_err(|error| broken_off(&error))? {
        if chunk.len() > limit_bytes - collected.len() {
            return Err(CallError::TooLarge { limit_bytes });
        }
        collected.extend_from_slice(&chunk);
    }
    Ok(Answer {
        status: head.status,
        content_type: text(&head.headers, &CONTENT_TYPE).unwrap_or_default(),
        body: collected.freeze(),
        retry_after: text(&head.headers, &RETRY_AFTER).and_then(|value| value.parse().ok()).map(Duration::from_secs),
        audit_id: text(&head.headers, &AUDIT_ID),
        date: text(&head.headers, &DATE),
    })
}

fn text(headers: &HeaderMap, name: &HeaderName) -> Option<String> {
    headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned)
}

/// Why what adds the credentials had none, where that is what failed: the request never reached the client beneath.
pub(super) fn lacks_credentials(error: &kube::Error) -> Option<String> {
    let error = chain(error).find_map(|link| link.downcast_ref::<AuthError>())?;
    let AuthError::AuthExecRun { out, .. } = error else { return Some(cause(error)) };
    // What it was started with and what it wrote to stdout may be secret.
    let said = String::from_utf8_lossy(&out.stderr);
    let last = said.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or("nothing on stderr");
    let last: String = last.chars().take(EXEC_WORDS_MAX).collect();
    Some(format!("the kubeconfig's credential plugin ended with {}: {last}", out.status))
}

/// True only where it is certain: the connection was never made, or hyper dropped the request before it began to write it.
/// Everything unknown counts as sent.
fn was_not_sent(error: &kube::Error) -> bool {
    chain(error).any(|link| {
        if let Some(error) = link.downcast_ref::<hyper_util::client::legacy::Error>() {
            error.is_connect()
        } else if let Some(error) = link.downcast_ref::<hyper::Error>() {
            error.is_canceled()
        } else {
            link.is::<Withheld>()
        }
    })
}

/// The error and everything beneath it, outermost first.
fn chain<'e>(error: &'e (dyn StdError + 'static)) -> impl Iterator<Item = &'e (dyn StdError + 'static)> {
    std::iter::successors(Some(error), |link| (**link).source())
}

/// The chain in words, without the wrappers that say nothing and the repetitions of those that print their source.
fn cause(error: &(dyn StdError + 'static)) -> String {
    let mut words: Vec<String> = Vec::new();
    for link in chain(error) {
        if link.is::<kube::Error>() || link.is::<hyper_util::client::legacy::Error>() {
            continue;
        }
        let text = link.to_string();
        if !words.iter().any(|earlier| earlier.contains(&text)) {
            words.push(text);
        }
    }
    if words.is_empty() { error.to_string() } else { words.join(": ") }
}

fn broken_off(error: &(dyn StdError + 'static)) -> CallError {
    CallError::Ambiguous { cause: format!("the answer broke off: {}", cause(error)) }
}

fn too_late(within: Duration) -> CallError {
    CallError::Ambiguous { cause: format!("nothing within {} s", within.as_secs_f64()) }
}

#[cfg(test)]
mod tests;
