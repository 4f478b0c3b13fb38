//! Who calls, what they may do, and what they may see.
//!
//! Where connections are TLS, every call has to say who makes it, and the API server says what that one may do:
//!
//! * *Who*: a bearer token, which the API server is asked about (TokenReview, for our own audience), or else the certificate that came with
//!   the connection. A token that is not accepted is not made up for by a certificate.
//! * *May*: [`super::rights`] has one row for each RPC: a verb and a virtual resource of the group `ownergraph.dev`, about which the API server is
//!   asked (SubjectAccessReview). A call without a row is not answered.
//! * *See*: calls about objects and decisions are judged by namespace. The handler asks its [`Visibility`]; what is not seen is not there, for
//!   filters and counts too, except for the number of what was left out.
//!
//! Answers of the API server are kept for ten seconds where they allow and two where they do not. **An API server that does not answer
//! allows nothing, and its silence is not kept**: the call is `UNAVAILABLE`. A stream is looked at again every five minutes and when its
//! token or certificate ends; it ends with what a new call would be told, and only where the API server has been silent for a minute.
//!
//! Plaintext connections and pipes within the process have no [`Authenticator`]: the service asks the API server nothing, and every caller sees
//! everything.

use super::status;
use crate::metrics::Metrics;
use crate::metrics::access::AccessMetrics;
use cache::Cache;
use caller::{Caller, Claims, Credentials, Identity};
use futures::future::BoxFuture;
use futures::{FutureExt as _, TryFutureExt as _};
use refusals::Refusals;
use reviews::{Asked, Question, Reviews, TokenAnswer, Unanswered};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tonic::Status;

mod admin;
mod cache;
mod caller;
pub(super) mod guard;
pub(super) mod redact;
mod refusals;
mod reviews;
#[cfg(test)]
mod tests;
mod visibility;

pub(super) use caller::Holder;
pub(crate) use reviews::ApiServer;
pub(super) use visibility::{Seen, Visibility, Whose};

/// How long an answer is kept that allows,
const ALLOWED_FOR: Duration = Duration::from_secs(10);
/// and one that does not.
const DENIED_FOR: Duration = Duration::from_secs(2);
/// Answers that are kept, at most, of each kind.
const KEPT_MAX: usize = 10_000;
/// Questions to the API server that are under way at once, of each kind: whoever guesses tokens keeps nobody else's rights from being asked.
/// Further ones wait.
const ASKED_AT_ONCE_MAX: usize = 32;
/// How long a question may take, its wait included.
const ANSWER_WITHIN: Duration = Duration::from_secs(3);
/// Longest token that is passed on.
const TOKEN_MAX_BYTES: usize = 16 * 1024;

/// Whether callers are told apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Access {
    /// Everybody who reaches the service may do everything. For loopback, and pipes within the process.
    Open,
    /// Each call needs a token for this audience or a client certificate, and the rights that the API server says its caller has.
    Reviewed { audience: String },
}

/// Asks the API server, and remembers for a moment what it said.
pub(crate) struct Authenticator {
    reviews: Box<dyn Reviews>,
    audience: String,
    tokens: Cache<[u8; 32], Token>,
    rights: Cache<Arc<Question>, bool>,
    asking_of_tokens: Arc<Semaphore>,
    asking_of_rights: Arc<Semaphore>,
    refusals: Refusals,
    metrics: AccessMetrics,
}

/// What is known of a token.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Accepted(Arc<Caller>),
    Refused(String),
}

impl std::fmt::Debug for Authenticator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authenticator").field("audience", &self.audience).finish_non_exhaustive()
    }
}

impl Authenticator {
    /// `None` where callers are not told apart.
    pub(crate) fn of(access: &Access, client: kube::Client, metrics: &Metrics) -> Option<Arc<Authenticator>> {
        match access {
            Access::Open => None,
            Access::Reviewed { audience } => Some(Arc::new(Authenticator::asking(
                Box::new(ApiServer::new(client)),
                audience,
                metrics.access.clone(),
            ))),
        }
    }

    fn asking(reviews: Box<dyn Reviews>, audience: &str, metrics: AccessMetrics) -> Authenticator {
        Authenticator {
            reviews,
            audience: audience.to_owned(),
            tokens: Cache::new(KEPT_MAX),
            rights: Cache::new(KEPT_MAX),
            asking_of_tokens: Arc::new(Semaphore::new(ASKED_AT_ONCE_MAX)),
            asking_of_rights: Arc::new(Semaphore::new(ASKED_AT_ONCE_MAX)),
            refusals: Refusals::new(metrics.clone()),
            metrics,
        }
    }

