//! Policies behind HTTPS. A request carries up to a hundred questions, and connections are kept.

use super::review;
use super::{Reply, Unmatched};
use bytes::Bytes;
use engine::guard::Question;
use http::header::{ACCEPT, CONTENT_TYPE, LOCATION, USER_AGENT};
use http::{Request, Response, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube_api::media::JSON;
use runtime::cause::innermost;
use runtime::tls::{Caller, Connector};
use runtime::version::user_agent;
use runtime::visible;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// Longest address of an engine.
const URL_MAX_BYTES: usize = 2048;
/// Maximum number of requests to one engine at once.
pub(super) const AT_ONCE_MAX: usize = 8;
/// Maximum size of an answer.
const ANSWER_MAX_BYTES: usize = 1024 * 1024;
/// The part of a refused location in a message.
const LOCATION_MAX_BYTES: usize = 256;
const IDLE_FOR: Duration = Duration::from_secs(60);

/// A policy engine that is called over HTTPS. Clones share its connections.
#[derive(Clone, Debug)]
pub(crate) struct Webhook {
    uri: Uri,
    roots: Option<Arc<[u8]>>,
    client: Client<Connector, Full<Bytes>>,
}

impl PartialEq for Webhook {
    fn eq(&self, other: &Webhook) -> bool {
        (&self.uri, &self.roots) == (&other.uri, &other.roots)
    }
}

impl Webhook {
    /// Checks the address and the authorities. Connects with the first request.
    pub(super) fn open(url: &str, roots: Option<Vec<u8>>) -> Result<Webhook, String> {
        let bad = |why: &str| format!("spec.webhook.url {url:?} {why}");
        if url.len() > URL_MAX_BYTES {
            return Err(format!("spec.webhook.url has {} bytes; at most {URL_MAX_BYTES}", url.len()));
        }
        let uri: Uri = url.parse().map_err(|error| bad(&format!("is not a URL: {error}")))?;
        let authority = uri.authority().ok_or_else(|| bad("is not a URL such as https://policy.example/gate"))?;
        if uri.scheme_str() != Some("https") {
            return Err(bad("is not https://"));
        }
        if authority.as_str().contains('@') {
            return Err(bad("has credentials, which are not used: remove them"));
        }
        let caller = Caller::open_held("spec.webhook.caBundle", roots.clone()).map_err(|error| error.to_string())?;
        let mut client = Client::builder(TokioExecutor::new());
        client.pool_timer(TokioTimer::new()).pool_idle_timeout(IDLE_FOR).pool_max_idle_per_host(AT_ONCE_MAX);
        Ok(Webhook { uri, roots: roots.map(Arc::from), client: client.build(caller.connector()) })
    }

    /// Asks these questions in one request. `left` is the longest time that one of them has left.
    pub(super) async fn answer(
        self,
        questions: Vec<Arc<Question>>,
        left: Duration,
    ) -> Result<(Vec<Reply>, Vec<Unmatched>), String> {
        let body = review::body(&questions, left)?;
        let asked = questions.iter().map(|question| question.number).collect();
        let answer = timeout(left, self.post(body)).await;
        let answer = answer.map_err(|_| format!("{} did not answer within {} s", self.uri, left.as_secs_f64()))??;
        review::answers(&answer, &asked).map_err(|why| format!("{}: {why}", self.uri))
    }

    async fn post(&self, body: Vec<u8>) -> Result<Bytes, String> {
        let request = Request::post(self.uri.clone())
            .header(CONTENT_TYPE, JSON)
            .header(ACCEPT, JSON)
            .header(USER_AGENT, user_agent("ownergraph-graph-service"))
            .body(Full::new(Bytes::from(body)));
        let request = request.map_err(|error| format!("{}: the request is not usable: {error}", self.uri))?;
        let response =
            self.client.request(request).await.map_err(|error| format!("{}: {}", self.uri, innermost(&error)))?;
        if !response.status().is_success() {
            return Err(self.refusal(&response));
        }
        let body = Limited::new(response.into_body(), ANSWER_MAX_BYTES).collect().await;
        let body = body.map_err(|error| {
            let error: &(dyn Error + 'static) = &*error;
            if error.is::<http_body_util::LengthLimitError>() {
                format!("{}: the answer has more than {ANSWER_MAX_BYTES} bytes", self.uri)
            } else {
                format!("{}: the answer broke off: {}", self.uri, innermost(error))
            }
        })?;
        Ok(body.to_bytes())
    }

    fn refusal(&self, response: &Response<Incoming>) -> String {
        let location = response.headers().get(LOCATION).filter(|_| response.status().is_redirection());
        let more = location.map_or_else(String::new, |location| {
            let location = String::from_utf8_lossy(location.as_bytes());
            let location = engine::object::clip(&location, LOCATION_MAX_BYTES);
            format!(", a redirect to {location}, which is not followed: set spec.webhook.url to the final address")
        });
        visible::line(&format!("{} answered {}{more}", self.uri, response.status())).into_owned()
    }
}
