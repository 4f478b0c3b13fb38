//! Counts each refusal, and logs each cause once.

use crate::metrics::access::{AccessMetrics, REASONS};
use engine::object::clip;
use proto::error_reason;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

/// Time within which the same cause is not logged again.
const LOGGED_EVERY: Duration = Duration::from_secs(600);
/// Maximum number of remembered causes. If there are more, refusals are logged once for each reason.
const CAUSES_MAX: usize = 256;
/// Maximum number of bytes of a user name in a log line.
const USER_MAX_BYTES: usize = 128;

/// Counts and logs refusals.
pub(super) struct Refusals {
    metrics: AccessMetrics,
    logged: Mutex<BTreeMap<(&'static str, String), Instant>>,
}

impl Refusals {
    pub(super) fn new(metrics: AccessMetrics) -> Refusals {
        Refusals { metrics, logged: Mutex::default() }
    }

    /// Counts and logs the end of a call if it is a refusal. `user` is empty if unknown.
    pub(super) fn note(&self, rpc: &'static str, user: &str, status: &Status) {
        let Some(reason) = reason(status) else { return };
        self.metrics.refuse(reason);
        if self.is_news(reason, user) {
            let user = clip(user, USER_MAX_BYTES);
            tracing::warn!(reason, user, rpc, why = status.message(), "refused a call");
        }
    }

    fn is_news(&self, reason: &'static str, user: &str) -> bool {
        let now = Instant::now();
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        if logged.len() >= CAUSES_MAX {
            logged.retain(|_, at| now.duration_since(*at) < LOGGED_EVERY);
        }
        let user = if logged.len() < CAUSES_MAX { user } else { "" };
        let cause = (reason, clip(user, USER_MAX_BYTES));
        if logged.get(&cause).is_some_and(|at| now.duration_since(*at) < LOGGED_EVERY) {
            return false;
        }
        logged.insert(cause, now);
        true
    }
}

/// The reason of a status, if it concerns the caller.
fn reason(status: &Status) -> Option<&'static str> {
    if !matches!(status.code(), Code::Unauthenticated | Code::PermissionDenied | Code::Unavailable) {
        return None;
    }
    let details = status.get_error_details();
    let reason = error_reason::parse(&details.error_info()?.reason)?;
    REASONS.contains(&reason).then(|| error_reason::text(reason))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grpc::status;

    #[tokio::test(start_paused = true)]
    async fn each_is_counted_and_each_cause_is_news_once() {
        let metrics = AccessMetrics::default();
        let refusals = Refusals::new(metrics.clone());
        let missing = status::credentials_missing("ownergraph");
        refusals.note("a", "", &missing);
        refusals.note("a", "", &missing);
        refusals.note("a", "", &status::object_not_found("x"));
        assert_eq!(metrics.refused("CREDENTIALS_MISSING"), 2);
        assert!(!refusals.is_news("CREDENTIALS_MISSING", ""));
        assert!(refusals.is_news("ACCESS_DENIED", "eve") && !refusals.is_news("ACCESS_DENIED", "eve"));
        // Invented user names cannot flood the log.
        let news = (0..2000).filter(|number| refusals.is_news("ACCESS_DENIED", &format!("u{number}"))).count();
        assert_eq!((news, refusals.logged.lock().unwrap().len()), (CAUSES_MAX - 2 + 1, CAUSES_MAX + 1));
        tokio::time::advance(LOGGED_EVERY).await;
        assert!(refusals.is_news("ACCESS_DENIED", "eve"));
    }
}