    /// Who makes a call.
    async fn identify(&self, credentials: &Credentials) -> Result<Identity, Status> {
        match credentials {
            Credentials::Missing => Err(status::credentials_missing(&self.audience)),
            Credentials::Unreadable(why) => Err(status::credentials_invalid(&self.audience, why)),
            Credentials::Certificate(certificate) if certificate.not_after <= Instant::now() => {
                Err(status::credentials_invalid(&self.audience, "the client certificate is not valid any more"))
            }
            Credentials::Certificate(certificate) => {
                let caller = Arc::new(Caller::of_certificate(certificate));
                Ok(Identity { caller, holder: Holder::Certificate, ends: Some(certificate.not_after) })
            }
            Credentials::Token(token) => self.holder_of(token).await,
        }
    }

    async fn holder_of(&self, token: &str) -> Result<Identity, Status> {
        let claims = Claims::of(token);
        match self.review(token, claims.as_ref()).await.map_err(|silence| status::review_unavailable(&silence.why))? {
            Token::Accepted(caller) => {
                let ends = claims.and_then(|claims| claims.left()).map(|left| Instant::now() + left);
                let holder = Holder::Token { pod: caller.pod() };
                Ok(Identity { caller, holder, ends })
            }
            // What the token says of itself serves for words alone.
            Token::Refused(_) if claims.as_ref().is_some_and(|claims| claims.is_for_others(&self.audience)) => {
                Err(status::token_for_other_audience(&self.audience))
            }
            Token::Refused(why) => Err(status::credentials_invalid(&self.audience, &why)),
        }
    }

    async fn review(&self, token: &str, claims: Option<&Claims>) -> Result<Token, Unanswered> {
        let left = claims.and_then(Claims::left);
        let lifetime = |token: &Token| match token {
            // Of one whose time is over, the API server has been asked a moment ago.
            Token::Accepted(_) => left.unwrap_or(ALLOWED_FOR).clamp(DENIED_FOR, ALLOWED_FOR),
            Token::Refused(_) => DENIED_FOR,
        };
        let ask = || {
            let asked = self.reviews.token(token.to_owned(), self.audience.clone());
            let answered = in_time(&self.asking_of_tokens, asked);
            let counts = self.metrics.clone();
            let count = move |answer: &Result<TokenAnswer, Unanswered>| {
                counts.reviewed("token", answer.as_ref().ok().map(|answer| matches!(answer, TokenAnswer::Accepted(_))));
            };
            let known = |answer| match answer {
                TokenAnswer::Accepted(caller) => Token::Accepted(Arc::new(caller)),
                TokenAnswer::Refused(why) => Token::Refused(why),
            };
            answered.inspect(count).map_ok(known).boxed()
        };
        self.tokens.get(caller::digest(token), ask, lifetime).await
    }

    /// Whether somebody has a right.
    async fn may(&self, caller: &Arc<Caller>, asked: Asked) -> Result<bool, Status> {
        let question = Arc::new(Question { caller: Arc::clone(caller), asked });
        let lifetime = |allowed: &bool| if *allowed { ALLOWED_FOR } else { DENIED_FOR };
        let ask = || {
            let answered = in_time(&self.asking_of_rights, self.reviews.access(Arc::clone(&question)));
            let counts = self.metrics.clone();
            answered.inspect(move |answer| counts.reviewed("access", answer.as_ref().ok().copied())).boxed()
        };
        let answer = self.rights.get(Arc::clone(&question), ask, lifetime).await;
        answer.map_err(|silence| status::review_unavailable(&silence.why))
    }
}

/// When its turn comes, and not longer than a call should wait.
fn in_time<T: Send + 'static>(
    asking: &Arc<Semaphore>,
    ask: impl Future<Output = Result<T, Unanswered>> + Send + 'static,
) -> BoxFuture<'static, Result<T, Unanswered>> {
    let asking = Arc::clone(asking);
    Box::pin(async move {
        let answer = async {
            let _turn = asking.acquire_owned().await.map_err(|_closed| Unanswered::of("the service ends"))?;
            ask.await
        };
        let too_late = |_| Err(Unanswered::of(&format!("no answer within {} s", ANSWER_WITHIN.as_secs())));
        tokio::time::timeout(ANSWER_WITHIN, answer).await.unwrap_or_else(too_late)
    })
}
