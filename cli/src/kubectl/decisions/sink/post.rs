//! One request to the receiver, and what its answer means.

use crate::kubectl::ending::Problem;
use crate::kubectl::flags::Sink;
use bytes::Bytes;
use executor_service::is_loopback;
use http::header::{AUTHORIZATION, CONTENT_TYPE, LOCATION, RETRY_AFTER, USER_AGENT};
use http::{HeaderMap, Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use runtime::cause::innermost;
use runtime::tls::{Caller, Connector, Foreign};
use runtime::version::user_agent;
use runtime::visible;
use std::time::{Duration, SystemTime};
use tokio::time::timeout;

#[cfg(test)]
mod tests;

/// The structured mode of CloudEvents over HTTP.
const STRUCTURED: &str = "application/cloudevents+json; charset=utf-8";
/// Time from the start of a request to the headers of its answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);
/// Bounds of what is read after the headers. A longer body ends the connection.
const BODY_WITHIN: Duration = Duration::from_secs(2);
const BODY_MAX_BYTES: usize = 16 << 10;
/// The part of a body that stands in a reason.
const REASON_MAX_BYTES: usize = 256;
const IDLE_MAX: Duration = Duration::from_secs(30);

/// The meaning of an answer for its event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Accepted,
    /// The receiver never takes this event.
    Refused(String),
    /// The receiver may take it after a time, which it may have named.
    Again {
        why: String,
        after: Option<Duration>,
        everyone: bool,
    },
}

/// The connections to the receiver.
#[derive(Clone, Debug)]
pub(super) struct Post {
    client: Client<Connector, Full<Bytes>>,
    uri: Uri,
    caller: Caller,
}

impl Post {
    /// Checks the flags, and reads the files. Sends nothing yet.
    pub(super) async fn open(flags: &Sink, url: &str) -> Result<Post, Problem> {
        let bad = |why: &str| Problem::sentence(format!("--sink {url:?} {why}"));
        let uri: Uri = url.parse().map_err(|error| bad(&format!("is not a URL: {error}")))?;
        let authority = uri.authority().ok_or_else(|| bad("is not a URL such as https://events.example/decisions"))?;
        let is_tls = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(bad("is neither http:// nor https://")),
        };
        if authority.as_str().contains('@') {
            return Err(bad("has credentials, which are not used; use --sink-token-file"));
        }
        let is_private = is_tls || is_loopback(&format!("{}:{}", authority.host(), authority.port_u16().unwrap_or(80)));
        if flags.sink_token_file.is_some() && !is_private {
            return Err(bad("is plaintext, so other machines could read the token in --sink-token-file; use https://"));
        }
        if flags.sink_ca.is_some() && !is_tls {
            return Err(bad("is plaintext, and --sink-ca needs TLS; use https://"));
        }
        let foreign = Foreign {
            address_flag: "--sink",
            ca: ("--sink-ca", flags.sink_ca.as_deref()),
            token: ("--sink-token-file", flags.sink_token_file.as_deref()),
        };
        let caller = Caller::open_foreign(foreign, is_tls).await.map_err(|why| Problem::Other(why.into()))?;
        let mut client = Client::builder(TokioExecutor::new());
        client.pool_timer(TokioTimer::new()).pool_idle_timeout(IDLE_MAX);
        client.pool_max_idle_per_host(usize::from(flags.sink_in_flight));
        Ok(Post { client: client.build(caller.connector()), uri, caller })
    }

    /// Sends an event once.
    pub(super) async fn send(self, body: Bytes) -> Answer {
        let request = Request::post(self.uri.clone())
            .header(CONTENT_TYPE, STRUCTURED)
            .header(USER_AGENT, user_agent("ownergraph-sink"))
            .body(Full::new(body));
        let mut request = request.expect("the URI is parsed, and the headers are constants and a version");
        if let Some(token) = self.caller.authorization().await {
            request.headers_mut().insert(AUTHORIZATION, token);
        }
        let response = match timeout(ANSWER_WITHIN, self.client.request(request)).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => return Answer::Again { why: innermost(&error), after: None, everyone: true },
            Err(_) => {
                let why = format!("no answer within {} s", ANSWER_WITHIN.as_secs());
                return Answer::Again { why, after: None, everyone: false };
            }
        };
        let (head, body) = response.into_parts();
        // The headers decide. A body that is too long, slow or broken only costs the connection.
        let text = match timeout(BODY_WITHIN, Limited::new(body, BODY_MAX_BYTES).collect()).await {
            Ok(Ok(body)) => body.to_bytes(),
            Ok(Err(_)) | Err(_) => Bytes::new(),
        };
        judge(head.status, &head.headers, &text)
    }
}

fn judge(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Answer {
    if status.is_success() {
        return Answer::Accepted;
    }
    let after = headers.get(RETRY_AFTER).and_then(|value| retry_after(value.to_str().ok()?));
    let why = why(status, headers, body);
    match status.as_u16() {
        // Address and token are the same for every event.
        300..=399 | 401 | 403 | 404 | 410 => Answer::Again { why, after, everyone: true },
        408 | 425 | 429 | 500..=599 => Answer::Again { why, everyone: after.is_some(), after },
        _ => Answer::Refused(why),
    }
}

/// The delay in a `Retry-After`: seconds, or a date.
fn retry_after(text: &str) -> Option<Duration> {
    let text = text.trim();
    let seconds = text.parse().map(Duration::from_secs).ok();
    seconds.or_else(|| {
        let date = httpdate::parse_http_date(text).ok()?;
        Some(date.duration_since(SystemTime::now()).unwrap_or_default())
    })
}

fn why(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> String {
    let location = headers.get(LOCATION).filter(|_| status.is_redirection());
    let more = match location.and_then(|value| value.to_str().ok()) {
        Some(location) => format!("redirects to {location}, which is not followed; set --sink to the final address"),
        None => String::from_utf8_lossy(&body[..body.len().min(REASON_MAX_BYTES)]).trim().to_owned(),
    };
    let colon = if more.is_empty() { "" } else { ": " };
    visible::line(&format!("{status}{colon}{more}")).into_owned()
}
