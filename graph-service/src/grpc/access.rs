//! Authentication and authorization of callers.
//!
//! On TLS, each call needs credentials, and the API server decides what the caller may do:
//!
//! * *Authentication*: a bearer token, checked by TokenReview for our audience or, if that is allowed, for the API
//!   server's own; or else the client certificate of the connection. A valid certificate does not replace a refused
//!   token.
//! * *Authorization*: [`super::rights`] has one row for each RPC: a verb and a virtual resource of the group
//!   `ownergraph.dev`, checked by SubjectAccessReview. A call without a row is refused.
//! * *Visibility*: calls about objects and decisions are checked by namespace. The handler asks its [`Visibility`].
//!   Hidden objects count as absent, also for filters and counts, except in the number of redacted objects.
//!
//! Positive answers of the API server are cached for ten seconds, negative ones for two. **Without an answer of the API
//! server nothing is allowed, and the missing answer is not cached**: the call is `UNAVAILABLE`. A stream is checked
//! again every five minutes and when its token or certificate expires. It ends with the status that a new call would
//! get. While the API server does not answer, the stream continues for one minute.
//!
//! Plaintext connections and pipes within the process have no [`Authenticator`], so every caller sees everything.

use super::status;
use crate::metrics::Metrics;
use crate::metrics::access::AccessMetrics;
use cache::Cache;
use caller::{Caller, Claims, Credentials, Identity};
use futures::future::BoxFuture;
use futures::{FutureExt as _, TryFutureExt as _};
use refusals::Refusals;
use reviews::{Asked, Question, Reviews, TokenAnswer, Unanswered};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tonic::Status;

mod admin;
mod cache;
mod caller;
pub(super) mod guard;
mod kubeconfigs;
pub(super) mod redact;
mod refusals;
mod reviews;
#[cfg(test)]
mod tests;
mod visibility;

pub(super) use caller::Holder;
pub(crate) use kubeconfigs::keep;
pub(crate) use reviews::ApiServer;
pub(super) use visibility::{Seen, Visibility, Whose};

/// How long a positive answer is cached.
const ALLOWED_FOR: Duration = Duration::from_secs(10);
/// How long a negative answer is cached.
const DENIED_FOR: Duration = Duration::from_secs(2);
/// Maximum number of cached answers of each kind.
const KEPT_MAX: usize = 10_000;
/// Maximum number of concurrent questions of each kind to the API server. Further ones wait, so that guessed tokens do
/// not block the reviews of other callers' rights.
const ASKED_AT_ONCE_MAX: usize = 32;
/// Maximum time of a question, including its wait.
const ANSWER_WITHIN: Duration = Duration::from_secs(3);
/// Maximum length of a token that is forwarded.
const TOKEN_MAX_BYTES: usize = 16 * 1024;

/// Whether callers are authenticated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Access {
    /// Every caller may do everything. Only for loopback, and for pipes within the process.
    Open,
    /// Each call needs credentials that the API server or an authority vouches for, and the rights that the API server
    /// grants.
    Reviewed(Reviewed),
}

/// The credentials that callers may use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reviewed {
    /// The audience of tokens.
    pub audience: String,
    /// Whether tokens for the API server's own audience are accepted too.
    pub api_server_tokens: bool,
    /// Whether client certificates of the cluster's authority are accepted too.
    pub cluster_client_ca: bool,
    /// The file whose certificates are published for callers.
    pub publish_ca: Option<PathBuf>,
}

/// Asks the API server about callers, and caches the answers.
pub(crate) struct Authenticator {
    reviews: Box<dyn Reviews>,
    audience: String,
    api_server_tokens: bool,
    tokens: Cache<[u8; 32], Token>,
    rights: Cache<Arc<Question>, bool>,
    asking_of_tokens: Arc<Semaphore>,
    asking_of_rights: Arc<Semaphore>,
    refusals: Refusals,
    metrics: AccessMetrics,
}

/// The result of a token review.
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
    /// `None` if callers are not authenticated.
    pub(crate) fn of(access: &Access, client: kube::Client, metrics: &Metrics) -> Option<Arc<Authenticator>> {
        match access {
            Access::Open => None,
            Access::Reviewed(reviewed) => {
                let reviews = Box::new(ApiServer::new(client));
                Some(Arc::new(Authenticator::asking(reviews, reviewed, metrics.access.clone())))
            }
        }
    }

    fn asking(reviews: Box<dyn Reviews>, reviewed: &Reviewed, metrics: AccessMetrics) -> Authenticator {
        Authenticator {
            reviews,
            audience: reviewed.audience.clone(),
            api_server_tokens: reviewed.api_server_tokens,
            tokens: Cache::new(KEPT_MAX),
            rights: Cache::new(KEPT_MAX),
            asking_of_tokens: Arc::new(Semaphore::new(ASKED_AT_ONCE_MAX)),
            asking_of_rights: Arc::new(Semaphore::new(ASKED_AT_ONCE_MAX)),
            refusals: Refusals::new(metrics.clone()),
            metrics,
        }
    }

    /// The identity of the caller.
    async fn identify(&self, credentials: &Credentials) -> Result<Identity, Status> {
        match credentials {
            Credentials::Missing => Err(status::credentials_missing(&self.audience)),
            Credentials::Unreadable(why) => Err(status::credentials_invalid(&self.audience, why)),
            Credentials::Certificate(certificate) if certificate.not_after <= Instant::now() => {
                Err(status::credentials_invalid(&self.audience, "the client certificate has expired"))
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
            // The claims of the token are unverified, so they are used only for the error message.
            Token::Refused(_) if claims.as_ref().is_some_and(|claims| claims.is_for_others(&self.audience)) => {
                Err(status::token_for_other_audience(&self.audience))
            }
            Token::Refused(why) => Err(status::credentials_invalid(&self.audience, &why)),
        }
    }

    async fn review(&self, token: &str, claims: Option<&Claims>) -> Result<Token, Unanswered> {
        let left = claims.and_then(Claims::left);
        let lifetime = |token: &Token| match token {
            // The token has expired by the clock of this machine, although the API server accepted it just now.
            Token::Accepted(_) => left.unwrap_or(ALLOWED_FOR).clamp(DENIED_FOR, ALLOWED_FOR),
            Token::Refused(_) => DENIED_FOR,
        };
        // The claims are unverified. They choose the question, and the API server answers it.
        let names_ours = claims.is_some_and(|claims| claims.names(&self.audience));
        let audience = (names_ours || !self.api_server_tokens).then(|| self.audience.clone());
        let ask = || {
            let asked = self.reviews.token(token.to_owned(), audience);
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

    /// Whether a caller has a right.
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

/// Runs a question when a permit is free, and ends it after [`ANSWER_WITHIN`].
fn in_time<T: Send + 'static>(
    asking: &Arc<Semaphore>,
    ask: impl Future<Output = Result<T, Unanswered>> + Send + 'static,
) -> BoxFuture<'static, Result<T, Unanswered>> {
    let asking = Arc::clone(asking);
    Box::pin(async move {
        let answer = async {
            let _turn = asking.acquire_owned().await.map_err(|_closed| Unanswered::of("the service is stopping"))?;
            ask.await
        };
        let too_late = |_| Err(Unanswered::of(&format!("no answer within {} s", ANSWER_WITHIN.as_secs())));
        tokio::time::timeout(ANSWER_WITHIN, answer).await.unwrap_or_else(too_late)
    })
}
