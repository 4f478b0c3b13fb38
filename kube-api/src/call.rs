//! One request with one answer or a stream. Each error says what it proves about the request.

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

/// Maximum size of an answer other than 200 to [`open_stream`].
const REFUSAL_MAX: usize = 1024 * 1024;
/// Maximum number of bytes of a credential plugin's message.
const EXEC_WORDS_MAX: usize = 300;

/// A complete answer with any status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    pub status: StatusCode,
    /// Empty if the server sent none.
    pub content_type: String,
    pub body: Bytes,
    /// The wait in seconds. The other form of the header is ignored, because API servers never send it.
    pub retry_after: Option<Duration>,
    /// The id of the entry in the API server's audit log.
    pub audit_id: Option<String>,
    /// The server's date.
    pub date: Option<String>,
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// Nothing of the request was sent: it had no effect.
    #[error("the API server cannot be reached: {cause}")]
    NotSent { cause: String },
    /// No credentials: an exec plugin failed, or a token file cannot be read. Nothing was sent.
    #[error("no credentials for the API server: {cause}")]
    NoCredentials { cause: String },
    /// The request may have been carried out.
    #[error("no complete answer from the API server: {cause}")]
    Ambiguous { cause: String },
    /// The server answered, so the request was carried out or refused. The answer was not read to its end.
    #[error("the API server's answer is larger than {limit_bytes} bytes")]
    TooLarge { limit_bytes: usize },
}

/// The result of [`open_stream`].
#[derive(Debug)]
pub enum Opened {
    /// 200, with the body as a stream.
    Streaming { content_type: String, body: BodyStream },
    /// Any other status, with the complete answer.
    Refused(Answer),
}

/// Sends a request and reads the whole answer, at most `limit_bytes` and for at most `within`. The URI has only path
/// and query.
pub async fn call(
    client: &Client,
    request: Request<Vec<u8>>,
    limit_bytes: usize,
    within: Duration,
) -> Result<Answer, CallError> {
    let answer = async { read(send(client, request).await?, limit_bytes).await };
    tokio::time::timeout(within, answer).await.unwrap_or_else(|_| Err(too_late(within)))
}

/// Sends a request with an endless answer, such as a watch. `within` bounds the wait for the head, and the whole answer
/// if it is not 200. There is no limit between chunks.
pub async fn open_stream(
    client: &Client,
    mut request: Request<Vec<u8>>,
    within: Duration,
) -> Result<Opened, CallError> {
    // Compression is off, because a compressed watch has one gzip member for each flush, and common decoders stop after
    // the first.
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

/// The chunks of an endless answer; an error is the last item. Dropping it closes the connection.
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

/// Why there are no credentials, if the error has that cause. The request never reached the HTTP client.
pub(super) fn lacks_credentials(error: &kube::Error) -> Option<String> {
    let error = chain(error).find_map(|link| link.downcast_ref::<AuthError>())?;
    let AuthError::AuthExecRun { out, .. } = error else { return Some(cause(error)) };
    // The error quotes only stderr, because the plugin's arguments and stdout may be secret.
    let said = String::from_utf8_lossy(&out.stderr);
    let last = said.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or("nothing on stderr");
    let last: String = last.chars().take(EXEC_WORDS_MAX).collect();
    Some(format!("the kubeconfig's credential plugin ended with {}: {last}", out.status))
}

/// Whether the request was certainly not sent: there was no connection, or hyper dropped the request before it wrote a
/// byte. Unknown errors count as sent.
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

/// The error and its sources, outermost first.
fn chain<'e>(error: &'e (dyn StdError + 'static)) -> impl Iterator<Item = &'e (dyn StdError + 'static)> {
    std::iter::successors(Some(error), |link| (**link).source())
}

/// The chain as text, without empty wrappers and repetitions.
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
    CallError::Ambiguous { cause: format!("the answer ended early: {}", cause(error)) }
}

fn too_late(within: Duration) -> CallError {
    CallError::Ambiguous { cause: format!("no data within {} s", within.as_secs_f64()) }
}

#[cfg(test)]
mod tests;
